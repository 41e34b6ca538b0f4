// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "agentd/core/lease.hpp"
#include "kernel/base/check.hpp"
#include "kernel/base/wait_status.hpp"

namespace souk {

using namespace home;

Home::Home(NodeName node, Limits limits) : node_(std::move(node)), limits_(std::move(limits)) {
    MUST(valid_node_name(node_));
}

void Home::load(HomeJob job) {
    MUST(job.id.home == node_);
    next_seq_ = std::max(next_seq_, job.id.seq + 1);
    if (job.phase == JobPhase::finished && job.settled) finished_.push_back(job.id.seq);
    const uint64_t seq = job.id.seq;
    const Nanos ran_on = std::exchange(job.running_since, Nanos::never());
    const bool may_run = job.phase == JobPhase::running || job.phase == JobPhase::starting;
    if (may_run && job.boot == limits_.boot && limits_.boot != 0)
        volatile_[seq].unproven_since = ran_on;
    else
        forget_stretch(job);
    if (job.cost_run.ns < 0) job.cost_run = job.stats.run_time;
    jobs_.insert_or_assign(seq, std::move(job));
    reindex(seq);
}

void Home::restarted(Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::restarted); });
    began_ = now;
    for (auto& [seq, job] : jobs_) {
        const Reindex indexed(*this, seq);
        if (job.step == MoveStep::prepare || job.step == MoveStep::transfer)
            abort_move(job, {}, "the home node restarted during the move", now, out);
        else if (job.cancelled && job.phase == JobPhase::waiting)
            end_by_cancel(job, now, out);
        else if (job.step != MoveStep::none || job.phase == JobPhase::starting ||
                 job.phase == JobPhase::freezing)
            vol(job).deadline = now + limits_.step_patience;
        if (job.phase == JobPhase::finished) continue;
        if (job.saving.epoch.n > 0) vol(job).save_limit = now + limits_.transfer_patience;
        arm_checkpoint(job, now);
        if (job.splice.due) out.push_back(GoneBack{job.id});
    }
    trim_finished(out);
}

HomeJob* Home::mutable_job(const JobId& id) {
    if (id.home != node_) return nullptr;
    const auto it = jobs_.find(id.seq);
    return it == jobs_.end() ? nullptr : &it->second;
}

const HomeJob* Home::find(const JobId& id) const {
    return const_cast<Home*>(this)->mutable_job(id);
}

// -------------------------------------------------------------------------------------------------
// tools

Result<JobId> Home::submit(Submission s, Nanos now_unix, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::submit, next_id()); });
    if (jobs_.size() >= limits_.jobs_max)
        return fail("this node keeps " + std::to_string(limits_.jobs_max) +
                    " jobs already; wait until some are done");
    s.spec.address = {};
    if (s.spec.net == NetMode::own) {
        TRY_ASSIGN(s.spec.address, free_address());
    }
    HomeJob job;
    job.id = {node_, next_seq_++};
    job.spec = std::move(s.spec);
    job.spec.lease = limits_.lease;
    job.terms = std::move(s.terms);
    give_default_memory(job.terms);
    job.name = std::move(s.name);
    job.user = std::move(s.user);
    job.token = s.token;
    job.submitted = now_unix;
    StoryStep submitted = step_of(StoryStep::What::submitted, {}, {}, job.terms.max_price);
    submitted.at = now_unix;
    job.story.add(std::move(submitted));
    const auto it = jobs_.emplace(job.id.seq, std::move(job)).first;
    persist(it->second, out);
    report(it->second, Nanos{}, out);  // it has not run
    return it->second.id;
}

// One that no job here has, beginning where the job's number says, so that one that has just been
// given back rests.
Result<Ipv4> Home::free_address() const {
    if (!limits_.addresses)
        return fail(
            "this node has no addresses for jobs with a network of their own (job_addresses in "
            "agentd's configuration)");
    std::set<Ipv4> used;
    for (const auto& [seq, job] : jobs_)
        if (job.spec.address && job.phase != JobPhase::finished) used.insert(job.spec.address);
    const uint64_t given = limits_.addresses->size() - 2;
    for (uint64_t i = 0; i < std::min(given, used.size() + 1); ++i)
        if (const Ipv4 a{
                static_cast<uint32_t>(limits_.addresses->first.n + 1 + (next_seq_ + i) % given)};
            !used.contains(a))
            return a;
    return fail("all " + std::to_string(given) +
                " addresses of this node are in use by jobs; wait until one is done");
}

