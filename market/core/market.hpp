// SPDX-License-Identifier: GPL-2.0-or-later
// Market: the market as one pure machine. It is fed what agents report and operators ask, and
// answers with what to store and what to send. Its shell makes everything in Outputs::store durable
// before the first message of the same Outputs leaves. It has no clock: every input brings `now`,
// which never steps back within one life.
//
// The shell calls inputs as they come, and solve() once when it has read all it has, so a burst is
// one decision. Then nothing is left to do until the next input or next_call().
//
// The word of a job's home node about the job is true where it is backed (claims.hpp). Otherwise
// the job is held: it takes no room, pays nothing, and is left where it is. The market only wishes.
// A wish is an order, one for a job at a time, with a number (`seq`) that grows for ever. It is
// outstanding until the home reports the wished-for state, says that it failed, or is silent for
// too long. From order to report the job is in transit: it counts as taken where it goes and where
// it comes from, and nothing else is decided about it (only a cancel may overtake).
//
// Every micro-unit that a job pays is credited to the provider it ran on in the same step, so the
// sums are equal at any time (see audit()).
//
// The Market composes objects that each own their part, in the headers of their names:
//
//   Book           jobs, nodes and users: who is let in, and what of them is to be stored
//   WorkList       the jobs and nodes that the next decision looks at
//   JobReports     what homes and places say of jobs, and what time does to them
//   RoomClaims     the room that jobs take on nodes
//   JobAlarms      when time changes something about a job
//   JobWaits       how long jobs have waited for a place
//   Places         where a job may run, and why not
//   GangList       which jobs are components of one gang
//   Admission      which jobs of users with limits compete
//   Allocation     what the solver is told and decides (OutsideSolver: another program does)
//   SuspendedJobs  which suspended jobs stand in memory, and which go to disk
//   SubmitFilter   what the operator's submit filter has said of jobs
//   Reservations   places that are sold ahead, promised deadlines, jobs inside others' places
//   RunTimes       how long programs take, learned
//   Placement      the orders that bring jobs where the solver has them
//   Orders         their numbers, what becomes of one, back-off
//   Billing        run time, charges and receipts of jobs
//   UserFunds      what users may spend and where their money comes from
//   Ledger         receipts and balances
//   SiteCredit     what peers owe, and how far they may
//   Bidding        what jobs bid, and the history of prices
//   PricesInForce  what running jobs pay
//   Operators      what people order about jobs and nodes
//   Explain        why each job is where it is
//   Notes          what homes and owners hear
//   MarketTrace    what a listener hears of each step
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "market/core/admission.hpp"
#include "market/core/allocation.hpp"
#include "market/core/bidding.hpp"
#include "market/core/billing.hpp"
#include "market/core/book.hpp"
#include "market/core/equal_jobs.hpp"
#include "market/core/explain.hpp"
#include "market/core/gang_list.hpp"
#include "market/core/gang_loans.hpp"
#include "market/core/job_alarms.hpp"
#include "market/core/job_reports.hpp"
#include "market/core/job_waits.hpp"
#include "market/core/ledger.hpp"
#include "market/core/lent_jobs.hpp"
#include "market/core/market_context.hpp"
#include "market/core/market_io.hpp"
#include "market/core/market_state.hpp"
#include "market/core/market_trace.hpp"
#include "market/core/notes.hpp"
#include "market/core/offers_to_peers.hpp"
#include "market/core/operators.hpp"
#include "market/core/orders.hpp"
#include "market/core/placement.hpp"
#include "market/core/places.hpp"
#include "market/core/plan.hpp"
#include "market/core/prices_in_force.hpp"
#include "market/core/quote.hpp"
#include "market/core/reservations.hpp"
#include "market/core/room_claims.hpp"
#include "market/core/run_times.hpp"
#include "market/core/settling.hpp"
#include "market/core/site_credit.hpp"
#include "market/core/site_guests.hpp"
#include "market/core/site_moves.hpp"
#include "market/core/site_offer.hpp"
#include "market/core/site_terms.hpp"
#include "market/core/solver.hpp"
#include "market/core/submit_filter.hpp"
#include "market/core/suspended_jobs.hpp"
#include "market/core/user_days.hpp"
#include "market/core/user_funds.hpp"
#include "market/core/users.hpp"
#include "market/core/wide_changes.hpp"
#include "market/core/work_list.hpp"

