// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/root/files_words.hpp"

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "kernel/base/number.hpp"

namespace souk::root {
namespace {

// A form of souk-files: u a user or group, g groups, n a number, t any text, / an absolute path
// that may have a + before it; the last one may repeat (*). `owns`: of who has jobs that began
// here.
struct Form {
    const char *verb, *words;
    size_t descriptors;
    bool session, owns;
};
constexpr Form forms[] = {
    {"serve", "/uug/*", 2, true, true},     {"client", "uu", 3, false, false},
    {"store", "n", 2, false, false},        {"append", "uugnttt", 2, true, true},
    {"snapshot", "tuugtt", 2, true, false}, {"sync", "", 2, true, false}};

bool is_user(std::string_view word) {
    const auto number = whole_number<uint32_t>(word);
    return number && *number != UINT32_MAX;
}

// "4,27"; what is no number is nobody's.
std::vector<uint32_t> groups_in(std::string_view words) {
    std::vector<uint32_t> all;
    while (!words.empty()) {
        const size_t end = std::min(words.find(','), words.size());
        all.push_back(whole_number<uint32_t>(words.substr(0, end)).value_or(no_id));
        words.remove_prefix(std::min(end + 1, words.size()));
    }
    return all;
}

bool is_groups(std::string_view words) { return std::ranges::count(groups_in(words), no_id) == 0; }

bool fits(char kind, std::string_view word) {
    switch (kind) {
        case 'u': return is_user(word);
        case 'g': return is_groups(word);
        case 'n': return whole_number<uint64_t>(word).has_value();
        case '/': return word.substr(word.starts_with('+')).starts_with('/');
        default: return true;
    }
}

}  // namespace

Status check_files_words(const std::vector<std::string>& words, size_t descriptors, bool session) {
    const auto wrong = [] { return fail("souk-files is not started so"); };
    for (const Form& form : forms) {
        if (words.empty() || words[0] != form.verb) continue;
        std::string_view kinds = form.words;
        const bool repeats = kinds.ends_with('*');
        if (repeats) kinds.remove_suffix(1);
        if (descriptors != form.descriptors || session != form.session) return wrong();
        const size_t count = words.size() - 1;
        if (repeats ? count + 1 < kinds.size() : count != kinds.size()) return wrong();
        for (size_t i = 0; i < count; ++i)
            if (!fits(kinds[std::min(i, kinds.size() - 1)], words[i + 1])) return wrong();
        return {};
    }
    return wrong();
}

FilesUser files_user(const std::vector<std::string>& words) {
    FilesUser user;
    for (const Form& form : forms) {
        if (words.empty() || words[0] != form.verb) continue;
        const std::string_view kinds = form.words;
        const size_t at = kinds.find("uu");
        if (at == kinds.npos || words.size() < at + 3) continue;
        user.owns = form.owns;
        user.as = {true,
                   whole_number<uint32_t>(words[at + 1]).value_or(no_id),
                   whole_number<uint32_t>(words[at + 2]).value_or(no_id),
                   {}};
        if (kinds.substr(at).starts_with("uug") && words.size() > at + 3)
            user.as.groups = groups_in(words[at + 3]);
    }
    return user;
}

}  // namespace souk::root
