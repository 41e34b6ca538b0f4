// SPDX-License-Identifier: GPL-2.0-or-later
// Cell: an image that comes, one that is kept, and the restore of one that is here, up to the word
// that the job runs and all of its memory is there. What CRIU says meanwhile comes to
// cell_criu.cpp, which also has the order of the steps.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "agentd/cell/cell.hpp"
#include "agentd/core/files_choice.hpp"
#include "checkpoint/core_image.hpp"
#include "checkpoint/expected_files.hpp"
#include "checkpoint/restored.hpp"
#include "kernel/base/number.hpp"

namespace souk {
namespace {
constexpr size_t frames_bytes_max = 16 << 20;
constexpr Nanos drop_after = Nanos::from_ms(20);  // after the word that it runs

// As souk-init has it for a job that begins; an image may come from a node of before that.
void die_first(pid_t pid, const Reach& reach) {
    constexpr int first = SOUK_OOM_FIRST;
    const auto now = read_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/oom_score_adj");
    if (!now || leading_number<int>(*now) == first) return;
    const std::vector<Fd> file = reach.open({pid}, ProcessFile::oom_score);
    if (file[0]) (void)write_all(file[0].get(), std::to_string(first), "oom_score_adj");
}

}  // namespace

void Cell::make_place() {
    image_.place(true);
    if (auto made = image_.begin_encrypted(disk_secret()); !made)
        return tell(guest::CapsuleFailed{made.error()});
    tell(guest::CapsuleReady{});
}

void Cell::keep(const Manifest& manifest, std::function<void(const Status&)> done) {
    find_ends(manifest, image_.fd());
    Manifest all = manifest;
    if (image_.key())
        all.ends = {stdio_.ends().output[0], stdio_.ends().output[1], stdio_.ends().input};
    image_.keep(all, [this, done = std::move(done)](const Status& kept) {
        if (kept) image_.close();
        done(kept);
    });
}

// How far the streams of a checkpoint had come.
void Cell::find_ends(const Manifest& manifest, int image) {
    if (const auto& e = manifest.ends) return stdio_.set_ends({{(*e)[0], (*e)[1]}, (*e)[2]});
    constexpr size_t bytes = sizeof(souk_residue);
    std::string residue(bytes, '\0');
    if (image_.key()) {
        auto read = read_encrypted(image, manifest, image_.key(), SOUK_RESIDUE_NAME, bytes);
        if (!read || read->size() != bytes) return;
        residue = std::move(*read);
    } else {
        const auto file = open_at(image, SOUK_RESIDUE_NAME, O_RDONLY);
        if (!file || ::pread(file->get(), residue.data(), bytes, 0) != ssize_t{bytes}) return;
    }
    stdio_.read_ends(residue);
}

void Cell::restore() {
    plan_ = Plan::restoring;
    stay_awake();
    if (!criu_ || !link_) return criu_failed(because(CauseCode::criu_ended));
    const auto take = [&]() -> Status {
        const int image = image_.fd();
        if (intake_.form() == MoveForm::stop_and_copy) {
            TRY_ASSIGN(const Manifest manifest, read_manifest(image));
            TRY(intake_.begin(image, image, manifest));
        }
        rounds_.dirty().load(image);
        return intake_.use_precopy(image);
    };
    if (auto taken = take(); !taken) return criu_failed(taken.error());
    load_image();
}

// Thaw where the image lies: the files are linked, not copied; the source keeps its own until it is
// dropped.
void Cell::restore_local(const Cell* source) {
    plan_ = Plan::restoring;
    if (!source) return criu_failed("its image is not here");
    local_source_ = source->key();
    const auto taken = take_local(*source);
    if (taken) return load_image();
    const bool refused = local_image_refused(taken.error());
    criu_failed(Trouble(taken.error()).within("take its image: "), false, refused);
}

bool Cell::local_image_refused(const Error& error) {
    if (local_source_.epoch.n == 0 || !image_is_refused(error)) return false;
    site_.image_refused(local_source_, error.message);
    return true;
}

Status Cell::take_local(const Cell& source) {
    TRY_ASSIGN(const Fd from, source.open_sealed());
    TRY_ASSIGN(const Manifest manifest, verify_image(from.get(), page_file_name));
    TRY_ASSIGN(const DiskKey key,
               key_of_image(manifest, source.disk_secret(), source.key().id, source.key().epoch));
    TRY(image_.link_from(from.get(), manifest, key));
    return intake_.begin(image_.fd(), from.get(), manifest, key);
}

void Cell::load_image() {
    if (!criu_ || !link_) return criu_failed(because(CauseCode::criu_ended));
    if (auto listening = intake_.listen(image_.fd()); !listening)
        return criu_failed(listening.error());
    if (served_ && site_.files_expected)
        site_.files_expected(key_, read_expected_files(image_.fd()), true);
    if (auto loading = link_.tell(&CapsuleClient::load, image_.fd()); !loading)
        return criu_failed(loading.error());
    plan_ = Plan::loading;
    if (network_.own())
        if (const auto frames = read_file(image_.fd(), frames_file_name, frames_bytes_max))
            network_.came_with(*frames);
    inspection_.read(image_.fd(),
                     [this](const Result<ImageFacts>& facts) { image_is_read(facts); });
    begin_early();
}

// Before CRIU sees it.
void Cell::image_is_read(const Result<ImageFacts>& facts) {
    const auto refuse = [this](const Error& why) {
        criu_failed(because(CauseCode::image_refused, {{"text", why.message}}));
    };
    const bool of_root = job_.spec.launch.uid == 0;  // of whose anything may be
    if (!facts && !of_root) return refuse(facts.error());
    facts_ = facts ? *facts : ImageFacts{};
    if (auto fit =
            check_credentials(*facts_, user(), site_.criu->deleted_bytes_max, site_.limits_max);
        !fit)
        return refuse(fit.error());
    begin_restore();
}

// While souk-init takes in what waits at the job's stdio, CRIU may begin: of that it needs only the
// names, unless what souk-init does comes before it: it fills /dev/shm, and puts input into a
// terminal.
void Cell::begin_early() {
    constexpr size_t small = 64 * 1024;  // what waits there is in the same file
    const int image = image_.fd();
    if (job_.spec.launch.tty || ::faccessat(image, SOUK_SHM_NAME, F_OK, 0) == 0 ||
        ::faccessat(image, SOUK_TMP_NAME, F_OK, 0) == 0 || image_has_locks(image))
        return;
    const auto file = read_file(image, SOUK_RESIDUE_NAME, small);
    const auto residue = file ? decode_residue(*file) : Result<souk_residue>(fail(""));
    if (!residue) return;  // souk-init says what is wrong with it
    restore_.named(stdio_keys(*residue), true);
    begin_restore();
}

// Nothing of it has run.
Status Cell::check_files() const {
    if (!job_group_) return {};  // a machine without control groups does not say which are its
    TRY_ASSIGN(const auto all, pids());
    for (const pid_t pid : all) die_first(pid, site_.reach);
    return check_open_files(image_.fd(), pids_inside(all), laid_over(job_.spec), looker());
}

// The last word before it runs, and the kernel's.
Status Cell::check_rights() const {
    RestoredJob job{user(), {}, site_.limits_max};
    if (job.user.uid == 0) return {};  // of whose anything may be
    if (job_group_) {
        TRY_ASSIGN(job.pids, pids());
    }
    return site_.reach.fit(capsule_->pidfd(), job);
}

void Cell::restore_is_held() {
    // CRIU itself ends what it has made for trial: it removes the files of its own, too.
    if (site_.trial) {
        if (auto sent = criu_.answer(false); !sent) criu_failed(sent.error());
        return;
    }
    if (restore_.late()) return finish_restore();
    return intake_.listening() ? intake_.restored() : tell(guest::RestoreHeld{});
}

void Cell::loaded(const CapsuleClient::Event& e) {
    if (plan_ != Plan::loading) return;
    plan_ = Plan::restoring;
    if (e.value != 0) return criu_failed("load what waits at its stdio: " + e.trouble());
    if (restore_.early())
        return criu_.phase() == CriuPhase::restore_held ? restore_is_held() : void();
    restore_.named(stdio_keys(e.residue), false);
    begin_restore();
}

// When CRIU is ready and the image is complete and read, whichever comes last. Locks of files that
// both nodes share are the source's as long as it is held, and CRIU would wait for them: such a job
// is restored when it is told to run. Should that fail, the source's image is the job.
void Cell::begin_restore() {
    if (!restore_.has_names() || !facts_ || criu_.phase() != CriuPhase::ready) return;
    if (!restore_.late() && !site_.trial && image_has_locks(image_.fd())) {
        restore_.put_off();
        return tell(guest::RestoreHeld{});
    }
    const auto is_realtime = [](const auto& core) { return core.second.realtime; };
    if (cgroup_ && !cgroup_->allows_realtime() && std::ranges::any_of(facts_->cores, is_realtime))
        return criu_failed(
            "it has a real-time policy, and this node has no time left for one "
            "(cpu.rt_runtime_us)");
    // Not before: CRIU has looked at what the kernel can, over loopback too.
    if (auto shut = network_.shut_within(); !shut) return criu_failed(shut.error());
    RestoreOptions options;
    options.keys = restore_.take_names();
    options.lazy = intake_.listening();
    options.tcp = job_.spec.tcp;
    options.files_are_served = served_;
    // CRIU's last step that can fail is behind it. Before that nothing may reach the copy: its
    // kernel would acknowledge what the image does not have, and that is the job if CRIU fails.
    options.made = [this]() -> Status {
        TRY(check_rights());
        network_.open();
        return {};
    };
    if (auto begun = criu_.restore(options); !begun) criu_failed(begun.error());
}

void Cell::finish_restore() {
    // It has ended since it held the job; that has been told.
    if (!criu_) return criu_failed(because(CauseCode::criu_ended));
    if (restore_.late() && criu_.phase() == CriuPhase::ready) return begin_restore();
    decided_ = Decided::to_run;
    if (intake_.incomplete()) stdio_.silence();
    (void)link_.tell(&CapsuleClient::restored);
    if (auto sent = criu_.answer(true); !sent) criu_failed(sent.error());
}

// Let go by CRIU, or without it.
void Cell::now_runs() {
    has_job_ = true;
    decided_ = Decided::nothing;
    intake_.job_runs();
    criu_.let_go();
    close_criu();
    helpers_in_ = false;
    set_limits();
    network_.open();      // if CRIU has not come to it
    network_.announce();  // again: a new port of a bridge is deaf at first
    stdio_.resync();      // names the new terminal
    if (local_source_.epoch.n > 0) site_.image_refused(local_source_, "");
    tell(guest::RestoreRunning{});
    stdio_.look_for_end();
    // What it was restored from is the past: room in memory, and never the job again. The word of
    // it goes first. Until its memory is whole, what it was restored over may still be wanted.
    image_.later(drop_after, [this] {
        if (!filling()) drop_image();
    });
    look_soon();
}

void Cell::memory_is_whole() {
    site_.pages_whole(key_);
    if (intake_.form() == MoveForm::pages_first) return tell(guest::RestoreHeld{});
    const bool ran = filling();
    stdio_.end_silence();
    tell(guest::PagesWhole{});
    if (!ran) return;
    if (has_job_) drop_image();
    stdio_.speak();
}

// Told to run, with its CRIU killed at that moment. If it runs, its end, if any, will tell.
void Cell::runs_without_criu() {
    const auto all = pids();
    // CRIU's end may have killed it: by SIGKILL, at a trap of CRIU's, or in the restorer's code
    // that CRIU was about to leave with it. (Such a signal of its own in that moment cannot be told
    // apart; then the source is the job, as it was.)
    constexpr int by_criu[] = {SIGKILL, SIGTRAP, SIGSEGV, SIGBUS, SIGILL, SIGSYS};
    const auto& exited = stdio_.exit();
    const bool killed = exited ? std::ranges::find(by_criu, *exited & 0x7f) != std::end(by_criu)
                               : all && all->empty();
    if (killed || site_.reach.waits(capsule_->pidfd()).value_or(false))
        return criu_failed(because(CauseCode::criu_ended));
    if (auto fit = check_rights(); !fit)  // CRIU may have ended before it was asked
        return criu_failed(because(CauseCode::image_refused, {{"text", fit.error().message}}));
    now_runs();
}

}  // namespace souk
