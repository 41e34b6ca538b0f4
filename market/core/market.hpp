// SPDX-License-Identifier: GPL-2.0-or-later
// Market: the market as one pure machine. It is fed what agents report and operators ask, and
// answers with what to store and what to send; its shell makes everything in Outputs::store durable
// before the first message of the same Outputs leaves. No clock: every input brings `now` (never
// steps back within one life).
//
// The shell calls inputs as they come and solve() once when it has read all it has: so a burst is
// one decision. Then nothing is left to do until the next input or next_call().
//
// The word of a job's home node about it is true where it is backed (claims.hpp); else it is held:
// it takes no room, pays nothing, and is left where it is. The market only wishes. A wish is an
// order, one per job at a time, with a number (`seq`) that grows for ever. It is outstanding until
// the home reports the wished-for state, says that it failed, or is silent for too long. From order
// to report the job is in transit: it counts as taken where it goes and where it comes from, and
// nothing else is decided about it (only a cancel may overtake). What does not fit yet waits for
// those that leave; two jobs that want each other's places go by way of a freeze of the lesser one.
//
// What is not to be decided about is pinned for the solver: jobs in transit, jobs whose home or
// place is not connected, jobs that refused to be frozen or moved a moment ago (back-off, doubling,
// bounded), jobs that an operator holds.
//
// Money: a job pays its price for the time that it ran, by its home's clock. While it runs the
// market reckons with its own and puts right, when the home reports the sum, what messages took on
// their way. Every micro-unit that a job pays is credited to the provider it ran on in the same
// step, so the sums are equal at any time (see audit()). What a job was charged becomes a receipt
// of the ledger when its run at a place ends, when its price changes and after an hour; prices that
// change within seconds share one, so that their number is bounded.
//
// What can be looked at by itself is a machine of its own, in the header of its name; the Market
// hands it the jobs and nodes that a step is about (market_state.hpp):
//
//   Book           jobs, nodes and users: who is let in, and what of them is to be stored
//   Places         where a job may run, and why not
//   Admission      which jobs of users with limits compete
//   Notes          what homes and owners hear
//   Refusals       jobs that were not let in, and when their homes are asked again
//   Quotes         what jobs would get that are submitted now
//   Orders         their numbers, what becomes of one, back-off
//   claims         whether a job can be where its home says
//   bill           run time, charges and receipts of one job
//   UserDays       when a user's day is spent, and what each home may let run of it
//   PriceRounds    when prices are reckoned anew and put in force
//   OutsideSolver  questions to another program, and what of its answers still holds
//   Ledger         receipts and balances
//   StandingJobs   for how long suspended jobs stand in memory
//   Settling, Alarms, CommentRounds, PriceSampler: when something is to be looked at again
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernel/base/trace.hpp"
#include "market/core/admission.hpp"
#include "market/core/alarms.hpp"
#include "market/core/bill.hpp"
#include "market/core/book.hpp"
#include "market/core/comment_rounds.hpp"
#include "market/core/decision_log.hpp"
#include "market/core/ledger.hpp"
#include "market/core/marked.hpp"
#include "market/core/market_io.hpp"
#include "market/core/market_state.hpp"
#include "market/core/notes.hpp"
#include "market/core/orders.hpp"
#include "market/core/outside_solver.hpp"
#include "market/core/places.hpp"
#include "market/core/price_rounds.hpp"
#include "market/core/price_sampler.hpp"
#include "market/core/quote.hpp"
#include "market/core/refusals.hpp"
#include "market/core/settling.hpp"
#include "market/core/solver.hpp"
#include "market/core/speed_check.hpp"
#include "market/core/standing.hpp"
#include "market/core/use_check.hpp"
#include "market/core/user_days.hpp"
#include "market/core/users.hpp"

namespace souk {
class JsonWriter;
}

