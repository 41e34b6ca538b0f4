// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/process/capsule_client.hpp"

#include <cerrno>
#include <memory>

#include "kernel/sys/net/descriptors.hpp"

namespace souk {
namespace {
constexpr size_t queue_bytes_max = 1 << 20;

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
        TRY_ASSIGN(const bool sent, send_descriptors(fd_.get(), record, fds));
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
        TRY_ASSIGN(const bool sent, send_descriptors(fd_.get(), queue_.front().bytes, fds));
        if (!sent) return {};
        queued_bytes_ -= queue_.front().bytes.size();
        queue_.pop_front();
    }
    return {};
}

Status CapsuleClient::start(const LaunchSpec& spec, int cgroup, int filter, bool hold) {
    TRY_ASSIGN(const std::string text, encode_spec(spec));
    TRY_ASSIGN(const Fd file, memory_file("souk-spec", text));
    return send(SOUK_START, hold, filter >= 0, 0, 0, {}, file.get(), cgroup, filter);
}

Result<std::vector<CapsuleClient::Event>> CapsuleClient::on_readable(size_t records_max) {
    std::vector<Event> events;
    const auto buffer = std::make_unique_for_overwrite<char[]>(sizeof(souk_msg) + SOUK_DATA_MAX);
    while (events.size() < records_max) {
        auto received =
            receive_descriptors(fd_.get(), {buffer.get(), sizeof(souk_msg) + SOUK_DATA_MAX});
        // souk-init ended with a message of ours unread. Said once, before what it had sent: that
        // comes now.
        if (!received && received.error().code == ECONNRESET) continue;
        if (received && !*received) break;
        Event event;
        if (!received || (*received)->bytes == 0) {
            event.kind = InitEventKind::closed;
            events.push_back(std::move(event));
            break;
        }
        TRY_ASSIGN(static_cast<InitEvent&>(event),
                   decode_init_event({buffer.get(), (*received)->bytes}));
        event.fds = std::move((*received)->descriptors);
        events.push_back(std::move(event));
    }
    return events;
}

}  // namespace souk
