// SPDX-License-Identifier: GPL-2.0-or-later
// Home, fourth part: checkpoints, and what becomes of a job whose node is lost. See home.hpp.
//
// A checkpoint is a copy under an epoch of its own that this node keeps, frozen, beside the job
// that runs elsewhere or here: `keep` makes a place for it, `checkpoint` has the job's node dump
// it, let it go on and send the image. The one before is dropped when the new one is whole. A job
// that goes back is that copy from then on, a frozen job as any other, which the market thaws; the
// copy stays until the next one is whole, so that it can be gone back to again.
#include <algorithm>
#include <utility>

#include "agentd/core/home.hpp"
#include "kernel/base/check.hpp"

namespace souk {

using namespace home;

Nanos Home::checkpoint_every(const HomeJob& job) const {
    return job.spec.checkpoint_every.ns > 0 ? job.spec.checkpoint_every : limits_.checkpoint_every;
}

void Home::arm_checkpoint(const HomeJob& job, Nanos now) {
    const Nanos every = checkpoint_every(job);
    Volatile& v = vol(job);
    if (every.ns <= 0 || job.phase != JobPhase::running || job.saving.epoch.n > 0) return;
    if (v.save_at == Nanos::never()) v.save_at = now + every;
}

// Of what runs and stands still for nothing else; else when that has ended (steady).
void Home::begin_checkpoint(HomeJob& job, Nanos now, Outputs& out) {
    Volatile& v = vol(job);
    v.save_at = Nanos::never();
    if (job.phase != JobPhase::running || job.cancelled || job.saving.epoch.n > 0) return;
    if (job.running_since == Nanos::never()) return arm_checkpoint(job, now);
    if (!limits_.address_known && job.at.node != node_)
        return saving_failed(job,
                             "its home does not know at which address " + job.at.node +
                                 " reaches it: the market has not told it yet; "
                                 "`address` in agentd's configuration says it",
                             now, out);
    job.last_epoch = job.last_epoch.next();
    job.saving = {{node_, limits_.address}, job.last_epoch};
    v.save_limit = now + limits_.transfer_patience;
    fold_clock(job, now);
    persist(job, out);
    send_with_spec(job, job.saving.peer, job.saving.epoch, GuestVerb::keep, out);
}

// Something else is made of the job now, or it failed: what there is of it goes.
void Home::end_saving(HomeJob& job, Outputs& out) {
    if (job.saving.epoch.n == 0) return;
    const Orphan was = std::exchange(job.saving, {});
    vol(job).save_limit = Nanos::never();
    add_orphan(job, was.peer, was.epoch);
    send(was.peer, job.id, was.epoch, GuestVerb::kill, out);
}

void Home::saving_failed(HomeJob& job, const std::string& why, Nanos now, Outputs& out) {
    Volatile& v = vol(job);
    v.save_limit = Nanos::never();
    end_saving(job, out);
    if (v.save_trouble != why)
        out.push_back(Tell{job.id, Tell::What::warning, "no checkpoint: " + why});
    v.save_trouble = why;
    job.comment = "no checkpoint: " + why;
    persist(job, out);
    report(job, now, out);
    arm_checkpoint(job, now);
}

void Home::drop_checkpoint(HomeJob& job, Outputs& out) {
    const Checkpoint old = std::exchange(job.checkpoint, {});
    if (old.epoch.n == 0) return;
    add_orphan(job, old.at, old.epoch);
    send(old.at, job.id, old.epoch, GuestVerb::drop, out);
}

void Home::from_keeper(HomeJob& job, const GuestEvent& e, Nanos now, Outputs& out) {
    const bool gone = e.state == GuestState::unknown || e.state == GuestState::failed ||
                      e.state == GuestState::killed;
    if (same(job.saving.peer, e.epoch, job.checkpoint) || e.epoch != job.saving.epoch) {
        if (!gone) return;
        drop_checkpoint(job, out);  // its image is damaged
        persist(job, out);
        return report(job, now, out);
    }
    if (gone) return saving_failed(job, e.why.empty() ? "its place is lost" : e.why, now, out);
    if (e.state == GuestState::prepared) {
        GuestCommand c;
        c.id = job.id;
        c.epoch = job.epoch;
        c.verb = GuestVerb::checkpoint;
        c.new_epoch = job.saving.epoch;
        c.dest = job.saving.peer.node;
        c.dest_address = job.saving.peer.address;
        out.push_back(ToGuest{job.at, std::move(c)});
        return;
    }
    if (e.state != GuestState::frozen) return;
    drop_checkpoint(job, out);
    job.checkpoint = {job.saving.peer,
                      job.saving.epoch,
                      e.heard,
                      e.image_bytes,
                      {e.output_end[0], e.output_end[1]},
                      e.input_end};
    job.saving = {};
    StoryStep saved = step_of(StoryStep::What::checkpoint, job.checkpoint.at.node);
    saved.bytes = static_cast<uint64_t>(std::max<int64_t>(0, e.image_bytes));
    job.story.add(std::move(saved));
    vol(job).save_limit = Nanos::never();
    vol(job).save_trouble.clear();
    if (job.comment.starts_with("no checkpoint: ")) job.comment.clear();
    persist(job, out);
    report(job, now, out);
    arm_checkpoint(job, now);
}

// What ran is gone, for certain. Its last checkpoint is the job; or it begins anew, if its user has
// said so.
void Home::go_back(HomeJob& job, const std::string& why, Nanos now, Outputs& out) {
    if (same(job.at, job.epoch, job.checkpoint)) job.checkpoint = {};  // it is that which is lost
    const bool from_checkpoint = job.checkpoint.epoch.n > 0;
    if (job.cancelled) return finish(job, 9, "cancelled", now, out);
    if (!from_checkpoint && !job.spec.restart)
        return finish(job, 9,
                      why + (checkpoint_every(job).ns > 0 ? ", and it had no checkpoint" : ""), now,
                      out);
    stop_clock(job, now);
    end_saving(job, out);
    if (job.step != MoveStep::none) {
        const Peer candidate_peer = std::exchange(job.to, Peer{});
        add_orphan(job, candidate_peer, job.to_epoch);
        send(candidate_peer, job.id, job.to_epoch, GuestVerb::kill, out);
        job.step = MoveStep::none;
    }
    const Peer old = std::exchange(job.at, job.checkpoint.at);
    job.stay_run = job.stats.run_time;
    add_orphan(job, old, job.epoch);
    send(old, job.id, job.epoch, GuestVerb::kill, out);
    if (from_checkpoint) job.epoch = job.checkpoint.epoch;
    job.leased = job.in_place = false;
    job.phase = from_checkpoint ? JobPhase::frozen : JobPhase::waiting;
    job.cpu_here = {};
    job.splice.due = true;
    ++job.stats.resumes;
    job.story.add(step_of(StoryStep::What::went_back, job.at.node, why));
    job.comment = why + (from_checkpoint ? ": it goes on from its checkpoint" : ": it begins anew");
    Volatile& v = vol(job);
    v.stopped = false;
    v.cannot_move.clear();
    v.expel_at = v.save_at = Nanos::never();
    persist(job, out);
    out.push_back(Tell{job.id, Tell::What::comment, job.comment});
    out.push_back(GoneBack{job.id});
    steady(job, now, out);
}

void Home::spliced(const JobId& id, const uint64_t output_end[2], uint64_t input_end,
                   Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::spliced, id); });
    HomeJob* job = mutable_job(id);
    if (!job || !job->splice.due) return;
    Splice& s = job->splice;
    const Checkpoint& c = job->checkpoint;
    // What its capsule will write first: no later than what has come here, as that is all that it
    // keeps.
    uint64_t from[2], after[2];
    for (int i = 0; i < 2; ++i) {
        const uint64_t have = output_end[i] - std::min(output_end[i], s.shift[i]);
        from[i] = std::min(c.output_end[i], have);
        after[i] = have - from[i];
    }
    const bool tty = job->spec.tty;
    const int stream = tty ? 0 : 1;
    s.text = "souk: job " + id.text() +
             (c.epoch.n > 0 ? " goes on from its checkpoint" : " begins anew") +
             " (its node was lost); of what stands above, " + std::to_string(after[0]) + " bytes" +
             (tty ? "" : " of stdout") +
             (tty ? "" : " and " + std::to_string(after[1]) + " of stderr") +
             " were written after that and may come again";
    s.text = (tty ? "\r\n" : "\n") + s.text + (tty ? "\r\n" : "\n");
    s.at = output_end[stream];
    for (int i = 0; i < 2; ++i)
        s.shift[i] = output_end[i] + (i == stream ? s.text.size() : 0) - from[i];
    s.input_shift = std::max(input_end, c.input_end + s.input_shift) - c.input_end;
    s.due = false;
    persist(*job, out);
}

// Jobs that were there are gone; a move to it is given up, one from it that is decided is finished.
void Home::node_lost(const NodeName& node, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::node_lost, {}, {}, node); });
    const std::string why = "node " + node + " is lost";
    const HomeIndex::Jobs jobs = index_.of_guest(node);
    for (const uint64_t seq : jobs) {
        const Reindex indexed(*this, seq);
        HomeJob& job = jobs_.at(seq);
        if (job.phase == JobPhase::finished) continue;
        if (job.step != MoveStep::none && job.to.node == node) {
            if (job.step == MoveStep::prepare || job.step == MoveStep::transfer)
                abort_move(job, node, why, now, out);
            else
                roll_back(job, why, source_died(job), now, out);
        }
        if (job.at.node == node) node_gone(job, why, now, out);
    }
}

// Its owner's node, for certain.
void Home::node_gone(HomeJob& job, const std::string& why, Nanos now, Outputs& out) {
    if (job.step == MoveStep::kill_old)
        source_is_off(job, now, out);
    else if (job.step != MoveStep::release && job.phase != JobPhase::waiting)
        go_back(job, why, now, out);
}

}  // namespace souk
