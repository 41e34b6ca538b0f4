// SPDX-License-Identifier: GPL-2.0-or-later
// Guest, fifth part: leases. See guest.hpp and lease.hpp.
#include <algorithm>
#include <utility>

#include "agentd/core/guest.hpp"
#include "agentd/core/lease.hpp"

namespace souk {

using namespace guest;
using What = Do::What;

// What runs, or has been told to.
bool Guest::in_lease(const Entry& e) const {
    const auto* s = e.in<state::Starting>();
    const auto* h = e.in<state::Held>();
    return leased(e) && (e.in<Running>() || e.in<state::Filling>() ||
                         (s && s->step == state::Starting::Step::job) ||
                         (h && h->release == state::Held::Release::under_way));
}

// What runs, or may yet: its home is sent heartbeats.
bool Guest::may_run(const Entry& e) {
    if (const auto* closing = e.in<state::Closing>()) return closing->ending != Ending::to_frozen;
    return !e.in<state::Frozen>() && !e.in<state::Ended>() && !e.in<state::Failed>();
}

bool Guest::may_begin(const Entry& e) const {
    if (!leased(e)) return true;
    const auto tie = ties_.find(e.job.key.id.home);
    const Nanos lease = e.job.spec.lease;
    return tie != ties_.end() && tie->second.answered != Nanos::never() &&
           tie->second.answered + lease - lease_grace(lease) > clock_;
}

void Guest::keep_lease(Entry& e, Outputs& out) const {
    if (!leased(e)) return;
    e.lease.until = ties_.at(e.job.key.id.home).answered + e.job.spec.lease;
    const auto* held = e.moves<motion::Held>();
    const bool stands = e.lease.over() || (held && held->by_lease());
    out.push_back(Do{What::keep_lease, e.job.key, {}, {}, 0, false, false, e.lease.until, stands});
}

void Guest::need_heartbeat(const NodeName& home) {
    if (const auto [tie, is_new] = ties_.try_emplace(home); !is_new)
        tie->second.next_heartbeat = {};
    lease_due_ = {};
}

Nanos Guest::tick(Nanos now, Outputs& out) {
    const Scene scene(
        *this, &out, [&] { return trace_in(Input::tick, {}); }, true);
    clock_ = now;
    if (now >= owner_due_) owner_tick(now, out);
    if (now < lease_due_) return std::min(lease_due_, owner_due_);
    lease_due_ = Nanos::never();
    std::map<NodeName, Nanos> shortest;  // of each home's leases
    for (auto& [key, e] : jobs_) {
        if (!leased(e) || e.job.kept || !may_run(e)) continue;
        Nanos& least = shortest.try_emplace(key.id.home, e.job.spec.lease).first->second;
        least = std::min(least, e.job.spec.lease);
        if (e.lease.until == Nanos::never() || e.lease.stage != Lease::Stage::good || !in_lease(e))
            continue;
        const Nanos at = e.lease.until - lease_grace(e.job.spec.lease);
        if (now >= at)
            lapse(e, out);
        else
            lease_due_ = std::min(lease_due_, at);
    }
    std::erase_if(ties_, [&](const auto& tie) { return !shortest.contains(tie.first); });
    for (const auto& [home, lease] : shortest) {
        Tie& tie = ties_[home];
        if (now >= tie.next_heartbeat) {
            out.push_back(ToHome{home, Heartbeat{now}, false});
            tie.next_heartbeat = now + heartbeat_every(lease);
        }
        lease_due_ = std::min(lease_due_, tie.next_heartbeat);
    }
    return std::min(lease_due_, owner_due_);
}

// Once: if the freeze fails, the job runs up to its deadline. What is held, or on its way
// elsewhere, stands already; what an order has stopped goes to disk while its lease holds.
void Guest::lapse(Entry& e, Outputs& out) const {
    e.lease.stage = Lease::Stage::ending;
    auto* r = e.in<Running>();
    const bool by_order = in_place(e) && e.job.by_order;
    const bool stands = r && (r->want == Want::keep || r->in<motion::Held>());
    if (!r || r->want == Want::ship || (stands && !by_order)) return;
    r->cut = Cut::none;
    e.why.clear();
    want_now(*r, Want::freeze);
    r->or_stand = r->stand_first = false;  // until its deadline it may run
    drive(e, out);
}

void Guest::on(Entry& e, Lapsed, Outputs& out) {
    if (!in_lease(e)) return;
    e.lease.stage = Lease::Stage::over;
    if (e.in<state::Filling>()) {  // not the job yet
        e.why = {CauseCode::lease_over, "its lease was over before all of its memory had come"};
        return end_capsule(e, Ending::to_failed, What::kill_capsule, out);
    }
    // Else it is judged when that which is under way has ended.
    auto* r = e.in<Running>();
    if (!r || r->in<motion::Undoing>() || r->in<motion::Making>() || r->in<motion::Held>()) return;
    if (!r->in<motion::Steady>() && !r->in<motion::Standing>()) return undo(e, *r, out);
    stand(e, *r);
    tell(e, out);
}

// Stopped where it was: as what is found held after a crash, but for no dump.
void Guest::stand(Entry& e, Running& r) {
    using Held = motion::Held;
    r.motion = Held{r.in<motion::Standing>() ? Held::By::lease_midway : Held::By::lease,
                    Held::Image::lost};
    want_now(r, Want::keep);
    e.job.state = GuestState::dumping;
    e.why = {CauseCode::lease_over, stands_still};
}

void Guest::on(Entry& e, LeaseFound x, Outputs&) {
    if (!leased(e) || e.lease.until != Nanos::never()) return;
    e.lease.until = x.until;
    lease_due_ = {};
}

void Guest::heartbeat_answered(const NodeName& home, const Heartbeat& heartbeat, Nanos now,
                               Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_home(Input::heartbeat_answered, home); });
    const auto tie = ties_.find(home);
    clock_ = std::max(clock_, now);
    if (tie == ties_.end() || heartbeat.sent > now) return;
    Nanos& last = tie->second.answered;
    if (last != Nanos::never() && heartbeat.sent <= last) return;
    last = heartbeat.sent;
    lease_due_ = {};
    for (auto& [key, e] : jobs_)
        if (key.id.home == home && leased(e) && !e.in<state::Closing>() && may_begin(e))
            answered(e, out);
}

