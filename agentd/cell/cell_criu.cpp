// SPDX-License-Identifier: GPL-2.0-or-later
// Cell, second part: CRIU and dumps; restores are in cell_restore.cpp. The order of each is what
// keeps the job whole whoever dies in between:
//   dump:    helpers enter, CRIU ready | dump, held at post-dump, the job's control group frozen
//            (so that a dead agentd leaves it standing), stdio drained into the image, manifest |
//            end the capsule (v1: let CRIU kill first), or: group thawed, stdio undrained, CRIU
//            refused: the job goes on
//   restore: stdio made, helpers enter, CRIU ready | manifest checked, stdio loaded, restore, held
//            at post-restore | let it run | or: end the capsule
#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "agentd/cell/cell.hpp"
#include "checkpoint/kept_sockets.hpp"
#include "kernel/sys/process/movable.hpp"

namespace souk {
namespace {

constexpr Nanos ready_limit = Nanos::from_s(20);
// After the word that a job runs: what need not be told with it.
constexpr Nanos look_after = Nanos::from_ms(20);
// of a restored job from CRIU's last word to its own code
constexpr Nanos last_steps = Nanos::from_ms(500);
constexpr Nanos dump_again_after = Nanos::from_ms(10);  // twice as long each time
constexpr int dump_tries_max = 5;

}  // namespace

Manifest Cell::needs() const {
    Manifest m;
    m.job = key_.id;
    m.epoch = key_.epoch;
    m.machine = site_.machine;
    return m;
}

Status Cell::seal(const Manifest& manifest) {
    return seal_image(image_parent(), key_.text(), manifest,
                      to_disk_ ? Durability::disk : Durability::memory);
}

void Cell::drop_image() {
    drop_.cancel();
    keeping_.reset();
    image_fd_.reset();
    for (const int parent : {site_.ram.get(), site_.images.get()})
        for (const char* suffix : {"", ".part"})
            settle_sockets(parent, key_.text() + suffix, has_job_ && !filling());
    (void)remove_image(site_.ram.get(), key_.text());
    (void)remove_image(site_.images.get(), key_.text());
}

Status Cell::can_be_dumped() const {
    if (!site_.restriction.empty() && job_.spec.uid != ::geteuid())
        return fail("cannot move: " + site_.restriction);
    return check_movable(*capsule_, root_, job_.spec.tcp);
}

void Cell::look() {
    if (!has_job_ || gone_ || plan_ != Plan::none || filling() || stdio_.exit()) return;
    looked_ = true;
    ++looks_;
    look_.cancel();
    find_pid();
    const Status movable = can_be_dumped();
    if (!movable && movable.error().code == ESRCH) return;  // it is just ending
    tell(guest::Movable{movable ? "" : movable.error().message});
}

void Cell::look_soon() {
    look_ = site_.loop->after(look_after, [this] { look(); });
}

void Cell::ready_criu(bool to_disk, bool to_keep) {
    to_keep_ = to_keep;
    to_disk_ = to_disk || (to_keep && !fits_memory());
    limit_ = site_.loop->after(ready_limit,
                               [this] { criu_failed("CRIU did not get ready within 20 s"); });
    plan_ = Plan::asked;
    if (!to_disk_ && !to_keep_) stay_awake();
    if (!link_) return criu_failed("its capsule does not answer");
    // else with the welcome: this daemon has just come back
    if (link_.answers() || !has_job_) enter_capsule();
}

void Cell::enter_capsule() {
    plan_ = Plan::coming;
    if (!has_job_) {
        // Both at once: it is new, so that nothing stands before its answers. Then begin_criu.
        (void)link_.tell(&CapsuleClient::prepare, job_.spec.tty);
        (void)link_.tell(&CapsuleClient::helpers_enter, true);
    } else {
        if (auto movable = can_be_dumped(); !movable)
            // it is just ending
            return criu_failed(movable.error().message, movable.error().code != ESRCH);
        (void)link_.tell(&CapsuleClient::helpers_enter, false);
    }
}

void Cell::begin_criu() {
    if (plan_ != Plan::coming || criu_) return;
    const bool for_restore = !job_ends_.empty();
    // of an earlier day, where a daemon ended early: it must not pass for this one
    if (!for_restore) drop_image();
    auto images = create_image(image_parent(), key_.text());
    if (!images) return criu_failed(images.error().message);
    image_fd_ = std::move(*images);
    CriuStart how;
    how.capsule = &*capsule_;
    how.images = image_fd_.get();
    if (for_restore && job_group_) how.cgroup = job_group_->entry().v2;
    if (for_restore) how.cgroup_v1 = v1_tasks();
    for (const Fd& fd : job_ends_) how.job_ends.push_back(fd.get());
    auto session = CriuSession::start(*site_.criu, how);
    if (!session) return criu_failed(session.error().message);
    criu_ = std::move(*session);
    job_ends_.clear();
    auto watch = site_.loop->watch(criu_.fd(), POLLIN, [this](short) { criu_readable(); });
    if (!watch) return criu_failed(watch.error().message);
    criu_watch_ = std::move(*watch);
    // A destination need not wait for CRIU's first word: the dump goes on meanwhile, and a restore
    // waits for it.
    if (for_restore) tell(guest::CriuReady{});
}

void Cell::criu_readable() {
    // With its last event the session has closed its socket; the watch goes before the fd is used
    // again.
    const std::vector<CriuEvent> events = criu_.on_readable();
    if (!criu_) criu_watch_.close();
    for (const CriuEvent& e : events) {
        criu_event(e);
        if (e.kind == CriuEventKind::resumed) return;  // the rest is not this cell's any more
    }
}

void Cell::close_criu() {
    criu_watch_.close();
    limit_.cancel();
    criu_ = CriuSession();
    end_sharing();
    page_write_.reset();
    flush_.reset();
    drop_precopy();
    image_fd_.reset();
    job_ends_.clear();
    awaited_ = false;
    plan_ = Plan::none;
}

// Whatever was under way with CRIU is over, and the job is as before it (or the capsule is of no
// use).
void Cell::criu_failed(const std::string& why, bool of_job) {
    const Plan plan = std::exchange(again_, Again::no) != Again::no ? Plan::dumping : plan_;
    close_criu();
    // CRIU may have died while it held
    if (plan == Plan::dumping) (void)link_.tell(&CapsuleClient::undrain);
    if (helpers_in_) (void)link_.tell(&CapsuleClient::helpers_leave);
    helpers_in_ = false;
    (void)lease_.let_run();
    if (plan == Plan::restoring) return tell(guest::RestoreFailed{why});
    if (plan == Plan::dumping) limit_cpus(true);
    if (plan == Plan::dumping) mend_connections();
    if (has_job_) network_.open();  // of a destination that has failed nothing may be heard
    drop_image();
    if (plan == Plan::dumping) return tell(guest::DumpFailed{why, of_job});
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
            if (plan_ == Plan::dumping && group_holds() && !awaited_) {
                criu_watch_.close();
                criu_ = CriuSession();
                return;
            }
            if (!try_again(e))
                criu_failed(e.message, plan_ == Plan::dumping && e.kind == CriuEventKind::failed);
            return;
        case Decided::to_die:  // what was dumped dies with its capsule; the image is the job
            close_criu();
            return kill_capsule();
        case Decided::to_run:
            // CRIU's own word that it failed: nothing ran. Without a word it may run, or be about
            // to.
            if (e.kind == CriuEventKind::failed) return criu_failed(e.message);
            criu_watch_.close();
            criu_ = CriuSession();
            limit_ = site_.loop->after(last_steps, [this] { runs_without_criu(); });
            return;
    }
}

