// SPDX-License-Identifier: GPL-2.0-or-later
// Another process does handshakes. These tests look at the sessions that come of them, at the
// refusals, and at what agentd believes of a process that somebody has taken over. They also
// compare the records of a session with OpenSSL's.
#include <openssl/ssl.h>
#include <poll.h>
#include <sys/wait.h>

#include "agentd/handshake/handshakes.hpp"
#include "agentd/handshake/shaker.hpp"
#include "kernel/sys/net/packets.hpp"
#include "tests/unit/tls_rig.hpp"

using namespace souk;
using namespace souk::unit;
using namespace souk::wire;
using namespace souk::handshake;

namespace {

constexpr trust::Roles providers = trust::only(trust::Role::provider);
constexpr Nanos hour = Nanos::from_s(3'600);

// A child that does with its end of the socket what `work` says.
Handshakes::Start child(const std::function<void(Fd)>& work) {
    return [work](Fd socket) -> Result<Pidfd> {
        const pid_t pid = ::fork();
        if (pid == 0) {
            work(std::move(socket));
            ::_exit(0);
        }
        return Pidfd::open(pid);
    };
}

void shake_honestly(Fd socket) {
    ::alarm(60);
    if (const auto shaker = Shaker::open(std::move(socket))) (void)(*shaker)->run();
}

struct Node {
    Log log{{.level_max = Level::error, .program = "test_handshake"}};
    Handshakes handshakes;
    std::unique_ptr<Tls> tls;
    Node(Loop& loop, trust::Identity identity, const std::function<void(Fd)>& work = shake_honestly)
        : handshakes(loop, log, child(work)),
          tls(tls_of(std::move(identity), {.elsewhere = &handshakes})) {}
};

// The loop that channels and handshakes share.
struct Meeting {
    Loop& loop;
    End server, client;
    Meeting(Loop& l, std::unique_ptr<Transport> accepts, std::unique_ptr<Transport> connects)
        : loop(l) {
        auto [a, b] = pair_of_sockets();
        server.open(loop, std::move(a), Side::acceptor, std::move(accepts));
        client.open(loop, std::move(b), Side::connector, std::move(connects));
        (void)client.channel->send(frame::hello, "h");
    }
    void meets() { UNTIL(loop, server.frames.size() == 1); }
    void fails(std::string_view server_says, std::string_view client_says) {
        UNTIL(loop, !server.closed.empty() && !client.closed.empty());
        ck_assert_msg(server.closed.find(server_says) != std::string::npos, "%s",
                      server.closed.c_str());
        ck_assert_msg(client.closed.find(client_says) != std::string::npos, "%s",
                      client.closed.c_str());
        ck_assert(server.frames.empty() && client.frames.empty());
    }
};

void talk(Meeting& m) {
    m.meets();
    OK(m.server.channel->send(frame::welcome, "w"));
    for (const size_t bytes : {0U, 1U, 16'383U, 16'384U, 16'385U, 100'000U, 2'000'000U}) {
        const std::string body = pattern(bytes, 7);
        OK(m.server.channel->send(frame::directory, body));
        OK(m.client.channel->send(frame::directory, body));
        const size_t count = m.server.frames.size() + 1;
        UNTIL(m.loop, m.server.frames.size() == count && m.client.frames.size() == count);
        ck_assert(m.server.frames.back() == body && m.client.frames.back() == body);
    }
}

START_TEST(a_session_goes_on_where_its_handshake_was_not_done) {
    const Ca ca;
    Loop loop = open_loop();
    Node n1(loop, ca.node("n1")), n2(loop, ca.node("n2"));
    const auto plain = tls_of(ca.node("n3"));
    {
        Meeting m(loop, n2.tls->acceptor(), n1.tls->connector(providers, "n2"));
        talk(m);
        ck_assert_text(m.server.channel->peer()->subject.name, "n1");
        ck_assert_text(m.server.channel->peer()->key, n1.tls->identity()->key.digest());
        ck_assert_text(m.client.channel->peer()->subject.name, "n2");
    }
    {  // to and from one that does its own
        Meeting m(loop, plain->acceptor(), n1.tls->connector(providers, "n3"));
        talk(m);
    }
    Meeting m(loop, n2.tls->acceptor(), plain->connector(providers, "n2"));
    talk(m);
    ck_assert_text(m.server.channel->peer()->subject.name, "n3");
}
END_TEST

START_TEST(bulk_comes_whole_over_handed_sessions) {
    const Ca ca;
    Loop loop = open_loop();
    Node n1(loop, ca.node("n1")), n2(loop, ca.node("n2"));
    Meeting m(loop, n2.tls->acceptor(), n1.tls->connector(providers, "n2"));
    m.meets();
    bulk_comes_whole(loop, *m.client.channel, *m.server.channel);
}
END_TEST

START_TEST(who_is_not_good_is_refused_with_the_same_lines) {
    const Ca ca, foreign;
    const Nanos now = unix_now();
    Loop loop = open_loop();
    Node n2(loop, ca.node("n2"));
    const auto refused = [&](trust::Identity identity, std::string_view server_says,
                             std::string_view client_says) {
        const auto n1 = tls_of(std::move(identity));
        Meeting m(loop, n2.tls->acceptor(), n1->connector(trust::node_roles, "n2"));
        m.fails(server_says, client_says);
    };
    refused(ca.node("n1", now - trust::leaf_life - hour), "the certificate of n1 ended",
            "refuses this end's certificate: it has ended");
    refused(ca.node("n1", now + hour), "one of the two clocks is wrong",
            "refuses this end's certificate");
    const auto n1 = ca.node("n1");
    n2.tls->revoke({1, {{n1.key.digest(), "n1"}}});
    refused(n1, "the certificate of n1 was revoked", "it was revoked");
    {  // the other way round: what this end hears of it
        Node late(loop, ca.node("n1", now - trust::leaf_life - hour));
        const auto n3 = tls_of(ca.node("n3"));
        Meeting m(loop, n3->acceptor(), late.tls->connector(providers, "n3"));
        m.fails("the certificate of n1 ended", "refuses this end's certificate: it has ended");
    }
    {
        Meeting m(loop, n2.tls->acceptor(), plain_transport());
        m.fails("does not speak TLS 1.3", "");
    }
    const auto n3 = tls_of(ca.node("n3"));
    {
        Meeting m(loop, n3->acceptor(), n2.tls->connector(providers, "n4"));
        UNTIL(loop, !m.client.closed.empty());
        ck_assert_text(m.client.closed, "the peer is n3, not n4");
    }
    // A renewed certificate counts from the next connection on.
    const trust::Identity& own = *n2.tls->identity();
    OK(n2.tls->renew({*trust::issue(ca.issuing, own.key, {"n2", trust::node_roles}, now),
                      ca.issuing.certificate}));
    Meeting m(loop, n2.tls->acceptor(), n3->connector(providers, "n2"));
    m.meets();
}
END_TEST

START_TEST(half_a_handshake_elsewhere_ends_in_time_and_in_bytes) {
    const Ca ca;
    Loop loop = open_loop();
    Node n2(loop, ca.node("n2"));
    {
        auto [a, b] = pair_of_sockets();
        End server;
        server.open(loop, std::move(a), Side::acceptor, n2.tls->acceptor(),
                    {.first_frame_limit = Nanos::from_ms(50)});
        write_all(b.get(), std::string_view("\x16\x03\x01\x02", 4));
        UNTIL(loop, !server.closed.empty());
        ck_assert_text(server.closed, "no TLS handshake in time");
    }
    auto [a, b] = pair_of_sockets();
    End server;
    server.open(loop, std::move(a), Side::acceptor, n2.tls->acceptor(),
                {.first_frame_limit = Nanos::from_s(60)});
    const int their_end = b.get();
    set_nonblocking(their_end);
    std::string record("\x16\x03\x01\x40\x00\x01\xff\xff\xff", 9);
    record.resize(5 + 0x4000);
    UNTIL_PEER(loop, [&] {
        (void)!::send(their_end, record.data(), record.size(), MSG_NOSIGNAL);
        return !server.closed.empty();
    }());
    ck_assert_msg(server.closed != "no TLS handshake in time", "it goes on listening");
}
END_TEST

START_TEST(a_process_that_dies_takes_handshakes_along_and_no_sessions) {
    const Ca ca;
    Loop loop = open_loop();
    Node n2(loop, ca.node("n2"));
    const auto n1 = tls_of(ca.node("n1"));
    Meeting stands(loop, n2.tls->acceptor(), n1->connector(providers, "n2"));
    stands.meets();
    auto [a, b] = pair_of_sockets();
    End half;
    half.open(loop, std::move(a), Side::acceptor, n2.tls->acceptor());
    const pid_t first = n2.handshakes.pid();
    ck_assert_int_eq(::kill(first, SIGKILL), 0);
    UNTIL(loop, !half.closed.empty());
    ck_assert_text(half.closed, "the TLS handshake was lost on the way");
    OK(stands.server.channel->send(frame::welcome, "still"));
    UNTIL(loop, stands.client.frames.size() == 1);
    UNTIL(loop, n2.handshakes.pid() != first && n2.handshakes.pid() != 0);
    Meeting m(loop, n2.tls->acceptor(), n1->connector(providers, "n2"));
    m.meets();
}
END_TEST

// The process has read none of its requests; the kernel reports that before its reason can be read.
START_TEST(a_process_that_cannot_begin_says_why) {
    const Ca ca;
    Loop loop = open_loop();
    Log log{{.level_max = Level::error, .program = "test_handshake"}};
    const std::string why = "no user namespace may be made";
    Handshakes handshakes(loop, log, child([&](Fd socket) {
                              pollfd p{socket.get(), POLLIN, 0};
                              (void)::poll(&p, 1, 10'000);
                              (void)send_packet(socket.get(), pack(Told(Failed{0, 1, why})));
                          }));
    const Status began = handshakes.renewed(ca.node("n1"));
    ck_assert(!began.has_value());
    ck_assert_text(began.error().message, "souk-handshake: " + why);
}
END_TEST

START_TEST(certificates_are_examined_there) {
    const Ca ca, foreign;
    Loop loop = open_loop();
    Node n1(loop, ca.node("n1"));
    const auto ask = [&](const std::vector<trust::Certificate>& chain) {
        std::optional<Result<trust::Peer>> answer;
        n1.handshakes.examine(trust::pem_of(chain),
                              [&](Result<trust::Peer> peer) { answer = std::move(peer); });
        UNTIL(loop, answer.has_value());
        return *answer;
    };
    const auto other = ca.node("n5");
    const auto good = ask(other.chain);
    OK(good);
    ck_assert_text(good->subject.name, "n5");
    ck_assert_text(good->key, other.key.digest());
    const auto bad = ask(foreign.node("n5").chain);
    ck_assert(!bad && bad.error().message.find("not of this market") != std::string::npos);
}
END_TEST

// A process of souk-handshake that somebody has taken over. It answers each handshake with a packet
// of its own choice.
struct Liar {
    std::string packet;  // to each handshake; the number is put in
    Told (*say)(uint64_t number);
    void operator()(Fd socket) const {
        ::alarm(60);
        for (;;) {
            pollfd_wait(socket.get());
            auto asked = receive_packet(socket.get(), packet_bytes_max);
            if (!asked) return;
            if (!*asked) continue;
            const auto question = parse_asked((*asked)->bytes);
            if (!question) return;
            if (std::holds_alternative<UseIdentity>(*question))
                (void)send_packet(socket.get(), pack(Told(Taken{})));
            else if (const auto* s = std::get_if<Shake>(&*question))
                (void)send_packet(socket.get(), say ? pack(say(s->number)) : packet);
        }
    }
    static void pollfd_wait(int fd) {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        (void)::select(fd + 1, &set, nullptr, nullptr, nullptr);
    }
};

SessionKeys some_keys(const std::string& name, trust::Roles roles) {
    SessionKeys keys;
    keys.cipher = SessionKeys::aes_128_gcm;
    keys.from_peer = std::string(32, 'a');
    keys.to_peer = std::string(32, 'b');
    keys.peer = {{name, roles}, std::string(64, '7'), Nanos::from_s(1)};
    return keys;
}

START_TEST(a_liar_is_believed_no_more_than_was_asked) {
    const Ca ca;
    Loop loop = open_loop();
    const auto hears = [&](Told (*say)(uint64_t), const std::string& packet = {}) {
        trust::Identity identity = ca.node("n1");
        identity.revoked.keys.emplace(std::string(64, '8'), "n2");
        Node n1(loop, std::move(identity), Liar{packet, say});
        auto [a, b] = pair_of_sockets();
        End client;
        client.open(loop, std::move(a), Side::connector, n1.tls->connector(providers, "n2"));
        (void)client.channel->send(frame::hello, "h");
        UNTIL(loop, !client.closed.empty());
        return client.closed;
    };
    ck_assert_text(hears([](uint64_t n) -> Told {
                       return Shaken{n, some_keys("n3", trust::node_roles)};
                   }),
                   "the peer is n3, not n2");
    ck_assert_text(hears([](uint64_t n) -> Told {
                       return Shaken{n, some_keys("n2", trust::only(trust::Role::market))};
                   }),
                   "the peer is n2 (market), not provider");
    ck_assert_text(hears([](uint64_t n) -> Told {
                       SessionKeys keys = some_keys("n2", trust::node_roles);
                       keys.peer.key = std::string(64, '8');
                       return Shaken{n, keys};
                   }),
                   "the certificate of n2 was revoked");
    ck_assert_text(hears([](uint64_t n) -> Told {
                       SessionKeys keys = some_keys("n2", trust::node_roles);
                       keys.cipher = 0x1302;
                       return Shaken{n, keys};
                   }),
                   "a TLS session of an unknown cipher");
    ck_assert_text(hears([](uint64_t n) -> Told {
                       SessionKeys keys = some_keys("n2", trust::node_roles);
                       keys.to_peer = "short";
                       return Shaken{n, keys};
                   }),
                   "the secrets of a TLS session have another length");
    // The process answers another question, or sends something that is no answer.
    ck_assert_text(hears([](uint64_t n) -> Told {
                       return Examined{n, some_keys("n2", trust::node_roles).peer};
                   }),
                   "the answer to another question");
    const char* const lost = "the TLS handshake was lost on the way";
    ck_assert_text(hears(nullptr, "noise"), lost);
    ck_assert_text(hears(nullptr, std::string(packet_bytes_max + 1, 'x')), lost);
    std::string root = pack(Told(Shaken{1, some_keys("n2", trust::node_roles)}));
    root.replace(root.find("n2"), 2, "/2");
    ck_assert_text(hears(nullptr, root), lost);
    // A line is a line.
    ck_assert_text(hears([](uint64_t n) -> Told {
                       return Failed{n, 0, "two\nlines"};
                   }),
                   "two lines");
}
END_TEST

// -------------------------------------------------------------------------------------------------
// packets

START_TEST(packets_are_what_they_say_or_nothing) {
    const Asked asked[] = {UseIdentity{}, Shake{7, true, providers, "n2"}, Forget{8}, Examine{9}};
    for (const Asked& one : asked) {
        const std::string packet = pack(one);
        const auto back = parse_asked(packet);
        ck_assert(back && *back == one);
        for (size_t n = 0; n < packet.size(); ++n) ck_assert(!parse_asked(packet.substr(0, n)));
        ck_assert(!parse_asked(packet + "x"));
    }
    const Told told[] = {Taken{}, Shaken{7, some_keys("n1", trust::node_roles)},
                         Failed{8, 110, "no"},
                         Examined{9, some_keys("n1", trust::node_roles).peer}};
    for (const Told& one : told) {
        const std::string packet = pack(one);
        ck_assert(packet.size() <= packet_bytes_max);
        const auto back = parse_told(packet);
        ck_assert(back && back->index() == one.index() && pack(*back) == packet);
        for (size_t n = 0; n < packet.size(); ++n) ck_assert(!parse_told(packet.substr(0, n)));
        ck_assert(!parse_told(packet + "x"));
    }
    Failed longest{1, 0, std::string(5'000, 'y')};
    const auto cut = parse_told(pack(Told(longest)));
    ck_assert(cut && std::get<Failed>(*cut).why.size() == why_bytes_max);
    const IdentityText identity{"key", "chain", "root", "revoked", "sites"};
    const auto same = parse_identity(pack(identity));
    ck_assert(same && *same == identity);
    ck_assert(!parse_identity(pack(identity) + "x"));
}
END_TEST

// -------------------------------------------------------------------------------------------------
// records, against OpenSSL's

struct Raw {
    std::unique_ptr<SSL_CTX, trust::Free<SSL_CTX_free>> context;
    std::unique_ptr<SSL, trust::Free<SSL_free>> ssl;
    std::string of_client, of_server;

    Raw(const trust::Identity& identity, bool client, const char* ciphers)
        : context(SSL_CTX_new(TLS_method())) {
        SSL_CTX* const c = context.get();
        ck_assert(SSL_CTX_set_min_proto_version(c, TLS1_3_VERSION) == 1 &&
                  SSL_CTX_set_ciphersuites(c, ciphers) == 1 &&
                  SSL_CTX_use_certificate(c, identity.own().raw()) == 1 &&
                  SSL_CTX_use_PrivateKey(c, identity.key.raw()) == 1);
        SSL_CTX_set_num_tickets(c, 0);
        SSL_CTX_set_keylog_callback(c, [](const SSL* s, const char* line) {
            auto* const self = static_cast<Raw*>(SSL_get_app_data(s));
            const std::string_view text = line;
            const std::string secret = *trust::from_hex(text.substr(text.rfind(' ') + 1));
            if (text.starts_with("CLIENT_TRAFFIC_SECRET_0")) self->of_client = secret;
            if (text.starts_with("SERVER_TRAFFIC_SECRET_0")) self->of_server = secret;
        });
        ssl.reset(SSL_new(c));
        SSL_set_app_data(ssl.get(), this);
        SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
        client ? SSL_set_connect_state(ssl.get()) : SSL_set_accept_state(ssl.get());
    }
    Bytes sends() {
        Bytes out(1 << 20);
        const int n = BIO_read(SSL_get_wbio(ssl.get()), out.data(), static_cast<int>(out.size()));
        out.resize(static_cast<size_t>(std::max(n, 0)));
        return out;
    }
    void takes(ByteView bytes) {
        ck_assert_int_eq(
            BIO_write(SSL_get_rbio(ssl.get()), bytes.data(), static_cast<int>(bytes.size())),
            static_cast<int>(bytes.size()));
    }
    std::string reads() {
        std::string out(1 << 20, '\0');
        const int n = SSL_read(ssl.get(), out.data(), static_cast<int>(out.size()));
        out.resize(static_cast<size_t>(std::max(n, 0)));
        return out;
    }
};

// OpenSSL's client, whose server's records are ours from the end of the handshake on.
struct Interop {
    Raw client;
    std::unique_ptr<Transport> server;
    explicit Interop(const char* ciphers) : client(Ca().node("n1"), true, ciphers) {
        Raw other(Ca().node("n2"), false, ciphers);
        for (int i = 0; i < 4; ++i) {
            (void)SSL_do_handshake(client.ssl.get());
            if (const Bytes b = client.sends(); !b.empty()) other.takes(b);
            (void)SSL_do_handshake(other.ssl.get());
            if (const Bytes b = other.sends(); !b.empty()) client.takes(b);
        }
        ck_assert(SSL_is_init_finished(client.ssl.get()) && SSL_is_init_finished(other.ssl.get()));
        SessionKeys keys;
        keys.cipher = SSL_CIPHER_get_protocol_id(SSL_get_current_cipher(client.ssl.get()));
        keys.from_peer = other.of_client;
        keys.to_peer = other.of_server;
        auto made = session_transport(std::move(keys));
        OK(made);
        server = std::move(*made);
    }
    // Sends bytes in both directions, in pieces of that many bytes.
    void talk(size_t bytes, size_t piece) {
        const std::string text = pattern(bytes, 3);
        auto sealed = server->seal(Bytes(text.begin(), text.end()));
        OK(sealed);
        std::string got;
        for (size_t at = 0; at < sealed->size(); at += piece) {
            client.takes(ByteView(*sealed).subspan(at, std::min(piece, sealed->size() - at)));
            for (std::string part; !(part = client.reads()).empty();) got += part;
        }
        ck_assert(got == text);
        if (bytes == 0) return;
        ck_assert_int_eq(SSL_write(client.ssl.get(), text.data(), static_cast<int>(bytes)),
                         static_cast<int>(bytes));
        const Bytes wire = client.sends();
        got.clear();
        for (size_t at = 0; at < wire.size(); at += piece) {
            Bytes reply;
            const auto clear =
                server->open(ByteView(wire).subspan(at, std::min(piece, wire.size() - at)), reply);
            OK(clear);
            got += text_of(*clear);
            if (!reply.empty()) client.takes(reply);
        }
        ck_assert(got == text);
    }
};

START_TEST(records_are_those_of_openssl) {
    for (const char* cipher : {"TLS_AES_128_GCM_SHA256", "TLS_CHACHA20_POLY1305_SHA256"}) {
        Interop x(cipher);
        for (const size_t bytes : {1U, 16'384U, 16'385U, 200'000U})
            for (const size_t piece : {1U, 7U, 1'000U, 65'536U})
                if (bytes / piece < 20'000) x.talk(bytes, piece);
        // New keys, asked for or told.
        for (int i = 0; i < 3; ++i) {
            ck_assert_int_eq(
                SSL_key_update(x.client.ssl.get(),
                               i == 1 ? SSL_KEY_UPDATE_NOT_REQUESTED : SSL_KEY_UPDATE_REQUESTED),
                1);
            x.talk(5'000, 1'000);
            x.talk(5'000, 1'000);
        }
        // The client ends its side of the session.
        SSL_shutdown(x.client.ssl.get());
        Bytes reply;
        const auto end = x.server->open(x.client.sends(), reply);
        ck_assert(end && end->empty() && reply.empty());
    }
}
END_TEST

START_TEST(a_record_that_was_changed_is_none) {
    const auto first = [](Interop& x) {
        ck_assert_int_eq(SSL_write(x.client.ssl.get(), "hello", 5), 5);
        return x.client.sends();
    };
    Interop shape("TLS_AES_128_GCM_SHA256");
    const size_t bytes = first(shape).size();
    for (size_t at = 0; at < bytes; ++at) {
        Interop x("TLS_AES_128_GCM_SHA256");
        Bytes wire = first(x);
        wire[at] ^= 1;
        Bytes reply;
        const auto clear = x.server->open(wire, reply);
        // A length that grows is waited for; whatever else is said, no byte of it is believed.
        ck_assert(!clear || clear->empty());
        if (at >= 5) {
            ck_assert_text(clear.error().message, "what the peer sent came damaged (TLS)");
            x.client.takes(reply);  // and hears so
            ck_assert_text(x.client.reads(), "");
        }
    }
    // The same record comes again, and then one is left out.
    Interop x("TLS_AES_128_GCM_SHA256");
    const Bytes wire = first(x);
    Bytes reply;
    OK(x.server->open(wire, reply));
    ck_assert(!x.server->open(wire, reply));
    Interop y("TLS_AES_128_GCM_SHA256");
    (void)first(y);
    ck_assert(!y.server->open(first(y), reply));
}
END_TEST

UNIT_SUITE(handshake, a_session_goes_on_where_its_handshake_was_not_done,
           bulk_comes_whole_over_handed_sessions, who_is_not_good_is_refused_with_the_same_lines,
           half_a_handshake_elsewhere_ends_in_time_and_in_bytes,
           a_process_that_dies_takes_handshakes_along_and_no_sessions,
           a_process_that_cannot_begin_says_why, certificates_are_examined_there,
           a_liar_is_believed_no_more_than_was_asked, packets_are_what_they_say_or_nothing,
           records_are_those_of_openssl, a_record_that_was_changed_is_none);

}  // namespace
