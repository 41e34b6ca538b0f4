// SPDX-License-Identifier: GPL-2.0-or-later
// Allocator: jobs that run go back to the machine where they are, if another of its class has been
// given to them. See allocator.hpp.
#include <algorithm>

#include "market/core/allocator.hpp"

namespace souk::market {

void Allocator::swap_places(uint32_t x, uint32_t y) {
    const uint32_t of_x = jobs_[x].slot, of_y = jobs_[y].slot;
    // equal classes: no bound changes, and the room that opens is looked at by the caller
    in_pass_ = true;
    unseat(x);
    unseat(y);
    seat(x, of_y);
    seat(y, of_x);
    in_pass_ = false;
}

// The machine where the data of the job lie that a move must carry: the job runs or its checkpoint
// is there.
uint32_t Allocator::home_of(uint32_t j) const {
    const Job& job = jobs_[j];
    return job.state == JobState::frozen ? find_machine(details_[j].place) : job.at;
}

// A job that was placed inside the class of its home, but elsewhere, goes back in exchange for the
// guest there whose staying saves the fewest bytes (and fewer than its own), if both fit and nobody
// else could use the room that this makes. Nobody who runs makes place for one who is thawed.
void Allocator::take_back(uint32_t d) {
    const Job& job = jobs_[d];
    const uint32_t home = home_of(d);
    const bool frozen = job.state == JobState::frozen;
    if (job.slot == home || minds_files(d) || lies_apart(d) || job.named) return;
    Machine& old = machines_[home];
    Machine& now = machines_[job.slot];
    if (!eligible(old, d)) return;
    uint32_t best = none;
    int64_t least = bytes_of(d);
    for (const Guest& g : old.guests) {
        const Job& x = jobs_[g.job];
        const bool runs_here = x.state == JobState::running && x.at == home;
        const int64_t saves = runs_here || (frozen && home_of(g.job) == home) ? bytes_of(g.job) : 0;
        if ((frozen && runs_here) || g.rank.is_top() || saves > least || saves >= bytes_of(d) ||
            !eligible(now, g.job) || minds_files(g.job) || lies_apart(g.job) || x.named)
            continue;
        if (old.free_cpus + x.cpus < job.cpus || old.free_mb + x.memory_mb < job.memory_mb)
            continue;
        if (now.free_cpus + job.cpus < x.cpus || now.free_mb + job.memory_mb < x.memory_mb)
            continue;
        least = saves;
        best = g.job;
    }
    if (best == none) return;
    swap_places(d, best);
    const auto [first, last] = std::minmax({guest_rank(d), guest_rank(best)});
    for (Machine* m : {&old, &now}) {
        m->cursor = Rank::top();
        if (next_candidate(*m) == none && !unlike_want(*m, first, last)) continue;
        swap_places(d, best);
        return;
    }
    Job& x = jobs_[best];
    if (frozen || x.at != home) return;
    x.cause = job.cause;
    details_[best].by = details_[d].by;
    details_[best].by_value = details_[d].by_value;
}

void Allocator::settle() {
    if (!touched_carried_) return;
    std::vector<uint32_t> movers;
    for (const uint32_t j : touched_) {
        const Job& job = jobs_[j];
        if (job.key().n == 0 || job.slot == none || !job.competing) continue;
        const uint32_t home = home_of(j);
        if (home != none && home != job.slot && machines_[home].cls == machines_[job.slot].cls)
            movers.push_back(j);
    }
    std::sort(movers.begin(), movers.end(), [&](uint32_t a, uint32_t b) {
        const bool runs_a = jobs_[a].state == JobState::running,
                   runs_b = jobs_[b].state == JobState::running;
        if (runs_a != runs_b) return runs_a;
        const int64_t x = bytes_of(a), y = bytes_of(b);
        return x != y ? x > y : jobs_[a].rank < jobs_[b].rank;
    });
    for (const uint32_t j : movers) take_back(j);
}

}  // namespace souk::market
