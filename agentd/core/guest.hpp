// SPDX-License-Identifier: GPL-2.0-or-later
// Guest: the jobs that run on this node, or lie here frozen, for their home nodes. Pure: commands
// from homes and the ends of effects come in, effects and events go out, in the order persist,
// send, do. It never decides who owns a job: it acts for the (job, epoch) it was given, and what it
// may decide alone (a freeze to disk is complete) is durable before its effect (the running copy is
// killed).
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
//   running  --prepare_dump--> dump_ready --freeze, checkpoint--> dumping --> shipped: of several
//                jobs at one cut (Cut); then commit --> frozen, or checkpoint, resume --> running
//
// For a job that runs here, a command sets what is wanted (run, ready, ship, freeze), and each end
// of an effect goes one step on towards it; so commands may come late, twice or in the middle of a
// dump, which is never torn, only undone.
//
// A (job, epoch) that could not start, prepare or restore, or was killed before it came, is kept in
// memory as `failed` until it is dropped, or the home's connection ends: a second `start` that was
// under way when the home node heard of it must not start it again.
//
// A dump may leave the memory in the job (`live`): then the source goes on standing frozen after
// the commit, until the home node drops it, and no image of it is the job. A destination that runs
// before its memory is whole is not the job yet either: if it fails, or its daemon ends, it is
// killed, and the source goes on.
//
// A source that has shipped its image writes that down while the restore goes on elsewhere: whoever
// kills the held job after that, what is left is its image. So `shipped` is undone on disk before
// the job is let go on.
//
// After a crash of the daemon, the capsules go on: the shell loads the records and says what it
// found of each
// (`recovered`); a dump or restore that was under way is undone, one that was decided is finished.
//
// A job of another home's has a lease (lease.hpp). tick() sends a heartbeat to each such home in
// time; each answer gives every job of it a new deadline (keep_lease), which the capsule's PID 1
// keeps, whatever becomes of the daemon. Shortly before it the job is frozen to disk, like one that
// its home wants frozen; at it (`lapsed`) what still runs is stopped and stands, as if found so
// after a crash. Then it goes on only by a word that its home sends after it has answered a
// heartbeat: an older one, long on its way, may be of before the home let the job go on elsewhere.
//
// A job that cannot be dumped (its dump failed twice for the same reason, or a look at it says so)
// is known as immovable, and its home hears why. A freeze that may end so (`or_stand`) stops it
// where it is (`stand`): its control group is frozen, it uses no CPU, and keeps its memory. It goes
// on by a word of its home; what stands after its first failed dump is tried once more. The owner's
// policy (OwnerPolicy) has a bound for guests that do not leave, and for what stands.
//
// A freeze that says `stand` only stops it likewise (GuestJob::by_order). What stands so goes to
// disk by a freeze that does not say so: it goes on for the moment in which CRIU comes. Where
// nothing can be stopped it is frozen at once.
//
// The owner of the node may pause all that runs (set_paused): their control groups are frozen and
// thawed within milliseconds, and whatever runs later stands at once too. Such a job is `running`
// for its home, which hears that it is paused and does not let it pay. Orders are carried out as of
// any that runs: the shell lets it go on for the time of its dump.
//
// What the shell owes: tick() before and after each step, with a clock that runs on while the
// machine sleeps; effects of one key one after the other (kill_capsule, finish_dump and remove call
// off what goes on for it, and its end is not told any more; undo_dump calls off a `ship`); no end
// of an effect after that key's `remove`; `restore_failed` of finish_restore only if surely nothing
// of the job ran; a new connection of a home node ends its older one unread, then `home_up`; at
// start, what lies here without a record is ended and removed.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "agentd/core/guest_event.hpp"
#include "agentd/core/guest_io.hpp"
#include "agentd/core/guest_state.hpp"
#include "agentd/core/guest_tickets.hpp"
#include "agentd/core/memory_wish.hpp"
#include "kernel/base/time.hpp"
#include "kernel/base/trace.hpp"
#include "market/core/messages.hpp"

