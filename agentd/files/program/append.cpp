// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/program/append.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

#include "kernel/sys/host/fd.hpp"

namespace souk::files {
namespace {

constexpr int reader_limit_ms = 10'000;  // of a FIFO that is full
constexpr size_t head_bytes = sizeof(uint64_t) + 1;
constexpr size_t packet_bytes_max = 64 * 1024 + head_bytes;  // a frame of output

// Opens the file in the job's directory; none if there is no name. The user may name a FIFO or a
// terminal: neither becomes this process's own, nor does it wait for a reader.
Result<Fd> open_output(const std::string& name) {
    if (name.empty()) return Fd();
    constexpr int how = O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    Fd fd(::open(name.c_str(), how, 0666));
    if (!fd && errno == ENXIO) return fail(name + ": nobody reads this FIFO");
    if (!fd) return fail_errno(name, errno);
    return fd;
}

struct Outputs {
    Fd out, err;
    bool same = false;  // stderr goes where stdout goes

    int of(int stream) const { return stream == 0 || same ? out.get() : err.get(); }
};

Result<Outputs> open_all(const std::string& directory, const std::string& out,
                         const std::string& err) {
    if (::chdir(directory.c_str()) != 0) return fail_errno(directory, errno);
    Outputs files;
    files.same = err.empty();
    TRY_ASSIGN(files.out, open_output(out));
    TRY_ASSIGN(files.err, open_output(err));
    return files;
}

void answer(int socket, const std::string& packet) {
    (void)::send(socket, packet.data(), packet.size(), MSG_NOSIGNAL);  // nobody listens: the end
}

// Notes how far each stream is.
struct Note {
    int fd, socket;
    uint64_t written[2] = {0, 0};

    Status take() {
        while (::flock(fd, LOCK_EX) != 0)
            if (errno != EINTR) return fail_errno("lock the note", errno);
        if (::pread(fd, written, sizeof written, 0) != sizeof written) written[0] = written[1] = 0;
        return {};
    }
    Status set(int stream, uint64_t end) {
        written[stream] = end;
        if (::pwrite(fd, written, sizeof written, 0) != sizeof written)
            return fail_errno("note how far it is", errno);
        return {};
    }
    void tell() const {
        std::string packet = "w";
        packet.append(reinterpret_cast<const char*>(written), sizeof written);
        answer(socket, packet);
    }
};

// Tells whether the file takes more before long, and agentd is still there. Sets errno if not.
bool takes_more(int to, int socket) {
    pollfd both[2] = {{to, POLLOUT, 0}, {socket, POLLRDHUP, 0}};
    const int some = ::poll(both, 2, reader_limit_ms);
    if (some < 0) return errno == EINTR;
    errno = both[1].revents != 0 ? EPIPE : ETIMEDOUT;
    return both[0].revents != 0;
}

// A disk that is full may take a part, and so may a FIFO: the note says so, and the next try goes
// on behind it.
Status write_noted(int to, std::string_view left, Note& note, int stream, uint64_t end) {
    while (!left.empty()) {
        const ssize_t n = ::write(to, left.data(), left.size());
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN && takes_more(to, note.socket)) continue;
        if (n < 0) {
            const int why = errno;
            TRY(note.set(stream, end - left.size()));
            return fail_errno("its output file", why);
        }
        left.remove_prefix(static_cast<size_t>(n));
    }
    return {};
}

Status copy(int socket, Note& note, const Outputs& files) {
    std::string packet(packet_bytes_max, '\0');
    for (;;) {
        const ssize_t n = ::recv(socket, packet.data(), packet.size(), 0);
        if (n < 0 && errno == EINTR) continue;
        if (n < static_cast<ssize_t>(head_bytes)) return {};
        uint64_t end = 0;
        std::memcpy(&end, packet.data(), sizeof end);
        const int stream = packet[sizeof end] == 1 ? 0 : 1;
        const int to = files.of(stream);
        const auto bytes = std::string_view(packet).substr(0, static_cast<size_t>(n));
        if (to >= 0) TRY(write_noted(to, bytes.substr(head_bytes), note, stream, end));
        TRY(note.set(stream, end));
        note.tell();
    }
}

Status append_all(int socket, int note_fd, const std::string& directory, const std::string& out,
                  const std::string& err) {
    ::signal(SIGPIPE, SIG_IGN);  // a FIFO's reader may leave
    Note note{note_fd, socket};
    TRY(note.take());
    TRY_ASSIGN(const Outputs files, open_all(directory, out, err));
    note.tell();
    return copy(socket, note, files);
}

}  // namespace

Status append_output(int socket, int note, const std::string& directory, const std::string& out,
                     const std::string& err) {
    Status done = append_all(socket, note, directory, out, err);
    if (!done) answer(socket, "e" + done.error().message);
    return done;
}

}  // namespace souk::files
