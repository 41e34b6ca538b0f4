// SPDX-License-Identifier: GPL-2.0-or-later
// Strong identifiers. A job's id is its home node's name and a number that is unique there
// ("n1.7"): unique in the system without asking anyone. An Epoch counts the owners that a job has
// had; only its home node raises it. A site is a market with its nodes, and its name stands before
// what is of another site than one's own: "lab:n1.7".
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

// Checks the name of a site, and of the realm of its users: letters, digits, dots, _ and -; 64 at
// most.
bool valid_site_name(std::string_view name);
// Parts "lab:n1.7" into "lab" and "n1.7". The site is empty, and the rest the whole text, if no
// name of a site stands there.
struct OfSite {
    std::string_view site, rest;
};
OfSite of_site(std::string_view text);
// Parses "n1.7" or "lab:n1.7" and gives it back in that form.
Result<std::string> parse_full_job_id(std::string_view text);

}  // namespace souk
