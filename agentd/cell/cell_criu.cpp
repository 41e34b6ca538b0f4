// SPDX-License-Identifier: GPL-2.0-or-later
// Cell: CRIU beside the job; dumps are in cell_dump.cpp, restores in cell_restore.cpp. The order of
// each is what keeps the job whole whoever dies in between:
//   dump:    helpers enter, CRIU ready | dump, held at post-dump, the job's control group frozen
//            (so that a dead agentd leaves it standing), stdio drained into the image, manifest |
//            end the capsule (v1: let CRIU kill first), or: group thawed, stdio undrained, CRIU
//            refused: the job goes on
//   restore: stdio made, helpers enter, CRIU ready | manifest checked, stdio loaded, restore, held
//            at post-restore | let it run | or: end the capsule
#include <unistd.h>

#include <cerrno>

#include "agentd/cell/cell.hpp"
#include "checkpoint/expected_files.hpp"
#include "checkpoint/trial.h"
#include "kernel/sys/process/init_protocol.h"
#include "kernel/sys/process/movable.hpp"

namespace souk {
namespace {

constexpr Nanos ready_limit = Nanos::from_s(20);
// After the word that a job runs: what need not be told with it.
constexpr Nanos look_after = Nanos::from_ms(20);
// of a restored job from CRIU's last word to its own code
constexpr Nanos last_steps = Nanos::from_ms(500);

}  // namespace

Manifest Cell::needs() const {
    Manifest m;
    m.job = key_.id;
    m.epoch = key_.epoch;
    m.machine = site_.machine;
    return m;
}

void Cell::drop_image() {
    if (const Status kept = image_.drop(has_job_ && !filling()); !kept)
        log_.warning("an image that was refused is removed, and not kept to be looked at",
                     kept.error());
}

Status Cell::can_be_dumped() const {
    if (!site_.restriction.empty() && job_.spec.launch.uid != 0)
        return fail_because(CauseCode::lacks_sys_resource);
    const bool node_tmp = job_.spec.files == FilesMode::home && job_.spec.tmp == FilesTmp::node;
    return check_movable(*capsule_, root_.inside(), job_.spec.tcp, movable_files_max,
                         node_tmp ? SOUK_FILES_ROOT "/tmp" : "", looker());
}

void Cell::look() {
    if (!has_job_ || life_ == Life::gone || plan_ != Plan::none || filling() || stdio_.exit())
        return;
    ++looks_;
    look_.cancel();
    if (root_.here() == 0 && root_.inside() != 0)
        if (const auto all = pids()) root_.find(pids_inside(*all));
    const Status movable = can_be_dumped();
    if (!movable && movable.error().code == ESRCH) return;  // it is just ending
    tell(guest::Movable{movable ? Trouble() : Trouble(movable.error())});
}

void Cell::look_soon() {
    look_ = site_.loop->after(look_after, [this] { look(); });
}

void Cell::ready_criu(bool to_disk, bool to_keep) {
    dump_.wanted(to_keep);
    image_.place(to_disk || (to_keep && !fits_memory()));
    criu_.within(ready_limit, [this] {
        criu_failed(because(CauseCode::criu_silent,
                            {{"seconds", std::to_string(ready_limit.ns / 1'000'000'000)}}));
    });
    plan_ = Plan::asked;
    if (!image_.on_disk() && !to_keep) stay_awake();
    if (!link_) return criu_failed(because(CauseCode::capsule_silent));
    // else with the welcome: this daemon has just come back
    if (link_.answers() || !has_job_) enter_capsule();
}

void Cell::enter_capsule() {
    plan_ = Plan::coming;
    if (!has_job_) {
        // Both at once: it is new, so that nothing stands before its answers. Then begin_criu.
        (void)link_.tell(&CapsuleClient::prepare, job_.spec.launch.tty);
        (void)link_.tell(&CapsuleClient::helpers_enter, true);
    } else {
        if (auto movable = can_be_dumped(); !movable)
            // it is just ending
            return criu_failed(movable.error(), movable.error().code != ESRCH);
        (void)link_.tell(&CapsuleClient::helpers_enter, false);
    }
}

// While it still runs.
void Cell::expect_files() {
    expected_.clear();
    if (job_.spec.files != FilesMode::home || !job_group_) return;
    if (const auto all = pids()) expected_ = expected_files(pids_inside(*all), looker());
    if (served_ && site_.files_expected) site_.files_expected(key_, expected_, false);
}

void Cell::begin_criu() {
    if (plan_ != Plan::coming || criu_) return;
    const bool for_restore = restore_.is_prepared();
    // Remove a stale image left by a crashed daemon: it must not pass for this one.
    if (!for_restore) drop_image();
    if (!for_restore) expect_files();
    if (auto made = begin_image(for_restore); !made) return criu_failed(made.error());
    if (site_.trial)
        if (auto told = create_file(image_.fd(), SOUK_TRIAL_NAME, ""); !told)
            return criu_failed(told.error());
    // Of a dump of root's nothing is looked at (held_after_dump).
    if (for_restore || job_.spec.launch.uid != 0)
        if (auto ready = inspection_.open(*site_.inspectors); !ready)
            return criu_failed(ready.error());
    start_criu();
}

// souk-root starts no second CRIU in a capsule: that of a dump that has failed, or of a restore
// whose job runs, may be about to end.
void Cell::start_criu() {
    const bool for_restore = restore_.is_prepared();
    CriuStart how;
    how.capsule = &*capsule_;
    how.images = image_.fd();
    if (for_restore && job_group_) how.cgroup = job_group_->entry().v2;
    if (for_restore) how.cgroup_v1 = v1_tasks();
    how.job_ends = restore_.ends();
    how.user = user();
    if (auto started = criu_.start(*site_.criu, how); !started) {
        if (started.error().code == EALREADY && criu_.is_there())
            return criu_.when_ended([this] { start_criu(); });
        return criu_failed(started.error());
    }
    restore_.close_ends();
    // A destination need not wait for CRIU's first word: the dump goes on meanwhile, and a restore
    // waits for it.
    if (for_restore) tell(guest::CriuReady{});
}

void Cell::leave_criu(std::function<void()> then) {
    criu_.close();
    if (!criu_.is_there()) return then();
    criu_.when_ended(std::move(then));
}

void Cell::close_criu() {
    criu_.close();
    steps_.stop();
    trial_.stop();
    snapshot_.reset();
    inspection_.stop();
    facts_.reset();
    rounds_.drop();
    image_.close();
    restore_.close_ends();
    plan_ = Plan::none;
}

void Cell::helpers_leave() {
    if (std::exchange(helpers_in_, false)) (void)link_.tell(&CapsuleClient::helpers_leave);
}

// Whatever was under way with CRIU is over, and the job is as before it (or the capsule is of no
// use).
void Cell::criu_failed(const Trouble& why, bool of_job, bool image_refused) {
    const bool of_dump = dump_.take_again() || dumping(), of_restore = !of_dump && restoring();
    close_criu();
    // CRIU may have died while it held
    if (of_dump) (void)link_.tell(&CapsuleClient::undrain);
    helpers_leave();
    (void)lease_.let_run();
    if (of_restore) return tell(guest::RestoreFailed{why, image_refused});
    if (of_dump) lease_.at_dump(false);
    if (of_dump) limit_cpus(true);
    if (of_dump) mend_connections();
    if (has_job_) network_.open();  // of a destination that has failed nothing may be heard
    drop_image();
    if (of_dump) return tell(guest::DumpFailed{why, of_job});
    tell(guest::CriuFailed{why, of_job});
}

// Before the decision: as if nothing had been. After it the word is given, and CRIU's trouble
// changes nothing of it.
void Cell::criu_ended_badly(const CriuEvent& e) {
    switch (decided_) {
        case Decided::nothing:
            // What is dumped and drained stands frozen without CRIU too, as it does when its agentd
            // ends: its image or its memory may be on its way, or the job another node's already.
            // What is to become of it is the home's word.
            if (plan_ == Plan::dumping && group_holds()) return criu_.forget();
            if (!try_again(e)) criu_failed(e.message, dumping() && e.kind == CriuEventKind::failed);
            return;
        case Decided::to_die:  // what was dumped dies with its capsule; the image is the job
            close_criu();
            return kill_capsule();
        case Decided::to_run:
            // CRIU's own word that it failed: nothing ran. Without a word it may run, or be about
            // to.
            if (e.kind == CriuEventKind::failed) return criu_failed(e.message);
            criu_.forget();
            return criu_.within(last_steps, [this] { runs_without_criu(); });
    }
}

// A dump that CRIU has refused for what lasts a moment only; the job has gone on.
bool Cell::try_again(const CriuEvent& e) {
    if (!dumping() || e.kind != CriuEventKind::failed || !criu_trouble_passes(e.message.detail))
        return false;
    const auto wait = dump_.as_before();
    if (!wait) return false;
    close_criu();
    helpers_leave();
    mend_connections();
    network_.open();
    criu_.within(*wait, [this] { ready_criu(image_.on_disk(), dump_.for_checkpoint()); });
    return true;
}

void Cell::criu_event(const CriuEvent& e) {
    switch (e.kind) {
        case CriuEventKind::ready:
            criu_.in_time();
            if (dump_.again()) return dump(dump_.link_bytes_per_s());
            if (has_job_) return tell(guest::CriuReady{});  // else it has been told
            return begin_restore();
        case CriuEventKind::pre_dump: return tell_froze();
        case CriuEventKind::stopped: tell_froze(true); return note_files();
        case CriuEventKind::dump_held: return held_after_dump();
        case CriuEventKind::dumped:
            close_criu();
            // What CRIU dumped is dead; PID 1 and the helpers go with the capsule.
            if (life_ == Life::gone) return;
            if (life_ == Life::lives) life_ = Life::ending;
            capsule_->kill();
            return;
        case CriuEventKind::restore_held:
            root_.is(e.root);
            if (auto same = check_files(); !same)
                return criu_failed(caused_by(CauseCode::file_changed, same.error()));
            if (plan_ == Plan::loading) return;  // souk-init is not ready
            return restore_is_held();
        case CriuEventKind::resumed:
        case CriuEventKind::restored: root_.is(e.root); return now_runs();
        case CriuEventKind::refused:
            if (site_.trial) return tell(guest::RestoreHeld{});  // it was held, and is gone
            return undone();
        case CriuEventKind::failed:
        case CriuEventKind::lost:
            if (plan_ == Plan::undoing) return undone();
            return criu_ended_badly(e);
    }
}

}  // namespace souk
