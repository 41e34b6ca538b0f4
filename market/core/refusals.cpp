// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/refusals.hpp"

#include <algorithm>

namespace souk::market {

namespace {
constexpr Nanos first_pause = Nanos::from_s(1), longest_pause = Nanos::from_s(60);
}  // namespace

void Refusals::refused(const JobId& id, bool waits, Nanos now) {
    Home& home = homes_[id.home];
    ++home.count;
    if (!waits) return;
    home.again |= !home.asked.empty() && id.seq < home.asked.from;
    Range& range = home.next;
    range = range.empty() ? Range{id.seq, id.seq}
                          : Range{std::min(range.from, id.seq), std::max(range.to, id.seq)};
    if (home.at == Nanos::never()) wait(id.home, home, now, false);
}

void Refusals::taken(const NodeName& home) {
    if (const auto it = homes_.find(home); it != homes_.end()) it->second.pause = {};
}

void Refusals::gone(const NodeName& name) {
    const auto it = homes_.find(name);
    if (it == homes_.end()) return;
    Home& home = it->second;
    if (home.at != Nanos::never()) due_.erase({home.at, name});
    const uint64_t count = home.count;
    home = {};
    home.count = count;
}

uint64_t Refusals::count(const NodeName& home) const {
    const auto it = homes_.find(home);
    return it == homes_.end() ? 0 : it->second.count;
}

void Refusals::wait(const NodeName& name, Home& home, Nanos now, bool goes_on) {
    if (home.asked.empty() && home.next.empty()) return;
    if (!goes_on) home.pause = std::clamp(home.pause + home.pause, first_pause, longest_pause);
    home.at = now + (goes_on ? first_pause : home.pause);
    due_.insert({home.at, name});
}

}  // namespace souk::market
