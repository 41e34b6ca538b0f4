// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/job_log.hpp"

#include <time.h>

#include <cstdio>

#include "kernel/base/text.hpp"

namespace souk::tools {

Status JobLog::open(const std::string& file) {
    if (file.empty()) return {};
    TRY_ASSIGN(fd_, open_at(AT_FDCWD, file, O_WRONLY | O_CREAT | O_APPEND, 0666));
    return {};
}

void JobLog::line(const std::string& text) const {
    if (!fd_) return;
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    tm local{};
    char stamp[48];
    ::localtime_r(&now.tv_sec, &local);
    const size_t n = ::strftime(stamp, sizeof stamp, "%Y-%m-%d %H:%M:%S", &local);
    std::snprintf(stamp + n, sizeof stamp - n, ".%03d ", static_cast<int>(now.tv_nsec / 1'000'000));
    const std::string out = stamp + blank_controls(text) + "\n";
    if (::write(fd_.get(), out.data(), out.size()) < 0) return;
}

}  // namespace souk::tools
