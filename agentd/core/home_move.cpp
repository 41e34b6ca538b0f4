// SPDX-License-Identifier: GPL-2.0-or-later
// Home, second part: carrying out the market's orders. See home.hpp for the steps of a move and who
// decides.
#include <algorithm>
#include <utility>

#include "agentd/core/home.hpp"
#include "kernel/base/check.hpp"

namespace souk {

using namespace home;

void Home::take(HomeJob& job, const Order& order, Nanos now, Outputs& out) {
    const bool run = order.kind == Order::Kind::run;
    if (run && silent_.contains(order.node) && order.node != job.at.node)
        return fail_order(job, order.node, "node " + order.node + " is not heard from", out);
    if (run && job.phase == JobPhase::waiting) return start(job, order, now, out);
    const bool stands_there =
        job.in_place && job.phase == JobPhase::frozen && job.at.node == order.node;
    if (run && stands_there) return go_on_in_place(job, now, out);
    if (run && (job.phase == JobPhase::frozen || job.at.node != order.node))
        return move(job, order, now, out);
    if (!run && job.phase == JobPhase::running) return freeze(job, now, out);
    report(job, now, out);  // it is so already
}

void Home::send(const Peer& peer, const JobId& id, Epoch epoch, GuestVerb verb,
                Outputs& out) const {
    GuestCommand c;
    c.id = id;
    c.epoch = epoch;
    c.verb = verb;
    c.or_stand = verb == GuestVerb::freeze;
    out.push_back(ToGuest{peer, std::move(c)});
}

void Home::send_with_spec(const HomeJob& job, const Peer& peer, Epoch epoch, GuestVerb verb,
                          Outputs& out) const {
    GuestCommand c;
    c.id = job.id;
    c.epoch = epoch;
    c.verb = verb;
    c.spec = job.spec;
    if (peer.node == node_) c.spec.lease = {};  // one daemon is both
    c.memory_mb = job.terms.memory_mb;
    c.cpus = job.terms.cpus;
    out.push_back(ToGuest{peer, std::move(c)});
}

void Home::start(HomeJob& job, const Order& order, Nanos now, Outputs& out) {
    job.at = {order.node, order.address};
    job.epoch = job.last_epoch = job.last_epoch.next();
    job.cpu_here = {};
    job.leased = false;
    job.phase = JobPhase::starting;
    job.stay_run = job.stats.run_time;
    job.boot = limits_.boot;
    vol(job).deadline = now + limits_.step_patience;
    HomeJob record = job;
    record.running_since = now;  // for a daemon that comes back and finds it running
    persist(record, out);
    send_with_spec(job, job.at, job.epoch, GuestVerb::start, out);
}

void Home::move(HomeJob& job, const Order& order, Nanos now, Outputs& out) {
    end_saving(job, out);
    fold_clock(job, now);
    Volatile& v = vol(job);
    job.from_frozen = job.phase == JobPhase::frozen && !std::exchange(job.in_place, false);
    job.phase = job.from_frozen ? JobPhase::thawing : JobPhase::moving;
    job.to = {order.node, order.address};
    job.to_epoch = job.last_epoch = job.last_epoch.next();
    job.to_leased = false;
    job.step = MoveStep::prepare;
    v.source_ready = job.from_frozen;
    v.destination_ready = v.source_stands = false;
    v.frozen_since = v.running_at = v.sent_at = v.held_at = v.released_at = Nanos::never();
    v.expel_at = Nanos::never();  // it leaves
    v.deadline = now + limits_.step_patience;
    persist(job, out);
    report(job, now, out);
    send_with_spec(job, job.to, job.to_epoch, GuestVerb::prepare, out);
    if (!job.from_frozen) send(job.at, job.id, job.epoch, GuestVerb::prepare_dump, out);
}

void Home::freeze(HomeJob& job, Nanos now, Outputs& out) {
    end_saving(job, out);
    fold_clock(job, now);
    job.phase = JobPhase::freezing;
    vol(job).expel_at = Nanos::never();
    vol(job).deadline = now + limits_.transfer_patience;
    persist(job, out);
    send(job.at, job.id, job.epoch, GuestVerb::freeze, out);
}

void Home::steady(HomeJob& job, Nanos now, Outputs& out) {
    Volatile& v = vol(job);
    v.deadline = Nanos::never();
    report(job, now, out);
    if (job.phase == JobPhase::finished) return;
    const std::optional<Order> pending = std::exchange(v.pending, std::nullopt);
    if (job.cancelled) return end_by_cancel(job, now, out);
    if (job.phase == JobPhase::running) {
        send_signals(job, out);
        arm_expel(job, now);
        arm_checkpoint(job, now);
    }
    if (pending) take(job, *pending, now, out);
}

// Each try that failed doubles the wait for the next.
void Home::arm_expel(const HomeJob& job, Nanos now) {
    Volatile& v = vol(job);
    if (v.expelled != job.epoch || v.expel_at != Nanos::never() || job.phase != JobPhase::running)
        return;
    Nanos wait = limits_.expel_patience;
    for (uint32_t i = 0; i < v.expel_tries && wait < Nanos::from_s(60); ++i) wait += wait;
    v.expel_at = now + std::min(wait, std::max(limits_.expel_patience, Nanos::from_s(60)));
}

void Home::fail_order(HomeJob& job, const NodeName& node, const std::string& why, Outputs& out) {
    job.comment = why;
    job.story.add(step_of(StoryStep::What::failed, node, why));
    OrderFailed f{job.id, job.order_seq, node, why};
    out.push_back(ToMarketMsg{std::move(f)});
    out.push_back(Tell{job.id, Tell::What::comment, why});
}

// -------------------------------------------------------------------------------------------------
// a move

void Home::ship_when_ready(HomeJob& job, Nanos now, Outputs& out) {
    Volatile& v = vol(job);
    if (job.step != MoveStep::prepare || !v.source_ready || !v.destination_ready) return;
    // not durable on purpose: until the commit every restart goes back
    job.step = MoveStep::transfer;
    v.deadline = now + limits_.transfer_patience;
    send_ship(job, out);
}

void Home::send_ship(const HomeJob& job, Outputs& out) const {
    const bool here = job.at.node == job.to.node;  // thaw where the image lies
    GuestCommand c;
    c.id = job.id;
    c.epoch = job.epoch;
    c.verb = here ? GuestVerb::restore_here : GuestVerb::ship;
    c.new_epoch = job.to_epoch;
    c.dest = job.to.node;
    c.dest_address = job.to.address;
    out.push_back(ToGuest{job.at, std::move(c)});
}

// Before the decision only: the source goes on, the candidate is ended. An empty `blame`: nobody
// failed. (By value: it is often the very name that is cleared here.)
// NOLINTNEXTLINE(performance-unnecessary-value-param)
void Home::abort_move(HomeJob& job, NodeName blame, const std::string& why, Nanos now,
                      Outputs& out) {
    MUST(job.step == MoveStep::prepare || job.step == MoveStep::transfer);
    const Peer candidate_peer = std::exchange(job.to, Peer{});
    const Epoch candidate_epoch = job.to_epoch;
    job.step = MoveStep::none;
    job.phase = job.from_frozen ? JobPhase::frozen : JobPhase::running;
    add_orphan(job, candidate_peer, candidate_epoch);
    if (!blame.empty()) {
        ++job.stats.failed_moves;
        fail_order(job, blame, why, out);
    }
    persist(job, out);
    send(candidate_peer, job.id, candidate_epoch, GuestVerb::kill, out);
    send(job.at, job.id, job.epoch, GuestVerb::resume, out);
    steady(job, now, out);
}

// Instead of moving it was frozen, by an order of before: so be it.
void Home::frozen_instead(HomeJob& job, int64_t image_bytes, Nanos now, Outputs& out) {
    const Peer candidate_peer = std::exchange(job.to, Peer{});
    add_orphan(job, candidate_peer, job.to_epoch);
    job.step = MoveStep::none;
    send(candidate_peer, job.id, job.to_epoch, GuestVerb::kill, out);
    became_frozen(job, image_bytes, now, out);
}

// The decision: durable in this step, before anybody hears of it. A source that only this home can
// let go on need not die first: it stands until the candidate is known to run, and is the job again
// if that fails.
void Home::commit_move(HomeJob& job, Nanos now, Outputs& out) {
    vol(job).held_at = now;
    // it is held there, although its word of it may still be on the way
    if (!job.from_frozen) stop_clock(job, now);
    if (job.from_frozen || vol(job).source_stands) return source_is_off(job, now, out);
    job.step = MoveStep::kill_old;
    vol(job).deadline = now + limits_.step_patience;
    persist(job, out);
    send(job.at, job.id, job.epoch, GuestVerb::commit, out);
}

void Home::source_is_off(HomeJob& job, Nanos now, Outputs& out) {
    job.step = MoveStep::release;
    vol(job).released_at = std::min(vol(job).released_at, now);
    vol(job).deadline = now + limits_.step_patience;
    persist(job, out);
    send(job.to, job.id, job.to_epoch, GuestVerb::release, out);
}

void Home::arrived(HomeJob& job, Nanos now, Outputs& out) {
    Volatile& v = vol(job);
    const Peer old = std::exchange(job.at, std::exchange(job.to, Peer{}));
    const Epoch old_epoch = std::exchange(job.epoch, job.to_epoch);
    job.leased = std::exchange(job.to_leased, false);
    job.cpu_here = {};
    job.step = MoveStep::none;
    job.phase = JobPhase::running;
    std::string text = "moved from " + old.node + " to " + job.at.node;
    Nanos pause{-1};
    if (job.from_frozen) {
        ++job.stats.thaws;
        text = "goes on at " + job.at.node;
    } else {
        ++job.stats.migrations;
        if (v.frozen_since != Nanos::never()) {
            pause = std::min(v.running_at, now) - v.frozen_since;
            job.stats.longest_pause = std::max(job.stats.longest_pause, pause);
            job.stats.last_move = {v.forecast, pause,
                                   now - v.frozen_since + v.forecast.precopy_time};
            const int64_t tenths = (pause.ns + 50'000) / 100'000;
            text += ", pause " + std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) +
                    " ms";
        }
    }
    StoryStep moved = moved_step(job, old.node, pause, now);
    text += move_parts(moved);
    job.story.add(std::move(moved));
    job.comment.clear();
    v.cannot_move.clear();
    add_place(job);
    job.stay_run = job.stats.run_time;
    const bool keep = same(old, old_epoch, job.checkpoint);  // it stays what there is to go back to
    if (!keep) add_orphan(job, old, old_epoch);
    start_clock(job, now);
    persist(job, out);
    if (!keep) send(old, job.id, old_epoch, GuestVerb::drop, out);
    out.push_back(Tell{job.id, Tell::What::moved, std::move(text)});
    steady(job, now, out);
}

// After the decision and before the candidate was let run: it is gone, or the source was not held.
// The source is the job again, as it stands: running, held (told to go on), or, if it has died
// already, its image. Whether it stands in memory or in its image is for it to say (owner_frozen).
void Home::roll_back(HomeJob& job, const std::string& why, bool source_dead, Nanos now,
                     Outputs& out) {
    const Peer candidate_peer = std::exchange(job.to, Peer{});
    add_orphan(job, candidate_peer, job.to_epoch);
    job.step = MoveStep::none;
    ++job.stats.failed_moves;
    fail_order(job, candidate_peer.node, why, out);
    job.phase = source_dead ? JobPhase::frozen : JobPhase::running;
    persist(job, out);
    send(candidate_peer, job.id, job.to_epoch, GuestVerb::kill, out);
    // an image takes no notice; what is retained runs again
    send(job.at, job.id, job.epoch, GuestVerb::resume, out);
    steady(job, now, out);
}

}  // namespace souk
