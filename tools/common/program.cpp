// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/program.hpp"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/host/installation.hpp"

namespace souk::tools {
namespace {

constexpr size_t output_bytes_max = 16 << 20;

Result<std::string> text_in(int fd) {
    return read_file(AT_FDCWD, "/proc/self/fd/" + std::to_string(fd), output_bytes_max);
}

}  // namespace

Result<std::string> output_of_sibling(const std::string& name, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program_path(name));
    std::vector<char*> argv;
    for (std::string& word : arguments) argv.push_back(word.data());
    argv.push_back(nullptr);
    const Fd out(::memfd_create("out", MFD_CLOEXEC)),
        trouble(::memfd_create("trouble", MFD_CLOEXEC));
    if (!out || !trouble) return fail_errno("memfd_create", errno);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, out.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&files, trouble.get(), STDERR_FILENO);
    pid_t pid = 0;
    const int error = posix_spawn(&pid, argv[0], &files, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) return fail_errno(arguments[0], error);
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return fail_errno("wait for " + name, errno);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text_in(out.get());
    TRY_ASSIGN(std::string why, text_in(trouble.get()));
    why = why.substr(0, why.find('\n'));
    if (why.starts_with(name + ": ")) why = why.substr(name.size() + 2);
    return fail(why.empty() ? name + " failed" : why);
}

}  // namespace souk::tools