namespace souk {
class JsonWriter;
}

namespace souk::market {

class Market {
  public:
    explicit Market(MarketOptions options);
    Market(const Market&) = delete;  // its parts know each other
    Market& operator=(const Market&) = delete;

    // -- the past: before anything else, in any order, then started()

    void load(MetaRecord meta);
    void load(JobRecord job);  // finished ones need not be
    void load(NodeRecord node);
    void load(AccountRecord account) { ledger_.load(std::move(account)); }
    void load(UserRecord user);
    void load(PriceRecord record) { bids_.load(std::move(record)); }
    // Finished jobs, the oldest first, from whose run times is to be learned.
    void learn(const JobRecord& finished) { run_times_.ended(finished); }
    // `now` and this make Unix time, and that and `zone` the market's local time. It may be called
    // at any time, because clocks are set.
    void set_calendar(Nanos unix_minus_now, Nanos zone = {}) {
        if (std::exchange(context_.zone, zone) != zone) funds_.hours_changed();
        const Nanos was = std::exchange(context_.calendar, unix_minus_now);
        if (std::max(was - unix_minus_now, unix_minus_now - was) > Nanos::from_ms(100)) {
            reservations_.changed();
            funds_.hours_changed();
        }
    }
    void started(Nanos now);
    // To be called before the report of a job that is not known here (find) and was stored as
    // finished: its home wants to hear so again.
    void recall(JobRecord finished);

    // -- agents. An error: the agent breaks the rules (another node's job) or a bound is reached;
    // nothing has changed.

    Status agent_connected(const NodeName& node, const std::string& address, Nanos now);
    void agent_lost(const NodeName& node, Nanos now);
    Status report(const NodeName& node, const ToMarket& message, Nanos now);
    void use_report(const NodeName& node, const UseReport& report, Nanos now) {
        reports_.take_use(node, report, now);
    }
    // A node says that it has missed what it promises its owner, because of this job. Returns what
    // the job's user pays the owner for that.
    Result<Money> promise_missed(const NodeName& node, const JobId& id, const std::string& promise,
                                 Nanos now);
    // Returns what was noticed since it was last asked.
    using Differ = Billing::Differ;
    std::vector<Differ> take_differences() { return billing_.take_differences(); }

    // -- people: one line for them, or why not. `uid` is the caller's, by the kernel's word.

    Result<std::string> cancel(const JobId& id, uint32_t uid) { return operators_.cancel(id, uid); }
    Result<std::string> give(const JobId& id, uint32_t to, uint32_t uid) {
        auto given = operators_.give(id, to, uid);
        if (given) reservations_.note(*find(id));
        return given;
    }
    Result<std::string> move(const JobId& id, const NodeName& node, bool hold, uint32_t uid) {
        return operators_.move(id, node, hold, uid);
    }
    Result<std::string> freeze(const JobId& id, bool hold, uint32_t uid) {
        return operators_.freeze(id, hold, uid);
    }
    Result<std::string> thaw(const JobId& id, const NodeName& node_or_empty, bool hold,
                             uint32_t uid) {
        return operators_.thaw(id, node_or_empty, hold, uid);
    }
    Result<std::string> release(const JobId& id, uint32_t uid) {
        auto released = operators_.release(id, uid);
        if (released) reservations_.note(*find(id));
        return released;
    }
    // Says what has become of such an order (Operators::outcome). To be asked after solve().
    using Outcome = Operators::Outcome;
    Outcome outcome(const JobId& id, const NodeName& name, bool freezes, uint64_t failures) const {
        return operators_.outcome(id, name, freezes, failures);
    }
    // The node will not come back: every home goes on without what is there. Kept until the node is
    // connected again.
    Result<std::string> write_off(const NodeName& name, uint32_t uid) {
        return operators_.write_off(name, uid);
    }
    // It is no node of this market any more. Jobs that were submitted there, are cancelled and do
    // not run end with it. Its account and receipts stay; under the same name it may come again.
    // Errors: it is connected, or something of a job that has not ended is there.
    Result<std::string> forget(const NodeName& name, uint32_t uid, Nanos now) {
        return operators_.forget(name, uid, now);
    }
    // Replaces all limits of user `of`.
    Result<std::string> set_limits(uint32_t of, const std::string& name, const UserLimits& limits,
                                   uint32_t uid, Nanos now);
    // A user comes to a project or leaves it; without one the project is made. Returns its number.
    Result<uint32_t> set_member(const std::string& project, std::optional<uint32_t> member,
                                bool comes, uint32_t uid, Nanos now);
    // Whether a user may look at this account: its own, or that of a project of which it is.
    bool may_look_at(uint32_t account, uint32_t uid) const {
        return funds_.may_look_at(account, uid);
    }
    // Returns the balance of the account that it was about, less what is used and not paid. Errors:
    // who may not, or more than is there; nothing has changed.
    Result<Money> move_money(const MoneyOrder& order, uint32_t uid, Nanos now);
    // One option of the solver, while the market runs, by name (Solver::set); `default`: as
    // configured. Returns what is so now, for people. Errors: who may not, and what is wrong with
    // the name or value; nothing changes then.
    Result<std::string> set_option(const std::string& what, const std::string& value,
                                   const std::string& why, uint32_t uid, Nanos now);

