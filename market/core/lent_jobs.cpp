// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/lent_jobs.hpp"

#include <algorithm>
#include <utility>
#include <variant>

#include "kernel/base/text.hpp"
#include "market/core/claims.hpp"
#include "market/core/gang_list.hpp"
#include "market/core/loan_bounds.hpp"
#include "market/core/submit_filter.hpp"

namespace souk::market {
namespace {

bool is_at(const NodeName& node, const std::string& site) { return of_site(node).site == site; }

// It is on a node of its own site, or on its way from there: for the other site it is frozen there.
void not_there_yet(JobReport& r, const std::string& site) {
    const bool goes = r.phase == JobPhase::moving || r.phase == JobPhase::thawing;
    r.phase = goes && is_at(r.to, site) ? JobPhase::thawing : JobPhase::frozen;
    if (r.phase == JobPhase::frozen) r.to.clear();
    r.in_place = r.stands = false;
    r.cannot_move = r.paused = souk::Cause();
    r.pid = 0;
    r.stay_run = Nanos{-1};
}

}  // namespace

void LentJobs::resume(Job& job, Nanos now) {
    now_ = std::max(now_, now);
    if (is_lent(job)) waits_[job.id()] = now + wait_most;
    if (!job.record.loan->site.empty() && job.record.loan->over) unsettled_[job.id()] = {};
    if (job.record.loan->asked) end(job);
}

Nanos LentJobs::rests_until(const Job& job, const std::string& site, Nanos now) const {
    const Loan& loan = *job.record.loan;
    const Nanos unix = context_.unix(now);
    Nanos until = loan.trips - Nanos{trip_apart.ns * (trips_at_once - 1)};
    // A clock that has been set back keeps no job for long, and pays no trip off.
    until = std::min(until, unix + trip_apart);
    const auto visit = std::ranges::find(loan.visits, site, &SiteVisit::site);
    if (visit != loan.visits.end())
        until = std::max(until, std::min(visit->again, unix + rest_most));
    return until;
}

bool LentJobs::may_go(const Job& job, const std::string& site, Nanos now) const {
    return job.record.loan->site.empty() && !SubmitFilter::is_barred(job, site) &&
           !is_unsettled(job, site) && rests_until(job, site, now) <= context_.unix(now);
}

bool LentJobs::is_unsettled(const Job& job, const std::string& site) {
    return std::ranges::any_of(job.record.loan->visits, [&](const SiteVisit& visit) {
        return visit.owed != 0 && visit.site == site;
    });
}

int64_t LentJobs::speed_there(const Job& job) const {
    const Loan& loan = *job.record.loan;
    const NodeName& where = job.record.report.where;
    const bool is_away = !loan.site.empty() && is_at(where, loan.site);
    const Node* const node = book_.find_node(where);
    return is_away && loan.speed > 0 ? loan.speed : node ? node->record.report.speed : 0;
}

std::vector<std::string> LentJobs::left_lately(const Job& job, Nanos now) const {
    const Loan& loan = *job.record.loan;
    const Nanos unix = context_.unix(now);
    const auto is_late = [&](Nanos at) {
        return at.ns > 0 && at <= unix && unix < at + left_lately_span;
    };
    std::vector<std::string> sites;
    if (is_lent(job)) {
        if (is_late(loan.came)) sites.emplace_back();
        return sites;
    }
    for (const SiteVisit& visit : loan.visits)
        if (is_late(visit.left)) sites.push_back(visit.site);
    return sites;
}

Loan LentJobs::begun(const Job& job, const std::string& site, bool by_markets) const {
    Loan loan = *job.record.loan;
    loan.site = site;
    loan.over = loan.recalled = loan.asked = loan.priced = false;
    loan.seq = loan.its_seq = 0;
    loan.by_markets = by_markets;
    loan.came = {};
    loan.speed = 0;
    // A market whose records are of before counts on by the time, as the other one may have heard
    // of later numbers.
    const auto ms = static_cast<uint64_t>(std::max<int64_t>(0, context_.unix(now_).ns)) / 1'000'000;
    loan.number = std::max(loan.number + 1, ms);
    return loan;
}

bool LentJobs::may_begin(const Job& job, const std::string& site, Nanos now) const {
    if (!may_go(job, site, now)) return false;
    if (job.phase() == JobPhase::waiting)
        return !job.record.order && job.reported && !job.once && !must_stop(job);
    return may_move(job) && of_site(job.record.report.where).site.empty();
}

void LentJobs::give_back(Job& job, const souk::Cause& why) {
    if (job.record.loan->asked) return take_back(job, why);
    recall(job);
    (void)settle(job);
}

Status LentJobs::lend(Job& job, const std::string& site, Nanos now) {
    if (job.phase() != JobPhase::waiting || !may_begin(job, site, now))
        return fail("job " + job.id().text() + " does not go to site " + site + " now");
    Loan loan = begun(job, site, true);
    loan.run = job.record.report.stats.run_time;
    job.record.loan = std::move(loan);
    waits_[job.id()] = now + wait_most;
    due_.insert(job.id());
    book_.save(job);
    notes_.of(job);
    work_.touch(job);
    alarms_.set(job);
    return {};
}

void LentJobs::ask(Job& job, const std::string& site, const NodeName& node, const Reason& gain) {
    Loan loan = begun(job, site, !gain.empty());
    loan.asked = true;
    job.record.loan = std::move(loan);
    Wish wish;
    wish.node = node;
    wish.gain = gain;
    wishes_[job.id()] = std::move(wish);
    due_.insert(job.id());
    book_.save(job);
}

// It runs, or its image lies on a disk, and nobody wishes otherwise.
bool LentJobs::may_move(const Job& job) const {
    const JobReport& r = job.record.report;
    const bool is_still = r.phase == JobPhase::frozen && !r.in_place;
    return (r.phase == JobPhase::running || is_still) && job.reported && !job.record.order &&
           r.cannot_move.empty() && !r.stands && !job.once && job.via.empty() &&
           job.record.hold == Hold::none && !job.failed->stuck.active && !must_stop(job);
}

Status LentJobs::go(Job& job, const std::string& site, const Reason& gain, Nanos now) {
    if (job.phase() == JobPhase::waiting || !may_begin(job, site, now))
        return fail("job " + job.id().text() + " does not go to site " + site + " now");
    ask(job, site, {}, gain);
    job.site_word = gain;
    return {};
}

Status LentJobs::go_home(Job& job, const NodeName& node, const std::optional<SiteMove>& move,
                         const Reason& gain) {
    const auto home = std::ranges::find(job.record.loan->visits, std::string(), &SiteVisit::site);
    const bool rests = home != job.record.loan->visits.end() &&
                       std::min(home->again, context_.unix(now_) + rest_most) > context_.unix(now_);
    if (!is_lent(job) || rests || !may_move(job) || job.phase() != JobPhase::running ||
        wishes_.contains(job.id()))
        return fail("job " + job.id().text() + " does not come home now");
    Wish wish;
    wish.node = node;
    wish.gain = gain;
    wish.move = move;
    wishes_[job.id()] = std::move(wish);
    job.site_word = gain;
    work_.touch(job);
    return {};
}

bool LentJobs::goes_to(const Job& job, const Node& to, Money price) {
    const auto it = wishes_.find(job.id());
    if (it == wishes_.end() || it->second.has_place) return false;
    const std::optional<SiteMove>& move = it->second.move;
    if (move && !gain_of(*move, {price, to.record.report.speed, {}}, "").pays) return false;
    it->second.node = to.id();
    return true;
}

void LentJobs::take_back(Job& job, const souk::Cause& why) {
    if (!job.record.loan->asked) return;
    const auto wish = wishes_.extract(job.id());
    const bool is_for_gain = !wish.empty() && !wish.mapped().gain.empty();
    // A site that has too much to do now has not failed.
    end(job, why.code != CauseCode::too_many);
    if (is_for_gain) wishes_[job.id()].gain = wish.mapped().gain;
    if (is_for_gain || !why.empty())
        give_up(job, why.empty() ? souk::Cause("its own site has decided otherwise") : why);
}

void LentJobs::call_back(const Job& job, const NodeName& node) {
    Wish wish;
    wish.node = node;
    wishes_[job.id()] = std::move(wish);
}

const NodeName* LentJobs::comes_back(const Job& job) const {
    const auto it = wishes_.find(job.id());
    if (it == wishes_.end() || !is_lent(job)) return nullptr;
    const Wish& wish = it->second;
    return job.once == wish.node || !wish.gain.empty() ? &wish.node : nullptr;
}

bool LentJobs::wants_home(const Job& job) const {
    const auto it = wishes_.find(job.id());
    return it != wishes_.end() && !it->second.gain.empty() && way_back(job) && !must_stop(job);
}

const Node* LentJobs::way_back(const Job& job) const {
    const NodeName* const back = comes_back(job);
    const Node* const from = back ? book_.find_node(job.record.report.where) : nullptr;
    return from && from->connected ? book_.find_node(*back) : nullptr;
}

void LentJobs::has_place(const Job& job) {
    if (!std::exchange(wishes_[job.id()].has_place, true)) due_.insert(job.id());
}

void LentJobs::lost_place(Job& job) { give_up(job, souk::Cause("another has its place there")); }

// A move has come to nothing. The operator who wanted it hears why; else it is said beside the
// job's other reasons.
void LentJobs::give_up(Job& job, const souk::Cause& why) {
    const Reason gain = wishes_[job.id()].gain;
    wishes_.erase(job.id());
    if (!gain.empty()) {
        // A way home that came to nothing may have made others leave for it.
        if (is_lent(job)) {
            loan_bounds::rest(job.record.loan.edit(), {}, false, context_.unix(now_));
            book_.save(job);
        }
        job.site_word = Reason(ReasonCode::site_refused).with(Figure::cause, why);
        work_.touch(job);
        return;
    }
    job.once.reset();
    Failed& failed = job.failed.edit();
    ++failed.times;
    failed.last = why;
    work_.touch(job);
}

bool LentJobs::settle(Job& job) {
    const JobReport& r = job.record.report;
    // A component that is called back and was not started is no more away.
    const bool is_back = is_component(job) && job.record.loan->recalled;
    const bool is_steady = r.phase == JobPhase::frozen || r.phase == JobPhase::running ||
                           (is_back && r.phase == JobPhase::waiting);
    if (!is_lent(job) || !is_steady || job.record.order || is_at(r.where, job.record.loan->site))
        return false;
    end(job);
    return true;
}

bool LentJobs::must_stop(const Job& job) const {
    const JobRecord& r = job.record;
    return (is_away(job) && r.loan->recalled) || r.cancel || r.out_of_budget ||
           holds_back(r.hold) || (job.once && job.once->empty()) || book_.may_not_run(*job.user) ||
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

Status LentJobs::may_order(const Job& job, const std::string& site, const Order& order,
                           uint64_t number) const {
    const bool runs = order.kind == Order::Kind::run;
    const Loan& loan = *job.record.loan;
    const bool asked = loan.asked;
    const bool is_over = job.phase() == JobPhase::finished;
    const bool is_old = number != 0 && number != loan.number;
    if ((!is_lent(job) && !asked) || loan.site != site || is_old || is_over)
        return fail(CauseCode::not_allowed, "the job is not given to site " + site);
    const bool is_still = job.phase() == JobPhase::frozen && !job.record.report.in_place;
    if (asked && (!runs || (job.phase() != JobPhase::running && !is_still)))
        return fail(CauseCode::not_possible, "the job is not there yet");
    if (const auto wish = wishes_.find(job.id()); asked && wish != wishes_.end() &&
                                                  !wish->second.node.empty() &&
                                                  wish->second.node != order.node)
        return fail(CauseCode::not_allowed, "the job goes to " + wish->second.node);
    if (runs && must_stop(job))
        return fail(CauseCode::not_possible, "the job is stopped by its own site");
    const NodeName* const back = runs ? comes_back(job) : nullptr;
    if (runs && !is_at(order.node, site) && !(back && *back == order.node))
        return fail(CauseCode::not_allowed, "a place is named that is not of site " + site);
    // Its home holds it for its gang, freezes it with the others, or has done so meanwhile.
    const bool goes = is_on_its_way(job) || job.phase() == JobPhase::starting;
    const bool stops = order.kind == Order::Kind::suspend && !job.record.report.in_place;
    if (is_component(job) && (goes || (stops && job.phase() != JobPhase::running)))
        return fail(CauseCode::not_possible, "the job does not run");
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
    const auto wish = wishes_.find(job.id());
    const bool gains = runs && wish != wishes_.end() && !wish->second.gain.empty() &&
                       (back || job.record.loan->asked);
    // Nothing stops a job at the word of another site but a freeze, from which it comes home.
    Order own = orders_.make(job, runs ? Order::Kind::run : Order::Kind::suspend,
                             runs ? order.node : NodeName{},
                             gains ? wish->second.gain.text() : order.reason);
    own.stand = !runs && order.stand;
    own.books = true;
    // The home holds a component until all of its gang are held.
    own.hold = runs && is_component(job) && job.phase() == JobPhase::waiting;
    own.layouts = own.near = is_component(job);
    if (runs) {
        const Node& to = book_.node(order.node);
        claims::ordered(job, to);
        own.address = back ? to.record.address : order.address;
        (back ? own.source_ticket : own.ticket) = order.ticket;
        own.speed = std::clamp<int64_t>(back ? to.record.report.speed : order.speed, 1, speed_max);
        own.price = std::clamp(back ? job.record.price : order.price, Money{},
                               most_elsewhere(job.record.report.terms));
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
        wishes_.erase(job.id());
    else if (!runs && comes_back(job))
        give_up(job, souk::Cause("site " + job.record.loan->site + " freezes it"));
    Loan loan = *job.record.loan;
    if (runs && !back) loan.speed = own.speed;
    loan.seq = own.seq;
    loan.its_seq = order.seq;
    loan.asked = false;
    loan.priced = runs && !back;
    loan.price = own.price;
    job.record.loan = std::move(loan);
    issue(job, std::move(own), now);
}

// It is at no other site any more. What came to nothing there, or was short, is tried again after
// pauses that double.
void LentJobs::settled(Loan& loan, bool failed, Nanos now) const {
    const Nanos unix = context_.unix(now);
    const std::string site = std::exchange(loan.site, {});
    if (loan.came.ns == 0 && (!loan.by_markets || !failed)) return;
    SiteVisit& visit =
        loan_bounds::rest(loan, site, loan.came.ns > 0 && unix >= loan.came + gain_horizon, unix);
    if (loan.came.ns > 0) visit.left = unix;
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
    now_ = std::max(now_, now);
    if (heard_of_before(job, site, word)) return;
    const Loan& loan = *job.record.loan;
    // A word about a stay, or a question, before this one is late.
    if (loan.site != site || (word.number != 0 && word.number != loan.number)) return;
    if (loan.over) {
        if (!word.note.settled && word.no.empty()) return;
        Loan over = loan;
        settled(over, true, now);
        job.record.loan = std::move(over);
        unsettled_.erase(job.id());
        back_home_.insert(job.id());
        book_.save(job);
        return;
    }
    if (loan.asked) {
        if (word.no.empty() && !word.note.settled) {
            wishes_[job.id()].said = word.note.comment;
            return;
        }
        return take_back(job, word.no.empty()
                                  ? souk::Cause("site " + site + " does not take it")
                                  : word.no.within("site " + site + " does not take it: "));
    }
    if (!word.no.empty() || word.note.settled) {
        if (job.phase() == JobPhase::waiting && !job.record.order)
            return end(job, word.no.code != CauseCode::too_many);
        return recall(job);
    }
    const Money price =
        std::clamp(word.note.price, Money{}, most_elsewhere(job.record.report.terms));
    if (job.phase() == JobPhase::running && is_at(job.record.report.where, site) &&
        billing_.set_price(job, price, now))
        notes_.of(job);
}

void LentJobs::reported(Job& job, Nanos now) {
    now_ = std::max(now_, now);
    if (job.record.loan->site.empty()) return;
    due_.insert(job.id());
    const JobReport& r = job.record.report;
    if (job.record.loan->asked) {
        const bool is_still = r.phase == JobPhase::frozen && !r.in_place;
        if ((r.phase != JobPhase::running && !is_still) || job.record.order) take_back(job, {});
        return;
    }
    if (!is_lent(job)) return;
    if (r.phase == JobPhase::finished) return end(job);
    if (settle(job)) return;
    const bool runs = r.phase == JobPhase::running;
    if (runs && !job.record.order) has_come(job, now);
    if (comes_back(job) && !runs && r.phase != JobPhase::moving)
        give_up(job, souk::Cause("it does not run at site " + job.record.loan->site + " any more"));
    if (r.phase != JobPhase::waiting)
        waits_.erase(job.id());
    else
        waits_.try_emplace(job.id(), now + wait_most);
}

void LentJobs::has_come(Job& job, Nanos now) {
    const bool is_new = job.record.loan->came.ns == 0;
    if (!job.record.loan->priced && !is_new) return;
    Loan loan = *job.record.loan;
    const bool is_priced = std::exchange(loan.priced, false);
    const Money price = std::min(loan.price, most_elsewhere(job.record.report.terms));
    if (is_new) loan.came = std::max(Nanos{1}, context_.unix(now));
    if (is_new && loan.by_markets) loan_bounds::count_trip(loan, context_.unix(now));
    job.record.loan = std::move(loan);
    if (is_priced && billing_.set_price(job, price, now)) notes_.of(job);
    book_.save(job);
}

void LentJobs::failed(Job& job, const OrderFailed& failed) {
    const Loan& loan = *job.record.loan;
    if (loan.site.empty() || failed.seq != loan.seq) return;
    OrderFailed its = failed;
    its.seq = loan.its_seq;
    its.node = of_site(its.node).site == loan.site ? its.node : NodeName{};
    if (failures_.size() < 10'000) failures_.push_back({loan.site, std::move(its)});
    const bool is_between = loan.came.ns == 0 || !is_at(failed.node, loan.site);
    if (is_between && job.site_word->code == ReasonCode::site_gain)
        job.site_word = Reason(ReasonCode::site_refused).with(Figure::cause, failed.why);
    if (!loan.priced) return;
    Loan none = loan;
    none.priced = false;
    job.record.loan = std::move(none);
    book_.save(job);
}

void LentJobs::end(Job& job, bool failed) {
    waits_.erase(job.id());
    wishes_.erase(job.id());
    due_.insert(job.id());
    const JobReport& r = job.record.report;
    Loan loan = *job.record.loan;
    loan.over = true;
    loan.asked = false;
    loan.priced = false;
    // One that has come back may have run here since.
    const bool here = r.stay_run.ns >= 0 && !r.where.empty() && !is_at(r.where, loan.site);
    loan.run = here ? std::min(r.stay_run, r.stats.run_time) : r.stats.run_time;
    // That site has ordered nothing about it, so there is nothing to settle.
    const bool never_came = loan.seq == 0 && loan.came.ns == 0;
    job.record.loan = std::move(loan);
    if (never_came)
        leave(job, failed);
    else
        unsettled_[job.id()] = {};
    book_.save(job);
    if (job.phase() == JobPhase::finished) return;
    notes_.of(job);
    work_.touch(job);
    alarms_.set(job);
}

void LentJobs::leave(Job& job, bool failed) {
    unsettled_.erase(job.id());
    Loan loan = *job.record.loan;
    const std::string site = loan.site;
    settled(loan, failed, now_);
    SiteVisit& visit = loan_bounds::visit_of(loan, site);
    visit.owed = std::max<uint64_t>(1, loan.number);
    visit.run = loan.run;
    due_before_.insert({job.id(), site});
    back_home_.insert(job.id());
    job.record.loan = std::move(loan);
    book_.save(job);
}

bool LentJobs::heard_of_before(Job& job, const std::string& site, const SiteNote& word) {
    if (!is_unsettled(job, site)) return false;
    Loan loan = *job.record.loan;
    SiteVisit& visit = loan_bounds::visit_of(loan, site);
    if (word.number != 0 && word.number != visit.owed) return false;
    if (!word.note.settled && word.no.empty()) return true;
    visit.owed = 0;
    job.record.loan = std::move(loan);
    book_.save(job);
    return true;
}

void LentJobs::look_at_unsettled(Nanos now) {
    std::vector<JobId> over;
    for (auto& [id, until] : unsettled_) {
        if (until == Nanos{}) until = now + settle_most;
        if (until <= now) over.push_back(id);
    }
    for (const JobId& id : over) {
        unsettled_.erase(id);
        Job* const job = book_.find(id);
        if (job && !job->record.loan->site.empty() && job->record.loan->over) leave(*job, true);
    }
}

void LentJobs::look(Nanos now) {
    now_ = now;
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
    look_at_unsettled(now);
    look_at_wishes(now);
}

void LentJobs::look_at_wishes(Nanos now) {
    std::vector<JobId> over;
    for (auto& [id, wish] : wishes_) {
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
        if (!job) {
            wishes_.erase(id);
            continue;
        }
        const std::string said = wishes_[id].said;
        const bool is_by_hand = wishes_[id].gain.empty();
        const std::string site = "site " + job->record.loan->site;
        if (job->record.loan->asked)
            take_back(*job, souk::Cause(CauseCode::away, site + " gave it no place within 30 s" +
                                                             (said.empty() ? "" : ": " + said)));
        else if (is_lent(*job) && (!is_by_hand || (job->once && !job->once->empty())))
            give_up(*job, souk::Cause(CauseCode::away, site + " did not let it go within 30 s"));
        else
            wishes_.erase(id);
    }
}

Nanos LentJobs::next() const {
    Nanos at = Nanos::never();
    for (const auto& [id, until] : waits_) at = std::min(at, until);
    for (const auto& [id, until] : unsettled_) at = std::min(at, until);
    for (const auto& [id, wish] : wishes_)
        at = std::min(at, wish.has_place ? std::min(wish.until, wish.again) : wish.until);
    return at;
}

// Another site hears this of the job, in the names that are used here. Its command line, name and
// array are its user's business.
SiteJob LentJobs::told(const Job& job, const Loan& loan) const {
    SiteJob word;
    word.number = loan.number;
    word.token = job.record.filter->token;
    JobReport& r = word.report = job.record.report;
    r.terms = told_to_sites(job.record.report.terms);
    r.name.clear();
    r.command.clear();
    r.array = std::string();
    r.array_index = 0;
    r.gang = std::string();
    r.component = r.components = 0;
    r.optional = false;
    r.places.clear();
    r.checkpoint_node = NodeName();
    r.checkpoint_trouble = std::string();
    const auto elsewhere = [&](const NodeName& node) { return !is_at(node, loan.site); };
    std::erase_if(r.lacking, elsewhere);
    std::erase_if(r.no_user, elsewhere);
    r.order_seq = r.order_seq >= loan.seq ? loan.its_seq : 0;
    if (!loan.over && r.phase != JobPhase::finished) {
        if (!r.where.empty() && elsewhere(r.where)) not_there_yet(r, loan.site);
        const auto wish = wishes_.find(job.id());
        if (wish == wishes_.end()) return word;
        if (loan.asked) r.only_node = wish->second.node;
        if (comes_back(job) && wish->second.has_place) {
            word.to = wish->second.node;
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

// The site hears that the job is no more there. Where it is since is not its business.
SiteJob LentJobs::told_of_before(const Job& job, const SiteVisit& visit) const {
    Loan over;
    over.site = visit.site;
    over.over = true;
    over.seq = UINT64_MAX;  // it hears of no order
    over.number = visit.owed;
    over.run = visit.run;
    SiteJob word = told(job, over);
    JobReport& r = word.report;
    const std::string where(of_site(r.where).site);
    if (!where.empty() && where != visit.site) r.where = job.id().home;
    r.to.clear();
    r.only_node = NodeName();
    return word;
}

std::vector<LentJobs::Word> LentJobs::take_words() {
    std::vector<Word> words;
    for (const JobId& id : std::exchange(due_, {}))
        if (const Job* const job = book_.find(id); job && !job->record.loan->site.empty())
            words.push_back({job->record.loan->site, told(*job, *job->record.loan)});
    for (const auto& [id, site] : std::exchange(due_before_, {})) {
        const Job* const job = book_.find(id);
        if (!job || !is_unsettled(*job, site)) continue;
        const auto visit = std::ranges::find(job->record.loan->visits, site, &SiteVisit::site);
        words.push_back({site, told_of_before(*job, *visit)});
    }
    return words;
}

void LentJobs::tell_all(const std::string& site) {
    for (const auto& [id, job] : book_.jobs()) {
        if (job.record.loan->site == site) due_.insert(id);
        if (is_unsettled(job, site)) due_before_.insert({id, site});
    }
}

void LentJobs::number_stays(std::vector<Send>& words) const {
    for (Send& send : words) {
        if (of_site(send.node).site.empty()) continue;
        const auto* const order = std::get_if<Order>(&send.message);
        const auto* const note = std::get_if<JobNote>(&send.message);
        const JobId* const id = order ? &order->id : note ? &note->id : nullptr;
        if (const Job* const job = id ? book_.find(*id) : nullptr)
            send.number = job->record.loan->number;
    }
}

}  // namespace souk::market
