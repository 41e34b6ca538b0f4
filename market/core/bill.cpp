// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/bill.hpp"

#include <algorithm>

#include "market/core/use_check.hpp"

namespace souk::market::bill {
namespace {
// A receipt holds one price if that lasts for so long; a job that runs on has one at least so
// often.
constexpr Nanos receipt_min = Nanos::from_s(10), receipt_max = Nanos::from_s(3'600);
}  // namespace

Nanos run_time(const Job& job, Nanos now) {
    if (job.run_since == Nanos::never()) return job.run_base;
    return job.run_base + std::max(Nanos{0}, now - job.run_since);
}

Money cost(const Job& job, Nanos now) {
    const JobRecord& r = job.record;
    // Nothing more is charged to a full account (Billing::room_for).
    if (r.finish_seq > 0 || job.user->is_full) return r.account.amount;
    Account account = r.account;
    account.charge(r.price, r.report.terms.cpus, run_time(job, now) - r.billed,
                   r.report.terms.budget, job.user->left());
    return account.amount;
}

Nanos budget_end(const Job& job) {
    const JobRecord& r = job.record;
    if (job.run_since == Nanos::never() || r.out_of_budget) return Nanos::never();
    const Nanos left = r.account.left(r.price, r.report.terms.cpus, r.report.terms.budget);
    if (left == Nanos::never()) return left;
    // run time r.billed was at run_since + this
    const Nanos since_billed = r.billed - job.run_base;
    return job.run_since + since_billed + left;
}

bool is_used_up(const Job& job) {
    const JobRecord& r = job.record;
    const JobTerms& terms = r.report.terms;
    if (terms.budget.micro <= 0) return false;
    return r.account.amount >= terms.budget ||
           (r.report.phase == JobPhase::frozen &&
            r.account.left(r.price, terms.cpus, terms.budget) < rest_min);
}

Money charge(Job& job, Nanos ran, Nanos unix_now, Money room) {
    JobRecord& r = job.record;
    const Nanos span = ran - r.billed;
    const Money cost = r.account.charge(r.price, r.report.terms.cpus, span, r.report.terms.budget,
                                        std::min(job.user->left(), room));
    r.tab.add(r.price, span, cost, unix_now);
    r.billed = ran;
    return cost;
}

const std::string& payer_name(const Job& job) {
    return job.record.payer != 0 ? job.user->record.name : job.record.report.user;
}

std::optional<Receipt> close_tab(Job& job) {
    JobRecord& r = job.record;
    if (r.tab.empty()) return std::nullopt;
    Receipt receipt;
    receipt.job = job.id();
    receipt.uid = job.user->record.uid;
    receipt.user = payer_name(job);
    receipt.node = r.payee;
    receipt.from = r.tab.from;
    receipt.to = r.tab.to;
    receipt.run = r.tab.run;
    // a home that restarted may know less
    const Nanos cpu = std::max(r.tab.cpu, r.report.stats.cpu_time);
    receipt.cpu = cpu - r.tab.cpu;
    const FilesUse& files = r.report.files;
    const auto files_out = std::max(r.tab.files_out, files.out_bytes),
               files_in = std::max(r.tab.files_in, files.in_bytes),
               files_requests = std::max(r.tab.files_requests, files.requests);
    receipt.files_out = files_out - r.tab.files_out;
    receipt.files_in = files_in - r.tab.files_in;
    receipt.files_requests = files_requests - r.tab.files_requests;
    receipt.price = r.tab.price;
    receipt.cpus = r.report.terms.cpus;
    receipt.paid = receipt.earned = r.tab.amount;
    receipt.decided_from = r.tab.decided;
    Tab next;
    next.to = r.tab.to;
    next.cpu = cpu;
    next.files_out = files_out;
    next.files_in = files_in;
    next.files_requests = files_requests;
    r.tab = next;
    return receipt;
}

void begin_tab(Job& job) {
    const JobReport& r = job.record.report;
    Tab& tab = job.record.tab;
    if (!tab.empty()) return;
    job.record.ran_since = {};  // it runs elsewhere meanwhile, and its home says so late
    tab.cpu = r.stats.cpu_time;
    tab.files_out = r.files->out_bytes;
    tab.files_in = r.files->in_bytes;
    tab.files_requests = r.files->requests;
}

bool is_due_at_price(const Job& job) {
    return job.record.tab.to - job.record.tab.from >= receipt_min;
}
bool is_due(const Job& job) { return job.record.tab.to - job.record.tab.from >= receipt_max; }

Reading read(Job& job, const JobReport& before, Nanos ran) {
    JobRecord& record = job.record;
    const JobReport& r = record.report;
    const bool stopped = r.phase == JobPhase::waiting || r.phase == JobPhase::frozen ||
                         r.phase == JobPhase::finished;
    const bool running = r.phase == JobPhase::running;
    const bool complete = stopped || (running && (r.stands || r.epoch != before.epoch));
    Nanos sum = r.stats.run_time + record.skew;
    // A sum that falls short by more is that of a home that restarted and forgot a stretch.
    if (complete && sum + use_check::clock_tolerance < ran) {
        record.skew = ran - r.stats.run_time;
        sum = ran;
    }
    return {complete ? sum : std::max(ran, sum), complete};
}

std::optional<Nanos> share_of_former(const Job& job, Nanos total) {
    const JobRecord& record = job.record;
    const JobReport& r = record.report;
    const bool has_run = r.phase == JobPhase::running || r.phase == JobPhase::freezing ||
                         r.phase == JobPhase::moving || r.phase == JobPhase::frozen ||
                         r.phase == JobPhase::finished;
    if (!has_run || r.stay_run.ns < 0 || r.where.empty() || r.where == record.payee)
        return std::nullopt;
    return use_check::end_of_newest(record, r.stay_run + record.skew, total);
}

}  // namespace souk::market::bill
