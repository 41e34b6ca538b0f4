// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/use_meter.hpp"

#include <algorithm>
#include <utility>

namespace souk {
namespace {

bool runs_in(GuestState state) {
    return state == GuestState::running || state == GuestState::dump_ready ||
           state == GuestState::filling;
}

// Under this epoch it never runs here again.
bool ends_in(GuestState state) {
    return state == GuestState::exited || state == GuestState::killed ||
           state == GuestState::failed || state == GuestState::unknown ||
           state == GuestState::frozen;
}

}  // namespace

void UseMeter::load(GuestUse use, Nanos now) {
    // Another boot: nothing of it runs, and until when it did is not known.
    if (use.boot != boot_) {
        use.since = Nanos::never();
        use.ended = true;
    }
    Entry e;
    e.ended_at = now;
    e.use = std::move(use);
    entries_.insert_or_assign(e.use.key, std::move(e));
}

Nanos UseMeter::run(const Entry& e, Nanos now) const {
    return e.use.since == Nanos::never() ? e.use.run
                                         : e.use.run + std::max(Nanos{}, now - e.use.since);
}

std::optional<GuestUse> UseMeter::saw(const GuestKey& key, GuestState state, Nanos now) {
    const bool runs = runs_in(state), ends = ends_in(state);
    auto it = entries_.find(key);
    if (it == entries_.end()) {
        if (!runs) return std::nullopt;  // it has not run yet
        it = entries_.emplace(key, Entry{}).first;
        it->second.use.key = key;
        it->second.use.boot = boot_;
    }
    Entry& e = it->second;
    const GuestUse before = e.use;
    if (runs != (e.use.since != Nanos::never())) {
        e.use.run = run(e, now);
        e.use.since = runs ? now : Nanos::never();
    }
    e.use.ended = ends;
    if (e.use == before) return std::nullopt;
    e.told = false;
    if (ends) {
        e.ended_at = now;
        news_ = true;
    }
    return e.use;
}

std::vector<GuestUse> UseMeter::running(Nanos now) const {
    std::vector<GuestUse> all;
    for (const auto& [key, e] : entries_) {
        if (e.use.since == Nanos::never()) continue;
        all.push_back(e.use);
        all.back().run = run(e, now);
        all.back().since = now;
    }
    return all;
}

std::vector<GuestKey> UseMeter::forget(Nanos now) {
    std::vector<std::pair<Nanos, GuestKey>> ended;
    for (const auto& [key, e] : entries_)
        if (e.use.ended) ended.emplace_back(e.ended_at, key);
    std::sort(ended.begin(), ended.end());
    std::vector<GuestKey> gone;
    for (size_t i = 0; i < ended.size(); ++i)
        if (now - ended[i].first > remembered || ended.size() - i > ended_max) {
            entries_.erase(ended[i].second);
            gone.push_back(ended[i].second);
        }
    return gone;
}

UseReport UseMeter::report(bool all, Nanos now, const std::function<Nanos(const GuestKey&)>& cpu) {
    UseReport report;
    for (auto& [key, e] : entries_) {
        const bool runs = e.use.since != Nanos::never();
        if (!all && !runs && e.told) continue;
        e.cpu = std::max(e.cpu, cpu(key));
        report.jobs.push_back({key.id, key.epoch, run(e, now), e.cpu, e.use.ended});
        e.told = true;
    }
    news_ = false;
    return report;
}

}  // namespace souk