namespace souk {

class JsonWriter;

// What the owner of a node wants of guests that are to leave it.
struct OwnerPolicy {
    // whoever still runs here that long after `market off` is frozen to disk
    Nanos leave = Nanos::from_s(10);
    // what cannot be dumped, and stands where it is for `stand`, is killed; else it stays so
    bool kill = false;
    Nanos stand = Nanos::from_s(60);
};

class Guest {
  public:
    // can_stop: jobs here can be stopped whole (they have control groups), so that leases can be
    // kept.
    explicit Guest(size_t jobs_max = 4096, bool can_stop = true, OwnerPolicy policy = {},
                   GuestTickets tickets = {"", TicketRule::none})
        : jobs_max_(jobs_max), can_stop_(can_stop), policy_(policy), tickets_(std::move(tickets)) {}

    // Before anything else: the newest KeepMark.
    void restore_mark(uint64_t mark) { tickets_.restored(mark); }

    // After a crash: one record, and what the shell found of it.
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
    void recovered(GuestJob job, const Found& found, guest::Outputs& out);

    void command(const NodeName& from, const GuestCommand& command, guest::Outputs& out,
                 const Warrant& warrant = {});
    // A command for that one which cannot be read: it is refused.
    void not_read(const NodeName& from, const GuestKey& key, Trouble why, guest::Outputs& out);
    // A fresh connection from a home node: everything of its jobs here is told, also what it may
    // have forgotten.
    void home_up(const NodeName& home, guest::Outputs& out);
    // Its connection has ended, and no other has come: no command of before can arrive any more.
    void home_down(const NodeName& home);
    // The owner's word: while off, nothing new starts, and every running guest is told to leave.
    void set_accepting(bool accepting, Trouble why, guest::Outputs& out);

    // The owner's word about this job alone: it is told to leave, is frozen to disk when it has not
    // within `leave`, and what cannot be frozen is killed after `stand`. False: none of it runs.
    bool evict(const JobId& id, Trouble why, guest::Outputs& out);

    // Who stands here, for the owner or since the market says so, and could leave; and who leaves.
    std::vector<MemoryWish::Standing> standing() const;
    // The owner wants the memory of these: they are told to leave, and are frozen to disk when they
    // have not within `leave`. Their images may stay, and who cannot be frozen stands on. no:
    // nobody else is to.
    void want_memory(const std::vector<GuestKey>& of, guest::Outputs& out);
    void want_no_memory();

    // The owner's word: what runs here stands in memory, for that reason; empty: it goes on.
    void set_paused(Cause why, guest::Outputs& out);
    bool any_paused() const;  // or asked to
    // CRIU takes it away, or its capsule is being ended.
    bool any_leaves() const;

    // Leases. Heartbeats that are due, and jobs to be frozen; returns when it wants to be called
    // again.
    Nanos tick(Nanos now, guest::Outputs& out);
    void heartbeat_answered(const NodeName& home, const Heartbeat& heartbeat, Nanos now,
                            guest::Outputs& out);

    // The end of an effect, or what its capsule did by itself.
    void ended(const GuestKey& key, guest::Event event, guest::Outputs& out);
    // Found after a crash, of no job: is being removed.
    void stray(const GuestKey& key);
    // Its image lies here, and its record cannot be read: nothing is said of it, and nothing done
    // with it, until its home ends or drops it.
    void set_aside(const GuestKey& key) { aside_.insert(key); }

    // Who hears of each step (kernel/base/trace.hpp); null: nobody. It outlives the machine.
    void tell_to(TraceListener* listener) { tracer_.tell_to(listener); }
    // What is held of one (job, epoch) right now: keys and values of an open JSON object
    // (tools/common/replies.md).
    void describe(const GuestKey& key, Nanos now, JsonWriter& j) const;
    const GuestJob* find(const GuestKey& key) const;
    // What is still here of guests that should leave, for the owner: what runs, and what stands,
    // with the reason.
    struct Left {
        GuestKey key;
        bool stands = false;  // it uses no CPU
        bool stays = false;   // so, and does not leave by itself: it cannot be dumped
        int64_t memory_mb = 0;
        Trouble why;  // it cannot move; empty: it is on its way, or will be
        Cause paused = {};
    };
    std::vector<Left> left() const;
    // What guests have of this node, for its owner. What comes, ends, or stays behind for a move
    // counts as long as anything of it is here; what lies here of `self`'s own jobs is at home.
    struct Here {
        uint32_t running = 0;    // use CPUs, or may at any moment
        uint32_t in_memory = 0;  // with those that stand
        uint32_t all = 0;        // with capsules, and images on the disk
        // of these: what a copy elsewhere needs, or is being removed, and images that their homes
        // are to take, of those that nothing keeps as far as is known
        uint32_t going = 0;
        int64_t memory_mb = 0;
        std::string who = {};  // holds things up, for people
    };
    Here here(const NodeName& self) const;
    // Its node's owner wants it gone, or its image from `self`, and as far as is known it can go.
    bool is_to_leave(const GuestKey& key, const NodeName& self) const;
    // Of an image that is to leave: what it waits for; empty: it is none.
    std::string image_waits(const GuestKey& key, const NodeName& self) const;
    // May an image for `key` be taken in now (a prepared destination that has none yet)?
    bool expects_image(const GuestKey& key) const;
    // And from that node, or from anybody where nobody was named?
    bool takes_image_from(const GuestKey& key, const NodeName& sender) const;
    // Every (job, epoch) here, in order.
    const auto& all() const { return jobs_; }

