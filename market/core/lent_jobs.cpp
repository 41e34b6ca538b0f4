// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/lent_jobs.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/text.hpp"
#include "market/core/claims.hpp"

namespace souk::market {

namespace {

bool is_at(const NodeName& node, const std::string& site) { return of_site(node).site == site; }

}  // namespace

void LentJobs::resume(const Job& job, Nanos now) {
    if (is_lent(job)) waits_[job.id()] = now + wait_most;
}

bool LentJobs::may_go(const Job& job, const std::string& site) {
    const Loan& loan = *job.record.loan;
    return loan.site.empty() && loan.been.size() < Loan::been_max &&
           std::ranges::find(loan.been, site) == loan.been.end();
}

Status LentJobs::lend(Job& job, const std::string& site, Nanos now) {
    const JobReport& r = job.record.report;
    if (!may_go(job, site) || r.phase != JobPhase::waiting || job.record.order || !job.reported)
        return fail("job " + job.id().text() + " does not go to site " + site + " now");
    Loan loan = *job.record.loan;
    loan.site = site;
    loan.over = loan.recalled = false;
    loan.seq = loan.its_seq = 0;
    loan.run = r.stats.run_time;
    loan.been.push_back(site);
    job.record.loan = std::move(loan);
    waits_[job.id()] = now + wait_most;
    due_.insert(job.id());
    book_.save(job);
    notes_.of(job);
    work_.touch(job);
    alarms_.set(job);
    return {};
}

bool LentJobs::must_stop(const Job& job) const {
    const JobRecord& r = job.record;
    return r.loan->recalled || r.cancel || r.out_of_budget || holds_back(r.hold) ||
           (job.once && job.once->empty()) || book_.may_not_run(*job.user) ||
           book_.lacks_project(job);
}

void LentJobs::recall(Job& job) {
    if (job.record.loan->recalled) return;
    Loan back = *job.record.loan;
    back.recalled = true;
    job.record.loan = std::move(back);
    book_.save(job);
    work_.touch(job);
}

Status LentJobs::may_order(const Job& job, const std::string& site, const Order& order) const {
    const bool runs = order.kind == Order::Kind::run;
    if (!is_lent(job) || job.record.loan->site != site || job.phase() == JobPhase::finished)
        return fail(CauseCode::not_allowed, "the job is not given to site " + site);
    if (runs && must_stop(job))
        return fail(CauseCode::not_possible, "the job is stopped by its own site");
    if (runs && !is_at(order.node, site))
        return fail(CauseCode::not_allowed, "a place is named that is not of site " + site);
    if (job.record.order || !job.reported)
        return fail(CauseCode::not_possible, "the job's home has another order to carry out");
    return {};
}

void LentJobs::pass(Job& job, const Order& order, Nanos now) {
    const bool runs = order.kind == Order::Kind::run;
    if (order.kind == Order::Kind::give_up) {
        if (job.phase() == JobPhase::waiting) end(job);
        return;
    }
    // Nothing stops a job at the word of another site but a freeze, from which it comes home.
    Order own = orders_.make(job, runs ? Order::Kind::run : Order::Kind::suspend,
                             runs ? order.node : NodeName{}, order.reason);
    own.stand = !runs && order.stand;
    own.books = true;
    if (runs) {
        claims::ordered(job, book_.node(order.node));
        own.address = order.address;
        own.ticket = order.ticket;
        own.speed = std::clamp<int64_t>(order.speed, 1, speed_max);
        own.price = std::clamp(order.price, Money{}, job.record.report.terms.max_price);
        own.resources = *job.record.report.terms.resources;
        if (job.phase() != JobPhase::running) job.record.price = own.price;
    }
    Loan loan = *job.record.loan;
    loan.seq = own.seq;
    loan.its_seq = order.seq;
    job.record.loan = std::move(loan);
    if (orders_.next_seq() > book_.meta().seq_limit) book_.save_meta();
    Orders::give(job, own, now);
    book_.save(job);
    rooms_.claim(job);
    work_.touch(job);
    alarms_.set(job);
    orders_out_.push_back({job.id().home, std::move(own)});
}

void LentJobs::heard(Job& job, const std::string& site, const SiteNote& word, Nanos now) {
    const Loan& loan = *job.record.loan;
    if (loan.site != site) return;
    if (loan.over) {
        if (!word.note.settled && word.no.empty()) return;
        Loan settled = loan;
        settled.site.clear();
        job.record.loan = std::move(settled);
        book_.save(job);
        return;
    }
    if (!word.no.empty() || word.note.settled) {
        if (job.phase() == JobPhase::waiting && !job.record.order) return end(job);
        return recall(job);
    }
    const Money price = std::clamp(word.note.price, Money{}, job.record.report.terms.max_price);
    if (job.phase() == JobPhase::running && is_at(job.record.report.where, site) &&
        price.micro > 0 && billing_.set_price(job, price, now))
        notes_.of(job);
}

void LentJobs::reported(Job& job, Nanos now) {
    if (job.record.loan->site.empty()) return;
    due_.insert(job.id());
    if (!is_lent(job)) return;
    const JobReport& r = job.record.report;
    const std::string& site = job.record.loan->site;
    const bool is_home =
        (r.phase == JobPhase::frozen || r.phase == JobPhase::running) && !is_at(r.where, site);
    if (r.phase == JobPhase::finished || is_home) return end(job);
    if (r.phase != JobPhase::waiting)
        waits_.erase(job.id());
    else
        waits_.try_emplace(job.id(), now + wait_most);
}

void LentJobs::failed(const Job& job, const OrderFailed& failed) {
    const Loan& loan = *job.record.loan;
    if (loan.site.empty() || failed.seq != loan.seq) return;
    OrderFailed its = failed;
    its.seq = loan.its_seq;
    its.node = of_site(its.node).site == loan.site ? its.node : NodeName{};
    if (failures_.size() < 10'000) failures_.push_back({loan.site, std::move(its)});
}

void LentJobs::end(Job& job) {
    waits_.erase(job.id());
    due_.insert(job.id());
    Loan loan = *job.record.loan;
    loan.over = true;
    loan.run = job.record.report.stats.run_time;
    job.record.loan = std::move(loan);
    book_.save(job);
    if (job.phase() == JobPhase::finished) return;
    notes_.of(job);
    work_.touch(job);
    alarms_.set(job);
}

void LentJobs::look(Nanos now) {
    std::vector<JobId> over;
    for (const auto& [id, until] : waits_)
        if (until <= now) over.push_back(id);
    for (const JobId& id : over) {
        waits_.erase(id);
        Job* const job = book_.find(id);
        if (!job || !is_lent(*job) || job->phase() != JobPhase::waiting) continue;
        if (job->record.order)
            waits_[id] = now + wait_most;  // an order is carried out, or given up
        else
            end(*job);
    }
}

Nanos LentJobs::next() const {
    Nanos at = Nanos::never();
    for (const auto& [id, until] : waits_) at = std::min(at, until);
    return at;
}

// Another site hears this of the job, in the names that are used here. Its command line, name and
// array are its user's business.
JobReport LentJobs::told(const Job& job) {
    const Loan& loan = *job.record.loan;
    JobReport r = job.record.report;
    r.terms = told_to_sites(job.record.report.terms);
    r.name.clear();
    r.command.clear();
    r.array = std::string();
    r.array_index = 0;
    r.places.clear();
    r.checkpoint_node = NodeName();
    r.checkpoint_trouble = std::string();
    const auto elsewhere = [&](const NodeName& node) { return !is_at(node, loan.site); };
    std::erase_if(r.lacking, elsewhere);
    std::erase_if(r.no_user, elsewhere);
    r.order_seq = r.order_seq >= loan.seq ? loan.its_seq : 0;
    if (!loan.over || r.phase == JobPhase::finished) return r;
    r.phase = JobPhase::finished;
    r.why = souk::Cause("it went home");
    r.stats.run_time = loan.run;
    return r;
}

std::vector<LentJobs::Word> LentJobs::take_words() {
    std::vector<Word> words;
    for (const JobId& id : std::exchange(due_, {}))
        if (const Job* const job = book_.find(id); job && !job->record.loan->site.empty())
            words.push_back({job->record.loan->site, told(*job)});
    return words;
}

void LentJobs::tell_all(const std::string& site) {
    for (const auto& [id, job] : book_.jobs())
        if (job.record.loan->site == site) due_.insert(id);
}

}  // namespace souk::market
