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

// [a-z0-9-], 1 to 32 characters, begins with a letter. A node of another site has the site's name
// before it: "lab:n1".
using NodeName = std::string;

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

// Checks the name of a node of one's own site.
bool valid_node_name(std::string_view name);
// The same, or the name of a node of another site.
bool valid_full_node_name(std::string_view name);
// Parses "n1.7" or "lab:n1.7"; a bare "7" takes `default_home` (an error if that is empty).
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
// A name that site `from` has used, as it is written at the site `own`: of its own node "n1" that
// is "from:n1", and "own:n1" is "n1". An empty name stays so. Errors: it is of a third site, or
// none.
Result<NodeName> heard_from_site(std::string_view name, std::string_view from,
                                 std::string_view own);

}  // namespace souk
