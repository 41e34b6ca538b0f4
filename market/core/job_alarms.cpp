// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/job_alarms.hpp"

#include <algorithm>

#include "market/core/bill.hpp"

namespace souk::market {

void JobAlarms::set(Job& job) {
    Nanos at = Nanos::never();
    if (job.phase() != JobPhase::finished) {
        at = std::min({orders_.due(job), bill::budget_end(job), job.bid_until, job.weighs_until,
                       job.called_back_at, job.proof_by});
        if (!job.stood_enough) at = std::min(at, job.stands_until);
        if (job.run_since != Nanos::never()) at = std::min(at, surely_stopped(job));
    }
    alarms_.set(job.alarm, job.id(), at);
}

Nanos JobAlarms::surely_stopped(const Job& job) const {
    const JobReport& r = job.record.report;
    Nanos at = Nanos::never();
    if (const Node* node = book_.find_node(r.where); node && !node->connected)
        at = node->lost_at + context_.options.grace;
    const Node* home = book_.home_of(job);
    if (r.alone.ns > 0 && home && !home->connected) at = std::min(at, home->lost_at + r.alone);
    return at;
}

Job* JobAlarms::take_due(Nanos now) {
    const auto due = alarms_.due(now);
    if (!due) return nullptr;
    Job& job = book_.jobs().at(*due);
    alarms_.set(job.alarm, *due, Nanos::never());
    return &job;
}

}  // namespace souk::market
