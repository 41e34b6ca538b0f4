// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/files_pump.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "kernel/sys/net/socket.hpp"

namespace souk {
namespace {

constexpr size_t piece_bytes = 256 * 1024;

}  // namespace

FilesPump::FilesPump(Loop& loop, wire::Channel& channel, Fd local, FilesCount* count,
                     std::function<void(const std::string& why)> ended)
    : loop_(loop),
      channel_(channel),
      local_(std::move(local)),
      count_(count),
      ended_(std::move(ended)) {
    end_when_dead(channel_.fd(), 10, 5, 30);  // nothing else is said when no file is used
    (void)::fcntl(local_.get(), F_SETFL, O_NONBLOCK);
    auto watch = loop_.watch(local_.get(), POLLIN, [this](short events) { local_ready(events); });
    if (watch)
        local_watch_ = std::move(*watch);
    else
        end(watch.error().message);
}

// After the caller's step.
void FilesPump::end(const std::string& why) {
    if (std::exchange(over_, true)) return;
    local_watch_.close();
    channel_watch_.close();
    end_ = loop_.after(Nanos{}, [ended = ended_, why] { ended(why); });
}

void FilesPump::watch_local() {
    if (over_) return;
    const bool reads = out_.empty(), writes = !in_.empty();
    local_watch_.set_events(static_cast<short>((reads ? POLLIN : 0) | (writes ? POLLOUT : 0)));
}

void FilesPump::local_ready(short events) {
    if ((events & POLLOUT) != 0) write_local();
    if (!over_ && out_.empty() && (events & (POLLIN | POLLHUP | POLLERR)) != 0) read_local();
    watch_local();
}

void FilesPump::read_local() {
    out_.resize(piece_bytes);
    const ssize_t n = ::recv(local_.get(), out_.data(), out_.size(), MSG_DONTWAIT);
    const int code = errno;
    out_.resize(n < 0 ? 0 : static_cast<size_t>(n));
    if (n > 0) return send();
    if (n < 0 && (code == EAGAIN || code == EINTR)) return;
    end("the other end of the local socket is gone");
}

void FilesPump::send() {
    while (out_sent_ < out_.size()) {
        const auto taken = channel_.send_raw(ByteView(out_).subspan(out_sent_));
        if (!taken) return end(taken.error().message);
        out_sent_ += *taken;
        if (count_) count_->out_bytes += *taken;
        if (*taken > 0) continue;
        if (channel_watch_) return channel_watch_.set_events(POLLOUT);
        auto watch = loop_.watch(channel_.fd(), POLLOUT, [this](short) {
            send();
            watch_local();
        });
        if (!watch) return end(watch.error().message);
        channel_watch_ = std::move(*watch);
        return;
    }
    out_.clear();
    out_sent_ = 0;
    if (channel_watch_) channel_watch_.set_events(0);
}

void FilesPump::take(ByteView bytes) {
    if (over_) return;
    if (count_) count_->in_bytes += bytes.size();
    in_.insert(in_.end(), bytes.begin(), bytes.end());
    write_local();
    if (!in_.empty()) channel_.pause_reading();
    watch_local();
}

void FilesPump::write_local() {
    while (in_sent_ < in_.size()) {
        const ssize_t n = ::send(local_.get(), in_.data() + in_sent_, in_.size() - in_sent_,
                                 MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n < 0) return end("the other end of the local socket is gone");
        in_sent_ += static_cast<size_t>(n);
    }
    in_.clear();
    in_sent_ = 0;
    channel_.resume_reading();
}

std::string group_words(const std::vector<uint32_t>& groups) {
    std::string words;
    for (const uint32_t group : groups) words += (words.empty() ? "" : ",") + std::to_string(group);
    return words;
}

}  // namespace souk
