// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/output_file.hpp"

#include <fcntl.h>

#include <cerrno>

#include "agentd/core/messages.hpp"

namespace souk::tools {

Result<Fd> open_output_file(const std::string& pattern, const JobId& id,
                            std::optional<uint32_t> index) {
    const std::string name = output_file_name(pattern, id, index);
    Fd fd(::open(name.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (!fd) return fail_errno(name, errno);
    return fd;
}

}  // namespace souk::tools
