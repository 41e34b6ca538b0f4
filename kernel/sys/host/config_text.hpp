// SPDX-License-Identifier: GPL-2.0-or-later
// The configuration that is in force, as text for people, and to compare one reading with the next.
#pragma once

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace souk {

struct ConfigText {
    std::string text;                           // every key as TOML, with where it comes from
    std::map<std::string, std::string> values;  // by key
};

// A new reading changes these: keys that this daemon takes while it runs, and others, which count
// from its next start.
struct ConfigChange {
    std::string taken, not_taken;  // "price, speed"; empty: none
};
inline ConfigChange config_change(const ConfigText& before, const ConfigText& now,
                                  std::span<const std::string_view> takes) {
    ConfigChange change;
    for (const auto& [key, value] : now.values) {
        const auto old = before.values.find(key);
        if (old != before.values.end() && old->second == value) continue;
        std::string& list = std::find(takes.begin(), takes.end(), key) != takes.end()
                                ? change.taken
                                : change.not_taken;
        list += (list.empty() ? "" : ", ") + key;
    }
    return change;
}

}  // namespace souk
