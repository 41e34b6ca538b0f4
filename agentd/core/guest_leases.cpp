// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/guest_leases.hpp"

#include <algorithm>

#include "agentd/core/lease.hpp"

namespace souk {

using namespace guest;
using What = Do::What;

bool GuestLeases::in_lease(const Entry& e) const {
    const auto* s = e.in<state::Starting>();
    const auto* h = e.in<state::Held>();
    return leased(e) && (e.in<state::Running>() || e.in<state::Filling>() ||
                         (s && s->step == state::Starting::Step::job) ||
                         (h && h->release == state::Held::Release::under_way));
}

bool GuestLeases::may_begin(const Entry& e) const {
    if (!leased(e)) return true;
    const auto tie = ties_.find(e.job.key.id.home);
    const Nanos lease = e.job.spec.lease;
    return tie != ties_.end() && tie->second.answered != Nanos::never() &&
           tie->second.answered + lease - lease_grace(lease) > clock_;
}

void GuestLeases::keep(Entry& e, Outputs& out) const {
    if (!leased(e)) return;
    e.lease.until = ties_.at(e.job.key.id.home).answered + e.job.spec.lease;
    const auto* held = e.moves<motion::Held>();
    const bool stands = e.lease.over() || (held && held->by_lease());
    out.push_back(Do{What::keep_lease, e.job.key, {}, {}, 0, false, false, e.lease.until, stands});
}

bool GuestLeases::still_over(Entry& e, Outputs& out) const {
    if (!e.lease.over()) return false;
    if (e.lease.stage == Lease::Stage::over) return true;
    e.lease.stage = Lease::Stage::good;
    keep(e, out);
    return false;
}

void GuestLeases::need_heartbeat(const NodeName& home) {
    if (const auto [tie, is_new] = ties_.try_emplace(home); !is_new)
        tie->second.next_heartbeat = {};
    due_ = {};
}

bool GuestLeases::answered(const NodeName& home, const Heartbeat& heartbeat, Nanos now) {
    const auto tie = ties_.find(home);
    if (tie == ties_.end() || heartbeat.sent > now) return false;
    Nanos& last = tie->second.answered;
    if (last != Nanos::never() && heartbeat.sent <= last) return false;
    last = heartbeat.sent;
    due_ = {};
    return true;
}

void GuestLeases::found(Entry& e, Nanos until) {
    if (!leased(e) || e.lease.until != Nanos::never()) return;
    e.lease.until = until;
    due_ = {};
}

std::vector<Entry*> GuestLeases::near_end(Nanos now, GuestJobs& jobs) {
    std::vector<Entry*> near;
    due_ = Nanos::never();
    for (auto& [home, tie] : ties_) tie.shortest = Nanos::never();
    for (auto& [key, e] : jobs.all()) {
        if (!leased(e) || e.job.kept || !e.may_run()) continue;
        Nanos& shortest = ties_[key.id.home].shortest;
        shortest = std::min(shortest, e.job.spec.lease);
        if (e.lease.until == Nanos::never() || e.lease.stage != Lease::Stage::good || !in_lease(e))
            continue;
        const Nanos at = e.lease.until - lease_grace(e.job.spec.lease);
        if (now >= at)
            near.push_back(&e);
        else
            due_ = std::min(due_, at);
    }
    std::erase_if(ties_, [](const auto& tie) { return tie.second.shortest == Nanos::never(); });
    return near;
}

void GuestLeases::send_heartbeats(Nanos now, Outputs& out) {
    for (auto& [home, tie] : ties_) {
        if (now >= tie.next_heartbeat) {
            out.push_back(ToHome{home, Heartbeat{now}, false});
            tie.next_heartbeat = now + heartbeat_every(tie.shortest);
        }
        due_ = std::min(due_, tie.next_heartbeat);
    }
}

}  // namespace souk
