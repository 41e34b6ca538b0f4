// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_wakes.hpp"

#include <utility>

#include "agentd/core/home_checkpoints.hpp"

namespace souk {

namespace {
// Half of what a ticket lives (market/core/ticket.hpp): the thaw itself takes its time too.
constexpr Nanos patience = Nanos::from_s(300);

bool can_wake(const HomeJob& job) {
    return job.phase == JobPhase::frozen && !job.in_place && !job.cancelled;
}
bool is_waking(const HomeJob& job) {
    return job.phase == JobPhase::thawing && job.cut != CutStep::held &&
           (job.step == MoveStep::prepare || job.step == MoveStep::transfer);
}
int64_t image_bytes(const HomeJob& job) {
    const bool checkpoint = HomeCheckpoints::is_whole(job, job.at.node, job.epoch);
    return checkpoint ? job.checkpoint.bytes : job.stats.image_bytes;
}
}  // namespace

bool HomeWakes::keeps(const HomeJob& job, const Order& order, Nanos now) {
    Kept kept{order, now, image_bytes(job), job.at.node == node_};
    const auto place = places_.find(job.id.seq);
    const bool waits = can_wake(job) && order.kind == Order::Kind::run && is_limited(kept.here) &&
                       (!kept_.empty() || !has_room(kept));
    if (!waits) {
        drop(job.id.seq);
        return false;
    }
    if (place == places_.end()) {
        places_.emplace(job.id.seq, ++last_place_);
        kept_.emplace(last_place_, std::move(kept));
    } else {
        Kept& before = kept_.at(place->second);
        kept.since = before.since;
        before = std::move(kept);
    }
    return true;
}

void HomeWakes::drop(uint64_t seq) {
    if (const auto place = places_.extract(seq)) kept_.erase(place.mapped());
}

bool HomeWakes::has_room(const Kept& kept) const {
    if (!is_limited(kept.here)) return true;
    if (rule_ == WakeRule::one) return waking_.empty();
    return waking_bytes_ == 0 || waking_bytes_ + kept.bytes <= *free_bytes_;
}

void HomeWakes::look_at(const HomeJob& job) {
    const uint64_t seq = job.id.seq;
    if (!can_wake(job)) drop(seq);
    const auto it = waking_.find(seq);
    if (is_waking(job) == (it != waking_.end())) return;
    if (it != waking_.end()) return woken(it);
    const int64_t bytes = job.at.node == node_ ? image_bytes(job) : 0;
    waking_.emplace(seq, bytes);
    waking_bytes_ += bytes;
}

void HomeWakes::woken(std::map<uint64_t, int64_t>::iterator job) {
    waking_bytes_ -= job->second;
    waking_.erase(job);
}

void HomeWakes::forget(uint64_t seq) {
    drop(seq);
    if (const auto it = waking_.find(seq); it != waking_.end()) woken(it);
}

Order HomeWakes::take_first() {
    Order order = std::move(kept_.begin()->second.order);
    drop(order.id.seq);
    return order;
}

std::optional<Order> HomeWakes::next() {
    if (kept_.empty() || !has_room(kept_.begin()->second)) return std::nullopt;
    return take_first();
}

std::optional<Order> HomeWakes::overdue(Nanos now) {
    if (now < due()) return std::nullopt;
    return take_first();
}

// A job keeps its place and its time when a newer order comes: the first has waited longest.
Nanos HomeWakes::due() const {
    return kept_.empty() ? Nanos::never() : kept_.begin()->second.since + patience;
}

std::string HomeWakes::why_late() const {
    return rule_ == WakeRule::one
               ? "its home wakes one frozen job at a time, and its turn has not come in 5 min"
               : "its home has not had the free memory to wake it beside others for 5 min";
}

const Order* HomeWakes::kept(uint64_t seq) const {
    const auto place = places_.find(seq);
    return place == places_.end() ? nullptr : &kept_.at(place->second).order;
}

}  // namespace souk
