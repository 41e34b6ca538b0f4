// SPDX-License-Identifier: GPL-2.0-or-later
// The records, inputs and outputs of a Home (home.hpp), each with its
// name.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "agentd/core/messages.hpp"
#include "agentd/core/story.hpp"
#include "kernel/base/time.hpp"
#include "market/core/messages.hpp"

namespace souk {

// The steps of a move or thaw, in order; `none` outside of one.
enum class MoveStep : uint8_t {
    none = 0,
    prepare,   // both ends make ready; nothing is frozen
    transfer,  // the source dumps and ships, the destination restores and holds
    // decided: the candidate owns the job; the source must be dead, or stand for good, before it
    // runs
    kill_old,
    release,  // the destination may run
};
const char* to_string(MoveStep step);

// The step of a component whose gang is frozen, or thaws, as one (gang_freeze.hpp).
enum class CutStep : uint8_t {
    none = 0,
    asked,    // its phase is `freezing`; a restart gives that up
    decided,  // so, and all stand dumped: they are frozen
    held,     // its phase is `thawing`; restored, it waits for the others. A restart gives that up
};
const char* to_string(CutStep step);

// Something of a job that may still lie on a node that does not own it: asked after until the node
// says `unknown`.
struct Orphan {
    Peer peer;
    Epoch epoch;
    bool operator==(const Orphan&) const = default;
};

// A copy of the job as it once stood, kept by a node (this one) under an epoch of its own.
struct Checkpoint {
    Peer at;
    Epoch epoch;  // 0: there is none
    Nanos taken;  // Unix time
    int64_t bytes = 0;
    // what it had written and read by then, as its capsule counts
    uint64_t output_end[2] = {0, 0}, input_end = 0;
    Nanos began = {};  // Unix time at which its node was told to make it; 0: not known
    bool operator==(const Checkpoint&) const = default;
};

// The point at which the job's streams at home and in its capsule part after it has gone back to a
// checkpoint: its later output stays, then comes `text` on the terminal or stderr, then its new
// output.
struct Splice {
    // it has gone back, and how long its streams are here is not known yet
    bool due = false;
    uint64_t shift[2] = {0, 0};  // byte N of its capsule is byte N + shift here
    uint64_t input_shift = 0;
    uint64_t at = 0;  // where the text belongs
    std::string text;
    bool operator==(const Splice&) const = default;
};

// One job as it is kept on disk; the whole of it is written at every change that matters.
struct HomeJob {
    JobId id;
    JobSpec spec;
    JobTerms terms;
    std::string name, user;
    Nanos submitted;  // Unix time
    JobPhase phase = JobPhase::waiting;
    Peer at;      // owner; empty while waiting
    Epoch epoch;  // owner's
    Peer to;      // candidate of a move or thaw
    Epoch to_epoch;
    Epoch last_epoch;  // the newest ever used
    MoveStep step = MoveStep::none;
    bool from_frozen = false;  // the source has only an image (thaw), not a running job (move)
    uint64_t order_seq = 0;
    bool cancelled = false;
    JobStats stats;
    std::vector<NodeName> places;
    Cause comment;
    int32_t wait_status = 0;
    Cause why;
    Money cost;            // by now, as the market last said
    Money price;           // per CPU-hour, likewise
    bool settled = false;  // the market has closed its account
    // of the request that submitted it, so that the same request sent again finds it
    uint64_t token = 0;
    std::vector<Orphan> orphans;
    Nanos cpu_here;  // the part of stats.cpu_time that the present epoch has used
    bool leased = false,
         // the owner's node, the candidate's, is another, and keeps to the job's lease
        to_leased = false;
    Checkpoint checkpoint;  // the last whole one
    Orphan saving;          // the one that is being made; epoch 0: none
    Splice splice;
    Nanos cost_run;      // its run time when it had cost `cost`; below 0: not known
    Nanos stay_run{-1};  // when it came to where it is, likewise
    // Its clock runs, by this machine's since its boot `boot`: the stretch that stats.run_time does
    // not hold yet. On disk also of a job that was told to start.
    Nanos running_since = Nanos::never();
    uint64_t boot = 0;
    // Its user's limit of a day (0: none), the cost at which this job's share of what the market
    // said is left of that is used up, and the one at which that is said.
    Money day_limit = {}, day_cost = {}, day_warn = {};
    // Before it first runs: nodes that could not execute its program, how it ends if none can, and
    // the last one's reason.
    std::vector<NodeName> lacking = {};
    int32_t lacking_status = 0;
    Cause lacking_why = {};
    // frozen, or freezing, and no image: it stands where it was, as it cannot be dumped or since an
    // order said so
    bool in_place = false;
    bool by_order = false;  // in_place: so, and it could be dumped
    Story story = {};
    // of the newest order that was taken (Order::ticket)
    std::string ticket = {};
    JobTies group = {};
    // The secret of which the keys of its images on disks are made, in hexadecimal digits; empty: a
    // job of a version that had none.
    std::string disk_secret = {};
    // that take what it writes while nobody is attached (wire::Submit), their names filled in
    std::string out_file = {}, err_file = {};
    FilesUse files_use = {};
    CutStep cut = CutStep::none;
    // Its gang goes back, and it is to be ended: then it goes back with the others.
    bool going_back = false;
    // frozen elsewhere: the copy of its image that comes to this node; epoch 0: none
    Orphan evacuation = {};
    // How much of a machine of speed 100 it has used until stats.run_time, and the speeds of `at`
    // and `to`.
    Nanos work = {};
    int64_t speed = 100, to_speed = 100;
    Cause ended_for = {};  // cancelled: by its home, for this reason; none: by a person
    JobTries tries = {};
    Nanos place_ends = {};  // the newest JobNote::place_ends
    Nanos ended = {};       // when this home learnt that it had finished, Unix time; 0: it has not
    bool operator==(const HomeJob&) const = default;
};

struct Submission {
    JobSpec spec;
    JobTerms terms;
    std::string name, user;
    uint64_t token = 0;  // kept in the job
    JobTies group = {};
    std::string disk_secret = {};              // likewise
    std::string out_file = {}, err_file = {};  // likewise, once its id is filled in
    JobTries tries = {};                       // likewise
};

namespace home {
// Effects, in the order in which they must take place.
struct Persist {
    HomeJob job;
    Durable when = Durable::now;
};
struct Erase {
    JobId id;
};
struct ToMarketMsg {
    ToMarket message;
};
struct ToGuest {
    Peer peer;
    GuestCommand command;
};
struct Answer {
    NodeName node;
    Heartbeat heartbeat;
};  // on the connection that it came on
// For whoever is attached to the job, and for the log.
struct Tell {
    using What = TellWhat;
    JobId id;
    What what;
    std::string text;
};
// The job has gone back: the shell says how long its streams are (`spliced`), now and after each
// restart that finds it due.
struct GoneBack {
    JobId id;
};
using Output = std::variant<Persist, Erase, ToMarketMsg, ToGuest, Answer, Tell, GoneBack>;
using Outputs = std::vector<Output>;
// persist, erase, to_market, to_guest, answer, tell, gone_back
const char* to_string(const Output& output);
// The inputs: the methods of Home by name.
enum class Input : uint8_t {
    restarted,
    submit,
    change,
    cancel,
    signal,
    market_up,
    order,
    note,
    market_down,
    guest_up,
    guest_event,
    undelivered,
    expel,
    heartbeat,
    node_lost,
    spliced,
    files_used,
    tick,
};
const char* to_string(Input input);
}  // namespace home

}  // namespace souk
