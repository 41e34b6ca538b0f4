// SPDX-License-Identifier: GPL-2.0-or-later
// Home, third part: what guests say, and what time says. See home.hpp.
#include <algorithm>
#include <cerrno>
#include <utility>

#include "agentd/core/home.hpp"
#include "kernel/base/wait_status.hpp"

namespace souk {

using namespace home;

void Home::guest_up(const NodeName& node, Nanos, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::guest_up, {}, {}, node); });
    for (const uint64_t seq : index_.of_guest(node)) {
        const HomeJob& job = jobs_.at(seq);
        if (job.phase != JobPhase::finished && job.at.node == node) {
            GuestVerb verb = GuestVerb::query;
            if (job.phase == JobPhase::freezing) verb = GuestVerb::freeze;
            if (job.step == MoveStep::prepare && !job.from_frozen) verb = GuestVerb::prepare_dump;
            if (job.step == MoveStep::kill_old) verb = GuestVerb::commit;
            send(job.at, job.id, job.epoch, verb, out);
        }
        if (job.step != MoveStep::none && job.to.node == node)
            send(job.to, job.id, job.to_epoch, GuestVerb::query, out);
        if (job.saving.epoch.n > 0 && job.saving.peer.node == node)
            send(job.saving.peer, job.id, job.saving.epoch, GuestVerb::query, out);
        if (job.checkpoint.at.node == node)
            send(job.checkpoint.at, job.id, job.checkpoint.epoch, GuestVerb::query, out);
        for (const Orphan& r : job.orphans)
            if (r.peer.node == node) send(r.peer, job.id, r.epoch, GuestVerb::query, out);
    }
}

void Home::undelivered(const NodeName& node, const GuestCommand& command, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] {
        return trace_in(Input::undelivered, command.id, command.epoch, node,
                        to_string(command.verb));
    });
    HomeJob* job = mutable_job(command.id);
    if (!job) return;
    const Reindex indexed(*this, job->id.seq);
    const std::string why = "node " + node + " cannot be reached from its home node " + node_;
    const bool from_owner = command.epoch == job->epoch && node == job->at.node;
    if (command.verb == GuestVerb::start && from_owner && job->phase == JobPhase::starting)
        return back_to_waiting(*job, why, now, out);
    const bool of_move = command.verb == GuestVerb::prepare ||
                         command.verb == GuestVerb::prepare_dump ||
                         command.verb == GuestVerb::ship || command.verb == GuestVerb::restore_here;
    const bool current = from_owner || (command.epoch == job->to_epoch && node == job->to.node);
    if (of_move && current && (job->step == MoveStep::prepare || job->step == MoveStep::transfer))
        return abort_move(*job, node, why, now, out);
    if (command.verb == GuestVerb::freeze && from_owner && job->phase == JobPhase::freezing) {
        job->phase = JobPhase::running;
        persist(*job, out);
        fail_order(*job, node, why, out);
        steady(*job, now, out);
    }
}

void Home::expel(const NodeName& node, const Expel& expel, Nanos now, Outputs&) {
    const Scene scene(*this, nullptr,
                      [&] { return trace_in(Input::expel, expel.id, expel.epoch, node); });
    HomeJob* job = mutable_job(expel.id);
    if (!job || job->at.node != node || job->epoch != expel.epoch ||
        job->phase == JobPhase::finished)
        return;
    const Reindex indexed(*this, job->id.seq);
    Volatile& v = vol(*job);
    if (v.expelled != expel.epoch) v.expel_tries = 0;
    v.expelled = expel.epoch;
    arm_expel(*job, now);  // in the middle of a step: when that ends and the job is still there
}

