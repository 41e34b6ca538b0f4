// SPDX-License-Identifier: GPL-2.0-or-later
// UserFunds: what users may spend, and where their money comes from (users.hpp, docs/ledger.md):
// limits of a day, accounts, allowances, transfers, and the projects that pay for their members'
// jobs.
//
// Spend per day. A user's charges of a day never pass the limit: the charge that would is cut, and
// all jobs of the user are frozen at the moment at which the sum reaches it if all rates stay as
// they are. They go on when the next day begins, or when the limit is raised above what is spent.
// In a metered market an empty account ends them in the same way. The limits of jobs and CPUs at
// once are Admission's.
//
// Deposits, transfers, allowances and payouts are receipts like those of use. A job that names a
// project is charged to it while its user is a member; a job whose user is no member waits, or is
// frozen. Pure; part of Market.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "market/core/admission.hpp"
#include "market/core/billing.hpp"
#include "market/core/book.hpp"
#include "market/core/job_alarms.hpp"
#include "market/core/ledger.hpp"
#include "market/core/market_context.hpp"
#include "market/core/notes.hpp"
#include "market/core/user_days.hpp"
#include "market/core/work_list.hpp"

namespace souk::market {

// Money that is moved, not used: a deposit for a user or a withdrawal by it, a transfer to
// another, a payout of what a provider has earned, to a user or (`outside`) out of the market.
struct MoneyOrder {
    Receipt::Kind kind = Receipt::Kind::deposit;
    uint32_t uid = 0;  // whose account: it gets a deposit or payout, and pays the others
    std::string user;
    uint32_t other = 0;  // who gets a transfer
    std::string other_user;
    NodeName node;  // a payout comes from its account
    bool outside = false;
    Money amount;
    std::string note;  // for people
};

class UserFunds final : private UserDays::Homes {
  public:
    UserFunds(const MarketContext& context, Book& book, Ledger& ledger, UserDays& days,
              Admission& admission, Billing& billing, JobAlarms& alarms, Notes& notes,
              WorkList& work)
        : context_(context),
          book_(book),
          ledger_(ledger),
          days_(days),
          admission_(admission),
          billing_(billing),
          alarms_(alarms),
          notes_(notes),
          work_(work) {}

    // A metered market needs the funds of each user before the user's first charge. The user is
    // new here, or the market is.
    void open_account(User& user);
    // After a restart: the accounts of all, in a metered market.
    void open_accounts();
    // A job goes from its user to its project, or from one project to another, and never back: what
    // it still runs after its user has left the project, until it is frozen, is the project's.
    void choose_payer(Job& job, Nanos now);

    // The market's operator (root) changes limits, members and accounts. Errors: who may not, or
    // more than is there; nothing has changed then.
    Result<std::string> set_limits(uint32_t of, const std::string& name, const UserLimits& limits,
                                   uint32_t uid, Nanos now);
    Result<uint32_t> set_member(const std::string& project, std::optional<uint32_t> member,
                                bool comes, uint32_t uid, Nanos now);
    // Stops the jobs of users whose hours have ended, and lets those go on whose hours have begun.
    void look_at_hours(Nanos now);
    void hours_changed() { hours_at_ = Nanos{}; }
    // When it is to be called again; never(): nobody has hours.
    Nanos next_hours() const { return hours_at_; }
    bool may_look_at(uint32_t account, uint32_t uid) const;
    Result<Money> move_money(const MoneyOrder& order, uint32_t uid, Nanos now);
    // Books what a peer has paid this site (below 0: what this one has paid it). Errors: an account
    // would pass what it may hold or owe.
    Status settle_site(uint32_t account, const std::string& site, Money paid,
                       const std::string& note, uint32_t uid, Nanos now);
    // The deadline that was promised to the job was missed: a receipt says so, and gives its user
    // back what is due.
    void deadline_missed(Job& job, Nanos now);
    Result<Money> promise_missed(const NodeName& node, const JobId& id, const std::string& promise,
                                 Nanos now);

    // Sums of a day begin anew when the calendar says so. To be called first in each input.
    void begin_day(Nanos now);
    // Sums up what was charged today, from the receipts and from what is in none yet.
    void count_days();
    // Tells homes how far the day lets their jobs run, where that has changed.
    void reckon_days(Nanos now);
    // The same, and freezes the jobs of users whose day is over.
    void end_days(Nanos now);

  private:
    bool is_reachable(const Job& job) const override;
    void tell(Job& job) override;
    void has_more(User& user);
    void grant(User& user, Nanos now);
    Money owned(uint32_t uid) const;
    std::vector<Job*> claiming(const User& user);
    Money available(const MoneyOrder& order) const;
    static bool pays(const MoneyOrder& order);
    Status has_enough(const MoneyOrder& order) const;
    Money room_in(const Holder& holder, Money more) const;
    Status stays_in_bounds(const Receipt& receipt) const;
    Receipt receipt_of(const MoneyOrder& order, uint32_t uid, Nanos now) const;
    void book_movement(const Receipt& receipt);

    const MarketContext& context_;
    Book& book_;
    Ledger& ledger_;
    UserDays& days_;
    Admission& admission_;
    Billing& billing_;
    JobAlarms& alarms_;
    Notes& notes_;
    WorkList& work_;
    Nanos hours_at_;  // see look_at_hours()
};

}  // namespace souk::market