namespace souk::market {

struct MarketOptions {
    SolverOptions solver;
    // Users spend what their accounts hold; else accounts are kept, and nothing ends at them.
    bool metered = false;
    // Of what a job has paid at a place: what its owner gets beside that, once, if it has made a
    // promise to him be missed.
    int32_t refund_permille = 0;
    // after a restart: wait this long for agents before anything is moved
    Nanos settle = Nanos::from_s(3);
    Nanos grace = Nanos::from_s(60);  // a lost provider's jobs count as running for this long
    Nanos order_patience = Nanos::from_s(1'200);
    // a home took an order, and is neither there nor says that it failed
    Nanos doubt_patience = Nanos::from_s(2);
    // a home is back and does not report a job that it had
    Nanos forgotten_patience = Nanos::from_s(60);
    Nanos backoff_min = Nanos::from_s(1), backoff_max = Nanos::from_s(300);
    // a node where a job is by its home's word says so too; a home that says more than the market
    // and the node know is then told to freeze the job
    Nanos confirm_patience = Nanos::from_s(60);
    size_t jobs_max = 1'000'000, nodes_max = 10'000;
    size_t jobs_home_max = 0, jobs_user_max = 0;  // 0: nine tenths of jobs_max
    // finished jobs that are still known here; their records are stored, the others' alone
    size_t finished_recent = 256;
};

// Money that is moved, not used: a deposit for a user or a withdrawal by it, a transfer to
// another, a payout of what a provider has earned, to a user or (`outside`) out of the market.
struct MoneyOrder {
    Receipt::Kind kind = Receipt::Kind::deposit;
    uint32_t uid = 0;  // whose account: it gets a deposit or payout, and pays the others
    std::string user;
    uint32_t other = 0;  // who gets a transfer
    std::string other_user;
    NodeName node;  // of a payout
    bool outside = false;
    Money amount;
    std::string note;  // for people
};

struct Totals {
    size_t waiting = 0, running = 0, frozen = 0, in_transit = 0, finished = 0;
    size_t standing = 0;  // of the frozen: in memory, by an order
    Surplus surplus;
    Money paid, earned;  // equal
};

class Market {
  public:
    explicit Market(MarketOptions options);
    Market(const Market&) = delete;  // its machines know its book
    Market& operator=(const Market&) = delete;
    // One option of the solver, while the market runs, by name (Solver::set); `default`: as
    // configured. Returns what is so now, for people. Errors: who may not, and what is wrong with
    // the name or value; nothing changes then.
    Result<std::string> set_option(const std::string& what, const std::string& value,
                                   const std::string& why, uint32_t uid, Nanos now);
    const std::vector<SolverSetting>& settings() const { return book_.meta().settings; }

    // Before anything else, in any order; then started().
    void load(MetaRecord meta);
    void load(JobRecord job);  // finished ones need not be
    void load(NodeRecord node);
    void load(AccountRecord account) { ledger_.load(std::move(account)); }
    void load(UserRecord user);
    void load(PriceRecord record) { prices_seen_.load(std::move(record)); }
    // What to add to `now` for Unix time; at any time, as clocks are set.
    void set_calendar(Nanos unix_minus_now) { calendar_ = unix_minus_now; }
    void started(Nanos now);

    // From agents. An error: the agent breaks the rules (another node's job) or a bound is reached;
    // nothing changed.
    Status agent_connected(const NodeName& node, const std::string& address, Nanos now);
    void agent_lost(const NodeName& node, Nanos now);
    Status report(const NodeName& node, const ToMarket& message, Nanos now);
    void use_report(const NodeName& node, const UseReport& report, Nanos now);
    // Where a home and a place did not agree on how long a job has run, since this was last asked.
    struct Differ {
        JobId job;
        use_check::Difference what;
    };
    std::vector<Differ> take_differences() { return std::exchange(differ_, {}); }
    // Nodes of which another speed was found since this was last asked; `found`: at most what its
    // owner says, and as much if it gives that.
    struct SpeedMark {
        NodeName node;
        int64_t claimed = 0, found = 0;
    };
    std::vector<SpeedMark> take_speed_marks() { return std::exchange(speed_marks_, {}); }
    // As much of the speed that its owner says as programs have found there (speed_check.hpp). It
    // is told to people and decides nothing, since homes can make such runs up.
    int64_t speed_found(const Node& node) const {
        const int64_t claimed = node.record.report.speed;
        return std::min(claimed, speeds_.most(node.id()).value_or(claimed));
    }
    // Jobs that were loaded with the address of another one, and have none now (Book::begin).
    const std::vector<std::pair<JobId, Ipv4>>& lost_addresses() const {
        return book_.lost_addresses();
    }
    // To be called before the report of a job that is not known here (find) and was stored as
    // finished: its home wants to hear so again.
    void recall(JobRecord finished);