void Home::guest_event(const NodeName& node, const GuestEvent& event, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_event(node, event); });
    silent_.erase(node);
    HomeJob* job = mutable_job(event.id);
    const Reindex indexed(*this, event.id.seq);
    if (!job || job->phase == JobPhase::finished) return stranger(job, node, event, out);
    const bool moves_there =
        job->step != MoveStep::none && node == job->to.node && event.epoch == job->to_epoch;
    if (!moves_there && (node != job->at.node || event.epoch != job->epoch)) {
        const bool saving = node == job->saving.peer.node && event.epoch == job->saving.epoch;
        if (saving || same({node, {}}, event.epoch, job->checkpoint))
            return from_keeper(*job, event, now, out);
        return stranger(job, node, event, out);
    }
    if (event.pid > 0) {
        Volatile& v = vol(*job);
        v.pid = event.pid;
        v.pid_epoch = event.epoch;
    }
    note_lease(*job, node, event, now, out);
    if (moves_there) return candidate(*job, event, now, out);
    end_stretch(*job, now);
    prove_clock(*job, event, now);
    tally_cpu(*job, event);
    switch (job->phase) {
        case JobPhase::starting: return owner_starting(*job, event, now, out);
        case JobPhase::running: return owner_running(*job, event, now, out);
        case JobPhase::freezing: return owner_freezing(*job, event, now, out);
        case JobPhase::frozen: return owner_frozen(*job, event, now, out);
        case JobPhase::moving:
        case JobPhase::thawing: return source_of_move(*job, event, now, out);
        case JobPhase::waiting:
        case JobPhase::finished: return;
    }
}

// A copy that is not (or no longer) the job: end it, then have it forgotten.
void Home::stranger(HomeJob* job, const NodeName& node, const GuestEvent& event, Outputs& out) {
    Peer peer = peer_of(node).value_or(Peer{node, {}});
    if (job) {
        const auto is_it = [&](const Orphan& r) {
            return r.peer.node == node && r.epoch == event.epoch;
        };
        const auto it = std::find_if(job->orphans.begin(), job->orphans.end(), is_it);
        if (it != job->orphans.end()) peer = it->peer;
        if (event.state != GuestState::unknown)
            // until it is gone, the node is asked again after every break
            add_orphan(*job, peer, event.epoch);
        else if (it != job->orphans.end())
            job->orphans.erase(it);
    }
    switch (event.state) {
        case GuestState::unknown:
            if (job && job->settled) trim_finished(out);
            return;
        case GuestState::frozen:
        case GuestState::exited:
        case GuestState::killed:
        case GuestState::failed: return send(peer, event.id, event.epoch, GuestVerb::drop, out);
        default: return send(peer, event.id, event.epoch, GuestVerb::kill, out);
    }
}

// It never ran: as if the order had not come.
void Home::back_to_waiting(HomeJob& job, const std::string& why, Nanos now, Outputs& out) {
    const Peer at = std::exchange(job.at, Peer{});
    job.phase = JobPhase::waiting;
    fail_order(job, at.node, why, out);
    add_orphan(job, at, job.epoch);
    persist(job, out);
    send(at, job.id, job.epoch, GuestVerb::drop, out);
    steady(job, now, out);
}

// Another node may have its program; this one is not tried again. The market knows when none is
// left, and says so (give_up).
void Home::program_lacks(HomeJob& job, const GuestEvent& e, Nanos now, Outputs& out) {
    constexpr size_t lacking_max = 256;
    // As a shell has it: 127 is not found, 126 not executable. Found anywhere is found.
    const int32_t status = (e.error == EACCES || e.error == ENOEXEC ? 126 : 127) << 8;
    job.lacking_status = job.lacking.empty() ? status : std::min(job.lacking_status, status);
    job.lacking_why = e.why;
    if (std::find(job.lacking.begin(), job.lacking.end(), job.at.node) == job.lacking.end())
        job.lacking.push_back(job.at.node);
    if (job.lacking.size() >= lacking_max)
        return finish(job, job.lacking_status, job.lacking_why, now, out);
    back_to_waiting(job, job.at.node + " cannot execute its program: " + e.why, now, out);
}

void Home::give_up(HomeJob& job, Nanos now, Outputs& out) {
    if (job.phase == JobPhase::waiting && !job.lacking.empty())
        return finish(job, job.lacking_status, job.lacking_why, now, out);
    fail_order(job, job.at.node, "no node has refused its program", out);
    report(job, now, out);
}

void Home::tell_started(const HomeJob& job, Outputs& out) {
    std::string text = "started on " + job.at.node;
    if (job.terms.memory_by_default)
        text += " (with " + std::to_string(job.terms.memory_mb) +
                " MB of memory, the default; srun -m says otherwise)";
    out.push_back(Tell{job.id, Tell::What::started, std::move(text)});
}

