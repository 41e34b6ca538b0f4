// SPDX-License-Identifier: GPL-2.0-or-later
// Guest: the jobs that run on this node, or lie here frozen, for their home nodes. Pure: commands
// from homes and the ends of effects come in, effects and events go out, in the order persist,
// send, do. It never decides who owns a job: it acts for the (job, epoch) that it was given. It may
// decide alone that a freeze to disk is complete; that is durable before the running copy is
// killed.
//
// Guest takes each input, and its parts act on it:
//
//   GuestJobs       the jobs that are here           GuestStarts     brings a job up, and ends it
//   GuestLeases     deadlines and heartbeats         GuestDumps      dumps it, stops it in place
//   GuestOwner      the wishes of the node's owner   GuestImages     sends its image
//   GuestReports    what its home hears              GuestDeadlines  what stays against his wish
//   GuestTickets    the market's tickets             GuestRecovery   what a restart finds
//   GuestView       what people see
//
//   start    --> starting --> running --> exited
//   start    --> starting --> held --release--> starting --> running: a component (JobSpec::hold)
//   prepare  --> starting --> prepared --image here--> (restoring) --> held --release--> running
//   running  --prepare_dump--> dump_ready --ship--> (memory is sent ahead, while it runs)
//                --> dumping --> shipped
//   shipped  --commit--> frozen --drop--> (nothing)
//   shipped  --commit--> retained --drop--> (nothing)
//   running  --freeze--> dumping --> frozen
//   dump_ready, dumping, shipped, retained --resume--> running
//   held     --release--> filling --its memory is whole--> running
//   running  --checkpoint--> dumping --> running, and its image goes to the home while it runs
//   keep     --> prepared --image here--> frozen: a checkpoint of another epoch, kept for the
//                home until it is dropped
//   frozen   --checkpoint--> frozen, and its image goes to the home, which takes it for the owner
//                of this node (GuestEvent::must_leave) and drops it here when it has it
//   running  --prepare_dump--> dump_ready --freeze, checkpoint--> dumping --> shipped: several
//                jobs at one cut (Cut); then commit --> frozen, or checkpoint, resume --> running
//
// A (job, epoch) that could not start, prepare or restore, or was killed before it came, is kept in
// memory as `failed` until it is dropped, or the home's connection ends: a second `start` that was
// under way when the home heard of the failure must not start it again.
//
// A dump may leave the memory in the job (`live`). Then the source stands frozen after the commit
// until the home drops it, and no image of it is the job. A destination that runs before its memory
// is whole is not the job yet either: if it fails, or its daemon ends, it is killed, and the source
// goes on.
//
// A source that has shipped its image writes that down while the restore goes on elsewhere: if the
// held job is killed after that, its image is the job. So `shipped` is undone on disk before the
// job is let go on.
//
// A job of another home has a lease (lease.hpp). Shortly before its deadline it is frozen to disk,
// like one that its home wants frozen; at the deadline (`lapsed`) a job that still runs is stopped,
// and stands as if it was found so after a crash. It goes on only by a word that its home sends
// after it has answered a heartbeat: an older word may have been sent before the home let the job
// go on elsewhere.
//
// A job that cannot be dumped (its dump failed twice for the same reason, or a look at it says so)
// is known as immovable, and its home hears why. A freeze with `or_stand` may stop it where it is
// instead: its control group is frozen, it uses no CPU, and keeps its memory. It goes on by a word
// of its home. A job that stands after its first failed dump is dumped once more. A freeze with
// `stand` only stops the job in any case (GuestJob::by_order); a later freeze without `stand` takes
// it to disk, and lets it go on for the moment in which CRIU comes. Where no job can be stopped it
// is frozen to disk at once.
//
// The owner of the node may pause all jobs that run (set_paused): their control groups are frozen
// and thawed within milliseconds, and a job that runs later stands at once, too. Such a job is
// `running` for its home, which hears that it is paused and does not let it pay. Orders are carried
// out as for any job that runs: the shell lets it go on for the time of its dump.
//
// The shell owes the following. It calls tick() before and after each step, with a clock that runs
// on while the machine sleeps. Effects of one key come one after the other; kill_capsule,
// finish_dump and remove call off any effect that is under way for the key, and its end is not told
// any more; undo_dump calls off a `ship`. No end of an effect comes after that key's `remove`.
// finish_restore ends with `restore_failed` only if none of the job ran for certain. A new
// connection of a home ends its older one unread, then `home_up` comes. At start a capsule or image
// without a record is ended and removed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agentd/core/guest_entry.hpp"
#include "agentd/core/guest_event.hpp"
#include "agentd/core/guest_io.hpp"
#include "agentd/core/guest_tickets.hpp"
#include "agentd/core/memory_wish.hpp"
#include "kernel/base/time.hpp"
#include "kernel/base/trace.hpp"
#include "market/core/messages.hpp"

namespace souk {

class JsonWriter;

class Guest {
  public:
    // can_stop: jobs here can be stopped whole (they have control groups), so that leases can be
    // kept.
    explicit Guest(size_t jobs_max = 4096, bool can_stop = true, OwnerPolicy policy = {},
                   GuestTickets tickets = {"", TicketRule::none});
    ~Guest();
    Guest(Guest&&) noexcept;
    Guest& operator=(Guest&&) noexcept;

    // Takes the newest KeepMark, before anything else.
    void restore_mark(uint64_t mark);

