// SPDX-License-Identifier: GPL-2.0-or-later
// These tests check which certificates, revocations, join tokens and files of them are taken, and
// the line that says why one is not.
#include <sys/stat.h>

#include "kernel/base/rng.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/trust/identity.hpp"
#include "kernel/trust/known_chains.hpp"
#include "kernel/trust/site_card.hpp"
#include "kernel/trust/token.hpp"
#include "kernel/trust/verify.hpp"
#include "kernel/trust/vouched_users.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

using namespace souk::trust;
using souk::trust::Role;  // messages have another one

constexpr Nanos noon = Nanos::from_s(1'800'000'000), day = Nanos::from_s(86'400),
                hour = Nanos::from_s(3'600);

struct Ca {
    Authority root = *make_root("m", noon), issuing = *make_issuing(root, "m", noon);
    std::vector<Certificate> of(const Key& key, const Subject& subject, Nanos now = noon,
                                Nanos life = leaf_life) const {
        return {*issue(issuing, key, subject, now, life), issuing.certificate};
    }
    std::vector<Certificate> node(const std::string& name, Nanos now = noon) const {
        return of(*Key::make(), {name, node_roles}, now);
    }
    Result<trust::Peer> verify(const std::vector<Certificate>& chain, Nanos now = noon,
                               const Revocations& revoked = {}) const {
        return trust::verify(chain, root.certificate, revoked, now);
    }
};

#define ck_refused(result, part)                                                         \
    do {                                                                                 \
        const auto& refused_ = (result);                                                 \
        ck_assert_msg(!refused_, "%s is taken", #result);                                \
        ck_assert_msg(refused_.error().message.find(part) != std::string::npos,          \
                      "'%s' does not say '%s'", refused_.error().message.c_str(), part); \
        ck_assert(refused_.error().message.find('\n') == std::string::npos);             \
    } while (0)

START_TEST(a_certificate_of_the_market_says_who_holds_the_key) {
    const Ca ca;
    const Key key = *Key::make();
    const auto peer = ca.verify(ca.of(key, {"n1", node_roles}));
    ck_assert_msg(peer.has_value(), "%s", peer ? "" : peer.error().message.c_str());
    ck_assert_text(peer->subject.name, "n1");
    ck_assert(peer->subject.roles == node_roles);
    ck_assert_text(peer->key, key.digest());
    for (const trust::Role role :
         {trust::Role::home, trust::Role::provider, trust::Role::market, trust::Role::operator_}) {
        const auto other = ca.verify(ca.of(key, {"x", only(role)}));
        ck_assert(other && other->subject.roles == only(role));
    }
    // read again from its text
    const auto again = parse_chain(pem_of(ca.of(key, {"n1", node_roles})));
    ck_assert(again && again->size() == 2 && ca.verify(*again));
    ck_assert_int_eq((*again)[0].renew_at().ns,
                     (noon + Nanos{(leaf_life - clock_slack).ns / 2}).ns);
}
END_TEST

START_TEST(a_certificate_out_of_its_time_is_refused_with_both_times) {
    const Ca ca;
    const auto chain = ca.node("n1");
    ck_assert(ca.verify(chain, noon + leaf_life - hour));
    ck_refused(ca.verify(chain, noon + leaf_life + hour), "the certificate of n1 ended 2027-01-22");
    ck_refused(ca.verify(chain, noon + leaf_life + hour), "1h ago");
    ck_refused(ca.verify(chain, noon + leaf_life + day), "renew it, or put the clock right");
    // The clock of this machine is an hour behind the market's, which is more than the slack.
    ck_refused(ca.verify(chain, noon - hour), "begins 2027-01-15 07:55:00 UTC, in 55m");
    ck_refused(ca.verify(chain, noon - hour), "one of the two clocks is wrong");
    ck_assert(ca.verify(chain, noon - Nanos::from_s(240)));
    // The authority's own end is said as its own.
    ck_refused(ca.verify(ca.node("n1", noon + issuing_life), noon + issuing_life + day),
               "the authority's certificate behind the certificate of n1 ended");
}
END_TEST

START_TEST(a_chain_that_is_known_is_refused_when_it_has_ended_or_is_revoked) {
    const Ca ca, foreign;
    KnownChains known;
    const auto chain = ca.node("n1");
    const auto verify = [&](Nanos now, const Revocations& revoked = {}) {
        return known.verify(chain, ca.root.certificate, revoked, now);
    };
    for (int i = 0; i < 3; ++i) {
        const auto peer = verify(noon);
        ck_assert(peer && peer->subject.name == "n1" && peer->key == chain[0].key()->digest());
        ck_assert_uint_eq(known.size(), 1);
    }
    ck_refused(verify(noon + leaf_life + hour), "the certificate of n1 ended");
    ck_refused(verify(noon - hour), "one of the two clocks is wrong");
    ck_refused(verify(noon, {1, {{chain[0].key()->digest(), "n1"}}}), "was revoked");
    ck_assert(verify(noon));
    // A refused chain is not remembered as good, and no other chain or root passes because of one
    // that is.
    auto mixed = chain;
    mixed[1] = foreign.issuing.certificate;
    ck_refused(known.verify(mixed, ca.root.certificate, {}, noon), "is not of this market");
    ck_refused(known.verify(chain, foreign.root.certificate, {}, noon), "is not of this market");
    ck_assert_uint_eq(known.size(), 1);
}
END_TEST

START_TEST(a_certificate_of_another_market_is_refused) {
    const Ca ca, foreign;
    ck_refused(ca.verify(foreign.node("n1")), "is not of this market");
    // also when it brings its root along, or this market's issuing certificate
    auto with_root = foreign.node("n1");
    with_root.push_back(foreign.root.certificate);
    ck_refused(ca.verify(with_root), "is not of this market");
    ck_refused(ca.verify({foreign.node("n1")[0], ca.issuing.certificate}), "is not of this market");
    ck_refused(ca.verify({ca.node("n1")[0]}), "is not of this market");
    ck_refused(ca.verify({}), "the peer has no certificate");
    // a node is no authority: what it signs is nothing
    const Key key = *Key::make();
    const auto chain = ca.of(key, {"n1", node_roles});
    const Authority forger{key, chain[0]};
    ck_refused(
        ca.verify({*issue(forger, *Key::make(), {"n2", node_roles}, noon), chain[0], chain[1]}),
        "certificate");
    // an issuing authority makes no further one
    const auto below = make_issuing(ca.issuing, "x", noon);
    ck_assert(!below || !ca.verify({*issue(*below, key, {"n1", node_roles}, noon),
                                    below->certificate, ca.issuing.certificate}));
}
END_TEST

START_TEST(a_revoked_key_is_refused_with_each_certificate_that_it_has) {
    const Ca ca;
    const Key key = *Key::make();
    const Revocations revoked{1, {{key.digest(), "n1"}}};
    for (const Nanos when : {noon, noon + hour})
        ck_refused(ca.verify(ca.of(key, {"n1", node_roles}, when), noon + hour, revoked),
                   "the certificate of n1 was revoked");
    ck_assert(ca.verify(ca.node("n1"), noon, revoked));  // its name with a new key
}
END_TEST

START_TEST(names_that_nobody_can_have_are_not_certified) {
    const Ca ca;
    const Key key = *Key::make();
    for (const char* name : {"", "N1", "n1,URI:souk:market/m", "n1/x", "n 1", "1n",
                             "n234567890123456789012345678901234567890"})
        ck_assert_msg(!issue(ca.issuing, key, {name, node_roles}, noon), "%s", name);
    ck_refused(issue(ca.issuing, key, {"n1", trust::Role::home | trust::Role::market}, noon),
               "nobody is");
    ck_refused(issue(ca.issuing, key, {"n1", {}}, noon), "nobody is");
    ck_assert(!subject_of({"souk:node/n1"}));
    ck_assert(!subject_of({"souk:node/n1", "souk:role/market"}));
    ck_assert(!subject_of({"souk:node/n1", "souk:node/n2", "souk:role/home"}));
    ck_assert(!subject_of({"souk:operator/a", "souk:role/home"}));
    ck_assert(!subject_of({"souk:home/n1"}));
    ck_assert(!subject_of({"https://n1"}));
    ck_assert(!subject_of({}));
}
END_TEST

START_TEST(a_request_proves_that_its_asker_has_the_key) {
    const Key key = *Key::make();
    const std::string bytes = *make_request(key, "n1");
    const auto request = parse_request(bytes);
    ck_assert(request && request->name == "n1" && request->key.digest() == key.digest());
    ck_refused(parse_request(*make_request(key, "No Name")), "a name that nobody can have");
    ck_refused(parse_request(bytes + "x"), "no request");
    ck_refused(parse_request(std::string(request_bytes_max + 1, 'x')), "too many bytes");
    Rng rng(3);
    for (int i = 0; i < 300; ++i) {  // no changed byte passes as another key's or name's
        std::string damaged = bytes;
        damaged[rng.below(damaged.size())] ^= static_cast<char>(1 + rng.below(255));
        const auto taken = parse_request(damaged);
        ck_assert(!taken || (taken->name == "n1" && taken->key.digest() == key.digest()));
    }
    // a key of another kind
    const std::shared_ptr<EVP_PKEY> weak(EVP_RSA_gen(1024), EVP_PKEY_free);
    ck_refused(Key::of(weak), "not ECDSA on P-256");
    const std::shared_ptr<EVP_PKEY> other(EVP_EC_gen("P-384"), EVP_PKEY_free);
    ck_refused(Key::of(other), "not ECDSA on P-256");
}
END_TEST

START_TEST(a_revocation_list_is_the_markets_word_alone) {
    const Ca ca;
    Revocations list{7, {}};
    for (int i = 0; i < 20; ++i)
        list.keys.emplace((*Key::make()).digest(), "n" + std::to_string(i));
    const std::string text = *sign(list, ca.issuing.key);
    ck_assert(parse_revocations(text, ca.issuing.key) == list);
    ck_refused(parse_revocations(text, *Key::make()), "has not signed");
    ck_refused(parse_revocations("souk revocations 2\n", ca.issuing.key), "no revocation list");
    for (size_t at = 0; at < text.size(); at += 13) {
        std::string damaged = text;
        damaged[at] = damaged[at] == '0' ? '1' : '0';
        ck_assert(!parse_revocations(damaged, ca.issuing.key));
        ck_assert(!parse_revocations(text.substr(0, at), ca.issuing.key));
    }
    ck_assert(!parse_revocations(text + "key", ca.issuing.key));
}
END_TEST

START_TEST(a_sites_card_is_taken_whole_or_not_at_all) {
    const std::string root(64, 'a');
    for (const SiteCard& card :
         {SiteCard{"lab", "market.lab.example:7070", root},
          SiteCard{"uni.example", "[2001:db8::1]:7070", root}, SiteCard{"Far-1_x", "", root}})
        ck_assert(parse_site_card(card.text()) == card);
    ck_assert_text((SiteCard{"far", "", root}.text()), "souk-site/far/-/" + root);
    ck_refused(parse_site_card("souk1.abc"), "no site's card");
    ck_refused(parse_site_card("souk-site/lab/-/" + root + "/"), "no site's card");
    ck_refused(parse_site_card("souk-site//-/" + root), "name is none of a site");
    ck_refused(parse_site_card("souk-site/all/-/" + root), "name is none of a site");
    ck_refused(parse_site_card("souk-site/l:b/-/" + root), "name is none of a site");
    ck_refused(parse_site_card("souk-site/lab/host/" + root), "");
    ck_refused(parse_site_card("souk-site/lab/-/" + root.substr(1)), "is it cut off?");
    ck_refused(parse_site_card("souk-site/lab/-/" + std::string(64, 'g')), "is it cut off?");
}
END_TEST

START_TEST(nobodys_certificate_says_that_he_is_another_site) {
    ck_refused(subject_of({"souk:site/uni"}), "nobody is 'site'");
    ck_refused(subject_of({"souk:node/n1", "souk:role/home", "souk:role/site"}), "role of no node");
    ck_refused(check({"uni", only(Role::site)}), "nobody is 'site'");
    ck_refused(parse_node_roles("home,site"), "a node is");
}
END_TEST

START_TEST(a_join_token_is_good_once_for_an_hour_for_its_names) {
    const std::string root(64, 'a');
    const auto made = make_token(root, "gpu-*", node_roles, noon);
    ck_assert(made.has_value());
    const auto& [token, record] = *made;
    ck_assert(parse_token(token.text()) == token);
    ck_assert(token.secret != record.secret_digest &&
              record.secret_digest.find(token.secret) == std::string::npos);
    ck_assert(may_join(record, token.secret, "gpu-1", noon + hour - Nanos{1}));
    ck_refused(may_join(record, token.secret, "gpu-1", noon + hour),
               "was good until 2027-01-15 09:00");
    ck_refused(may_join(record, token.secret, "n1", noon), "is for gpu-*, not for n1");
    ck_refused(may_join(record, std::string(32, '0'), "gpu-1", noon), "no such token");
    TokenRecord used = record;
    used.used_by = "gpu-2";
    ck_refused(may_join(used, token.secret, "gpu-1", noon), "used already, by gpu-2");
    // A node that does not know the secret learns nothing of the token.
    ck_refused(may_join(used, std::string(32, '0'), "gpu-1", noon), "no such token");
    for (const char* wrong : {"", "-*", "G*", "n1**", "a b"})
        ck_assert_msg(!make_token(root, wrong, node_roles, noon), "%s", wrong);
    ck_assert(make_token(root, "*", node_roles, noon).has_value());
    std::string text = token.text();
    ck_refused(parse_token(text.substr(1)), "begins with souk1.");
    ck_refused(parse_token(text.substr(0, text.size() - 1)), "a part of it is missing");
    ck_refused(parse_token(text + "0"), "too long");
    text[8] = 'G';
    ck_refused(parse_token(text), "wrong character");
}
END_TEST

START_TEST(a_joiner_recognises_its_market_by_the_root) {
    const Ca ca, foreign;
    const std::string digest = ca.root.certificate.digest();
    auto chain = ca.node("m");
    ck_refused(root_among(chain, digest), "another market than the token's");
    chain.push_back(ca.root.certificate);
    ck_assert(root_among(chain, digest).has_value());
    ck_refused(root_among({foreign.root.certificate}, digest), "nothing was told to it");
}
END_TEST

START_TEST(an_identity_is_kept_in_files_that_others_cannot_read) {
    const TempDir temp;
    const Ca ca;
    const std::string dir = temp.path + "/a/identity";
    ck_assert(load_identity(dir).has_value() && !*load_identity(dir));
    ck_assert(make_private_dir(dir).has_value());
    const Key key = *key_of(dir);
    ck_assert_text(key_of(dir)->digest(), key.digest());  // made once
    struct stat s {};
    ck_assert(::stat((dir + "/key.pem").c_str(), &s) == 0 && (s.st_mode & 0777) == 0600);
    ck_assert(::stat(dir.c_str(), &s) == 0 && (s.st_mode & 0777) == 0700);
    ck_assert(!key.save(dir + "/key.pem"));  // never over another
    const Identity identity{key, ca.of(key, {"n1", node_roles}), ca.root.certificate, {}};
    ck_assert(save_identity(dir, identity).has_value());
    ck_assert(save_revoked(dir, *trust::sign(Revocations{3, {}}, ca.issuing.key)).has_value());
    const auto loaded = load_identity(dir);
    ck_assert(loaded && *loaded && (*loaded)->key.digest() == key.digest());
    ck_assert_uint_eq((*loaded)->revoked.number, 3);
    ck_assert(trust::verify((*loaded)->chain, (*loaded)->root, {}, noon));

    ck_assert(::chmod((dir + "/key.pem").c_str(), 0640) == 0);
    ck_refused(load_identity(dir), "can be read by others than its owner: chmod 600");
    ck_assert(::chmod((dir + "/key.pem").c_str(), 0600) == 0);
    ck_assert(save_chain(dir, ca.node("n1")).has_value());
    ck_refused(load_identity(dir), "its certificate is not of its key");
    // a list that another market signed
    ck_assert(save_chain(dir, identity.chain).has_value());
    ck_assert(save_revoked(dir, *trust::sign(Revocations{4, {}}, *Key::make())).has_value());
    ck_refused(load_identity(dir), "has not signed");
}
END_TEST

START_TEST(a_token_names_users_by_number_range_and_name) {
    const auto users = VouchedUsers::parse("20000-29999,7,alice=4321");
    ck_assert(users.has_value());
    for (const uint32_t uid : {20'000U, 25'000U, 29'999U, 7U, 4'321U}) ck_assert(users->has(uid));
    for (const uint32_t uid : {0U, 6U, 8U, 19'999U, 30'000U, 4'320U}) ck_assert(!users->has(uid));
    ck_assert(users->names().size() == 1 && users->names().at("alice") == 4'321);
    ck_assert(!users->empty() && VouchedUsers::parse("")->empty());
    const std::string long_list = [] {
        std::string text = "1";
        for (int i = 2; i <= 65; ++i) text += "," + std::to_string(i);
        return text;
    }();
    for (const char* wrong :
         {"a", "5-4", "-1", "1-", "4294967295", "alice=", "=5", "alice=1-2", "al ice=5", "a/b=5",
          "alice=5,alice=6", "alice=5,bob=5", ",", "1,,2", long_list.c_str()})
        ck_refused(VouchedUsers::parse(wrong), wrong == long_list ? "64 users" : "");
}
END_TEST

UNIT_SUITE(trust, a_token_names_users_by_number_range_and_name,
           a_certificate_of_the_market_says_who_holds_the_key,
           a_certificate_out_of_its_time_is_refused_with_both_times,
           a_chain_that_is_known_is_refused_when_it_has_ended_or_is_revoked,
           a_certificate_of_another_market_is_refused,
           a_revoked_key_is_refused_with_each_certificate_that_it_has,
           names_that_nobody_can_have_are_not_certified, a_sites_card_is_taken_whole_or_not_at_all,
           nobodys_certificate_says_that_he_is_another_site,
           a_request_proves_that_its_asker_has_the_key, a_revocation_list_is_the_markets_word_alone,
           a_join_token_is_good_once_for_an_hour_for_its_names,
           a_joiner_recognises_its_market_by_the_root,
           an_identity_is_kept_in_files_that_others_cannot_read);

}  // namespace
}  // namespace souk::unit
