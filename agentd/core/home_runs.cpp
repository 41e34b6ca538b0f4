// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_runs.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "agentd/core/home_clock.hpp"
#include "agentd/core/home_records.hpp"

namespace souk {

using namespace home;

namespace {

constexpr Nanos cpu_worth_telling = Nanos::from_s(1);
constexpr int64_t memory_worth_telling = 8 << 20;

void tell_started(const HomeJob& job, const HomeTurn& turn) {
    std::string text = "started on " + job.at.node;
    if (job.terms.memory_by_default)
        text += " (with " + std::to_string(job.terms.memory_mb) +
                " MB of memory, the default; srun -m says otherwise)";
    turn.tell(job, Tell::What::started, std::move(text));
}

HomeNext send(const HomeJob& job, GuestVerb verb, const HomeTurn& turn) {
    turn.send(job.at, job.id, job.epoch, verb);
    return Nothing{};
}

}  // namespace

// -------------------------------------------------------------------------------------------------
// steps

const HomeRuns::State& HomeRuns::seen(const HomeJob& job) const {
    static const State nothing;
    const auto it = jobs_.find(job.id.seq);
    return it == jobs_.end() ? nothing : it->second;
}

void HomeRuns::start(HomeJob& job, const Order& order, const HomeTurn& turn) {
    job.at = {order.node, order.address};
    job.speed = order.speed > 0 ? order.speed : 100;
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

// Another node may have its program, and this one is not tried again. The market knows when no node
// is left, and says so (give_up).
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
    constexpr Nanos pause_least = Nanos::from_s(30), pause_most = Nanos::from_s(600);
    constexpr size_t most = 256;
    State& s = state(job);
    if (s.no_user.size() >= most && !s.no_user.contains(node)) s.no_user.clear();
    // All jobs of the user have been refused together.
    Refusal& r = s.no_user.try_emplace(node, Refusal{{pause_least, pause_most, job.id.seq}, {}, {}})
                     .first->second;
    r.until = now + r.pause.next();
    r.why = why;
}

std::vector<NodeName> HomeRuns::no_user(const HomeJob& job, Nanos now) const {
    std::vector<NodeName> nodes;
    for (const auto& [node, refusal] : seen(job).no_user)
        if (refusal.until && now < *refusal.until) nodes.push_back(node);
    return nodes;
}

std::string HomeRuns::why_no_user(const HomeJob& job, const NodeName& node) const {
    const auto& refusals = seen(job).no_user;
    const auto it = refusals.find(node);
    return it == refusals.end() ? "" : it->second.why;
}

void HomeRuns::note(HomeJob& job, const GuestEvent& e) {
    // The first node's word on its user holds: an image cannot be another user's.
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
    job.ended = turn.unix_now;
    job.story.add(turn.step(StoryStep::What::finished, job.at.node, why));
    const bool was_somewhere = !job.at.node.empty();
    if (was_somewhere) HomeRecords::add_orphan(job, job.at, job.epoch);
    turn.persist(job);
    if (was_somewhere) turn.send(job.at, job.id, job.epoch, GuestVerb::drop);
    turn.tell(job, Tell::What::finished, why);
}

void HomeRuns::froze(HomeJob& job, int64_t image_bytes, const CutTiming& with,
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

// The job is stopped where it is, because it cannot be dumped or an order said so. It counts as
// frozen, but its capsule is the job.
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

Nanos HomeRuns::due(const HomeJob& job) const {
    const State& s = seen(job);
    Nanos due = s.deadline;
    for (const auto& [node, refusal] : s.no_user)
        due = std::min(due, refusal.until.value_or(Nanos::never()));
    return due;
}

void HomeRuns::overdue(const HomeJob& job, const HomeTurn& turn) {
    bool may_again = false;
    for (auto& [node, refusal] : state(job).no_user)
        if (refusal.until && *refusal.until <= turn.now) {
            refusal.until.reset();
            may_again = true;
        }
    // The market keeps the job from these nodes until it hears that it need not.
    if (may_again) turn.report(job);
    Nanos& deadline = state(job).deadline;
    if (deadline > turn.now) return;
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

// -------------------------------------------------------------------------------------------------
// events of the owner

HomeNext HomeRuns::hears(HomeJob& job, const GuestEvent& e, const HomeTurn& turn, Beside beside) {
    switch (job.phase) {
        case JobPhase::starting: return starting(job, e, turn, beside);
        case JobPhase::running: return running(job, e, turn, beside);
        case JobPhase::freezing: return freezing(job, e, turn, beside);
        case JobPhase::frozen: return frozen(job, e, turn);
        case JobPhase::moving:
        case JobPhase::thawing:
        case JobPhase::waiting:
        case JobPhase::finished: break;
    }
    return Nothing{};
}

HomeNext HomeRuns::starting(HomeJob& job, const GuestEvent& e, const HomeTurn& turn,
                            Beside beside) {
    const auto has_started = [&] {
        job.phase = JobPhase::running;
        job.comment.clear();
        HomeRecords::add_place(job);
        job.story.add(turn.step(StoryStep::What::started, job.at.node));
    };
    switch (e.state) {
        case GuestState::unknown:
            if (job.cancelled) return Cancelled{};
            turn.send_with_spec(job, job.at, job.epoch, GuestVerb::start);
            return Nothing{};
        case GuestState::failed:
            if (job.cancelled) return Finished{9, why_cancelled(job)};
            if (e.program_error) return program_lacks(job, e, turn);
            return start_undelivered(job, e.why, turn);
        case GuestState::held:
            if (job.spec.hold) return Held{};
            return send(job, GuestVerb::release, turn);  // it was said, and has not arrived
        case GuestState::running:
        case GuestState::exited:
        case GuestState::killed:
            if (job.spec.hold) return not_held(job, e, turn);
            has_started();
            HomeClock::start(job, turn);
            tell_started(job, turn);
            if (e.state != GuestState::running) return running(job, e, turn, beside);
            turn.persist(job, Durable::later);  // its node says it again
            return Steady{};
        case GuestState::dumping:  // it has run there, and its lease was over before this node
                                   // heard of it
        case GuestState::frozen:
            if (job.spec.hold) return not_held(job, e, turn);
            has_started();
            turn.persist(job);
            step_ended(job);
            return running(job, e, turn, beside);
        default: return Nothing{};
    }
}

// A component that was to be held has run, or was killed before it did. Neither counts.
HomeNext HomeRuns::not_held(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    const std::string at = job.at.node;
    Trouble why = e.why;
    if (why.empty() || e.state != GuestState::killed)
        why = because(CauseCode::components_not_held,
                      {{"text", "node " + at + " did not hold it until all were ready"}});
    take_back(job, why, turn);
    return Steady{};
}

HomeNext HomeRuns::running(HomeJob& job, const GuestEvent& e, const HomeTurn& turn, Beside beside) {
    switch (e.state) {
        case GuestState::running: return runs(job, e, turn, beside);
        case GuestState::exited: return own_end(job, e, turn);
        case GuestState::killed: return Killed{e.why};
        case GuestState::unknown:
        case GuestState::failed: return node_lost_it(job);
        case GuestState::frozen: return Frozen{e.image_bytes};
        case GuestState::starting: return Nothing{};
        case GuestState::dumping:
            if (e.in_place && !e.cannot_move.empty()) return Standing{e.cannot_move};
            if (!e.in_place && job.saving.epoch.n > 0 &&
                e.why.empty()) {  // for a moment; it is not paid for
                HomeClock::stop(job, turn.now);
                turn.report(job);
                return Nothing{};
            }
            [[fallthrough]];
        default:  // left over from a move given up, its lease was over, or the word to go on
                  // where it stands by an order has not arrived: it never stands so by itself
            HomeClock::stop(job, turn.now);
            turn.report(job);
            return send(job, GuestVerb::resume, turn);
    }
}

HomeNext HomeRuns::runs(HomeJob& job, const GuestEvent& e, const HomeTurn& turn, Beside beside) {
    State& s = state(job);
    note_goes_on(job, turn);
    bool news = runs_or_pauses(job, e, turn);
    if (beside.leases.runs_again(job)) job.comment.clear();
    if (job.cancelled) return Cancelled{};
    if (!s.refused.empty()) return send(job, GuestVerb::kill, turn);
    if (!e.why.empty() && job.saving.epoch.n > 0) beside.checkpoints.failed(job, e.why, turn);
    if (s.cannot_move != e.cannot_move) {
        note_movable(job, e, turn);
        news = true;
    }
    if (job.stats.cpu_time - s.cpu_told >= cpu_worth_telling ||
        job.stats.memory_peak - s.memory_told >= memory_worth_telling) {
        s.cpu_told = job.stats.cpu_time;
        s.memory_told = job.stats.memory_peak;
        news = true;
    }
    if (s.pid_epoch == job.epoch && std::exchange(s.pid_told, s.pid) != s.pid) news = true;
    if (news) turn.report(job);
    if (std::exchange(s.stopped, e.stopped) != e.stopped)
        turn.tell(job, e.stopped ? Tell::What::stopped : Tell::What::continued, "");
    return Nothing{};
}

// It is paid for while it runs, and the market is to hear when that begins or ends (true).
bool HomeRuns::runs_or_pauses(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    bool news = HomeClock::runs_on(job, e, turn);
    if (seen(job).paused != e.paused) {
        note_paused(job, e.paused, turn);
        news = true;
    }
    // The time that it ran until it was paused is in no other record.
    if (news) turn.persist(job, e.paused.empty() ? Durable::later : Durable::soon);
    return news;
}

// How long that took.
void HomeRuns::note_goes_on(HomeJob& job, const HomeTurn& turn) {
    const Nanos told = std::exchange(state(job).goes_on, Nanos::never());
    if (told == Nanos::never()) return;
    StoryStep step = turn.step(StoryStep::What::resumed, job.at.node);
    step.total = turn.now - told;
    job.story.add(std::move(step));
    turn.tell(job, Tell::What::moved, "goes on at " + job.at.node);
}

void HomeRuns::note_paused(HomeJob& job, const Cause& why, const HomeTurn& turn) {
    using What = StoryStep::What;
    const bool stood = !std::exchange(state(job).paused, why).empty();
    if (stood != why.empty()) return;  // another reason
    job.story.add(turn.step(why.empty() ? What::resumed : What::stopped, job.at.node, why));
    turn.tell(job, Tell::What::comment,
              why.empty() ? "goes on, on " + job.at.node
                          : "is stopped on " + job.at.node + " for now, and costs nothing: " + why);
}

// The market hears it at once if it matters: the job may have been submitted only to be moved.
void HomeRuns::note_movable(const HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    constexpr Nanos at_launch = Nanos::from_s(10);
    State& s = state(job);
    s.cannot_move = e.cannot_move;
    if (e.cannot_move.empty()) return turn.tell(job, Tell::What::comment, "can move again");
    if (job.spec.must_migrate && job.places.size() == 1 &&
        HomeClock::run_time(job, turn.now) < at_launch) {
        s.refused = because(CauseCode::must_migrate, {{"text", e.cannot_move}});
        return turn.send(job.at, job.id, job.epoch, GuestVerb::kill);
    }
    if (std::exchange(s.immovable_told, true))
        return turn.tell(job, Tell::What::comment, e.cannot_move);
    turn.tell(job, Tell::What::warning,
              e.cannot_move +
                  " (where its owner wants the machine back, it is stopped in memory, "
                  "and ended if he says so)");
}

HomeNext HomeRuns::freeze_again(const HomeJob& job, const HomeTurn& turn) const {
    send_freeze(job, turn);
    return Nothing{};
}

HomeNext HomeRuns::freezing(HomeJob& job, const GuestEvent& e, const HomeTurn& turn,
                            Beside beside) {
    switch (e.state) {
        case GuestState::dumping:
            // as it stood before: the word to freeze it to disk has not arrived
            if (e.in_place && e.cannot_move.empty() && job.in_place && !state(job).stands)
                return freeze_again(job, turn);
            if (e.in_place) return Standing{e.cannot_move};
            [[fallthrough]];
        case GuestState::shipped:
            HomeClock::stop(job, turn.now);
            if (job.cut == CutStep::decided && (e.state == GuestState::shipped || !e.why.empty()))
                return send(job, GuestVerb::commit, turn);
            turn.report(job);  // from here on it is not paid for, however long the dump takes
            if (e.state == GuestState::dumping && e.why.empty()) return Nothing{};
            return freeze_again(job, turn);  // left over from a move given up
        case GuestState::dump_ready: return freeze_again(job, turn);
        case GuestState::frozen: return Frozen{e.image_bytes};
        case GuestState::running:
            job.in_place = false;
            // A slow freeze runs on until its dump begins, and the owner may stop it meanwhile.
            if (const bool news = runs_or_pauses(job, e, turn); e.why.empty()) {
                if (news) turn.report(job);
                return freeze_again(job, turn);  // it never arrived
            }
            job.phase = JobPhase::running;
            job.cut = CutStep::none;
            beside.expels.freeze_failed(job);
            ++job.stats.failed_moves;
            turn.fail_order(job, job.at.node, e.why);
            turn.persist(job);
            return Steady{};
        case GuestState::exited:
        case GuestState::killed:
        case GuestState::unknown:
        case GuestState::failed: return running(job, e, turn, beside);
        default: return Nothing{};
    }
}

// Hears of a job that stands where it is. Nothing: the event means the same as for any frozen job.
std::optional<HomeNext> HomeRuns::in_place(HomeJob& job, const GuestEvent& e,
                                           const HomeTurn& turn) {
    switch (e.state) {
        case GuestState::dumping:
            if (job.cancelled) return Cancelled{};
            if (e.in_place && cannot_move(job) != e.cannot_move) return Standing{e.cannot_move};
            // Its node does not know any more why the job stands, so it is to try once more.
            if (!e.in_place && !e.why.empty()) turn.send_freeze(job, stands_by_order(job));
            return Nothing{};
        case GuestState::frozen:  // one more dump of it has succeeded
            job.in_place = false;
            job.comment.clear();
            state(job).cannot_move.clear();
            return Frozen{e.image_bytes};
        case GuestState::unknown:
        case GuestState::failed: return node_lost_it(job);
        default: return std::nullopt;
    }
}

HomeNext HomeRuns::frozen(HomeJob& job, const GuestEvent& e, const HomeTurn& turn) {
    if (job.in_place)
        if (auto next = in_place(job, e, turn)) return *std::move(next);
    switch (e.state) {
        case GuestState::frozen:
            if (job.cancelled) return Cancelled{};
            return Nothing{};
        case GuestState::retained:
        case GuestState::dumping:  // the source of a move that was rolled back: it stands there in
                                   // memory, not in an image
        case GuestState::shipped: return send(job, GuestVerb::resume, turn);
        case GuestState::running:  // the source of a move that was rolled back: it stood there in
                                   // memory, not in an image
            job.in_place = false;
            job.phase = JobPhase::running;
            HomeClock::runs_on(job, e, turn);
            job.story.add(turn.step(StoryStep::What::resumed, job.at.node));
            turn.persist(job);
            return Steady{};
        case GuestState::exited:
            return own_end(job, e, turn);  // it went on, and that was not heard
        case GuestState::killed: return Killed{e.why};
        case GuestState::unknown:
        case GuestState::failed: return image_is_lost(job);
        default: return Nothing{};
    }
}

}  // namespace souk
