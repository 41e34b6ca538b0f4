// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/restore_job.hpp"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "agentd/core/files_choice.hpp"
#include "checkpoint/expected_files.hpp"
#include "checkpoint/restored.hpp"
#include "checkpoint/trial.h"
#include "kernel/base/number.hpp"

namespace souk {
namespace {

constexpr size_t frames_bytes_max = 16 << 20;

// souk-init sets that for a job that begins. An image may come from a node that did not do so.
void die_first(pid_t pid, const Reach& reach) {
    constexpr int first = SOUK_OOM_FIRST;
    const auto now = read_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/oom_score_adj");
    if (!now || leading_number<int>(*now) == first) return;
    const std::vector<Fd> file = reach.open({pid}, ProcessFile::oom_score);
    if (file[0]) (void)write_all(file[0].get(), std::to_string(first), "oom_score_adj");
}

}  // namespace

CriuUser RestoreJob::user() const {
    const LaunchSpec& l = p_.job.spec.launch;
    return {l.uid, l.gid, l.groups, false, l.uid != 0 && p_.site.filter};
}

void RestoreJob::stop() {
    facts_.reset();
    close_ends();
}

// -------------------------------------------------------------------------------------------------
// the image

void RestoreJob::begin() {
    p_.stage.enter(Stage::restoring);
    owner_.stay_awake();
    if (!p_.criu || !p_.link) return owner_.restore_failed(because(CauseCode::criu_ended));
    const auto take = [&]() -> Status {
        const int image = p_.image.fd();
        if (p_.intake.form() == MoveForm::stop_and_copy) {
            TRY_ASSIGN(const Manifest manifest, read_manifest(image));
            TRY(p_.intake.begin(image, image, manifest));
        }
        p_.rounds.dirty().load(image);
        return p_.intake.use_precopy(image);
    };
    if (auto taken = take(); !taken) return owner_.restore_failed(taken.error());
    load();
}

// The job thaws where its image lies: the files are linked, not copied, and the source keeps its
// own until it is dropped.
void RestoreJob::begin_local(const LocalImage* source) {
    p_.stage.enter(Stage::restoring);
    if (!source) return owner_.restore_failed("its image is not here");
    local_source_ = source->key;
    const auto taken = take_local(*source);
    if (taken) return load();
    const bool refused = local_image_refused(taken.error());
    owner_.restore_failed(Trouble(taken.error()).within("take its image: "), refused);
}

bool RestoreJob::local_image_refused(const Error& error) {
    if (local_source_.epoch.n == 0 || !image_is_refused(error)) return false;
    p_.site.image_refused(local_source_, error.message);
    return true;
}

Status RestoreJob::take_local(const LocalImage& source) {
    if (!source.image) return tl::unexpected(source.image.error());
    const int from = source.image->get();
    TRY_ASSIGN(const Manifest manifest, verify_image(from, page_file_name));
    TRY_ASSIGN(const DiskKey key,
               key_of_image(manifest, source.disk_secret, source.key.id, source.key.epoch));
    TRY(p_.image.link_from(from, manifest, key));
    return p_.intake.begin(p_.image.fd(), from, manifest, key);
}

void RestoreJob::load() {
    if (!p_.criu || !p_.link) return owner_.restore_failed(because(CauseCode::criu_ended));
    const int image = p_.image.fd();
    if (auto listening = p_.intake.listen(image); !listening)
        return owner_.restore_failed(listening.error());
    if (p_.capsule.served() && p_.site.files_expected)
        p_.site.files_expected(p_.job.key, read_expected_files(image), true);
    if (auto loading = p_.link.tell(&CapsuleClient::load, image); !loading)
        return owner_.restore_failed(loading.error());
    p_.stage.enter(Stage::loading);
    if (p_.network.own())
        if (const auto frames = read_file(image, frames_file_name, frames_bytes_max))
            p_.network.came_with(*frames);
    // Only a trial of this node may have the file that asks for one.
    p_.inspection.read(
        image, [this](const Result<ImageFacts>& facts) { image_is_read(facts); },
        p_.site.trial ? SOUK_TRIAL_NAME : std::string_view{});
    begin_early();
}

// That is before CRIU sees the image.
void RestoreJob::image_is_read(const Result<ImageFacts>& facts) {
    const auto refuse = [this](const Error& why) {
        owner_.restore_failed(because(CauseCode::image_refused, {{"text", why.message}}));
    };
    const bool of_root = p_.job.spec.launch.uid == 0;  // root's jobs may have any image
    if (!facts && !of_root) return refuse(facts.error());
    facts_ = facts ? *facts : ImageFacts{};
    if (auto fit =
            check_credentials(*facts_, user(), p_.site.criu->deleted_bytes_max, p_.site.limits_max);
        !fit)
        return refuse(fit.error());
    restore();
}

// While souk-init takes in what waits at the job's stdio, CRIU may begin: it needs only the names
// of the ends, unless a step of souk-init comes before it: filling /dev/shm or /run, and putting
// input into a terminal.
void RestoreJob::begin_early() {
    constexpr size_t small = 64 * 1024;  // what waits at the stdio is in the same file
    const int image = p_.image.fd();
    if (p_.job.spec.launch.tty || ::faccessat(image, SOUK_SHM_NAME, F_OK, 0) == 0 ||
        ::faccessat(image, SOUK_RUN_NAME, F_OK, 0) == 0 ||
        ::faccessat(image, SOUK_TMP_NAME, F_OK, 0) == 0 || image_has_locks(image))
        return;
    const auto file = read_file(image, SOUK_RESIDUE_NAME, small);
    const auto residue = file ? decode_residue(*file) : Result<souk_residue>(souk::fail(""));
    if (!residue) return;  // souk-init says what is wrong with it
    turn_.named(stdio_keys(*residue), true);
    restore();
}

void RestoreJob::loaded(const CapsuleClient::Event& e) {
    if (!p_.stage.is(Stage::loading)) return;
    p_.stage.enter(Stage::restoring);
    if (e.value != 0) return owner_.restore_failed("load what waits at its stdio: " + e.trouble());
    if (turn_.early()) return p_.criu.phase() == CriuPhase::restore_held ? is_held() : void();
    turn_.named(stdio_keys(e.residue), false);
    restore();
}

// -------------------------------------------------------------------------------------------------
// CRIU

// CRIU restores when it is ready and the image is complete and read, whichever comes last. Locks of
// files that both nodes share are the source's as long as it is held, and CRIU would wait for them:
// such a job is restored when it is told to run. If that fails, the source's image is the job.
void RestoreJob::restore() {
    if (!turn_.has_names() || !facts_ || p_.criu.phase() != CriuPhase::ready) return;
    if (!turn_.late() && !p_.site.trial && image_has_locks(p_.image.fd())) {
        turn_.put_off();
        return owner_.tell(guest::RestoreHeld{});
    }
    const auto is_realtime = [](const auto& core) { return core.second.realtime; };
    if (!p_.groups.allows_realtime() && std::ranges::any_of(facts_->cores, is_realtime))
        return owner_.restore_failed(
            "it has a real-time policy, and this node has no time left for one "
            "(cpu.rt_runtime_us)");
    // It is not shut before: CRIU has looked at what the kernel can, over loopback too.
    if (auto shut = p_.network.shut_within(); !shut) return owner_.restore_failed(shut.error());
    RestoreOptions options;
    options.keys = turn_.take_names();
    options.lazy = p_.intake.listening();
    options.tcp = p_.job.spec.tcp;
    options.files_are_served = p_.capsule.served();
    // CRIU's last step that can fail is behind it. Before that nothing may reach the copy: its
    // kernel would acknowledge data that the image does not have, and the image is the job if CRIU
    // fails.
    options.made = [this]() -> Status {
        TRY(check_rights());
        p_.network.open();
        return {};
    };
    if (auto begun = p_.criu.restore(options); !begun) owner_.restore_failed(begun.error());
}

void RestoreJob::held() {
    if (auto same = check_files(); !same)
        return owner_.restore_failed(caused_by(CauseCode::file_changed, same.error()));
    if (!p_.stage.is(Stage::loading)) is_held();  // else souk-init is not ready
}

void RestoreJob::is_held() {
    // CRIU itself ends the processes of a trial: it removes the files that it has made, too.
    if (p_.site.trial) {
        if (auto sent = p_.criu.answer(false); !sent) owner_.restore_failed(sent.error());
        return;
    }
    if (turn_.late()) return finish();
    p_.intake.listening() ? p_.intake.restored() : owner_.tell(guest::RestoreHeld{});
}

// No instruction of the job has run.
Status RestoreJob::check_files() const {
    if (!p_.groups.there()) return {};  // it is not known which processes are the job's
    TRY_ASSIGN(const auto all, p_.groups.pids());
    for (const pid_t pid : all) die_first(pid, p_.site.reach);
    return check_open_files(p_.image.fd(), pids_inside(all), laid_over(p_.job.spec),
                            p_.processes.looker());
}

// The last word before the job runs is the kernel's.
Status RestoreJob::check_rights() const {
    RestoredJob job{user(), {}, p_.site.limits_max};
    if (job.user.uid == 0) return {};  // root's jobs may have all rights
    if (p_.groups.there()) {
        TRY_ASSIGN(job.pids, p_.groups.pids());
    }
    return p_.site.reach.fit(p_.capsule->pidfd(), job);
}

// -------------------------------------------------------------------------------------------------
// the job runs

void RestoreJob::finish() {
    // CRIU has ended since it held the job; that has been told.
    if (!p_.criu) return owner_.restore_failed(because(CauseCode::criu_ended));
    if (turn_.late() && p_.criu.phase() == CriuPhase::ready) return restore();
    told_to_run_ = true;
    if (p_.intake.incomplete()) p_.stdio.silence();
    (void)p_.link.tell(&CapsuleClient::restored);
    if (auto sent = p_.criu.answer(true); !sent) owner_.restore_failed(sent.error());
}

void RestoreJob::look_without_criu() {
    const auto all = p_.groups.pids();
    // CRIU's end may have killed the job: by SIGKILL, at a trap of CRIU's, or in the restorer's
    // code that CRIU was about to leave with it. (Such a signal of its own in that moment cannot be
    // told apart; then the source is the job, as it was.)
    constexpr int by_criu[] = {SIGKILL, SIGTRAP, SIGSEGV, SIGBUS, SIGILL, SIGSYS};
    const auto& exited = p_.stdio.exit();
    const bool killed = exited ? std::ranges::find(by_criu, *exited & 0x7f) != std::end(by_criu)
                               : all && all->empty();
    if (killed || p_.site.reach.waits(p_.capsule->pidfd()).value_or(false))
        return owner_.restore_failed(because(CauseCode::criu_ended));
    if (auto fit = check_rights(); !fit)  // CRIU may have ended before it was asked
        return owner_.restore_failed(
            because(CauseCode::image_refused, {{"text", fit.error().message}}));
    owner_.job_runs();
}

void RestoreJob::runs() {
    told_to_run_ = false;
    p_.intake.job_runs();
    p_.criu.let_go();
}

void RestoreJob::source_is_good() const {
    if (local_source_.epoch.n > 0) p_.site.image_refused(local_source_, "");
}

}  // namespace souk
