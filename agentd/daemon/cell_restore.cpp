// SPDX-License-Identifier: GPL-2.0-or-later
// Cell, sixth part: the restore of an image that is here, up to the word that it runs. What CRIU says meanwhile comes to
// cell_criu.cpp, which also has the order of the steps.
#include <fcntl.h>
#include <unistd.h>

#include "agentd/daemon/cell.hpp"

namespace souk {

void Cell::restore() {
    plan_ = Plan::restoring;
    stay_awake();
    if (!criu_ || !client_) return criu_failed("CRIU is not there");
    if (auto found = form_ == MoveForm::stop_and_copy ? find_page_file() : Status{}; !found) return criu_failed(found.error().message);
    if (auto used = use_store(); !used) return criu_failed(used.error().message);
    load_image();
}

void Cell::load_image() {
    if (!criu_ || !client_) return criu_failed("CRIU is not there");
    if (auto listening = expect_faults(); !listening) return criu_failed(listening.error().message);
    if (auto loading = client_.load(image_fd_.get()); !loading) return criu_failed(loading.error().message);
    awaited_ = true;
    update_watch();
    begin_early();
}

// While souk-init takes in what waits at the job's stdio, CRIU may begin: of that it needs only the names, unless what
// souk-init does comes before it: it fills /dev/shm, and puts input into a terminal.
void Cell::begin_early() {
    constexpr size_t small = 64 * 1024;  // what waits there is in the same file
    const int image = image_fd_.get();
    if (job_.spec.tty || ::faccessat(image, SOUK_SHM_NAME, F_OK, 0) == 0 || image_has_locks(image)) return;
    const auto file = read_file(image, SOUK_RESIDUE_NAME, small);
    const auto residue = file ? decode_residue(*file) : Result<souk_residue>(fail(""));
    if (!residue) return;  // souk-init says what is wrong with it
    stdio_keys_ = stdio_keys(*residue);
    early_ = true;
    begin_restore();
}

void Cell::restore_is_held() {
    if (restore_late_) return finish_restore();
    return sink_ ? pages_may_come() : tell(CellEvent::Kind::restore_held);
}

void Cell::loaded(const CapsuleClient::Event& e) {
    if (plan_ != Plan::restoring) return;
    awaited_ = false;
    if (e.value != 0) return criu_failed("load what waits at its stdio: " + e.trouble());
    if (early_) return criu_.phase() == CriuPhase::restore_held ? restore_is_held() : void();
    stdio_keys_ = stdio_keys(e.residue);
    begin_restore();
}

// When CRIU is ready and the image is complete, whichever comes last. Locks of files that both nodes share are the source's
// as long as it is held, and CRIU would wait for them: such a job is restored when it is told to run. Should that fail, the
// source's image is the job.
void Cell::begin_restore() {
    if (!stdio_keys_ || criu_.phase() != CriuPhase::ready) return;
    if (!restore_late_ && image_has_locks(image_fd_.get())) {
        restore_late_ = true;
        return tell(CellEvent::Kind::restore_held);
    }
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
    filling_ = sink_ && !pages_here_;
    (void)client_.restored();
    update_watch();
    open_port();  // before CRIU lets its connections speak
    if (auto sent = criu_.answer(true); !sent) criu_failed(sent.error().message);
}

}  // namespace souk