    // -- decisions

    // Decides on everything that came in, and on what time made due. Cheap if that is nothing.
    void solve(Nanos now, Outputs& out);
    // When solve() must be called at the latest; never() if nothing waits.
    Nanos next_call() const;
    // Says what a job, or several alike, would get that are submitted now. To be called after
    // solve(), as what came in since is not decided yet. Errors: no quote can be given now, and
    // why.
    Result<Quote> quote(const QuoteRequest& request, Nanos now) const;

    // Says what a job of another site would get here now, by the terms that hold for that site, and
    // keeps that place for it for as long as it asks, half a minute at most. To be called after
    // solve().
    SiteOffer offer(const SiteGuests::Site& site, const SiteAsk& ask, Nanos now);

    // -- jobs at other sites, and of other sites (docs/sites.md). Names are as they are here.

    // The job waits and goes to that site, which has offered it a place. Errors: it does not.
    Status lend(const JobId& id, const std::string& site, Nanos now);
    // The components go to these sites, the others stay (gang_loans.hpp). Errors: none goes.
    Status lend_gang(const JobId& id, const std::vector<GangLoans::Part>& parts, Nanos now);
    GangLoans& gang_loans() { return gang_loans_; }
    const GangLoans& gang_loans() const { return gang_loans_; }
    // The rooms here that the components of this gang could have; to be called after solve().
    Result<std::vector<SiteRoom>> rooms_at_home(const Job& job, Nanos now) const;
    // Says what is wanted of an offer for the job.
    OfferWish site_wish(const Job& job, Nanos now) const { return moves_.wish(job, now); }
    // Returns the place at its own site that a job which runs at another one would get now; nothing
    // is kept. Errors: there is none, and why.
    Result<Quote::Place> place_at_home(const Job& job, Nanos now) const;
    // The job runs at another site, and moves to that place. Errors: it does not.
    Status move_home(const JobId& id, const Quote::Place& place, Nanos now,
                     bool by_program = false);
    // The job, which runs or is frozen, moves to that site for this offer. Errors: it does not.
    Status move_for_gain(const JobId& id, const std::string& site, const SiteOffer& offer,
                         Nanos now, bool by_program = false);
    // Until when none of these sites is asked about the job, if it rests for all; else empty.
    Reason site_rests(const Job& job, const std::vector<std::string>& sites, Nanos now) const {
        return moves_.rests(job, sites, now);
    }
    // The newest look at other sites has come to this, which is shown with its reasons.
    void say_of_sites(const JobId& id, const Reason& word);
    // That site orders a job of this one; `number`: SiteOrder::number. Errors, which it is told:
    // what keeps the order from being passed on.
    Status site_order(const std::string& site, const Order& order, Nanos now, uint64_t number = 0);
    void site_note(const std::string& site, const SiteNote& note, Nanos now);
    // A job of another site of which that is said has ended a stay here, and comes once more.
    const Job* comes_again(const SiteJob& word) const { return guests_.comes_again(word); }
    // That site reports a job of its own. Errors, which it is told: the job does not come.
    Status site_job(const SiteGuests::Site& site, const SiteJob& word, Nanos now);
    Status site_failed(const std::string& site, const OrderFailed& failed, Nanos now);
    // Says what peers owe, and how far they may.
    SiteCredit& credit() { return credit_; }
    const SiteCredit& credit() const { return credit_; }
    // A peer has paid this site that (below 0: this one has paid it), both operators say: into, or
    // out of, its account. `uid`: whose word it was here. Errors: no account holds that.
    Status settle_site(uint32_t account, const std::string& site, Money paid,
                       const std::string& note, uint32_t uid, Nanos now);
    // The market of that site is connected, or is not any more.
    void site_up(const std::string& site, Nanos now);
    void site_down(const std::string& site, Nanos now);
    // It knows what other sites are to hear of jobs that were given to them, since the last
    // solve().
    LentJobs& lent() { return lent_; }
    const LentJobs& lent() const { return lent_; }

