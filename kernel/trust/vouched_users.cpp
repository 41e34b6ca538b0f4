// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/trust/vouched_users.hpp"

#include <algorithm>

#include "kernel/base/number.hpp"

namespace souk::trust {
namespace {

bool is_user_name(std::string_view name) {
    return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
        return c > ' ' && c < 127 && c != '/' && c != '=' && c != '#' && c != '*';
    });
}

}  // namespace

Result<VouchedUsers> VouchedUsers::parse(std::string_view text) {
    const auto wrong = [](std::string_view part) {
        return fail("'" + std::string(part) + "' is no user: 20000-29999, 4321 or alice=4321");
    };
    VouchedUsers users;
    if (text.size() > bytes_max) return fail("a token names users in at most 2,048 bytes");
    while (!text.empty()) {
        const std::string_view part = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), part.size() + 1));
        const size_t equals = part.find('=');
        const std::string_view numbers = equals == part.npos ? part : part.substr(equals + 1);
        const size_t dash = numbers.find('-');
        const auto first = whole_number<uint32_t>(numbers.substr(0, dash));
        const auto last =
            dash == numbers.npos ? first : whole_number<uint32_t>(numbers.substr(dash + 1));
        if (!first || !last || *last < *first || *last == UINT32_MAX) return wrong(part);
        if (users.ranges_.size() == parts_max) return fail("a token names 64 users or ranges");
        users.ranges_.emplace_back(*first, *last);
        if (equals == part.npos) continue;
        const std::string name(part.substr(0, equals));
        const auto same = [&](const auto& other) { return other.second == *first; };
        if (!is_user_name(name) || dash != numbers.npos) return wrong(part);
        if (std::any_of(users.names_.begin(), users.names_.end(), same) ||
            !users.names_.emplace(name, *first).second)
            return fail(name + " or its number stands there twice");
    }
    return users;
}

bool VouchedUsers::has(uint32_t uid) const {
    return std::any_of(ranges_.begin(), ranges_.end(), [&](const auto& range) {
        return uid >= range.first && uid <= range.second;
    });
}

}  // namespace souk::trust