    // From people: one line for them, or why not. `uid` is the caller's, by the kernel's word.
    Result<std::string> cancel(const JobId& id, uint32_t uid);
    Result<std::string> move(const JobId& id, const NodeName& node, bool hold, uint32_t uid);
    Result<std::string> freeze(const JobId& id, bool hold, uint32_t uid);
    Result<std::string> thaw(const JobId& id, const NodeName& node_or_empty, bool hold,
                             uint32_t uid);
    Result<std::string> release(const JobId& id, uint32_t uid);
    // What has become of such an order (`name`: a move's node, empty for a freeze or a thaw;
    // `freezes`: a freeze) since the job had that many failures. To be asked after solve().
    struct Outcome {
        bool over = false, done = false;
        souk::Cause text;  // why it was not done, or not yet; done: where the job is
    };
    Outcome outcome(const JobId& id, const NodeName& name, bool freezes, uint64_t failures) const;
    // Replaces all limits of user `of`.
    Result<std::string> set_limits(uint32_t of, const std::string& name, const UserLimits& limits,
                                   uint32_t uid, Nanos now);
    // A user comes to a project or leaves it; without one the project is made. Its number.
    Result<uint32_t> set_member(const std::string& project, std::optional<uint32_t> member,
                                bool comes, uint32_t uid, Nanos now);
    // Whether a user may look at this account: its own, or that of a project of which it is.
    bool may_look_at(uint32_t account, uint32_t uid) const;
    // The balance of the account that it was about, less what is used and not paid. Errors: who may
    // not, or more than is there; nothing changed.
    Result<Money> move_money(const MoneyOrder& order, uint32_t uid, Nanos now);
    // A node says that it has missed what it promises its owner, for this job. What its user pays
    // him for that.
    Result<Money> promise_missed(const NodeName& node, const JobId& id, const std::string& promise,
                                 Nanos now);
    // It will not come back: every home goes on without what is there. Kept until the node is
    // connected again.
    Result<std::string> write_off(const NodeName& name, uint32_t uid);
    // It is no node of this market any more. Jobs that were submitted there, are cancelled and do
    // not run end with it. Its account and receipts stay; under the same name it may come again.
    // Errors: it is connected, or something of a job that has not ended is there.
    Result<std::string> forget(const NodeName& name, uint32_t uid, Nanos now);

    // What a job, or several alike, would get that are submitted now; after solve(), as what came
    // in since is not decided yet. Errors: no quote can be given now, and why.
    Result<Quote> quote(const QuoteRequest& request, Nanos now) const;

    // Decides on everything that came in, and on what time made due. Cheap if that is nothing.
    void solve(Nanos now, Outputs& out);
    // When solve() must be called at the latest; never() if nothing waits.
    Nanos next_call() const;

    // An allocation worked out elsewhere: after Outputs::ask_solver, adopt() or, when there is
    // none, use_own() (once), then solve() as usual.
    void set_external(bool on) {
        outside_.use(on);
        dirty_ = true;
    }
    using Problem = OutsideSolver::Problem;
    Problem problem() const;
    Status adopt(const std::vector<Solver::Assignment>& allocation, Nanos now);
    void use_own();

    // Who hears of each step (kernel/base/trace.hpp); null: nobody. It outlives the machine.
    void tell_to(TraceListener* listener) { tracer_.tell_to(listener); }
    // Who hears of each decision; null: nobody. It outlives the machine.
    void log_to(DecisionLog* log) { log_ = log; }
    // No later decision than this is named by what was loaded.
    uint64_t decisions() const { return book_.meta().decisions; }
    // What it holds right now, as a whole, of a job and of a node: keys and values of an open JSON
    // object (tools/common/replies.md).
    void describe(Nanos now, JsonWriter& j) const;
    void describe(const Job& job, Nanos now, JsonWriter& j) const;
    void describe(const Node& node, Nanos now, JsonWriter& j) const;

