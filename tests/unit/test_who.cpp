// SPDX-License-Identifier: GPL-2.0-or-later
// souk-root starts processes as users (agentd/who): as those whom the kernel or the market vouches
// for, and as nobody because agentd says so. The market's files are made by the trust room as souk
// setup and marketd make them.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "agentd/who/who.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/installation.hpp"
#include "kernel/trust/identity.hpp"
#include "kernel/trust/ticket_list.hpp"
#include "kernel/trust/verify.hpp"
#include "market/core/ticket.hpp"
#include "market/wire/codec.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {
using who::KnownUsers;
using who::Rules;
using who::SeenList;
using who::Who;

RunsAs as(uint32_t uid, uint32_t gid, std::vector<uint32_t> groups = {}) {
    return {true, uid, gid, std::move(groups)};
}

#define ck_no(status, why)                                                                   \
    do {                                                                                     \
        const auto refused = (status);                                                       \
        ck_assert_msg(!refused, "not refused: %s", why);                                     \
        ck_assert_msg(refused.error().message.find(why) != std::string::npos, "%s: %s", why, \
                      refused.error().message.c_str());                                      \
    } while (0)

START_TEST(users_are_kept_as_text_and_only_what_was_seen_is_known) {
    KnownUsers users;
    ck_assert(users.add(as(1000, 100, {4, 27})));
    ck_assert(!users.add(as(1000, 27, {4})));  // nothing new
    ck_assert(users.add(as(1000, 27, {5})));
    ck_assert(users.add(as(7, 7)));
    for (const auto& nobody : {as(no_id, 1), as(1, no_id)}) ck_assert(!users.add(nobody));
    ck_assert_text(users.text(), "souk users 1\n7 7\n1000 4 5 27 100\n");
    const auto read = KnownUsers::parse(users.text());
    ck_assert(read && read->text() == users.text());
    OK(read->check(as(1000, 5, {4, 100})));
    ck_no(read->check(as(1001, 100)), "user 1001 has asked for nothing");
    ck_no(read->check(as(1000, 0)), "never seen in group 0");
    ck_no(read->check(as(1000, 100, {4, 6})), "never seen in group 6");
    for (const char* wrong : {"", "souk users 2\n", "souk users 1\n7\n", "souk users 1\n7 x\n",
                              "souk users 1\n\n", "souk users 1\n7 4294967295\n"})
        ck_assert(!KnownUsers::parse(wrong));
}
END_TEST

// A market and one of its nodes, as far as souk-root sees them.
struct Site {
    Site() {
        ck_assert(::mkdir(identity.c_str(), 0700) == 0);
        const Nanos now = unix_now();
        root = *trust::make_root(realm, now);
        issuing = *trust::make_issuing(*root, realm, now);
        const auto key = trust::Key::make();
        const auto own = trust::issue(*issuing, *key, {"n1", trust::node_roles}, now);
        OK(trust::save_identity(identity,
                                {*key, {*own, issuing->certificate}, root->certificate, {}}));
        ring = *trust::TicketRing::open(dir.path, now);
        list(*issuing);
    }
    void list(const trust::Authority& by, uint64_t number = 1) const {
        const auto told = trust::sign({number, *ring->public_text()}, by.key);
        OK(trust::save_ticket_list(identity, *told));
    }
    Rules rules() const {
        Rules r;
        r.node = "n1";
        r.kept = dir.path + "/kept";
        r.identity = identity;
        return r;
    }
    Ticket ticket(uint32_t uid) const {
        Ticket t;
        t.id = {"n2", 7};
        t.uid = uid;
        t.destination = "n1";
        t.address = "10.0.0.1:1";
        t.issued = unix_now();
        t.expires = t.issued + ticket_life;
        return t;
    }
    std::string sealed(const Ticket& t) const { return *ring->seal(wire::pack(t), unix_now()); }
    Who open() const {
        auto who = Who::open(rules());
        ck_assert_msg(who.has_value(), "%s", who ? "" : who.error().message.c_str());
        return std::move(*who);
    }
    const TempDir dir;
    const std::string realm = "uni", identity = dir.path + "/identity";
    std::optional<trust::Authority> root, issuing;
    std::optional<trust::TicketRing> ring;
};

