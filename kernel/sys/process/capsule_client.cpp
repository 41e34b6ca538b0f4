// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/capsule_client.hpp"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace souk {
namespace {
constexpr size_t queue_bytes_max = 1 << 20;

// One record with its fds. False if it did not fit (EAGAIN).
Result<bool> send_one(int socket, std::string_view record, const std::vector<int>& fds) {
    iovec part{const_cast<char*>(record.data()), record.size()};
    msghdr header{};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    const size_t bytes = fds.size() * sizeof(int);
    alignas(8) char control[CMSG_SPACE(SOUK_FDS_MAX * sizeof(int))] = {};
    if (!fds.empty()) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(bytes);
        cmsghdr* c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(bytes);
        std::memcpy(CMSG_DATA(c), fds.data(), bytes);
    }
    while (::sendmsg(socket, &header, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) {
        if (errno == EINTR) continue;
        if (errno == EAGAIN) return false;
        return fail_errno("send to souk-init", errno);
    }
    return true;
}
}  // namespace

CapsuleClient::CapsuleClient(Fd connection) : fd_(std::move(connection)) {}

Status CapsuleClient::send(souk_type type, uint32_t stream, int32_t value, uint64_t offset,
                           uint64_t limit, std::string_view bytes, int fd, int second_fd,
                           int third_fd) {
    std::vector<int> fds;
    for (const int one : {fd, second_fd, third_fd})
        if (one >= 0) fds.push_back(one);
    std::string record = encode_init_message(type, stream, value, offset, limit, bytes);
    if (queue_.empty()) {
        TRY_ASSIGN(const bool sent, send_one(fd_.get(), record, fds));
        if (sent) return {};
    }
    if (queued_bytes_ + record.size() > queue_bytes_max)
        return fail_errno("send to souk-init: it takes nothing", EAGAIN);
    std::vector<Fd> kept;
    for (const int one : fds) {
        TRY_ASSIGN(Fd copy, duplicate(one));
        kept.push_back(std::move(copy));
    }
    queued_bytes_ += record.size();
    queue_.push_back({std::move(record), std::move(kept)});
    return {};
}

Status CapsuleClient::on_writable() {
    while (!queue_.empty()) {
        std::vector<int> fds;
        for (const Fd& fd : queue_.front().fds) fds.push_back(fd.get());
        TRY_ASSIGN(const bool sent, send_one(fd_.get(), queue_.front().bytes, fds));
        if (!sent) return {};
        queued_bytes_ -= queue_.front().bytes.size();
        queue_.pop_front();
    }
    return {};
}

Status CapsuleClient::start(const LaunchSpec& spec, int cgroup, int filter) {
    TRY_ASSIGN(const std::string text, encode_spec(spec));
    const Fd file(::memfd_create("souk-spec", MFD_CLOEXEC));
    if (!file) return fail_errno("memfd_create", errno);
    TRY(write_all(file.get(), text, "write the launch specification"));
    return send(SOUK_START, 0, filter >= 0, 0, 0, {}, file.get(), cgroup, filter);
}

Result<std::vector<CapsuleClient::Event>> CapsuleClient::on_readable(size_t records_max) {
    std::vector<Event> events;
    const auto buffer = std::make_unique_for_overwrite<char[]>(sizeof(souk_msg) + SOUK_DATA_MAX);
    while (events.size() < records_max) {
        iovec part{buffer.get(), sizeof(souk_msg) + SOUK_DATA_MAX};
        msghdr header{};
        header.msg_iov = &part;
        header.msg_iovlen = 1;
        alignas(8) char control[CMSG_SPACE(SOUK_FDS_MAX * sizeof(int))] = {};
        header.msg_control = control;
        header.msg_controllen = sizeof control;
        const ssize_t n = ::recvmsg(fd_.get(), &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        // souk-init ended with a message of ours unread. Said once, before what it had sent: that
        // comes now.
        if (n < 0 && errno == ECONNRESET) continue;
        std::vector<Fd> fds;
        for (cmsghdr* c = n > 0 ? CMSG_FIRSTHDR(&header) : nullptr; c;
             c = CMSG_NXTHDR(&header, c)) {
            if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
            int raw[SOUK_FDS_MAX];
            const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
            std::memcpy(raw, CMSG_DATA(c), count * sizeof(int));
            for (size_t i = 0; i < count; ++i) fds.emplace_back(raw[i]);
        }
        Event event;
        if (n <= 0) {
            event.kind = InitEventKind::closed;
            events.push_back(std::move(event));
            break;
        }
        TRY_ASSIGN(static_cast<InitEvent&>(event),
                   decode_init_event({buffer.get(), static_cast<size_t>(n)}));
        event.fds = std::move(fds);
        events.push_back(std::move(event));
    }
    return events;
}

}  // namespace souk
