// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/user_replies.hpp"

#include <iterator>
#include <set>

#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/setting.hpp"
#include "kernel/wire/messages.hpp"
#include "market/core/market_io.hpp"

namespace souk {
namespace {

using market::Holder;
using market::Job;
using market::Market;
using market::root_uid;
using market::User;
using market::UserLimits;

template <class T>
Result<T> whole_from_zero(const std::string& key, const std::string& text) {
    const auto value = whole_number<T>(text);
    if (!value || *value < T{})
        return fail(key + ": '" + text + "' is not a whole number, nor none");
    return *value;
}

void write_user(JsonWriter& w, const Market& market, uint32_t uid, Nanos now) {
    const auto known = market.users().find(uid);
    const User user = known == market.users().end() ? User{} : known->second;
    const UserLimits& l = user.record.limits;
    Money spent = user.spent;  // and what is charged since
    for (const JobId& id : user.claiming)
        if (const Job* job = market.find(id))
            spent += market.cost(*job, now) - job->record.account.amount;
    if (l.spend_per_day) spent = std::min(spent, std::max(*l.spend_per_day, user.spent));
    w.begin_object().field("user", name_of(market, uid)).field("uid", uid);
    if (market::is_project(uid)) {
        w.key("members").begin_array();
        for (const uint32_t member : user.record.members) w.value(called_by(market, member));
        w.end_array();
    }
    if (l.spend_per_day) w.field("spend_per_day", *l.spend_per_day);
    if (l.jobs) w.field("jobs", *l.jobs);
    if (l.cpus) w.field("cpus", *l.cpus);
    if (l.reserve) w.field("reserve", *l.reserve);
    if (!l.hours.empty()) w.field("hours", l.hours).field("is_closed", user.is_closed);
    if (l.credit) w.field("credit", *l.credit);
    if (l.allowance)
        w.field("allowance", *l.allowance)
            .field("every", to_string(l.every))
            .field("expires", l.expires);
    if (user.funds) w.field("may_spend", user.left()).field("account_is_empty", user.is_empty);
    w.field("spent_today", std::max(spent, Money{}))
        .field("running_jobs", user.claiming.size())
        .field("running_cpus", user.cpus);
    w.field("held_jobs", user.held)
        .field("day_is_spent", l.spend_per_day && market.day_is_spent(user))
        .end_object();
}

Result<market::Every> every_of(const std::string& text) {
    for (const auto every : {market::Every::day, market::Every::week, market::Every::month})
        if (text == to_string(every)) return every;
    return fail("every: '" + text + "' is none of day, week and month");
}

Result<std::string> hours_of(const std::string& value) {
    if (value == "none") return std::string();
    auto frames = TimeFrames::parse_apart(value);
    if (!frames) return wrap("hours", frames.error());
    if (frames->text().size() > UserLimits::hours_bytes_max)
        return fail("hours: " + std::to_string(UserLimits::hours_bytes_max) + " bytes at most");
    return frames->always() ? std::string() : frames->text();
}

// One of them, `key` as it stands on the command line. False: it is none of these.
Result<bool> set_money_limit(UserLimits& limits, std::string_view key, const std::string& value) {
    auto* const amount = key == "spend-per-day" ? &limits.spend_per_day
                         : key == "credit"      ? &limits.credit
                         : key == "allowance"   ? &limits.allowance
                                                : nullptr;
    if (amount) {
        amount->reset();
        if (value == "none") return true;
        auto money = parse_money(value);
        if (!money) return wrap(std::string(key), money.error());
        *amount = *money;
        return true;
    }
    if (key == "every") {
        TRY_ASSIGN(limits.every, every_of(value));
        return true;
    }
    if (key != "expires") return false;
    if (value != "yes" && value != "no") return fail("expires: yes or no is wanted");
    limits.expires = value == "yes";
    return true;
}

}  // namespace

std::string name_of(const Market& market, uint32_t uid) {
    const auto user = market.users().find(uid);
    if (user != market.users().end() && !user->second.record.name.empty())
        return user->second.record.name;
    const auto account = market.ledger().accounts().find(Holder::user(uid));
    if (account != market.ledger().accounts().end()) return account->second.name;
    for (const auto& [id, job] : market.jobs())
        if (job.record.report.uid == uid) return job.record.report.user;
    return {};
}

std::string called_by(const Market& market, uint32_t uid) {
    std::string name = name_of(market, uid);
    return name.empty() ? std::to_string(uid) : name;
}

Result<uint32_t> user_of(const Market& market, const std::string& who) {
    if (const auto uid = whole_number<uint32_t>(who)) return *uid;
    for (const auto& [number, user] : market.users())
        if (market::is_project(number) && user.record.name == who) return number;
    // Homes say names, and one may call its user by another's.
    std::set<uint32_t> numbers;
    for (const auto& [holder, record] : market.ledger().accounts())
        if (holder.kind == Holder::Kind::user && record.name == who) numbers.insert(holder.uid);
    for (const auto& [number, user] : market.users())
        if (user.record.name == who) numbers.insert(number);
    for (const auto& [id, job] : market.jobs())
        if (job.record.report.user == who) numbers.insert(job.record.report.uid);
    if (numbers.empty())
        return fail(CauseCode::not_found,
                    "no such user: " + who + " (one who never had a job here is named by number)");
    if (numbers.size() > 1)
        return fail(CauseCode::not_possible, "several users are called " + who + ", for example " +
                                                 std::to_string(*numbers.begin()) + " and " +
                                                 std::to_string(*std::next(numbers.begin())) +
                                                 ": name one by number");
    return *numbers.begin();
}

Result<std::string> users_reply(const Market& market, const std::string& who, uint32_t uid,
                                Nanos now) {
    JsonWriter w;
    w.begin_array();
    if (who != "-" || uid != root_uid) {
        uint32_t of = uid;
        if (who != "-") {
            TRY_ASSIGN(of, user_of(market, who));
        }
        if (!market.may_look_at(of, uid))
            return fail(CauseCode::not_allowed, "only root may see the limits of others");
        write_user(w, market, of, now);
        w.end_array();
        return w.take();
    }
    for (const auto& [of, user] : market.users()) {
        if (!user.record.limits.any() && !market::is_project(of)) continue;
        write_user(w, market, of, now);
        if (w.bytes() > wire::json_bytes_max - 4096)
            return fail("there are too many users for one answer: name one");
    }
    w.end_array();
    return w.take();
}

Result<std::string> limit_reply(Market& market, const std::vector<std::string>& args, uint32_t uid,
                                Nanos now) {
    if (uid != root_uid)
        return fail(CauseCode::not_allowed, "only root may set what a user may have at most");
    if (args.empty()) return fail("user-limit: the user is missing");
    TRY_ASSIGN(const uint32_t of, user_of(market, args[0]));
    const auto known = market.users().find(of);
    UserLimits limits = known == market.users().end() ? UserLimits{} : known->second.record.limits;
    for (size_t i = 1; i < args.size(); ++i) {
        const auto [key, value] = parse_setting(args[i]);
        const bool none = value == "none";
        TRY_ASSIGN(const bool taken, set_money_limit(limits, key, value));
        if (taken) continue;
        if (key == "hours") {
            TRY_ASSIGN(limits.hours, hours_of(value));
        } else if (key == "jobs" || key == "cpus" || key == "reserve") {
            auto& limit = key == "jobs"   ? limits.jobs
                          : key == "cpus" ? limits.cpus
                                          : limits.reserve;
            limit.reset();
            if (none) continue;
            TRY_ASSIGN(limit, whole_from_zero<int32_t>(key, value));
        } else {
            return fail("user-limit: '" + args[i] +
                        "' is none of spend-per-day, jobs, cpus, reserve, hours, credit, "
                        "allowance, every and expires");
        }
    }
    const bool by_name = args[0].find_first_not_of("0123456789") != std::string::npos;
    TRY(market.set_limits(of, by_name ? args[0] : name_of(market, of), limits, uid, now));
    JsonWriter w;
    write_user(w, market, of, now);
    return w.take();
}

// add or remove, PROJECT, USER or "-"
Result<std::string> project_reply(Market& market, const std::vector<std::string>& args,
                                  uint32_t uid, Nanos now) {
    const std::string &what = args[0], &name = args[1], &who = args[2];
    if (what != "add" && what != "remove") return fail("project: add or remove is wanted");
    if (uid != root_uid)
        return fail(CauseCode::not_allowed, "only root may say who is of a project");
    std::optional<uint32_t> member;
    if (who != "-") {
        TRY_ASSIGN(member, user_of(market, who));
    } else if (what == "remove") {
        return fail("project remove: a user is missing");
    }
    if (const auto other = user_of(market, name); other && !market::is_project(*other))
        return fail(CauseCode::not_possible, "project " + name + ": a user has that name");
    TRY_ASSIGN(const uint32_t number, market.set_member(name, member, what == "add", uid, now));
    JsonWriter w;
    write_user(w, market, number, now);
    return w.take();
}

}  // namespace souk
