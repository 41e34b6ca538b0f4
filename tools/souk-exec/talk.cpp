// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk-exec/talk.hpp"

#include <cstdlib>

#include "kernel/base/cause.hpp"
#include "kernel/base/number.hpp"

namespace souk::tools {

Result<ExecSecret> exec_secret() {
    const char* const given = std::getenv("SOUK_EXEC");
    const std::string_view text = given ? given : "";
    const size_t colon = text.find(':');
    ExecSecret secret;
    const auto port = whole_number<uint16_t>(text.substr(0, colon));
    if (port && colon != std::string_view::npos)
        secret = {*port, std::string(text.substr(colon + 1))};
    if (secret.port > 0 && secret.text.size() == 64) return secret;
    return fail(CauseCode::not_possible,
                "this is no component of a job that was begun with srun --exec or --mpi");
}

std::string frame_of(Say say, std::string_view bytes) {
    const auto n = static_cast<uint32_t>(bytes.size());
    std::string frame = {static_cast<char>(say), static_cast<char>(n >> 24),
                         static_cast<char>(n >> 16), static_cast<char>(n >> 8),
                         static_cast<char>(n)};
    frame += bytes;
    return frame;
}

Result<bool> Frames::next(Frame& frame) {
    constexpr size_t head = 5;
    if (bytes_.size() < head) return false;
    size_t n = 0;
    for (size_t i = 1; i < head; ++i) n = n << 8 | static_cast<unsigned char>(bytes_[i]);
    if (n > frame_bytes_max) return fail("a frame is too long");
    if (bytes_.size() < head + n) return false;
    frame = {static_cast<Say>(bytes_[0]), bytes_.substr(head, n)};
    bytes_.erase(0, head + n);
    return true;
}

}  // namespace souk::tools
