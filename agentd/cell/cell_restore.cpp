// SPDX-License-Identifier: GPL-2.0-or-later
// Cell, sixth part: the restore of an image that is here, up to the word that it runs. What CRIU
// says meanwhile comes to cell_criu.cpp, which also has the order of the steps.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "agentd/cell/cell.hpp"

namespace souk {
namespace {
constexpr Nanos drop_after = Nanos::from_ms(20);    // after the word that it runs
constexpr Nanos put_away_limit = Nanos::from_s(2);  // of CRIU, what is its own after a restore
}  // namespace

void Cell::restore() {
    plan_ = Plan::restoring;
    stay_awake();
    if (!criu_ || !link_) return criu_failed("CRIU is not there");
    if (auto found = form_ == MoveForm::stop_and_copy ? find_page_file() : Status{}; !found)
        return criu_failed(found.error().message);
    if (auto used = use_store(); !used) return criu_failed(used.error().message);
    load_image();
}

void Cell::load_image() {
    if (!criu_ || !link_) return criu_failed("CRIU is not there");
    if (auto listening = expect_faults(); !listening) return criu_failed(listening.error().message);
    if (auto loading = link_.tell(&CapsuleClient::load, image_fd_.get()); !loading)
        return criu_failed(loading.error().message);
    awaited_ = true;
    begin_early();
}

// While souk-init takes in what waits at the job's stdio, CRIU may begin: of that it needs only the
// names, unless what souk-init does comes before it: it fills /dev/shm, and puts input into a
// terminal.
void Cell::begin_early() {
    constexpr size_t small = 64 * 1024;  // what waits there is in the same file
    const int image = image_fd_.get();
    if (job_.spec.tty || ::faccessat(image, SOUK_SHM_NAME, F_OK, 0) == 0 || image_has_locks(image))
        return;
    const auto file = read_file(image, SOUK_RESIDUE_NAME, small);
    const auto residue = file ? decode_residue(*file) : Result<souk_residue>(fail(""));
    if (!residue) return;  // souk-init says what is wrong with it
    stdio_keys_ = stdio_keys(*residue);
    early_ = true;
    begin_restore();
}

void Cell::restore_is_held() {
    if (restore_late_) return finish_restore();
    return sink_ ? pages_may_come() : tell(guest::RestoreHeld{});
}

void Cell::loaded(const CapsuleClient::Event& e) {
    if (plan_ != Plan::restoring) return;
    awaited_ = false;
    if (e.value != 0) return criu_failed("load what waits at its stdio: " + e.trouble());
    if (early_) return criu_.phase() == CriuPhase::restore_held ? restore_is_held() : void();
    stdio_keys_ = stdio_keys(e.residue);
    begin_restore();
}

// When CRIU is ready and the image is complete, whichever comes last. Locks of files that both
// nodes share are the source's as long as it is held, and CRIU would wait for them: such a job is
// restored when it is told to run. Should that fail, the source's image is the job.
void Cell::begin_restore() {
    if (!stdio_keys_ || criu_.phase() != CriuPhase::ready) return;
    if (!restore_late_ && image_has_locks(image_fd_.get())) {
        restore_late_ = true;
        return tell(guest::RestoreHeld{});
    }
    if (cgroup_ && !cgroup_->allows_realtime() && image_has_realtime(image_fd_.get()))
        return criu_failed(
            "it has a real-time policy, and this node has no time left for one "
            "(cpu.rt_runtime_us)");
    // Not before: CRIU has looked at what the kernel can, over loopback too.
    if (auto shut = network_.shut_within(); !shut) return criu_failed(shut.error().message);
    RestoreOptions options;
    options.keys = *std::exchange(stdio_keys_, std::nullopt);
    options.lazy = sink_.has_value();
    options.tcp = job_.spec.tcp;
    if (auto begun = criu_.restore(options); !begun) criu_failed(begun.error().message);
}

void Cell::finish_restore() {
    // It has ended since it held the job; that has been told.
    if (!criu_) return criu_failed("CRIU is not there");
    if (restore_late_ && criu_.phase() == CriuPhase::ready) return begin_restore();
    decided_ = Decided::to_run;
    if (sink_ && !pages_here_) stdio_.silence();
    (void)link_.tell(&CapsuleClient::restored);
    network_.open();  // before CRIU lets its connections speak
    if (auto sent = criu_.answer(true); !sent) criu_failed(sent.error().message);
}

// Let go by CRIU, or without it.
void Cell::now_runs() {
    has_job_ = true;
    decided_ = Decided::nothing;
    if (pages_here_) sink_.reset();
    leave_criu();
    close_criu();
    helpers_in_ = false;
    set_limits();
    network_.announce();  // again: a new port of a bridge is deaf at first
    stdio_.resync();      // names the new terminal
    tell(guest::RestoreRunning{});
    stdio_.look_for_end();
    // What it was restored from is the past: room in memory, and never the job again. The word of
    // it goes first. Until its memory is whole, what it was restored over may still be wanted.
    drop_ = site_.loop->after(drop_after, [this] {
        if (!filling()) drop_image();
    });
    look_soon();
}

// It still has its own things to put away, which takes as long again as letting the job run has
// taken.
void Cell::leave_criu() {
    criu_watch_.close();
    last_criu_ = std::exchange(criu_, CriuSession());
    if (last_criu_) {  // else it has said its last word
        auto watch = site_.loop->watch(last_criu_.fd(), POLLIN, [this](short) {
            (void)last_criu_.on_readable();
            if (!last_criu_) last_criu_watch_.close();
        });
        if (watch) last_criu_watch_ = std::move(*watch);
    }
    // The job is its child until it ends: nobody else would hear of the job's end.
    last_criu_limit_ = site_.loop->after(put_away_limit, [this] {
        (void)last_criu_.pidfd().signal(SIGKILL);  // of no effect if it has ended
        last_criu_watch_.close();
        last_criu_ = CriuSession();
    });
}

// Told to run, with its CRIU killed at that moment. If it runs, its end, if any, will tell.
void Cell::runs_without_criu() {
    const auto pids =
        job_group_ ? job_group_->pids() : Result<std::vector<pid_t>>(fail("no control group"));
    // CRIU's end may have killed it: by SIGKILL, at a trap of CRIU's, or in the restorer's code
    // that CRIU was about to leave with it. (Such a signal of its own in that moment cannot be told
    // apart; then the source is the job, as it was.)
    constexpr int by_criu[] = {SIGKILL, SIGTRAP, SIGSEGV, SIGBUS, SIGILL, SIGSYS};
    const auto& exited = stdio_.exit();
    const bool killed = exited ? std::ranges::find(by_criu, *exited & 0x7f) != std::end(by_criu)
                               : pids && pids->empty();
    if (killed || (pids && wait_for_criu(*pids)))
        return criu_failed("CRIU ended before it let the job run");
    now_runs();
}

}  // namespace souk
