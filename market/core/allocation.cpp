// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/allocation.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/check.hpp"
#include "market/core/change_reason.hpp"
#include "market/core/job_rest.hpp"
#include "market/core/orders.hpp"
#include "market/core/submit_filter.hpp"

namespace souk::market {

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

ClassKey class_of_places(const Node& node) {
    const ProviderReport& r = node.record.report;
    return class_of(static_cast<int32_t>(std::clamp<int64_t>(r.speed, 1, speed_max)), r.reserve);
}

}  // namespace

// If nothing is to be decided about the job now, says where it is or will be.
std::optional<Allocation::Wish> Allocation::fact(const Job& job) const {
    const JobRecord& r = job.record;
    const JobPhase phase = job.phase();
    Wish w;
    if (r.unbacked && Orders::is_sent(job))
        return Wish{JobState::running, r.order->node, Pin::stay};
    if (r.unbacked) return Wish{JobState::frozen, {}, Pin::frozen};
    w.place = r.report.where;
    w.state = phase == JobPhase::waiting                                ? JobState::waiting
              : phase == JobPhase::frozen || phase == JobPhase::thawing ? JobState::frozen
                                                                        : JobState::running;
    if (Orders::in_transit(job)) {
        const NodeName to = Orders::heading_for(job);
        if (!to.empty()) return Wish{JobState::running, to, Pin::stay};
        if (w.state == JobState::running) w.state = JobState::frozen;
        w.pin = Pin::frozen;
        return w;
    }
    w.pin = w.state == JobState::running ? Pin::stay : Pin::frozen;
    const bool not_yet = w.state == JobState::waiting && !r.report.waits_for.empty();
    // It moves back for a gain: it has the place that its bid wins.
    if (w.state == JobState::running && job.reported && !r.cancel && lent_.wants_home(job))
        return Wish{JobState::waiting, {}, Pin::free};
    // It moves back by hand: its place is cleared.
    const Node* const back = w.state == JobState::running ? lent_.way_back(job) : nullptr;
    if (back && job.reported && !r.cancel && places_.may_run_at(job, *back))
        return Wish{JobState::running, back->id(), Pin::stay};
    if (!job.reported || r.cancel || not_yet || is_lent(job) || places_.cannot_leave(job)) return w;
    return {};
}

Allocation::Wish Allocation::wish(const Job& job, Job::Held held) const {
    if (const auto known = fact(job)) return *known;
    const JobRecord& r = job.record;
    Wish w;
    w.place = r.report.where;
    const JobPhase phase = job.phase();
    w.state = phase == JobPhase::waiting  ? JobState::waiting
              : phase == JobPhase::frozen ? JobState::frozen
                                          : JobState::running;
    if (held != Job::Held::none || book_.may_not_run(*job.user) || book_.lacks_project(job)) {
        w.pin = Pin::frozen;
        return w;
    }
    const auto as_it_is = [&]() {
        w.pin = w.state == JobState::running ? Pin::stay : Pin::frozen;
        return w;
    };
    if (SubmitFilter::keeps(job) || r.out_of_budget || holds_back(r.hold) ||
        (job.once && job.once->empty())) {
        w.pin = Pin::frozen;
        return w;
    }
    if (r.hold == Hold::at_node)
        return places_.may_run_at(job, r.hold_node)
                   ? Wish{JobState::running, r.hold_node, Pin::stay}
                   : as_it_is();
    switch (job.booked) {
        case Booked::sold:
            if (w.state != JobState::waiting || r.report.terms.booking->begins_early()) break;
            [[fallthrough]];
        case Booked::asks:
        case Booked::outside: w.pin = Pin::frozen; return w;
        case Booked::clears:
        case Booked::holds:
        case Booked::inside:
            return places_.may_run_at(job, job.booked_on)
                       ? Wish{JobState::running, job.booked_on, Pin::stay}
                       : as_it_is();
        case Booked::no:
        case Booked::lost: break;
    }
    const NodeName to = job.once ? *job.once : *job.via;
    if (!to.empty() && places_.may_run_at(job, to)) return {JobState::running, to, Pin::stay};
    return w;
}