    // The operator's submit filter has answered about a job, or gives no answer, and why.
    void filtered(const JobId& id, const Result<FilterWord>& word);
    // Jobs about which it is to be asked, since the last call.
    std::set<JobId> take_unfiltered() { return filter_.take_due(); }

    // An allocation worked out elsewhere: after Outputs::ask_solver, adopt() or, when there is
    // none, use_own() (once), then solve() as usual.
    using Problem = OutsideSolver::Problem;
    void set_external(bool on) { allocation_.use_program(on); }
    Problem problem() const { return allocation_.problem(); }
    Status adopt(const std::vector<Solver::Assignment>& allocation, Nanos now);
    void use_own();

    // -- listeners: null: nobody; they outlive the machine

    // Hears of each step (kernel/base/trace.hpp).
    void tell_to(TraceListener* listener) { trace_.tell_to(listener); }
    // Hears of each decision. No later decision than decisions() is named by what was loaded.
    void log_to(DecisionLog* log) { context_.log = log; }
    uint64_t decisions() const { return book_.meta().decisions; }

    // -- to look at

    const std::map<JobId, Job>& jobs() const { return book_.jobs(); }
    const std::map<NodeName, Node>& nodes() const { return book_.nodes(); }
    const std::map<uint32_t, User>& users() const { return book_.users(); }
    const Job* find(const JobId& id) const { return book_.find(id); }
    const Node* find_node(const NodeName& name) const { return book_.find_node(name); }
    // Null: it was never connected, and nobody has named it.
    const Node* home_of(const Job& job) const { return book_.home_of(job); }
    // Null: it is finished, or there is none.
    const Job* job_of(JobKey key) const { return book_.job_of(key); }
    const Book::Limits& bounds() const { return book_.limits(); }
    size_t jobs_of_home(const NodeName& home) const { return book_.jobs_of_home(home); }
    // Jobs that were loaded with the address of another one, and have none now (Book::begin).
    const std::vector<std::pair<JobId, Ipv4>>& lost_addresses() const {
        return book_.lost_addresses();
    }
    bool day_is_spent(const User& user) const { return book_.day_is_spent(user); }
    bool may_not_run(const User& user) const { return book_.may_not_run(user); }
    const std::vector<SolverSetting>& settings() const { return book_.meta().settings; }
    uint64_t refused_of_home(const NodeName& home) const { return reports_.refused_of_home(home); }
    const Ledger& ledger() const { return ledger_; }
    const PriceHistory& price_history() const { return bids_.history(); }
    // Draws what is to run where until then (Unix time), if these nodes are gone meanwhile.
    MarketPlan plan(Nanos now, Nanos until, const NodesOff& off) const {
        return plan_of(book_, places_, context_.unix(now), now, until, off, run_times_);
    }
    const Reservations& reservations() const { return reservations_; }
    uint64_t promises_followed() const { return reservations_.followed(); }
    // Says what a job, or all components of one, could be promised now; to be called after solve().
    PromiseOffer promise_offer(const std::vector<const Job*>& all, Nanos now) const {
        return reservations_.promise_offer(all, now);
    }
    Nanos calendar() const { return context_.calendar; }  // to add to `now` for Unix time
    const Solver& solver() const { return solver_; }
    const SolverOptions& solver_options() const { return solver_.options(); }
    bool metered() const { return context_.options.metered; }
    const ResourceBook& resources() const { return places_.resources(); }
    bool settling() const { return settling_.is_on(); }
    bool external() const { return allocation_.outside().is_used(); }
    Totals totals(Nanos now) const { return prices_.totals(now); }
    ProviderNote prices(const Node& node) const { return prices_.note_of(node); }
    // These say what the job has cost by now, and for how long it has run, and has waited for a
    // place.
    static Money cost(const Job& job, Nanos now) { return bill::cost(job, now); }
    static Nanos run_time(const Job& job, Nanos now) { return bill::run_time(job, now); }
    static Nanos waited(const Job& job, Nanos now) { return JobWaits::waited(job, now); }
    // Explain says why, and in words.
    std::string comment(const Job& job) const { return reason(job).text(); }
    Reason reason(const Job& job) const { return explain_.reason(job); }
    std::vector<Reason> reasons(const Job& job, Nanos now) const {
        return explain_.reasons(job, now);
    }
    Reason reason(const Node& node, Nanos now) const { return explain_.reason(node, now); }
    const char* provider_state(const Node& node, Nanos now) const {
        return explain_.provider_state(node, now);
    }
    // Writes what it holds right now, as a whole, of a job and of a node: keys and values of an
    // open JSON object (tools/common/replies.md).
    void describe(Nanos now, JsonWriter& j) const;
    void describe(const Job& job, Nanos now, JsonWriter& j) const {
        explain_.describe(job, now, j);
    }
    void describe(const Node& node, Nanos now, JsonWriter& j) const {
        explain_.describe(node, now, j);
    }
    // The first invariant that does not hold, empty if all do. For tests.
    std::string audit() const;

