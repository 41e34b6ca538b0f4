// SPDX-License-Identifier: GPL-2.0-or-later
// The names of a job's components (docs/gangs.md), as its own /etc/hosts has them: c0, c1, ... and
// what its submitter calls them. They stand in the environment of each (SOUK_HOSTS, SOUK_NAMES):
// what is no address or no name there is passed over. Pure.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "agentd/core/messages.hpp"

namespace souk {

namespace gang_hosts {

inline constexpr size_t components_max = 1024;

inline std::string_view variable(const LaunchSpec& launch, std::string_view name) {
    for (const std::string& one : launch.env)
        if (one.size() > name.size() && one.starts_with(name) && one[name.size()] == '=')
            return std::string_view(one).substr(name.size() + 1);
    return {};
}

inline std::string_view take_word(std::string_view& list) {
    const std::string_view word = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), word.size() + 1));
    return word;
}

inline bool is_name(std::string_view name) {
    const auto good = [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '-';
    };
    return !name.empty() && name.size() <= 63 && name[0] != '-' &&
           std::all_of(name.begin(), name.end(), good);
}

}  // namespace gang_hosts

// A line for each component; empty: it is none, or has no address of its own.
inline std::string hosts_of_gang(const JobSpec& spec) {
    using namespace gang_hosts;
    if (spec.net != NetMode::own) return {};
    std::string lines;
    std::string_view hosts = variable(spec.launch, "SOUK_HOSTS");
    std::string_view names = variable(spec.launch, "SOUK_NAMES");
    for (size_t i = 0; !hosts.empty() && i < components_max; ++i) {
        const auto address = parse_ipv4(take_word(hosts));
        const std::string_view name = take_word(names);
        if (!address) continue;
        const std::string number = "c" + std::to_string(i);
        lines += address->text() + " " + number;
        if (is_name(name) && name != number && name != "localhost")
            lines += " " + std::string(name);
        lines += "\n";
    }
    return lines;
}

}  // namespace souk
