// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/streams.hpp"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace souk::tools {

void OutputQueue::begin(const uint64_t (&offset)[2]) {
    for (const size_t i : {0, 1}) received_[i] = written_[i] = offset[i];
}

uint64_t OutputQueue::take(wire::Stream stream, uint64_t offset, std::string_view data) {
    uint64_t& received = received_[index(stream)];
    const uint64_t end = offset + data.size();
    if (end <= received) return 0;
    const uint64_t missing = offset > received ? offset - received : 0;
    if (offset < received) data.remove_prefix(received - offset);
    received = end;
    if (closed_[index(stream)]) {
        written_[index(stream)] = end;
        return missing;
    }
    written_[index(stream)] += missing;
    pieces_.push_back({stream, std::string(data)});
    bytes_ += data.size();
    return missing;
}

int OutputQueue::fd() const {
    return pieces_.front().stream == wire::Stream::out ? STDOUT_FILENO : STDERR_FILENO;
}

Status OutputQueue::write_some() {
    Piece& piece = pieces_.front();
    // A regular file takes all; a pipe or terminal that polls writable takes PIPE_BUF bytes without
    // blocking.
    struct stat st {};
    const bool whole = fstat(fd(), &st) == 0 && S_ISREG(st.st_mode);
    const size_t left = piece.data.size() - piece.done;
    const ssize_t n = write(fd(), piece.data.data() + piece.done,
                            whole ? left : std::min<size_t>(left, PIPE_BUF));
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return {};
    if (n < 0) return fail_errno(piece.stream == wire::Stream::out ? "stdout" : "stderr", errno);
    if (!whole && isatty(fd()))
        screen_.wrote(std::string_view(piece.data).substr(piece.done, static_cast<size_t>(n)));
    piece.done += static_cast<size_t>(n);
    bytes_ -= static_cast<size_t>(n);
    written_[index(piece.stream)] += static_cast<uint64_t>(n);
    if (piece.done == piece.data.size()) pieces_.pop_front();
    return {};
}

void OutputQueue::close(wire::Stream stream) {
    closed_[index(stream)] = true;
    written_[index(stream)] = received_[index(stream)];
    std::erase_if(pieces_, [&](const Piece& piece) {
        if (piece.stream != stream) return false;
        bytes_ -= piece.data.size() - piece.done;
        return true;
    });
}

uint64_t InputBuffer::add(std::string_view data) {
    const uint64_t offset = end();
    data_ += data;
    return offset;
}

void InputBuffer::acknowledge(uint64_t offset) {
    if (offset <= base_) return;
    data_.erase(0, std::min<uint64_t>(offset - base_, data_.size()));
    base_ = offset;
}

void InputBuffer::resume(uint64_t offset, bool first) {
    if (first)
        base_ = offset;
    else
        acknowledge(offset);
}

}  // namespace souk::tools
