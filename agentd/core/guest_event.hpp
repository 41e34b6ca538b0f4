// SPDX-License-Identifier: GPL-2.0-or-later
// Events of a job that a Guest (guest.hpp) holds: the ends of its effects, and what its capsule
// does by itself. Each is a type with its fields, the name of its input, and the code for a cause
// that has none (`otherwise`). The capsules of a node make them; Guest::ended takes them.
#pragma once

#include <string>
#include <variant>

#include "agentd/core/guest_io.hpp"
#include "agentd/core/messages.hpp"
#include "kernel/base/time.hpp"

namespace souk::guest {

struct CapsuleReady {
    static constexpr Input input = Input::capsule_ready;
};
struct CapsuleFailed {
    static constexpr Input input = Input::capsule_failed;
    static constexpr CauseCode otherwise = CauseCode::capsule_failed;
    Trouble why;
};
struct JobStarted {
    static constexpr Input input = Input::job_started;
};
// A component is started and stands before its program.
struct JobHeld {
    static constexpr Input input = Input::job_held;
};
struct JobNotStarted {
    static constexpr Input input = Input::job_not_started;
    static constexpr CauseCode otherwise = CauseCode::start_failed;
    int32_t error = 0;
    bool program_error = false;  // the program itself
    Trouble why;
};
struct CriuReady {
    static constexpr Input input = Input::criu_ready;
};
// of_job: the job is to blame, and the dump would fail again; else the node or the destination is.
struct CriuFailed {
    static constexpr Input input = Input::criu_failed;
    static constexpr CauseCode otherwise = CauseCode::dump_failed;
    Trouble why;
    bool of_job = false;
};
struct SentPrecopy {
    static constexpr Input input = Input::sent_precopy;
};
struct DumpFroze {
    static constexpr Input input = Input::dump_froze;
    MoveForecast forecast;
    bool all_stand = false;  // it stands now; else it stops soon, or has stood for a while
};
struct DumpHeld {
    static constexpr Input input = Input::dump_held;
    int64_t image_bytes = 0;
    bool live = false;  // the memory is not in the image
    // its control group stands frozen, and none of its processes can go on by itself
    bool fenced = false;
};
struct DumpFailed {
    static constexpr Input input = Input::dump_failed;
    static constexpr CauseCode otherwise = CauseCode::dump_failed;
    Trouble why;
    bool of_job = true;  // as in CriuFailed
};
struct DumpUndone {
    static constexpr Input input = Input::dump_undone;
};
// why: it could not be stopped; empty: it stands.
struct Stood {
    static constexpr Input input = Input::stood;
    static constexpr CauseCode otherwise = CauseCode::stop_failed;
    Trouble why;
};
struct Shipped {
    static constexpr Input input = Input::shipped;
};
// image_refused: the image on the disk is not what it should be. It means the same in other events.
struct ShipFailed {
    static constexpr Input input = Input::ship_failed;
    static constexpr CauseCode otherwise = CauseCode::send_failed;
    Trouble why;
    bool image_refused = false;
};
struct ImageReceived {
    static constexpr Input input = Input::image_received;
    int64_t image_bytes = 0;
    MoveForm form = MoveForm::stop_and_copy;
};
struct ImageFailed {
    static constexpr Input input = Input::image_failed;
    static constexpr CauseCode otherwise = CauseCode::receive_failed;
    Trouble why;
};
struct CheckpointSent {
    static constexpr Input input = Input::checkpoint_sent;
};
struct CheckpointFailed {
    static constexpr Input input = Input::checkpoint_failed;
    static constexpr CauseCode otherwise = CauseCode::checkpoint_failed;
    Trouble why;
};
// All of the memory is here, or the rest will not come. Only a post-copy move tells these.
struct PagesWhole {
    static constexpr Input input = Input::pages_whole;
};
struct PagesLost {
    static constexpr Input input = Input::pages_lost;
    static constexpr CauseCode otherwise = CauseCode::memory_lost;
    Trouble why;
    bool image_refused = false;
};
struct RestoreHeld {
    static constexpr Input input = Input::restore_held;
};
struct RestoreFailed {
    static constexpr Input input = Input::restore_failed;
    static constexpr CauseCode otherwise = CauseCode::restore_failed;
    Trouble why;
    bool image_refused = false;
};
struct RestoreRunning {
    static constexpr Input input = Input::restore_running;
};
struct CapsuleGone {
    static constexpr Input input = Input::capsule_gone;
};
// The job is removed whole. Until then the same (job, epoch) does not begin here anew.
struct Removed {
    static constexpr Input input = Input::removed;
};
// why: the cause of the death of one of its processes, if it is known.
struct Exited {
    static constexpr Input input = Input::exited;
    static constexpr CauseCode otherwise = CauseCode::memory_limit;
    int32_t wait_status = 0;
    Trouble why;
};
struct Stopped {
    static constexpr Input input = Input::stopped;
    bool is_stopped = false;
};
// The result of a look at the running job. Empty: nothing is known that keeps it here.
struct Movable {
    static constexpr Input input = Input::movable;
    Trouble why_not;
};
// The deadline `until` of its lease has passed, and none of its processes runs.
struct Lapsed {
    static constexpr Input input = Input::lapsed;
    Nanos until = Nanos::never();
};
// It stands for the owner of the node (on), or does not any more. why: it could not be stopped.
struct Paused {
    static constexpr Input input = Input::paused;
    static constexpr CauseCode otherwise = CauseCode::stop_failed;
    bool on = false;
    Trouble why = {};
};
// After a crash: the deadline that PID 1 of its capsule keeps.
struct LeaseFound {
    static constexpr Input input = Input::lease_found;
    Nanos until;
};

using Event =
    std::variant<CapsuleReady, CapsuleFailed, JobStarted, JobNotStarted, CriuReady, CriuFailed,
                 SentPrecopy, DumpFroze, DumpHeld, DumpFailed, DumpUndone, Stood, Shipped,
                 ShipFailed, ImageReceived, ImageFailed, CheckpointSent, CheckpointFailed,
                 PagesWhole, PagesLost, RestoreHeld, RestoreFailed, RestoreRunning, CapsuleGone,
                 Removed, Exited, Stopped, Movable, Lapsed, LeaseFound, Paused, JobHeld>;
Input input_of(const Event& event);
// The reason of an event that tells a failure or a death; empty if there is none.
Trouble why_of(const Event& event);
// The text that a line of the log has beside the event's name.
std::string text_of(const Event& event);

}  // namespace souk::guest
