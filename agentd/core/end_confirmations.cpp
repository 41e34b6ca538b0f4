// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/end_confirmations.hpp"

#include <algorithm>
#include <utility>

namespace souk {

void EndConfirmations::ask(const HomeJob& job, std::vector<uint64_t> others, Nanos until) {
    Doubt& d = doubts_.at(job.id.seq);
    d.asked = true;
    d.silent = std::move(others);
    d.due = until;
}

std::vector<uint64_t> EndConfirmations::heard(uint64_t other) {
    std::vector<uint64_t> over;
    for (auto& [seq, d] : doubts_)
        if (std::erase(d.silent, other) > 0 && d.silent.empty()) over.push_back(seq);
    std::sort(over.begin(), over.end(),
              [&](uint64_t a, uint64_t b) { return doubts_.at(a).number < doubts_.at(b).number; });
    return over;
}

Nanos EndConfirmations::due(const HomeJob& job) const {
    const auto it = doubts_.find(job.id.seq);
    return it == doubts_.end() ? Nanos::never() : it->second.due;
}

}  // namespace souk