  private:
    using Ending = guest::Ending;
    using Want = guest::Want;
    struct Entry {
        GuestJob job;
        guest::State state;
        guest::Shipment shipment;
        guest::Checkpoint checkpoint;
        guest::Lease lease;
        guest::Leaving leaving;
        NodeName source;             // from which its image may come; empty: from any
        bool stopped = false;        // by a signal
        bool pause_asked = false;    // the shell has been told to
        Cause paused;                // it stands for the owner of the node
        Trouble why;                 // of the last failure
        bool image_refused = false;  // that is why

        template <class S>
        S* in() {
            return std::get_if<S>(&state);
        }
        template <class S>
        const S* in() const {
            return std::get_if<S>(&state);
        }
        // Running, and in that motion.
        template <class M>
        M* moves() {
            auto* r = in<guest::state::Running>();
            return r ? r->in<M>() : nullptr;
        }
        template <class M>
        const M* moves() const {
            const auto* r = in<guest::state::Running>();
            return r ? r->in<M>() : nullptr;
        }
        // To another state, and how its home and the disk know it.
        template <class S>
        S& become(S to, GuestState known_as) {
            job.state = known_as;
            return state.emplace<S>(std::move(to));
        }
    };
    using Running = guest::state::Running;

    static constexpr const char* stands_still = "it stands still since its lease was over";
    // It stands as it was dumped, and its image is whole: if it dies so, that is the job.
    static bool as_its_image(const Running& r);
    // It stands, and a copy elsewhere may be the job: for its home to say.
    static bool spare(const Running& r);
    static bool stops_in_place(const Running& r);
    static bool in_place(const Entry& e);
    static bool takes_signals(const Entry& e);
    static bool stands(const Entry& e);
    static bool runs(const Entry& e);
    static bool in_memory(const Entry& e);
    static void end_as(Entry& e, GuestState how);
    static void want_now(Running& r, Want want);
    Entry* entry(const GuestKey& key);
    void tell(const Entry& e, guest::Outputs& out) const;
    void tell_unknown(const GuestKey& key, guest::Outputs& out) const;
    void expel(const Entry& e, guest::Outputs& out) const;
    void effect(const Entry& e, guest::Do::What what, guest::Outputs& out) const;
    void end_capsule(Entry& e, Ending ending, guest::Do::What how, guest::Outputs& out) const;
    void remove(const Entry& e, guest::Outputs& out);
    void erase(const GuestKey& key, guest::Outputs& out);
    void refuse(const GuestKey& key, Trouble why, guest::Outputs& out);
    void failed(Entry& e, guest::Outputs& out, const guest::state::Failed& as = {});
    void drive(Entry& e, guest::Outputs& out) const;
    void drive_on(Entry& e, Running& r, guest::Outputs& out) const;
    void ask_criu(const Entry& e, guest::Aim aim, guest::Outputs& out) const;
    void want(Entry& e, Want want, guest::Outputs& out) const;
    void want_failed(Entry& e, Running& r, Trouble why, bool of_job, guest::Outputs& out) const;
    void undo(Entry& e, Running& r, guest::Outputs& out,
              guest::Do::What how = guest::Do::What::undo_dump) const;
    void drop_checkpoint(Entry& e, guest::Outputs& out) const;
    void on_checkpoint(Entry& e, const GuestCommand& c, guest::Outputs& out) const;
    void on_prepare_dump(Entry& e, const GuestCommand& c, guest::Outputs& out) const;
    static guest::Aim aim_of(const Running& r);
    void stands_for_cut(Entry& e, Running& r, guest::Outputs& out) const;
    void save_is_made(Entry& e, Running& r, guest::Outputs& out) const;
    void roll_back_shipped(Entry& e, Running& r, guest::Outputs& out) const;
    void ship_now(Entry& e, guest::Outputs& out) const;
    bool ship_ended(Entry& e, guest::Outputs& out) const;
    void now_running(Entry& e, Running& r, guest::Outputs& out) const;
    void after_start(Entry& e, const guest::Early& early, guest::Outputs& out) const;
    void not_started(Entry& e, Trouble why, guest::state::Failed as, guest::Outputs& out) const;
    void closed(Entry& e, const guest::state::Closing& closing, guest::Outputs& out);
    void died(Entry& e, Trouble why, guest::Outputs& out) const;
    void recovered_run(Entry& e, const Found& found, guest::Outputs& out);
    void recovered_job(Entry& e, const Found& found, guest::Outputs& out);

