// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_checkpoints.hpp"

#include <algorithm>
#include <utility>

#include "agentd/core/home_clock.hpp"
#include "agentd/core/home_records.hpp"

namespace souk {

using namespace home;

Nanos HomeCheckpoints::every(const HomeJob& job) const {
    if (job.group.role == ComponentClass::optional) return {};  // nobody goes back for it
    return job.spec.checkpoint_every.ns > 0 ? job.spec.checkpoint_every : limits_.every;
}

void HomeCheckpoints::arm(const HomeJob& job, Nanos now) {
    const Nanos span = every(job);
    if (span.ns <= 0 || job.phase != JobPhase::running || job.saving.epoch.n > 0) return;
    Nanos& save_at = jobs_[job.id.seq].save_at;
    if (save_at == Nanos::never()) save_at = now + span;
}

void HomeCheckpoints::restarted(const HomeJob& job, Nanos now) {
    if (job.saving.epoch.n > 0) jobs_[job.id.seq].save_limit = now + limits_.transfer_patience;
    arm(job, now);
}

Nanos HomeCheckpoints::due(const HomeJob& job) const {
    const auto it = jobs_.find(job.id.seq);
    return it == jobs_.end() ? Nanos::never() : std::min(it->second.save_at, it->second.save_limit);
}

Nanos HomeCheckpoints::save_at(const HomeJob& job) const {
    const auto it = jobs_.find(job.id.seq);
    return it == jobs_.end() ? Nanos::never() : it->second.save_at;
}

const Cause& HomeCheckpoints::trouble(const HomeJob& job) const {
    static const Cause none;
    const auto it = jobs_.find(job.id.seq);
    return it == jobs_.end() ? none : it->second.trouble;
}

void HomeCheckpoints::tick(HomeJob& job, const HomeTurn& turn) {
    const State& s = jobs_[job.id.seq];
    if (s.save_limit <= turn.now) failed(job, "it took too long", turn);
    if (s.save_at <= turn.now) begin(job, turn);
}

// Starts a checkpoint of a job that runs. If another operation has stopped it, arm() comes later.
void HomeCheckpoints::begin(HomeJob& job, const HomeTurn& turn) {
    State& s = jobs_[job.id.seq];
    s.save_at = Nanos::never();
    if (!may_begin(job)) return arm(job, turn.now);
    if (const Trouble why = why_not(job, turn); !why.empty()) return failed(job, why, turn);
    s.save_limit = turn.now + limits_.transfer_patience;
    keep(job, turn);
}

bool HomeCheckpoints::may_begin(const HomeJob& job) {
    return job.phase == JobPhase::running && !job.cancelled && job.saving.epoch.n == 0 &&
           HomeClock::runs(job);
}

Trouble HomeCheckpoints::why_not(const HomeJob& job, const HomeTurn& turn) const {
    if (limits_.address_known || job.at.node == turn.node) return {};
    return "its home does not know at which address " + job.at.node +
           " reaches it: the market has not told it yet; "
           "`address` in agentd's configuration says it";
}

void HomeCheckpoints::keep(HomeJob& job, const HomeTurn& turn) {
    job.last_epoch = job.last_epoch.next();
    job.saving = {{turn.node, limits_.address}, job.last_epoch};
    jobs_[job.id.seq].began = {};
    HomeClock::fold(job, turn.now);
    turn.persist(job);
    turn.send_with_spec(job, job.saving.peer, job.saving.epoch, GuestVerb::keep);
}

void HomeCheckpoints::end_saving(HomeJob& job, const HomeTurn& turn) {
    if (job.saving.epoch.n == 0) return;
    const Orphan was = std::exchange(job.saving, {});
    jobs_[job.id.seq].save_limit = Nanos::never();
    HomeRecords::add_orphan(job, was.peer, was.epoch);
    turn.send(was.peer, job.id, was.epoch, GuestVerb::kill);
}

void HomeCheckpoints::failed(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    State& s = jobs_[job.id.seq];
    s.save_limit = Nanos::never();
    end_saving(job, turn);
    const Cause told = because(CauseCode::no_checkpoint, {{"text", why}});
    const bool is_news = !(s.trouble == static_cast<const Cause&>(why));
    if (is_news) turn.tell(job, Tell::What::warning, told);
    s.trouble = why;
    job.comment = told;
    turn.persist(job);
    turn.report(job);
    arm(job, turn.now);
}

void HomeCheckpoints::drop(HomeJob& job, const HomeTurn& turn) {
    const Checkpoint old = std::exchange(job.checkpoint, {});
    if (old.epoch.n == 0) return;
    HomeRecords::add_orphan(job, old.at, old.epoch);
    turn.send(old.at, job.id, old.epoch, GuestVerb::drop);
}

bool HomeCheckpoints::is_whole(const HomeJob& job, const NodeName& node, Epoch epoch) {
    return job.checkpoint.epoch.n > 0 && node == job.checkpoint.at.node &&
           epoch == job.checkpoint.epoch;
}

bool HomeCheckpoints::is_kept(const HomeJob& job, const NodeName& node, Epoch epoch) {
    return (node == job.saving.peer.node && epoch == job.saving.epoch) ||
           is_whole(job, node, epoch);
}

void HomeCheckpoints::from_keeper(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    const bool gone = e.state == GuestState::unknown || e.state == GuestState::failed ||
                      e.state == GuestState::killed;
    if (is_whole(job, job.saving.peer.node, e.epoch) || e.epoch != job.saving.epoch) {
        if (!gone) return;
        drop(job, turn);  // its image is damaged
        turn.persist(job);
        return turn.report(job);
    }
    if (gone) return failed(job, e.why.empty() ? "its place is lost" : e.why, turn);
    if (e.state == GuestState::prepared) {
        jobs_[job.id.seq].began = e.heard;
        return turn.send_checkpoint(job, job.saving);
    }
    if (e.state == GuestState::frozen) whole(job, e, {}, turn);
}

void HomeCheckpoints::whole(HomeJob& job, const GuestEvent& e, const CutTiming& with,
                            const HomeTurn& turn) {
    drop(job, turn);
    job.checkpoint = {job.saving.peer,
                      job.saving.epoch,
                      e.heard,
                      e.image_bytes,
                      {e.output_end[0], e.output_end[1]},
                      e.input_end,
                      jobs_[job.id.seq].began};
    job.saving = {};
    StoryStep saved = turn.step(StoryStep::What::checkpoint, job.checkpoint.at.node);
    saved.bytes = static_cast<uint64_t>(std::max<int64_t>(0, e.image_bytes));
    saved.components = with.components;
    saved.skew = with.skew;
    job.story.add(std::move(saved));
    State& s = jobs_[job.id.seq];
    s.save_limit = Nanos::never();
    s.trouble.clear();
    if (job.comment.code == CauseCode::no_checkpoint) job.comment.clear();
    turn.persist(job);
    turn.report(job);
    arm(job, turn.now);
}

void HomeCheckpoints::go_back(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    const bool from_checkpoint = job.checkpoint.epoch.n > 0;
    const Peer old = std::exchange(job.at, job.checkpoint.at);
    job.stay_run = job.stats.run_time;
    const Epoch was = job.epoch;
    HomeRecords::add_orphan(job, old, was);
    if (from_checkpoint) job.epoch = job.checkpoint.epoch;
    job.leased = job.in_place = false;
    job.cut = CutStep::none;
    job.phase = from_checkpoint ? JobPhase::frozen : JobPhase::waiting;
    job.cpu_here = {};
    job.splice.due = true;
    ++job.stats.resumes;
    job.story.add(turn.step(StoryStep::What::went_back, job.at.node, why));
    job.comment = {CauseCode::goes_back, why + (from_checkpoint ? ": it goes on from its checkpoint"
                                                                : ": it begins anew")};
    turn.persist(job);
    turn.send(old, job.id, was, GuestVerb::kill);  // it may run still, and is not lost before that
    turn.tell(job, Tell::What::comment, job.comment);
    turn.out.push_back(GoneBack{job.id});
}

}  // namespace souk
