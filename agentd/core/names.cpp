// SPDX-License-Identifier: GPL-2.0-or-later
// The names of what the node's machines take, hold and give: one table for each enum, which the
// compiler checks.
#include "agentd/core/guest.hpp"
#include "agentd/core/home.hpp"
#include "kernel/base/check.hpp"

namespace souk {

const char* to_string(MoveStep step) {
    switch (step) {
        case MoveStep::none: return "none";
        case MoveStep::prepare: return "prepare";
        case MoveStep::transfer: return "transfer";
        case MoveStep::kill_old: return "kill_old";
        case MoveStep::release: return "release";
    }
    MUST(false);
}

const char* to_string(CutStep step) {
    switch (step) {
        case CutStep::none: return "none";
        case CutStep::asked: return "asked";
        case CutStep::decided: return "decided";
        case CutStep::held: return "held";
    }
    MUST(false);
}

const char* to_string(TellWhat what) {
    switch (what) {
        case TellWhat::started: return "started";
        case TellWhat::frozen: return "frozen";
        case TellWhat::moved: return "moved";
        case TellWhat::comment: return "comment";
        case TellWhat::stopped: return "stopped";
        case TellWhat::continued: return "continued";
        case TellWhat::finished: return "finished";
        case TellWhat::warning: return "warning";
    }
    MUST(false);
}

namespace guest {

const char* to_string(Do::What what) {
    switch (what) {
        case Do::What::create_capsule: return "create_capsule";
        case Do::What::start_job: return "start_job";
        case Do::What::ready_criu: return "ready_criu";
        case Do::What::send_precopy: return "send_precopy";
        case Do::What::dump_for_move: return "dump_for_move";
        case Do::What::dump_to_disk: return "dump_to_disk";
        case Do::What::ship: return "ship";
        case Do::What::finish_dump: return "finish_dump";
        case Do::What::undo_dump: return "undo_dump";
        case Do::What::restore: return "restore";
        case Do::What::restore_local: return "restore_local";
        case Do::What::finish_restore: return "finish_restore";
        case Do::What::kill_capsule: return "kill_capsule";
        case Do::What::silence: return "silence";
        case Do::What::remove: return "remove";
        case Do::What::signal: return "signal";
        case Do::What::make_place: return "make_place";
        case Do::What::dump_to_keep: return "dump_to_keep";
        case Do::What::go_on: return "go_on";
        case Do::What::send_checkpoint: return "send_checkpoint";
        case Do::What::drop_checkpoint: return "drop_checkpoint";
        case Do::What::keep_lease: return "keep_lease";
        case Do::What::stand: return "stand";
        case Do::What::pause: return "pause";
        case Do::What::hold_job: return "hold_job";
        case Do::What::release_job: return "release_job";
    }
    MUST(false);
}

const char* to_string(Ending ending) {
    switch (ending) {
        case Ending::to_frozen: return "to_frozen";
        case Ending::to_killed: return "to_killed";
        case Ending::to_failed: return "to_failed";
        case Ending::to_dropped: return "to_dropped";
    }
    MUST(false);
}

const char* to_string(Want want) {
    switch (want) {
        case Want::run: return "run";
        case Want::ready: return "ready";
        case Want::ship: return "ship";
        case Want::freeze: return "freeze";
        case Want::keep: return "keep";
        case Want::save: return "save";
        case Want::kill: return "kill";
        case Want::cut: return "cut";
    }
    MUST(false);
}

const char* to_string(const Motion& motion) {
    static constexpr const char* names[] = {"steady", "criu_coming", "criu_ready", "precopy",
                                            "making", "held",        "undoing",    "standing"};
    static_assert(std::size(names) == std::variant_size_v<Motion>);
    return names[motion.index()];
}

const char* to_string(Save save) {
    switch (save) {
        case Save::none: return "none";
        case Save::made: return "made";
        case Save::sending: return "sending";
    }
    MUST(false);
}

}  // namespace guest

}  // namespace souk
