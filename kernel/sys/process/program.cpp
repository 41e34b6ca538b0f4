// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/program.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>

#include "kernel/sys/host/installation.hpp"

namespace souk {

Result<Pidfd> start_program(const std::string& name, const std::vector<std::string>& words,
                            const std::vector<int>& fds, bool session) {
    constexpr int first = 3;
    std::vector<std::string> all = {program_path(name)};
    all.insert(all.end(), words.begin(), words.end());
    std::vector<char*> argv;
    argv.reserve(all.size() + 1);
    for (std::string& word : all) argv.push_back(word.data());
    argv.push_back(nullptr);
    std::vector<Fd> high;  // out of the way of the numbers that they get
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
    for (size_t i = 0; i < fds.size(); ++i) {
        high.emplace_back(::fcntl(fds[i], F_DUPFD_CLOEXEC, first + static_cast<int>(fds.size())));
        ::posix_spawn_file_actions_adddup2(&actions, high.back().get(),
                                           first + static_cast<int>(i));
    }
    sigset_t none;
    sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setflags(&attributes, static_cast<short>(POSIX_SPAWN_SETSIGMASK |
                                                               (session ? POSIX_SPAWN_SETSID : 0)));
    char path[] = "PATH=/usr/bin:/bin";
    char* environment[] = {path, nullptr};
    pid_t pid = 0;
    const int code = ::posix_spawn(&pid, argv[0], &actions, &attributes, argv.data(), environment);
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
    if (code != 0) return fail_errno("run " + all[0], code);
    return Pidfd::open(pid);
}

}  // namespace souk
