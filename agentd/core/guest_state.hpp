// SPDX-License-Identifier: GPL-2.0-or-later
// The state of one (job, epoch) that a Guest (guest.hpp) holds beside its record. A State has just
// the fields that mean something in it. Small structs hold what does not depend on the state: the
// destination of its image, its lease, and what the owner of the node knows of it.
//
//   start    Starting(capsule, answer, job) --> Running --> Ended
//            Starting(capsule, holding, held, job) --> Running: a component
//   prepare  Starting(capsule, criu) --> Prepared --> Restoring --> Held --> (Filling) --> Running
//   keep     Starting(capsule) --> Prepared --> Frozen
//   Running  --> Closing --> Frozen, Ended, Failed, or nothing
//
// While the job runs, a Motion says how far the wanted operation is:
//
//   Steady --> CriuComing --> CriuReady --> (Precopy) --> Making --> Held --> Undoing --> Steady
//   Steady --> Standing --> Held
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agentd/core/messages.hpp"
#include "kernel/base/time.hpp"
#include "market/core/messages.hpp"

namespace souk::guest {

// Says what is to become of a job that runs here. keep: its dump was found after a crash, and only
// the home node knows whether the move was decided. cut: the job is dumped for a cut of its gang,
// and stands until its home has decided. kill: the job ends as soon as the operation under way
// allows it; no other wish replaces that one.
enum class Want : uint8_t { run, ready, ship, freeze, keep, save, kill, cut };
const char* to_string(Want want);

// Says why a CRIU stands beside the job, and so which kind of dump it makes.
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
// The job runs, and its memory is sent to the destination of that epoch.
struct Precopy {
    Epoch to;
};
// The dump is being made. all_stand: none of the job's processes runs any more.
struct Making {
    Aim aim = Aim::move;
    bool all_stand = false;
};
// The job stands.
struct Held {
    // dump: CRIU holds it, or a dump was found after a crash. lease_midway: its lease ended while
    // it was being stopped in place, and the stop is not complete; lease_in_place: it is complete.
    enum class By : uint8_t { dump, lease, lease_midway, place, lease_in_place };
    // live: the memory is not in the image. lost: there is no image, or it is not whole.
    enum class Image : uint8_t { whole, live, lost };
    By by = By::dump;
    Image image = Image::whole;
    bool fenced = false;  // only its home lets it go on, so another copy may run beside it
    Nanos dump_again = Nanos::never();  // stopped in place: when the next dump is tried
    bool by_lease() const {
        return by == By::lease || by == By::lease_midway || by == By::lease_in_place;
    }
    bool in_place() const { return by == By::place || by == By::lease_in_place; }
};
// An undo_dump or go_on is under way, after which the job runs.
struct Undoing {};
// The job is being stopped where it is.
struct Standing {};
}  // namespace motion
using Motion = std::variant<motion::Steady, motion::CriuComing, motion::CriuReady, motion::Precopy,
                            motion::Making, motion::Held, motion::Undoing, motion::Standing>;
const char* to_string(const Motion& motion);

// Keeps an event that came before the end of the job's start or release was known.
struct Early {
    enum class What : uint8_t { nothing, gone, exited } what = What::nothing;
    int32_t wait_status = 0;  // exited
    bool heard() const { return what != What::nothing; }
};

// Says why the capsule is being ended, and so what becomes of the record when it is gone.
enum class Ending : uint8_t { to_frozen, to_killed, to_failed, to_dropped };
const char* to_string(Ending ending);

namespace state {
// Nothing has run. answer: the start waits for the home's next answer to a heartbeat. job: the
// capsule was told to start the job. criu: CRIU comes into the empty capsule. A component is
// started up to its program (holding), and stands there until its home releases it (held).
struct Starting {
    enum class Step : uint8_t { capsule, answer, job, criu, holding, held } step = Step::capsule;
    Early early;
    bool released = false;  // held: it was released, and waits for the next answer to a heartbeat
    Nanos held_at;          // held
};
// The capsule is empty, and an image may come.
struct Prepared {};
// The image is being restored. whole: all of its memory is here.
struct Restoring {
    bool whole = true;
};
// The job is restored and has not run. waits: it was released, and waits for its home's next answer
// to a heartbeat.
struct Held {
    enum class Release : uint8_t { none, waits, under_way } release = Release::none;
    bool whole = true;
    Early early;
};
// The job runs, and its memory is not whole.
struct Filling {
    Early early;
};
// to_all: to each of its processes, not to its foreground process group alone.
struct Signal {
    int32_t number = 0;
    bool to_all = false;
};
// The job runs here. A dump or its lease may have stopped it.
struct Running {
    Want want = Want::run;
    Motion motion;
    bool or_stand = false;      // a freeze may end with the job stopped in place
    bool stand_first = false;   // a freeze only stops the job, where it can be stopped
    bool retained = false;      // the candidate owns the job; this copy is kept in case it fails
    bool shipped_kept = false;  // `shipped` is, or will soon be, on disk
    MoveForecast forecast;      // what the last dump foretold
    // They are sent to the job when CRIU has let it go. Bounded.
    std::vector<Signal> signals;
    int made_anew = 0;  // so many dumps were, since a signal had come
    // the cut of a gang for which CRIU is ready, or for which the job is dumped; and its number
    Cut cut = Cut::none;
    Epoch cut_number;