    // To look at.
    const std::map<JobId, Job>& jobs() const { return book_.jobs(); }
    const std::map<NodeName, Node>& nodes() const { return book_.nodes(); }
    const Book::Limits& bounds() const { return book_.limits(); }
    size_t jobs_of_home(const NodeName& home) const { return book_.jobs_of_home(home); }
    uint64_t refused_of_home(const NodeName& home) const { return refusals_.count(home); }
    const Ledger& ledger() const { return ledger_; }
    const PriceHistory& price_history() const { return prices_seen_.history(); }
    const std::map<uint32_t, User>& users() const { return book_.users(); }
    bool day_is_spent(const User& user) const { return book_.day_is_spent(user); }
    const Job* find(const JobId& id) const { return book_.find(id); }
    const Node* find_node(const NodeName& name) const { return book_.find_node(name); }
    // Null: it was never connected, and nobody has named it.
    const Node* home_of(const Job& job) const {
        if (!job.home) job.home = find_node(job.id().home);
        return job.home;
    }
    bool metered() const { return options_.metered; }
    const SolverOptions& solver_options() const { return solver_.options(); }
    bool settling() const { return settling_.is_on(); }
    const Solver& solver() const { return solver_; }
    // Null: it is finished, or there is none.
    const Job* job_of(JobKey key) const { return book_.job_of(key); }
    bool external() const { return outside_.is_used(); }
    Totals totals(Nanos now) const;
    // What the job has cost by now, and for how long it has run.
    static Money cost(const Job& job, Nanos now) { return bill::cost(job, now); }
    static Nanos run_time(const Job& job, Nanos now) { return bill::run_time(job, now); }
    // How long it has waited for a place in all.
    static Nanos waited(const Job& job, Nanos now);
    // "off", "lost", "disconnected", "unable", "busy" or "free".
    const char* provider_state(const Node& node, Nanos now) const;
    // Of a node that takes no jobs now: those that are still there, stopped ones included.
    static int32_t guests_left(const Node& node);
    ProviderNote prices(const Node& node) const;
    // Why it is where it is, as of now; in words, and with its code.
    std::string comment(const Job& job) const { return reason(job).text(); }
    Reason reason(const Job& job) const;
    // All that is to be said of it, the first as above: what it holds that cannot move, what failed
    // last, which nodes could not take it, when it may start.
    std::vector<Reason> reasons(const Job& job, Nanos now) const;
    // Why the node takes none, or from which bid on it takes one of one CPU.
    Reason reason(const Node& node, Nanos now) const;
    // The first invariant that does not hold, empty if all do. For tests.
    std::string audit() const;

  private:
    struct Wish {
        JobState state = JobState::waiting;
        NodeName place;
        Pin pin = Pin::free;
    };

    // market_jobs.cpp: reports, orders, back-off
    Status job_report(const NodeName& node, const JobReport& report, Nanos now);
    Result<Job*> let_in(const NodeName& node, const JobReport& report, Nanos now);
    void note_lacking(Job& job);
    Status order_failed(const NodeName& node, const OrderFailed& failed, Nanos now);
    void note_speed(const Job& job);
    void finish(Job& job, Nanos now);
    void forget_finished();
    void job_alarm(Job& job, Nanos now);
    void lose_home(Job& job, Nanos now);
    void set_alarm(Job& job);
    Nanos surely_stopped(const Job& job) const;
    void list_at(Job& job, const NodeName& node, bool add);
    void claim(Job& job);

    // whether what homes say is backed, and who is let in
    void look_at_backing(Job& job, Nanos now);
    void resume_backing(Job& job, Nanos now);
    void back_by(const JobId& id, Nanos now);
    void wants_proof_later(Job& job, const Node& to, Nanos now);
    void wants_proof_soon(Job& job, Nanos now);
    void note_steady(Job& job, Nanos now);
    void demand_proof(Job& job, Nanos now);
    void stop_clock(Job& job, Nanos ran, Nanos now);
    static bool is_sent(const Job& job);
    void turn_away(const JobReport& report, const Error& why, Nanos now);
    void ask_again(Nanos now, Outputs& out);

    // market_pay.cpp: run time and money
    void clock(Job& job, const JobReport& before, Nanos ran, Nanos now);
    bool settle_move(Job& job, Nanos total, Nanos now);
    void run_at(Job& job, const NodeName& node, Nanos now);
    Nanos account_until(Job& job, Nanos ran, Nanos now);
    void close_tab(Job& job, Nanos now);
    void open_ledger();
    bool set_price(Job& job, Money price, Nanos now);
    void set_bid(Job& job, Nanos now);
    void refresh_prices(Nanos now);
    class Payers final : public PriceRounds::Payers {
      public:
        explicit Payers(Market& market) : market_(market) {}
        bool may_change(JobKey job) const override;
        bool take(const Payment& payment, Nanos now) override;
        void reckoned(const Solver::PriceStart& round, Nanos now) const override;
        void reckoned(std::span<const Payment> some, Nanos now) const override;

