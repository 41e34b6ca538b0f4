// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/lent_jobs.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/text.hpp"
#include "market/core/claims.hpp"

namespace souk::market {

namespace {

bool is_at(const NodeName& node, const std::string& site) { return of_site(node).site == site; }

// It is on a node of its own site, or on its way from there: for the other site it is frozen there.
void not_there_yet(JobReport& r, const std::string& site) {
    const bool goes = r.phase == JobPhase::moving || r.phase == JobPhase::thawing;
    r.phase = goes && is_at(r.to, site) ? JobPhase::thawing : JobPhase::frozen;
    if (r.phase == JobPhase::frozen) r.to.clear();
    r.in_place = r.stands = false;
    r.cannot_move = souk::Cause();
    r.paused = souk::Cause();
    r.pid = 0;
    r.stay_run = Nanos{-1};
}

}  // namespace

void LentJobs::resume(Job& job, Nanos now) {
    if (is_lent(job)) waits_[job.id()] = now + wait_most;
    if (job.record.loan->asked) end(job);
}

bool LentJobs::may_go(const Job& job, const std::string& site) {
    const Loan& loan = *job.record.loan;
    return loan.site.empty() && loan.been.size() < Loan::been_max &&
           std::ranges::find(loan.been, site) == loan.been.end();
}

Status LentJobs::lend(Job& job, const std::string& site, Nanos now) {
    const JobReport& r = job.record.report;
    // An operator's wish names a place here.
    if (!may_go(job, site) || r.phase != JobPhase::waiting || job.record.order || !job.reported ||
        job.once || must_stop(job))
        return fail("job " + job.id().text() + " does not go to site " + site + " now");
    Loan loan = *job.record.loan;
    loan.site = site;
    loan.over = loan.recalled = loan.asked = false;
    loan.seq = loan.its_seq = 0;
    loan.run = r.stats.run_time;
    loan.priced = false;
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

void LentJobs::ask(Job& job, const std::string& site, const NodeName& node) {
    Loan loan = *job.record.loan;
    loan.site = site;
    loan.asked = true;
    loan.over = loan.recalled = false;
    loan.seq = loan.its_seq = 0;
    loan.priced = false;
    loan.been.push_back(site);
    job.record.loan = std::move(loan);
    by_hand_[job.id()] = ByHand{};
    by_hand_[job.id()].node = node;
    due_.insert(job.id());
    book_.save(job);
}

void LentJobs::take_back(Job& job, const souk::Cause& why) {
    if (!job.record.loan->asked) return;
    end(job);
    if (!why.empty()) give_up(job, why);
}

void LentJobs::call_back(const Job& job, const NodeName& node) {
    by_hand_[job.id()] = ByHand{};
    by_hand_[job.id()].node = node;
}

const NodeName* LentJobs::comes_back(const Job& job) const {
    const auto it = by_hand_.find(job.id());
    const bool is = it != by_hand_.end() && is_lent(job) && job.once == it->second.node;
    return is ? &it->second.node : nullptr;
}

const Node* LentJobs::way_back(const Job& job) const {
    const NodeName* const back = comes_back(job);
    const Node* const from = back ? book_.find_node(job.record.report.where) : nullptr;
    return from && from->connected ? book_.find_node(*back) : nullptr;
}

void LentJobs::has_place(const Job& job) {
    if (!std::exchange(by_hand_[job.id()].has_place, true)) due_.insert(job.id());
}

// An order by hand has come to nothing, and the operator hears why.
void LentJobs::give_up(Job& job, const souk::Cause& why) {
    by_hand_.erase(job.id());
    job.once.reset();
    Failed& failed = job.failed.edit();
    ++failed.times;
    failed.last = why;
    work_.touch(job);
}

bool LentJobs::settle(Job& job) {
    const JobReport& r = job.record.report;
    const bool is_steady = r.phase == JobPhase::frozen || r.phase == JobPhase::running;
    if (!is_lent(job) || !is_steady || job.record.order || is_at(r.where, job.record.loan->site))
        return false;
    end(job);
    return true;
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
    const bool asked = job.record.loan->asked;
    if ((!is_lent(job) && !asked) || job.record.loan->site != site ||
        job.phase() == JobPhase::finished)
        return fail(CauseCode::not_allowed, "the job is not given to site " + site);
    if (asked && (!runs || job.phase() != JobPhase::running))
        return fail(CauseCode::not_possible, "the job is not there yet");
    if (const auto wish = by_hand_.find(job.id()); asked && wish != by_hand_.end() &&
                                                   !wish->second.node.empty() &&
                                                   wish->second.node != order.node)
        return fail(CauseCode::not_allowed, "the job goes to " + wish->second.node);
    if (runs && must_stop(job))
        return fail(CauseCode::not_possible, "the job is stopped by its own site");
    const NodeName* const back = runs ? comes_back(job) : nullptr;
    if (runs && !is_at(order.node, site) && !(back && *back == order.node))
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
    const bool back = runs && !is_at(order.node, job.record.loan->site);
    // Nothing stops a job at the word of another site but a freeze, from which it comes home.
    Order own = orders_.make(job, runs ? Order::Kind::run : Order::Kind::suspend,
                             runs ? order.node : NodeName{}, order.reason);
    own.stand = !runs && order.stand;
    own.books = true;
    if (runs) {
        const Node& to = book_.node(order.node);
        claims::ordered(job, to);
        own.address = back ? to.record.address : order.address;
        (back ? own.source_ticket : own.ticket) = order.ticket;
        own.speed = std::clamp<int64_t>(back ? to.record.report.speed : order.speed, 1, speed_max);
        own.price = std::clamp(back ? job.record.price : order.price, Money{},
                               job.record.report.terms.max_price);
        own.resources = *job.record.report.terms.resources;
        if (job.phase() != JobPhase::running) job.record.price = own.price;
    }
    // One that is asked for, or about, is given now. Any other of its orders to run leaves the
    // wish as it is, and a freeze ends it.
    if (job.record.loan->asked) {  // only now it leaves the place where it was held
        job.record.hold = Hold::none;
        job.record.hold_node.clear();
        job.once.reset();
    }
    if (back || job.record.loan->asked)
        by_hand_.erase(job.id());
    else if (!runs && comes_back(job))
        give_up(job, souk::Cause("site " + job.record.loan->site + " freezes it"));
    Loan loan = *job.record.loan;
    loan.seq = own.seq;
    loan.its_seq = order.seq;
    loan.asked = false;
    loan.priced = runs && !back;
    loan.price = own.price;
    job.record.loan = std::move(loan);
    issue(job, std::move(own), now);
}

void LentJobs::issue(Job& job, Order order, Nanos now) {
    if (orders_.next_seq() > book_.meta().seq_limit) book_.save_meta();
    Orders::give(job, order, now);
    book_.save(job);
    rooms_.claim(job);
    work_.touch(job);
    alarms_.set(job);
    orders_out_.push_back({job.id().home, std::move(order)});
}

void LentJobs::send_back(Job& job, const Node& to, const std::string& address, Nanos now) {
    const auto& bars = job.failed->bars;
    const auto bar = bars.find(to.id());
    if (job.phase() != JobPhase::running || Orders::in_transit(job) || !job.reported ||
        job.record.cancel || (bar != bars.end() && bar->second.active))
        return;
    Order order = orders_.make(job, Order::Kind::run, to.id(), "its own site takes it back");
    claims::ordered(job, to);
    order.address = address;
    order.price = job.record.price;
    order.books = true;
    order.resources = *job.record.report.terms.resources;
    issue(job, std::move(order), now);
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
    if (loan.asked) {
        if (word.no.empty() && !word.note.settled) {
            by_hand_[job.id()].said = word.note.comment;
            return;
        }
        if (!word.no.empty()) {  // it has not been there
            Loan never = loan;
            if (!never.been.empty()) never.been.pop_back();
            job.record.loan = std::move(never);
        }
        return take_back(job, word.no.empty()
                                  ? souk::Cause("site " + site + " does not take it")
                                  : word.no.within("site " + site + " does not take it: "));
    }
    if (!word.no.empty() || word.note.settled) {
        if (job.phase() == JobPhase::waiting && !job.record.order) return end(job);
        return recall(job);
    }
    const Money price = std::clamp(word.note.price, Money{}, job.record.report.terms.max_price);
    if (job.phase() == JobPhase::running && is_at(job.record.report.where, site) &&
        billing_.set_price(job, price, now))
        notes_.of(job);
}

void LentJobs::reported(Job& job, Nanos now) {
    if (job.record.loan->site.empty()) return;
    due_.insert(job.id());
    const JobReport& r = job.record.report;
    if (job.record.loan->asked) {
        if (r.phase != JobPhase::running || job.record.order) take_back(job, {});
        return;
    }
    if (!is_lent(job)) return;
    if (r.phase == JobPhase::finished) return end(job);
    if (settle(job)) return;
    const bool runs = r.phase == JobPhase::running;
    if (runs && !job.record.order && job.record.loan->priced) {  // it has come
        Loan loan = *job.record.loan;
        const Money price = loan.price;
        loan.priced = false;
        job.record.loan = std::move(loan);
        if (billing_.set_price(job, price, now)) notes_.of(job);
        book_.save(job);
    }
    if (comes_back(job) && !runs && r.phase != JobPhase::moving)
        give_up(job, souk::Cause("it does not run at site " + job.record.loan->site + " any more"));
    if (r.phase != JobPhase::waiting)
        waits_.erase(job.id());
    else
        waits_.try_emplace(job.id(), now + wait_most);
}

void LentJobs::failed(Job& job, const OrderFailed& failed) {
    const Loan& loan = *job.record.loan;
    if (loan.site.empty() || failed.seq != loan.seq) return;
    OrderFailed its = failed;
    its.seq = loan.its_seq;
    its.node = of_site(its.node).site == loan.site ? its.node : NodeName{};
    if (failures_.size() < 10'000) failures_.push_back({loan.site, std::move(its)});
    if (!loan.priced) return;
    Loan none = loan;
    none.priced = false;
    job.record.loan = std::move(none);
    book_.save(job);
}

void LentJobs::end(Job& job) {
    waits_.erase(job.id());
    by_hand_.erase(job.id());
    due_.insert(job.id());
    const JobReport& r = job.record.report;
    Loan loan = *job.record.loan;
    loan.over = true;
    loan.asked = false;
    loan.priced = false;
    // One that has come back may have run here since.
    const bool here = r.stay_run.ns >= 0 && !r.where.empty() && !is_at(r.where, loan.site);
    loan.run = here ? std::min(r.stay_run, r.stats.run_time) : r.stats.run_time;
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
    look_by_hand(now);
}

void LentJobs::look_by_hand(Nanos now) {
    std::vector<JobId> over;
    for (auto& [id, wish] : by_hand_) {
        const Job* const job = book_.find(id);
        const bool stands = job && (job->record.loan->asked || comes_back(*job));
        if (wish.until == Nanos{}) wish.until = now + wait_most;
        if (!stands || wish.until <= now) over.push_back(id);
        if (!stands || !wish.has_place || now < wish.again) continue;
        wish.again = now + ask_again;
        due_.insert(id);
    }
    for (const JobId& id : over) {
        Job* const job = book_.find(id);
        const std::string said = std::exchange(by_hand_[id].said, {});
        by_hand_.erase(id);
        if (!job) continue;
        const std::string site = "site " + job->record.loan->site;
        if (job->record.loan->asked)
            take_back(*job, souk::Cause(CauseCode::away, site + " gave it no place within 30 s" +
                                                             (said.empty() ? "" : ": " + said)));
        else if (is_lent(*job) && job->once && !job->once->empty())
            give_up(*job, souk::Cause(CauseCode::away, site + " did not let it go within 30 s"));
    }
}

Nanos LentJobs::next() const {
    Nanos at = Nanos::never();
    for (const auto& [id, until] : waits_) at = std::min(at, until);
    for (const auto& [id, wish] : by_hand_)
        at = std::min(at, wish.has_place ? std::min(wish.until, wish.again) : wish.until);
    return at;
}

// Another site hears this of the job, in the names that are used here. Its command line, name and
// array are its user's business.
SiteJob LentJobs::told(const Job& job) const {
    const Loan& loan = *job.record.loan;
    SiteJob word;
    JobReport& r = word.report;
    r = job.record.report;
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
    if (!loan.over && r.phase != JobPhase::finished) {
        if (!r.where.empty() && elsewhere(r.where)) not_there_yet(r, loan.site);
        const auto by_hand = by_hand_.find(job.id());
        if (by_hand == by_hand_.end()) return word;
        if (loan.asked) r.only_node = by_hand->second.node;
        if (comes_back(job) && by_hand->second.has_place) {
            word.to = by_hand->second.node;
            word.address = book_.node(word.to).record.address;
        }
        return word;
    }
    // That site charges for nothing that it runs here.
    if (elsewhere(r.where)) r.stay_run = Nanos{-1};
    if (loan.over) r.stats.run_time = loan.run;
    const bool ended_there =
        r.phase == JobPhase::finished && (r.where.empty() || !elsewhere(r.where));
    if (ended_there) return word;
    r.phase = JobPhase::finished;
    r.why = souk::Cause("it went home");
    return word;
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