    // A kill is final: nothing replaces it.
    void want_now(Want wanted) {
        if (want != Want::kill) want = wanted;
    }
    // The job is being stopped where it is.
    bool stops_in_place() const {
        const auto* held = in<motion::Held>();
        return in<motion::Standing>() || (held && held->by == motion::Held::By::lease_midway);
    }
    // The job stands as it was dumped, and its image is whole: if it dies so, the image is the job.
    bool is_as_its_image() const {
        const auto* held = in<motion::Held>();
        return held && shipped_kept && held->image == motion::Held::Image::whole;
    }
    // The job stands, and a copy elsewhere may be the job. Its home knows which one is.
    bool is_spare() const {
        const auto* held = in<motion::Held>();
        return retained || (held && held->fenced);
    }
    // The kind of dump that CRIU is needed for, by what is wanted.
    Aim aim() const {
        const bool ready = want == Want::ready;
        if (want == Want::freeze || (ready && cut == Cut::freeze)) return Aim::disk;
        if (want == Want::save || (ready && cut == Cut::checkpoint)) return Aim::keep;
        return Aim::move;
    }

    template <class M>
    M* in() {
        return std::get_if<M>(&motion);
    }
    template <class M>
    const M* in() const {
        return std::get_if<M>(&motion);
    }
};
// The job is its image alone.
struct Frozen {};
// The job exited or was killed, as its record says.
struct Ended {};
// Only this answer is left: the home hears it until it drops the job.
struct Failed {
    int32_t error = 0;
    bool program_error = false;
};
// The capsule is being ended.
struct Closing {
    Ending ending = Ending::to_dropped;
    bool ran = false;             // the job may have ended by itself before
    bool stood = false;           // the job stood, and does not run once more
    bool asked_to_leave = false;  // the job ran, and the owner of the node may want it to leave
    std::optional<int32_t> exited;
    Failed failed;  // to_failed
};
}  // namespace state
using State =
    std::variant<state::Starting, state::Prepared, state::Restoring, state::Held, state::Filling,
                 state::Running, state::Frozen, state::Ended, state::Failed, state::Closing>;

// The image of a job that stands or is frozen, on its way. again: a newer ship came meanwhile.
struct Shipment {
    enum class Way : uint8_t { none, under_way, again } way = Way::none;
    bool live = false;     // the memory is not in the image and is sent by itself
    bool arrived = false;  // the job is frozen, and `epoch` has all of its image
    Epoch epoch;           // the newest destination
    Peer dest;
};

// A checkpoint of a running job, and its destination.
enum class Save : uint8_t { none, made, sending };
const char* to_string(Save save);
struct Checkpoint {
    Save save = Save::none;
    Epoch epoch;
    Peer dest;
};

// Says how long the job may run without its home. ending: the deadline is near, and the job is
// frozen to disk once. over: the deadline has passed. renewed: the deadline has passed, and its
// home has answered since, so that the home's next word counts.
struct Lease {
    enum class Stage : uint8_t { good, ending, over, renewed } stage = Stage::good;
    Nanos until = Nanos::never();  // never: no deadline was given
    bool over() const { return stage >= Stage::over; }
};

// The job's ways out, as far as the owner of the node knows them.
struct Leaving {
    // After so many dumps that failed in a row for the same reason the job counts as immovable.
    static constexpr int troubles_enough = 2;

    Trouble looked;        // why it cannot move, by the last look
    Trouble not_sent;      // why its image did not get to its home, the last time
    Trouble not_restored;  // why it is not frozen to disk: an image of it came up nowhere
    struct Troubles {      // dumps of it that failed in a row for the same reason
        std::string kind;
        Trouble why;
        int count = 0;
        Nanos until;  // after that one more try may show that it can be dumped by now
    } troubles;
    Nanos stood_at;                  // since when it stands in place, or should; 0: not
    Nanos evicted = Nanos::never();  // since when the node's owner wants this job gone
    Nanos wanted = Nanos::never();   // since when he wants its memory
    int tries = 0;                   // freezes that the owner's deadline has begun
    int stand_tries = 0;             // freezes that were tried while the job stood in place
    int cut_tries = 0;               // freezes of its gang that have failed here
};

}  // namespace souk::guest