      private:
        bool holds(const Job& job) const;
        Market& market_;
    };
    Surplus surplus() const;
    void settle_use(Job& job, Nanos now);
    void take_back(Job& job, const use_check::Difference& difference, Nanos now);

    // market_limits.cpp: what users may have at most
    void begin_day(Nanos now);
    void count_days();
    class Known final : public Admission::Jobs {
      public:
        explicit Known(const Market& market) : market_(market) {}
        const Job& at(const JobId& id) const override { return market_.book_.jobs().at(id); }
        Job* of(JobKey key) const override { return market_.book_.job_of(key); }
        std::optional<bool> runs_anyhow(const Job& job) const override;
        JobDemand spec_of(const Job& job, Job::Held held) const override;

      private:
        const Market& market_;
    };
    void decide(Nanos now, bool by_own_solver);
    void spend(User& user, Money cost);
    void end_days(Nanos now);
    void reckon_days(Nanos now);
    class Homes final : public UserDays::Homes {
      public:
        explicit Homes(Market& market) : market_(market) {}
        bool is_reachable(const Job& job) const override;
        void tell(Job& job) override;

      private:
        Market& market_;
    };
    std::vector<Job*> claiming(const User& user);
    static bool in_transit(const Job& job) { return Orders::in_transit(job); }
    // It names a project for which its user may not spend.
    bool lacks_project(const Job& job) const {
        const JobReport& r = job.record.report;
        return !r.terms.project.empty() && book_.project_for(r) == 0;
    }
    Reason why_limited(const Job& job) const {
        if (lacks_project(job))
            return Reason(ReasonCode::no_project)
                .with(Figure::cause, job.record.report.terms.project);
        return Admission::why(*job.user, job, job.held, day_is_spent(*job.user));
    }
    std::string audit_users() const;
    // market_funds.cpp
    void open_account(User& user);
    void has_more(User& user);
    void grant(User& user, Nanos now);
    Money owned(uint32_t uid) const;
    // market_projects.cpp
    void choose_payer(Job& job, Nanos now);

    // market_trace.cpp
    void heard(Input input, const JobId& id = {}, const NodeName& node = {},
               const std::string& why = {}) const {
        if (tracer_.on()) tell_input(to_string(input), id, node, why);
    }
    void tell_input(std::string step, const JobId& id, const NodeName& node,
                    const std::string& why) const;
    void tell_report(const NodeName& node, const ToMarket& message) const;
    void tell_state(const Job& job);
    void tell_outputs(const Outputs& out, size_t stored, size_t sent);

    // market_quote.cpp
    void sample_prices(Nanos now);
    std::optional<Money> usual_price_now(Nanos now);

    // market_solve.cpp: the solver, and from its answer to orders
    std::optional<Wish> fact(const Job& job) const;
    Wish wish(const Job& job) const { return wish(job, job.held); }
    Wish wish(const Job& job, Job::Held held) const;
    JobDemand spec_of(const Job& job, const Wish& wish) const;
    // market_age.cpp: how long jobs have waited
    static bool waits(const Wish& w) { return w.pin == Pin::free && w.state != JobState::running; }
    void note_wait(Job& job, bool waits, Nanos now);
    void resume_wait(Job& job, Nanos now);
    int32_t weight_of(const std::vector<Job*>& gang, Nanos now) const;
    void weigh_all();
    void root(Job& job);
    Reason why_stopped(const Job& job) const;
    static Reason why_unsure(const Job& job);
    void solve_now(Nanos now, Outputs& out);
    void sync_jobs(Nanos now);
    void sync_nodes();
    void take_changes(std::span<const Change> changes);
    // market_gangs.cpp: jobs of several components
    static bool of_gang(const Job& job) { return !job.record.report.gang.empty(); }
    std::vector<Job*> gang_of(const Job& job);
    void list_in_gang(const Job& job);
    bool enter_gang(Job& job, Nanos now);
    void wake_gang(const Job& job, Nanos now);
    bool place_gang(Job& job, Nanos now, Outputs& out);
    Reason why_gang_waits(const Job& job) const;
    void wake_gangs_for(const Node& node);
    void place(Nanos now, Outputs& out);
    bool place_one(Job& job, Nanos now, Outputs& out);
    const Node* target_of(const Job& job) const;
    bool will_give_room(Node& node);
    void break_cycle(const Job& blocked, Nanos now, Outputs& out);
    void issue(Job& job, Order::Kind kind, const NodeName& node, const Reason& reason, Nanos now,
               Outputs& out, bool stand = false);
    // market_standing.cpp: suspended jobs that stand in memory first
    static bool is_closed(const Node& node);
    std::vector<StandingJobs::One> standing_on(const Node& node) const;
    int64_t missing_mb(const Node& node) const;
    bool stands_first(Job& job, Nanos now);
    void note_standing(Job& job, Nanos now);
    void bound_standing();
    Reason why_to_disk(const Job& job) const;
    bool has_no_room(const Job& job, const Node& at) const;
    void make_room(const Job& blocked, const Node& node, Nanos now, Outputs& out);
    Names names() const;
    std::vector<OutsideSolver::KnownJob> known_jobs() const;

