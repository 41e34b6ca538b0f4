// SPDX-License-Identifier: GPL-2.0-or-later
// A node maps the users of other homes to its own accounts. These tests check the owner's file, and
// what no file can grant.
#include <algorithm>

#include "agentd/core/owner_names.hpp"
#include "agentd/core/user_map.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

using Account = ::souk::Account;  // and not a market's, which another test of the unit names

// A machine with some users, and groups by number.
struct Machine final : Accounts {
    std::vector<Account> users{{"root", 0, 0},      {"daemon", 1, 1},      {"alice", 1001, 1001},
                               {"bob", 1002, 1002}, {"guest", 5000, 5000}, {"toor", 0, 1000},
                               {"odd", 1003, 0},    {"last", no_id, 1000}, {"ghost", 1004, no_id}};
    std::map<uint32_t, std::vector<uint32_t>> groups{
        {1001, {1001, 27, 44, 2000, 2001}}, {1002, {1002, 0, no_id}}, {5000, {5000}}};
    std::map<uint32_t, std::string> names{{0, "root"},       {27, "sudo"},     {44, "video"},
                                          {2000, "physics"}, {2001, "docker"}, {2002, "more"}};
    std::optional<Account> named(const std::string& name) const override {
        const auto it = std::find_if(users.begin(), users.end(),
                                     [&](const Account& a) { return a.name == name; });
        return it == users.end() ? std::nullopt : std::optional(*it);
    }
    std::optional<Account> numbered(uint32_t uid) const override {
        const auto it = std::find_if(users.begin(), users.end(),
                                     [&](const Account& a) { return a.uid == uid; });
        return it == users.end() ? std::nullopt : std::optional(*it);
    }
    std::vector<uint32_t> groups_of(const Account& a) const override {
        const auto it = groups.find(a.uid);
        return it == groups.end() ? std::vector<uint32_t>{a.gid} : it->second;
    }
    std::string group_name(uint32_t gid) const override {
        const auto it = names.find(gid);
        return it == names.end() ? "" : it->second;
    }
};
const Machine machine;

UserMap map_of(const char* text, UserMap::Rules rules = {"uni", 1000, {"*"}}) {
    auto map = UserMap::parse(text, std::move(rules));
    ck_assert_msg(map.has_value(), "%s", map ? "" : map.error().message.c_str());
    return std::move(*map);
}

Principal user(const char* name, uint32_t uid, const char* realm = "") {
    return {realm, name, uid, uid, {uid, 27}};
}

void ck_as(const Result<RunsAs>& as, uint32_t uid, uint32_t gid,
           const std::vector<uint32_t>& groups) {
    ck_assert_msg(as.has_value(), "%s", as ? "" : as.error().message.c_str());
    ck_assert_int_eq(as->uid, uid);
    ck_assert_int_eq(as->gid, gid);
    ck_assert(as->known && as->groups == groups);
}

void ck_nobody(const Result<RunsAs>& as, const char* why) {
    ck_assert_msg(!as, "user %u", as ? as->uid : 0);
    ck_assert_msg(as.error().message.find(why) != std::string::npos, "'%s' does not say '%s'",
                  as.error().message.c_str(), why);
}

}  // namespace

START_TEST(users_of_the_markets_own_realm_are_the_same_and_others_are_nobody) {
    const UserMap map = map_of("");
    ck_as(map.begins(user("alice", 1001), machine), 1001, 1001, {1001, 2000});
    ck_as(map.begins(user("alice", 1001, "uni"), machine), 1001, 1001, {1001, 2000});
    ck_as(map.begins(user("", 1001), machine), 1001, 1001, {1001, 2000});  // an older home
    // The node has no user with that number or name, so the number alone counts.
    ck_as(map.begins(user("carol", 3000), machine), 3000, 3000, {});
    ck_nobody(map.begins(user("alice", 1001, "lab"), machine), "nobody here (user_map)");
    ck_nobody(map.begins(user("bob", 1001), machine), "user 1001 is alice here, not bob");
    ck_nobody(map.begins(user("alice", 3000), machine), "alice has another number here");
}
END_TEST

