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

// A key that a running daemon takes from a new reading, and how: {"price",
// take_member<&Config::price>} copies that member. Of a member of a member both are named, from the
// outside in.
template <class C>
struct ReloadedKey {
    std::string_view key;
    void (*take)(C& to, const C& from);
};
template <auto... members, class C>
void take_member(C& to, const C& from) {
    (to.*....*members) = (from.*....*members);
}

// A new reading changes these: keys that this daemon takes while it runs, and others, which count
// from its next start.
struct ConfigChange {
    std::string taken, not_taken;  // "price, speed"; empty: none
};
// Takes the keys of the list from a new reading, and their text with them.
template <class C>
ConfigChange take_keys(std::span<const ReloadedKey<C>> keys, C& config, const C& now,
                       ConfigText& text, const ConfigText& read) {
    ConfigChange change;
    for (const auto& now_in : read.values) {
        const std::string& key = now_in.first;
        const auto old = text.values.find(key);
        if (old != text.values.end() && old->second == now_in.second) continue;
        const bool taken = std::any_of(keys.begin(), keys.end(),
                                       [&](const ReloadedKey<C>& one) { return one.key == key; });
        std::string& list = taken ? change.taken : change.not_taken;
        list += (list.empty() ? "" : ", ") + key;
    }
    for (const ReloadedKey<C>& one : keys) {
        one.take(config, now);
        if (const auto value = read.values.find(std::string(one.key)); value != read.values.end())
            text.values[value->first] = value->second;
    }
    return change;
}

}  // namespace souk