    // market_comment.cpp
    Reason why_waiting(const Job& job, const Solver& solver) const;
    bool would_beat_own(const Job& job, Money bid) const;
    std::optional<Money> starting_bid(const Job& job, const Solver& solver) const;
    Reason why_pinned(const Job& job) const;
    void refresh_comments(Nanos now);

    // market.cpp
    void flush(Nanos now, Outputs& out);
    class Texts final : public Notes::Texts {
      public:
        explicit Texts(const Market& market) : market_(market) {}
        const Node* home_of(const Job& job) const override { return market_.home_of(job); }
        Reason reason(const Job& job) const override { return market_.reason(job); }
        ProviderNote prices(const Node& node) const override { return market_.prices(node); }

      private:
        const Market& market_;
    };
    void end_settling(Nanos now);
    Job* mutable_job(const JobId& id) { return book_.find(id); }
    Node& node_of(const NodeName& name);
    void touch(Job& job);
    void touch(Node& node);
    Result<SolverOptions> options_with(const std::vector<SolverSetting>& settings) const;
    Result<Job*> operated(const JobId& id, uint32_t uid);
    Status may_forget(const Node& node, Nanos now) const;
    Nanos may_begin_until(const Job& job, const Node& home) const;
    void unhold(const NodeName& name);
    Money earned_by_forgotten() const;

    Tracer tracer_;
    DecisionLog* log_ = nullptr;
    MarketOptions options_;
    Solver solver_;
    Book book_;
    Places places_;
    Admission admission_;
    UserDays days_;
    PriceSampler prices_seen_;
    int64_t usual_minute_ = -1;  // the newest row that `usual_` is of
    std::optional<Money> usual_;
    Ledger ledger_;
    Nanos calendar_;
    Orders orders_;
    StandingJobs standing_;
    std::vector<const Job*> wants_room_;  // of one placing: what did not fit where its place is
    Marked<Job, &Job::touched> touched_;
    Marked<Job, &Job::pending> pending_;
    Marked<Node, &Node::touched> touched_nodes_;
    uint64_t room_round_ = 0, room_search_ = 0;  // of will_give_room
    std::vector<Differ> differ_;
    SpeedCheck speeds_;
    std::vector<SpeedMark> speed_marks_;
    std::map<std::string, std::set<JobId>> gangs_;      // components that have not finished
    std::map<std::string, souk::Error> gangs_refused_;  // why the solver does not place them
    // by the name of a node that is not known: gangs with a component for it
    std::map<NodeName, std::set<std::string>> gangs_wait_for_;
    std::set<std::string> gangs_seen_;  // in this round of orders
    std::set<JobId> lacking_;           // jobs that wait and whose program some nodes lack
    std::set<std::pair<NodeName, JobId>> awaited_;  // Job::awaits
    Notes notes_;
    Refusals refusals_;
    Alarms alarms_;
    Settling settling_;
    bool dirty_ = false;
    CommentRounds comment_rounds_;
    PriceRounds price_rounds_;
    OutsideSolver outside_;
};

}  // namespace souk::market
