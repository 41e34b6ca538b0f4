// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/strangers.hpp"

#include <algorithm>

namespace souk {

bool Strangers::comes_too_often(Host& host, Nanos now) const {
    const Nanos each{1'000'000'000 / static_cast<int64_t>(bounds_.host)};
    const Nanos at = std::max(host.free_at, now);
    if (at - now > Nanos::from_s(burst_s)) return true;
    host.free_at = at + each;
    return false;
}

// Hosts that have no connection any more are kept for their rate's sake alone.
void Strangers::forget_quiet(Nanos now) {
    if (hosts_.size() <= 2 * bounds_.all) return;
    std::erase_if(hosts_, [&](const auto& host) {
        return host.second.numbers.empty() && host.second.free_at <= now;
    });
}

Strangers::Taken Strangers::take(uint64_t number, const std::string& host, Nanos now) {
    forget_quiet(now);
    Host& own = hosts_[host];
    if (comes_too_often(own, now)) return {};
    Taken taken{true, {}};
    if (own.numbers.size() >= bounds_.host) {
        taken.goes = own.numbers.begin()->first;
    } else if (all_.size() >= bounds_.all) {
        const auto most = std::max_element(hosts_.begin(), hosts_.end(), [](auto& a, auto& b) {
            return a.second.numbers.size() < b.second.numbers.size();
        });
        taken.goes = most->second.numbers.begin()->first;
    }
    if (taken.goes && now - all_.at(*taken.goes).came < grace) return {};
    if (taken.goes) gone(*taken.goes);
    own.numbers.emplace(number, now);
    all_.emplace(number, Stranger{host, now});
    return taken;
}

void Strangers::gone(uint64_t number) {
    const auto at = all_.find(number);
    if (at == all_.end()) return;
    hosts_.at(at->second.host).numbers.erase(number);
    all_.erase(at);
}

std::optional<uint64_t> Strangers::since(Nanos then) const {
    if (all_.empty() || all_.begin()->second.came > then) return {};
    return all_.begin()->first;
}

}  // namespace souk
