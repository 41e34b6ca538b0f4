// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/nearest.hpp"

#include <algorithm>
#include <utility>

namespace souk::tools {
namespace {

// Counts the letters that must be added, taken away or changed.
size_t letters_between(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        size_t above_left = std::exchange(row[0], i);
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t other = above_left + (a[i - 1] == b[j - 1] ? 0 : 1);
            above_left = row[j];
            row[j] = std::min({other, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row.back();
}

}  // namespace

std::string did_you_mean(std::string_view given, const std::vector<std::string>& known) {
    constexpr size_t begins_min = 3, away_max = 2;
    const std::string* best = nullptr;
    size_t least = away_max + 1, as_near = 0;
    if (given.size() < 2) return {};
    for (const std::string& word : known) {
        const bool begins = given.size() >= begins_min && word.starts_with(given);
        const size_t away = begins ? 1 : letters_between(given, word);
        if (away > least || away >= std::min(given.size(), word.size())) continue;
        as_near = away < least ? 1 : as_near + 1;
        least = away;
        best = &word;
    }
    return best && as_near == 1 ? "; did you mean '" + *best + "'?" : std::string();
}

}  // namespace souk::tools