void Home::source_of_move(HomeJob& job, const GuestEvent& e, Nanos now, Outputs& out) {
    // it is dead, or stands; what is left of it goes on arrival
    if (job.step == MoveStep::release) {
        // said again, to a home that was started again
        if (e.held_for == job.to_epoch) vol(job).source_stands = true;
        return;
    }
    if (job.step == MoveStep::kill_old) return source_when_decided(job, e, now, out);
    Volatile& v = vol(job);
    const bool why = !e.why.empty();
    switch (e.state) {
        case GuestState::exited: return ended(job, e, now, out);
        case GuestState::killed: return killed(job, e.why, now, out);
        case GuestState::unknown:
        case GuestState::failed:
            if (job.from_frozen)
                return go_back(job, "its image on " + job.at.node + " is lost", now, out);
            return lost(job, now, out);
        case GuestState::dump_ready:
            if (job.from_frozen) return abort_move(job, job.at.node, "it runs there", now, out);
            start_clock(job, now);
            if (job.step == MoveStep::transfer) return send_ship(job, out);  // it never arrived
            v.source_ready = true;
            return ship_when_ready(job, now, out);
        case GuestState::retained:  // of the move before, which was taken back
            return abort_move(job, job.at.node, "it stands in memory there", now, out);
        case GuestState::dumping:
        case GuestState::shipped:
            if (job.from_frozen)
                return abort_move(job, job.at.node, "it stands in memory there", now, out);
            stop_clock(job, now);
            if (job.step == MoveStep::prepare)  // left over from a move given up
                return why || e.state == GuestState::shipped
                           ? send(job.at, job.id, job.epoch, GuestVerb::prepare_dump, out)
                           : void();
            if (why) return abort_move(job, job.at.node, e.why, now, out);
            if (v.frozen_since == Nanos::never()) v.frozen_since = now;
            if (e.state == GuestState::shipped) v.sent_at = std::min(v.sent_at, now);
            v.source_stands = e.held_for == job.to_epoch;
            if (e.state == GuestState::dumping)
                v.forecast = e.forecast;
            else if (v.forecast.frozen_bytes == 0)
                v.forecast.frozen_bytes =
                    static_cast<uint64_t>(std::max<int64_t>(0, e.image_bytes));
            return;
        case GuestState::frozen:
            if (!job.from_frozen) return frozen_instead(job, e.image_bytes, now, out);
            if (why) return abort_move(job, job.at.node, e.why, now, out);
            // In the transfer: did the command arrive? If the destination still expects its image,
            // it is sent again.
            if (job.step == MoveStep::transfer)
                send(job.to, job.id, job.to_epoch, GuestVerb::query, out);
            return;
        case GuestState::running:
            if (job.from_frozen) return abort_move(job, job.at.node, "it runs there", now, out);
            start_clock(job, now);
            if (why) return abort_move(job, job.at.node, e.why, now, out);
            if (job.step == MoveStep::transfer)
                return abort_move(job, job.at.node, "the dump was interrupted", now, out);
            return send(job.at, job.id, job.epoch, GuestVerb::prepare_dump, out);
        default: return;
    }
}

void Home::source_when_decided(HomeJob& job, const GuestEvent& e, Nanos now, Outputs& out) {
    switch (e.state) {
        case GuestState::frozen:
            // Not by the decision: it had gone on since, and its image is newer than what was
            // moved.
            if (e.lapsed) return roll_back(job, "the source was not held", true, now, out);
            [[fallthrough]];
        case GuestState::retained:
        case GuestState::killed:
        case GuestState::failed:
        case GuestState::unknown: return source_is_off(job, now, out);
        case GuestState::exited:  // what is held can die of nothing but a SIGKILL: else it has gone
                                  // on, and that was its end
            if (!ended_by_sigkill(e.wait_status)) return ended(job, e, now, out);
            return source_is_off(job, now, out);
        case GuestState::dumping:
            if (e.lapsed || e.in_place)
                return roll_back(job, "the source was not held", false, now, out);
            return send(job.at, job.id, job.epoch, GuestVerb::commit, out);
        case GuestState::running:
        case GuestState::dump_ready:  // it was not held any more, and has gone on since
            start_clock(job, now);
            return roll_back(job, "the source was not held", false, now, out);
        default: return send(job.at, job.id, job.epoch, GuestVerb::commit, out);
    }
}

