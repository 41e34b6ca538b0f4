// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/suspended_jobs.hpp"

#include <algorithm>
#include <utility>

#include "market/core/orders.hpp"
#include "market/core/places.hpp"

namespace souk::market {

namespace {

// How long a write of the job's memory takes, at the rate that a horizon reckons with.
Nanos write_of(const Job& job, int64_t bytes_per_s) {
    const JobReport& r = job.record.report;
    const int64_t bytes =
        r.stats.image_bytes > 0 ? r.stats.image_bytes : r.terms.memory_mb * 1'000'000;
    const int64_t rate = std::max<int64_t>(1, bytes_per_s);
    constexpr int64_t ms_per_s = 1'000;
    return Nanos::from_ms(bytes / rate * ms_per_s + bytes % rate * ms_per_s / rate);
}

}  // namespace

// The owner of the node has left the market: jobs that stand there leave.
bool SuspendedJobs::is_closed(const Node& node) {
    return node.connected && !Places::usable(node) && !Places::keeps_guests(node);
}

// The jobs that stand on the node, have no place there and may go to disk now. (The memory of those
// that may not is taken off what the node has: rooted_mb.)
std::vector<StandingJobs::One> SuspendedJobs::standing_on(const Node& node) const {
    std::vector<StandingJobs::One> all;
    for (const auto& [id, job] : node.jobs)
        if (Places::stands(*job) && !Places::stands_fast(*job) && !job->record.cancel &&
            job->record.report.where == node.id() && !Orders::in_transit(*job) &&
            allocation_.target_of(*job) != &node)
            all.push_back({job->key.n, job->bid, standing_.since(job->key.n),
                           job->record.report.terms.memory_mb});
    return all;
}

// So much memory is missing there for all that have places, stand, or are being told to stand.
int64_t SuspendedJobs::missing_mb(const Node& node) const {
    int64_t need = 0;
    for (const JobKey key : solver_.guests(node.key))
        if (const auto spec = solver_.job(key)) need += spec->memory_mb;
    for (const StandingJobs::One& one : standing_on(node)) need += one.memory_mb;
    for (const auto& [id, job] : node.jobs) {
        const auto& order = job->record.order;
        const bool stops = order && order->stand && job->record.report.where == node.id();
        if (stops) need += job->record.report.terms.memory_mb;
    }
    return need - (Places::memory_of(node) - node.rooted_mb);
}

bool SuspendedJobs::stands_first(Job& job, Nanos now) {
    const JobReport& r = job.record.report;
    const Nanos most = solver_.options().stand_max;
    const Node* const at = book_.find_node(r.where);
    const auto spec = solver_.job(job.key);
    const bool by_bid = spec && spec->pin == Pin::free;
    if (most.ns <= 0 || !by_bid || is_component(job) || !at || !Places::usable(*at) ||
        !r.cannot_move.empty() || r.terms.memory_mb <= 0 || !r.terms.resources.empty())
        return false;
    const Nanos write = write_of(job, solver_.options().link_bytes_per_s);
    standing_.suspended(job.key.n, now, write);
    job.stands_for = std::min(most, standing_.patience(write));
    if (job.stands_for.ns <= 0) return false;
    if (missing_mb(*at) + r.terms.memory_mb <= 0) return true;
    standing_.forget(job.key.n);  // the record of times is about those that stand
    return false;
}

void SuspendedJobs::note(Job& job, Nanos now) {
    if (!Places::stands(job)) {
        job.stands_until = Nanos::never();
        job.stood_enough = false;
        // A job that runs on was not suspended after all.
        if (job.phase() == JobPhase::running && !Orders::in_transit(job))
            standing_.forget(job.key.n);
        return;
    }
    const Nanos most = solver_.options().stand_max;
    if (!standing_.knows(job.key.n)) {  // since an earlier life of the market, or elsewhere
        const Nanos write = write_of(job, solver_.options().link_bytes_per_s);
        standing_.suspended(job.key.n, now, write);
        job.stands_for = std::min(most, standing_.patience(write));
    }
    if (job.stands_until != Nanos::never()) return;
    job.stands_until = now + std::clamp(job.stands_for, Nanos{}, std::max(Nanos{}, most));
}

void SuspendedJobs::bound() {
    for (auto& [id, job] : book_.jobs()) {
        if (job.stands_until == Nanos::never()) continue;
        job.stands_until =
            std::min(job.stands_until, standing_.since(job.key.n) + solver_.options().stand_max);
        alarms_.set(job);
    }
}

// The node offers less memory than before, and the job is one of those that go.
bool SuspendedJobs::has_no_room(const Job& job, const Node& at) const {
    int64_t missing = at.used_mb - at.record.report.memory_mb;
    for (const auto& [id, one] : at.jobs) {
        const JobReport& r = one->record.report;
        const bool goes = r.in_place && r.where == at.id() && Orders::in_transit(*one);
        if (goes && Orders::heading_for(*one).empty()) missing -= r.terms.memory_mb;
    }
    if (missing <= 0) return false;
    const std::vector<uint64_t> all = StandingJobs::who_goes(standing_on(at), missing);
    return std::find(all.begin(), all.end(), job.key.n) != all.end();
}

Reason SuspendedJobs::why_to_disk(const Job& job) const {
    if (!Places::stands(job)) return {};
    const JobRecord& r = job.record;
    const Node* const at = book_.find_node(r.report.where);
    if (!at || !at->connected || Places::stands_fast(job)) return {};
    if (holds_back(r.hold) || (job.once && job.once->empty())) return ReasonCode::frozen_by_hand;
    if (is_closed(*at)) return Reason(ReasonCode::provider_gone).with(Figure::node, at->id());
    if (has_no_room(job, *at)) return Reason(ReasonCode::memory_less).with(Figure::node, at->id());
    if (!r.report.terms.resources.empty())
        return Reason(ReasonCode::resource_stands).with(Figure::node, at->id());
    if (!job.stood_enough) return {};
    return Reason(ReasonCode::stood_enough).with(Figure::node, at->id());
}

std::vector<Job*> SuspendedJobs::who_goes(const Node& node, Nanos now) {
    std::vector<Job*> all;
    std::vector<StandingJobs::One> standing = standing_on(node);
    if (standing.empty()) return all;
    for (const uint64_t key : StandingJobs::who_goes(std::move(standing), missing_mb(node))) {
        Job* const job = book_.job_of(JobKey{key});
        if (!job) continue;
        standing_.wanted(key, now);
        all.push_back(job);
    }
    return all;
}

}  // namespace souk::market