START_TEST(the_most_exact_line_of_the_owners_file_counts) {
    const UserMap map = map_of(
        "# whom we know\n"
        "lab/* = guest  # one account\n"
        "lab/dave = bob\n"
        "lab/mallory = -\n\n"
        "far/* = *\n"
        "* = guest\r\n"
        "uni/bob = -");
    ck_as(map.begins(user("eve", 7, "lab"), machine), 5000, 5000, {5000});
    ck_as(map.begins(user("dave", 0, "lab"), machine), 1002, 1002, {1002});
    ck_nobody(map.begins(user("mallory", 1001, "lab"), machine), "mallory: of realm lab is nobody");
    ck_as(map.begins(user("alice", 1001, "far"), machine), 1001, 1001, {1001, 2000});
    ck_as(map.begins(user("x", 9, "elsewhere"), machine), 5000, 5000, {5000});
    ck_nobody(map.begins(user("bob", 1002), machine), "nobody here");
    ck_as(map.begins(user("alice", 1001), machine), 1001, 1001, {1001, 2000});
}
END_TEST

START_TEST(an_account_that_the_market_names_counts_where_the_owner_says_nothing) {
    const auto of = [](const char* account, const char* name = "eve") {
        Principal who = user(name, 7, "lab");
        who.said = name;
        who.account = account;
        return who;
    };
    const UserMap none = map_of("far/* = *");
    ck_as(none.begins(of("bob"), machine), 1002, 1002, {1002});
    ck_nobody(none.begins(of(""), machine), "nobody here");
    ck_nobody(none.begins(of("nemo"), machine), "whom this machine lacks");
    ck_nobody(none.begins(of("root"), machine), "guest_uid_min");
    ck_nobody(none.begins(of("last"), machine), "guest_uid_min");
    for (const char* text : {"lab/* = guest", "lab/eve = guest", "* = guest"})
        ck_as(map_of(text).begins(of("bob"), machine), 5000, 5000, {5000});
    for (const char* text : {"lab/* = -", "lab/eve = -", "* = -"})
        ck_nobody(map_of(text).begins(of("bob"), machine), "nobody here");
    // The users of the market's own realm are who they are.
    Principal own = user("alice", 1001);
    own.account = "bob";
    ck_as(none.begins(own, machine), 1001, 1001, {1001, 2000});
    // Another name than the one that was vouched for, of whom the owner says that he is nobody.
    Principal other = of("bob", "alice");
    other.said = "mallory";
    ck_nobody(map_of("lab/mallory = -").begins(other, machine), "nobody here");
}
END_TEST

START_TEST(a_name_that_nobody_has_vouched_for_takes_and_gives_nothing) {
    const auto map =
        UserMap::parse("uni/alice = bob\nlab/mallory = -\nlab/* = *\n", {"uni", 1000, {"*"}});
    ck_assert(map.has_value());
    const auto said = [](const char* name, uint32_t uid, const char* realm = "") {
        Principal who = user("", uid, realm);
        who.said = name;
        return who;
    };
    ck_as(map->begins(user("alice", 1001), machine), 1002, 1002, {1002});
    ck_as(map->begins(said("alice", 1001), machine), 1001, 1001, {1001, 2000});
    ck_nobody(map->begins(said("bob", 1001), machine), "user 1001 is alice here, not bob");
    ck_nobody(map->begins(said("mallory", 1001, "lab"), machine), "nobody here");
    ck_as(map->begins(said("carol", 3000), machine), 3000, 3000, {});
}
END_TEST

