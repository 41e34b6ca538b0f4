// SPDX-License-Identifier: GPL-2.0-or-later
// The messages between a node's agentd and the market, as plain values. market/wire turns them into
// protobuf and back; the pure machines (Market, Home, Guest) know only these. Every report states a
// whole, not a difference, so that it may be repeated after a broken connection.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "kernel/base/cause.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/base/ipv4.hpp"
#include "kernel/base/machine.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/move.hpp"
#include "kernel/base/rare.hpp"
#include "kernel/base/time.hpp"
#include "market/core/resource_text.hpp"

namespace souk {

// How long a job may run, by which its home ends it (agentd/core/home_time_limits.hpp).
struct RunLimits {
    Nanos run = {};        // while it runs: no wait, freeze or pause of a move counts; 0: any time
    int64_t at_speed = 0;  // run: as long as a machine of this speed would take; 0: by the clock
    Nanos cpu = {};        // CPU time of all of its processes; 0: any
    int32_t signal = 0;    // sent to its processes `before` the end; 0: none
    Nanos before = {};
    bool operator==(const RunLimits&) const = default;
};

// A place for a stated time, which is sold ahead (market/core/reservations.hpp); or a place inside
// one that its user holds.
struct Booking {
    Nanos start = {};         // Unix time; 0: at once
    Nanos span = {};          // 0: none is asked for
    bool early = false;       // it may begin before that
    bool holds = false;       // it runs no program of its own: other jobs run inside its place
    std::string within = {};  // the id of the job inside whose place it runs; empty: its own place
    bool promise = false;     // its deadline (JobTerms::finish) is to be promised (promises.hpp)
    bool asks() const { return span.ns > 0 || promise; }
    // It may begin before the place that is sold to it does.
    bool begins_early() const { return early || promise; }
    bool operator==(const Booking&) const = default;
};

// Other sites to which a job may go (docs/sites.md).
struct SiteWish {
    // "any", or names with commas between; empty: it stays at its own site
    std::string names = {};
    // of their offers the one that costs least; else the one that ends first
    bool cheapest = false;
    bool stays = false;  // while it runs it moves between sites for no gain
    Money within = {};   // the most that it pays per CPU-hour at another site; 0: as at its own
    bool operator==(const SiteWish&) const = default;
};

// The user asks for this and is ready to pay so much; it may change while the job runs (srun -J).
struct JobTerms {
    Money max_price;        // per CPU-hour, > 0
    Money budget;           // in all; 0 = no limit
    int64_t memory_mb = 0;  // the job will need; 0 = unknown
    int32_t cpus = 1;
    Nanos finish;          // span from submission by which it should complete; 0 = none
    std::string strategy;  // its name (strategy.hpp), at most 31 characters, no quote
    // with budget and finish: bid what the rest of the one lasts for until the other
    bool pace = false;
    bool memory_by_default = false;  // memory_mb is what its home gives a job that does not say
    Nanos runtime = {};              // of all of it on a standard machine (speed 100); 0 = unknown
    Sparse<std::string> project;     // whose account pays for it; empty: its user's own
    Sparse<RunLimits> limits = {};
    Sparse<std::string> needs = {};  // of the nodes that it may run on (needs.hpp); empty: nothing
    Sparse<Booking> booking = {};
    Sparse<std::string> resources = {};  // named ones (resource_text.hpp); empty: none
    Sparse<SiteWish> sites = {};
    bool operator==(const JobTerms&) const = default;
};

// The phase of a job, as its home node knows it.
enum class JobPhase : uint8_t {
    waiting = 1,
    starting,
    running,
    moving,
    freezing,
    frozen,
    thawing,
    finished
};
const char* to_string(JobPhase phase);

// The newest move of a job: what was expected of it, and what it was.
struct LastMove {
    MoveForecast forecast;
    Nanos pause, total;  // 0: it has not moved yet
    bool operator==(const LastMove&) const = default;
};

struct JobStats {
    uint32_t freezes = 0, thaws = 0, migrations = 0, failed_moves = 0;
    Nanos run_time;  // on a machine and not paused, summed over all places
    // of its migrations: frozen at the source until running at the destination
    Nanos longest_pause;
    int64_t image_bytes = 0;
    Sparse<LastMove> last_move;
    uint32_t resumes = 0;  // times that it went back to a checkpoint
    Nanos cpu_time;        // that it used, as the nodes measured it, summed over all places
    // Bytes of memory that it held at once at most, over all places; 0: no node has measured it.
    int64_t memory_peak = 0;
    uint32_t failed_tries = 0;  // after which it was tried again (srun --retries)
    bool operator==(const JobStats&) const = default;
};

// The traffic of a job that sees its home's files on other nodes (srun --files), as its home counts
// it. out: what it was sent (contents, names, attributes); in: what it sent.
struct FilesUse {
    bool served = false;  // it is such a job
    uint64_t out_bytes = 0, in_bytes = 0, requests = 0;
    std::string waits;  // why it is not reached where it runs, so that its file calls wait
    // Away from home it takes so much through the network, in both directions, in its last minute
    // there; and the round trip between the two nodes.
    uint64_t bytes_per_s = 0, requests_per_s = 0;
    Nanos round_trip = {};
    uint64_t known = 0;  // requests that its nodes have answered themselves, as far as they say
    bool operator==(const FilesUse&) const = default;
};

// Home to market: one job, whole.
struct JobReport {
    JobId id;
    JobTerms terms;
    uint32_t uid = 0;
    std::string user, name, command;
    Nanos submitted;  // Unix time
    JobPhase phase = JobPhase::waiting;
    NodeName where;  // the node that runs it or keeps its image; the source while it moves
    NodeName to;     // the destination while it moves or thaws
    Epoch epoch;
    uint64_t order_seq = 0;  // the newest order that the home node has taken
    Sparse<Cause> comment;   // one line for people: why the last order failed
    // its clock does, although the phase says that it runs: a move that was given up holds it still
    bool stands = false;
    // why, while it runs or is `in_place`; empty: as far as is known it can
    Sparse<Cause> cannot_move;
    // frozen (or being frozen), without an image: stopped where it is, with its memory, as it
    // cannot be dumped (cannot_move) or since an order said so (Order::stand)
    bool in_place = false;
    Ipv4 address;                      // of a job with a network of its own
    int32_t pid = 0;                   // of its first process, on `where`, while it runs
    Sparse<NodeName> checkpoint_node;  // where its last checkpoint lies; empty: it has none
    Nanos checkpoint_taken;            // Unix time
    int64_t checkpoint_bytes = 0;
    Sparse<std::string> checkpoint_trouble;  // why the newest try failed; empty: it did not
    JobStats stats;
    Nanos stay_run{-1};            // its run time when it came to `where`; below 0: not told
    Nanos alone;                   // so long it runs at most while its home is away; 0: without end
    std::vector<NodeName> places;  // where it ran, in order
    std::vector<NodeName>
        lacking;  // nodes that could not execute its program when it was to start there
    // nodes on which its user is nobody, or somebody else than where it ran, and what the last said
    std::vector<NodeName> no_user;
    Sparse<std::string> why_no_user;
    bool cancelled = false;
    int32_t wait_status = 0;  // as of waitpid, when finished
    Sparse<Cause> why;        // when finished without having run to its own end
    Nanos ended;  // when its home learnt that it had finished, Unix time; 0: it does not say
    Sparse<std::string> array;  // the id of the first job of its array; empty: it is of none
    uint32_t array_index = 0;   // in it
    // why its home does not let it begin yet; empty: it does
    Sparse<std::string> waits_for;
    Sparse<FilesUse> files;
    // stands: since the owner of its node stops it there, and why; empty: not for that
    Sparse<Cause> paused;
    // frozen on a node whose owner wants its image gone: why that did not get home; empty: it did,
    // or has not been tried
    Sparse<Cause> image_stays;
    // the id of the first component of its gang, empty: it is of none; which one this is; and how
    // many of them have not ended
    Sparse<std::string> gang;
    uint32_t component = 0, components = 0;
    bool optional = false;  // the others of its gang run without it
    // the only node for it, empty: any; how many of its gang may be on one node, 0: any number; the
    // gang is to lie on few; near each other, within this round trip and with this bandwidth at
    // least (0: any)
    Sparse<NodeName> only_node;
    uint32_t spread = 0;
    bool pack = false;
    bool near = false;
    int64_t near_trip_us = 0, near_mbit = 0;
    uint32_t uid_there = 0;  // of a job of another site: its user's number there
    bool operator==(const JobReport&) const = default;
};

// The node is on the market in this part of each week, and asks that price.
struct OpenHours {
    static constexpr int32_t week_s = 7 * 24 * 3600;
    int32_t from_s = 0, to_s = 0;  // Unix time modulo a week; to_s <= from_s + a week
    Money price;                   // per CPU-hour
    bool is_sound() const { return to_s > from_s && to_s <= from_s + week_s; }
    bool operator==(const OpenHours&) const = default;
};

// The provider half of a node to the market.
struct ProviderReport {
    NodeName node;
    bool on_market = false;
    Money reserve;        // per CPU-hour
    int64_t speed = 100;  // 100 is a standard machine
    int32_t cpus = 1;
    int64_t memory_mb = 0;  // offered
    int64_t free_mb = 0;
    int32_t load_permille = 0;  // CPU time used by the node's jobs, of all its CPUs
    int32_t wait_permille = 0;  // time that its jobs waited for a CPU, of all its CPUs
    std::string load_source;    // "bpf" or "proc"
    Machine machine;            // what an image made there needs, compared before a move
    std::string cannot;         // why it cannot take jobs now; empty when it can
    // what it cannot do with jobs that it takes; empty: nothing that is known
    std::string restriction = {};
    Nanos opens;  // off: when its frames begin next, on: end soon, Unix time; 0: not known, or not
    std::string version = {};  // of its agentd; empty: one that does not say
    bool holds = false;  // it holds components that are started until their home releases them
    // A task there stood still for want of memory for so many thousandths of the last 10 s.
    bool has_memory_pressure = false;  // its kernel tells
    int32_t memory_pressure_permille = 0;
    // Nodes of one group are near each other; empty: of none. From it to any other of them the
    // longest round trip and the least bandwidth; 0: its owner has not said.
    std::string near_group = {};
    int64_t near_trip_us = 0, near_mbit = 0;
    // It has these attributes besides, as lines NAME=VALUE in the order of their names (needs.hpp).
    static constexpr size_t attributes_max = 128, attribute_bytes_max = 200;
    std::vector<std::string> attributes = {};
    // Its frames and its price curve, in their order; empty: always, at `reserve`.
    static constexpr size_t hours_max = 256;
    std::vector<OpenHours> hours = {};
    std::vector<ResourceOffer> resources = {};  // named ones that it offers
    bool operator==(const ProviderReport&) const = default;
};

// near_group and how near, as far as it is known; nothing of a node of no group.
void write_near(JsonWriter& w, const ProviderReport& report);

// Provider to market: how long a job has run in its present stay there, as the node itself has
// measured it: without what it stood still.
struct JobUse {
    JobId id;
    Epoch epoch;
    Nanos run;
    Nanos cpu;           // CPU time, as far as it is measured
    bool ended = false;  // it runs there no more: this is all
    bool operator==(const JobUse&) const = default;
};
// Source to market: how far it is with sending a job's memory to another node, or to its own disk.
struct JobSend {
    JobId id;
    Epoch epoch;  // of the copy that is sent
    NodeName to;
    uint64_t sent_bytes = 0, total_bytes = 0;
    Nanos span;  // since it began
    bool operator==(const JobSend&) const = default;
};
struct UseReport {
    std::vector<JobUse> jobs;
    std::vector<JobSend> sends = {};  // those that are under way
    bool operator==(const UseReport&) const = default;
};

// Market to home: what to do with one job. `seq` grows with every order of one market; an older one
// is ignored.
struct Order {
    // give_up: no node can execute its program; only of a job that has reported so of some
    // (JobReport::lacking).
    enum class Kind : uint8_t { run = 1, suspend, abort, give_up };
    JobId id;
    uint64_t seq = 0;
    Kind kind = Kind::run;
    NodeName node;        // run: where
    std::string address;  // run: that node's agentd, host:port
    Money price;          // run: what it pays per CPU-hour at first
    std::string reason;   // for people
    std::string ticket;   // run: sealed (ticket.hpp); empty: the market gives none
    bool hold = false;    // run, of a component that waits: that node holds it until it is released
    // run, of a component: the market looks at JobReport::only_node, spread and pack
    bool layouts = false;
    bool near = false;  // run, of a component: it looks at JobReport::near, too
    // suspend: it only stops, and keeps its memory; what is older than this freezes it to disk
    bool stand = false;
    bool asks = false;   // suspend: the market does not know the job, which stays as it is
    int64_t speed = 0;   // run: of that node; 0: a market of a version that does not say
    bool books = false;  // run: the market looks at JobTerms::booking
    // run: the market has counted these named resources of the job (JobTerms::resources)
    std::string resources = {};
    // run, between nodes of two sites: the ticket of the site where the job runs lets it go from
    // there, and `ticket` is that of the site where it goes; empty: one ticket is for both
    std::string source_ticket = {};
    bool operator==(const Order&) const = default;
};
const char* to_string(Order::Kind kind);

// Home to market: the order `seq` could not be carried out; the job is as its newest report says.
struct OrderFailed {
    JobId id;
    uint64_t seq = 0;
    NodeName node;  // the node that was meant or that refused
    Cause why;
    bool operator==(const OrderFailed&) const = default;
};

// Market to home: what a job pays now and has cost so far. `settled`: it is finished and paid, home
// may forget it.
struct JobNote {
    JobId id;
    Money price, cost;
    std::string comment;  // why it waits or was moved
    bool settled = false;
    // Its user's limit of a day (0: none), what is left of that, and the cost of this job at which
    // its share of the rest is used up: the shares of all a user's jobs together are within the
    // rest.
    Money day_limit = {}, day_left = {}, day_cost = {};
    std::string code = {};  // of `comment` (market/core/reason.hpp)
    Nanos place_ends = {};  // the end of the place that it was sold, Unix time; 0: it was sold none
    bool operator==(const JobNote&) const = default;
};

// Market to provider: what its guests pay and what would take it.
struct ProviderNote {
    Money current_price, next_price, earned;
    int32_t guests = 0;
    // Named resources that it offers and the market has: those of the market count, and its own
    // are given to nobody.
    std::vector<std::string> of_market = {};
    bool operator==(const ProviderNote&) const = default;
};

struct Peer {
    NodeName node;
    std::string address;
    bool operator==(const Peer&) const = default;
};
// Market to agents: every node that is connected.
struct Directory {
    std::vector<Peer> peers;
    bool operator==(const Directory&) const = default;
};

// Market to agents: this node will not come back (an operator's word).
struct NodeLost {
    NodeName node;
    bool operator==(const NodeLost&) const = default;
};

using ToMarket = std::variant<JobReport, ProviderReport, OrderFailed>;
using FromMarket = std::variant<Order, JobNote, ProviderNote, Directory, NodeLost>;

}  // namespace souk
