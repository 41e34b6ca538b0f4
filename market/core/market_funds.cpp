// SPDX-License-Identifier: GPL-2.0-or-later
// Market, eighth part: where the money of users comes from (docs/ledger.md). Deposits, transfers,
// allowances and payouts are receipts like those of use; in a metered market a user's jobs are
// frozen when its account is empty, as when its day is spent (market_limits.cpp).
#include <algorithm>

#include "market/core/market.hpp"

namespace souk::market {
namespace {

// What an account holds or owes at most: a tenth of what the number could say.
constexpr Money account_max = {1'000 * money_max.micro};

constexpr int64_t weekday_of_epoch = 3;  // 1970-01-01 was a Thursday; weeks begin on Monday

// Of the civil calendar (eras of 400 years).
int64_t month_of(int64_t day) {
    const int64_t shifted = day + 719'468, era = shifted / 146'097, of_era = shifted % 146'097;
    const int64_t year_of_era =
        (of_era - of_era / 1'460 + of_era / 36'524 - of_era / 146'096) / 365;
    const int64_t day_of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    const int64_t from_march = (5 * day_of_year + 2) / 153;
    return (year_of_era + era * 400) * 12 + from_march;
}

}  // namespace

const char* to_string(Every every) {
    switch (every) {
        case Every::day: return "day";
        case Every::week: return "week";
        case Every::month: return "month";
    }
    return "?";
}

int64_t period_of(Every every, int64_t day) {
    switch (every) {
        case Every::day: return day;
        case Every::week: return (day + weekday_of_epoch) / 7;
        case Every::month: return month_of(day);
    }
    return day;
}

// It is new here, or the market is.
void Market::open_account(User& user) {
    if (!user.funds)
        user.funds = ledger_.balance(Holder::user(user.record.uid)) +
                     user.record.limits.credit.value_or(Money{});
    user.funded = *user.funds;
    user.is_empty = user.funds->micro <= 0;
    admission_.limits_changed(user);
    days_.changed(user.record.uid);
}

// Its jobs go on.
void Market::has_more(User& user) {
    user.funded = user.funds.value_or(Money{});
    days_.changed(user.record.uid);
    if (user.left().micro <= 0) return;
    user.is_empty = false;
    for (auto& [id, job] : book_.jobs())
        if (job.user == &user && job.phase() != JobPhase::finished) touch(job);
}

// What it has, and does not owe for what was used.
Money Market::owned(uint32_t uid) const {
    Money owned = ledger_.balance(Holder::user(uid));
    for (const auto& [id, job] : book_.jobs())
        if (job.user->record.uid == uid) owned -= job.record.tab.amount;
    return owned;
}

// Of this day, week or month, if it has none of it yet; what is left of the one before goes first.
void Market::grant(User& user, Nanos now) {
    const UserLimits& l = user.record.limits;
    const int64_t period = period_of(l.every, book_.meta().day);
    if (!l.allowance || book_.meta().day < 0 || period <= user.record.granted) return;
    const uint32_t uid = user.record.uid;
    Receipt receipt;
    receipt.from = receipt.to = now + calendar_;
    receipt.uid = uid;
    receipt.user = user.record.name;
    if (const Money left = ledger_.left_of_grant(uid); left.micro > 0) {
        receipt.kind = Receipt::Kind::expiry;
        receipt.paid = left;
        if (user.funds) *user.funds -= left;
        ledger_.post(receipt);
    }
    receipt.kind = Receipt::Kind::allowance;
    receipt.paid = Money{-l.allowance->micro};
    receipt.note = std::string("of the ") + to_string(l.every);
    if (user.funds) *user.funds += *l.allowance;
    ledger_.post(receipt);
    ledger_.grant(uid, l.expires ? *l.allowance : Money{});
    user.record.granted = period;
    book_.save_user(uid);
    has_more(user);
}

Result<Money> Market::move_money(const MoneyOrder& o, uint32_t uid, Nanos now) {
    using Kind = Receipt::Kind;
    heard(Input::move_money, {}, o.node, o.user);
    begin_day(now);
    if (uid != root_uid && (o.kind != Kind::transfer || uid != o.uid))
        return fail(CauseCode::not_allowed, "only root may do that with money that is not its own");
    if (is_project(uid))
        return fail(CauseCode::not_possible, "a project gives nothing away by itself");
    if (o.amount.micro <= 0 || o.amount > money_max) return fail("an amount above 0 is wanted");
    if (o.kind == Kind::transfer && o.uid == o.other) return fail("that is the same account");
    for (auto& [id, job] : book_.jobs())  // what was used before is paid before
        if (job.user->record.uid == o.uid && job.run_since != Nanos::never())
            account_until(job, run_time(job, now), now);
    const bool pays = o.kind == Kind::withdrawal || o.kind == Kind::transfer;
    const Money has =
        o.kind == Kind::payout ? ledger_.balance(Holder::provider(o.node)) : owned(o.uid);
    if ((pays || o.kind == Kind::payout) && o.amount > has)
        return fail(CauseCode::not_possible,
                    (pays ? "the account of " + o.user : "node " + o.node) + " has " +
                        format_money(std::max(Money{}, has)) + ", not " + format_money(o.amount));
    Receipt r;
    r.kind = o.kind;
    r.from = r.to = now + calendar_;
    r.uid = o.outside ? nobody_uid : o.uid;
    r.user = o.outside ? "" : o.user;
    r.by = uid;
    r.note = o.note;
    if (!o.outside) r.paid = pays ? o.amount : Money{-o.amount.micro};
    if (o.kind == Kind::payout) r.node = o.node, r.earned = Money{-o.amount.micro};
    if (o.kind == Kind::transfer) r.other = o.other, r.other_user = o.other_user;
    for (const Posting& p : postings(r)) {
        const Money then = ledger_.balance(p.holder) + p.amount;
        if (then > account_max || then.micro < -account_max.micro)
            return fail(CauseCode::not_possible, "the account of " + p.holder.text() +
                                                     " would pass " + format_money(account_max));
    }
    ledger_.post(r);
    for (const Posting& p : postings(r)) {
        const auto user = book_.users().find(p.holder.uid);
        if (p.holder.kind != Holder::Kind::user || user == book_.users().end()) continue;
        if (user->second.funds) *user->second.funds += p.amount;
        if (p.amount.micro > 0) has_more(user->second);
        days_.changed(p.holder.uid);
    }
    dirty_ = true;
    return o.kind == Kind::payout ? ledger_.balance(Holder::provider(o.node)) : owned(o.uid);
}

// A node that says so of each job gains no more than if its owner asked for that part more: once in
// a stay, and of what the job has paid there.
Result<Money> Market::promise_missed(const NodeName& node, const JobId& id,
                                     const std::string& promise, Nanos now) {
    heard(Input::move_money, id, node, promise);
    Job* const job = mutable_job(id);
    if (options_.refund_permille <= 0 || !job) return Money{};
    begin_day(now);
    if (job->run_since != Nanos::never()) account_until(*job, run_time(*job, now), now);
    auto& stays = job->record.stays;
    const auto stay = std::find_if(stays.rbegin(), stays.rend(), [&](const Stay& s) {
        return s.node == node && !s.refunded && s.cost.micro > 0;
    });
    if (stay == stays.rend()) return Money{};
    User& user = *job->user;
    Money refund{static_cast<int64_t>(static_cast<__int128>(stay->cost.micro) *
                                      options_.refund_permille / 1'000)};
    if (user.funds) refund = std::clamp(*user.funds, Money{}, refund);
    stay->refunded = true;
    book_.save(*job);
    dirty_ = true;
    if (refund.micro == 0) return refund;
    Receipt r;
    r.kind = Receipt::Kind::refund;
    r.job = id;
    r.from = r.to = now + calendar_;
    r.uid = user.record.uid;
    r.user = bill::payer_name(*job);
    r.node = node;
    r.paid = r.earned = refund;
    r.note = promise + " was missed";
    ledger_.post(r);
    if (user.funds) *user.funds -= refund;
    days_.changed(user.record.uid);
    return refund;
}

}  // namespace souk::market
