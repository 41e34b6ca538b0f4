// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs and nodes as a Market sees them while it lives: their records, and what follows from what
// came in since. Market (market.hpp) owns them all; its machines get those that a step is about.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "kernel/base/rare.hpp"
#include "market/core/market_io.hpp"
#include "market/core/rank.hpp"
#include "market/core/types.hpp"

namespace souk::market {

struct Backoff {
    bool active = false;
    Nanos until;
    uint32_t failures = 0;
    souk::Cause why;

    // Once more: for twice as long as the last time, up to `max`. What is long ago does not count.
    void again(const souk::Cause& because, Nanos now, Nanos min, Nanos max);
    bool operator==(const Backoff&) const = default;
};

struct Node;

// The room in which the solver is told to keep a job that runs inside another one's place.
struct InsideSeat {
    NodeName node;
    int64_t cpus = 0, mb = 0;
    bool operator==(const InsideSeat&) const = default;
};

// How a job stands to a place that it has booked (reservations.hpp).
enum class Booked : uint8_t {
    no,      // it has booked none, or the time of that is over: it competes for a place
    asks,    // it waits for one that is sold to it
    sold,    // it has one, later
    clears,  // it has one soon: its room is being cleared
    holds,   // its place is its own
    lost,    // its node is gone, and no other has room: it competes
    inside,  // it runs in the place that another job of its user holds
    outside  // that job does not run, or has no room for it
};
const char* to_string(Booked booked);

// The orders of a job that were not carried out, in this life of the market.
struct Failed {
    std::map<NodeName, Backoff> bars;  // not there now
    Backoff stuck;                     // cannot be frozen or moved from where it is
    uint64_t times = 0;
    souk::Cause last;  // the last of them, and why; empty: one has been carried out since
    bool operator==(const Failed&) const = default;
};

// How a job ranks among those of equal bids: after its wait, then by its arrival.
struct Turn {
    int32_t weight = weight_plain;
    Nanos arrival;
    bool operator==(const Turn&) const = default;
};

struct Job;

// A job among the equal ones of its user (equal_jobs.hpp).
struct EqualJob {
    void* list = nullptr;  // null: it is in none
    ClassKey place = class_none;
    Nanos arrived;  // as the list counts it
    Turn own;
    // The jobs with which it has exchanged turns; null: it has its own.
    Job *has_turn_of = nullptr, *turn_is_with = nullptr;
};

// One job as the market sees it.
struct Job {
    enum class Held : uint8_t { none, jobs, cpus };  // by which limit of its user
    JobRecord record;
    JobKey key;
    User* user = nullptr;
    mutable const Node* home = nullptr;  // once known (Market::home_of)
    Rank listed;                         // its key in User::order
    bool is_listed = false;
    Held held = Held::none;
    bool reported = false;  // since its home connected
    Nanos ordered_at, doubt_since = Nanos::never();
    Sparse<Failed> failed;  // orders that were not carried out
    Rare<NodeName> once;    // an operator's order without hold; "" = freeze
    Sparse<NodeName> via;   // being frozen only to get there
    Rare<JobSend> sending;  // how far its source was with that when it last said so
    // its run time is run_base, plus what passed since run_since
    Nanos run_base, run_since = Nanos::never();
    Reason reason;        // why it waits, or why it is where it is
    Reason order_reason;  // of its newest order of this life of the market
    // The newest look at other sites for a gain has come to this.
    Sparse<Reason> site_word;
    std::string noted_comment;
    Money noted_price;
    Nanos noted_ends;  // JobNote::place_ends
    // the cost to which its user's limit of the day lets it run; below 0: no limit
    Money noted_day{-1};
    std::array<NodeName, 2> claims;  // nodes where its CPUs and memory count as taken
    NodeName lies_on;                // the node that runs it or keeps its image
    // keys of nodes that it was ordered to, the newest first; 0: none (claims.hpp)
    std::array<uint64_t, 4> ordered_to{};
    // record.unbacked: the node whose word it needs, and when its home is told to freeze it
    Sparse<NodeName> awaits;
    Nanos called_back_at = Nanos::never();
    // The node must have told of it by then; it has come where it was ordered to last.
    Nanos proof_by = Nanos::never();
    bool is_steady = false;
    int32_t claim_cpus = 0;
    int64_t claim_mb = 0;
    int64_t rooted_mb = 0;  // its memory on `rooted_on`, which it cannot leave
    Sparse<NodeName> rooted_on;
    int64_t standing_mb = 0;  // its memory on `standing_on`, from which it may go to disk
    Sparse<NodeName> standing_on;
    bool in_solver = false, note_due = false;
    size_t report_bytes = 0;  // of its report, as its home's count has it
    bool displaced = false;   // its comment says by whom, and is kept until it runs
    uint32_t touched = 0, unsaved = 0, noted = 0, pending = 0;  // marks of the Market's lists
    // It stands in memory: for so long at most, and until when; stood_enough: that has passed.
    Nanos stands_for, stands_until = Nanos::never();
    bool stood_enough = false;
    Nanos alarm = Nanos::never();
    // per CPU-hour: its maximum price, or less by its strategy
    Money bid;
    Nanos bid_until = Nanos::never();  // then it is reckoned anew
    // It waits for a place since then (never(): it does not), and its bid counts for more from
    // weighs_until on.
    Nanos waits_from = Nanos::never(), weighs_until = Nanos::never();
    int32_t weight = weight_plain;
    EqualJob equal;
    std::optional<double> in_time;  // Bid::in_time
    Booked booked = Booked::no;
    NodeName booked_on;         // clears, holds, inside: where
    Sparse<Reason> booked_why;  // asks, lost, outside: why
    Sparse<InsideSeat> seat;    // counts in its node's inside_cpus and inside_mb
    // Its user's needs and the submit filter's; empty: the filter has added none.
    Sparse<std::string> joint_needs;

