// SPDX-License-Identifier: GPL-2.0-or-later
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "kernel/sys/host/installation.hpp"
#include "tools/souk/verbs.hpp"

namespace souk {

int cmd_demo(const DemoOptions& options) {
    const std::string story = program_path("souk-demo"),
                      pause = std::to_string(options.pause.seconds());
    if (options.fast)
        ::execl(story.c_str(), story.c_str(), "--fast", static_cast<char*>(nullptr));
    else
        ::execl(story.c_str(), story.c_str(), "--pause", pause.c_str(),
                static_cast<char*>(nullptr));
    return complain(story + ": " + std::strerror(errno));
}

}  // namespace souk
