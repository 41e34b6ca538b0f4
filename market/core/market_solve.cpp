// SPDX-License-Identifier: GPL-2.0-or-later
// Market, fourth part: what the solver is told, and from its answer to orders. See market.hpp.
#include <algorithm>
#include <utility>

#include "kernel/base/check.hpp"
#include "market/core/market.hpp"

namespace souk::market {

// Where a job is or will be, where nothing is to be decided about that now.
std::optional<Market::Wish> Market::fact(const Job& job) const {
    const JobRecord& r = job.record;
    const JobPhase phase = job.phase();
    Wish w;
    if (r.unbacked && is_sent(job)) return Wish{JobState::running, r.order->node, Pin::stay};
    if (r.unbacked) return Wish{JobState::frozen, {}, Pin::frozen};
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
    const bool not_yet = w.state == JobState::waiting && !r.report.waits_for.empty();
    if (!job.reported || r.cancel || not_yet || places_.cannot_leave(job)) return w;
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
    if (held != Job::Held::none || day_is_spent(*job.user) || lacks_project(job)) {
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
        return places_.may_run_at(job, r.hold_node)
                   ? Wish{JobState::running, r.hold_node, Pin::stay}
                   : as_it_is();
    const NodeName to = job.once ? *job.once : *job.via;
    if (!to.empty() && places_.may_run_at(job, to)) return {JobState::running, to, Pin::stay};
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
        spec.memory_mb =
            std::clamp<int64_t>(Places::memory_of(node) - node.rooted_mb, 0, memory_mb_max);
        spec.accepting = Places::usable(node);
        set_near(spec, r);
        const auto known = solver_.provider(node.key);
        const bool same = known == spec;
        if (!same)
            MUST(known ? solver_.change_provider(node.key, spec)
                       : solver_.add_provider(node.key, spec));
        if (!same && log_) log_->told(node, spec);
        for (const auto& [id, job] : node.jobs)  // there may be no room for it any more
            if (!same && Places::stands(*job)) pending_.insert(*job);
        if (!std::exchange(node.in_solver, true)) {
            for (const JobId& id : places_.rooted()) touch(book_.jobs().at(id));  // not there
            wake_gangs_for(node);
        }
    }
}

namespace {

FileTraffic traffic_of(const FilesUse& use, ProviderKey home) {
    const auto within = [](uint64_t n, int64_t most) {
        return static_cast<int64_t>(std::min<uint64_t>(n, static_cast<uint64_t>(most)));
    };
    const FileTraffic traffic{home, within(use.bytes_per_s, FileTraffic::bytes_most),
                              within(use.requests_per_s, FileTraffic::requests_most),
                              std::min(use.round_trip, FileTraffic::round_trip_most)};
    return traffic.any() ? traffic : FileTraffic{};
}

}  // namespace

JobDemand Market::spec_of(const Job& job, const Wish& w) const {
    const JobReport& r = job.record.report;
    JobDemand spec;
    spec.value = job.bid;
    spec.memory_mb = Places::is_rooted(job) ? 0 : r.terms.memory_mb;
    spec.cpus = r.terms.cpus;
    spec.user = r.uid;
    spec.arrival = r.submitted;
    spec.weight = job.weight;
    spec.state = w.state;
    if (!w.place.empty()) spec.place = book_.nodes().at(w.place).key;
    if (r.stats.image_bytes > 0)
        spec.move_bytes = std::min(r.stats.image_bytes, memory_mb_max * 1'000'000);
    spec.pin = w.pin;
    if (w.pin == Pin::free || !Places::is_rooted(job)) spec.barred = places_.barred(job);
    // Looked at with a horizon alone, and told to nobody without one: it says whose job it may be.
    if (const Node* const home = find_node(job.id().home);
        home && r.files->served && solver_.options().horizon.ns > 0)
        spec.files = traffic_of(*r.files, home->key);
    // What stands where it is goes on only there. (To bar it elsewhere would bar its whole gang.)
    const bool stays = Places::is_rooted(job) && find_node(r.where);
    if (const NodeName& name = stays ? r.where : *r.only_node; of_gang(job) && !name.empty()) {
        const Node* const only = find_node(name);
        spec.only = only ? only->key : ProviderKey{UINT64_MAX};  // the market has forgotten it
    }
    // Of a gang, whose components bid and rank as one.
    if (const auto known = of_gang(job) && job.in_solver ? solver_.job(job.key) : std::nullopt) {
        spec.value = known->value;
        spec.weight = known->weight;
        spec.arrival = known->arrival;
        spec.user = known->user;
    }
    return spec;
}

void Market::sync_jobs(Nanos now) {
    gangs_seen_.clear();
    for (Job* const one : touched_.take()) {
        Job& job = *one;
        if (job.phase() == JobPhase::finished) {
            if (std::exchange(job.in_solver, false)) solver_.remove_job(job.key);
            list_in_gang(job);
            if (log_) log_->gone(job);
            book_.forget_key(job);
            admission_.unlist(job);
            continue;
        }
        admission_.list(job);
        const Wish w = wish(job);
        note_wait(job, waits(w), now);
        if (!w.place.empty() && !node_of(w.place).in_solver) {
            touch(node_of(w.place));
            sync_nodes();
        }
        list_in_gang(job);
        if (of_gang(job) && !job.in_solver) {
            (void)enter_gang(job, now);
            notes_.of(job);
            pending_.insert(job);
            continue;
        }
        const JobDemand spec = spec_of(job, w);
        if (job.in_solver)
            MUST(solver_.change_job(job.key, spec));
        else
            job.in_solver = solver_.add_job(job.key, spec);
        if (of_gang(job)) wake_gang(job, now);
        if (log_) log_->told(job, spec);
        notes_.of(job);
        if (!job.lies_on.empty()) notes_.of(node_of(job.lies_on));
        pending_.insert(job);
    }
}

void Market::take_changes(std::span<const Change> changes) {
    const Names called = names();
    for (const Change& change : changes) {
        Job* const found = book_.job_of(change.job);
        if (!found) continue;
        Job& job = *found;
        if (log_) log_->changed(change.job);
        job.reason = solver_.reason(change, called);
        const bool by_somebody = change.cause == Cause::displaced || change.cause == Cause::share;
        job.displaced = change.kind == ChangeKind::freeze && by_somebody;
        pending_.insert(job);
        notes_.of(job);
    }
    price_rounds_.changed();
}

Names Market::names() const {
    return {[this](JobKey k) {
                const Job* const job = book_.job_of(k);
                return job ? job->id().text() : std::string("?");
            },
            [this](ProviderKey k) {
                const Node* const node = book_.node_of(k);
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
        Job& job = book_.jobs().at(*due);
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
    bool wake = !settling() && (solver_.next_wake() <= now || admission_.next() <= now);
    for (int round = 0; round < rounds_max && (dirty_ || wake || outside_.is_adopted()); ++round) {
        const bool changed = dirty_ || wake;
        dirty_ = wake = false;
        outside_.take_adopted();
        sync_nodes();
        sync_jobs(now);
        comment_rounds_.changed();
        if (settling()) continue;
        if (!outside_.decides()) {
            decide(now, true);
        } else if (decide(now, false); dirty_) {
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
    ask_again(now, out);
    sample_prices(now);
    flush(now, out);
}

// What the solver knows of the jobs, but for those that are to stay frozen.
std::vector<OutsideSolver::KnownJob> Market::known_jobs() const {
    std::vector<OutsideSolver::KnownJob> known;
    for (const auto& [id, job] : book_.jobs()) {
        auto spec = job.in_solver ? solver_.job(job.key) : std::nullopt;
        if (spec && spec->pin != Pin::frozen) known.push_back({job.key, *std::move(spec)});
    }
    return known;
}

Market::Problem Market::problem() const {
    std::vector<Problem::Place> places;
    for (const auto& [name, node] : book_.nodes())
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
