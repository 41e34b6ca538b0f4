// SPDX-License-Identifier: GPL-2.0-or-later
// What souk-exec says to souk-exec in another component of the same job, over a TCP connection in
// the job's own network. The one that listens sends a nonce; who connects proves that it knows the
// job's secret (SOUK_EXEC=PORT:SECRET in the environment of each component), without saying it.
// Then frames go both ways. The words themselves go in the clear, as all that a job sends.
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
// Of the environment. Errors: there is none, as this is no component of such a job.
Result<ExecSecret> exec_secret();

inline constexpr size_t nonce_bytes = 32, proof_bytes = 64, frame_bytes_max = 1 << 20;
std::string proof_of(const ExecSecret& secret, std::string_view nonce);
bool same_proof(std::string_view a, std::string_view b);  // takes as long whatever differs

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

// All of it. Errors: the connection broke.
Status send_all(int fd, std::string_view bytes);
Status send_frame(int fd, Say say, std::string_view bytes);
// Exactly n bytes; an error at the end of the connection.
Result<std::string> receive(int fd, size_t n);

// Frames of bytes that come as they like.
class Frames {
  public:
    // Reads what is there. False: the connection has ended.
    Result<bool> read(int fd);
    // The next whole one. Errors: it is too long.
    Result<bool> next(Frame& frame);

  private:
    std::string bytes_;
};

}  // namespace souk::tools
