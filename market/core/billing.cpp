// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/billing.hpp"

#include <algorithm>
#include <utility>

#include "market/core/claims.hpp"
#include "market/core/places.hpp"

namespace souk::market {

namespace {

// The code of the receipt's reason: why the job is where it is, has left it, or has ended.
std::string reason_code(const Reason& reason, bool finished) {
    if (reason.empty())
        return std::string(to_string(finished ? ReasonCode::ended : ReasonCode::runs));
    for (const ReasonFigure& f : reason.figures)
        if (f.what == Figure::cause_code && reason.code == ReasonCode::said) return f.text;
    return std::string(to_string(reason.code));
}

Reason why_ended(const Job& job) {
    const souk::Cause& why = job.record.report.why;
    return why.empty() ? Reason() : Reason(ReasonCode::said).with(Figure::cause, why);
}

}  // namespace

void Billing::open_ledger() {
    if (std::exchange(book_.meta().ledger, true)) return;
    book_.save_meta();
    Receipt opening;
    opening.kind = Receipt::Kind::opening;
    opening.from = opening.to = context_.calendar;
    for (auto& [id, job] : book_.jobs()) {
        opening.job = id;
        opening.uid = job.record.report.uid;
        opening.user = job.record.report.user;
        opening.paid = job.record.account.amount;
        job.record.tab = {};
        if (opening.paid.micro != 0) ledger_.post(opening);
    }
    opening.job = {};
    opening.uid = nobody_uid;
    opening.user = "users of before";
    opening.paid = book_.meta().retired;
    if (opening.paid.micro != 0) ledger_.post(opening);
    opening.paid = {};
    for (const auto& [name, node] : book_.nodes()) {
        opening.node = name;
        opening.earned = node.record.earned;
        if (opening.earned.micro != 0) ledger_.post(opening);
    }
}

void Billing::count_use() {
    paid_ = book_.meta().retired;
    for (auto& [id, job] : book_.jobs()) {
        if (job.record.finish_seq == 0) paid_ += job.record.account.amount;
        job.user->open += job.record.tab.amount;
    }
    for (auto& [uid, user] : book_.users())
        if ((user.is_full = room_for(user).micro == 0)) full_ones_.insert(uid);
}

Money Billing::room_for(const User& user) const {
    const Money by_use = ledger_.by_use(Holder::user(user.record.uid));
    return room_for_use(user.open - by_use, paid_);
}

// Some use was taken back, so there may be room again for who had none.
void Billing::let_go_on() {
    for (const uint32_t uid : std::exchange(full_ones_, {})) {
        User& user = book_.user(uid);
        user.is_full = room_for(user).micro == 0;
        if (user.is_full)
            full_ones_.insert(uid);
        else
            turned_.push_back(uid);
    }
}

Nanos Billing::account_until(Job& job, Nanos ran, Nanos now) {
    JobRecord& r = job.record;
    if (ran == r.billed || r.payee.empty()) {
        r.billed = ran;
        return ran;
    }
    Node& payee = book_.node(r.payee);
    const __int128 due =
        static_cast<__int128>(r.price.micro) * r.report.terms.cpus * (ran - r.billed).ns +
        r.account.rest;
    if (r.tab.empty() && context_.log) r.tab.decided = context_.log->number();
    const Nanos span = ran - r.billed;
    User& user = *job.user;
    const Money room = room_for(user);
    const Money cost = bill::charge(job, ran, context_.unix(now),
                                    std::min(room, room_for_use(payee.record.earned, paid_)));
    user.open += cost;
    paid_ += cost;
    // The reports of another site's nodes are not known here.
    const bool is_away = !of_site(r.payee).site.empty() && r.loan->speed > 0;
    const int64_t speed = is_away ? r.loan->speed : payee.record.report.speed;
    if (speed > 0) r.done = std::max(Nanos{}, r.done + Nanos{span.ns / 100 * speed});
    use_check::charged(r, span, cost);
    spend(user, cost);
    payee.record.earned += cost;
    const __int128 charged = static_cast<__int128>(cost.micro) * hour_ns + r.account.rest;
    if (charged != due && context_.log) context_.log->cut(job, context_.unix(now));
    if (charged < due && cost == room && !std::exchange(user.is_full, true)) {
        full_ones_.insert(user.record.uid);
        turned_.push_back(user.record.uid);
    }
    if (bill::is_due(job)) close_tab(job, now);
    book_.save(job);
    book_.save(payee);
    notes_.of(payee);
    return ran;
}

void Billing::spend(User& user, Money cost) {
    user.spent += cost;
    if (user.funds) *user.funds -= cost;
    days_.changed(user.record.uid);
}

void Billing::close_tab(Job& job, Nanos now) {
    std::optional<Receipt> receipt = bill::close_tab(job);
    if (!receipt) return;
    if (context_.log) receipt->decided_to = context_.log->number();
    const bool finished = job.phase() == JobPhase::finished;
    receipt->reason = reason_code(finished ? why_ended(job) : job.reason, finished);
    job.user->open -= receipt->paid;
    const Receipt& posted = ledger_.post(*std::move(receipt));
    if (context_.log) context_.log->posted(job, posted, context_.unix(now));
    book_.save(job);
}

// The job runs there from now on. Its price is never above its bid, nor below the reserve if the
// bid covers that, whatever the solver says next.
void Billing::run_at(Job& job, const NodeName& node, Nanos now) {
    JobRecord& record = job.record;
    const bool stayed = record.payee == node;
    record.payee = node;
    use_check::begins(record, node, record.report.epoch);
    const Node* at = book_.find_node(node);
    // A reserve that is raised while nobody can leave does not count either (PricesInForce::holds).
    const bool holds = stayed && at && !Places::usable(*at);
    const Money least =
        at && !holds ? std::min(at->record.report.reserve, job.bid) : std::min(Money{}, job.bid);
    record.price = booked_price(job).value_or(std::clamp(record.price, least, job.bid));
    if (context_.log) context_.log->in_force(job, context_.unix(now));
}

// Charges a move that the market hears of late, because it or the way to the home was away: what
// the job ran before it is the former place's, and the rest the present one's. False: the job is
// where it was.
bool Billing::settle_move(Job& job, Nanos total, Nanos now) {
    const auto former = bill::share_of_former(job, total);
    if (!former) return false;
    account_until(job, *former, now);
    close_tab(job, now);
    run_at(job, job.record.report.where, now);
    return true;
}

void Billing::clock(Job& job, const JobReport& before, Nanos ran, Nanos now) {
    JobRecord& record = job.record;
    const JobReport& r = record.report;
    const bool running = r.phase == JobPhase::running;
    const Nanos most = use_check::believable(record, ran, context_.unix(now));
    auto [total, complete] = bill::read(job, before, ran);
    total = std::min(total, most);
    use_check::believed(record, total, complete, context_.unix(now));
    // The stretch is charged by the terms that were in force during it.
    const JobTerms terms = r.terms;
    if (before.terms.max_price.micro > 0) record.report.terms = before.terms;
    const bool came = claims::may_be_at(job, r.where, book_) && settle_move(job, total, now);
    if (const auto former = use_check::before_thaw(record, total); former && !came) {
        account_until(job, *former, now);
        use_check::begins(record, r.where, r.epoch);
    }
    job.run_base = account_until(job, std::max(total, use_check::least(record)), now);
    if (complete && !(came && running && !r.stands)) close_tab(job, now);
    record.report.terms = terms;
    job.run_since = running && !r.stands ? now : Nanos::never();
    days_.changed(job.user->record.uid);
    if (running) {
        if (record.payee != r.where) close_tab(job, now);
        run_at(job, r.where, now);
    }
    const bool stays = running || r.phase == JobPhase::moving || r.phase == JobPhase::freezing;
    if (!stays) use_check::ended(record);
    settle_use(job, now);
    if (bill::is_used_up(job)) record.out_of_budget = true;
    if (r.phase == JobPhase::frozen &&
        job.user->left() < cost_of(record.price, terms.cpus, bill::day_rest_min))
        days_.nothing_left(job.user->record.uid);
}

void Billing::stop_clock(Job& job, Nanos ran, Nanos now) {
    job.run_base = account_until(job, ran, now);
    close_tab(job, now);
    job.run_since = Nanos::never();
    days_.changed(job.user->record.uid);
    use_check::ended(job.record);
    settle_use(job, now);
    if (bill::is_used_up(job)) job.record.out_of_budget = true;
}

bool Billing::set_price(Job& job, Money price, Nanos now) {
    if (job.record.price == price) return false;
    account_until(job, bill::run_time(job, now), now);
    if (bill::is_due_at_price(job)) close_tab(job, now);
    job.record.price = price;
    if (context_.log) context_.log->in_force(job, context_.unix(now));
    book_.save(job);
    notes_.of(job);
    notes_.of(book_.node(job.record.report.where));
    alarms_.set(job);
    return true;
}

void Billing::settle_use(Job& job, Nanos now) {
    while (const auto d = use_check::settle(job.record)) take_back(job, *d, now);
}

// Gives back what the place has not measured. A receipt of its own says so, because those that are
// written stay as they are.
void Billing::take_back(Job& job, const use_check::Difference& d, Nanos now) {
    JobRecord& r = job.record;
    Node& payee = book_.node(d.node);
    ++payee.record.differences;
    payee.record.different += std::max(d.charged - d.measured, d.measured - d.charged);
    differ_.push_back({job.id(), d});
    Money back = std::min(d.cost, r.account.amount);
    // A promise that its owner missed gives back what was paid for the same time.
    if (r.promised->back_from == d.node && r.promised->end == PromiseEnd::none) {
        Money& promised = r.promised.edit().back;
        promised = std::max(Money{}, promised - back);
    } else if (r.promised->back_from == d.node) {
        Promised& p = r.promised.edit();
        const Money both = std::min(back, p.back - p.counted);
        back -= both;
        p.counted += both;
    }
    if (back.micro > 0) {
        close_tab(job, now);
        r.account.amount -= back;
        spend(*job.user, Money{-back.micro});
        paid_ -= back;
        payee.record.earned -= back;
        if (r.finish_seq > 0) {
            book_.meta().retired -= back;
            book_.save_meta();
        }
        Receipt receipt;
        receipt.job = job.id();
        receipt.uid = job.user->record.uid;
        receipt.user = bill::payer_name(job);
        receipt.node = d.node;
        receipt.from = receipt.to = context_.unix(now);
        receipt.price = r.price;
        receipt.cpus = r.report.terms.cpus;
        receipt.paid = receipt.earned = Money{-back.micro};
        if (context_.log) receipt.decided_from = receipt.decided_to = context_.log->number();
        const Receipt& posted = ledger_.post(std::move(receipt));
        if (context_.log) context_.log->taken_back(job, posted, context_.unix(now));
        let_go_on();
        notes_.of(job);
        alarms_.set(job);
    }
    book_.save(payee);
    book_.save(job);
    notes_.of(payee);
}

}  // namespace souk::market