void Guest::answered(Entry& e, Outputs& out) {
    using Stage = Lease::Stage;
    auto* s = e.in<state::Starting>();
    auto* h = e.in<state::Held>();
    const auto* r = e.in<Running>();
    // nothing was heard of it yet, so that its home has not gone on without it
    if (s && s->step == state::Starting::Step::job) e.lease.stage = Stage::good;
    // A dump that is undone would let it run by a new deadline, and it is to stand: its home may
    // have gone on.
    const bool is_undone = r && r->in<motion::Undoing>() && e.lease.over();
    if (in_lease(e) && !is_undone) keep_lease(e, out);
    if (!e.lease.over() && !(r && r->want == Want::freeze)) e.lease.stage = Stage::good;
    if (s && s->step == state::Starting::Step::answer) return start_now(e, *s, out);
    if (s && s->step == state::Starting::Step::held && s->released)
        return on_release_held(e, *s, out);
    if (e.lease.over()) e.lease.stage = Stage::renewed;
    // Whatever it said of these may be old: it says it again.
    const bool waits = h && h->release == state::Held::Release::waits;
    if (waits) h->release = state::Held::Release::none;
    if (waits || e.lease.over()) tell(e, out);
}

// A word of the home that would let it run. True: not yet, it is too old.
bool Guest::still_over(Entry& e, Outputs& out) const {
    if (!e.lease.over()) return false;
    if (e.lease.stage == Lease::Stage::over) return true;
    e.lease.stage = Lease::Stage::good;
    keep_lease(e, out);
    return false;
}

}  // namespace souk
