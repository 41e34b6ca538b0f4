// SPDX-License-Identifier: GPL-2.0-or-later
// HomeRuns: what is done with a job at its owner. What its node says: home_run_events.cpp.
#include "agentd/core/home_runs.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "agentd/core/home_clock.hpp"
#include "agentd/core/home_records.hpp"

namespace souk {

using namespace home;

const HomeRuns::State& HomeRuns::seen(const HomeJob& job) const {
    static const State nothing;
    const auto it = jobs_.find(job.id.seq);
    return it == jobs_.end() ? nothing : it->second;
}

void HomeRuns::start(HomeJob& job, const Order& order, const HomeTurn& turn) {
    job.at = {order.node, order.address};
    job.ticket = order.ticket;
    job.spec.as = {};  // it begins, as whoever its user is there
    job.epoch = job.last_epoch = job.last_epoch.next();
    job.cpu_here = {};
    job.leased = false;
    job.phase = JobPhase::starting;
    job.stay_run = job.stats.run_time;
    job.boot = turn.boot;
    state(job).deadline = turn.now + limits_.step_patience;
    HomeJob record = job;
    // for a daemon that comes back and finds it running
    if (!job.spec.hold) record.running_since = turn.now;
    turn.persist(record);
    turn.send_with_spec(job, job.at, job.epoch, GuestVerb::start);
}

void HomeRuns::freeze(HomeJob& job, bool stands, const HomeTurn& turn) {
    HomeClock::fold(job, turn.now);
    job.phase = JobPhase::freezing;
    State& s = state(job);
    s.deadline = turn.now + limits_.transfer_patience;
    s.stands = stands;
    s.goes_on = Nanos::never();
    turn.persist(job);
    turn.send_freeze(job, stands);
}

void HomeRuns::send_freeze(const HomeJob& job, const HomeTurn& turn) const {
    turn.send_freeze(job, seen(job).stands);
}

void HomeRuns::go_on_in_place(HomeJob& job, const HomeTurn& turn) {
    job.in_place = false;
    job.phase = JobPhase::running;
    job.comment.clear();
    job.story.add(turn.step(StoryStep::What::resumed, job.at.node));
    state(job).goes_on = turn.now;
    turn.persist(job);
    turn.send(job.at, job.id, job.epoch, GuestVerb::resume);
}

HomeNext HomeRuns::start_undelivered(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    const Peer at = std::exchange(job.at, Peer{});
    job.phase = JobPhase::waiting;
    turn.fail_order(job, at.node, why);
    HomeRecords::add_orphan(job, at, job.epoch);
    turn.persist(job);
    turn.send(at, job.id, job.epoch, GuestVerb::drop);
    return Steady{};
}

void HomeRuns::take_back(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    const Peer at = std::exchange(job.at, Peer{});
    job.phase = JobPhase::waiting;
    turn.fail_order(job, at.node, why);
    HomeRecords::add_orphan(job, at, job.epoch);
    turn.persist(job);
    turn.send(at, job.id, job.epoch, GuestVerb::kill);
}

void HomeRuns::release(HomeJob& job, const HomeTurn& turn) {
    job.spec.hold = false;
    HomeJob record = job;
    record.running_since = turn.now;  // as of a start
    turn.persist(record);
    turn.send(job.at, job.id, job.epoch, GuestVerb::release);
}

HomeNext HomeRuns::freeze_undelivered(HomeJob& job, const Trouble& why, const HomeTurn& turn) {
    job.phase = job.in_place ? JobPhase::frozen : JobPhase::running;
    turn.persist(job);
    turn.fail_order(job, job.at.node, why);
    return Steady{};
}

// Another node may have its program; this one is not tried again. The market knows when none is
// left, and says so (give_up).
HomeNext HomeRuns::program_lacks(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    constexpr size_t lacking_max = 256;
    // As a shell has it: 127 is not found, 126 not executable. Found anywhere is found.
    const int32_t status = (e.error == EACCES || e.error == ENOEXEC ? 126 : 127) << 8;
    job.lacking_status = job.lacking.empty() ? status : std::min(job.lacking_status, status);
    job.lacking_why = e.why;
    if (std::find(job.lacking.begin(), job.lacking.end(), job.at.node) == job.lacking.end())
        job.lacking.push_back(job.at.node);
    if (job.lacking.size() >= lacking_max) return Finished{job.lacking_status, job.lacking_why};
    return start_undelivered(
        job, because(CauseCode::program_lacks, {{"node", job.at.node}, {"text", e.why}}), turn);
}

HomeNext HomeRuns::give_up(HomeJob& job, const HomeTurn& turn) {
    if (job.phase == JobPhase::waiting && !job.lacking.empty())
        return Finished{job.lacking_status, job.lacking_why};
    turn.fail_order(job, job.at.node,
                    Cause(CauseCode::not_carried_out, "no node has refused its program"));
    turn.report(job);
    return Nothing{};
}

void HomeRuns::restarted(const HomeJob& job, Nanos now) {
    if (job.phase == JobPhase::starting || job.phase == JobPhase::freezing)
        state(job).deadline = now + limits_.step_patience;
    // Why it stands, until its node says that again. Its comment may be of the market by now.
    if (job.phase != JobPhase::frozen || !job.in_place || job.by_order) return;
    state(job).cannot_move = job.comment;
    if (job.comment.empty())
        state(job).cannot_move = {CauseCode::dump_failed, "it could not be dumped"};
}

void HomeRuns::refuses_user(const HomeJob& job, const NodeName& node, const std::string& why,
                            Nanos now) {
    constexpr Nanos lasts = Nanos::from_s(600);
    constexpr size_t most = 256;
    State& s = state(job);
    if (s.no_user.size() >= most && !s.no_user.contains(node)) s.no_user.clear();
    s.no_user[node] = now + lasts;
    s.why_no_user = why;
}

std::vector<NodeName> HomeRuns::no_user(const HomeJob& job, Nanos now) const {
    std::vector<NodeName> nodes;
    for (const auto& [node, until] : seen(job).no_user)
        if (now < until) nodes.push_back(node);
    return nodes;
}

void HomeRuns::note(HomeJob& job, const GuestEvent& e) {
    // What its first node says of that holds: an image cannot be another user's.
    if (e.as.known && !job.spec.as.known && e.epoch == job.epoch) job.spec.as = e.as;
    if (e.pid <= 0) return;
    State& s = state(job);
    s.pid = e.pid;
    s.pid_epoch = e.epoch;
}

int32_t HomeRuns::pid(const HomeJob& job) const {
    const State& s = seen(job);
    return s.pid_epoch == job.epoch ? s.pid : 0;
}

void HomeRuns::finish(HomeJob& job, int32_t wait_status, const Trouble& why, const HomeTurn& turn) {
    job.phase = JobPhase::finished;
    // Never started again, and a thousand of them are kept. (`= {}` would keep the memory.)
    std::exchange(job.spec.launch.env, {});
    std::exchange(job.spec.launch.rlimits, {});
    // what is left of its output may still go into its files, with its user's rights
    if ((job.out_file + job.err_file).empty()) std::exchange(job.spec.launch.groups, {});
    job.wait_status = wait_status;
    job.why = why;
    job.story.add(turn.step(StoryStep::What::finished, job.at.node, why));
    const bool was_somewhere = !job.at.node.empty();
    if (was_somewhere) HomeRecords::add_orphan(job, job.at, job.epoch);
    turn.persist(job);
    if (was_somewhere) turn.send(job.at, job.id, job.epoch, GuestVerb::drop);
    turn.tell(job, Tell::What::finished, why);
}

void HomeRuns::froze(HomeJob& job, int64_t image_bytes, const HomeCuts::Made& with,
                     const HomeTurn& turn) {
    HomeClock::stop(job, turn.now);
    job.phase = JobPhase::frozen;
    job.cut = CutStep::none;
    job.in_place = false;
    job.stats.image_bytes = image_bytes;
    ++job.stats.freezes;
    StoryStep frozen_step = turn.step(StoryStep::What::frozen, job.at.node);
    frozen_step.bytes = static_cast<uint64_t>(std::max<int64_t>(0, image_bytes));
    frozen_step.components = with.components;
    frozen_step.skew = with.skew;
    job.story.add(std::move(frozen_step));
    turn.persist(job);
    turn.tell(job, Tell::What::frozen, "frozen on " + job.at.node);
}

// Stopped where it is, as it cannot be dumped or an order said so: frozen for everybody, but it is
// its capsule that is the job.
void HomeRuns::stands(HomeJob& job, const Trouble& cannot_move, const HomeTurn& turn) {
    HomeClock::stop(job, turn.now);
    const bool is_new = !std::exchange(job.in_place, true);
    job.phase = JobPhase::frozen;
    job.cut = CutStep::none;
    state(job).cannot_move = cannot_move;
    job.by_order = cannot_move.empty();
    job.comment = cannot_move;
    if (is_new) job.story.add(turn.step(StoryStep::What::stopped, job.at.node, cannot_move));
    turn.persist(job);
    if (is_new)
        turn.tell(job, Tell::What::frozen,
                  "stopped on " + job.at.node +
                      (cannot_move.empty() ? ", in memory" : ", where it stays: " + cannot_move));
}

void HomeRuns::went_back(const HomeJob& job) {
    State& s = state(job);
    s.stopped = false;
    s.cannot_move.clear();
    s.paused.clear();
    s.goes_on = Nanos::never();
}

Nanos HomeRuns::due(const HomeJob& job) const { return seen(job).deadline; }

void HomeRuns::overdue(const HomeJob& job, const HomeTurn& turn) {
    Nanos& deadline = state(job).deadline;
    deadline = turn.now + limits_.step_patience;
    if (job.phase == JobPhase::starting)
        turn.send(job.at, job.id, job.epoch, GuestVerb::query);
    else if (job.phase == JobPhase::freezing && job.cut == CutStep::decided)
        turn.send(job.at, job.id, job.epoch, GuestVerb::commit);
    else if (job.phase == JobPhase::freezing)
        send_freeze(job, turn);
    else
        deadline = Nanos::never();
}

}  // namespace souk
