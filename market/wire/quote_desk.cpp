// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/wire/quote_desk.hpp"

namespace souk {

Status QuoteDesk::take(Asked asked) {
    size_t of_node = 0;
    for (auto it = waiting_.lower_bound({asked.from, 0});
         it != waiting_.end() && it->first.first == asked.from; ++it)
        of_node += it->second.size();
    const Asker who{asked.from, asked.request.uid};
    const auto known = waiting_.find(who);
    if (of_node >= node_most || (known != waiting_.end() && known->second.size() >= user_most))
        return fail(CauseCode::too_many, "too many quotes are asked at once: ask again");
    waiting_[who].push_back(std::move(asked));
    return {};
}

bool QuoteDesk::answer(const std::function<void(const Asked&)>& reckon,
                       const std::function<Nanos()>& clock) {
    const Nanos until = clock() + step_share;
    while (!waiting_.empty()) {
        auto it = waiting_.upper_bound(last_);
        if (it == waiting_.end()) it = waiting_.begin();
        last_ = it->first;
        const Asked asked = std::move(it->second.front());
        it->second.pop_front();
        if (it->second.empty()) waiting_.erase(it);
        reckon(asked);
        if (clock() >= until) break;
    }
    return !waiting_.empty();
}

}  // namespace souk
