// SPDX-License-Identifier: GPL-2.0-or-later
// The messages between a job's home node and the node that hosts it, as plain values. A command
// names the job's epoch: a guest acts only for the epoch that it was given, so an order that comes
// late or twice changes nothing. Events state the whole of one (job, epoch) and may be repeated.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/cause.hpp"
#include "kernel/base/durable.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/base/ipv4.hpp"
#include "kernel/base/launch.hpp"
#include "kernel/base/move.hpp"
#include "kernel/base/time.hpp"

namespace souk {

inline constexpr size_t local_paths_max = 16;  // of a job; souk-init has room for them and /tmp

// A program, and how it is to be treated. Every room that keeps or sends a job holds this one.
struct JobSpec {
    LaunchSpec launch;
    MovePolicy move = MovePolicy::automatic;
    TcpPolicy tcp = TcpPolicy::close;
    NetMode net = NetMode::host;  // own: with `keep`
    Ipv4 address;                 // own: given by its home
    Nanos checkpoint_every;       // while it runs; 0: as its home's node is configured
    // its node is lost, and there is no checkpoint: it may begin anew
    bool restart = false;
    // without its home for that long, nothing of it runs (lease.hpp); 0: no such limit
    Nanos lease;
    bool must_migrate = false;  // found immovable as it starts, it is refused
    std::string user;           // its name at home; empty: an older home
    RunsAs as;                  // on the nodes where it ran until now
    FilesMode files = FilesMode::local;
    // srun --files=auto, settled by its home (files_choice.hpp). home: a node that has the same
    // file systems shows its own; local: a node that has not refuses the job
    bool files_auto = false;
    // files_auto: the file systems of the home, which Agent sets when a command leaves
    // (kernel/sys/store/same_files.hpp)
    std::string file_systems;
    // Directories of the node that lie over the home's, with files = home (srun --local-path)
    std::vector<std::string> local_paths;
    FilesTmp tmp = FilesTmp::home;  // srun --tmp, settled by its home
    // files = home: each checkpoint has a snapshot of the working directory, to which the job goes
    // back, too (srun --files-snapshot)
    bool files_snapshot = false;
    // A component is started, and runs no byte of its program before its home releases it.
    bool hold = false;
    // A cancel asks it to end (SIGTERM), and ends it when so much time has passed. 0: as its home's
    // node is configured, until it is submitted; then: at once.
    Nanos grace;
    bool operator==(const JobSpec&) const = default;
};

// Says what becomes of a gang that lacks this component (home_gangs.hpp).
enum class ComponentClass : uint8_t {
    required,     // it does not run without it
    interactive,  // it waits for it as well, until that has failed to start several times
    optional      // it runs without it
};
const char* to_string(ComponentClass c);

// Another job of the same home for whose end a job waits.
struct JobAfter {
    enum class How : uint8_t { ended, well, badly };  // well: it has to exit with 0; badly: not so
    uint64_t seq = 0;
    How how = How::ended;
    // it is an array, and the job an element of another: the element of the same index is meant
    bool each = false;
    // All elements of the array `seq` have to end: well, each of them; badly, one of them. failed:
    // one has.
    bool whole = false, failed = false;
    bool operator==(const JobAfter&) const = default;
};

// The job that a job waits for before the market may place it, and the array to which it belongs.
// Numbers are those of jobs of the same home; 0: none.
struct JobTies {
    static constexpr size_t afters_max = 100;
    uint64_t after = 0;     // one more of `afters`, as tools of older versions say it
    bool after_ok = false;  // of that: well
    uint64_t array = 0;     // the first job of its array
    bool first = false;     // it is that
    uint32_t index = 0;     // in it
    uint32_t at_once = 0;   // jobs of the array that may run at once; 0: any number
    // A component of a gang (home_gangs.hpp): the gang's first one, how many it has, and the number
    // of this one. `whole`: all of them have come. `tries`: starts that failed; in the first
    // component, the failed starts of all required ones.
    uint64_t gang = 0;
    uint32_t components = 0;  // 0: it is of no gang
    uint32_t component = 0;
    bool whole = false;
    uint32_t tries = 0;
    ComponentClass role = ComponentClass::required;
    // How it is to lie: on this node alone (empty: on any), at most so many of the gang on one node
    // (0: any number), on few nodes. The last ones are those of the first component.
    NodeName node = {};
    uint32_t spread = 0;
    bool pack = false;
    // all near each other, within this round trip and with this bandwidth at least; 0: any
    bool near = false;
    int64_t near_trip_us = 0, near_mbit = 0;
    // All of these have to end so, or (after_any) one of them.
    std::vector<JobAfter> afters = {};
    bool after_any = false;
    bool singleton = false;  // and no earlier job of this name and user is unfinished here
    Nanos begin = {};        // Unix time before which it does not begin; 0: none
    bool operator==(const JobTies&) const = default;
};

// How often a job that failed is run again, and after which failures (home_delays.hpp). Where none
// is named, each counts.
struct JobTries {
    static constexpr uint32_t most_max = 100;
    static constexpr size_t statuses_max = 32;
    uint32_t most = 0;                    // times that it is run again
    std::vector<uint32_t> statuses = {};  // exit statuses
    bool signal = false;                  // a signal, or its limit of memory, ended it
    bool node = false;                    // its node was lost, or ended it
    uint32_t used = 0;                    // times that it was run again so far
    bool operator==(const JobTries&) const = default;
};

// The signs of a job in the names of its output files (srun -o).
struct OutputSigns {
    JobId id;                       // %j; its home is %N
    std::optional<uint32_t> index;  // %a: in its array
    JobId array;                    // %A: its array's first job, or itself
    std::string name, user;         // %x, %u: a slash in them becomes _
};
inline constexpr std::string_view output_signs = "jaANxu%";
// The pattern with the signs filled in; %% is one %.
std::string output_file_name(std::string_view pattern, const OutputSigns& signs);

enum class GuestVerb : uint8_t {
    query = 1,     // answer with an event, `unknown` if there is no such (job, epoch)
    start,         // a new job: needs spec
    prepare,       // destination of a move or thaw: an empty capsule with CRIU ready; needs spec
    prepare_dump,  // source of a move: CRIU ready beside the running job
    ship,          // source: freeze if running, dump, send the image to (dest, new_epoch); hold
    freeze,        // dump to disk, then kill what ran: the image is the job
    commit,        // source: the destination owns the job now: kill what runs here, keep the image
    resume,        // source: the move is off: go on as before (running, or frozen)
    release,       // destination, or a component that is held: run
    restore_here,  // like ship with this node as destination: thaw from the image that lies here
    drop,          // forget (job, epoch) and remove its image; never while it runs
    kill,          // end the job: every process of the capsule
    signal,        // to the job's foreground process group or its root, or to all of it
    // a place for a checkpoint that is to come, `prepared` when it is there; needs spec
    keep,
    // of what runs: dump, let it go on, send the image to (dest, new_epoch), which keeps it; of
    // what lies here frozen: send it there likewise, and keep it until it is dropped
    checkpoint,
};
const char* to_string(GuestVerb verb);

// Several jobs are dumped at one cut (gang_freeze.hpp): the purpose of that dump.
enum class Cut : uint8_t { none, freeze, checkpoint };

// Home to guest.
struct GuestCommand {
    JobId id;
    Epoch epoch;
    GuestVerb verb = GuestVerb::query;
    // ship, restore_here; with `cut`: of the cut, which no epoch of a copy has
    Epoch new_epoch;
    NodeName dest;             // ship
    std::string dest_address;  // ship
    JobSpec spec;              // start, prepare
    int64_t memory_mb = 0;     // start, prepare: limit of the capsule; 0 = none
    int32_t cpus = 1;          // start, prepare
    int32_t signal = 0;        // signal
    bool or_stand = false;     // freeze: a job that cannot be dumped is stopped where it is
    bool stand = false;        // freeze: it is only stopped where it is, where that can be done
    NodeName source;           // prepare, keep: who will send the image
    std::string ticket;        // start, prepare, keep, ship: the market's, sealed (ticket.hpp)
    // Set where a command leaves (Agent), both ends of a transfer get the same key in hexadecimal
    // digits. prepare, keep: of this epoch; ship, checkpoint: of new_epoch.
    std::string image_key;
    // The secret with which images of this epoch are encrypted on a disk; empty: they are not.
    std::string disk_secret;
    // prepare_dump: CRIU is to be ready for that dump. freeze, checkpoint: what is dumped stands
    // then (`shipped`, held_for) until its home says commit, checkpoint (without this) or resume.
    // An older version does each by itself.
    Cut cut = Cut::none;
    bool to_all = false;         // signal: to each of its processes
    bool not_restored = false;   // resume: CRIU could not restore what was dumped of it
    std::string resources = {};  // start, prepare: JobTerms::resources
    bool operator==(const GuestCommand&) const = default;
};

// The state of one (job, epoch) on the node that hosts it.
enum class GuestState : uint8_t {
    unknown = 1,  // no such (job, epoch) here: the command never arrived, or it was dropped
    starting,
    running,
    dump_ready,  // still running, CRIU stands ready beside it
    dumping,     // frozen now, its image being made
    shipped,     // source: image (and memory) sent, the job held
    frozen,      // only the image exists
    prepared,    // destination: empty capsule, CRIU ready
    held,        // destination: restored whole; a component: started; not yet running
    exited,      // ended by itself; wait_status
    killed,      // ended by `kill`
    failed,      // could not start, prepare or restore: nothing of it is left here
    // source, after the commit: stands frozen in memory, and is all there is if the destination
    // fails
    retained,
    // destination: runs, but not all of its memory has come; nothing that it does is told before
    filling,
};
const char* to_string(GuestState state);

// Guest to home.
struct GuestEvent {
    JobId id;
    Epoch epoch;
    GuestState state = GuestState::unknown;
    int32_t wait_status = 0;  // exited
    int32_t error = 0;        // failed: errno where known (ENOENT: no such program)
    bool program_error =
        false;  // failed: exec of the program itself, which no other node would mend
    // failed; running: why the last dump was refused; exited: what killed a process of it
    Trouble why;
    int64_t image_bytes = 0;  // frozen, shipped
    bool stopped = false;     // running: by job control (SIGTSTP)
    MoveForecast forecast;    // dumping: of the move that it is dumped for
    Trouble cannot_move;      // running, in_place: why; empty: as far as is known it can
    int32_t pid = 0;          // running: of its first process, on that node
    bool leased = false;      // it keeps to its lease there
    // dumping, frozen: since its lease was over, and not because its home said so
    bool lapsed = false;
    // dumping: stopped where it is, until its home lets it go on, as it cannot be dumped
    // (cannot_move) or since its home said so
    bool in_place = false;
    // dumping, shipped: frozen by its control group for the move to that epoch, so that only a word
    // of its home lets it go on, whoever dies there; 0: not so, or not yet. Of a cut: it is dumped
    // for that one, and stands
    Epoch held_for;
    // that this (job, epoch) has used; less than before: its node counts anew; 0: unknown
    Nanos cpu_time;
    // exited: bytes that it wrote to stdout and stderr, all of them; frozen, of a checkpoint: until
    // then
    uint64_t output_end[2] = {0, 0};
    uint64_t input_end = 0;  // of a checkpoint: bytes of stdin that it had read
    Nanos heard;             // Unix time at which its home took it; not sent
    // frozen, failed: `why` is that the image is damaged or another, so that no thaw will succeed
    bool image_refused = false;
    RunsAs as = {};  // running
    // failed: its user is nobody here, or somebody else than where it ran; that is so until the
    // owner says otherwise
    bool no_user = false;
    // running: stopped in memory by the owner of its node, and why; empty: it is not
    Cause paused = {};
    bool all_stand = false;  // dumping, for a cut: since now all of its processes stand
    // frozen: the owner of its node wants its image gone
    bool must_leave = false;
    // exited, killed: the job ran until its end there. A copy of it that a move has made before is
    // older, and does not become the job.
    bool went_on = false;
    // The most memory that this (job, epoch) has held at once, in bytes; 0: its node does not
    // measure it.
    int64_t memory_peak = 0;
    bool operator==(const GuestEvent&) const = default;
};

// Guest to home: the owner takes the node back; the job must leave now.
struct Expel {
    JobId id;
    Epoch epoch;
    bool operator==(const Expel&) const = default;
};

// Guest to home, and back as its answer: of the leases of all jobs of that home there (lease.hpp).
// `sent` is of the guest's clock, which runs on while the machine sleeps.
struct Heartbeat {
    Nanos sent;
    bool operator==(const Heartbeat&) const = default;
};

// The news of a job, for its users who are attached to it and for the log.
enum class TellWhat : uint8_t {
    started,
    frozen,
    moved,
    comment,
    stopped,
    continued,
    finished,
    warning
};
const char* to_string(TellWhat what);

}  // namespace souk