    // Takes one record after a crash, and what the shell found of it.
    using Found = guest::Found;
    void recovered(GuestJob job, const Found& found, guest::Outputs& out);

    void command(const NodeName& from, const GuestCommand& command, guest::Outputs& out,
                 const Warrant& warrant = {});
    // A command for that key cannot be read: it is refused.
    void not_read(const NodeName& from, const GuestKey& key, Trouble why, guest::Outputs& out);
    // A home has connected anew: it is told of all its jobs here, also of those that it may have
    // forgotten.
    void home_up(const NodeName& home, guest::Outputs& out);
    // The connection of a home has ended, and no other has come: none of its earlier commands can
    // arrive any more.
    void home_down(const NodeName& home);
    // The owner's word on the market: while it is off, nothing new starts, and every running guest
    // is told to leave.
    void set_accepting(bool accepting, Trouble why, guest::Outputs& out);
    // The named resources that this node has for guests that begin from now on.
    void set_resources(std::vector<NodeResource> all);

    // The owner's word about this job alone: it is told to leave, is frozen to disk if it has not
    // left within `leave`, and is killed after `stand` if it cannot be frozen. False: none of it
    // runs.
    bool evict(const JobId& id, Trouble why, guest::Outputs& out);

    // The guests that stand, for the owner or because the market says so, and could leave; and
    // those that leave.
    std::vector<MemoryWish::Standing> standing() const;
    // The owner wants the memory of these guests: they are told to leave, and are frozen to disk if
    // they have not left within `leave`. Their images may stay, and a guest that cannot be frozen
    // stands on. want_no_memory: all others may stay.
    void want_memory(const std::vector<GuestKey>& of, guest::Outputs& out);
    void want_no_memory();

    // The owner's word: all guests stand in memory, for that reason; empty: they go on.
    void set_paused(Cause why, guest::Outputs& out);
    bool any_paused() const;  // or asked to
    // CRIU takes a guest away, or its capsule is being ended.
    bool any_leaves() const;

    // Leases: sends heartbeats that are due, and freezes jobs whose deadline is near. It returns
    // when it wants to be called again.
    Nanos tick(Nanos now, guest::Outputs& out);
    void heartbeat_answered(const NodeName& home, const Heartbeat& heartbeat, Nanos now,
                            guest::Outputs& out);

    // An effect has ended, or a capsule did something by itself.
    void ended(const GuestKey& key, guest::Event event, guest::Outputs& out);
    // After a crash something was found that belongs to no job, and it is being removed.
    void stray(const GuestKey& key);
    // Its image lies here, and its record cannot be read: nothing is said of it, and nothing done
    // with it, until its home ends or drops it.
    void set_aside(const GuestKey& key);

    // Sets the listener that hears of each step (kernel/base/trace.hpp); null: none. It outlives
    // the machine.
    void tell_to(TraceListener* listener) { tracer_.tell_to(listener); }
    // Describes one (job, epoch) right now: keys and values of an open JSON object
    // (tools/common/replies.md).
    void describe(const GuestKey& key, Nanos now, JsonWriter& j) const;
    const GuestJob* find(const GuestKey& key) const;
    // The guests that should leave and are still here, for the owner: those that run, and those
    // that stand, with the reason.
    using Left = guest::Left;
    std::vector<Left> left() const;
    // The share of this node that guests have, for its owner. Images of jobs of `self` are at home.
    using Here = guest::Here;
    Here here(const NodeName& self) const;
    // The node's owner wants it gone, or its image from `self`, and as far as is known it can go.
    bool is_to_leave(const GuestKey& key, const NodeName& self) const;
    // The reason why an image that is to leave waits; empty for any other key.
    std::string image_waits(const GuestKey& key, const NodeName& self) const;
    // An image for `key` may be taken in now: it is a prepared destination that has none yet.
    bool expects_image(const GuestKey& key) const;
    // The same, from that node.
    bool takes_image_from(const GuestKey& key, const NodeName& sender) const;
    // Every (job, epoch) here, in order.
    const std::map<GuestKey, guest::Entry>& all() const;

  private:
    struct Parts;
    struct Dispatch;
    friend class TraceScene<Guest, guest::Outputs>;
    using Scene = TraceScene<Guest, guest::Outputs>;
    static TraceLine trace_of(const guest::Output& output);
    void trace_state(const JobId& id, Epoch epoch);

    void begin(const NodeName& from, const GuestCommand& asked, const Warrant& warrant,
               guest::Outputs& out);
    void carry_out(guest::Entry& e, const GuestCommand& c, guest::Outputs& out);
    Status admit(const NodeName& from, GuestCommand& c, const Warrant& warrant,
                 guest::Outputs& out);
    void command_aside(const GuestCommand& c, guest::Outputs& out);
    static void signal(guest::Entry& e, const GuestCommand& c, guest::Outputs& out);
    void restore_here(const guest::Entry& source, const GuestCommand& c, guest::Outputs& out);
    void kill(guest::Entry& e, guest::Outputs& out);
    void drop(guest::Entry& e, guest::Outputs& out);
    void movable(guest::Entry& e, guest::Movable x, guest::Outputs& out);
    void stopped(guest::Entry& e, const guest::Stopped& x, guest::Outputs& out);
    void paused(guest::Entry& e, const guest::Paused& x, guest::Outputs& out);

    Tracer tracer_;
    std::unique_ptr<Parts> parts_;
};

}  // namespace souk
