// SPDX-License-Identifier: GPL-2.0-or-later
// The records, inputs and outputs of a Guest (guest.hpp), each with its name, and what it answers
// to the owner of its node.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "agentd/core/messages.hpp"
#include "kernel/base/time.hpp"
#include "market/core/messages.hpp"

namespace souk {

struct GuestKey {
    JobId id;
    Epoch epoch;
    auto operator<=>(const GuestKey&) const = default;
    std::string text() const { return id.text() + "." + std::to_string(epoch.n); }
};

// The record of one (job, epoch) on disk.
struct GuestJob {
    GuestKey key;
    JobSpec spec;
    int64_t memory_mb = 0;
    int32_t cpus = 1;
    GuestState state = GuestState::starting;
    bool from_image = false;  // came by prepare or keep, not by start
    bool kept = false;        // a checkpoint: nothing of it runs here
    bool lapsed = false;      // frozen because its lease was over
    bool in_place = false;    // told to run, and stopped where it is since
    bool by_order = false;    // in_place: its home said so, and not because it cannot be dumped
    int64_t image_bytes = 0;
    int32_t wait_status = 0;
    bool went_on = false;        // exited, killed: it ran until then, and was not held by a dump
    std::string resources = {};  // JobTerms::resources
    // It has these devices of this node: lines NAME:FILE (an older version wrote NAME:INDEX).
    std::vector<std::string> devices = {};
    bool operator==(const GuestJob&) const = default;
};

// How the owner of a node treats guests that are to leave it.
struct OwnerPolicy {
    // a guest that still runs here that long after `market off` is frozen to disk
    Nanos leave = Nanos::from_s(10);
    // kill: a guest that cannot be dumped, and stands where it is for `stand`, is killed; else it
    // stays
    bool kill = false;
    Nanos stand = Nanos::from_s(60);
};

namespace guest {
// After a crash: what the shell found of one record.
struct Found {
    bool capsule_alive = false;   // its PID 1 answers
    bool job_alive = false;       // the job's root lives
    bool held_by_dump = false;    // its control group stands frozen: a dump was under way
    bool image_complete = false;  // a whole image lies here
    bool lapsed = false;          // it stands because its lease was over, not for a dump
    bool paused = false;          // or for the owner of the node alone
    bool exited = false;
    int32_t wait_status = 0;
};
// A guest that should leave and is still here, for the owner: it runs or stands, with the reason.
struct Left {
    GuestKey key;
    bool stands = false;  // it uses no CPU
    bool stays = false;   // it stands and does not leave by itself: it cannot be dumped
    int64_t memory_mb = 0;
    Trouble why;  // it cannot move; empty: it is on its way, or will be
    Cause paused = {};
};
// The share of this node that guests have, for its owner. A guest that comes, ends, or stays behind
// for a move counts as long as anything of it is here. Images of the node's own jobs are at home
// and do not count.
struct Here {
    uint32_t running = 0;    // use CPUs, or may at any moment
    uint32_t in_memory = 0;  // with those that stand
    uint32_t all = 0;        // with capsules, and images on the disk
    // those of `all` that go as far as is known: copies that a move needs, guests that are being
    // removed, and images that their homes are to take
    uint32_t going = 0;
    int64_t memory_mb = 0;
    std::string who = {};  // the guest that holds things up, for people
};

struct Persist {
    GuestJob job;
    Durable when = Durable::now;
};
struct Erase {
    GuestKey key;
};  // durable `later`
// after_erase: the message waits until every earlier Erase is durable. The home forgets a job that
// is unknown here, and would never ask again for a record that a crash has brought back.
using HomeWord = std::variant<GuestEvent, Expel, Heartbeat>;
struct ToHome {
    NodeName home;
    HomeWord message;
    bool after_erase = false;
};
// Effects. Each ends with an event (guest_event.hpp) for the same key.
struct Do {
    enum class What : uint8_t {
        create_capsule,  // -> capsule_ready | capsule_failed
        // -> job_started | job_not_started; `running` on disk means: was told to start or run
        start_job,
        ready_criu,  // beside the job or in the empty capsule -> criu_ready | criu_failed
        // sends memory of the running job to (dest, other_epoch), if that is worth it
        // -> sent_precopy | dump_failed; undo_dump calls it off at once
        send_precopy,
        // to memory, hold -> dump_froze, then dump_held | dump_failed (the job goes on)
        dump_for_move,
        dump_to_disk,  // the same, to disk, synced
        ship,          // image of `key` to (dest, new_epoch) -> shipped | ship_failed
        // let CRIU kill what it dumped (no CRIU any more: kill it), end the capsule -> capsule_gone
        finish_dump,
        // refuse, or thaw what was found held: the job goes on; its image goes -> dump_undone
        undo_dump,
        restore,         // image received for `key` -> restore_held | restore_failed
        restore_local,   // the image of (id, source) that lies here, into `key` -> the same
        finish_restore,  // run -> restore_running | restore_failed
        kill_capsule,    // whatever runs -> capsule_gone
        silence,         // the job has ended by itself: its connections say no more
        // image and directory; the capsule is dead or its job has exited -> removed
        remove,
        signal,
        make_place,       // for the image of a checkpoint -> capsule_ready | capsule_failed
        dump_to_keep,     // as dump_to_disk, but held only until go_on
        go_on,            // as undo_dump, and the image stays -> dump_undone
        send_checkpoint,  // that image to (dest, new_epoch) -> checkpoint_sent | checkpoint_failed
        drop_checkpoint,  // its image is of no more use, on its way or not
        // the job may run until `until`; then it is stopped -> lapsed. It comes before an effect
        // that lets the job run
        keep_lease,
        stand,  // its control group is frozen; undo_dump lets it go on -> stood
        // `on`: its control group is frozen for the owner of the node, but while it is dumped;
        // else it is not any more -> paused
        pause,
        // a component: its process, up to its program -> job_held | job_not_started
        hold_job,
        release_job,  // ... which runs now -> job_started | job_not_started
    } what;
    GuestKey key;
    // ship, send_precopy, dump_to_keep: new epoch; restore_local: the source's
    Epoch other_epoch;
    Peer dest;  // ship, send_precopy, dump_for_move
    int32_t signal = 0;
    bool to_disk = false;  // ready_criu: for a dump_to_disk, not for a move
    bool to_keep = false;  // ready_criu: for a dump_to_keep
    Nanos until = {};      // keep_lease
    bool stands = false;   // keep_lease: what its last deadline stopped stays so; else it goes on
    // kill_capsule, finish_dump: the owner's policy ends a job that cannot leave
    bool by_owner = false;
    bool on = true;  // pause
    // dump_to_disk, ship: the job would not run sooner if that was done sooner. While the owner
    // uses the node, the effect may take its time and leave him his disk and link.
    bool no_hurry = false;
    bool to_all = false;  // signal: to each of its processes, not to its foreground alone
};
// The number up to which tickets are refused after a restart (guest_tickets.hpp).
struct KeepMark {
    uint64_t mark = 0;
    Durable when = Durable::later;
};
// A line of the log about a command that shows a ticket, or needs one and shows none. An empty
// `why`: the command was admitted.
struct Audit {
    GuestKey key;
    NodeName from;
    GuestVerb verb = GuestVerb::query;
    std::string why;
};
using Output = std::variant<Persist, Erase, ToHome, Do, KeepMark, Audit>;
using Outputs = std::vector<Output>;
const char* to_string(Do::What what);

// The inputs: the methods and events of Guest by name. accept, leave: set_accepting.
enum class Input : uint8_t {
    recovered,
    command,
    home_up,
    home_down,
    accept,
    leave,
    tick,
    heartbeat_answered,
    lease_found,
    lapsed,
    capsule_ready,
    capsule_failed,
    job_started,
    job_not_started,
    criu_ready,
    criu_failed,
    sent_precopy,
    dump_froze,
    dump_held,
    dump_failed,
    dump_undone,
    stood,
    shipped,
    ship_failed,
    image_received,
    checkpoint_sent,
    checkpoint_failed,
    pages_whole,
    pages_lost,
    image_failed,
    restore_held,
    restore_failed,
    restore_running,
    capsule_gone,
    removed,
    stray,
    exited,
    stopped,
    movable,
    pause,
    go_on,
    paused,
    job_held,
    want_memory,
};
const char* to_string(Input input);
// persist, erase, to_home, do, keep_mark, audit
const char* to_string(const Output& output);
}  // namespace guest

}  // namespace souk