START_TEST(who_has_connected_has_jobs_here_and_root_only_where_its_owner_says_so) {
    const Site site;
    {
        Who who = site.open();
        ck_no(who.may_own(as(1000, 100)), "has asked for nothing");
        OK(who.connected(as(1000, 100, {4})));
        OK(who.connected(as(0, 0, {0, 27})));
        OK(who.may_own(as(1000, 100, {4})));
        ck_no(who.may_own(as(1000, 100, {27})), "never seen in group 27");
        ck_no(who.may_own(as(0, 0)), "root has no jobs");
    }
    Who after = site.open();  // it is on the disk
    OK(after.may_own(as(1000, 4)));
    OK(after.adopt({as(1001, 1001)}, false));
    ck_no(after.may_own(as(1001, 1001)), "has asked for nothing");
    for (const bool by_key : {true, false}) {
        Rules rules = site.rules();
        rules.root_jobs = by_key;
        rules.id_min = by_key ? 1000 : 0;
        auto who = Who::open(rules);
        OK(who->connected(as(0, 0)));
        OK(who->may_own(as(0, 0)));
    }
    Rules insecure = site.rules();
    insecure.any = true;
    OK(Who::open(insecure)->may_own(as(4711, 4711)));
    OK(Who::open(insecure)->may_come(as(0, 0), ""));
}
END_TEST

START_TEST(who_could_not_be_kept_is_kept_with_the_next_one) {
    const Site site;
    const std::string kept = site.dir.path + "/kept", away = site.dir.path + "/away";
    Who who = site.open();
    ck_assert(::rename(kept.c_str(), away.c_str()) == 0);  // as a full disk
    ck_assert(!who.connected(as(1000, 100)));
    OK(who.may_own(as(1000, 100)));
    ck_assert(::rename(away.c_str(), kept.c_str()) == 0);
    OK(who.connected(as(1000, 100)));
    OK(site.open().may_own(as(1000, 100)));
}
END_TEST

START_TEST(jobs_of_a_version_before_are_adopted_once) {
    const Site site;
    Who who = site.open();
    OK(who.adopt({as(1000, 100)}, true));
    OK(who.adopt({as(1001, 101)}, false));
    OK(who.adopt({as(1002, 102)}, false));
    OK(who.may_own(as(1000, 100)));
    OK(who.may_own(as(1001, 101)));
    ck_no(who.may_own(as(1002, 102)), "has asked for nothing");
}
END_TEST

