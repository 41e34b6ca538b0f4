// SPDX-License-Identifier: GPL-2.0-or-later
// Market, fourth part: what the solver is told, and from its answer to orders. See market.hpp.
#include <algorithm>
#include <utility>

#include "kernel/base/check.hpp"
#include "market/core/market.hpp"

namespace souk::market {

// It may be given new jobs.
bool Market::usable(const Node& node) const {
    const ProviderReport& r = node.record.report;
    return node.connected && node.record.has_report && r.on_market && r.cannot.empty();
}

// Who runs there stays, although it takes nobody new (an owner who left the market wants them gone
// instead).
bool Market::keeps_guests(const Node& node) const {
    const ProviderReport& r = node.record.report;
    return !node.connected || !node.record.has_report || (r.on_market && !r.cannot.empty());
}

// Never below what its jobs have already: what is short of memory takes nobody new, and throws
// nobody out.
int64_t Market::memory_of(const Node& node) const {
    const int64_t offered = node.record.report.memory_mb;
    return std::max(std::min(offered, node.room_mb), std::min(offered, node.used_mb));
}

// Beside what holds places there, and `before` jobs of the same size that will.
bool Market::fits(const Job& job, const Node& node, int32_t before) const {
    const JobTerms& t = job.record.report.terms;
    const int64_t jobs = int64_t{before} + 1;
    // with its memory
    const bool stands_there = is_rooted(job) && job.record.report.where == node.id();
    return node.used_cpus + t.cpus * jobs <= node.record.report.cpus &&
           (stands_there || node.used_mb + t.memory_mb * jobs <= memory_of(node));
}

// Neither moved nor frozen nor thawed now.
bool Market::cannot_leave(const Job& job) const {
    const JobPhase phase = job.phase();
    if (phase != JobPhase::running && phase != JobPhase::frozen) return false;
    if (job.stuck.active) return true;
    const Node* node = find_node(job.record.report.where);
    return !node || (phase == JobPhase::running ? keeps_guests(*node) : !node->connected);
}

bool Market::lacks_program(const Job& job, const NodeName& name) const {
    const auto& lacking = job.record.report.lacking;
    return std::find(lacking.begin(), lacking.end(), name) != lacking.end();
}

// Every node has tried to start it, and cannot execute its program. One that is off the market or
// too small now was not asked, and may have it; so may one that is away, for some minutes: its
// daemon may just be started again.
bool Market::no_node_is_left(const Job& job, Nanos now) const {
    constexpr Nanos away_max = Nanos::from_s(300);
    if (job.phase() != JobPhase::waiting || job.record.report.lacking.empty() || settling())
        return false;
    return std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
        const auto& [name, node] = entry;
        const bool gone =
            !node.connected && (written_off_.contains(name) || now >= node.lost_at + away_max);
        return gone || lacks_program(job, name);
    });
}

bool Market::may_run_at(const Job& job, const NodeName& name) const {
    const Node* node = find_node(name);
    return node && may_run_at(job, *node);
}

bool Market::may_run_at(const Job& job, const Node& node) const {
    const auto bar = job.bars.find(node.id());
    return usable(node) && !lacks_program(job, node.id()) &&
           (bar == job.bars.end() || !bar->second.active) && machine_takes(job, node).has_value();
}

std::vector<ProviderKey> Market::barred(const Job& job) const {
    std::vector<ProviderKey> keys;
    for (const auto& [name, bar] : job.bars)
        if (bar.active && !lacks_program(job, name))
            if (const Node* node = find_node(name)) keys.push_back(node->key);
    for (const NodeName& name : job.record.report.lacking)
        if (const Node* node = find_node(name)) keys.push_back(node->key);
    const Node* at = find_node(job.record.report.where);
    if (at && is_rooted(job)) {
        for (const auto& [name, node] : nodes_)
            if (&node != at) keys.push_back(node.key);
        return keys;
    }
    if (!at || machines_.fits_all(at->machine)) return keys;
    for (const auto& [name, node] : nodes_)
        if (!machines_.fits(node.machine, at->machine)) keys.push_back(node.key);
    return keys;
}

// What ran somewhere needs what that machine has.
Status Market::machine_takes(const Job& job, const Node& node) const {
    const Node* at = find_node(job.record.report.where);
    if (!at || machines_.fits(node.machine, at->machine)) return {};
    return can_take(node.record.report.machine, at->record.report.machine);
}

