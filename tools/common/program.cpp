// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/program.hpp"

#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>

#include "kernel/base/cause.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/host/installation.hpp"
#include "tools/common/table.hpp"

namespace souk::tools {
namespace {

constexpr size_t output_bytes_max = 16 << 20;

Result<std::string> text_in(int fd) {
    return read_file(AT_FDCWD, "/proc/self/fd/" + std::to_string(fd), output_bytes_max);
}

// The environment, with which a program says its errors as complain() does in JSON.
std::vector<char*> errors_in_json() {
    static char form[] = "SOUK_ERRORS=json";
    std::vector<char*> all;
    for (char** one = environ; *one; ++one)
        if (!std::string_view(*one).starts_with("SOUK_ERRORS=")) all.push_back(*one);
    all.push_back(form);
    all.push_back(nullptr);
    return all;
}

// Words that a program says otherwise, as when it is killed or the loader fails, have no code.
Error error_in(const std::string& line) {
    const Json said = parse_json(line);
    if (!said.is_object() || !said.contains("error")) return Error{0, line};
    return Error{0, field(said["error"], "message"), cause_named(field(said["error"], "code"))};
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
    const int error =
        posix_spawn(&pid, argv[0], &files, nullptr, argv.data(), errors_in_json().data());
    posix_spawn_file_actions_destroy(&files);
    if (error != 0) return fail_errno(arguments[0], error);
    int status = 0;
    while (::waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) return fail_errno("wait for " + name, errno);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return text_in(out.get());
    TRY_ASSIGN(std::string why, text_in(trouble.get()));
    why = why.substr(0, why.find('\n'));
    return why.empty() ? fail(name + " failed") : tl::unexpected(error_in(why));
}

}  // namespace souk::tools
