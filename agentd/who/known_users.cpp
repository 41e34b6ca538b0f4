// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/who/known_users.hpp"

#include "kernel/base/number.hpp"

namespace souk::who {
namespace {

constexpr std::string_view head = "souk users 1\n";

std::string_view cut(std::string_view& rest, char at) {
    const std::string_view piece = rest.substr(0, rest.find(at));
    rest.remove_prefix(std::min(piece.size() + 1, rest.size()));
    return piece;
}

}  // namespace

Result<KnownUsers> KnownUsers::parse(std::string_view text) {
    if (!text.starts_with(head)) return fail("no list of users");
    text.remove_prefix(head.size());
    KnownUsers all;
    for (size_t line = 2; !text.empty(); ++line) {
        std::string_view numbers = cut(text, '\n');
        RunsAs user{true, no_id, no_id, {}};
        for (size_t i = 0; !numbers.empty(); ++i) {
            const auto number = whole_number<uint32_t>(cut(numbers, ' '));
            if (!number || *number == no_id)
                return fail("line " + std::to_string(line) + ": no number of a user or group");
            if (i == 0)
                user.uid = *number;
            else
                user.groups.push_back(*number);
        }
        if (user.groups.empty()) return fail("line " + std::to_string(line) + ": no group");
        user.gid = user.groups.front();
        all.add(user);
    }
    return all;
}

std::string KnownUsers::text() const {
    std::string all(head);
    for (const auto& [uid, groups] : users_) {
        all += std::to_string(uid);
        for (const uint32_t gid : groups) all += " " + std::to_string(gid);
        all += '\n';
    }
    return all;
}

bool KnownUsers::add(const RunsAs& user) {
    if (user.uid == no_id || user.gid == no_id) return false;
    if (!users_.contains(user.uid) && users_.size() >= users_max) return false;
    std::set<uint32_t>& groups = users_[user.uid];
    bool is_new = groups.insert(user.gid).second;
    for (const uint32_t gid : user.groups) {
        if (groups.size() >= groups_max) break;
        if (gid != no_id && groups.insert(gid).second) is_new = true;
    }
    return is_new;
}

Status KnownUsers::check(const RunsAs& as) const {
    const auto it = users_.find(as.uid);
    if (it == users_.end())
        return fail("user " + std::to_string(as.uid) + " has asked for nothing on this machine");
    const auto has = [&](uint32_t gid) -> Status {
        if (it->second.contains(gid)) return {};
        return fail("user " + std::to_string(as.uid) + " was never seen in group " +
                    std::to_string(gid));
    };
    TRY(has(as.gid));
    for (const uint32_t gid : as.groups) TRY(has(gid));
    return {};
}

}  // namespace souk::who