// Where a job is or will be, where nothing is to be decided about that now.
std::optional<Market::Wish> Market::fact(const Job& job) const {
    const JobRecord& r = job.record;
    const JobPhase phase = job.phase();
    Wish w;
    w.place = r.report.where;
    w.state = phase == JobPhase::waiting                                ? JobState::waiting
              : phase == JobPhase::frozen || phase == JobPhase::thawing ? JobState::frozen
                                                                        : JobState::running;
    if (in_transit(job)) {
        const NodeName to = Orders::heading_for(job);
        if (!to.empty()) return Wish{JobState::running, to, Pin::stay};
        if (w.state == JobState::running) w.state = JobState::frozen;
        w.pin = Pin::frozen;
        return w;
    }
    w.pin = w.state == JobState::running ? Pin::stay : Pin::frozen;
    if (!job.reported || r.cancel || cannot_leave(job)) return w;
    return {};
}

// What the solver is to take for granted about a job.
Market::Wish Market::wish(const Job& job, Job::Held held) const {
    if (const auto known = fact(job)) return *known;
    const JobRecord& r = job.record;
    Wish w;
    w.place = r.report.where;
    const JobPhase phase = job.phase();
    w.state = phase == JobPhase::waiting  ? JobState::waiting
              : phase == JobPhase::frozen ? JobState::frozen
                                          : JobState::running;
    if (held != Job::Held::none || day_is_spent(*job.user)) {
        w.pin = Pin::frozen;
        return w;
    }
    const auto as_it_is = [&]() {
        w.pin = w.state == JobState::running ? Pin::stay : Pin::frozen;
        return w;
    };
    if (r.out_of_budget || r.hold == Hold::frozen || (job.once && job.once->empty())) {
        w.pin = Pin::frozen;
        return w;
    }
    if (r.hold == Hold::at_node)
        return may_run_at(job, r.hold_node) ? Wish{JobState::running, r.hold_node, Pin::stay}
                                            : as_it_is();
    const NodeName to = job.once ? *job.once : job.via;
    if (!to.empty() && may_run_at(job, to)) return {JobState::running, to, Pin::stay};
    return w;
}

void Market::sync_nodes() {
    for (Node* const one : touched_nodes_.take()) {
        Node& node = *one;
        const ProviderReport& r = node.record.report;
        if (!node.record.has_report && node.jobs.empty() && !node.in_solver) continue;
        ProviderSpec spec;
        spec.reserve = r.reserve;
        spec.speed = static_cast<int32_t>(std::clamp<int64_t>(r.speed, 1, speed_max));
        spec.cpus = std::clamp(r.cpus, 1, cpus_max);
        // What jobs that cannot leave hold there is nobody's to give, and they need no other.
        spec.memory_mb = std::clamp<int64_t>(memory_of(node) - node.rooted_mb, 0, memory_mb_max);
        spec.accepting = usable(node);
        const auto known = solver_.provider(node.key);
        const bool same = known && known->reserve == spec.reserve && known->speed == spec.speed &&
                          known->cpus == spec.cpus && known->memory_mb == spec.memory_mb &&
                          known->accepting == spec.accepting;
        if (!same)
            MUST(known ? solver_.change_provider(node.key, spec)
                       : solver_.add_provider(node.key, spec));
        if (!same && log_) log_->told(node, spec);
        if (!std::exchange(node.in_solver, true))
            for (const JobId& id : rooted_) touch(jobs_.at(id));  // not there
    }
}

JobSpec Market::spec_of(const Job& job, const Wish& w) const {
    const JobReport& r = job.record.report;
    JobSpec spec;
    spec.value = job.bid;
    spec.memory_mb = is_rooted(job) ? 0 : r.terms.memory_mb;
    spec.cpus = r.terms.cpus;
    spec.user = r.uid;
    spec.arrival = r.submitted;
    spec.state = w.state;
    if (!w.place.empty()) spec.place = nodes_.at(w.place).key;
    if (r.stats.image_bytes > 0) spec.move_bytes = r.stats.image_bytes;
    spec.pin = w.pin;
    if (w.pin == Pin::free || !is_rooted(job)) spec.barred = barred(job);
    return spec;
}

void Market::sync_jobs() {
    for (Job* const one : touched_.take()) {
        Job& job = *one;
        if (job.phase() == JobPhase::finished) {
            if (std::exchange(job.in_solver, false)) solver_.remove_job(job.key);
            if (log_) log_->gone(job);
            job_by_key_.erase(job.key.n);
            unlist(job);
            continue;
        }
        list(job);
        const JobReport& r = job.record.report;
        const Wish w = wish(job);
        if (!w.place.empty() && !node_of(w.place).in_solver) {
            touch(node_of(w.place));
            sync_nodes();
        }
        const JobSpec spec = spec_of(job, w);
        if (job.in_solver)
            MUST(solver_.change_job(job.key, spec));
        else
            job.in_solver = solver_.add_job(job.key, spec);
        if (log_) log_->told(job, spec);
        noted_.insert(job);
        if (!r.where.empty()) noting_nodes_.insert(node_of(r.where));
        pending_.insert(job);
    }
}

