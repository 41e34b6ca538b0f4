// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/prices_in_force.hpp"

#include <algorithm>

#include "kernel/base/check.hpp"
#include "market/core/gang_list.hpp"
#include "market/core/orders.hpp"
#include "market/core/places.hpp"

namespace souk::market {

bool PricesInForce::may_change(JobKey key) const {
    const Job* const job = book_.job_of(key);
    return job && !Orders::in_transit(*job) && !holds(*job);
}

// Whether the job's price holds: while its node takes nobody (it is away, its owner has stopped its
// guests), nobody else can have its place, and no price can be found there. Otherwise an owner
// would earn by cutting his link. A home that is away changes nothing, or a user would save by
// cutting his.
bool PricesInForce::holds(const Job& job) const {
    const Node* const node = book_.find_node(job.record.report.where);
    return !node || !Places::usable(*node);
}

void PricesInForce::reckoned(const Solver::PriceStart& round, Nanos now) const {
    if (context_.log) context_.log->reckoned(round, context_.unix(now));
}

void PricesInForce::reckoned(std::span<const Payment> some, Nanos now) const {
    if (context_.log) context_.log->reckoned(some, context_.unix(now));
}

// A job that runs where the solver has it pays what the solver says. A job on its way out pays what
// it paid.
bool PricesInForce::take(const Payment& p, Nanos now) {
    Job* const job = book_.job_of(p.job);
    const Node* const node = book_.node_of(p.provider);
    if (!job || !node || job->phase() != JobPhase::running || job->record.unbacked ||
        job->record.report.where != node->id() || holds(*job))
        return false;
    if (const auto price = booked_price(*job)) return billing_.set_price(*job, *price, now);
    // The bid or the reserve may have changed since the price was reckoned.
    const Money least = std::min(node->record.report.reserve, job->bid);
    return billing_.set_price(*job, std::clamp(p.price, least, job->bid), now);
}

// Whether the job runs there for a price that the market finds, above the least that it may be.
bool PricesInForce::may_fall(const Job& job, const Node& node) {
    return job.phase() == JobPhase::running && job.record.report.where == node.id() &&
           !job.record.unbacked && !booked_price(job) && job.in_solver &&
           job.record.price > std::min(node.record.report.reserve, job.bid);
}

std::vector<JobKey> PricesInForce::held() const {
    std::vector<JobKey> all;
    for (const auto& [name, node] : book_.nodes()) {
        if (Places::usable(node) || !solver_.provider(node.key)) continue;
        for (const auto& [id, job] : node.jobs)
            if (may_fall(*job, node)) all.push_back(job->key);
    }
    return all;
}

void PricesInForce::lower_held(Nanos now) {
    constexpr uint64_t steps_max = 100'000;  // about 10 ms
    constexpr ptrdiff_t slice = 16;
    constexpr int64_t pace_per_one_ns = 1'000'000;
    if (now < lower_at_) return;
    std::vector<JobKey> keys = held();
    if (keys.empty()) return;
    lower_at_ =
        now + Nanos{static_cast<int64_t>(solver_.jobs() + solver_.providers()) * pace_per_one_ns};
    Solver trial = solver_.copy();
    for (const JobKey key : keys) {
        const ProviderKey place = trial.place(key);
        auto node = trial.provider(place);
        auto job = trial.job(key);
        if (!node || !job) continue;
        if (!std::exchange(node->accepting, true)) MUST(trial.change_provider(place, *node));
        // Nothing but its node keeps it where it is. A component stays: its gang is not told here.
        const Job& known = *book_.job_of(key);
        if (known.reported && !Places::is_rooted(known) && !is_component(known) &&
            std::exchange(job->pin, Pin::free) == Pin::stay)
            trial.change_job(key, *job);
    }
    trial.solve(now);
    Solver::PriceStart start = trial.start_prices();
    std::ranges::sort(start.rest);
    std::erase_if(keys, [&](JobKey key) { return !std::ranges::binary_search(start.rest, key); });
    // Those come first whose turn was not last time.
    std::sort(keys.begin(), keys.end());
    std::rotate(keys.begin(), std::upper_bound(keys.begin(), keys.end(), lowered_), keys.end());
    std::vector<Payment> found = std::move(start.payments);
    for (uint64_t all_steps = 0, steps = 0; !keys.empty() && all_steps < steps_max;) {
        const auto end = keys.begin() + std::min(std::ssize(keys), slice);
        std::vector<JobKey> some(keys.begin(), end);
        lowered_ = some.back();
        keys.erase(keys.begin(), end);
        for (const Payment& one : trial.more_prices(some, steps_max, steps)) found.push_back(one);
        all_steps += steps + solver_.jobs();
    }
    for (const Payment& p : found) {
        // One that would be elsewhere has a place that others would pay more for.
        Job* const job = book_.job_of(p.job);
        const Node* const node = book_.node_of(p.provider);
        if (!job || !node || !holds(*job) || !may_fall(*job, *node)) continue;
        const Money price = std::max(p.price, std::min(node->record.report.reserve, job->bid));
        if (price < job->record.price) billing_.set_price(*job, price, now);
    }
}

ProviderNote PricesInForce::note_of(const Node& node) const {
    ProviderNote note;
    // For a moment more may have been taken back than was earned.
    note.earned = std::max(Money{}, node.record.earned);
    __int128 weighted = 0;
    int64_t cpus = 0;
    for (const auto& [id, job] : node.jobs) {
        if (job->phase() != JobPhase::running || job->record.report.where != node.id()) continue;
        ++note.guests;
        if (job->record.report.stands) continue;  // it is stopped and pays nothing
        cpus += job->claim_cpus;
        weighted += static_cast<__int128>(job->record.price.micro) * job->claim_cpus;
    }
    if (cpus > 0) note.current_price.micro = static_cast<int64_t>(weighted / cpus);
    if (const auto next = solver_.next_price(node.key)) note.next_price = *next;
    for (const ResourceOffer& one : node.record.report.resources)
        if (std::ranges::find(context_.options.resources, one.name, &ResourceOffer::name) !=
                context_.options.resources.end() &&
            note.of_market.size() < resources_max)
            note.of_market.push_back(one.name);
    return note;
}

// Sums up the prices in force, over all jobs that run or are on their way to.
Surplus PricesInForce::surplus() const {
    __int128 consumers = 0, providers = 0;
    for (const auto& [id, job] : book_.jobs()) {
        const auto spec = job.in_solver ? solver_.job(job.key) : std::nullopt;
        const auto worth =
            spec && spec->state == JobState::running ? solver_.worth(job.key) : std::nullopt;
        const Node* const place = worth ? book_.node_of(spec->place) : nullptr;
        if (!place) continue;
        consumers += static_cast<__int128>((*worth - job.record.price).micro) * spec->cpus;
        providers +=
            static_cast<__int128>((job.record.price - place->record.report.reserve).micro) *
            spec->cpus;
    }
    const auto money = [](__int128 sum) {
        return Money{static_cast<int64_t>(std::clamp<__int128>(sum, INT64_MIN / 4, INT64_MAX / 4))};
    };
    return {money(consumers), money(providers), money(consumers) + money(providers)};
}

Money PricesInForce::earned_by_forgotten(const Book& book, const Ledger& ledger) {
    Money sum;
    for (const auto& [holder, account] : ledger.accounts())
        if (holder.kind == Holder::Kind::node && !book.nodes().contains(holder.node))
            sum += account.balance - account.moved;
    return sum;
}

Totals PricesInForce::totals(Nanos now) const {
    Totals t;
    t.paid = book_.meta().retired;
    for (const auto& [id, job] : book_.jobs()) {
        if (job.phase() == JobPhase::finished) {
            ++t.finished;
            continue;
        }
        const Money due = bill::cost(job, now);
        t.paid += due;
        t.earned += due - job.record.account.amount;  // the node is credited when it is accounted
        switch (job.phase()) {
            case JobPhase::waiting: ++(job.record.order ? t.in_transit : t.waiting); break;
            case JobPhase::running: ++t.running; break;
            case JobPhase::frozen:
                ++t.frozen;
                t.standing += Places::stands(job);
                break;
            default: ++t.in_transit; break;
        }
    }
    t.earned += earned_by_forgotten(book_, ledger_);
    for (const auto& [name, node] : book_.nodes()) t.earned += node.record.earned;
    t.surplus = surplus();
    return t;
}

}  // namespace souk::market