const HomeJob* Home::find_token(uint32_t uid, uint64_t token) const {
    if (token == 0) return nullptr;
    for (auto it = jobs_.rbegin(); it != jobs_.rend(); ++it)
        if (it->second.token == token && it->second.spec.uid == uid) return &it->second;
    return nullptr;
}

Status Home::change(const JobId& id, const JobTerms& terms, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::change, id); });
    HomeJob* job = mutable_job(id);
    if (!job) return fail("no job " + id.text() + " on this node");
    if (job->phase == JobPhase::finished) return fail("job " + id.text() + " is finished");
    if (terms.cpus != job->terms.cpus && job->phase != JobPhase::waiting)
        return fail("job " + id.text() + " has started: its CPUs cannot change");
    const Reindex indexed(*this, id.seq);
    job->terms = terms;
    give_default_memory(job->terms);
    job->story.add(step_of(StoryStep::What::changed, {}, {}, terms.max_price));
    persist(*job, out);
    report(*job, now, out);
    return {};
}

Status Home::cancel(const JobId& id, Nanos now, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::cancel, id); });
    HomeJob* job = mutable_job(id);
    if (!job) return fail("no job " + id.text() + " on this node");
    if (job->phase == JobPhase::finished) return fail("job " + id.text() + " is finished");
    const Reindex indexed(*this, id.seq);
    job->cancelled = true;
    persist(*job, out);
    if (job->step == MoveStep::prepare || job->step == MoveStep::transfer)
        abort_move(*job, {}, "cancelled", now, out);
    else
        end_by_cancel(*job, now, out);
    return {};
}

// In a steady phase: ends the job. In a step: that step's end comes back here through steady().
void Home::end_by_cancel(HomeJob& job, Nanos now, Outputs& out) {
    if (job.phase == JobPhase::waiting) return finish(job, 9, "cancelled", now, out);
    if (job.step != MoveStep::none) return;
    send(job.at, job.id, job.epoch, GuestVerb::kill, out);
}

Status Home::signal(const JobId& id, int32_t signal, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::signal, id); });
    const HomeJob* job = find(id);
    if (!job) return fail("no job " + id.text() + " on this node");
    if (job->phase == JobPhase::finished) return fail("job " + id.text() + " is finished");
    if (job->phase != JobPhase::running && job->phase != JobPhase::moving &&
        job->phase != JobPhase::thawing)
        return fail("job " + id.text() + " is " + to_string(job->phase) +
                    ": it cannot take a signal now");
    // While it moves, its source may be dumped already: it gets the signal where it goes on.
    constexpr size_t signals_max = 64;
    std::vector<int32_t>& waiting = vol(*job).signals;
    if (waiting.size() >= signals_max)
        return fail("job " + id.text() + " moves; too many signals wait for it");
    waiting.push_back(signal);
    if (job->phase == JobPhase::running || job->step == MoveStep::prepare) send_signals(*job, out);
    return {};
}

void Home::send_signals(const HomeJob& job, Outputs& out) {
    if (job.phase == JobPhase::thawing) return;
    for (const int32_t signal : std::exchange(vol(job).signals, {})) {
        GuestCommand c;
        c.id = job.id;
        c.epoch = job.epoch;
        c.verb = GuestVerb::signal;
        c.signal = signal;
        out.push_back(ToGuest{job.at, std::move(c)});
    }
}

// -------------------------------------------------------------------------------------------------
// ends

void Home::became_frozen(HomeJob& job, int64_t image_bytes, Nanos now, Outputs& out) {
    stop_clock(job, now);
    job.phase = JobPhase::frozen;
    job.stats.image_bytes = image_bytes;
    ++job.stats.freezes;
    StoryStep frozen = step_of(StoryStep::What::frozen, job.at.node);
    frozen.bytes = static_cast<uint64_t>(std::max<int64_t>(0, image_bytes));
    job.story.add(std::move(frozen));
    persist(job, out);
    out.push_back(Tell{job.id, Tell::What::frozen, "frozen on " + job.at.node});
    if (vol(job).budget_again > now)
        out.push_back(Tell{job.id, Tell::What::comment, vol(job).spent});
    steady(job, now, out);
}

