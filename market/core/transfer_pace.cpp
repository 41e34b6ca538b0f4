// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/transfer_pace.hpp"

#include <algorithm>

namespace souk::market {

bool TransferPace::take(const NodeName& from, uint32_t uid, Nanos now) {
    constexpr Nanos user_most{user_each.ns * user_burst}, node_most{node_each.ns * node_burst};
    if (now >= forget_at_) {
        const auto over = [now](const auto& one) { return one.second <= now; };
        std::erase_if(users_, over);
        std::erase_if(nodes_, over);
        forget_at_ = now + user_each;
    }
    const auto next = [now](auto& all, const auto& who, Nanos each) {
        const auto known = all.find(who);
        return std::max(now, known == all.end() ? now : known->second) + each;
    };
    const Nanos user = next(users_, uid, user_each), node = next(nodes_, from, node_each);
    if (user > now + user_most || node > now + node_most) return false;
    users_[uid] = user;
    nodes_[from] = node;
    return true;
}

}  // namespace souk::market
