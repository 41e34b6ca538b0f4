// SPDX-License-Identifier: GPL-2.0-or-later
// Strong identifiers. A job's id is its home node's name and a number that is unique there
// ("n1.7"): unique in the system without asking anyone. An Epoch counts the owners that a job has
// had; only its home node raises it.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernel/base/result.hpp"

namespace souk {

using NodeName = std::string;  // [a-z0-9-], 1 to 32 characters, begins with a letter

struct JobId {
    NodeName home;
    uint64_t seq = 0;
    auto operator<=>(const JobId&) const = default;
    std::string text() const { return home + "." + std::to_string(seq); }
};

struct Epoch {
    uint64_t n = 0;
    auto operator<=>(const Epoch&) const = default;
    Epoch next() const { return {n + 1}; }
};

bool valid_node_name(std::string_view name);
// Parses "n1.7"; a bare "7" takes `default_home` (an error if that is empty).
Result<JobId> parse_job_id(std::string_view text, std::string_view default_home = {});

}  // namespace souk