START_TEST(a_line_that_says_nothing_clear_is_refused_by_its_number) {
    struct Wrong {
        const char* text;
        const char* why;
    };
    for (const Wrong& w : {Wrong{"\n\nlab", "line 3: needs REALM/USER = ACCOUNT"},
                           {"lab/ = x", "before the ="},
                           {"/x = y", "before the ="},
                           {"a/b/c = x", "before the ="},
                           {"l*/x = y", "before the ="},
                           {"lab/x = ", "after the ="},
                           {"lab/x = a b", "after the ="},
                           {"lab/x = a = b", "after the ="},
                           {"* = *", "* = *: name the realms"},
                           {"lab/x = a\nlab/x = b", "line 2: lab/x stands there twice"}}) {
        const auto map = UserMap::parse(w.text, {"uni", 1000, {"*"}});
        ck_assert_msg(!map, "%s", w.text);
        ck_assert_msg(map.error().message.find(w.why) != std::string::npos, "%s: %s", w.text,
                      map.error().message.c_str());
    }
    ck_assert(!UserMap::parse(std::string(UserMap::bytes_max + 1, ' '), {}));
    ck_assert(!UserMap::parse(std::string(UserMap::lines_max + 1, '\n'), {}));
}
END_TEST

START_TEST(no_file_makes_anybody_root_or_a_user_of_the_system) {
    const UserMap map = map_of(
        "l/root = root\nl/toor = toor\nl/odd = odd\nl/last = last\nl/ghost = ghost\n"
        "l/daemon = daemon\nl/none = nosuch\nf/* = *");
    const std::pair<const char*, const char*> wrong[] = {{"root", "runs as user 0"},
                                                         {"toor", "runs as user 0"},
                                                         {"odd", "runs in group 0"},
                                                         {"last", "runs as user 4294967295"},
                                                         {"ghost", "runs in group 4294967295"},
                                                         {"daemon", "runs as user 1 here"},
                                                         {"none", "whom this machine lacks"}};
    for (const auto& [name, why] : wrong)
        ck_nobody(map.begins(user(name, 2000, "l"), machine), why);
    for (const uint32_t uid : {0U, 1U, 999U, no_id})
        ck_nobody(map.begins(user("", uid, "f"), machine), "(guest_uid_min)");
    size_t bad = 0;
    const auto lines = map.describe(machine, &bad);
    ck_assert_int_eq(bad, 7);
    ck_assert_int_eq(lines.size(), 10);
}
END_TEST

START_TEST(a_job_comes_only_where_its_user_is_who_it_has_run_as) {
    const UserMap map = map_of("lab/* = guest");
    const RunsAs as_alice{true, 1001, 1001, {1001, 2000}};
    ck_as(map.comes(user("alice", 1001), as_alice, machine), 1001, 1001, {1001, 2000});
    ck_as(map.comes(user("alice", 1001), {true, 1001, 2000, {}}, machine), 1001, 2000, {});
    ck_nobody(map.comes(user("alice", 1001, "lab"), as_alice, machine),
              "alice is user 5000 here, and the job has run as user 1001");
    ck_nobody(map.comes(user("alice", 1001), {true, 1001, 1001, {27}}, machine),
              "alice is not in group 27 here");
    ck_nobody(map.comes(user("alice", 1001), {true, 1001, 1001, {0}}, machine), "root's group");
    ck_nobody(map.comes(user("alice", 1001), {true, 1001, 0, {}}, machine), "in group 0");
    ck_nobody(map.comes(user("alice", 1001), {true, 0, 1001, {}}, machine), "as user 0");
    ck_nobody(map.comes(user("alice", 1001), {true, 1001, 1002, {}}, machine), "in group 1002");
    // A job that returns to its own node runs as its own user, whatever user the other node says
    // that it was.
    const RunsAs own{true, 1001, 1001, {1001, 2000}};
    ck_as(UserMap::returns(own, {true, 1001, 2000, {1001}}), 1001, 2000, {1001});
    ck_nobody(UserMap::returns(own, {true, 1001, 1001, {0}}), "not in group 0");
    ck_nobody(UserMap::returns(own, {true, 5000, 5000, {}}), "has run as user 5000");
    ck_nobody(UserMap::returns(own, {true, 1001, 0, {}}), "has run in group 0");
}
END_TEST

