// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/owner_names.hpp"

#include <algorithm>

namespace souk {
namespace {

std::vector<std::string> words_of(const std::string& text) {
    std::vector<std::string> words;
    for (size_t at = text.find_first_not_of(" \t"); at != std::string::npos;) {
        const size_t end = std::min(text.find_first_of(" \t", at), text.size());
        words.push_back(text.substr(at, end - at));
        at = text.find_first_not_of(" \t", end);
    }
    return words;
}

}  // namespace

Status check_owner_names(const std::string& owners) {
    for (const std::string& name : words_of(owners))
        if (name == "@" || name.find_first_of(",:;") != std::string::npos)
            return fail("owners: '" + name +
                        "' is no user, nor a group behind an @ (parted by blanks)");
    return {};
}

bool owned_by(const std::string& owners, uint32_t uid, const std::vector<uint32_t>& groups,
              const Accounts& accounts) {
    for (const std::string& name : words_of(owners)) {
        if (name[0] != '@') {
            const auto account = accounts.named(name);
            if (account && account->uid == uid) return true;
        } else if (std::any_of(groups.begin(), groups.end(), [&](uint32_t gid) {
                       return accounts.group_name(gid) == name.substr(1);
                   })) {
            return true;
        }
    }
    return false;
}

}  // namespace souk