// Tells an algorithm that looks ahead how long the job goes on at most, as far as is known, and
// which place is sold to it.
JobAhead Allocation::ahead_of(const Job& job) const {
    const JobReport& r = job.record.report;
    const Node* const there = r.phase == JobPhase::running ? book_.find_node(r.where) : nullptr;
    JobAhead ahead;
    ahead.rest_from = now_;
    ahead.rest =
        rest_of(job, &learned_, RestBand::most, there ? there->record.report.speed : 0, now_);
    const Contract& c = *job.record.contract;
    const Node* const sold = c.is_sold() && !c.over ? book_.find_node(c.node) : nullptr;
    if (job.booked == Booked::clears || job.booked == Booked::holds) {
        ahead.rest.clock = std::max(Nanos{}, c.end - context_.unix(now_));
    } else if (job.booked == Booked::sold && sold) {
        ahead.at = sold->key;
        ahead.from = c.start - context_.calendar;
        ahead.to = c.end - context_.calendar;
    }
    return ahead;
}

JobDemand Allocation::spec_of(const Job& job, const Wish& w) const {
    const JobReport& r = job.record.report;
    JobDemand spec;
    spec.value = job.bid;
    spec.memory_mb = Places::is_rooted(job) ? 0 : r.terms.memory_mb;
    spec.cpus = r.terms.cpus;
    const ResourceBook::Asked asked = places_.resources().asked(r.terms);
    spec.named = asked.here;
    spec.licences = asked.licences;
    spec.named_kept = asked.any() && !job.rooted_on.empty();
    spec.user = r.uid;
    const Turn turn = EqualJobs::turn_of(job);
    spec.arrival = turn.arrival;
    spec.weight = turn.weight;
    spec.state = w.state;
    if (!w.place.empty()) spec.place = book_.nodes().at(w.place).key;
    if (r.stats.image_bytes > 0)
        spec.move_bytes = std::min(r.stats.image_bytes, memory_mb_max * 1'000'000);
    if (solver_.looks_ahead()) spec.ahead = ahead_of(job);
    spec.pin = w.pin;
    if (w.pin == Pin::free || !Places::is_rooted(job)) spec.barred = places_.barred(job);
    // Only a horizon looks at this. The solver is not told without one, because it says whose job
    // it may be.
    if (const Node* const home = book_.find_node(job.id().home);
        home && r.files->served && solver_.options().horizon.ns > 0)
        spec.files = traffic_of(*r.files, home->key);
    // A component that stands where it is goes on only there. To bar it elsewhere would bar its
    // whole gang.
    const bool stays = Places::is_rooted(job) && book_.find_node(r.where);
    if (const NodeName& name = stays ? r.where : *r.only_node; is_component(job) && !name.empty()) {
        const Node* const only = book_.find_node(name);
        spec.only = only ? only->key : ProviderKey{UINT64_MAX};  // the market has forgotten it
    }
    // The components of a gang bid and rank as one.
    if (const auto known =
            is_component(job) && job.in_solver ? solver_.job(job.key) : std::nullopt) {
        spec.value = known->value;
        spec.weight = known->weight;
        spec.arrival = known->arrival;
        spec.user = known->user;
    }
    return spec;
}