START_TEST(groups_are_this_machines_and_only_those_that_jobs_may_have) {
    const auto with = [&](std::vector<std::string> groups) {
        return map_of("", {"uni", 1000, std::move(groups)})
            .begins(user("alice", 1001), machine)
            ->groups;
    };
    ck_assert(with({"*"}) == (std::vector<uint32_t>{1001, 2000}));
    ck_assert(with({"*", "video"}) == (std::vector<uint32_t>{1001, 44, 2000}));
    ck_assert(with({"docker"}) == (std::vector<uint32_t>{2001}));  // the owner's own word
    ck_assert(with({}).empty());
    ck_assert(with({"root", "*"}) == (std::vector<uint32_t>{1001, 2000}));
    // A node with the same users as the home takes them as they are.
    const UserMap one_host = map_of("", {"uni", 0, {"*"}});
    ck_as(one_host.begins(user("root", 0), machine), 0, 0, {0, 27});
    ck_nobody(one_host.begins(user("x", no_id), machine), "4294967295");
}
END_TEST

// This holds whatever the file, the accounts, the home and the image say.
START_TEST(nothing_maps_to_root_or_below_the_minimum) {
    Rng rng(15);
    const char* words[] = {"uni", "lab", "*", "root", "alice", "guest", "toor", "odd", "last", "-"};
    const uint32_t ids[] = {0, 1, 27, 999, 1000, 1001, 1002, 1003, 2000, 5000, no_id - 1, no_id};
    const auto word = [&] { return std::string(words[rng.below(std::size(words))]); };
    const auto id = [&] { return ids[rng.below(std::size(ids))]; };
    size_t taken = 0;
    for (int round = 0; round < 20'000; ++round) {
        std::string text;
        for (uint64_t n = rng.below(5); n > 0; --n)
            text += (rng.chance(0.1) ? "*" : word() + "/" + word()) + " = " + word() + "\n";
        Machine m;
        for (Account& a : m.users)
            if (rng.chance(0.3)) a = {a.name, id(), id()};
        for (auto& [uid, groups] : m.groups) groups = {id(), id(), id()};
        const uint32_t least = rng.chance(0.8) ? 1000 : 1 + static_cast<uint32_t>(rng.below(1500));
        const auto map = UserMap::parse(text, {word(), least, {"*", word(), "root"}});
        if (!map) continue;
        const Principal who{rng.chance(0.5) ? "" : word(), word(), id(), id(), {id()}};
        const RunsAs was{true, id(), id(), {id(), id()}};
        for (const auto& as : {map->begins(who, m), map->comes(who, was, m)}) {
            if (!as) continue;
            ++taken;
            ck_assert(as->uid >= least && as->uid != 0 && as->uid != no_id);
            ck_assert(as->gid >= least && as->gid != 0 && as->gid != no_id);
            for (const uint32_t gid : as->groups) ck_assert(gid != 0 && gid != no_id);
        }
    }
    ck_assert_int_ge(taken, 500);
}
END_TEST

START_TEST(owners_are_users_by_name_and_members_of_groups) {
    ck_assert(!owned_by("", 1001, {1001, 2000}, machine));
    ck_assert(owned_by("bob alice", 1001, {}, machine));
    ck_assert(!owned_by("bob", 1001, {1001}, machine));
    ck_assert(owned_by("bob @physics", 1001, {1001, 2000}, machine));
    ck_assert(!owned_by("physics @alice @more", 1001, {1001, 2000}, machine));
    ck_assert(!owned_by("nobody-here @none", 4242, {4243}, machine));  // a number without a name
    ck_assert(check_owner_names(" ann  @lab-admins ").has_value());
    for (const char* bad : {"@", "ann @", "ann,bob"}) ck_assert(!check_owner_names(bad));
}
END_TEST

UNIT_SUITE(user_map, an_account_that_the_market_names_counts_where_the_owner_says_nothing,
           owners_are_users_by_name_and_members_of_groups,
           users_of_the_markets_own_realm_are_the_same_and_others_are_nobody,
           the_most_exact_line_of_the_owners_file_counts,
           a_name_that_nobody_has_vouched_for_takes_and_gives_nothing,
           a_line_that_says_nothing_clear_is_refused_by_its_number,
           no_file_makes_anybody_root_or_a_user_of_the_system,
           a_job_comes_only_where_its_user_is_who_it_has_run_as,
           groups_are_this_machines_and_only_those_that_jobs_may_have,
           nothing_maps_to_root_or_below_the_minimum);

}  // namespace souk::unit
