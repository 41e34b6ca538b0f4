// SPDX-License-Identifier: GPL-2.0-or-later
// The words of souk-exec to souk-exec in another component of the same job, over a TCP connection
// in the job's own network (wire.hpp). Both prove by TLS that they know the job's secret
// (SOUK_EXEC=PORT:SECRET in the environment of each component). Then frames go both ways.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::tools {

struct ExecSecret {
    uint16_t port = 0;
    std::string text;  // 64 hexadecimal digits
};
// Reads the secret from the environment. Fails if there is none: this is no component of such a
// job.
Result<ExecSecret> exec_secret();

inline constexpr size_t frame_bytes_max = 1 << 20;

enum class Say : uint8_t {
    run = 1,  // directory and words, parted by zero bytes: first
    input,    // of its stdin; empty: the end
    signal,   // its number as text
    out,
    err,
    ended,    // exit status as text: last
    refused,  // why, last
};
struct Frame {
    Say say{};
    std::string bytes;
};

// Returns the frame as it is sent.
std::string frame_of(Say say, std::string_view bytes);

// Frames of bytes that come as they like.
class Frames {
  public:
    // The caller adds here what has come.
    std::string& room() { return bytes_; }
    // The next whole one. Errors: it is too long.
    Result<bool> next(Frame& frame);

  private:
    std::string bytes_;
};

}  // namespace souk::tools