START_TEST(a_job_of_another_home_comes_with_a_ticket_of_the_market_alone) {
    const Site site, other;
    Who who = site.open();
    const RunsAs user = as(54'321, 54'321);  // of no account here
    OK(who.may_come(user, site.sealed(site.ticket(54'321))));
    ck_no(who.may_come(user, ""), "");
    ck_no(who.may_come(user, "noise"), "");
    ck_no(who.may_come(user, other.sealed(site.ticket(54'321))), "does not use");
    ck_no(who.may_come(user, site.sealed(site.ticket(54'322))), "has run as user 54321");
    for (const uint32_t low : {0U, 33U})
        ck_no(who.may_come(as(low, low), site.sealed(site.ticket(low))), "guest_uid_min");
    ck_no(who.may_come(as(54'321, 0), site.sealed(site.ticket(54'321))), "guest_uid_min");
    ck_no(who.may_come(as(54'321, 54'321, {0}), site.sealed(site.ticket(54'321))), "root's group");
    Ticket t = site.ticket(54'321);
    t.destination = "n3";
    ck_no(who.may_come(user, site.sealed(t)), "is for node n3");
    t = site.ticket(54'321);
    t.expires = t.issued - Nanos::from_s(2 * 86'400);
    ck_no(who.may_come(user, site.sealed(t)), "has expired");
    t = site.ticket(54'321);
    t.realm = "lab";
    ck_no(who.may_come(user, site.sealed(t)), "is nobody here");
    // While a node does not ask for tickets yet, none is needed. Root is nobody all the same.
    Rules accepts = site.rules();
    accepts.accepts = true;
    auto lax = Who::open(accepts);
    OK(lax->may_come(user, ""));
    ck_no(lax->may_come(as(0, 0), ""), "guest_uid_min");
    ck_no(lax->may_come(user, "noise"), "");
}
END_TEST

// Certificates that stand behind a good chain have signed nothing, whoever they belong to: not even
// this node's own, whose key agentd has.
START_TEST(an_issuer_is_who_has_signed_this_nodes_certificate) {
    const Site site, evil;
    Who who = site.open();
    const std::string chain = *read_file(AT_FDCWD, site.identity + "/certificate.pem");
    const auto lay = [&](const std::string& more, const trust::Authority& signs) {
        OK(replace_file(site.identity + "/certificate.pem", chain + more, 0600, false));
        const auto list = trust::sign({9, *evil.ring->public_text()}, signs.key);
        OK(replace_file(site.identity + "/ticket-list", *list, 0600, false));
    };
    const std::string forged = evil.sealed(evil.ticket(54'321));
    lay(evil.root->certificate.pem(), *evil.root);
    ck_no(who.may_come(as(54'321, 54'321), forged), "ticket keys");
    lay(evil.issuing->certificate.pem(), *evil.issuing);
    ck_no(who.may_come(as(54'321, 54'321), forged), "ticket keys");
    lay("", *evil.issuing);
    ck_no(who.may_come(as(54'321, 54'321), forged), "ticket keys");
    // trust::verify refuses such certificates behind a chain, and so does every caller of it.
    auto certificates = *trust::parse_chain(chain);
    OK(trust::verify(certificates, site.root->certificate, {}, unix_now()));
    certificates.push_back(site.root->certificate);
    OK(trust::verify(certificates, site.root->certificate, {}, unix_now()));
    for (const auto& extra : {evil.root->certificate, certificates.front()}) {
        certificates.resize(2, certificates.front());
        certificates.push_back(extra);
        ck_no(trust::verify(certificates, site.root->certificate, {}, unix_now()), "no chain");
    }
}
END_TEST

START_TEST(what_was_believed_of_a_list_is_kept_as_text) {
    const auto list = [](uint64_t number, const char* keys) {
        return SeenList::of(std::string(64, 'a'), {number, keys});
    };
    const SeenList seen = list(7, "key 1\n");
    ck_assert(*SeenList::parse(seen.text()) == seen);
    OK(seen.check(seen));
    OK(seen.check(list(8, "")));
    ck_no(seen.check(list(7, "key 2\n")), "another list with the number 7");
    ck_no(seen.check(list(6, "key 1\n")), "number 6 is older than one that was believed here (7)");
    OK(seen.check(SeenList::of(std::string(64, 'b'), {1, ""})));  // another market's
    const std::string good = seen.text();
    for (size_t n = 0; n < good.size(); ++n) ck_assert(!SeenList::parse(good.substr(0, n)));
    ck_assert(!SeenList::parse(good + "x"));
    std::string nought = good;
    nought[nought.find("number 7") + 7] = '0';
    ck_assert(!SeenList::parse(nought));
}
END_TEST

// A key that signs no more may be in somebody's hands: agentd lays the list back that has it.
START_TEST(an_older_list_of_ticket_keys_that_is_laid_back_is_not_believed) {
    Site site;
    const RunsAs user = as(54'321, 54'321);
    const std::string laid = site.identity + "/ticket-list", kept = site.dir.path + "/kept",
                      first = *read_file(AT_FDCWD, laid), old = site.sealed(site.ticket(54'321));
    Who who = site.open();
    OK(who.may_come(user, old));
    ck_assert(::unlink((site.dir.path + "/ticket.keys").c_str()) == 0);
    site.ring = *trust::TicketRing::open(site.dir.path, unix_now());  // the market ends that key
    site.list(*site.issuing, 5);
    const std::string now = site.sealed(site.ticket(54'321)), second = *read_file(AT_FDCWD, laid);
    OK(who.may_come(user, now));
    const auto lay = [&](const std::string& list) { OK(replace_file(laid, list, 0600, false)); };
    lay(first);
    ck_no(who.may_come(user, old), "is older than one that was believed here (5)");
    ck_no(site.open().may_come(user, old), "is older than one that was believed here (5)");
    ck_assert(::unlink(laid.c_str()) == 0);
    ck_no(site.open().may_come(user, old), "ticket keys");
    // Another one of that number, and one that comes while nothing can be kept.
    lay(*trust::sign({5, ""}, site.issuing->key));
    ck_no(who.may_come(user, now), "another list with the number 5");
    ck_assert(::rename(kept.c_str(), (kept + "-away").c_str()) == 0);
    site.list(*site.issuing, 6);
    ck_no(who.may_come(user, now), "ticket-list.seen");
    ck_assert(::rename((kept + "-away").c_str(), kept.c_str()) == 0);
    lay(second);
    OK(who.may_come(user, now));
    site.list(*site.issuing, 6);
    OK(who.may_come(user, now));
    ck_no(site.open().may_come(user, old), "does not use");
    // The owner has the node join once more: what this market says now counts.
    lay(first);
    ck_assert(::unlink((kept + "/market.pem").c_str()) == 0);
    OK(site.open().may_come(user, old));
}
END_TEST

// The kept list is read at the start, so that a node which takes no ticket of another home counts
// it too.
START_TEST(a_list_counts_from_the_start_on_before_any_ticket_comes) {
    const Site site;
    const std::string laid = site.identity + "/ticket-list", first = *read_file(AT_FDCWD, laid);
    site.list(*site.issuing, 5);
    (void)site.open();
    OK(replace_file(laid, first, 0600, false));
    ck_no(site.open().may_come(as(54'321, 54'321), site.sealed(site.ticket(54'321))), "is older");
    const std::string seen = site.dir.path + "/kept/ticket-list.seen";
    OK(replace_file(seen, "nonsense\n", 0600, false));
    ck_no(Who::open(site.rules()), "ticket-list.seen");
}
END_TEST

// All these files lie in a directory of agentd's.
START_TEST(what_agentd_lays_into_its_own_files_is_not_believed) {
    const Site site, evil;
    Who who = site.open();
    const RunsAs user = as(54'321, 54'321);
    const std::string forged = evil.sealed(evil.ticket(54'321));
    const auto copy = [&](const char* name) {
        ck_assert(replace_file(site.identity + "/" + name,
                               *read_file(AT_FDCWD, evil.identity + "/" + name), 0600, false)
                      .has_value());
    };
    copy("ticket-list");  // signed by another authority
    ck_no(who.may_come(user, forged), "ticket keys");
    copy("certificate.pem");  // of another market's root
    ck_no(who.may_come(user, forged), "ticket keys");
    copy("root.pem");
    ck_no(who.may_come(user, forged), "ticket keys");
    ck_no(Who::open(site.rules()), "of another market until now");
    ck_assert(::unlink((site.dir.path + "/kept/market.pem").c_str()) ==
              0);  // by root, who joins it
    OK(Who::open(site.rules())->may_come(user, forged));
    ck_assert(::unlink((site.identity + "/ticket-list").c_str()) == 0 &&
              ::mkfifo((site.identity + "/ticket-list").c_str(), 0600) == 0);
    ck_no(who.may_come(user, forged), "is no file");
}
END_TEST

START_TEST(what_root_keeps_lies_where_nobody_else_can_put_anything) {
    const Site site;
    Rules rules = site.rules();
    const std::string open = site.dir.path + "/open", theirs = open + "/kept";
    ck_assert(::mkdir(open.c_str(), 0700) == 0 && ::chmod(open.c_str(), 0777) == 0);
    rules.kept = theirs;
    ck_no(Who::open(rules), "not root's alone");
    ck_assert(::chmod(open.c_str(), 01777) == 0);
    OK(Who::open(rules).map([](const Who&) {}));
    ck_assert(::chown(theirs.c_str(), 4321, 4321) == 0);
    ck_no(Who::open(rules), "not root's directory");
    ck_assert(::chown(open.c_str(), 4321, 4321) == 0 && ::chown(theirs.c_str(), 0, 0) == 0);
    ck_no(Who::open(rules), "not root's alone");
    ck_assert_text(beside_state("/var/lib/souk/agentd/"), "/var/lib/souk/agentd-root");
}
END_TEST

START_TEST(programs_beside_a_capsule_run_as_who_is_here) {
    const Site site;
    Who who = site.open();
    ck_no(who.may_serve(as(54'321, 54'321)), "has asked for nothing");
    who.is_here(as(54'321, 54'321, {5}));
    OK(who.may_serve(as(54'321, 54'321)));
    OK(who.may_serve(as(54'321, 5)));
    ck_no(who.may_serve(as(54'321, 0)), "has asked for nothing");
    who.is_here({});  // made by a version before
    OK(who.may_serve(as(1001, 1001)));
    ck_no(who.may_serve(as(0, 0)), "root has no jobs");
    ck_no(who.may_serve(as(33, 33)), "has asked for nothing");
}
END_TEST
}  // namespace

UNIT_SUITE(who, users_are_kept_as_text_and_only_what_was_seen_is_known,
           who_has_connected_has_jobs_here_and_root_only_where_its_owner_says_so,
           who_could_not_be_kept_is_kept_with_the_next_one,
           jobs_of_a_version_before_are_adopted_once,
           a_job_of_another_home_comes_with_a_ticket_of_the_market_alone,
           an_issuer_is_who_has_signed_this_nodes_certificate,
           what_was_believed_of_a_list_is_kept_as_text,
           an_older_list_of_ticket_keys_that_is_laid_back_is_not_believed,
           a_list_counts_from_the_start_on_before_any_ticket_comes,
           what_agentd_lays_into_its_own_files_is_not_believed,
           what_root_keeps_lies_where_nobody_else_can_put_anything,
           programs_beside_a_capsule_run_as_who_is_here);
}  // namespace souk::unit
