// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/cell_capsule.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>

#include "agentd/core/files_choice.hpp"
#include "agentd/core/gang_hosts.hpp"
#include "kernel/sys/process/init_codec.hpp"
#include "kernel/sys/process/init_protocol.h"

namespace souk {
namespace {

constexpr const char* capsule_file = "capsule";  // it names the process, for a restarted daemon
// The record of a job whose process is gone is looked for so often: for 100 ms in all.
constexpr int ended_looks = 20;
constexpr unsigned ended_pause_us = 5'000;

}  // namespace

// Writes the names of its siblings behind those of this node. False: it has none.
Result<bool> CellCapsule::write_hosts() const {
    const std::string names = hosts_of_gang(job_.spec);
    if (names.empty()) return false;
    std::string text = read_file(AT_FDCWD, "/etc/hosts").value_or("");
    if (!text.empty() && !text.ends_with('\n')) text += '\n';
    TRY(create_file(dir_fd_.get(), "hosts", text + names));
    return true;
}

CapsuleOptions CellCapsule::options() const {
    const LaunchSpec& launch = job_.spec.launch;
    CapsuleOptions options;
    options.init_path = site_.init_path;
    options.dir = dir_fd_.get();
    options.cgroup = groups_.capsule_entry();
    options.cgroup_v1 = groups_.v1_tasks();
    options.own_net = job_.spec.net == NetMode::own || site_.trial;
    options.private_tmp = site_.private_tmp || job_.spec.tmp == FilesTmp::own;
    options.laid_over = laid_over(job_.spec);
    options.run_keep = site_.run_keep;
    if (job_.key.id.home != site_.node || site_.trial) options.hidden = site_.hidden;
    options.home_tree = job_.spec.files == FilesMode::home && !served_;
    options.user = {true, launch.uid, launch.gid, launch.groups};
    return options;
}

Status CellCapsule::make() {
    TRY(network_.check());
    if (::mkdir(dir_.c_str(), 0700) != 0 && errno != EEXIST)
        return fail_errno("create " + dir_, errno);
    TRY_ASSIGN(dir_fd_, open_at(AT_FDCWD, dir_, O_RDONLY | O_DIRECTORY));
    TRY(groups_.take());
    TRY_ASSIGN(const bool hosts, write_hosts());
    // souk-init reads it: the job finds no more CPUs than it may have.
    TRY(create_file(dir_fd_.get(), "cpus", std::to_string(job_.cpus)));
    TRY_ASSIGN(served_, needs_server());
    CapsuleOptions how = options();
    how.hosts = hosts;
    std::pair<Fd, Fd> files;
    if (served_) {
        TRY_ASSIGN(files, site_.files_made());
        how.fuse = files.first.get();
        how.slots = files.second.get();
        how.check_access = job_.spec.launch.uid == 0;
    }
    TRY_ASSIGN(Capsule capsule, site_.make_capsule(job_.key, how));
    capsule.reached_by(site_.reach.inside, site_.reach.end);
    capsule_ = std::move(capsule);
    begin_files();
    TRY(network_.make(*capsule_, job_.from_image));
    return write_record();
}

// Names the process for a restarted daemon. It is not synced: after a crash of the machine there is
// no such process.
Status CellCapsule::write_record() const {
    const ProcessId id = capsule_->id();
    std::string text = std::to_string(id.pid) + " " + std::to_string(id.start_ticks) + " " +
                       (groups_.name().empty() ? "-" : groups_.name()) + " " +
                       std::to_string(groups_.used_before().ns);
    if (job_.spec.files == FilesMode::home) text += served_ ? " served" : " own";
    return create_file(dir_fd_.get(), capsule_file, text + "\n");
}

bool CellCapsule::open_directory() {
    auto dir = open_at(AT_FDCWD, dir_, O_RDONLY | O_DIRECTORY);
    if (!dir) return false;
    dir_fd_ = std::move(*dir);
    return true;
}

void CellCapsule::find() {
    ProcessId id;
    char group[256] = "", files[16] = "";
    Nanos used;
    const auto text = read_file(dir_fd_.get(), capsule_file);
    if (!text || std::sscanf(text->c_str(), "%d %lu %255s %ld %15s", &id.pid, &id.start_ticks,
                             group, &used.ns, files) < 2)
        return;
    // The record of an older daemon's capsule does not say it.
    served_ = files[0] != 0 ? std::string_view(files) == "served"
                            : job_.spec.files == FilesMode::home && job_.key.id.home != site_.node;
    auto capsule = Capsule::reconnect(dir_fd_.get(), id, site_.reach.connect);
    if (!capsule) return;
    capsule_ = std::move(*capsule);
    capsule_->reached_by(site_.reach.inside, site_.reach.end);
    if (auto found = groups_.find(group, used); !found)
        log_.warning("no control group", found.error());
}

void CellCapsule::find_exit(guest::Found& found) const {
    const auto record = read_exit_record(dir_fd_.get());
    if (!record) return;
    const auto exit = decode_exit(*record);
    if (!exit) return;
    found.exited = true;
    found.wait_status = exit->wait_status;
}

void CellCapsule::find_job(guest::Found& found) const {
    const auto processes = capsule_processes(*capsule_);
    // The root is a child of PID 1; CRIU, which came from outside, is not.
    found.job_alive =
        !found.exited && processes &&
        std::any_of(processes->begin(), processes->end(),
                    [](const CapsuleProcess& p) { return p.parent == 1 && p.state != 'Z'; });
    // The job may have ended since its record was looked for. PID 1 writes that down a moment after
    // it has ended; without it, a job that has run to its end would be started again.
    if (job_.state == GuestState::running)
        for (int look = 0; !found.job_alive && !found.exited && look < ended_looks; ++look) {
            if (look > 0) ::usleep(ended_pause_us);
            find_exit(found);
        }
}

// Mostly these files are all that lies there: to list it costs more than to remove it.
void CellCapsule::remove_directory() {
    if (dir_fd_)
        for (const char* file : {capsule_file, SOUK_CTL_NAME, SOUK_EXIT_NAME})
            (void)::unlinkat(dir_fd_.get(), file, 0);
    std::error_code ignored;
    if (::rmdir(dir_.c_str()) != 0) std::filesystem::remove_all(dir_, ignored);
}

void CellCapsule::end_files() {
    if (job_.spec.files == FilesMode::home && site_.files_end) site_.files_end(job_.key);
}

void CellCapsule::begin_files() {
    if (job_.spec.files != FilesMode::home) return;
    if (served_) return site_.files_begin(job_, *capsule_);
    if (site_.files_own) site_.files_own(job_.key);
}

// Says whether the job's root comes from its home. An error: its files are not here, and nobody
// brings them.
Result<bool> CellCapsule::needs_server() const {
    const JobSpec& spec = job_.spec;
    if (job_.key.id.home == site_.node) return false;
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
        return fail_because(CauseCode::other_files, {{"home", job_.key.id.home}});
    return false;
}

}  // namespace souk
