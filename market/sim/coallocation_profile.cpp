// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/coallocation_profile.hpp"

#include <algorithm>
#include <numeric>

#include "kernel/base/check.hpp"

namespace souk::sim::coallocation {

std::vector<Holding> holdings_of(const View& view) {
    std::vector<Holding> out(view.background.begin(), view.background.end());
    for (const uint32_t job : view.running)
        out.push_back({view.progress[job].until_ms, view.progress[job].where});
    return out;
}

int64_t estimated_ms(const Job& job, const Allocation& where, const Terms& terms) {
    return job.overhead_ms + stretched_ms(job.estimate_ms, where, terms);
}

Profile::Profile(int64_t now_ms, std::span<const int64_t> idle, std::span<const Holding> holdings) {
    std::vector<const Holding*> by_end;
    for (const Holding& h : holdings) by_end.push_back(&h);
    std::sort(by_end.begin(), by_end.end(),
              [](const Holding* a, const Holding* b) { return a->until_ms < b->until_ms; });
    steps_.push_back({now_ms, Idle(idle.begin(), idle.end())});
    for (const Holding* h : by_end) {
        MUST(h->until_ms > now_ms);
        if (steps_.back().from_ms < h->until_ms)
            steps_.push_back({h->until_ms, steps_.back().idle});
        coallocation::give(steps_.back().idle, h->where);
    }
}

size_t Profile::step_at(int64_t ms) const {
    const auto after = std::partition_point(steps_.begin(), steps_.end(),
                                            [&](const Step& s) { return s.from_ms <= ms; });
    return static_cast<size_t>(after - steps_.begin()) - 1;
}

size_t Profile::cut(int64_t ms) {
    const size_t at = step_at(ms);
    if (steps_[at].from_ms == ms) return at;
    steps_.insert(steps_.begin() + static_cast<ptrdiff_t>(at) + 1, {ms, steps_[at].idle});
    return at + 1;
}

void Profile::change(const Reservation& r, int64_t sign) {
    const size_t first = cut(r.at_ms), last = cut(r.until_ms);
    for (size_t i = first; i < last; ++i)
        for (const Piece& piece : r.where) steps_[i].idle[piece.cluster] += sign * piece.cpus;
}

Idle Profile::least(size_t first, int64_t until_ms) const {
    Idle out = steps_[first].idle;
    for (size_t i = first + 1; i < steps_.size() && steps_[i].from_ms < until_ms; ++i)
        for (size_t c = 0; c < out.size(); ++c) out[c] = std::min(out[c], steps_[i].idle[c]);
    return out;
}

bool Profile::has_room(const Reservation& r) const {
    return fits(r.where, least(step_at(r.at_ms), r.until_ms));
}

std::optional<Reservation> Profile::earliest(const Job& job, const Placement& placement,
                                             const Terms& terms, int64_t before_ms) const {
    const int64_t shortest = job.overhead_ms + job.estimate_ms;
    for (size_t i = 0; i < steps_.size() && steps_[i].from_ms < before_ms; ++i) {
        const Idle& now = steps_[i].idle;
        if (std::accumulate(now.begin(), now.end(), int64_t{0}) < job.cpus) continue;
        const int64_t at = steps_[i].from_ms;
        auto where = placement.place(job, least(i, at + shortest));
        if (!where) continue;
        int64_t takes = estimated_ms(job, *where, terms);
        // In several clusters it runs longer, and may meet others there.
        if (takes > shortest && !has_room({at, at + takes, *where})) {
            where = placement.place(job, least(i, at + takes));
            if (!where) continue;
            takes = estimated_ms(job, *where, terms);
        }
        return Reservation{at, at + takes, std::move(*where)};
    }
    return std::nullopt;
}

}  // namespace souk::sim::coallocation
