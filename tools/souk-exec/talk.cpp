// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk-exec/talk.hpp"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "kernel/base/cause.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/store/sha256.hpp"

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

// As HMAC does: the secret within and without.
std::string proof_of(const ExecSecret& secret, std::string_view nonce) {
    const std::string inner = sha256_of_parts({"souk-exec within", secret.text, nonce});
    return sha256_of_parts({"souk-exec without", secret.text, inner});
}

bool same_proof(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    unsigned differ = 0;
    for (size_t i = 0; i < a.size(); ++i)
        differ |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
    return differ == 0;
}

Status send_all(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t n = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail_errno("send", errno);
        bytes.remove_prefix(static_cast<size_t>(n));
    }
    return {};
}

Status send_frame(int fd, Say say, std::string_view bytes) {
    const auto n = static_cast<uint32_t>(bytes.size());
    std::string frame = {static_cast<char>(say), static_cast<char>(n >> 24),
                         static_cast<char>(n >> 16), static_cast<char>(n >> 8),
                         static_cast<char>(n)};
    frame += bytes;
    return send_all(fd, frame);
}

Result<std::string> receive(int fd, size_t n) {
    std::string bytes(n, '\0');
    size_t have = 0;
    while (have < n) {
        const ssize_t got = ::read(fd, bytes.data() + have, n - have);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return fail_errno("receive", errno);
        if (got == 0) return fail("the connection has ended");
        have += static_cast<size_t>(got);
    }
    return bytes;
}

Result<bool> Frames::read(int fd) {
    char buffer[65'536];
    const ssize_t n = ::read(fd, buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    if (n < 0) return fail_errno("receive", errno);
    bytes_.append(buffer, static_cast<size_t>(n));
    return n > 0;
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
