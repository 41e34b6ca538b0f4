// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/program/sync.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <set>

#include "kernel/base/number.hpp"
#include "kernel/sys/loop/loop.hpp"
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

// `files`: what was synced, still open: to close one asks its server once more.
Status sync_said(const std::string& said, std::vector<Fd>& files) {
    TRY_ASSIGN(const SyncWords words, parse_sync_words(said));
    FileKeys mapped;
    if (words.mapped_alone) mapped = shared_mappings(words.pids, words.devices);
    if (words.mapped_alone && mapped.empty()) return {};
    files = written_files(words.pids, words.devices, words.mapped_alone ? &mapped : nullptr);
    if (files.empty()) return {};
    TRY_ASSIGN(auto loop, Loop::open());
    return sync_all(loop, files);
}

}  // namespace

Status sync_written(int agent) {
    TRY_ASSIGN(const std::string said, hear(agent));
    if (said.empty()) return {};  // there is nothing to do after all
    std::vector<Fd> files;
    const Status done = sync_said(said, files);
    const std::string answer = done ? "+" : "-" + done.error().message;
    return ::send(agent, answer.data(), answer.size(), MSG_NOSIGNAL) > 0
               ? Status{}
               : fail_errno("say what was synced", errno);
}

}  // namespace souk::files
