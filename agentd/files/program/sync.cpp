// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/program/sync.hpp"

#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "kernel/base/number.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/process/capsule.hpp"
#include "kernel/sys/process/pids.hpp"
#include "kernel/sys/store/network_files.hpp"

namespace souk::files {
namespace {

constexpr size_t syncs_max = 64;  // at once
constexpr size_t said_max = 1 << 20;

Result<std::string> hear(int agent) {
    std::string said;
    for (char bytes[4096];;) {
        const ssize_t n = ::read(agent, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno("hear what is to be synced", errno);
        if (n == 0) return said;
        said.append(bytes, static_cast<size_t>(n));
        if (said.size() > said_max) return fail("too many processes");
    }
}

// Each is a round trip to a file server.
Status sync_all(Loop& loop, const std::vector<Fd>& files) {
    std::vector<Sync> syncs;
    size_t under_way = 0;
    Status all;
    while (syncs.size() < files.size() || under_way > 0) {
        while (all && syncs.size() < files.size() && under_way < syncs_max) {
            TRY_ASSIGN(Sync sync,
                       loop.sync(files[syncs.size()].get(), 0, 0, [&](const Status& synced) {
                           --under_way;
                           if (!synced) all = synced;
                       }));
            syncs.push_back(std::move(sync));
            ++under_way;
        }
        if (!all) return all;
        const size_t before = under_way;
        (void)loop.run_until([&] { return under_way < before; }, Nanos::from_s(3600));
    }
    return all;
}

Status keep_rights(uint32_t rights) {
    const __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct kept[2] = {{rights, rights, 0}, {}};
    if (::syscall(SYS_capset, &head, kept) != 0) return fail_errno("capset", errno);
    return {};
}

// A process needs these to look into processes of another user, and into a process that its own
// user may not trace.
constexpr uint32_t to_look = 1U << CAP_SYS_PTRACE | 1U << CAP_DAC_READ_SEARCH;

Status become_looker(const RunsAs& user) {
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return fail_errno("no new privileges", errno);
    if (::geteuid() != 0) return {};  // it is somebody already
    if (::prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) != 0) return fail_errno("keep capabilities", errno);
    if (user.known && (::setgroups(user.groups.size(), user.groups.data()) != 0 ||
                       ::setresgid(user.gid, user.gid, user.gid) != 0 ||
                       ::setresuid(user.uid, user.uid, user.uid) != 0))
        return fail_errno("become user " + std::to_string(user.uid), errno);
    return keep_rights(to_look);
}

// `files` gets what was synced, still open, because closing a file asks its server once more.
Status sync_said(const std::string& said, const Synced& capsule, std::vector<Fd>& files) {
    TRY_ASSIGN(const SyncWords words, parse_sync_words(said));
    for (const pid_t pid : words.pids)
        if (const auto process = Pidfd::open(pid)) TRY(check_synced(capsule, *process));
    FileKeys mapped;
    if (words.mapped_alone) mapped = shared_mappings(words.pids, words.devices);
    if (words.mapped_alone && mapped.empty()) return {};
    const auto take = [&capsule](const Pidfd& process, int number) -> Result<Fd> {
        TRY(check_synced(capsule, process));
        return take_descriptor(process, number);
    };
    files = written_files(words.pids, words.devices, words.mapped_alone ? &mapped : nullptr, take);
    TRY(keep_rights(0));
    if (files.empty()) return {};
    TRY_ASSIGN(auto loop, Loop::open());
    return sync_all(loop, files);
}

}  // namespace

Result<Synced> synced_of(Fd init) {
    TRY_ASSIGN(const pid_t pid, pid_of(init.get()));
    Synced capsule{Pidfd(std::move(init), pid), 0, {}};
    TRY_ASSIGN(capsule.processes, namespace_of(pid, "pid"));
    TRY_ASSIGN(capsule.user, capsule_user(capsule.init));  // and it is there
    return capsule;
}

// A number of a namespace is used again when that has ended.
Status check_synced(const Synced& capsule, const Pidfd& process) {
    const auto its = namespace_of(process.pid(), "pid");
    TRY_ASSIGN(const bool ended, process.exited_within({}));
    if (ended) return {};  // it has nothing open
    TRY_ASSIGN(const bool gone, capsule.init.exited_within({}));
    if (gone || !its || *its != capsule.processes) return fail("no process of that capsule");
    return {};
}

Status sync_written(int agent, const Synced& capsule) {
    TRY(become_looker(capsule.user));
    TRY_ASSIGN(const std::string said, hear(agent));
    if (said.empty()) return {};  // there is nothing to do after all
    std::vector<Fd> files;
    const Status done = sync_said(said, capsule, files);
    const std::string answer = done ? "+" : "-" + done.error().message;
    return ::send(agent, answer.data(), answer.size(), MSG_NOSIGNAL) > 0
               ? Status{}
               : fail_errno("say what was synced", errno);
}

}  // namespace souk::files
