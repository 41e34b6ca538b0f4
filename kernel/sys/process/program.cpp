// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/program.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>

#include "kernel/sys/host/installation.hpp"

namespace souk {
namespace {

// Others could put something else in its place, or have.
bool may_be_changed(const struct stat& st, uint32_t own, bool is_directory) {
    const bool is_owned = st.st_uid == 0 || st.st_uid == own;
    const bool is_shared = (st.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    return !is_owned || (is_shared && !(is_directory && (st.st_mode & S_ISVTX) != 0));
}

}  // namespace

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

Result<std::string> check_program(const std::string& path, uint32_t own) {
    constexpr int links_max = 40;
    if (!path.starts_with('/')) return fail(path + ": not an absolute path");
    struct stat st {};
    std::string at = "/", rest = path;
    for (int links = 0;;) {
        const size_t begin = rest.find_first_not_of('/');
        if (begin == rest.npos) break;
        const size_t end = std::min(rest.size(), rest.find('/', begin));
        const std::string name = rest.substr(begin, end - begin);
        rest.erase(0, end);
        if (::stat(at.c_str(), &st) != 0) return fail_errno(path, errno);
        if (may_be_changed(st, own, true))
            return fail(path + ": others than root may change its directory " + at);
        if (name == ".") continue;
        if (name == "..") {
            at.resize(std::max<size_t>(1, at.rfind('/')));
            continue;
        }
        std::string next = at;
        if (at != "/") next += '/';
        next += name;
        if (::lstat(next.c_str(), &st) != 0) return fail_errno(path, errno);
        if (!S_ISLNK(st.st_mode)) {
            at = next;
            continue;
        }
        char target[PATH_MAX];
        const ssize_t size = ::readlink(next.c_str(), target, sizeof target);
        if (size < 0) return fail_errno(path, errno);
        if (++links > links_max || static_cast<size_t>(size) == sizeof target)
            return fail_errno(path, ELOOP);
        if (st.st_uid != 0 && st.st_uid != own)
            return fail(path + ": others than root may change the link " + next);
        if (target[0] == '/') at = "/";
        rest.insert(0, target, static_cast<size_t>(size));
    }
    if (::stat(at.c_str(), &st) != 0) return fail_errno(path, errno);
    if (!S_ISREG(st.st_mode) || (st.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) == 0)
        return fail(path + ": not an executable file");
    if (may_be_changed(st, own, false))
        return fail(path + ": others than root may change it (chown root, chmod go-w)");
    return at;
}

}  // namespace souk
