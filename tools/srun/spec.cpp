// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/spec.hpp"

#include <fcntl.h>
#include <limits.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "kernel/base/cause.hpp"
#include "kernel/base/value_fields.hpp"

namespace souk::tools {
namespace {

// 0, or why this file cannot be executed.
int not_executable(const std::string& path) {
    struct stat st {};
    if (stat(path.c_str(), &st) < 0) return errno;
    if (S_ISDIR(st.st_mode)) return EISDIR;
    if (!S_ISREG(st.st_mode)) return EACCES;
    return faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) < 0 ? errno : 0;
}

std::string absolute(const std::string& path, const std::string& cwd) {
    return path.starts_with('/') ? path : (cwd == "/" ? "" : cwd) + "/" + path;
}

Result<std::string> find_program(const std::string& name, const std::string& cwd) {
    if (name.empty()) return fail(CauseCode::invalid, "the program's name is empty");
    if (name.find('/') != std::string::npos) {
        const std::string path = absolute(name, cwd);
        if (const int error = not_executable(path)) return fail_errno(name, error);
        return path;
    }
    const char* variable = std::getenv("PATH");
    std::string_view all = variable ? variable : "/usr/local/bin:/usr/bin:/bin";
    int refused = 0;
    for (;;) {
        const auto colon = all.find(':');
        const std::string_view directory = all.substr(0, colon);
        const std::string path =
            absolute(std::string(directory.empty() ? "." : directory) + "/" + name, cwd);
        const int error = not_executable(path);
        if (error == 0) return path;
        if (error == EACCES) refused = error;
        if (colon == std::string_view::npos) break;
        all.remove_prefix(colon + 1);
    }
    if (refused) return fail_errno(name, refused);
    return fail(CauseCode::not_found, name + ": no such program in PATH");
}

Result<std::string> working_directory(const std::string& wish) {
    char buffer[PATH_MAX];
    if (wish.empty() && !getcwd(buffer, sizeof buffer))
        return fail_errno("the working directory", errno);
    const std::string path = wish.empty() ? std::string(buffer) : wish;
    if (path[0] != '/') return fail("the working directory cannot be reached from /");
    struct stat st {};
    if (stat(path.c_str(), &st) < 0 || faccessat(AT_FDCWD, path.c_str(), X_OK, AT_EACCESS) < 0)
        return fail_errno("the working directory " + path, errno);
    if (!S_ISDIR(st.st_mode)) return fail_errno("the working directory " + path, ENOTDIR);
    return path;
}

// Tells whether the variable names the siblings of a component. A job that the component submits
// must not have it.
bool is_of_a_component(std::string_view variable) {
    for (const std::string_view name :
         {"SOUK_EXEC=", "SOUK_COMPONENT=", "SOUK_COMPONENTS=", "SOUK_HOSTS=", "SOUK_NAMES="})
        if (variable.starts_with(name)) return true;
    return false;
}

}  // namespace

void set_in_environment(std::vector<std::string>& env, const std::string& name,
                        const std::string& value) {
    const std::string begin = name + "=";
    std::erase_if(env, [&](const std::string& one) { return one.starts_with(begin); });
    env.push_back(begin + value);
}

Result<LaunchSpec> capture_launch(std::span<char*> program) {
    return capture_launch(LaunchWish{{program.begin(), program.end()}, {}, {}});
}

Result<LaunchSpec> capture_launch(const LaunchWish& wish) {
    LaunchSpec spec;
    TRY_ASSIGN(spec.cwd, working_directory(wish.directory));
    TRY_ASSIGN(spec.path, find_program(wish.argv[0], spec.cwd));
    spec.argv = wish.argv;
    for (char** entry = environ; entry && *entry; ++entry)
        if (!is_of_a_component(*entry)) spec.env.emplace_back(*entry);
    for (const auto& [name, value] : wish.environment) set_in_environment(spec.env, name, value);
    size_t bytes = spec.path.size() + spec.cwd.size();
    for (const auto& text : spec.argv) bytes += text.size() + 1;
    for (const auto& text : spec.env) bytes += text.size() + 1;
    if (bytes > spec_bytes_max)
        return fail(CauseCode::invalid, "arguments and environment take " +
                                            std::to_string(bytes / 1024) + " KiB; a job may have " +
                                            std::to_string(spec_bytes_max / 1024));
    spec.umask = umask(0);
    umask(spec.umask);
    for (int32_t resource = 0; resource < RLIM_NLIMITS; ++resource) {
        rlimit limit{};
        if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) == 0)
            spec.rlimits.push_back({resource, limit.rlim_cur, limit.rlim_max});
    }
    spec.uid = geteuid();
    spec.gid = getegid();
    const int n = getgroups(0, nullptr);
    spec.groups.resize(n > 0 ? static_cast<size_t>(n) : 0);
    if (n > 0 && getgroups(n, spec.groups.data()) < 0) return fail_errno("getgroups", errno);
    return spec;
}

}  // namespace souk::tools
