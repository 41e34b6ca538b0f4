// SPDX-License-Identifier: GPL-2.0-or-later
// KnownUsers: who of this machine has asked agentd for anything: the users that have connected to
// its socket, by the kernel's word, with all groups that they had then. As a text, in whose lines
// stand a user's number and those of his groups:
//
//   souk users 1
//   1000 1000 4 27
//
// Nobody is taken from it: a job of his may wait for years. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "kernel/base/launch.hpp"
#include "kernel/base/result.hpp"

namespace souk::who {

class KnownUsers {
  public:
    static constexpr size_t users_max = 65'536, groups_max = 65'536, bytes_max = 64 << 20;
    // An error names the line.
    static Result<KnownUsers> parse(std::string_view text);
    std::string text() const;
    // True: something of him is new. Who comes when there are too many stays unknown.
    bool add(const RunsAs& user);
    // An error says what is not known: the user, or a group that he has never had.
    Status check(const RunsAs& as) const;

  private:
    std::map<uint32_t, std::set<uint32_t>> users_;  // with their groups
};

}  // namespace souk::who
