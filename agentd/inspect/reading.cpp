// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/inspect/reading.hpp"

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "kernel/sys/net/packets.hpp"

namespace souk::inspect {
namespace {

constexpr size_t core_bytes_max = 16 << 20, head_bytes_max = 64 << 10;
constexpr size_t files_bytes_max = 256 << 20, ids_bytes_max = 64 << 10;

// Something to read, or the end.
void wait_to_read(int socket) {
    pollfd p{socket, POLLIN, 0};
    while (::poll(&p, 1, -1) < 0 && errno == EINTR) continue;
}

Result<std::string> first_bytes(int file) {
    std::string head(head_bytes_max, '\0');
    const ssize_t n = ::pread(file, head.data(), head.size(), 0);
    if (n < 0) return fail_errno("read", errno);
    head.resize(static_cast<size_t>(n));
    return head;
}

Result<Answer> answer_of(FileKind kind, int file) {
    switch (kind) {
        case FileKind::core: {
            TRY_ASSIGN(const std::string bytes, bytes_of(file, core_bytes_max));
            return parse_core(bytes);
        }
        case FileKind::ghost: {
            TRY_ASSIGN(const std::string bytes, first_bytes(file));
            TRY_ASSIGN(const uint32_t mode, parse_ghost(bytes));
            return GhostMode{mode};
        }
        case FileKind::files: {
            TRY_ASSIGN(const std::string bytes, bytes_of(file, files_bytes_max));
            return parse_entry_kinds(bytes);
        }
        case FileKind::fs: {
            TRY_ASSIGN(const std::string bytes, bytes_of(file, ids_bytes_max));
            return parse_fs(bytes);
        }
        case FileKind::ids:
        case FileKind::inventory: break;
    }
    TRY_ASSIGN(const std::string bytes, bytes_of(file, ids_bytes_max));
    return kind == FileKind::ids ? parse_ids(bytes) : parse_inventory(bytes);
}

}  // namespace

Answer read_file_of_image(FileKind kind, int file) {
    auto answer = answer_of(kind, file);
    return answer ? *answer : Answer(Refusal{answer.error().message});
}

Status read_image(const Fd& socket) {
    for (;;) {
        wait_to_read(socket.get());
        TRY_ASSIGN(const auto packet, receive_packet(socket.get(), question_bytes_max));
        if (!packet) continue;
        TRY_ASSIGN(const FileKind kind, parse_question(packet->bytes));
        if (!packet->descriptor) return fail("a question without a file");
        TRY(send_packet(socket.get(), pack(read_file_of_image(kind, packet->descriptor.get()))));
    }
}

void start_readers(Fd control, Status (*confine)()) {
    ::signal(SIGCHLD, SIG_IGN);  // nobody waits for them
    for (;;) {
        wait_to_read(control.get());
        auto packet = receive_packet(control.get(), question_bytes_max);
        if (!packet) return;
        if (!*packet || !(*packet)->descriptor) continue;
        const pid_t pid = ::fork();
        if (pid != 0) continue;
        control.reset();
        if (confine()) (void)read_image((*packet)->descriptor);
        ::_exit(0);
    }
}

}  // namespace souk::inspect
