// SPDX-License-Identifier: GPL-2.0-or-later
// Guest, third part: leases. See guest.hpp and lease.hpp.
#include <algorithm>
#include <utility>

#include "agentd/core/guest.hpp"
#include "agentd/core/lease.hpp"

namespace souk {

using namespace guest;
using What = Do::What;

// What runs, or has been told to.
bool Guest::in_lease(const Entry& e) const {
    return leased(e) &&
           (runs(e) || e.starting_job || e.releasing || e.job.state == GuestState::filling);
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
    e.until = ties_.at(e.job.key.id.home).answered + e.job.spec.lease;
    out.push_back(
        Do{What::keep_lease, e.job.key, {}, {}, 0, false, false, e.until, e.over || e.stands});
}

void Guest::need_beat(const NodeName& home) {
    if (const auto [tie, is_new] = ties_.try_emplace(home); !is_new) tie->second.next_beat = {};
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
        const bool may_run = in_lease(e) || e.job.state == GuestState::starting ||
                             e.job.state == GuestState::prepared || e.job.state == GuestState::held;
        if (!leased(e) || e.job.kept || !may_run) continue;
        Nanos& least = shortest.try_emplace(key.id.home, e.job.spec.lease).first->second;
        least = std::min(least, e.job.spec.lease);
        if (e.until == Nanos::never() || e.lapsing || !in_lease(e)) continue;
        const Nanos at = e.until - lease_grace(e.job.spec.lease);
        if (now >= at)
            lapse(e, out);
        else
            lease_due_ = std::min(lease_due_, at);
    }
    std::erase_if(ties_, [&](const auto& tie) { return !shortest.contains(tie.first); });
    for (const auto& [home, lease] : shortest) {
        Tie& tie = ties_[home];
        if (now >= tie.next_beat) {
            out.push_back(ToHome{home, Beat{now}, false});
            tie.next_beat = now + beat_every(lease);
        }
        lease_due_ = std::min(lease_due_, tie.next_beat);
    }
    return std::min(lease_due_, owner_due_);
}

// Once: if the freeze fails, the job runs up to its deadline. What is held, or on its way
// elsewhere, stands already.
void Guest::lapse(Entry& e, Outputs& out) const {
    e.lapsing = true;
    if (!runs(e) || e.ending != Ending::none || e.want == Want::ship || e.want == Want::keep ||
        e.dump == Entry::Dump::held)
        return;
    e.why.clear();
    e.want = Want::freeze;
    e.or_stand = false;  // until its deadline it may run
    drive(e, out);
}

void Guest::on(Entry& e, Lapsed, Outputs& out) {
    if (!in_lease(e) || e.ending != Ending::none) return;
    e.lapsing = e.over = true;
    e.renewed = false;
    if (e.job.state == GuestState::filling) {  // not the job yet
        e.why = "its lease was over before all of its memory had come";
        return end_capsule(e, Ending::to_failed, What::kill_capsule, out);
    }
    // Else it is judged when that which is under way has ended.
    if (!runs(e) || e.undoing || e.dump == Entry::Dump::making || e.dump == Entry::Dump::held)
        return;
    if (e.dump != Entry::Dump::none || e.criu != Entry::Criu::none) return undo(e, out);
    stand(e);
    tell(e, out);
}

// Stopped where it was: as what is found held after a crash, but for no dump.
void Guest::stand(Entry& e) const {
    e.dump = Entry::Dump::held;
    e.want = Want::keep;
    e.criu = Entry::Criu::none;
    e.to_disk = e.to_keep = e.live = e.firm = false;
    e.stands = e.image_lost = true;
    e.job.state = GuestState::dumping;
    e.why = stands_still;
}

void Guest::on(Entry& e, LeaseFound x, Outputs&) {
    if (!leased(e) || e.until != Nanos::never()) return;
    e.until = x.until;
    lease_due_ = {};
}

void Guest::beat_answered(const NodeName& home, const Beat& beat, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_home(Input::beat_answered, home); });
    const auto tie = ties_.find(home);
    clock_ = std::max(clock_, now);
    if (tie == ties_.end() || beat.sent > now) return;
    Nanos& last = tie->second.answered;
    if (last != Nanos::never() && beat.sent <= last) return;
    last = beat.sent;
    lease_due_ = {};
    for (auto& [key, e] : jobs_)
        if (key.id.home == home && leased(e) && e.ending == Ending::none && may_begin(e))
            answered(e, out);
}

void Guest::answered(Entry& e, Outputs& out) {
    // nothing was heard of it yet, so that its home has not gone on without it
    if (e.starting_job) e.over = false;
    if (in_lease(e)) keep_lease(e, out);
    if (e.want != Want::freeze && !e.over) e.lapsing = false;
    if (std::exchange(e.start_waits, false)) return start_now(e, out);
    e.renewed = e.over;
    // Whatever it said of these may be old: it says it again.
    if (std::exchange(e.release_waits, false) || e.over) tell(e, out);
}

// A word of the home that would let it run. True: not yet, it is too old.
bool Guest::still_over(Entry& e, Outputs& out) const {
    if (!e.over) return false;
    if (!std::exchange(e.renewed, false)) return true;
    e.over = e.lapsing = false;
    keep_lease(e, out);
    return false;
}

}  // namespace souk
