// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/output_file.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "agentd/core/messages.hpp"

namespace souk::tools {

OutputSigns output_signs_of(const SrunOptions& options, const JobId& id,
                            std::optional<uint32_t> index) {
    const passwd* const user = ::getpwuid(::getuid());
    return {id, index, options.array_id.seq > 0 ? options.array_id : id, options.name,
            user ? user->pw_name : std::to_string(::getuid())};
}

Result<Fd> open_output_file(const std::string& pattern, const OutputSigns& signs) {
    const std::string name = output_file_name(pattern, signs);
    Fd fd(::open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (!fd) return fail_errno(name, errno);
    return fd;
}

Status try_output_file(const std::string& pattern, const OutputSigns& signs) {
    const std::string name = output_file_name(pattern, signs);
    struct stat st {};
    if (::stat(name.c_str(), &st) != 0 || !S_ISFIFO(st.st_mode)) {
        TRY(open_output_file(pattern, signs));
        return {};
    }
    if (::access(name.c_str(), W_OK) != 0) return fail_errno(name, errno);
    return {};
}

Status output_can_be_written(const std::string& pattern) {
    const size_t slash = pattern.rfind('/');
    const std::string directory = slash == 0                   ? "/"
                                  : slash == std::string::npos ? "."
                                                               : pattern.substr(0, slash);
    const bool named = pattern.find('%') == std::string::npos;
    struct stat st {};
    if (directory.find('%') != std::string::npos) return {};
    if (named && ::stat(pattern.c_str(), &st) == 0) {
        if (S_ISDIR(st.st_mode)) return fail_errno(pattern, EISDIR);
        if (::faccessat(AT_FDCWD, pattern.c_str(), W_OK, AT_EACCESS) == 0) return {};
    } else if (::faccessat(AT_FDCWD, directory.c_str(), W_OK | X_OK, AT_EACCESS) == 0) {
        return {};
    }
    return fail_errno(pattern, errno);
}

}  // namespace souk::tools
