// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/root/capsules.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <string_view>
#include <vector>

#include "kernel/base/number.hpp"
#include "kernel/base/proc_status.hpp"
#include "kernel/sys/process/pids.hpp"

namespace souk::root {
namespace {

struct Found {
    pid_t pid = 0;       // here
    std::string status;  // its /proc/PID/status
};

Result<Found> find(int pidfd) {
    const auto pid = pid_of(pidfd);
    if (!pid) return fail("no process of a capsule");
    TRY_ASSIGN(std::string status,
               read_file(AT_FDCWD, "/proc/" + std::to_string(*pid) + "/status"));
    return Found{*pid, std::move(status)};
}

Result<Inside> inside(const Found& found) {
    const auto pids = pids_of_status(found.status);
    if (!pids) return fail("a kernel that does not tell of namespaces");
    if (!pids->below) return fail("no process of a capsule");
    return Inside{found.pid, pids->own};
}

// Tells by the name of its program whether it is a souk-init: it may be of an earlier version,
// whose file is gone.
bool is_souk_init(const Found& found) {
    constexpr std::string_view ends[] = {"/souk-init", "/souk-init (deleted)"};
    constexpr mode_t others = S_IWGRP | S_IWOTH;
    const auto its = namespace_of(found.pid, "user"), own = namespace_of(::getpid(), "user");
    const std::string path = "/proc/" + std::to_string(found.pid) + "/exe";
    char name[PATH_MAX];
    const ssize_t n = ::readlink(path.c_str(), name, sizeof name);
    struct statx st {};
    if (n <= 0 || !its || !own || *its != *own ||
        ::statx(AT_FDCWD, path.c_str(), AT_STATX_DONT_SYNC, STATX_MODE | STATX_UID, &st) != 0)
        return false;
    const std::string_view exe(name, static_cast<size_t>(n));
    return (exe.ends_with(ends[0]) || exe.ends_with(ends[1])) && st.stx_uid == 0 &&
           (st.stx_mode & others) == 0 && status_line(found.status, "Uid") == "0\t0\t0\t0";
}

// Tells whether `pid` is CRIU, or a process that CRIU has made and that is not the job's yet: it
// runs the same program. While CRIU restores, nothing else runs that program in the capsule; a job
// that is dumped may run it.
bool is_criu(int proc, pid_t pid, pid_t criu, bool restores) {
    if (pid == criu) return true;
    const auto its = program_file(proc, pid), one = program_file(proc, criu);
    if (!its || !one || *its != *one) return false;
    if (restores) return true;
    const auto status = read_file(proc, std::to_string(pid) + "/status");
    return status && status_line(*status, "PPid") == std::to_string(criu);
}

}  // namespace

Result<Pidfd> Capsules::init(int pidfd) {
    TRY_ASSIGN(const Found found, find(pidfd));
    TRY_ASSIGN(const Inside process, inside(found));
    if (process.inside != 1 || !is_souk_init(found)) return fail("no PID 1 of a capsule");
    TRY_ASSIGN(Fd own, duplicate(pidfd));
    Pidfd one(std::move(own), process.here);
    TRY(made(one));
    return one;
}

Status Capsules::made(const Pidfd& init) {
    TRY_ASSIGN(const ino_t its, namespace_of(init.pid(), "pid"));
    TRY_ASSIGN(Fd kept, duplicate(init.get()));
    TRY_ASSIGN(const bool ended, init.exited_within({}));
    if (ended) return fail_errno("PID 1 of a capsule", ESRCH);
    if (!known_.contains(its)) forget_ended();
    Known& one = known_[its];
    if (one.init.pid() != init.pid()) one.directory.reset();  // a number that is used again
    one.init = Pidfd(std::move(kept), init.pid());
    return {};
}

Status Capsules::lies_in(const Pidfd& init, int directory) {
    TRY_ASSIGN(const ino_t its, namespace_of(init.pid(), "pid"));
    TRY_ASSIGN(known_[its].directory, duplicate(directory));
    return {};
}

int Capsules::directory(const Pidfd& init) const {
    const auto its = namespace_of(init.pid(), "pid");
    const auto known = its ? known_.find(*its) : known_.end();
    return known == known_.end() ? -1 : known->second.directory.get();
}

Result<Inside> Capsules::process(int pidfd) const {
    TRY_ASSIGN(const Found found, find(pidfd));
    TRY_ASSIGN(const Inside process, inside(found));
    TRY_ASSIGN(const ino_t its, namespace_of(process.here, "pid"));
    // A number that is used again is of a namespace whose PID 1 is another one.
    const auto known = known_.find(its);
    const bool lives =
        known != known_.end() && !known->second.init.exited_within({}).value_or(true);
    return lives ? Result<Inside>(process) : Result<Inside>(fail("no process of a capsule"));
}

Result<Inside> Capsules::process_of_job(int pidfd) const {
    TRY_ASSIGN(const Inside one, process(pidfd));
    TRY_ASSIGN(const ino_t its, namespace_of(one.here, "pid"));
    const Criu* const criu = criu_in(its);
    if (criu == nullptr) return one;
    TRY_ASSIGN(const Fd proc, open_at(AT_FDCWD, "/proc", O_PATH | O_DIRECTORY));
    if (is_criu(proc.get(), one.here, criu->process.pid(), criu->restores))
        return fail("a process of CRIU's, and none of the job");
    return one;
}

const Capsules::Criu* Capsules::criu_in(ino_t capsule) const {
    const auto one = criu_.find(capsule);
    const bool lives = one != criu_.end() && !one->second.process.exited_within({}).value_or(true);
    return lives ? &one->second : nullptr;
}

Status Capsules::may_have_criu(const Pidfd& init) const {
    TRY_ASSIGN(const ino_t its, namespace_of(init.pid(), "pid"));
    return criu_in(its) == nullptr ? Status{}
                                   : fail_errno("another CRIU is in that capsule", EALREADY);
}

Status Capsules::has_criu(const Pidfd& init, const Pidfd& criu, bool restores) {
    TRY_ASSIGN(const ino_t its, namespace_of(init.pid(), "pid"));
    TRY_ASSIGN(const Found found, find(criu.get()));
    TRY_ASSIGN(const Inside one, inside(found));
    TRY_ASSIGN(Fd kept, duplicate(criu.get()));
    criu_.insert_or_assign(its, Criu{Pidfd(std::move(kept), one.here), one.inside, restores});
    return {};
}

Result<Pidfd> Capsules::criu(int pidfd) const {
    TRY_ASSIGN(const Found found, find(pidfd));
    for (const auto& [its, one] : criu_) {
        if (one.process.pid() != found.pid || one.process.exited_within({}).value_or(true))
            continue;
        TRY_ASSIGN(Fd own, duplicate(one.process.get()));
        return Pidfd(std::move(own), found.pid);
    }
    return fail("no CRIU that was started here");
}

Result<std::vector<pid_t>> Capsules::without_criu(const Pidfd& init, int proc,
                                                  const std::vector<pid_t>& pids) const {
    TRY_ASSIGN(const ino_t its, namespace_of(init.pid(), "pid"));
    const Criu* const criu = criu_in(its);
    if (criu == nullptr) return pids;
    std::vector<pid_t> all;
    for (const pid_t pid : pids)
        if (!is_criu(proc, pid, criu->inside, criu->restores)) all.push_back(pid);
    return all;
}

Status Capsules::started(int pidfd) {
    if (process(pidfd) || init(pidfd)) return {};
    TRY_ASSIGN(const Found found, find(pidfd));
    return status_line(found.status, "PPid") == std::to_string(::getpid())
               ? Status{}
               : Status(fail("no process that was started here"));
}

void Capsules::forget_ended() {
    std::erase_if(known_,
                  [](const auto& one) { return one.second.init.exited_within({}).value_or(true); });
    std::erase_if(
        criu_, [](const auto& one) { return one.second.process.exited_within({}).value_or(true); });
}

}  // namespace souk::root