void Home::candidate(HomeJob& job, const GuestEvent& e, Nanos now, Outputs& out) {
    const std::string why =
        e.why.empty() ? "node " + job.to.node + " lost what it had received" : e.why;
    const bool gone = e.state == GuestState::failed || e.state == GuestState::unknown ||
                      e.state == GuestState::killed || e.state == GuestState::exited;
    switch (job.step) {
        case MoveStep::none: return;
        case MoveStep::prepare:
            if (e.state == GuestState::prepared) {
                vol(job).destination_ready = true;
                return ship_when_ready(job, now, out);
            }
            if (e.state == GuestState::unknown)
                return send_with_spec(job, job.to, job.to_epoch, GuestVerb::prepare, out);
            if (gone) abort_move(job, job.to.node, why, now, out);
            return;
        case MoveStep::transfer:
            if (e.state == GuestState::held) return commit_move(job, now, out);
            if (e.state == GuestState::prepared) return send_ship(job, out);
            if (gone) abort_move(job, job.to.node, why, now, out);
            return;
        case MoveStep::kill_old:
            if (gone) roll_back(job, why, false, now, out);
            return;
        case MoveStep::release:
            switch (e.state) {
                case GuestState::held:
                    return send(job.to, job.id, job.to_epoch, GuestVerb::release, out);
                case GuestState::filling:
                    vol(job).running_at = std::min(vol(job).running_at, now);
                    vol(job).deadline = now + limits_.transfer_patience;
                    return;
                case GuestState::running: return arrived(job, now, out);
                case GuestState::exited:
                case GuestState::killed:  // it has run there, so the image of before is not the job
                                          // any more
                case GuestState::dumping:  // until its lease was over
                case GuestState::frozen:
                    arrived(job, now, out);  // and it may be under way elsewhere by now
                    return guest_event(NodeName(job.at.node), e, now, out);
                case GuestState::failed:
                case GuestState::unknown: return roll_back(job, why, source_died(job), now, out);
                default: return;
            }
    }
}

Nanos Home::tick(Nanos now, Outputs& out) {
    const Scene scene(
        *this, &out, [&] { return trace_in(Input::tick); }, true);
    for (const uint64_t seq : index_.due(now)) {
        const Reindex indexed(*this, seq);
        HomeJob& job = jobs_.at(seq);
        Volatile& v = vol(job);
        if (v.expel_at <= now) {
            v.expel_at = Nanos::never();
            if (job.phase == JobPhase::running && v.expelled == job.epoch && !job.cancelled)
                freeze(job, now, out);
        }
        if (v.deadline <= now) overdue(job, now, out);
        if (v.save_limit <= now) saving_failed(job, "it took too long", now, out);
        if (v.save_at <= now) begin_checkpoint(job, now, out);
        if (money_due(job) <= now) money_ends(job, now, out);
        if (lease_due(job) <= now) lease_over(job, now, out);
    }
    return index_.next_due();
}

// A step took too long. Before the decision it is given up; after it, or where only the guest
// knows, it is asked again.
void Home::overdue(HomeJob& job, Nanos now, Outputs& out) {
    Volatile& v = vol(job);
    v.deadline = now + limits_.step_patience;
    switch (job.step) {
        case MoveStep::prepare:
            return abort_move(job, v.destination_ready ? job.at.node : job.to.node,
                              "a node did not get ready in time", now, out);
        case MoveStep::transfer:
            return abort_move(job, job.to.node, "the transfer took too long", now, out);
        case MoveStep::kill_old: return send(job.at, job.id, job.epoch, GuestVerb::commit, out);
        case MoveStep::release: return send(job.to, job.id, job.to_epoch, GuestVerb::query, out);
        case MoveStep::none: break;
    }
    if (job.phase == JobPhase::starting)
        send(job.at, job.id, job.epoch, GuestVerb::query, out);
    else if (job.phase == JobPhase::freezing)
        send(job.at, job.id, job.epoch, GuestVerb::freeze, out);
    else
        v.deadline = Nanos::never();
}

}  // namespace souk