void Market::take_changes(std::span<const Change> changes) {
    const Names called = names();
    for (const Change& change : changes) {
        Job* const found = job_by_key_.find(change.job.n);
        if (!found) continue;
        Job& job = *found;
        if (log_) log_->changed(change.job);
        job.comment = solver_.reason(change, called);
        const bool by_somebody = change.cause == Cause::displaced || change.cause == Cause::share;
        job.displaced = change.kind == ChangeKind::freeze && by_somebody;
        pending_.insert(job);
        noted_.insert(job);
    }
    price_rounds_.changed();
}

Names Market::names() const {
    return {[this](JobKey k) {
                const Job* const job = job_by_key_.find(k.n);
                return job ? job->id().text() : std::string("?");
            },
            [this](ProviderKey k) {
                const Node* const node = node_by_key_.find(k.n);
                return node ? node->id() : std::string("?");
            }};
}

// ----------------------------------------------------------------------------------------------
// the whole step

void Market::solve(Nanos now, Outputs& out) {
    const size_t stored = out.store.size(), sent = out.send.size();
    solve_now(now, out);
    if (tracer_.on()) tell_outputs(out, stored, sent);
}

void Market::solve_now(Nanos now, Outputs& out) {
    // an order changes what the solver is to know; more is left for the next call
    constexpr int rounds_max = 4;
    begin_day(now);
    end_days(now);
    while (const auto due = alarms_.due(now)) {
        Job& job = jobs_.at(*due);
        alarms_.set(job.alarm, *due, Nanos::never());
        job_alarm(job, now);
    }
    end_settling(now);
    // Once a minute, with the prices: a node that is away may be gone for good by now.
    if (!lacking_.empty() && now >= prices_seen_.next()) {
        for (const JobId& id : lacking_)
            if (Job* job = mutable_job(id)) pending_.insert(*job);
        dirty_ = true;
    }
    bool wake = !settling() && (solver_.next_wake() <= now || admit_at_ <= now);
    for (int round = 0; round < rounds_max && (dirty_ || wake || outside_.is_adopted()); ++round) {
        const bool changed = dirty_ || wake;
        dirty_ = wake = false;
        outside_.take_adopted();
        sync_nodes();
        sync_jobs();
        comment_rounds_.changed();
        if (settling()) continue;
        if (!outside_.decides()) {
            decide(now);
        } else if (decide({}); dirty_) {
            // once more, and then the program is asked
        } else if (changed && outside_.wants_question()) {
            out.ask_solver = true;
        }
        if (log_) log_->decided(*this, now + calendar_);
        place(now, out);
        price_rounds_.changed();
        refresh_prices(now);
    }
    if (out.ask_solver) outside_.asked(problem());
    refresh_prices(now);
    refresh_comments(now);
    reckon_days(now);
    sample_prices(now);
    flush(now, out);
}

// What the solver knows of the jobs, but for those that are to stay frozen.
std::vector<OutsideSolver::KnownJob> Market::known_jobs() const {
    std::vector<OutsideSolver::KnownJob> known;
    for (const auto& [id, job] : jobs_) {
        auto spec = job.in_solver ? solver_.job(job.key) : std::nullopt;
        if (spec && spec->pin != Pin::frozen) known.push_back({job.key, *std::move(spec)});
    }
    return known;
}

Market::Problem Market::problem() const {
    std::vector<Problem::Place> places;
    for (const auto& [name, node] : nodes_)
        if (const auto spec = solver_.provider(node.key); spec && spec->accepting)
            places.push_back({node.key, *spec});
    std::sort(places.begin(), places.end(),
              [](const auto& a, const auto& b) { return a.key < b.key; });
    return OutsideSolver::problem(std::move(places), known_jobs());
}

Status Market::adopt(const std::vector<Solver::Assignment>& allocation, Nanos now) {
    heard(Input::adopt);
    const bool stale = outside_.answered();
    if (stale) dirty_ = true;
    const auto changes = solver_.adopt(outside_.whole(allocation, known_jobs()), now);
    if (!changes) {
        if (outside_.forgives(stale)) return {};  // asked again at once
        return tl::unexpected(changes.error());
    }
    outside_.adopted();
    take_changes(*changes);
    return {};
}

void Market::use_own() {
    heard(Input::use_own);
    outside_.use_own();
    dirty_ = true;
}

}  // namespace souk::market
