// SPDX-License-Identifier: GPL-2.0-or-later
// TLS between two channels: who is heard and who is not, and what each end says of it.
#include "tests/unit/tls_rig.hpp"

using namespace souk;
using namespace souk::unit;
using namespace souk::wire;

namespace {

constexpr trust::Roles providers = trust::only(trust::Role::provider);
constexpr Nanos hour = Nanos::from_s(3'600);

START_TEST(both_ends_know_who_the_other_is) {
    const Ca ca;
    const auto n1 = tls_of(ca.node("n1")), n2 = tls_of(ca.node("n2"));
    TlsPair p(n2->acceptor(), n1->connector(providers, "n2"));
    UNTIL(p.loop, p.server.frames.size() == 1);
    ck_assert_text(p.server.channel->peer()->subject.name, "n1");
    ck_assert_text(p.client.channel->peer()->subject.name, "n2");
    ck_assert_text(p.server.channel->peer()->key, n1->identity()->key.digest());
    // frames of all lengths, both ways
    OK(p.server.channel->send(frame::welcome, "w"));
    for (const size_t bytes : {0U, 1U, 16'383U, 16'384U, 100'000U, 2'000'000U}) {
        const std::string body = pattern(bytes, 7);
        OK(p.server.channel->send(frame::directory, body));
        OK(p.client.channel->send(frame::directory, body));
        const size_t count = p.server.frames.size() + 1;
        UNTIL(p.loop, p.server.frames.size() == count && p.client.frames.size() == count);
        ck_assert(p.server.frames.back() == body && p.client.frames.back() == body);
    }
}
END_TEST

START_TEST(strangers_are_not_heard) {
    const Ca ca, foreign;
    const auto n2 = tls_of(ca.node("n2"));
    {  // without a certificate
        const auto stranger = Tls::open_stranger(ca.root.certificate.digest());
        TlsPair p(n2->acceptor(), (*stranger)->connector(providers, ""));
        p.fails("does not want this end", "another market than the token's");
    }
    {  // of another market
        const auto other = tls_of(foreign.node("n1"));
        TlsPair p(n2->acceptor(), other->connector(providers, "n2"));
        UNTIL(p.loop, !p.client.closed.empty());
        ck_assert(p.client.closed.find("is not of this market") != std::string::npos);
        UNTIL(p.loop, !p.server.closed.empty());
        ck_assert(p.server.frames.empty());
    }
    {  // that does not speak TLS
        TlsPair p(n2->acceptor(), plain_transport());
        p.fails("does not speak TLS 1.3", "");
    }
    {  // to one that does not
        const auto n1 = tls_of(ca.node("n1"));
        TlsPair p(plain_transport(), n1->connector(providers, "n2"));
        p.fails("this is not souk's protocol", "does not speak TLS 1.3");
    }
}
END_TEST

// A client that believes anybody of a name, to see what the other end says of it.
START_TEST(each_bad_certificate_has_its_line_at_both_ends) {
    const Ca ca;
    const Nanos now = unix_now();
    const auto n2 = tls_of(ca.node("n2"));
    const auto meets = [&](trust::Identity identity, std::string_view server_says,
                           std::string_view client_says) {
        const auto n1 = tls_of(std::move(identity));
        TlsPair p(n2->acceptor(), n1->connector(trust::node_roles, "n2"));
        p.fails(server_says, client_says);
    };
    meets(ca.node("n1", now - trust::leaf_life - hour), "the certificate of n1 ended",
          "refuses this end's certificate: it has ended");
    meets(ca.node("n1", now + hour), "one of the two clocks is wrong",
          "refuses this end's certificate");
    auto fake = ca.node("n1");
    const Ca foreign;
    fake.chain = foreign.node("n1").chain;
    fake.key = *trust::Key::make();
    fake.chain[0] = *trust::issue(foreign.issuing, fake.key, {"n1", trust::node_roles}, now);
    meets(fake, "is not of this market", "it is of another market");

    auto revoked = ca.node("n1");
    n2->revoke({1, {{revoked.key.digest(), "n1"}}});
    meets(revoked, "was revoked", "it was revoked");
}
END_TEST

START_TEST(a_peer_that_is_known_is_refused_from_when_it_is_revoked_on) {
    const Ca ca;
    const auto n1 = tls_of(ca.node("n1")), n2 = tls_of(ca.node("n2"));
    const std::string key = n1->identity()->key.digest();
    for (int round = 0; round < 3; ++round) {  // its signatures are looked at once
        TlsPair p(n2->acceptor(), n1->connector(providers, "n2"));
        UNTIL(p.loop, p.server.frames.size() == 1);
        ck_assert_text(p.server.channel->peer()->subject.name, "n1");
        ck_assert_text(p.server.channel->peer()->key, key);
    }
    // Another one with the same name, and the certificate of the first without its key.
    auto thief = ca.node("n1");
    thief.chain = n1->identity()->chain;
    ck_assert(!Tls::open(thief, {}).has_value());
    n2->revoke({1, {{key, "n1"}}});
    TlsPair p(n2->acceptor(), n1->connector(providers, "n2"));
    p.fails("the certificate of n1 was revoked", "it was revoked");
    n1->revoke({1, {{n2->identity()->key.digest(), "n2"}}});
    TlsPair q(n2->acceptor(), n1->connector(providers, "n2"));
    UNTIL(q.loop, q.client.closed.find("the certificate of n2 was revoked") != std::string::npos);
}
END_TEST

START_TEST(a_peer_of_another_name_or_role_is_not_talked_to) {
    const Ca ca;
    const auto n1 = tls_of(ca.node("n1")), n2 = tls_of(ca.node("n2"));
    {
        TlsPair p(n2->acceptor(), n1->connector(providers, "n3"));
        UNTIL(p.loop, !p.client.closed.empty());
        ck_assert_text(p.client.closed, "the peer is n2, not n3");
    }
    {
        TlsPair p(n2->acceptor(), n1->connector(trust::only(trust::Role::market), ""));
        UNTIL(p.loop, !p.client.closed.empty());
        ck_assert_text(p.client.closed, "the peer is n2 (home,provider), not market");
        UNTIL(p.loop, !p.server.closed.empty());
        ck_assert(p.server.frames.empty());
    }
}
END_TEST

START_TEST(a_market_shows_its_root_to_those_who_want_to_join) {
    const Ca ca;
    const auto market = tls_of(ca.identity({"market", trust::only(trust::Role::market)}),
                               {.takes_strangers = true});
    const auto stranger = Tls::open_stranger(ca.root.certificate.digest());
    TlsPair p(market->acceptor(), (*stranger)->connector(trust::only(trust::Role::market), ""));
    UNTIL(p.loop, p.server.frames.size() == 1);
    ck_assert(p.server.channel->peer() == nullptr);
    ck_assert_text((*stranger)->root()->digest(), ca.root.certificate.digest());
    // With a certificate, it has to be a good one.
    const auto late = tls_of(ca.node("n1", unix_now() - trust::leaf_life - hour));
    TlsPair q(market->acceptor(), late->connector(trust::only(trust::Role::market), ""));
    q.fails("the certificate of n1 ended", "it has ended");
    const auto wrong = Tls::open_stranger(std::string(64, '0'));
    TlsPair r(market->acceptor(), (*wrong)->connector(trust::only(trust::Role::market), ""));
    UNTIL(r.loop, !r.client.closed.empty());
    ck_assert(r.client.closed.find("nothing was told to it") != std::string::npos);
}
END_TEST

// The same site twice, once as each side has it.
START_TEST(the_root_of_another_site_is_good_for_its_market_alone) {
    constexpr trust::Roles site = trust::only(trust::Role::site),
                           market_role = trust::only(trust::Role::market);
    const Tls::Options shows_root{.takes_strangers = true};
    const Ca lab_ca, uni_ca;
    const auto lab = tls_of(lab_ca.identity({"market", market_role}), shows_root);
    const auto uni = tls_of(uni_ca.identity({"market", market_role}), shows_root);
    const auto node = tls_of(uni_ca.node("n1"), shows_root);
    const auto of_operator =
        tls_of(uni_ca.identity({"ada", trust::only(trust::Role::operator_)}), shows_root);
    ck_assert(uni->know_sites({{lab_ca.root.certificate.digest(), "lab"}}, wire::OfSites::markets)
                  .has_value());
    ck_assert(node->know_sites({{lab_ca.root.certificate.digest(), "lab"}}, wire::OfSites::markets)
                  .has_value());
    ck_assert(
        of_operator->know_sites({{lab_ca.root.certificate.digest(), "lab"}}, wire::OfSites::markets)
            .has_value());
    {  // one side alone has agreed
        TlsPair p(lab->acceptor(), uni->connector(site, "lab"));
        UNTIL(p.loop, !p.server.closed.empty() && !p.client.closed.empty());
        ck_assert(p.server.closed.find("is not of this market") != std::string::npos);
        ck_assert(p.server.frames.empty());
    }
    ck_assert(lab->know_sites({{uni_ca.root.certificate.digest(), "uni"}}, wire::OfSites::markets)
                  .has_value());
    {
        TlsPair p(lab->acceptor(), uni->connector(site, "lab"));
        UNTIL(p.loop, p.server.frames.size() == 1);
        const trust::Peer& peer = *p.server.channel->peer();
        ck_assert_text(peer.subject.name, "uni");
        ck_assert(peer.subject.roles == site && peer.subject.scope.empty());
        ck_assert_text(p.client.channel->peer()->subject.name, "lab");
    }
    {  // as the own market, or under another name, it is nobody
        TlsPair p(uni->acceptor(), lab->connector(market_role, ""));
        UNTIL(p.loop, !p.client.closed.empty());
        ck_assert(p.client.closed.find("not market") != std::string::npos);
        TlsPair q(uni->acceptor(), lab->connector(site, "far"));
        UNTIL(q.loop, !q.client.closed.empty());
        ck_assert(q.client.closed.find("is uni, not far") != std::string::npos);
    }
    for (const auto* const other : {&node, &of_operator}) {
        TlsPair p(lab->acceptor(), (*other)->connector(site, "lab"));
        UNTIL(p.loop, !p.server.closed.empty());
        ck_assert(p.server.closed.find("its market alone may call here") != std::string::npos);
        ck_assert(p.server.frames.empty());
    }
    // own nodes are who they were, whatever card was added; and a root that is known no more counts
    // no more
    ck_assert(lab->know_sites({{uni_ca.root.certificate.digest(), "uni"},
                               {lab_ca.issuing.certificate.digest(), "evil"},
                               {lab_ca.root.certificate.digest(), "worse"}},
                              wire::OfSites::markets)
                  .has_value());
    const auto own = tls_of(lab_ca.node("n1"));
    TlsPair p(lab->acceptor(), own->connector(market_role, ""));
    UNTIL(p.loop, p.server.frames.size() == 1);
    ck_assert(p.server.channel->peer()->subject.roles == trust::node_roles);
    ck_assert(lab->know_sites({}, wire::OfSites::markets).has_value());
    TlsPair q(lab->acceptor(), uni->connector(site, "lab"));
    UNTIL(q.loop, !q.server.closed.empty());
    ck_assert(q.server.frames.empty());
}
END_TEST

START_TEST(a_node_of_another_site_is_a_node_of_that_site_and_nothing_else) {
    const Ca lab_ca, uni_ca;
    const auto home = tls_of(lab_ca.node("n1")), place = tls_of(uni_ca.node("n1"));
    const auto market = tls_of(uni_ca.identity({"market", trust::only(trust::Role::market)}));
    const auto of_operator = tls_of(uni_ca.identity({"ada", trust::only(trust::Role::operator_)}));
    const std::map<std::string, std::string> uni{{uni_ca.root.certificate.digest(), "uni"}},
        lab{{lab_ca.root.certificate.digest(), "lab"}};
    const trust::Roles provider = trust::only(trust::Role::provider);
    {  // its market has not told this one yet
        TlsPair p(place->acceptor(), home->connector(provider, "uni:n1"));
        UNTIL(p.loop, !p.client.closed.empty());
        ck_assert(p.server.frames.empty());
    }
    for (const auto* const one : {&place, &market, &of_operator})
        ck_assert((*one)->know_sites(lab, wire::OfSites::nodes).has_value());
    ck_assert(home->know_sites(uni, wire::OfSites::nodes).has_value());
    {
        TlsPair p(place->acceptor(), home->connector(provider, "uni:n1"));
        UNTIL(p.loop, p.server.frames.size() == 1);
        ck_assert_text(p.server.channel->peer()->full_name(), "lab:n1");
        ck_assert(p.server.channel->peer()->subject.roles == trust::node_roles);
        ck_assert_text(p.client.channel->peer()->full_name(), "uni:n1");
    }
    for (const char* name : {"n1", "far:n1", "uni:n2"}) {  // not under another name
        TlsPair p(place->acceptor(), home->connector(provider, name));
        UNTIL(p.loop, !p.client.closed.empty());
        ck_assert(p.client.closed.find("is uni:n1, not ") != std::string::npos);
    }
    for (const auto* const other : {&market, &of_operator}) {
        TlsPair p(home->acceptor(), (*other)->connector(provider, "lab:n1"));
        UNTIL(p.loop, !p.server.closed.empty());
        ck_assert(p.server.closed.find("its nodes alone may call here") != std::string::npos);
        ck_assert(p.server.frames.empty());
    }
}
END_TEST

START_TEST(half_a_handshake_ends_in_time_and_in_bytes) {
    const Ca ca;
    const auto n2 = tls_of(ca.node("n2"));
    Loop loop = open_loop();
    {
        auto [a, b] = pair_of_sockets();
        End server;
        server.open(loop, std::move(a), Side::acceptor, n2->acceptor(),
                    {.first_frame_limit = Nanos::from_ms(50)});
        write_all(b.get(), std::string_view("\x16\x03\x01\x02", 4));
        UNTIL(loop, !server.closed.empty());
        ck_assert_text(server.closed, "no TLS handshake in time");
    }
    auto [a, b] = pair_of_sockets();
    End server;
    server.open(loop, std::move(a), Side::acceptor, n2->acceptor());
    set_nonblocking(b.get());
    // handshake records that announce a message which never ends
    std::string record("\x16\x03\x01\x40\x00\x01\xff\xff\xff", 9);
    record.resize(5 + 0x4000);
    for (int i = 0; i < 20 && server.closed.empty(); ++i) {
        (void)!::send(b.get(), record.data(), record.size(), MSG_NOSIGNAL);
        (void)loop.run_until([&] { return !server.closed.empty(); }, Nanos::from_ms(20));
    }
    ck_assert_msg(!server.closed.empty(), "it goes on listening");
}
END_TEST

START_TEST(bulk_data_is_sealed_too_and_comes_whole) {
    const Ca ca;
    const auto n1 = tls_of(ca.node("n1")), n2 = tls_of(ca.node("n2"));
    TlsPair p(n2->acceptor(), n1->connector(providers, "n2"));
    UNTIL(p.loop, p.server.frames.size() == 1);
    bulk_comes_whole(p.loop, *p.client.channel, *p.server.channel);
}
END_TEST

START_TEST(a_renewed_certificate_counts_from_the_next_connection_on) {
    const Ca ca;
    const auto n1 = tls_of(ca.node("n1", unix_now() - trust::leaf_life - hour)),
               n2 = tls_of(ca.node("n2"));
    {
        TlsPair p(n2->acceptor(), n1->connector(providers, "n2"));
        UNTIL(p.loop, !p.server.closed.empty());
    }
    const trust::Identity& own = *n1->identity();
    OK(n1->renew({*trust::issue(ca.issuing, own.key, {"n1", trust::node_roles}, unix_now()),
                  ca.issuing.certificate}));
    TlsPair p(n2->acceptor(), n1->connector(providers, "n2"));
    UNTIL(p.loop, p.server.frames.size() == 1);
}
END_TEST

UNIT_SUITE(tls, both_ends_know_who_the_other_is, strangers_are_not_heard,
           each_bad_certificate_has_its_line_at_both_ends,
           a_peer_that_is_known_is_refused_from_when_it_is_revoked_on,
           a_peer_of_another_name_or_role_is_not_talked_to,
           a_market_shows_its_root_to_those_who_want_to_join,
           the_root_of_another_site_is_good_for_its_market_alone,
           a_node_of_another_site_is_a_node_of_that_site_and_nothing_else,
           half_a_handshake_ends_in_time_and_in_bytes, bulk_data_is_sealed_too_and_comes_whole,
           a_renewed_certificate_counts_from_the_next_connection_on);

}  // namespace