  private:
    Quoter quoter() const;
    // Errors: a job of these terms gets no place at once, and why.
    Result<Quote> quote_that_runs(const QuoteRequest& request, Nanos now) const;
    Quote::Promise promise_of(const QuoteRequest& request, Nanos now) const;
    Result<SolverOptions> options_with(const std::vector<SolverSetting>& settings) const;
    void touch_files_served();
    Status provider_report(Node& node, const ProviderReport& report, Nanos now);
    Status meet_node(const std::string& site, const NodeName& node, Nanos now);
    void end_settling(Nanos now);
    void solve_now(Nanos now, Outputs& out);
    void decide(Nanos now, Outputs& out);
    void flush(Nanos now, Outputs& out);
    void forget_finished();
    void forget(Job& job);

    MarketContext context_;
    MarketTrace trace_;
    Solver solver_;
    Ledger ledger_;
    Book book_;
    Places places_;
    Admission admission_;
    UserDays days_;
    Orders orders_;
    Settling settling_;
    Notes notes_;
    WorkList work_;
    WideChanges wide_{book_, places_, work_};
    SubmitFilter filter_;
    EqualJobs equals_{work_};
    JobAlarms alarms_;
    RoomClaims rooms_;
    JobWaits waits_;
    GangList gangs_;
    Billing billing_;
    UserFunds funds_;
    Bidding bids_;
    PricesInForce prices_;
    Allocation allocation_;
    SuspendedJobs suspended_;
    JobReports reports_;
    Explain explain_;
    LentJobs lent_;
    Placement placement_;
    SiteGuests guests_;
    SiteCredit credit_;
    RunTimes run_times_;
    SiteMoves moves_;
    Reservations reservations_;
    OffersToPeers offers_;
    GangLoans gang_loans_;
    Operators operators_;
};

}  // namespace souk::market
