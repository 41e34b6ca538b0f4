// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/users.hpp"

#include <algorithm>

namespace souk::market {

bool valid_project_name(std::string_view name) {
    constexpr size_t most = 32;
    const auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
    return !name.empty() && name.size() <= most && letter(name.front()) &&
           std::ranges::all_of(name, [&](char c) {
               return letter(c) || (c >= '0' && c <= '9') || c == '-' || c == '_';
           });
}

}  // namespace souk::market
