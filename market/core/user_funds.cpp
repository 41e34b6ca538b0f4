// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/user_funds.hpp"

#include <algorithm>
#include <utility>

#include "market/core/site_guests.hpp"

namespace souk::market {

namespace {

Money most_of(const Holder& holder) {
    return holder.kind == Holder::Kind::outside ? outside_most : account_most;
}

constexpr int64_t weekday_of_epoch = 3;  // 1970-01-01 was a Thursday; weeks begin on Monday

// The number of the month in the civil calendar, by eras of 400 years.
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

void UserFunds::open_account(User& user) {
    if (!user.funds)
        user.funds = ledger_.balance(Holder::user(user.record.uid)) +
                     user.record.limits.credit.value_or(Money{});
    user.funded = *user.funds;
    user.is_empty = user.funds->micro <= 0;
    admission_.limits_changed(user);
    days_.changed(user.record.uid);
}

void UserFunds::open_accounts() {
    if (!context_.options.metered) return;
    for (auto& [uid, user] : book_.users()) open_account(user);
}

// The user got money or a higher limit: its jobs go on.
void UserFunds::has_more(User& user) {
    user.funded = user.funds.value_or(Money{});
    days_.changed(user.record.uid);
    if (user.left().micro <= 0) return;
    user.is_empty = false;
    for (auto& [id, job] : book_.jobs())
        if (job.user == &user && job.phase() != JobPhase::finished) work_.touch(job);
}

// The user owns what its account has, less its use that is in no receipt yet.
Money UserFunds::owned(uint32_t uid) const {
    Money owned = ledger_.balance(Holder::user(uid));
    for (const auto& [id, job] : book_.jobs())
        if (job.user->record.uid == uid) owned -= job.record.tab.amount;
    return owned;
}

// Gives the user the allowance of this day, week or month, if it has not got it yet. An allowance
// that expires takes back what is left of the one before.
void UserFunds::grant(User& user, Nanos now) {
    const UserLimits& l = user.record.limits;
    const int64_t period = period_of(l.every, book_.meta().day);
    if (!l.allowance || book_.meta().day < 0 || period <= user.record.granted) return;
    const uint32_t uid = user.record.uid;
    Receipt receipt;
    receipt.from = receipt.to = context_.unix(now);
    receipt.uid = uid;
    receipt.user = user.record.name;
    if (const Money left = ledger_.left_of_grant(uid); left.micro > 0) {
        receipt.kind = Receipt::Kind::expiry;
        receipt.paid = left;
        if (user.funds) *user.funds -= left;
        ledger_.post(receipt);
    }
    receipt.kind = Receipt::Kind::allowance;
    const Money given = std::min({*l.allowance, room_in(Holder::user(uid), *l.allowance),
                                  room_in(Holder::outside(), Money{} - *l.allowance)});
    receipt.paid = Money{} - given;
    receipt.note = std::string("of the ") + to_string(l.every);
    if (given < *l.allowance) receipt.note += ", as much as the books hold";
    if (user.funds) *user.funds += given;
    ledger_.grant(uid, l.expires ? given : Money{});
    if (given.micro == 0 && l.allowance->micro > 0) return;  // it is looked at again tomorrow
    ledger_.post(receipt);
    user.record.granted = period;
    book_.save_user(uid);
    has_more(user);
}

// The account that the order is about has so much to give.
Money UserFunds::available(const MoneyOrder& o) const {
    return o.kind == Receipt::Kind::payout ? ledger_.balance(Holder::provider(o.node))
                                           : owned(o.uid);
}

bool UserFunds::pays(const MoneyOrder& o) {
    return o.kind == Receipt::Kind::withdrawal || o.kind == Receipt::Kind::transfer;
}

Status UserFunds::has_enough(const MoneyOrder& o) const {
    if (!pays(o) && o.kind != Receipt::Kind::payout) return {};
    const Money has = available(o);
    if (o.amount > has)
        return fail(CauseCode::not_possible,
                    (pays(o) ? "the account of " + o.user : "node " + o.node) + " has " +
                        format_money(std::max(Money{}, has)) + ", not " + format_money(o.amount));
    // An allowance that ends in its time would go on in another's account.
    const bool leaves = o.kind == Receipt::Kind::transfer;
    const Money ends = leaves ? ledger_.left_of_grant(o.uid) : Money{};
    if (ends.micro == 0 || o.amount <= ledger_.balance(Holder::user(o.uid)) - ends) return {};
    return fail(CauseCode::not_possible, format_money(ends) + " in the account of " + o.user +
                                             " is of an allowance that expires: it goes to nobody "
                                             "else");
}

Receipt UserFunds::receipt_of(const MoneyOrder& o, uint32_t uid, Nanos now) const {
    Receipt r;
    r.kind = o.kind;
    r.from = r.to = context_.unix(now);
    r.uid = o.outside ? nobody_uid : o.uid;
    r.user = o.outside ? "" : o.user;
    r.by = uid;
    r.note = o.note;
    if (!o.outside) r.paid = pays(o) ? o.amount : Money{-o.amount.micro};
    if (o.kind == Receipt::Kind::payout) r.node = o.node, r.earned = Money{-o.amount.micro};
    if (o.kind == Receipt::Kind::transfer) r.other = o.other, r.other_user = o.other_user;
    return r;
}

// How far a movement of `more` may go on with that account: as far as an account may hold or owe,
// and always towards nothing.
Money UserFunds::room_in(const Holder& holder, Money more) const {
    const Money most = most_of(holder), has = ledger_.balance(holder);
    return std::max(Money{}, more.micro < 0 ? has + most : most - has);
}

// An error: an account would pass what it may hold or owe.
Status UserFunds::stays_in_bounds(const Receipt& receipt) const {
    for (const Posting& p : postings(receipt))
        if (std::max(p.amount, Money{} - p.amount) > room_in(p.holder, p.amount))
            return fail(CauseCode::not_possible, "the account of " + p.holder.text() +
                                                     " would pass " +
                                                     format_money(most_of(p.holder)));
    return {};
}

Result<Money> UserFunds::move_money(const MoneyOrder& o, uint32_t uid, Nanos now) {
    using Kind = Receipt::Kind;
    begin_day(now);
    if (uid != root_uid && (o.kind != Kind::transfer || uid != o.uid))
        return fail(CauseCode::not_allowed, "only root may do that with money that is not its own");
    if (is_project(uid))
        return fail(CauseCode::not_possible, "a project gives nothing away by itself");
    if (o.amount.micro <= 0 || o.amount > money_max) return fail("an amount above 0 is wanted");
    if (o.kind == Kind::transfer && o.uid == o.other) return fail("that is the same account");
    for (auto& [id, job] : book_.jobs())  // what was used before is paid before
        if (job.user->record.uid == o.uid) billing_.account_running(job, now);
    TRY(has_enough(o));
    const Receipt r = receipt_of(o, uid, now);
    TRY(stays_in_bounds(r));
    book_movement(r);
    return available(o);
}

void UserFunds::book_movement(const Receipt& r) {
    ledger_.post(r);
    for (const Posting& p : postings(r)) {
        const auto user = book_.users().find(p.holder.uid);
        if (p.holder.kind != Holder::Kind::user || user == book_.users().end()) continue;
        if (user->second.funds) *user->second.funds += p.amount;
        if (p.amount.micro > 0) has_more(user->second);
        days_.changed(p.holder.uid);
    }
    work_.decide();
}

Status UserFunds::settle_site(uint32_t account, const std::string& site, Money paid,
                              const std::string& note, uint32_t uid, Nanos now) {
    begin_day(now);
    Receipt r;
    r.kind = Receipt::Kind::settlement;
    r.from = r.to = context_.unix(now);
    r.uid = account;
    r.user = site;
    r.by = uid;
    r.note = note;
    r.paid = Money{-paid.micro};
    TRY(stays_in_bounds(r));
    book_movement(r);
    return {};
}

// Refunds are due once in a stay and as a share of what the job has paid there, so a node that
// claims one for each job gains no more than if its owner asked for that share less.
Result<Money> UserFunds::promise_missed(const NodeName& node, const JobId& id,
                                        const std::string& promise, Nanos now) {
    Job* const job = book_.find(id);
    // A peer's books would not have it.
    if (context_.options.refund_permille <= 0 || !job || is_of_site(id)) return Money{};
    begin_day(now);
    billing_.account_running(*job, now);
    auto& stays = job->record.stays;
    const auto stay = std::find_if(stays.rbegin(), stays.rend(), [&](const Stay& s) {
        return s.node == node && !s.refunded && s.cost.micro > 0;
    });
    if (stay == stays.rend()) return Money{};
    User& user = *job->user;
    Money refund{static_cast<int64_t>(static_cast<__int128>(stay->cost.micro) *
                                      context_.options.refund_permille / 1'000)};
    if (user.funds) refund = std::clamp(*user.funds, Money{}, refund);
    stay->refunded = true;
    book_.save(*job);
    work_.decide();
    if (refund.micro == 0) return refund;
    Receipt r;
    r.kind = Receipt::Kind::refund;
    r.job = id;
    r.from = r.to = context_.unix(now);
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

void UserFunds::deadline_missed(Job& job, Nanos now) {
    begin_day(now);
    const Promised& p = *job.record.promised;
    User& user = *job.user;
    Receipt r;
    r.kind = Receipt::Kind::broken;
    r.job = job.id();
    r.from = r.to = context_.unix(now);
    r.uid = user.record.uid;
    r.user = bill::payer_name(job);
    if (!p.back_from.empty()) {
        // No owner gives more than is there.
        const Money there = ledger_.balance(Holder::provider(p.back_from));
        r.node = p.back_from;
        r.paid = r.earned = Money{} - std::clamp(there, Money{}, p.back);
    }
    r.note = std::string("deadline missed: ") + to_string(p.end);
    ledger_.post(r);
    if (user.funds) *user.funds -= r.paid;
    if (r.paid.micro < 0) has_more(user);
    days_.changed(user.record.uid);
    job.record.promised.edit().back = Money{} - r.paid;
    book_.save(job);
    notes_.of(job);
}

Result<std::string> UserFunds::set_limits(uint32_t of, const std::string& name,
                                          const UserLimits& limits, uint32_t uid, Nanos now) {
    if (uid != root_uid)
        return fail(CauseCode::not_allowed, "only root may set what a user may have at most");
    begin_day(now);
    User& user = book_.user(of);
    for (const JobId& id : user.claiming)  // what was spent before is spent
        billing_.account_running(book_.jobs().at(id), now);
    TRY_ASSIGN(TimeFrames open, TimeFrames::parse(limits.hours.empty() ? "always" : limits.hours));
    const UserLimits before = std::exchange(user.record.limits, limits);
    user.frames = std::move(open);
    hours_changed();
    user.record.name = name;
    if (user.day_left().micro > 0) user.record.ended_day = -1;
    if (!limits.allowance || limits.every != before.every) user.record.granted = -1;
    if (context_.options.metered && !user.funds) {
        open_account(user);
    } else if (user.funds) {
        *user.funds += limits.credit.value_or(Money{}) - before.credit.value_or(Money{});
        if (limits.credit.value_or(Money{}) > before.credit.value_or(Money{})) has_more(user);
    }
    grant(user, now);
    book_.save_user(of);
    days_.changed(of);
    for (auto& [id, job] : book_.jobs())
        if (job.user == &user && job.phase() != JobPhase::finished) work_.touch(job);
    work_.decide();
    admission_.limits_changed(user);
    if (user.frames.always()) user.is_closed = false;
    return called(user) + (limits.any() ? " has these limits now" : " has no limits now");
}

// Looks at least once an hour, as a local clock changes twice a year.
void UserFunds::look_at_hours(Nanos now) {
    if (now < hours_at_) return;
    hours_at_ = Nanos::never();
    const Nanos unix = context_.unix(now);
    const int32_t second = context_.second_of_week(unix);
    for (const uint32_t uid : admission_.limited()) {
        User& user = book_.users().at(uid);
        if (const int32_t edge = user.frames.to_next_edge(second); edge > 0) {
            const Nanos left =
                Nanos::from_s(std::min(edge, 3'600)) - Nanos{unix.ns % 1'000'000'000};
            hours_at_ = std::min(hours_at_, now + left);
        }
        const bool closed = !user.frames.contains(second);
        if (std::exchange(user.is_closed, closed) == closed) continue;
        for (const auto& [rank, job] : user.order) {
            work_.touch(*job);
            notes_.of(*job);
        }
        work_.decide();
    }
}

Result<uint32_t> UserFunds::set_member(const std::string& project, std::optional<uint32_t> member,
                                       bool comes, uint32_t uid, Nanos now) {
    if (uid != root_uid)
        return fail(CauseCode::not_allowed, "only root may say who is of a project");
    if (!valid_project_name(project))
        return fail("'" + project + "' is no name of a project: a letter, then letters, digits, " +
                    "'-' and '_', " + "32 at most");
    if (member && is_project(*member)) return fail("a project is no member of another");
    const User* const known = book_.project(project);
    if (!known && !comes) return fail(CauseCode::not_found, "there is no project " + project);
    uint32_t number = project_first;
    if (known)
        number = known->record.uid;
    else
        while (book_.users().contains(number)) ++number;
    if (!is_project(number)) return fail(CauseCode::too_many, "there are too many projects");
    User& user = book_.user(number);
    user.record.name = project;
    std::vector<uint32_t>& members = user.record.members;
    if (member) {
        const bool is_one = user.record.has_member(*member);
        const auto at = std::ranges::lower_bound(members, *member);
        if (!comes && !is_one)
            return fail(CauseCode::not_found,
                        "user " + std::to_string(*member) + " is no member of project " + project);
        if (comes && members.size() >= members_max)
            return fail(CauseCode::too_many, "project " + project + " has " +
                                                 std::to_string(members_max) + " members already");
        if (comes && !is_one) members.insert(at, *member);
        if (!comes) members.erase(at);
    }
    if (context_.options.metered && !user.funds) open_account(user);
    book_.save_user(number);
    for (auto& [id, job] : book_.jobs()) {
        if (job.phase() == JobPhase::finished || job.record.report.terms.project != project)
            continue;
        choose_payer(job, now);
        work_.touch(job);
    }
    work_.decide();
    return number;
}

bool UserFunds::may_look_at(uint32_t account, uint32_t uid) const {
    if (uid == root_uid || account == uid) return true;
    const auto known = book_.users().find(account);
    return known != book_.users().end() && known->second.record.has_member(uid);
}

void UserFunds::choose_payer(Job& job, Nanos now) {
    const uint32_t number = book_.project_for(job.record.report);
    User& before = *job.user;
    if (number == 0 || number == before.record.uid) return;
    User& project = book_.user(number);
    billing_.account_running(job, now);
    billing_.close_tab(job, now);
    admission_.unlist(job);
    const auto changed = [&](const User& user) {
        days_.changed(user.record.uid);
        admission_.changed(user.record.uid);
    };
    if (before.claiming.erase(job.id()) > 0) {
        before.cpus -= job.claim_cpus;
        project.claiming.insert(job.id());
        project.cpus += job.claim_cpus;
    }
    job.user = &project;
    job.record.payer = number;
    if (context_.options.metered && !project.funds) open_account(project);
    changed(before);
    changed(project);
    book_.save(job);
    work_.touch(job);
    alarms_.set(job);
    notes_.of(job);
}

void UserFunds::count_days() {
    for (auto& [uid, user] : book_.users()) {
        user.spent = ledger_.paid_today(uid);
        if (context_.options.metered)
            user.funds =
                ledger_.balance(Holder::user(uid)) + user.record.limits.credit.value_or(Money{});
        days_.changed(uid);
    }
    for (auto& [id, job] : book_.jobs()) {
        job.user->spent += job.record.tab.amount;
        if (job.user->funds) *job.user->funds -= job.record.tab.amount;
    }
}

void UserFunds::begin_day(Nanos now) {
    const int64_t day = day_of(context_.unix(now));
    if (day == book_.meta().day || (book_.meta().day >= 0 && day == book_.meta().day - 1)) return;
    const bool set_back = day < book_.meta().day;
    if (!set_back && book_.meta().day >= 0)
        // The old day is charged to its last moment.
        for (const uint32_t uid : admission_.limited())
            for (const auto& [rank, job] : book_.users().at(uid).order) {
                billing_.account_running(*job, now);
                billing_.close_tab(*job, now);
            }
    for (const uint32_t uid : admission_.limited()) {
        User& user = book_.users().at(uid);
        if (user.record.ended_day < 0) continue;
        user.record.ended_day = set_back && user.record.ended_day == book_.meta().day ? day : -1;
        book_.save_user(uid);
        for (const auto& [rank, job] : user.order) work_.touch(*job);
    }
    ledger_.set_day(day, set_back);
    book_.meta().day = day;
    book_.save_meta();
    count_days();
    for (const uint32_t uid : admission_.limited()) grant(book_.users().at(uid), now);
}

bool UserFunds::is_reachable(const Job& job) const {
    const Node* const home = book_.home_of(job);
    return home && home->connected;
}

void UserFunds::tell(Job& job) {
    job.note_due = true;
    notes_.of(job);
}

std::vector<Job*> UserFunds::claiming(const User& user) {
    std::vector<Job*> jobs;
    for (const JobId& id : user.claiming) jobs.push_back(&book_.jobs().at(id));
    return jobs;
}

void UserFunds::reckon_days(Nanos now) {
    for (const uint32_t uid : days_.take_due()) {
        const User& user = book_.users().at(uid);
        days_.reckon(user, days_.looks_at_jobs(user) ? claiming(user) : std::vector<Job*>{},
                     book_.day_is_spent(user), *this, now);
    }
}

void UserFunds::end_days(Nanos now) {
    for (const uint32_t uid : billing_.take_turned())
        for (auto& [id, job] : book_.jobs())
            if (job.user->record.uid == uid && job.phase() != JobPhase::finished) work_.touch(job);
    reckon_days(now);
    while (const auto uid = days_.take_ended(now)) {
        User& user = book_.users().at(*uid);
        for (const JobId& id : user.claiming) billing_.account_running(book_.jobs().at(id), now);
        if (user.account_ends_first()) {
            user.is_empty = true;
        } else {
            user.record.ended_day = book_.meta().day;
            book_.save_user(user.record.uid);
        }
        for (const auto& [rank, job] : user.order) work_.touch(*job);
    }
}

}  // namespace souk::market