// A dump that CRIU has refused for what lasts a moment only; the job has gone on.
bool Cell::try_again(const CriuEvent& e) {
    if (plan_ != Plan::dumping || e.kind != CriuEventKind::failed ||
        !criu_trouble_passes(e.message))
        return false;
    if (dump_tries_ >= dump_tries_max) return false;
    const Nanos wait{dump_again_after.ns << dump_tries_++};
    close_criu();
    (void)link_.tell(&CapsuleClient::helpers_leave);
    helpers_in_ = false;
    mend_connections();
    network_.open();
    again_ = Again::as_before;
    limit_ = site_.loop->after(wait, [this] { ready_criu(to_disk_, to_keep_); });
    return true;
}

void Cell::criu_event(const CriuEvent& e) {
    switch (e.kind) {
        case CriuEventKind::ready:
            limit_.cancel();
            if (again_ != Again::no) return dump(link_bytes_per_s_);
            if (has_job_) return tell(guest::CriuReady{});  // else it has been told
            return begin_restore();
        case CriuEventKind::pre_dump: return tell_froze();
        case CriuEventKind::dump_held: return held_after_dump();
        case CriuEventKind::dumped:
            close_criu();
            // What CRIU dumped is dead; PID 1 and the helpers go with the capsule.
            capsule_ending_ = true;
            if (!gone_) (void)capsule_->kill();
            return;
        case CriuEventKind::restore_held:
            root_ = e.root;
            if (awaited_) return;  // souk-init is not ready
            return restore_is_held();
        case CriuEventKind::resumed:
        case CriuEventKind::restored: root_ = e.root; return now_runs();
        case CriuEventKind::refused: return undone();
        case CriuEventKind::failed:
        case CriuEventKind::lost:
            if (undoing_) return undone();
            return criu_ended_badly(e);
    }
}

}  // namespace souk
