// SPDX-License-Identifier: GPL-2.0-or-later
// The users and groups that a machine knows. The daemon asks the system (kernel/sys/host), a test
// its own table.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace souk {

struct Account {
    std::string name;
    uint32_t uid = 0, gid = 0;
    bool operator==(const Account&) const = default;
};

class Accounts {
  public:
    virtual ~Accounts() = default;
    virtual std::optional<Account> named(const std::string& name) const = 0;
    virtual std::optional<Account> numbered(uint32_t uid) const = 0;
    // Returns all groups that the account is in, its own among them.
    virtual std::vector<uint32_t> groups_of(const Account& account) const = 0;
    virtual std::string group_name(uint32_t gid) const = 0;  // empty: it has none
};

}  // namespace souk
