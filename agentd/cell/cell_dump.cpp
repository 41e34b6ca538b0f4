// SPDX-License-Identifier: GPL-2.0-or-later
// Cell: a dump, from its plan to its end; the order of its steps is in cell_criu.cpp.
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>

#include "agentd/cell/cell.hpp"
#include "checkpoint/plan.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/process/movable.hpp"

namespace souk {
namespace {

constexpr uint64_t image_slack_bytes = 2 << 20;

// Of all files there now.
uint64_t image_bytes(int directory) {
    uint64_t sum = 0;
    const auto names = list_dir(directory, ".");
    if (!names) return 0;
    for (const std::string& name : *names) {
        struct stat st {};
        if (::fstatat(directory, name.c_str(), &st, 0) == 0)
            sum += static_cast<uint64_t>(st.st_size);
    }
    return sum;
}

}  // namespace

Result<MoveFacts> Cell::move_facts(double link_bytes_per_s) const {
    TRY_ASSIGN(const auto processes, capsule_processes(*capsule_));
    MoveFacts facts;
    facts.processes = facts.threads = 0;
    for (const CapsuleProcess& p : processes) {
        if (p.pid == 1 || p.parent == 0) continue;  // souk-init, and CRIU, which came from outside
        ++facts.processes;
        facts.threads += p.threads;
        facts.reserved_bytes += p.reserved_bytes;
        facts.memory_bytes += p.resident_pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    }
    if (facts.processes > 1) count_shared(facts);
    TRY_ASSIGN(const bool locked, holds_locks(*capsule_, processes));
    // Who holds locks dies before it is restored (begin_restore): so its image must be all of it.
    facts.pages_possible = site_.pages_possible && !locked && again_ != Again::with_all_memory &&
                           job_group_ && job_group_->entry().v2 >= 0;
    const bool all_here = to_disk_ || to_keep_;  // nothing stays in the job
    facts.post_copy_possible = facts.pages_possible && !all_here;
    facts.precopy_possible = facts.post_copy_possible && site_.precopy_possible &&
                             facts.reserved_bytes <= precopy_reserved_max(facts.memory_bytes);
    facts.own_network = job_.spec.net == NetMode::own;
    facts.policy = all_here ? MovePolicy::safe : job_.spec.move;
    facts.link_bytes_per_s = link_bytes_per_s;
    facts.dirty = dirty();
    facts.precopy = facts.pages_possible ? precopy_facts() : std::nullopt;
    return facts;
}

// In which form it is dumped; what of its memory goes into the image must fit, before anything is
// stopped or written.
Status Cell::plan_dump(double link_bytes_per_s) {
    TRY_ASSIGN(const MoveFacts facts, move_facts(link_bytes_per_s));
    const MovePlan plan = plan_move(facts);
    forecast_ = plan.forecast;
    forecast_.dirty_expected_bytes_per_s = dirty_expected_;
    form_ = plan.forecast.form;
    const bool written_by_us = (to_disk_ || to_keep_) && form_ != MoveForm::stop_and_copy;
    return room_for_image(dump_room_bytes(facts, form_) + (written_by_us ? facts.memory_bytes : 0));
}

Status Cell::room_for_image(uint64_t bytes) const {
    const uint64_t need = bytes + image_slack_bytes;
    struct statvfs fs {};
    if (::fstatvfs(image_fd_.get(), &fs) != 0) return fail_errno("room for its image", errno);
    const uint64_t free = static_cast<uint64_t>(fs.f_bavail) * fs.f_frsize;
    if (free >= need) return {};
    return fail("no room for its image: about " + std::to_string(need >> 20) + " MB are needed, " +
                std::to_string(free >> 20) + " MB are free " +
                (to_disk_ ? "on the disk of the state directory" : "in memory for images"));
}

void Cell::dump(double link_bytes_per_s) {
    link_bytes_per_s_ = link_bytes_per_s;
    if (again_ == Again::no) dump_tries_ = 0;
    const auto refuse = [&](const std::string& why) {
        plan_ = Plan::dumping;
        criu_failed(why);
    };
    if (!criu_) return refuse("CRIU is not ready");
    if (auto planned = plan_dump(link_bytes_per_s); !planned)
        return refuse(planned.error().message);
    look_at_mounts();
    plan_ = Plan::dumping;
    again_ = Again::no;
    if (!to_disk_) stay_awake();
    DumpOptions options;
    options.root = root_;
    options.terminal = terminal_;
    options.tcp = job_.spec.tcp;
    options.lazy = form_ != MoveForm::stop_and_copy;
    if (network_.own()) options.stopped = [this] { return network_.shut_within(); };
    limit_cpus(false);
    if (auto shut = network_.shut_in(); !shut) return refuse(shut.error().message);
    if (auto begun = criu_.dump(options); !begun) refuse(begun.error().message);
}

// Of a job that goes on here without the CRIU that held it.
void Cell::mend_connections() {
    if (const auto all = pids()) network_.mend(*all);
}

void Cell::tell_froze() { tell(guest::DumpFroze{forecast_}); }

void Cell::held_after_dump() {
    if (auto stopped = lease_.stop_for_dump(); !stopped) {
        dump_trouble_ = stopped.error().message;
        return undo_dump();
    }
    if (auto shut = network_.shut_out(); !shut) {
        dump_trouble_ = shut.error().message;
        return undo_dump();
    }
    // Between plan_dump's look and the stop it has locked a file: once more, with all of its
    // memory.
    if (form_ != MoveForm::stop_and_copy && image_has_locks(image_fd_.get())) {
        again_ = Again::with_all_memory;
        return undo_dump();
    }
    share_pages();
}

void Cell::pages_are_shared() {
    sharing_.reset();
    if (auto listed = list_precopy(); !listed) {
        dump_trouble_ = listed.error().message;
        return undo_dump();
    }
    save_dirty();
    if (auto armed = arm_expired_timerfds(image_fd_.get()); !armed)
        log_.warning("timers are not mended", armed.error());
    if (!link_.tell(&CapsuleClient::drain, image_fd_.get())) {
        dump_trouble_ = "its capsule does not answer";
        return undo_dump();
    }
    awaited_ = true;
}

void Cell::drained(const CapsuleClient::Event& e) {
    if (plan_ != Plan::dumping) return;
    awaited_ = false;
    if (e.value != 0) {
        dump_trouble_ = e.trouble();
        return undo_dump();
    }
    if (to_disk_) return write_pages();  // the end of what is frozen to disk sends it
    flush_ = std::make_unique<Flush>();
    if (!network_devices_.empty() && job_group_)
        if (const auto pids = job_group_->pids())
            flush_->files = written_files(*pids, network_devices_);
    flush_files();
}

void Cell::files_are_flushed() {
    flush_.reset();
    if (to_keep_) return write_pages();
    dump_is_complete(form_ != MoveForm::stop_and_copy, image_bytes(image_fd_.get()));
}

void Cell::dump_is_complete(bool pages_stay, uint64_t bytes) {
    // (Locks of files would block a copy that is to have them.)
    const bool fenced = group_holds() && !image_has_locks(image_fd_.get());
    tell(guest::DumpHeld{static_cast<int64_t>(bytes), pages_stay, fenced});
}

void Cell::finish_dump() {
    decided_ = Decided::to_die;
    // What is frozen on v2 dies with its capsule without running once more, sooner than by CRIU,
    // which, if its memory is not in the image, would serve that itself. (Without CRIU: its agentd
    // died while it was held.)
    if (!criu_ || form_ != MoveForm::stop_and_copy || group_holds()) return kill_capsule();
    if (auto sent = criu_.answer(true); !sent) kill_capsule();
}

void Cell::go_on() {
    image_stays_ = true;
    undo_dump();
}

void Cell::undo_dump() {
    if (lease_.in_place()) {
        (void)lease_.let_run();
        return tell(guest::DumpUndone{});
    }
    undoing_ = true;
    awaited_ = false;
    end_sharing();
    page_write_.reset();
    flush_.reset();
    (void)link_.tell(&CapsuleClient::undrain);
    (void)lease_.let_run();
    const bool held = criu_ && criu_.phase() == CriuPhase::dump_held;
    if (!held) mend_connections();
    network_.open();
    if (held && criu_.answer(false)) return;  // `refused` follows
    undone();
}

void Cell::undone() {
    undoing_ = false;
    const std::string why = std::exchange(dump_trouble_, {});
    close_criu();
    if (helpers_in_) (void)link_.tell(&CapsuleClient::helpers_leave);
    helpers_in_ = false;
    limit_cpus(true);
    if (!std::exchange(image_stays_, false)) drop_image();
    if (again_ != Again::no) return ready_criu(to_disk_, to_keep_);
    if (why.empty()) return tell(guest::DumpUndone{});
    tell(guest::DumpFailed{why, false});
}

}  // namespace souk
