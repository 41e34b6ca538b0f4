// SPDX-License-Identifier: GPL-2.0-or-later
// A trace as a file, text or gzip, whole, cut off and damaged: it reads or it is refused in one
// line that begins with its name; what is no gzip reads as the parser alone reads it.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "kernel/base/check.hpp"
#include "market/sim/files.hpp"

using namespace souk;
using namespace souk::sim;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    static const int fd = memfd_create("trace", MFD_CLOEXEC);
    static const std::string path = "/proc/self/fd/" + std::to_string(fd);
    MUST(ftruncate(fd, 0) == 0 && pwrite(fd, data, size, 0) == static_cast<ssize_t>(size));
    const Result<SwfTrace> trace = read_swf(path);
    const Result<std::string> text = read_text(path);
    MUST(trace || (trace.error().message.starts_with(path) &&
                   trace.error().message.find('\n') == std::string::npos));
    MUST(!trace || text);
    if (!text) return 0;
    const Result<SwfTrace> parsed = parse_swf(*text);
    MUST(parsed.has_value() == trace.has_value());
    MUST(parsed ? parsed->jobs.size() == trace->jobs.size()
                : trace.error().message == path + ": " + parsed.error().message);
    return 0;
}