void Home::finish(HomeJob& job, int32_t wait_status, const std::string& why, Nanos now,
                  Outputs& out) {
    stop_clock(job, now);
    if (job.step != MoveStep::none) {
        const Peer candidate_peer = std::exchange(job.to, Peer{});
        add_orphan(job, candidate_peer, job.to_epoch);
        send(candidate_peer, job.id, job.to_epoch, GuestVerb::kill, out);
        job.step = MoveStep::none;
    }
    end_saving(job, out);
    const Peer at = job.at;
    job.phase = JobPhase::finished;
    if (!same(at, job.epoch, job.checkpoint)) drop_checkpoint(job, out);
    job.checkpoint = {};
    // Never started again, and a thousand of them are kept. (`= {}` would keep the memory.)
    std::exchange(job.spec.env, {});
    std::exchange(job.spec.rlimits, {});
    std::exchange(job.spec.groups, {});
    job.wait_status = wait_status;
    job.why = why;
    job.story.add(step_of(StoryStep::What::finished, at.node, why));
    if (!at.node.empty()) add_orphan(job, at, job.epoch);
    persist(job, out);
    if (!at.node.empty()) send(at, job.id, job.epoch, GuestVerb::drop, out);
    out.push_back(Tell{job.id, Tell::What::finished, why});
    steady(job, now, out);
}

// A job that was killed for a limit of its capsule has not run to its own end; one that lost a
// process so has.
void Home::ended(HomeJob& job, const GuestEvent& e, Nanos now, Outputs& out) {
    const bool killed = !e.why.empty() && ended_by_sigkill(e.wait_status);
    if (!e.why.empty() && !killed) out.push_back(Tell{job.id, Tell::What::comment, e.why});
    finish(job, e.wait_status, killed ? e.why : "", now, out);
}

void Home::lost(HomeJob& job, Nanos now, Outputs& out) {
    go_back(job, "node " + job.at.node + " has lost it", now, out);
}

// By its cancel, or from outside (`why`).
void Home::killed(HomeJob& job, const std::string& why, Nanos now, Outputs& out) {
    if (const std::string refused = vol(job).refused; !refused.empty())
        return finish(job, 1 << 8, refused, now, out);
    const std::string text = "killed on " + job.at.node + (why.empty() ? "" : ": " + why);
    go_back(job, text, now, out);
}

void Home::add_place(HomeJob& job) const {
    constexpr size_t places_max = 64;
    if (!job.places.empty() && job.places.back() == job.at.node) return;
    if (job.places.size() == places_max) job.places.erase(job.places.begin());
    job.places.push_back(job.at.node);
}

void Home::add_orphan(HomeJob& job, const Peer& peer, Epoch epoch) {
    constexpr size_t orphans_max = 64;
    const Orphan r{peer, epoch};
    if (std::find(job.orphans.begin(), job.orphans.end(), r) != job.orphans.end()) return;
    if (job.orphans.size() == orphans_max) job.orphans.erase(job.orphans.begin());
    job.orphans.push_back(r);
}

// -------------------------------------------------------------------------------------------------
// index

void Home::reindex(uint64_t seq) {
    Nanos due = Nanos::never();
    std::vector<NodeName> guests;
    const auto need = [&](const NodeName& node) {
        if (std::find(guests.begin(), guests.end(), node) == guests.end()) guests.push_back(node);
    };
    if (const auto it = jobs_.find(seq); it != jobs_.end()) {
        const HomeJob& job = it->second;
        const auto v = volatile_.find(seq);
        if (v != volatile_.end() && job.phase != JobPhase::finished)
            due = std::min({v->second.expel_at, v->second.deadline, v->second.save_at,
                            v->second.save_limit, money_due(job), lease_due(job)});
        if (job.phase != JobPhase::finished && !job.at.node.empty()) need(job.at.node);
        if (job.step != MoveStep::none) need(job.to.node);
        if (job.saving.epoch.n > 0) need(job.saving.peer.node);
        if (job.checkpoint.epoch.n > 0) need(job.checkpoint.at.node);
        for (const Orphan& r : job.orphans) need(r.peer.node);
    }
    index_.put(seq, due, std::move(guests));
}

std::vector<NodeName> Home::guests_needed() const {
    std::vector<NodeName> nodes;
    for (const auto& [node, jobs] : index_.guests()) nodes.push_back(node);
    return nodes;
}

std::optional<Peer> Home::peer_of(const NodeName& node) const {
    for (const uint64_t seq : index_.of_guest(node)) {
        const HomeJob& job = jobs_.at(seq);
        if (job.at.node == node) return job.at;
        if (job.to.node == node) return job.to;
        for (const Orphan& r : job.orphans)
            if (r.peer.node == node) return r.peer;
    }
    return std::nullopt;
}

}  // namespace souk
