// SPDX-License-Identifier: GPL-2.0-or-later
// Market, third part: run time, prices and accounts. See market.hpp.
#include <algorithm>

#include "market/core/claims.hpp"
#include "market/core/market.hpp"
#include "market/core/strategy.hpp"
#include "market/core/use_check.hpp"

namespace souk::market {
// Charges the run time up to `ran` (or takes back) and credits whom it ran on.
Nanos Market::account_until(Job& job, Nanos ran, Nanos now) {
    JobRecord& r = job.record;
    if (ran == r.billed || r.payee.empty()) {
        r.billed = ran;
        return ran;
    }
    Node& payee = node_of(r.payee);
    const __int128 due =
        static_cast<__int128>(r.price.micro) * r.report.terms.cpus * (ran - r.billed).ns +
        r.account.rest;
    if (r.tab.empty() && log_) r.tab.decided = log_->number();
    const Nanos span = ran - r.billed;
    const Money cost = bill::charge(job, ran, now + calendar_);
    if (const int64_t speed = payee.record.report.speed; speed > 0)
        r.done = std::max(Nanos{}, r.done + Nanos{span.ns / 100 * speed});
    use_check::charged(r, span, cost);
    spend(*job.user, cost);
    payee.record.earned += cost;
    const __int128 charged = static_cast<__int128>(cost.micro) * hour_ns + r.account.rest;
    if (charged != due && log_) log_->cut(job, now + calendar_);
    if (bill::is_due(job)) close_tab(job, now);
    book_.save(job);
    book_.save(payee);
    notes_.of(payee);
    return ran;
}

// What the places of a provider have measured of jobs that its homes let be charged for.
void Market::use_report(const NodeName& name, const UseReport& report, Nanos now) {
    begin_day(now);
    const auto it = book_.nodes().find(name);
    Node* const node = it == book_.nodes().end() ? nullptr : &it->second;
    for (const JobUse& use : report.jobs) {
        Job* const job = mutable_job(use.id);
        if (node) claims::heard(*node, job, use);
        if (!job) continue;
        if (use.ended && job->lies_on == name && job->record.report.epoch == use.epoch)
            wants_proof_soon(*job, now);
        if (job->record.unbacked) back_by(use.id, now);
        // What is charged for is as of now, as the report is.
        if (job->run_since != Nanos::never() && job->record.payee == name)
            account_until(*job, run_time(*job, now), now);
        if (const auto d = use_check::heard(job->record, name, use)) take_back(*job, *d, now);
        settle_use(*job, now);
        if (job->record.unbacked) back_by(use.id, now);  // it was there before
        book_.save(*job);
    }
    for (const JobSend& send : report.sends) {
        Job* const job = mutable_job(send.id);
        const JobReport* const r = job ? &job->record.report : nullptr;
        if (r && is_on_its_way(*job) && r->where == name && r->epoch == send.epoch)
            job->sending = send;
    }
}

void Market::settle_use(Job& job, Nanos now) {
    while (const auto d = use_check::settle(job.record)) take_back(job, *d, now);
}

// What the place has not measured is not paid for. A receipt of its own says so: those that are
// written stay as they are.
void Market::take_back(Job& job, const use_check::Difference& d, Nanos now) {
    JobRecord& r = job.record;
    Node& payee = node_of(d.node);
    ++payee.record.differences;
    payee.record.different += std::max(d.charged - d.measured, d.measured - d.charged);
    differ_.push_back({job.id(), d});
    const Money back = std::min(d.cost, r.account.amount);
    if (back.micro > 0) {
        close_tab(job, now);
        r.account.amount -= back;
        spend(*job.user, Money{-back.micro});
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
        receipt.from = receipt.to = now + calendar_;
        receipt.price = r.price;
        receipt.cpus = r.report.terms.cpus;
        receipt.paid = receipt.earned = Money{-back.micro};
        if (log_) receipt.decided_from = receipt.decided_to = log_->number();
        const Receipt& posted = ledger_.post(std::move(receipt));
        if (log_) log_->taken_back(job, posted, now + calendar_);
        notes_.of(job);
        set_alarm(job);
    }
    book_.save(payee);
    book_.save(job);
    notes_.of(payee);
}

namespace {

// Of a job that is where it is, has left it, or has ended.
std::string reason_code(const Reason& reason, bool finished) {
    if (reason.empty())
        return std::string(to_string(finished ? ReasonCode::ended : ReasonCode::runs));
    for (const ReasonFigure& f : reason.figures)
        if (f.what == Figure::cause_code && reason.code == ReasonCode::said) return f.text;
    return std::string(to_string(reason.code));
}

}  // namespace

// What is open of a job becomes a receipt.
void Market::close_tab(Job& job, Nanos now) {
    std::optional<Receipt> receipt = bill::close_tab(job);
    if (!receipt) return;
    if (log_) receipt->decided_to = log_->number();
    const bool finished = job.phase() == JobPhase::finished;
    receipt->reason = reason_code(finished ? reason(job) : job.reason, finished);
    const Receipt& posted = ledger_.post(*std::move(receipt));
    if (log_) log_->posted(job, posted, now + calendar_);
    book_.save(job);
}

// Records of a market that kept no receipts: what each job has cost and each provider earned is
// brought forward.
void Market::open_ledger() {
    if (std::exchange(book_.meta().ledger, true)) return;
    book_.save_meta();
    Receipt opening;
    opening.kind = Receipt::Kind::opening;
    opening.from = opening.to = calendar_;
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

// Whatever the solver says next: never above its bid, nor below the reserve if the bid covers that.
void Market::run_at(Job& job, const NodeName& node, Nanos now) {
    JobRecord& record = job.record;
    const bool stayed = record.payee == node;
    record.payee = node;
    use_check::begins(record, node, record.report.epoch);
    const Node* at = find_node(node);
    // Nor does a reserve count that is raised while nobody can leave (Payers::holds).
    const bool holds = stayed && at && !Places::usable(*at);
    const Money least =
        at && !holds ? std::min(at->record.report.reserve, job.bid) : std::min(Money{}, job.bid);
    record.price = std::clamp(record.price, least, job.bid);
    if (log_) log_->in_force(job, now + calendar_);
}

// It came to where it is, and this market hears of it late: it was away, or the way to the home
// was. What it ran before that is the former place's, and the rest the present one's. False: it is
// where it was.
bool Market::settle_move(Job& job, Nanos total, Nanos now) {
    const auto former = bill::share_of_former(job, total);
    if (!former) return false;
    account_until(job, *former, now);
    close_tab(job, now);
    run_at(job, job.record.report.where, now);
    return true;
}

// After a report (`before`: the one that it replaced, `ran`: the run time that the market reckoned
// with until now).
void Market::clock(Job& job, const JobReport& before, Nanos ran, Nanos now) {
    JobRecord& record = job.record;
    const JobReport& r = record.report;
    const bool running = r.phase == JobPhase::running;
    const Nanos most = use_check::believable(record, ran, now + calendar_);
    auto [total, complete] = bill::read(job, before, ran);
    total = std::min(total, most);
    use_check::believed(record, total, complete, now + calendar_);
    // The terms of the stretch that is accounted are those that were in force.
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

void Market::set_bid(Job& job, Nanos now) {
    const JobReport& r = job.record.report;
    const PriceRows& rows = price_history().rows();
    Standing standing;
    standing.spent = cost(job, now);
    standing.left = r.submitted + r.terms.finish - (now + calendar_);
    standing.done = job.record.done;
    standing.minute = minute_of(now + calendar_);
    if (strategy_of(r.terms) == Strategy::patient) standing.usual = usual_price_now(now);
    const Bid bid = bid_of(r.terms, standing, rows);
    const Money before = std::exchange(job.bid, bid.price);
    const bool was_unsure = std::exchange(job.in_time, bid.in_time).value_or(1) < deadline_chance;
    job.bid_until = bid.good_for == Nanos::never() ? Nanos::never() : now + bid.good_for;
    if (job.bid != before) touch(job);
    if (job.record.price > job.bid && job.phase() == JobPhase::running)
        set_price(job, job.bid, now);
    if (was_unsure != (job.in_time.value_or(1) < deadline_chance)) notes_.of(job);
}

bool Market::set_price(Job& job, Money price, Nanos now) {
    if (job.record.price == price) return false;
    account_until(job, run_time(job, now), now);
    if (bill::is_due_at_price(job)) close_tab(job, now);
    job.record.price = price;
    if (log_) log_->in_force(job, now + calendar_);
    book_.save(job);
    notes_.of(job);
    notes_.of(node_of(job.record.report.where));
    set_alarm(job);
    return true;
}

bool Market::Payers::may_change(JobKey key) const {
    const Job* const job = market_.book_.job_of(key);
    return job && !market_.in_transit(*job) && !holds(*job);
}

// While its node takes nobody (it is away, its owner has stopped its guests), nobody else can have
// its place, and no price can be found there: the last one holds. Else an owner would earn by
// cutting his link. A home that is away changes nothing: else a user would save by cutting his.
bool Market::Payers::holds(const Job& job) const {
    const Node* const node = market_.find_node(job.record.report.where);
    return !node || !Places::usable(*node);
}

// Everybody who runs where the solver has it pays what the solver says; one on its way out pays
// what it paid.
void Market::Payers::reckoned(const Solver::PriceStart& round, Nanos now) const {
    if (market_.log_) market_.log_->reckoned(round, now + market_.calendar_);
}

void Market::Payers::reckoned(std::span<const Payment> some, Nanos now) const {
    if (market_.log_) market_.log_->reckoned(some, now + market_.calendar_);
}

bool Market::Payers::take(const Payment& p, Nanos now) {
    Job* const job = market_.book_.job_of(p.job);
    const Node* const node = market_.book_.node_of(p.provider);
    if (!job || !node || job->phase() != JobPhase::running || job->record.unbacked ||
        job->record.report.where != node->id() || holds(*job))
        return false;
    // Since it was reckoned the bid or the reserve may have changed.
    const Money least = std::min(node->record.report.reserve, job->bid);
    return market_.set_price(*job, std::clamp(p.price, least, job->bid), now);
}

void Market::refresh_prices(Nanos now) {
    Payers payers(*this);
    price_rounds_.refresh(solver_, payers, now);
}

ProviderNote Market::prices(const Node& node) const {
    ProviderNote note;
    // what is taken back may for a moment be more
    note.earned = std::max(Money{}, node.record.earned);
    __int128 weighted = 0;
    int64_t cpus = 0;
    for (const auto& [id, job] : node.jobs) {
        if (job->phase() != JobPhase::running || job->record.report.where != node.id()) continue;
        ++note.guests;
        if (job->record.report.stands) continue;  // it pays nothing
        cpus += job->claim_cpus;
        weighted += static_cast<__int128>(job->record.price.micro) * job->claim_cpus;
    }
    if (cpus > 0) note.current_price.micro = static_cast<int64_t>(weighted / cpus);
    if (const auto next = solver_.next_price(node.key)) note.next_price = *next;
    return note;
}

// Of the prices in force, and of all that run or are on their way to.
Surplus Market::surplus() const {
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

Money Market::earned_by_forgotten() const {
    Money sum;
    for (const auto& [holder, account] : ledger_.accounts())
        if (holder.kind == Holder::Kind::node && !book_.nodes().contains(holder.node))
            sum += account.balance - account.moved;
    return sum;
}

Totals Market::totals(Nanos now) const {
    Totals t;
    t.paid = book_.meta().retired;
    for (const auto& [id, job] : book_.jobs()) {
        if (job.phase() == JobPhase::finished) {
            ++t.finished;
            continue;
        }
        const Money due = cost(job, now);
        t.paid += due;
        t.earned += due - job.record.account.amount;  // credited when it is accounted
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
    t.earned += earned_by_forgotten();
    for (const auto& [name, node] : book_.nodes()) t.earned += node.record.earned;
    t.surplus = surplus();
    return t;
}

}  // namespace souk::market
