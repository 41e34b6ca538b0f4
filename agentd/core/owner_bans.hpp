// SPDX-License-Identifier: GPL-2.0-or-later
// OwnerBans: whose jobs, and which programs, the owner of a node does not take. Pure. An entry is
// `user NAME` (of any home), `user REALM/NAME`, `program NAME` (the last part of the path that a
// job was started with, or all of it), or `job ID` (one that he has evicted). It is for an owner
// who knows his guests: who renames his program runs it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/ids.hpp"
#include "kernel/base/result.hpp"

namespace souk {

class OwnerBans {
  public:
    static constexpr size_t entries_max = 1'000, entry_bytes_max = 256;
    // As it is kept. Errors: it is no entry.
    static Result<std::string> entry(std::string_view text);

    struct Job {
        JobId id;
        std::string realm, user, program;
    };
    // The entry because of which such a job does not run here; empty: it may.
    static std::string_view refuses(const std::vector<std::string>& bans, const Job& job);
};

}  // namespace souk
