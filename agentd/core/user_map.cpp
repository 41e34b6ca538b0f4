// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/user_map.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace souk {
namespace {

constexpr size_t user_name_max = 64;

// Whoever is in one of them is root, reads the disk, or reads what others do.
constexpr std::array<std::string_view, 18> strong_groups = {
    "root",   "adm",  "admin",   "disk",  "docker", "incus",           "incus-admin",
    "kmem",   "kvm",  "libvirt", "lxd",   "shadow", "systemd-journal", "staff",
    "podman", "sudo", "tty",     "wheel",
};

std::string_view trimmed_line(std::string_view text) {
    constexpr std::string_view blanks = " \t\r";
    const size_t begin = text.find_first_not_of(blanks);
    if (begin == text.npos) return {};
    return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

bool is_word(std::string_view word) {
    return !word.empty() && word.size() <= user_name_max &&
           std::all_of(word.begin(), word.end(), [](char c) {
               return c > ' ' && c < 127 && c != '/' && c != '=' && c != '#' && c != '*';
           });
}

// REALM/USER, REALM/* or *.
bool is_who(std::string_view who) {
    if (who == "*") return true;
    const size_t slash = who.find('/');
    if (slash == who.npos) return false;
    const std::string_view user = who.substr(slash + 1);
    return is_word(who.substr(0, slash)) && (user == "*" || is_word(user));
}

std::string text_of(const RunsAs& as) {
    return "uid " + std::to_string(as.uid) + ", gid " + std::to_string(as.gid);
}

std::string who_is(const Principal& who) {
    return who.user.empty() ? "user " + std::to_string(who.uid) : who.user;
}

}  // namespace

Result<UserMap> UserMap::parse(std::string_view text, Rules rules) {
    if (text.size() > bytes_max) return fail("a user map has at most 1 MiB");
    UserMap map(std::move(rules));
    size_t number = 0;
    while (!text.empty()) {
        const size_t end = text.find('\n');
        const std::string_view whole = text.substr(0, end);
        text.remove_prefix(end == text.npos ? text.size() : end + 1);
        if (++number > lines_max) return fail("a user map has at most 10,000 lines");
        const std::string_view line = trimmed_line(whole.substr(0, whole.find('#')));
        if (line.empty()) continue;
        if (const Status added = map.add(line); !added)
            return wrap("line " + std::to_string(number), added.error());
    }
    return map;
}

Status UserMap::add(std::string_view line) {
    const size_t sign = line.find('=');
    if (sign == line.npos) return fail("needs REALM/USER = ACCOUNT");
    const std::string who(trimmed_line(line.substr(0, sign)));
    const std::string as(trimmed_line(line.substr(sign + 1)));
    if (!is_who(who)) return fail("before the = stands REALM/USER, REALM/* or *");
    Target target;
    if (as == "*" || as == "-") {
        target.kind = as == "*" ? Target::Kind::same : Target::Kind::nobody;
    } else {
        if (!is_word(as)) return fail("after the = stands a user of this machine, * or -");
        target = {Target::Kind::account, as};
    }
    if (who == "*" && target.kind == Target::Kind::same)
        return fail("* = *: name the realms whose users have the same numbers here (REALM/* = *)");
    if (!entries_.emplace(who, std::move(target)).second) return fail(who + " stands there twice");
    return {};
}

// Null: the owner says nothing of him.
const UserMap::Target* UserMap::line_of(const std::string& realm, const std::string& user) const {
    static const Target same{Target::Kind::same, {}};
    const std::string& own = realm.empty() ? rules_.realm : realm;
    for (const std::string& who : {own + "/" + user, own + "/*"})
        if (const auto it = entries_.find(who); it != entries_.end()) return &it->second;
    if (own == rules_.realm) return &same;
    const auto rest = entries_.find("*");
    return rest == entries_.end() ? nullptr : &rest->second;
}

UserMap::Target UserMap::target_of(const Principal& who) const {
    const Target* const called = who.said.empty() ? nullptr : line_of(who.realm, who.said);
    if (called && called->kind == Target::Kind::nobody) return {};
    if (const Target* const line = line_of(who.realm, who.user))
        return who.said.empty() || called ? *line : Target{};
    if (called || who.account.empty()) return {};
    return {Target::Kind::account, who.account};
}

// Whatever line it comes from. no_id would leave the job who souk-init is: root.
Status UserMap::check(const RunsAs& as) const {
    const auto low = [&](uint32_t id) {
        return id == no_id || (rules_.id_min > 0 && (id == 0 || id < rules_.id_min));
    };
    if (low(as.uid))
        return fail("no job of another node runs as user " + std::to_string(as.uid) +
                    " here (guest_uid_min)");
    if (low(as.gid))
        return fail("no job of another node runs in group " + std::to_string(as.gid) +
                    " here (guest_uid_min)");
    if (std::any_of(as.groups.begin(), as.groups.end(),
                    [&](uint32_t gid) { return gid == no_id || (rules_.id_min > 0 && gid == 0); }))
        return fail("no job of another node is in root's group here");
    return {};
}

bool UserMap::may_have(uint32_t gid, const Accounts& accounts) const {
    if (gid == 0 || gid == no_id) return false;
    const std::string name = accounts.group_name(gid);
    const auto in = [&](const auto& list, std::string_view what) {
        return std::find(list.begin(), list.end(), what) != list.end();
    };
    if (!name.empty() && in(rules_.groups, name)) return true;
    return in(rules_.groups, "*") && gid >= rules_.id_min && !in(strong_groups, name);
}

std::vector<uint32_t> UserMap::within(const std::vector<uint32_t>& groups,
                                      const Accounts& accounts) const {
    if (rules_.id_min == 0) return groups;
    std::vector<uint32_t> some;
    for (const uint32_t gid : groups)
        if (may_have(gid, accounts)) some.push_back(gid);
    return some;
}

// The same number. Where that is somebody of another name, it is not the same user.
Result<RunsAs> UserMap::same(const Principal& who, const Accounts& accounts) const {
    RunsAs as{true, who.uid, who.gid, {}};
    if (rules_.id_min == 0) {
        as.groups = who.groups;
        return as;
    }
    const auto account = accounts.numbered(who.uid);
    if (!account) {
        if (!who.user.empty() && accounts.named(who.user))
            return fail(who.user + " has another number here than " + std::to_string(who.uid));
        return as;
    }
    const std::string& name = who.user.empty() ? who.said : who.user;
    if (!name.empty() && account->name != name)
        return fail("user " + std::to_string(who.uid) + " is " + account->name + " here, not " +
                    name);
    const std::vector<uint32_t> all = accounts.groups_of(*account);
    if (std::find(all.begin(), all.end(), who.gid) == all.end()) as.gid = account->gid;
    as.groups = within(all, accounts);
    return as;
}

Result<RunsAs> UserMap::one(const std::string& name, const Accounts& accounts) const {
    const auto account = accounts.named(name);
    if (!account) return fail("its account here is to be " + name + ", whom this machine lacks");
    return RunsAs{true, account->uid, account->gid, within(accounts.groups_of(*account), accounts)};
}

Result<RunsAs> UserMap::begins(const Principal& who, const Accounts& accounts) const {
    const Target target = target_of(who);
    Result<RunsAs> as = fail("of realm " + (who.realm.empty() ? rules_.realm : who.realm) +
                             " is nobody here (user_map)");
    if (target.kind == Target::Kind::same) as = same(who, accounts);
    if (target.kind == Target::Kind::account) as = one(target.account, accounts);
    if (as)
        if (const Status good = check(*as); !good) as = tl::unexpected(good.error());
    if (!as) return fail(who_is(who) + ": " + as.error().message);
    return as;
}

Result<RunsAs> UserMap::comes(const Principal& who, const RunsAs& was,
                              const Accounts& accounts) const {
    TRY_ASSIGN(const RunsAs here, begins(who, accounts));
    if (was.uid != here.uid)
        return fail(who_is(who) + " is user " + std::to_string(here.uid) +
                    " here, and the job has run as user " + std::to_string(was.uid));
    TRY(check(was));
    if (rules_.id_min == 0) return was;
    for (const uint32_t gid : was.groups) {
        const bool has = gid == here.gid || std::find(here.groups.begin(), here.groups.end(),
                                                      gid) != here.groups.end();
        if (!has)
            return fail(who_is(who) + " is not in group " + std::to_string(gid) +
                        " here, or jobs may not be (guest_groups), and the job is in it");
    }
    if (was.gid != here.gid &&
        std::find(here.groups.begin(), here.groups.end(), was.gid) == here.groups.end())
        return fail(who_is(who) + " is of group " + std::to_string(here.gid) +
                    " here, and the job has run in group " + std::to_string(was.gid));
    return was;
}

Result<RunsAs> UserMap::returns(const RunsAs& own, const RunsAs& was) {
    if (was.uid != own.uid)
        return fail("it is user " + std::to_string(own.uid) +
                    " here, and the job has run as user " + std::to_string(was.uid));
    const auto has = [&](uint32_t gid) {
        return gid == own.gid ||
               std::find(own.groups.begin(), own.groups.end(), gid) != own.groups.end();
    };
    if (!has(was.gid))
        return fail("it is of group " + std::to_string(own.gid) +
                    " here, and the job has run in group " + std::to_string(was.gid));
    for (const uint32_t gid : was.groups)
        if (!has(gid))
            return fail("it is not in group " + std::to_string(gid) +
                        " here, and the job is in it");
    return was;
}

std::vector<std::string> UserMap::describe(const Accounts& accounts, size_t* wrong) const {
    std::vector<std::string> lines;
    size_t bad = 0;
    for (const auto& [who, target] : entries_) {
        std::string line = who + " = ";
        if (target.kind == Target::Kind::same) {
            line += "the same user as at its home";
        } else if (target.kind == Target::Kind::nobody) {
            line += "nobody";
        } else {
            const auto as = one(target.account, accounts);
            const Status good = as ? check(*as) : Status(tl::unexpected(as.error()));
            bad += !good;
            line += target.account + ": " + (good ? text_of(*as) : good.error().message);
        }
        lines.push_back(std::move(line));
    }
    if (rules_.id_min == 0)
        lines.emplace_back("guest_uid_min is 0: root of other nodes is root here");
    if (!entries_.contains(rules_.realm + "/*"))
        lines.push_back(rules_.realm + "/* = the same user as at its home (without a line)");
    if (!entries_.contains("*")) lines.emplace_back("* = nobody (without a line)");
    if (wrong) *wrong = bad;
    return lines;
}

}  // namespace souk