void Allocation::sync_nodes() {
    for (Node* const one : work_.take_nodes()) {
        Node& node = *one;
        const ProviderReport& r = node.record.report;
        if (!node.record.has_report && node.jobs.empty() && !node.in_solver) continue;
        ProviderSpec spec;
        spec.reserve = r.reserve;
        spec.speed = static_cast<int32_t>(std::clamp<int64_t>(r.speed, 1, speed_max));
        // A job inside the place of another one takes room that is taken already.
        spec.cpus =
            static_cast<int32_t>(std::clamp<int64_t>(r.cpus + node.inside_cpus, 1, cpus_max));
        // Nobody gets the memory of jobs that cannot leave, and they need no other.
        spec.memory_mb = std::clamp<int64_t>(
            Places::memory_of(node) + node.inside_mb - node.rooted_mb, 0, memory_mb_max);
        spec.accepting = Places::usable(node);
        spec.named = places_.resources().left_by_rooted(node);
        set_near(spec, r);
        const auto known = solver_.provider(node.key);
        const bool same = known == spec;
        const bool another =
            !known || class_of(known->speed, known->reserve) != class_of(spec.speed, spec.reserve);
        if (!same)
            MUST(known ? solver_.change_provider(node.key, spec)
                       : solver_.add_provider(node.key, spec));
        if (!same && context_.log) context_.log->told(node, spec);
        // There may be no room any more for those that stand there.
        for (const auto& [id, job] : node.jobs) {
            if (!same && Places::stands(*job)) work_.place(*job);
            if (another || known->accepting != spec.accepting) work_.tell(*job);
        }
        if (!std::exchange(node.in_solver, true)) {
            // Those that cannot leave their places are not to be placed on this one.
            for (const JobId& id : places_.rooted()) work_.touch(book_.jobs().at(id));
            gangs_.wake_for(node);
        }
    }
}

// A job inside another one's place takes room that is taken already, so the solver is told of so
// much more on that node. It counts only while it is told to sit there: who is held back, by
// whatever, gives nobody room.
void Allocation::seat_inside(Job& job, const Wish& w) {
    const bool sits =
        job.booked == Booked::inside && w.state == JobState::running && w.pin == Pin::stay;
    const JobTerms& t = job.record.report.terms;
    const InsideSeat seat = sits ? InsideSeat{w.place, t.cpus, t.memory_mb} : InsideSeat{};
    if (*job.seat == seat) return;
    for (const auto& [one, sign] : {std::pair(*job.seat, -1), std::pair(seat, 1)}) {
        if (one.node.empty()) continue;
        Node& node = book_.node(one.node);
        node.inside_cpus += sign * one.cpus;
        node.inside_mb += sign * one.mb;
        work_.touch(node);
    }
    job.seat = seat;
}

// The solver is told of a place before it is told of a job there.
void Allocation::place_is_known(const Wish& w) {
    if (w.place.empty() || book_.node(w.place).in_solver) return;
    work_.touch(book_.node(w.place));
    sync_nodes();
}

// A job that has finished is nothing to be decided about any more.
void Allocation::leave(Job& job) {
    seat_inside(job, {});
    if (std::exchange(job.in_solver, false)) solver_.remove_job(job.key);
    gangs_.list(job);
    equals_.leave(job);
    if (context_.log) context_.log->gone(job);
    book_.forget_key(job);
    admission_.unlist(job);
}

void Allocation::sync_jobs(Nanos now) {
    now_ = now;
    gangs_seen_.clear();
    MUST(solver_.set_licences(places_.licences()));
    tell_jobs(now);
    sync_nodes();  // seats have changed
}

// Equal jobs that exchange their turns are told, too.
void Allocation::tell_jobs(Nanos now) {
    for (std::vector<Job*> jobs = work_.take_jobs(); !jobs.empty(); jobs = work_.take_jobs())
        for (Job* const job : jobs) tell_job(*job, now);
}

void Allocation::tell_job(Job& job, Nanos now) {
    if (job.phase() == JobPhase::finished) return leave(job);
    const Wish w = wish(job);
    waits_.note(job, w.waits(), now);
    rank_among_equals(job);
    admission_.list(job);
    seat_inside(job, w);
    place_is_known(w);
    gangs_.list(job);
    if (is_component(job) && is_away(job)) return leave_gang(job);
    if (is_component(job) && !job.in_solver) {
        (void)enter_gang(job, now);
        notes_.of(job);
        work_.place(job);
        return;
    }
    tell_solver(job, w);
    if (is_component(job)) wake_gang(job, now);
    notes_.of(job);
    if (!job.lies_on.empty()) notes_.of(book_.node(job.lies_on));
}

