// SPDX-License-Identifier: GPL-2.0-or-later
// The records, inputs and outputs of a Market (market.hpp), each with its name.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "market/core/account.hpp"
#include "market/core/ledger.hpp"
#include "market/core/messages.hpp"
#include "market/core/price_history.hpp"
#include "market/core/reason.hpp"
#include "market/core/site_offer.hpp"
#include "market/core/users.hpp"

namespace souk::market {

inline constexpr uint32_t root_uid = 0;

// An operator fixed this by --hold, until `release`. stay: at_node, wherever it runs next. by_user:
// its own user keeps it from running.
enum class Hold : uint8_t { none = 0, at_node, frozen, stay, by_user };
const char* to_string(Hold hold);
// Whether it is not to run.
constexpr bool holds_back(Hold hold) { return hold == Hold::frozen || hold == Hold::by_user; }

// One stay of a job at a place, under one epoch: what its home let be charged for it, and what the
// place itself has measured (use_check.hpp).
struct Stay {
    NodeName node;
    Epoch epoch;
    Nanos run;                  // that is charged for; what was taken back is taken off
    Money cost;                 // of that
    Nanos measured{-1};         // by the place; below 0: it has not said
    bool measured_all = false;  // the place has said that this was all
    bool over = false;          // the job is elsewhere now, or has ended
    bool refunded = false;      // the place's owner has got a refund for it
    bool operator==(const Stay&) const = default;
};

// A place that was sold to a job ahead of its time (reservations.hpp).
struct Contract {
    Nanos start, end;  // Unix time, end > start; start: of what the job asked for
    NodeName node;     // where; empty: its node is gone, and there is no other yet
    Money price;       // per CPU-hour
    int32_t cpus = 0;
    int64_t memory_mb = 0;
    uint32_t places_lost = 0;            // times that its node was gone
    Nanos sold;                          // Unix time
    bool over = false;                   // its time has passed
    Sparse<std::string> resources = {};  // named ones (JobTerms::resources)
    Sparse<std::string> needs = {};      // JobTerms::needs
    bool is_sold() const { return end.ns > 0; }
    bool operator==(const Contract&) const = default;
};

// How a promise has ended: none: it is open; all but kept and withdrawn: it was missed, and this is
// the cause.
enum class PromiseEnd : uint8_t {
    none = 0,
    kept,
    owner_left,
    took_longer,
    held_back,  // by an operator, a limit of its user, or its user
    home_away,
    late,         // the market brought it there too late
    withdrawn,    // its user wants none any more, or has ended the job
    cannot_move,  // it could not go to its place from where it was
};
const char* to_string(PromiseEnd end);
const char* words_of(PromiseEnd end);  // for people
bool is_missed(PromiseEnd end);

// A deadline that was promised to a job (promises.hpp).
struct Promised {
    Nanos deadline;  // Unix time; 0: none was
    Nanos work;   // all that it was to need, on a standard machine; 0: it was a limit by the clock
    Money price;  // of the place that was sold for it, per CPU-hour
    bool learned = false;  // that is learned from runs before
    PromiseEnd end = PromiseEnd::none;
    PromiseEnd keeps = PromiseEnd::none;  // kept it first from the place that it was to have
    // it holds its place there, and had cost so much when that began
    NodeName held_on;
    Money held_cost;
    // if the promise is missed since that owner left, its user gets this back from him
    NodeName back_from;
    Money back;
    Money counted;  // of that, what the node has not measured of the same time
    bool operator==(const Promised&) const = default;
};

// A job has been at another site, or was to go there.
struct SiteVisit {
    std::string site;
    Nanos left;          // when it left, Unix time; 0: it has not run there
    Nanos again;         // the markets give it there no earlier, Unix time
    uint32_t tries = 0;  // stays there that were short, or came to nothing, one after the other
    // The number of its stay there, if that is over and the site has not settled it, and its run
    // time then; 0: none.
    uint64_t owed = 0;
    Nanos run;
    bool operator==(const SiteVisit&) const = default;
};

// A job of this site that was given to the market of another one (lent_jobs.hpp). Of a job of
// another site `number` alone is known.
struct Loan {
    static constexpr size_t visits_max = 64;
    std::string site;       // empty: it is at none
    bool over = false;      // it has come back, and that site has not settled yet
    bool recalled = false;  // that site keeps it no longer: it is to come back
    bool asked = false;   // it runs here, and that site is asked for a place to which it could move
    bool priced = false;  // `price` holds from when the job is there, by its newest order
    Money price;
    uint64_t seq = 0, its_seq = 0;  // the newest order of that site: our number, and its own
    Nanos run;                      // its run time when it came back
    uint64_t number = 0;            // of its newest stay at another site, or question about one
    bool by_markets = false;        // they move it; else an operator does
    Nanos came;                     // when it came there, Unix time; 0: it has not
    int64_t speed = 0;              // of the place there
    Nanos trips;  // by when the trips that the markets made with it are paid off, Unix time
    std::vector<SiteVisit> visits;  // the newest of each site
    bool operator==(const Loan&) const = default;
};

// The operator's programs have said this of a job (docs/filters.md), beside its user's own terms.
struct FilterWord {
    // The submit filter: none: it was not asked; asked: it has not answered, and the job waits.
    enum class State : uint8_t { none = 0, asked, passed, refused };
    static constexpr size_t token_bytes_max = site_token_max, why_bytes_max = 200;
    State state = State::none;
    std::string why = {};    // refused: the filter's words; asked: why it gives no answer
    std::string token = {};  // goes with the job to other sites, where their filters see it
    std::string bars = {};   // it goes to none of these sites: names with commas between, or "any"
    std::string needs = {};  // of the nodes here, beside what its user needs (needs.hpp)
    bool hold = false;       // an operator is to release it first (Hold::frozen)
    // For a job of another site: its user's account on the nodes here, by the user map's word.
    std::string account = {};
    bool operator==(const FilterWord&) const = default;
};
const char* to_string(FilterWord::State state);

// One job as it is stored.
struct JobRecord {
    JobReport report;  // the newest
    Account account;   // what it has cost
    Tab tab;           // the part of that which is in no receipt yet
    Nanos billed;      // the part of its run time that the account holds
    // run time that its home forgot (it restarted): run time is what it reports, and this
    Nanos skew;
    Money price;        // per CPU-hour, now or when it last ran
    NodeName payee;     // where it ran when it was last billed
    Rare<Order> order;  // outstanding: stored before it leaves, as it takes room elsewhere
    Hold hold = Hold::none;
    Sparse<NodeName> hold_node;
    bool cancel = false;         // asked for; its home has not confirmed it
    bool out_of_budget = false;  // until the budget grows
    uint64_t finish_seq = 0;     // finished: the order in which they ended, 1 the first
    Nanos ended;                 // finished: when the market heard of it, Unix time
    // why it is where it is, as of its last order: `reason` in words; both empty while the market
    // has it, which keeps it as Job::reason
    Sparse<std::string> comment;
    Sparse<ReasonRecord> reason;
    // the newest last; those before it wait for their place's last word
    std::vector<Stay> stays;
    // Its run time is at most what has passed since, Unix time; 0: an older version's.
    Nanos ran_since;
    // How long it has waited for a place in all, but for the wait that has lasted since the Unix
    // time `waits_since` (0: it does not wait).
    Nanos waited, waits_since;
    // The part of its work that is charged: each stretch as long as it took on a standard machine.
    Nanos done;
    uint32_t payer = 0;     // the number of the project that pays for it; 0: its user does
    bool unbacked = false;  // its home alone says that it is where its report has it
    Sparse<Contract> contract = {};
    Sparse<Promised> promised = {};
    // It holds a place in which this user, too, may run programs (marketctl give); 0: nobody.
    uint32_t given = 0;
    Sparse<Loan> loan = {};
    // When the market first heard of it, Unix time: its turn among those of equal bids goes by
    // that, and not by what its home says of its submission. 0: an older version's.
    Nanos arrived = {};
    Sparse<FilterWord> filter = {};
};

struct NodeRecord {
    NodeName node;
    std::string address;
    bool has_report = false;
    ProviderReport report;  // the newest
    Money earned;
    // times that it and a job's home did not agree on a stay, and by how much in all
    uint64_t differences = 0;
    Nanos different;
};

// An operator set this of the solver while the market ran (marketctl set). It goes before what is
// configured, also after a restart, until it is set to `default`.
struct SolverSetting {
    std::string what;  // as Solver::set has it; the table's name
    std::string value;
    std::string why;  // the operator's words, one line; may be empty
    uint32_t uid = 0;
    Nanos at;  // since 1970
    bool operator==(const SolverSetting&) const = default;
};

struct MetaRecord {
    uint64_t seq_limit = 1;   // every order so far has a seq below this
    uint64_t finish_seq = 0;  // of the job that finished last
    Money retired;            // the cost of all jobs that have finished
    bool ledger = false;      // it is open: balances of before were brought forward
    uint64_t receipts = 0;    // the number of the last
    int64_t day = -1;         // the UTC day that sums of a day are of
    // `retired` is of all finished jobs, not only of those that were erased
    bool finished_retired = false;
    std::vector<SolverSetting> settings;  // at most one of each name, in the order of the setting
    uint64_t decisions = 0;  // the number of the newest when the last receipt was written
    bool arrivals = false;   // all jobs that wait have records, with the times when they came
};

struct EraseUser {
    uint32_t uid;
};
struct EraseNode {
    NodeName node;
};
struct ErasePrice {
    int64_t minute;
};
using StoreOp = std::variant<JobRecord, NodeRecord, AccountRecord, Receipt, MetaRecord, UserRecord,
                             PriceRecord, EraseUser, ErasePrice, EraseNode>;
struct Send {
    NodeName node;
    FromMarket message;
    uint64_t number = 0;  // to another site: SiteOrder::number, SiteNote::number
};
struct Outputs {
    std::vector<StoreOp> store;
    std::vector<Send> send;
    // set_external: work out an allocation of problem() and bring it to adopt()
    bool ask_solver = false;
};

// job, node, account, receipt, meta, user, price, erase_user, erase_price, erase_node
const char* to_string(const StoreOp& op);
// order, note, provider_note, directory, node_lost
const char* to_string(const FromMarket& message);
// The inputs: the methods of Market by name.
enum class Input : uint8_t {
    started,
    agent_connected,
    agent_lost,
    report,
    order_failed,
    provider_report,
    recall,
    cancel,
    move,
    freeze,
    thaw,
    release,
    give,
    set_limits,
    move_money,
    write_off,
    forget,
    set_option,
    adopt,
    use_own,
    lend,
    site_order,
    site_note,
    filtered,
};
const char* to_string(Input input);

}  // namespace souk::market