    const JobId& id() const { return record.report.id; }
    JobPhase phase() const { return record.report.phase; }
};
const char* to_string(Job::Held held);

// Its needs of a node of this site.
inline const std::string& needs_of(const Job& job) {
    return job.joint_needs.empty() ? *job.record.report.terms.needs : *job.joint_needs;
}

// Returns what a job pays per CPU-hour whatever the market says: it was sold ahead, or another job
// pays for its place. nullopt: the market's price.
inline std::optional<Money> booked_price(const Job& job) {
    const NodeName& where = job.record.report.where;
    if (!where.empty() && where != job.booked_on) return std::nullopt;
    if (job.booked == Booked::inside) return Money{};
    if (job.booked == Booked::holds) return job.record.contract->price;
    return std::nullopt;
}

// Another site has it, and this market decides nothing about it but to stop it.
inline bool is_lent(const Job& job) {
    const Loan& loan = *job.record.loan;
    return !loan.site.empty() && !loan.over && !loan.asked;
}

// Another site has it, or is asked for a place for it. Of a component: its gang at home goes on, or
// begins, without a place for it here.
inline bool is_away(const Job& job) {
    return !job.record.loan->site.empty() && !job.record.loan->over;
}

// Whether it leaves its place, or comes to another one.
inline bool is_on_its_way(const Job& job) {
    const JobPhase p = job.phase();
    return p == JobPhase::moving || p == JobPhase::freezing || p == JobPhase::thawing;
}

struct Node {
    NodeRecord record;
    ProviderKey key;
    int machine = 0;        // its kind
    Nanos machine_next{0};  // before that another one is not taken
    bool connected = false;
    Nanos lost_at;               // when it was last connected
    std::map<JobId, Job*> jobs;  // that claim room here, or whose image lies here
    int64_t used_cpus = 0, used_mb = 0;
    int64_t inside_cpus = 0, inside_mb = 0;  // of all seats there (Job::seat)
    std::map<JobId, Epoch> said;             // copies that it says it has, which nothing else backs
    // of that, held by jobs that cannot leave, whatever becomes of them
    int64_t rooted_mb = 0;
    // and by jobs that stand there by an order, and go to disk for whoever wins it
    int64_t standing_mb = 0;
    bool in_solver = false;
    uint32_t touched = 0, unsaved = 0, noting = 0;  // marks of the Market's lists
    uint64_t gives_room = 0, seen = 0;              // by will_give_room, in a search of that number
    ProviderNote noted;
    Nanos noted_at{INT64_MIN / 2};
    // what its newest report left to jobs, those that were there included
    int64_t room_mb = 0;
    // off the market: the most guests that it has had since; 0: it had none, or takes jobs
    int32_t leaving_of = 0;

    const NodeName& id() const { return record.node; }
};

}  // namespace souk::market