// Another site places the component, so the solver places the gang without it.
void Allocation::leave_gang(Job& job) {
    admission_.unlist(job);
    if (std::exchange(job.in_solver, false)) {
        solver_.remove_job(job.key);
        if (context_.log) context_.log->gone(job);
    }
    notes_.of(job);
    // The others may begin, if it has a place there now.
    for (Job* const one : gangs_.of(job)) work_.place(*one);
}

void Allocation::tell_solver(Job& job, const Wish& w) {
    const JobDemand spec = spec_of(job, w);
    if (job.in_solver)
        MUST(solver_.change_job(job.key, spec));
    else
        job.in_solver = solver_.add_job(job.key, spec);
    if (context_.log) context_.log->told(job, spec);
    work_.place(job);
}

// Limits of its user do not count here, as they go by the turns of his jobs.
void Allocation::rank_among_equals(Job& job) {
    const Wish w = wish(job, Job::Held::none);
    if (is_component(job) || job.booked != Booked::no || w.pin == Pin::frozen)
        return equals_.leave(job);
    ClassKey place = class_none;
    if (job.record.hold == Hold::at_node) {
        // It goes before all that are its equals, or it would wait for ever for one of them there.
        constexpr ClassKey first = 0;
        place = first;
    } else if (w.state == JobState::running) {
        const Node& node = book_.node(w.place);
        const ProviderReport& r = node.record.report;
        if (w.pin == Pin::stay || (Places::usable(node) && r.reserve <= job.bid))
            place = class_of_places(node);
    }
    equals_.take(job, place);
}

// All components of the gang are known, and the nodes that they are for. Another program decides
// about single jobs alone.
bool Allocation::may_enter(const std::string& gang, const std::vector<Job*>& all) {
    uint32_t left = UINT32_MAX;
    for (const Job* one : all) left = std::min(left, one->record.report.components);
    if (all.size() < left) return false;
    for (const Job* one : all)
        if (const NodeName& only = one->record.report.only_node;
            !only.empty() && !book_.find_node(only)) {
            gangs_.wait_for(only, gang);
            return false;
        }
    if (!outside_.is_used()) return true;
    gangs_.refuse(gang, {0, "a program beside the market decides, for single jobs only"});
    return false;
}

// Gives the components keys one after the other. All bid what the one that bids least does.
std::vector<JobDemand> Allocation::specs_of(const std::vector<Job*>& gang, Nanos now) {
    Money least = gang.front()->bid;
    for (const Job* one : gang) least = std::min(least, one->bid);
    std::vector<JobDemand> specs;
    for (Job* one : gang) {
        admission_.unlist(*one);
        if (std::exchange(one->in_solver, false)) {
            solver_.remove_job(one->key);
            if (context_.log) context_.log->gone(*one);
        }
        book_.number_again(*one);
        const Wish w = wish(*one);
        waits_.note(*one, w.waits(), now);
        place_is_known(w);
        specs.push_back(spec_of(*one, w));
        specs.back().value = least;
        specs.back().arrival = specs.front().arrival;
    }
    const int32_t lightest = waits_.weight_of(gang, now);
    for (JobDemand& spec : specs) spec.weight = lightest;
    return specs;
}