    // guest_lease.cpp
    bool leased(const Entry& e) const { return can_stop_ && e.job.spec.lease.ns > 0; }
    bool may_begin(const Entry& e) const;
    bool in_lease(const Entry& e) const;
    void keep_lease(Entry& e, guest::Outputs& out) const;
    void lapse(Entry& e, guest::Outputs& out) const;
    static void stand(Entry& e, Running& r);
    void answered(Entry& e, guest::Outputs& out);
    static bool may_run(const Entry& e);
    bool still_over(Entry& e, guest::Outputs& out) const;
    void need_heartbeat(const NodeName& home);

    // guest_owner.cpp: guests that cannot move, and the owner's policy
    static bool immovable(const Entry& e) {
        return !e.leaving.looked.empty() || e.leaving.troubles.count >= troubles_enough;
    }
    static const Trouble& why_immovable(const Entry& e) {
        return e.leaving.looked.empty() ? e.leaving.troubles.why : e.leaving.looked;
    }
    void note_trouble(Entry& e, const Trouble& why) const;
    void note_not_restored(Entry& e) const;
    void on_freeze(Entry& e, const GuestCommand& c, guest::Outputs& out) const;
    void begin_stand(Entry& e, Running& r, guest::Outputs& out) const;
    void stands_in_place(Entry& e, Running& r) const;
    static void go_off_stand(Entry& e, const Running& r, guest::Outputs& out);
    void owner_tick(Nanos now, guest::Outputs& out);
    void owner_looks(Entry& e, Running& r, Nanos now, Nanos& due, guest::Outputs& out) const;
    void freeze_for_owner(Entry& e, Running& r, guest::Outputs& out) const;
    Nanos leave_at(const Entry& e) const;
    static bool evicted(const Entry& e) { return e.leaving.evicted != Nanos::never(); }
    static bool is_wanted(const Entry& e) { return e.leaving.wanted != Nanos::never(); }
    bool must_go(const Entry& e) const { return !accepting_ || evicted(e) || is_wanted(e); }
    // since when it must go
    Nanos off_since(const Entry& e) const {
        return std::min({off_since_, e.leaving.evicted, e.leaving.wanted});
    }
    void kill_for_owner(Entry& e, guest::Outputs& out) const;
    // its image is to go to its home
    bool image_must_leave(const Entry& e) const {
        return e.in<guest::state::Frozen>() && !e.job.kept && (!accepting_ || evicted(e));
    }
    std::string image_text(const Entry& e) const;

    void settle_pause(Entry& e, guest::Outputs& out) const;
    static bool no_hurry(const Entry& e);

    // guest_trace.cpp
    using Input = guest::Input;
    friend class TraceScene<Guest, guest::Outputs>;
    using Scene = TraceScene<Guest, guest::Outputs>;
    static TraceLine trace_in(Input input, const GuestKey& key, std::string why = {});
    static TraceLine trace_home(Input input, const NodeName& home);
    static TraceLine trace_command(const NodeName& from, const GuestCommand& c);
    static TraceLine trace_of(const guest::Output& output);
    void trace_state(const JobId& id, Epoch epoch);

