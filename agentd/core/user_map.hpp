// SPDX-License-Identifier: GPL-2.0-or-later
// UserMap: who the users of other homes are on this node. A user is named REALM/USER: the realm is
// that of the home's certificate (docs/certificates.md), so that a home speaks for its own site's
// users alone. The owner's file has a line for each, and the most exact one counts:
//
//     uni/alice = alice2    this user of that realm is alice2 here
//     uni/* = *             the users of that realm have the same numbers and names here
//     lab/* = guest         all of them are one account
//     lab/mallory = -       is nobody here
//     * = guest             whoever no other line names
//
// Without a line for it, the market's own realm is the same here (`*`), and of all others somebody
// is who the market's operator says (user_map of marketd: Principal::account), or nobody.
// Nobody is root here, is in root's group, or has a number below the owner's minimum, whatever the
// file says and the accounts are. Pure: what the machine knows of its users is asked through
// Accounts.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/account.hpp"
#include "kernel/base/launch.hpp"
#include "kernel/base/result.hpp"

namespace souk {

// A job's user, as its home knows him. `realm` empty: the market's own.
struct Principal {
    std::string realm, user;
    uint32_t uid = 0, gid = 0;
    std::vector<uint32_t> groups;  // asked only where all users are the same (id_min 0)
    // His home calls him so, and `user` is empty, as nobody has vouched for it: it gives him
    // nothing, and takes from him what it would take from whoever has that name.
    std::string said = {};
    // His account here, as the market's operator has it; the owner's lines go before.
    std::string account = {};
};

class UserMap {
  public:
    struct Rules {
        std::string realm;       // the market's own
        uint32_t id_min = 1000;  // 0: one host is all nodes, and all users are the same, root too
        // groups that jobs may be in: names; "*": each from id_min on that gives no rights over the
        // machine
        std::vector<std::string> groups{"*"};
    };
    static constexpr size_t bytes_max = 1 << 20, lines_max = 10'000;
    // Errors name the line.
    static Result<UserMap> parse(std::string_view text, Rules rules);

    // As whom a job of that user begins here.
    Result<RunsAs> begins(const Principal& who, const Accounts& accounts) const;
    // As whom it comes here from where it ran until now: as the same, or not at all.
    Result<RunsAs> comes(const Principal& who, const RunsAs& was, const Accounts& accounts) const;
    // A job comes back whose user belongs to this node and is `own` here.
    static Result<RunsAs> returns(const RunsAs& own, const RunsAs& was);
    // Picks those groups of a user of this node that a job of his may be in.
    std::vector<uint32_t> within(const std::vector<uint32_t>& groups,
                                 const Accounts& accounts) const;

    // For people: a line for each entry and for what holds without one; `wrong`: how many of them
    // name nobody who may run here.
    std::vector<std::string> describe(const Accounts& accounts, size_t* wrong = nullptr) const;

  private:
    struct Target {
        enum class Kind : uint8_t { same, account, nobody } kind = Kind::nobody;
        std::string account;
    };
    explicit UserMap(Rules rules) : rules_(std::move(rules)) {}
    Status add(std::string_view line);
    const Target* line_of(const std::string& realm, const std::string& user) const;
    Target target_of(const Principal& who) const;
    Result<RunsAs> same(const Principal& who, const Accounts& accounts) const;
    Result<RunsAs> one(const std::string& name, const Accounts& accounts) const;
    bool may_have(uint32_t gid, const Accounts& accounts) const;
    Status check(const RunsAs& as) const;

    Rules rules_;
    std::map<std::string, Target, std::less<>> entries_;  // "uni/alice", "uni/*", "*"
};

}  // namespace souk
