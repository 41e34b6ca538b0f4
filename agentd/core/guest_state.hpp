// SPDX-License-Identifier: GPL-2.0-or-later
// What a Guest (guest.hpp) holds of one (job, epoch) beside its record: one State, which has just
// what is legal in it, and small structs of what does not depend on the state (whom it was sent to,
// how far it may run, what its owner knows of it).
//
//   start    Starting(capsule, answer, job) --> Running --> Ended
//            Starting(capsule, holding, held, job) --> Running: a component
//   prepare  Starting(capsule, criu) --> Prepared --> Restoring --> Held --> (Filling) --> Running
//   keep     Starting(capsule) --> Prepared --> Frozen
//   Running  --> Closing --> Frozen, Ended, Failed, or nothing
//
// While it runs, a Motion says how far that is which is wanted:
//
//   Steady --> CriuComing --> CriuReady --> (Precopy) --> Making --> Held --> Undoing --> Steady
//   Steady --> Standing --> Held
#pragma once

#include <optional>
#include <string>
#include <variant>

#include "agentd/core/messages.hpp"
#include "kernel/base/time.hpp"
#include "market/core/messages.hpp"

namespace souk::guest {

// Of a job that runs here. keep: its dump was found after a crash; only the home node knows whether
// it was decided. cut: it is dumped for one, and stands until its home has decided. kill: it is to
// end as soon as what goes on lets it; nothing else is wanted then.
enum class Want : uint8_t { run, ready, ship, freeze, keep, save, kill, cut };
const char* to_string(Want want);

// For what a CRIU stands beside the job, and what is made with it.
enum class Aim : uint8_t { move, disk, keep };

namespace motion {
// Nothing goes on.
struct Steady {};
struct CriuComing {
    Aim aim = Aim::move;
};
struct CriuReady {
    Aim aim = Aim::move;
};
// Its memory goes to the destination of that epoch, and it runs.
struct Precopy {
    Epoch to;
};
// Its dump, until that is whole. all_stand: none of its processes runs any more.
struct Making {
    Aim aim = Aim::move;
    bool all_stand = false;
};
// It stands.
struct Held {
    // dump: also one that was found after a crash. lease_midway: its lease was over while it was
    // being stopped in place, and that has not ended; lease_in_place: it has.
    enum class By : uint8_t { dump, lease, lease_midway, place, lease_in_place };
    // live: the memory is not in it. lost: there is none, or it is not whole.
    enum class Image : uint8_t { whole, live, lost };
    By by = By::dump;
    Image image = Image::whole;
    bool fenced = false;  // only its home lets it go on: it need not die before another copy runs
    Nanos dump_again = Nanos::never();  // stopped in place: when that is tried once more
    bool by_lease() const {
        return by == By::lease || by == By::lease_midway || by == By::lease_in_place;
    }
    bool in_place() const { return by == By::place || by == By::lease_in_place; }
};
// An undo_dump or go_on is under way.
struct Undoing {};
// It is being stopped where it is.
struct Standing {};
}  // namespace motion
using Motion = std::variant<motion::Steady, motion::CriuComing, motion::CriuReady, motion::Precopy,
                            motion::Making, motion::Held, motion::Undoing, motion::Standing>;
const char* to_string(const Motion& motion);

// What was heard of a job before the end of its start or release was known.
struct Early {
    enum class What : uint8_t { nothing, gone, exited } what = What::nothing;
    int32_t wait_status = 0;  // exited
    bool heard() const { return what != What::nothing; }
};

// Why the capsule is being ended, and so what becomes of the record when it is gone.
enum class Ending : uint8_t { to_frozen, to_killed, to_failed, to_dropped };
const char* to_string(Ending ending);

namespace state {
// Nothing has run. answer: waits for its home's next answer to a heartbeat; job: was told to start;
// criu: it comes into the empty capsule. Of a component: holding: it is started up to its program;
// held: it stands there, until its home releases it.
struct Starting {
    enum class Step : uint8_t { capsule, answer, job, criu, holding, held } step = Step::capsule;
    Early early;
    bool released = false;  // held: so, and waits for its home's next answer to a heartbeat
    Nanos held_at;          // held
};
// An image may come.
struct Prepared {};
// whole: all of its memory is here.
struct Restoring {
    bool whole = true;
};
// Restored, and has not run. waits: released, for its home's next answer to a heartbeat.
struct Held {
    enum class Release : uint8_t { none, waits, under_way } release = Release::none;
    bool whole = true;
    Early early;
};
// Runs, and its memory is not whole.
struct Filling {
    Early early;
};
// The job exists here and is, but for a dump, running.
struct Running {
    Want want = Want::run;
    Motion motion;
    bool or_stand = false;      // of Want::freeze: it may end with the job stopped in place
    bool stand_first = false;   // likewise: it ends so, where the job can be stopped
    bool retained = false;      // the candidate owns the job; this is kept in case it fails
    bool shipped_kept = false;  // `shipped` is, or will soon be, on disk
    MoveForecast forecast;      // of the last dump
    // what CRIU is ready for, or it is dumped for, with others; and which cut that is
    Cut cut = Cut::none;
    Epoch cut_number;

