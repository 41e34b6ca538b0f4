// SPDX-License-Identifier: GPL-2.0-or-later
// CRIU as a new process in a capsule: how it is started, with what open. What is said to it then is
// CriuSession's (criu.hpp). Needs root.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

// Names the user whose job it is, as far as files are concerned: uid 0 is root.
struct CriuUser {
    uint32_t uid = 0, gid = 0;
    std::vector<uint32_t> groups;
    bool unchecked = false;  // for tests: what it restores need not be his (criu_let_go.c)
    bool limited = false;    // what it restores must be kept from calls (syscall_filter.hpp)
};
// criu_user.c reads these words in CRIU's environment.
std::string criu_user_words(const CriuUser& user);

inline constexpr size_t criu_ends_max = 8;

// The numbers that it has them under.
struct criu_fds {
    static constexpr int socket = 3, locks = 197, preload = 198, ended = 199, images = 200,
                         first_end = 201;
};

// A dump reads this in its capsule: how a lazy dump ends (ended).
inline constexpr const char* criu_lazy_config = "/run/souk-lazy.conf";
// A restore reads this if the job's files are its home's (RestoreOptions::files_are_served).
inline constexpr const char* criu_served_config = "/run/souk-served.conf";
// Writes what CRIU finds in its capsule's /run: one of these files, and what an earlier CRIU has
// learnt about this kernel (`facts`; empty: nothing). Call it before CRIU is launched.
Status lay_out_run(const Pidfd& init, bool restores, std::string_view facts);
// Returns what a CRIU has learnt there about this kernel.
Result<std::string> read_criu_facts(const Pidfd& init);

struct CriuLaunch {
    int capsule = -1;  // a pidfd of souk-init
    int socket = -1;   // of packets: its end of the RPC
    int images = -1;   // directory
    int locks = -1;    // of packets, to souk-root (kept_locks.h); -1: none
    int ended = -1;    // a closed stream (CriuSession::start); -1: it restores
    // As in CapsuleOptions: a restored job is born in CRIU's groups.
    int cgroup = -1;
    std::vector<int> cgroup_v1;
    std::vector<int> job_ends;  // restore: at most criu_ends_max
    CriuUser user;              // restore: as whom the job's paths are used (criu_user.c)
};
// `command`: words before "swrk". preload: what is loaded into it; -1: nothing.
Result<Pidfd> launch_criu(const std::vector<std::string>& command, int preload,
                          const CriuLaunch& how);

}  // namespace souk
