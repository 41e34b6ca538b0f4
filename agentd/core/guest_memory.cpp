// SPDX-License-Identifier: GPL-2.0-or-later
// Guest: who stands in memory that the owner of the node wants. See guest.hpp.
#include "agentd/core/guest.hpp"

namespace souk {

using namespace guest;

std::vector<MemoryWish::Standing> Guest::standing() const {
    std::vector<MemoryWish::Standing> all;
    for (const auto& [key, e] : jobs_) {
        const auto* r = e.in<Running>();
        const bool ends = e.in<state::Closing>() || (r && r->retained);
        const bool by_order = in_place(e) && e.job.by_order;
        const bool paused = r && e.pause_asked && !e.paused.empty();
        if (!ends && !by_order && !(paused && !in_place(e) && !immovable(e))) continue;
        const bool goes = r && !in_place(e) && r->want != Want::run;
        all.push_back({key, e.job.memory_mb, ends || goes || must_go(e)});
    }
    return all;
}

void Guest::want_memory(const std::vector<GuestKey>& of, Outputs& out) {
    for (const GuestKey& key : of) {
        const Scene scene(*this, &out, [&] { return trace_in(Input::want_memory, key); });
        Entry* e = entry(key);
        if (!e || !e->in<Running>() || is_wanted(*e)) continue;
        e->leaving.wanted = clock_;
        e->leaving.tries = 0;
        expel(*e, out);
    }
    owner_due_ = {};
}

void Guest::want_no_memory() {
    for (auto& [key, e] : jobs_) e.leaving.wanted = Nanos::never();
}

}  // namespace souk