    template <class M>
    M* in() {
        return std::get_if<M>(&motion);
    }
    template <class M>
    const M* in() const {
        return std::get_if<M>(&motion);
    }
};
// Its image is all there is.
struct Frozen {};
// Exited or killed, as its record says.
struct Ended {};
// Nothing of it is left but this answer.
struct Failed {
    int32_t error = 0;
    bool program_error = false;
};
// Its capsule is being ended.
struct Closing {
    Ending ending = Ending::to_dropped;
    bool ran = false;             // it may have ended by itself before
    bool stood = false;           // it does not run once more
    bool asked_to_leave = false;  // it ran, and its owner may want it to leave
    std::optional<int32_t> exited;
    Failed failed;  // to_failed
};
}  // namespace state
using State =
    std::variant<state::Starting, state::Prepared, state::Restoring, state::Held, state::Filling,
                 state::Running, state::Frozen, state::Ended, state::Failed, state::Closing>;

// Its image on the way, of what stands or is frozen. again: a newer ship came meanwhile.
struct Shipment {
    enum class Way : uint8_t { none, under_way, again } way = Way::none;
    bool live = false;     // the memory goes past it
    bool arrived = false;  // of what is frozen: `epoch` has all of it
    Epoch epoch;           // the newest destination
    Peer dest;
};

// A checkpoint of what runs, and where it goes.
enum class Save : uint8_t { none, made, sending };
const char* to_string(Save save);
struct Checkpoint {
    Save save = Save::none;
    Epoch epoch;
    Peer dest;
};

// How long it may run. ending: the deadline comes near, it is being frozen to disk, once. over: it
// has passed. renewed: so, but its home has answered since; what it says from then on counts.
struct Lease {
    enum class Stage : uint8_t { good, ending, over, renewed } stage = Stage::good;
    Nanos until = Nanos::never();  // never: no deadline was given
    bool over() const { return stage >= Stage::over; }
};

// What is known of its ways out, for the owner of the node.
struct Leaving {
    Trouble looked;    // why it cannot move, by the last look
    Trouble not_sent;  // why its image did not get to its home, the last time
    Trouble
        not_restored;  // why none of it is frozen to disk: what was dumped of it came up nowhere
    struct Troubles {  // dumps of it that failed in a row for the same reason
        std::string kind;
        Trouble why;
        int count = 0;
        Nanos until;  // then one more try may show that it can be dumped by now
    } troubles;
    Nanos stood_at;                  // since when it stands in place, or should; 0: not
    Nanos evicted = Nanos::never();  // since when its node's owner wants it gone, whatever it is
    Nanos wanted = Nanos::never();   // since when he wants its memory
    int tries = 0;                   // freezes that the owner's bound has begun
    int stand_tries = 0;             // and those of what stood
    int cut_tries = 0;               // freezes of its gang that have failed here
};

}  // namespace souk::guest