    void start_now(Entry& e, guest::state::Starting& s, guest::Outputs& out) const;
    void on_aside(const GuestCommand& c, guest::Outputs& out);
    void on_start(const NodeName& from, const GuestCommand& c, const Warrant& warrant,
                  guest::Outputs& out);
    Status admit(const NodeName& from, GuestCommand& c, const Warrant& warrant,
                 guest::Outputs& out);
    void may_not_send(Entry& e, Trouble why, guest::Outputs& out) const;
    void on_ship(Entry& e, const GuestCommand& c, guest::Outputs& out) const;
    void send_image(Entry& e, const GuestCommand& c, guest::Outputs& out) const;
    void on_restore_here(Entry& source, const GuestCommand& c, guest::Outputs& out);
    void on_commit(Entry& e, guest::Outputs& out) const;
    void on_resume(Entry& e, guest::Outputs& out) const;
    void on_release(Entry& e, guest::Outputs& out);
    void on_kill(Entry& e, guest::Outputs& out) const;
    void on_drop(Entry& e, guest::Outputs& out);

    // guest_dump.cpp, guest_effects.cpp, guest_lease.cpp, guest_owner.cpp
    void on(Entry& e, guest::CapsuleReady, guest::Outputs& out);
    void on(Entry& e, guest::CapsuleFailed x, guest::Outputs& out);
    void on(Entry& e, guest::JobStarted, guest::Outputs& out);
    void on(Entry& e, guest::JobHeld, guest::Outputs& out);
    void on_release_held(Entry& e, guest::state::Starting& s, guest::Outputs& out);
    void on(Entry& e, guest::JobNotStarted x, guest::Outputs& out);
    void on(Entry& e, guest::CriuReady, guest::Outputs& out);
    void on(Entry& e, guest::CriuFailed x, guest::Outputs& out);
    void on(Entry& e, guest::SentPrecopy, guest::Outputs& out);
    void on(Entry& e, guest::DumpFroze x, guest::Outputs& out);
    void on(Entry& e, guest::DumpHeld x, guest::Outputs& out);
    void on(Entry& e, guest::DumpFailed x, guest::Outputs& out);
    void on(Entry& e, guest::DumpUndone, guest::Outputs& out);
    void on(Entry& e, guest::Stood x, guest::Outputs& out);
    void on(Entry& e, guest::Shipped, guest::Outputs& out);
    void on(Entry& e, guest::ShipFailed x, guest::Outputs& out);
    void on(Entry& e, guest::ImageReceived x, guest::Outputs& out);
    void on(Entry& e, guest::ImageFailed x, guest::Outputs& out);
    void on(Entry& e, guest::CheckpointSent, guest::Outputs& out);
    void on(Entry& e, guest::CheckpointFailed x, guest::Outputs& out);
    void on(Entry& e, guest::PagesWhole, guest::Outputs& out);
    void on(Entry& e, guest::PagesLost x, guest::Outputs& out);
    void on(Entry& e, guest::RestoreHeld, guest::Outputs& out);
    void on(Entry& e, guest::RestoreFailed x, guest::Outputs& out);
    void on(Entry& e, guest::RestoreRunning, guest::Outputs& out);
    void on(Entry& e, guest::CapsuleGone, guest::Outputs& out);
    void on(Entry& e, guest::Exited x, guest::Outputs& out);
    void on(Entry& e, guest::Stopped x, guest::Outputs& out);
    void on(Entry& e, guest::Movable x, guest::Outputs& out);
    void on(Entry& e, guest::Lapsed, guest::Outputs& out);
    void on(Entry& e, guest::LeaseFound x, guest::Outputs& out);
    void on(Entry& e, const guest::Paused& x, guest::Outputs& out) const;
    // nothing of it is left, and nothing is known of it any more
    static void on(Entry&, guest::Removed, guest::Outputs&) {}

    Tracer tracer_;
    size_t jobs_max_;
    // Of a home whose jobs here have leases.
    struct Tie {
        // when the newest heartbeat that it answered was sent; never: none
        Nanos answered = Nanos::never();
        Nanos next_heartbeat;
    };
    bool can_stop_;
    std::map<NodeName, Tie> ties_;
    // as the shell last said; when tick() has something to do
    Nanos clock_, lease_due_ = Nanos::never();
    OwnerPolicy policy_;
    static constexpr int troubles_enough = 2;
    mutable Nanos owner_due_ = Nanos::never();  // likewise, for the owner
    Nanos off_since_ = Nanos::never();
    GuestTickets tickets_;
    bool accepting_ = true;
    Trouble why_not_;
    std::set<NodeName> homes_up_;  // to which there is a connection
    Cause pause_;                  // empty: they may run
    std::map<GuestKey, Entry> jobs_;
    std::set<GuestKey> leaving_;  // what was of them is being removed
    std::set<GuestKey> aside_;
};

}  // namespace souk