// Tells the solver of all components, with keys one after the other. False: not all are known, or
// the solver does not take them.
bool Allocation::enter_gang(Job& job, Nanos now) {
    const std::string name = gang_name(job);
    std::vector<Job*> all = gangs_.of(job);
    if (!may_enter(name, all)) return false;
    std::erase_if(all, [](const Job* one) { return is_away(*one); });
    const auto required = std::stable_partition(all.begin(), all.end(),
                                                [](const Job* one) { return !is_optional(*one); });
    if (required == all.begin()) return false;  // away, or its home ends what is left of it
    const std::vector<JobDemand> specs = specs_of(all, now);
    const JobReport& first = all.front()->record.report;
    const Status taken = solver_.add_gang(
        all.front()->key, specs, static_cast<size_t>(required - all.begin()), layout_of(first));
    for (size_t i = 0; i < all.size(); ++i) {
        admission_.list(*all[i]);
        notes_.of(*all[i]);
        if (!taken) continue;
        all[i]->in_solver = true;
        if (context_.log) context_.log->told(*all[i], specs[i]);
        work_.place(*all[i]);
    }
    gangs_.accept(name);
    if (!taken) gangs_.refuse(name, taken.error());
    return taken.has_value();
}

// A change of one component may let others go. None of them pays more than any of them bids.
void Allocation::wake_gang(const Job& job, Nanos now) {
    if (!gangs_seen_.insert(gang_name(job)).second) return;
    Money least = job.bid;
    const std::vector<Job*> all = gangs_.of(job);
    for (Job* one : all) {
        least = std::min(least, one->bid);
        work_.place(*one);
    }
    const auto known = solver_.job(job.key);
    if (known && known->value != least) (void)solver_.change_value(job.key, least);
    const int32_t weight = waits_.weight_of(all, now);
    if (known && known->weight != weight) (void)solver_.change_weight(job.key, weight);
}

std::optional<bool> Allocation::runs_anyhow(const Job& job) const {
    const auto known = fact(job);
    return known ? std::optional(known->state == JobState::running) : std::nullopt;
}

JobDemand Allocation::spec_of(const Job& job, Job::Held held) const {
    return spec_of(job, wish(job, held));
}

void Allocation::decide(Nanos now, bool by_own_solver) {
    const auto when = by_own_solver ? std::optional(now) : std::nullopt;
    Admission::Decision d = admission_.decide(*this, book_.users(), solver_, when);
    take_held(d, now);
    const std::set<Job*> lost = by_own_solver ? give_back_to_equals(d.changes) : std::set<Job*>();
    if (!lost.empty()) {
        d = admission_.decide(*this, book_.users(), solver_, when);
        take_held(d, now);
    }
    for (Job* const job : lost) rank_by_place(*job);
    take_changes(d.changes);
    // The limits are looked at once more, and then the program is asked.
    if (!by_own_solver && d.again) work_.decide();
}

void Allocation::take_held(const Admission::Decision& d, Nanos now) {
    for (const auto& [key, held] : d.held) {
        Job& job = *held.first;
        const Wish w = wish(job);
        waits_.note(job, w.waits(), now);
        seat_inside(job, w);
        if (context_.log) context_.log->told(job, spec_of(job, w));
        notes_.of(job);
        work_.place(job);
    }
}

// Whether the job runs, or is about to, where the solver does not have it any more.
bool Allocation::is_to_leave(const Job& job) const {
    const Wish w = wish(job);
    const Node* const target = target_of(job);
    return w.state == JobState::running && (!target || target->id() != w.place);
}

// It is to leave its place, and not for a better one.
bool Allocation::loses_place(const Job& job) const {
    const Node* const target = target_of(job);
    return is_to_leave(job) && (!target || class_of_places(*target) >= job.equal.place);
}

