// SPDX-License-Identifier: GPL-2.0-or-later
// Cell: how its capsule ends, and how one that outlived its agentd is found again. See cell.hpp.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "agentd/cell/cell.hpp"

namespace souk {
namespace {

constexpr Nanos group_limit = Nanos::from_s(5);
// For the record of a job whose process is gone: 100 ms in all.
constexpr int ended_looks = 20;
constexpr unsigned ended_pause_us = 5'000;

void find_exit(int directory, Guest::Found& found) {
    const auto record = read_exit_record(directory);
    if (!record) return;
    const auto exit = decode_exit(*record);
    if (!exit) return;
    found.exited = true;
    found.wait_status = exit->wait_status;
}

}  // namespace

void Cell::kill_capsule() {
    const bool lives = capsule_ && life_ != Life::gone;
    if (life_ == Life::lives) life_ = Life::ending;
    lease_.rest();
    // CRIU first: where it sees its agentd gone before it dies it would let the connections of what
    // it dumped speak again.
    if (lives) criu_.kill();
    if (lives) network_.hush();
    if (lives) capsule_->kill();  // the pidfd tells when every process is gone
    // On v2 what is frozen dies frozen: nothing of it may run once more.
    if (lives && lease_.stopped() && job_group_->entry().v2 < 0) (void)job_group_->thaw();
    close_criu();
    end_files();
    if (lives) return;
    life_ = Life::gone;
    lease_.end();
    tell(guest::CapsuleGone{});
}

void Cell::capsule_ended() {
    const Life before = std::exchange(life_, Life::gone);
    if (before == Life::gone) return;
    exit_watch_.close();
    lease_.end();
    link_.last_words();
    const bool released = restoring() && decided_ == Decided::to_run;
    close_criu();
    end_files();
    intake_.end();
    const bool moves = decided_ == Decided::to_die && !image_.on_disk() && !dump_.for_checkpoint();
    if (!moves) stdio_.exit() && before != Life::ending ? network_.drop() : network_.silence();
    // not our child after a restart of the daemon: then its new parent does
    (void)capsule_->pidfd().reap();
    if (before == Life::removing) return remove_files();
    if (released) tell(guest::RestoreRunning{});  // it may have run, for a moment
    tell(guest::CapsuleGone{});
}

void Cell::silence() { network_.silence(); }

void Cell::remove() {
    lease_.end();
    close_criu();
    if (!capsule_ || life_ == Life::gone) return remove_files();
    life_ = Life::removing;
    // it ends at once; its exit comes back here
    if (stdio_.exit() && link_.tell(&CapsuleClient::quit)) return;
    capsule_->kill();
    end_files();
}

// With its capsule its mount ends, and no call waits in it any more.
void Cell::end_files() {
    if (job_.spec.files == FilesMode::home && site_.files_end) site_.files_end(key_);
}

void Cell::begin_files() {
    if (job_.spec.files != FilesMode::home) return;
    if (served_) return site_.files_begin(job_, *capsule_);
    if (site_.files_own) site_.files_own(key_);
}

// Whether the job's root comes from its home. An error: its files are not here, and nobody brings
// them.
Result<bool> Cell::needs_server() const {
    const JobSpec& spec = job_.spec;
    if (key_.id.home == site_.node) return false;
    const bool has =
        spec.files_auto && site_.has_file_systems && site_.has_file_systems(spec.file_systems);
    if (spec.files == FilesMode::home && !has) {
        for (const std::string& path : spec.local_paths)
            if (std::ranges::find(site_.local_paths, path) == site_.local_paths.end())
                return fail_because(CauseCode::path_not_offered, {{"path", path}});
        return true;
    }
    if (spec.files == FilesMode::home) return false;
    if (spec.files_auto && !has)
        return fail_because(CauseCode::other_files, {{"home", key_.id.home}});
    return false;
}

// Mostly these files are all that lies there: to list it costs more than to remove it.
void Cell::remove_directory() {
    if (dir_fd_)
        for (const char* file : {capsule_file, SOUK_CTL_NAME, SOUK_EXIT_NAME})
            (void)::unlinkat(dir_fd_.get(), file, 0);
    std::error_code ignored;
    if (::rmdir(dir_.c_str()) != 0) std::filesystem::remove_all(dir_, ignored);
}

void Cell::remove_files() {
    if (trial_.is_there()) return trial_.when_gone([this] { remove_files(); });
    network_.drop();
    remove_directory();
    drop_image();
    if (cgroup_) {
        site_.cgroup_changed(*cgroup_, cgroup_used_, false);
        auto back =
            site_.groups->give_back({std::move(*cgroup_), std::move(*job_group_), {}}, group_limit);
        if (!back) log_.warning("cannot remove a control group", back.error());
        job_group_.reset();
        cgroup_.reset();
        cgroup_name_.clear();
    }
    tell(guest::Removed{});
}

// Older daemons named the control group by the job.
void Cell::find_capsule() {
    ProcessId id;
    char group[256] = "", files[16] = "";
    Nanos used;
    const auto text = read_file(dir_fd_.get(), capsule_file);
    if (!text || std::sscanf(text->c_str(), "%d %lu %255s %ld %15s", &id.pid, &id.start_ticks,
                             group, &used.ns, files) < 2)
        return;
    // Of an older daemon's capsule there is no word of it.
    served_ = files[0] != 0 ? std::string_view(files) == "served"
                            : job_.spec.files == FilesMode::home && key_.id.home != site_.node;
    auto capsule = Capsule::reconnect(dir_fd_.get(), id, site_.reach.connect);
    if (!capsule) return;
    capsule_ = std::move(*capsule);
    capsule_->reached_by(site_.reach.inside, site_.reach.end);
    if (!site_.groups) return;
    cgroup_name_ = group[0] != 0 ? group : site_.groups->parent() + "/" + key_.text();
    auto groups = site_.groups->find(cgroup_name_, cgroup_use(), used);
    if (groups) return use_groups(std::move(*groups));
    log_.warning("no control group", groups.error());
}

Guest::Found Cell::adopt() {
    Guest::Found found;
    auto dir = open_at(AT_FDCWD, dir_, O_RDONLY | O_DIRECTORY);
    if (dir) {
        dir_fd_ = std::move(*dir);
        find_exit(dir_fd_.get(), found);
        find_capsule();
    }
    if (const auto sealed = open_sealed()) {
        const auto manifest = read_manifest(sealed->get());
        found.image_complete = manifest.has_value();
        if (job_.kept && manifest) find_ends(*manifest, sealed->get());
        if (manifest) image_.drop_stage();
    }
    if (!capsule_) return found;
    found.capsule_alive = true;
    begin_files();
    const auto processes = capsule_processes(*capsule_);
    // The root is a child of PID 1; what came from outside (CRIU) is not.
    found.job_alive =
        !found.exited && processes &&
        std::any_of(processes->begin(), processes->end(),
                    [](const CapsuleProcess& p) { return p.parent == 1 && p.state != 'Z'; });
    // It may have ended since its record was looked for. PID 1 writes that down a moment after it
    // has ended; without it, a job that has run to its end would be started again.
    if (job_.state == GuestState::running)
        for (int look = 0; !found.job_alive && !found.exited && look < ended_looks; ++look) {
            if (look > 0) ::usleep(ended_pause_us);
            find_exit(dir_fd_.get(), found);
        }
    if (job_group_ && found.job_alive) {
        const auto frozen = read_file(job_group_->entry().v2, "cgroup.freeze");
        found.held_by_dump = frozen && frozen->starts_with("1");
        if (found.held_by_dump) lease_.found_stopped(job_.in_place);
        found.lapsed = lease_.lapsed();
        found.paused = found.held_by_dump && lease_.found_paused();
        // Without a lease, it is as what runs; else it does not go on before its home has answered.
        if (found.paused && !found.lapsed && !job_.in_place) {
            found.lapsed = job_.spec.lease.ns > 0;
            found.held_by_dump = found.lapsed;
            if (!found.lapsed) lease_.found_running();
        }
    }
    // before its image goes: what the job runs with is its own now
    has_job_ = found.job_alive || found.exited;
    cpus_limited_ = has_job_;
    // A checkpoint that was on its way.
    if (job_.state == GuestState::running && found.job_alive && !found.held_by_dump) drop_image();
    // What a dump holds stays cut off, and a copy that was not told to run: it will be ended.
    const bool dumped = found.held_by_dump && !lease_.in_place();
    const bool runs = job_.state == GuestState::running || job_.state == GuestState::held;
    // So does a copy that its CRIU has taken with it while it was told to run.
    const bool lost = job_.state == GuestState::held && job_.from_image && !found.job_alive;
    network_.find(*capsule_, dumped || !runs || lost);
    if (job_.state == GuestState::running) network_.patient(lease_.in_place());
    connect(capsule_->take_connection());
    return found;
}

}  // namespace souk