// Jobs that have lost their places by this decision, as where a node offers fewer CPUs, may have
// taken those of equal ones. They rank behind these until they have a place. Returns them. If there
// are some, the solver has heard again where everybody is, as nothing of its decision has happened,
// and is to decide once more.
std::set<Job*> Allocation::give_back_to_equals(std::span<const Change> changes) {
    std::set<const void*> lists;  // of equal jobs of which one has displaced another
    std::set<Job*> lost;          // not to an equal one that has itself lost its place
    for (const Change& change : changes) {
        Job* const job = book_.job_of(change.job);
        if (!job || !job->equal.list || change.cause == Cause::faster) continue;
        const bool displaced = change.cause == Cause::displaced;
        const Job* const other = displaced ? book_.job_of(change.other) : nullptr;
        const bool by_equal = other && EqualJobs::are_equal(*job, *other);
        if (by_equal) lists.insert(job->equal.list);
        if (loses_place(*job) && !(by_equal && is_to_leave(*other))) lost.insert(job);
    }
    std::erase_if(lost, [&](const Job* job) {
        return job->equal.place == class_none || !lists.contains(job->equal.list);
    });
    if (lost.empty()) return lost;
    for (Job* const job : lost) equals_.take(*job, class_none);
    for (const Change& change : changes)
        if (Job* const job = book_.job_of(change.job)) work_.tell(*job);
    // First those that have come to places of others.
    std::vector<Job*> jobs = work_.take_jobs();
    std::stable_partition(jobs.begin(), jobs.end(), [&](Job* job) { return is_to_leave(*job); });
    for (Job* const job : jobs) {
        if (job->in_solver && job->phase() != JobPhase::finished)
            tell_solver(*job, wish(*job));
        else
            work_.touch(*job);  // it is told whole with the next decision
    }
    return lost;
}

// One that had lost its place, and was not ordered away, may have it again.
void Allocation::rank_by_place(Job& job) {
    if (job.equal.list && job.equal.place == class_none && !is_to_leave(job))
        rank_among_equals(job);
}

void Allocation::take_changes(std::span<const Change> changes) {
    const Names called = names();
    for (const Change& change : changes) {
        Job* const found = book_.job_of(change.job);
        if (!found) continue;
        Job& job = *found;
        if (context_.log) context_.log->changed(change.job);
        job.reason = change_reason(solver_, change, called);
        const bool by_somebody = change.cause == Cause::displaced || change.cause == Cause::share;
        job.displaced = change.kind == ChangeKind::freeze && by_somebody;
        rank_by_place(job);
        work_.place(job);
        notes_.of(job);
    }
    prices_.changed();
}

Names Allocation::names() const {
    return {[this](JobKey k) {
                const Job* const job = book_.job_of(k);
                return job ? job->id().text() : std::string("?");
            },
            [this](ProviderKey k) {
                const Node* const node = book_.node_of(k);
                return node ? node->id() : std::string("?");
            }};
}

// The jobs as the solver knows them, without those that are to stay frozen.
std::vector<OutsideSolver::KnownJob> Allocation::known_jobs() const {
    std::vector<OutsideSolver::KnownJob> known;
    for (const auto& [id, job] : book_.jobs()) {
        auto spec = job.in_solver ? solver_.job(job.key) : std::nullopt;
        if (spec && spec->pin != Pin::frozen) known.push_back({job.key, *std::move(spec)});
    }
    return known;
}

Allocation::Problem Allocation::problem() const {
    std::vector<Problem::Place> places;
    for (const auto& [name, node] : book_.nodes())
        if (const auto spec = solver_.provider(node.key); spec && spec->accepting)
            places.push_back({node.key, *spec});
    std::sort(places.begin(), places.end(),
              [](const auto& a, const auto& b) { return a.key < b.key; });
    return OutsideSolver::problem(std::move(places), known_jobs());
}

Status Allocation::adopt(const std::vector<Solver::Assignment>& allocation, Nanos now) {
    const bool stale = outside_.answered();
    if (stale) work_.decide();
    const auto changes = solver_.adopt(outside_.whole(allocation, known_jobs()), now);
    if (!changes) {
        if (outside_.forgives(stale)) return {};  // asked again at once
        return tl::unexpected(changes.error());
    }
    outside_.adopted();
    take_changes(*changes);
    return {};
}

void Allocation::use_program(bool on) {
    outside_.use(on);
    work_.decide();
}

void Allocation::use_own() {
    outside_.use_own();
    work_.decide();
}

}  // namespace souk::market
