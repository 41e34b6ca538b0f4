// SPDX-License-Identifier: GPL-2.0-or-later
// The job's pipes or terminal.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "agentd/init/init.hpp"

namespace souk::init {
namespace {
void end_of(Output* o) {
    o->eof = true;
    if (o->fd >= 0 && o->fd != g.master) close(o->fd);
    o->fd = -1;
}

uint64_t inode_of(int fd) {
    struct stat st;
    return fstat(fd, &st) == 0 ? st.st_ino : 0;
}
}  // namespace

const char* make_pipes() {
    int ends[3][2];
    for (int i = 0; i < 3; ++i)
        if (pipe2(ends[i], O_CLOEXEC) != 0) return "make pipes";
    // The job may set O_NONBLOCK on its own description of the pipe; what we keep to read unread
    // input is another one.
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", ends[0][0]);
    g.in.kept_read = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (g.in.kept_read < 0) return "open stdin again";
    g.in.fd = ends[0][1];
    g.out[0].fd = ends[1][0];
    g.out[1].fd = ends[2][0];
    g.job_end[0] = ends[0][0];
    g.job_end[1] = ends[1][1];
    g.job_end[2] = ends[2][1];
    for (int i = 0; i < 3; ++i) g.pipe_inode[i] = inode_of(g.job_end[i]);
    set_nonblocking(g.in.fd);
    for (Output& o : g.out) set_nonblocking(o.fd);
    g.tty = false;
    return nullptr;
}

const char* make_terminal(int rows, int cols) {
    int zero = 0;
    g.master = open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK);
    if (g.master < 0) return "open /dev/ptmx";
    if (ioctl(g.master, TIOCSPTLCK, &zero) != 0) return "unlock the terminal";
    g.slave = ioctl(g.master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (g.slave < 0) return "open the terminal";
    struct winsize size = {};
    size.ws_row = static_cast<unsigned short>(rows);
    size.ws_col = static_cast<unsigned short>(cols);
    ioctl(g.master, TIOCSWINSZ, &size);
    struct stat st;
    if (fstat(g.slave, &st) != 0) return "look at the terminal";
    g.tty_rdev = st.st_rdev;
    g.tty_dev = st.st_dev;
    fchmod(g.slave, 0620);
    g.in.fd = g.out[0].fd = g.master;
    g.out[1].eof = true;  // a terminal has one output
    g.tty = true;
    return nullptr;
}

void close_job_ends() {
    for (int& fd : g.job_end) {
        if (fd >= 0) close(fd);
        fd = -1;
    }
}

void read_output(Output* o, bool all) {
    static char piece[SOUK_DATA_MAX];
    while (o->fd >= 0) {
        size_t room = sizeof piece;
        if (!all) {
            if (o->kept.len >= SOUK_OUTPUT_WINDOW) return;
            if (room > SOUK_OUTPUT_WINDOW - o->kept.len) room = SOUK_OUTPUT_WINDOW - o->kept.len;
        }
        const ssize_t n = read(o->fd, piece, room);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) return;
        if (n <= 0) return end_of(o);  // EIO: a terminal that nobody has open
        if (o->kept.len + static_cast<size_t>(n) > o->kept.cap &&
            !queue_grow(&o->kept, static_cast<size_t>(n))) {
            say("out of memory: output lost", errno);
            return;
        }
        queue_put(&o->kept, piece, static_cast<size_t>(n));
        if (static_cast<size_t>(n) < room && !all && !g.tty) return;
    }
}

bool input_waits() {
    if (g.state == SOUK_FRESH || g.state == SOUK_PREPARED_STATE) return false;
    // it would be echoed before CRIU has set the termios
    if (g.state == SOUK_LOADED_STATE && g.tty) return false;
    return g.in.wait.len > 0 ||
           (g.in.eof_at != UINT64_MAX && g.in.fd >= 0 && g.in.wait.base >= g.in.eof_at);
}

// Ctrl-Z was among what was typed: see stop_orphaned.
static void stop_key(const char* bytes, size_t n) {
    struct termios t;
    pid_t group = 0;
    if (tcgetattr(g.slave, &t) != 0 || !(t.c_lflag & ISIG) || t.c_cc[VSUSP] == 0 ||
        !memchr(bytes, t.c_cc[VSUSP], n))
        return;
    if (ioctl(g.master, TIOCGPGRP, &group) == 0) stop_orphaned(group);
}

void write_input() {
    Queue* q = &g.in.wait;
    while (q->len > 0) {
        size_t n;
        const char* bytes = queue_at(q, q->base, &n);
        const ssize_t done = g.in.fd < 0 ? static_cast<ssize_t>(n) : write(g.in.fd, bytes, n);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0 && errno == EAGAIN) return;
        g.in.told = false;
        if (g.tty && done > 0) stop_key(bytes, static_cast<size_t>(done));
        queue_drop(q, done < 0 ? n : static_cast<size_t>(done));  // EPIPE: nobody will ever read it
    }
    if (g.in.fd < 0 || g.in.eof_at == UINT64_MAX || q->base < g.in.eof_at) return;
    if (g.tty) {
        struct termios t;
        if (tcgetattr(g.slave, &t) == 0 && write(g.master, &t.c_cc[VEOF], 1) < 0 && errno == EAGAIN)
            return;
    } else {
        close(g.in.fd);
    }
    g.in.fd = -1;
}

void check_ends() {
    if (g.state != SOUK_ENDED && g.state != SOUK_NOT_STARTED) return;
    if (g.in.fd >= 0 && !g.tty) close(g.in.fd);
    g.in.fd = -1;
    if (g.children_left) return;
    for (Output& o : g.out) {
        if (o.eof) continue;
        read_output(&o, false);
        // A pipe ends by itself. A terminal is held open by us: it has ended when nobody is left
        // and it gives no more.
        if (o.fd >= 0 && g.tty && o.kept.len < SOUK_OUTPUT_WINDOW) end_of(&o);
    }
}

// tee(2) copies without taking away, so a dump that is called off has changed nothing.
bool copy_pipe_input(Queue* unread) {
    int waiting = 0, copy[2];
    if (ioctl(g.in.kept_read, FIONREAD, &waiting) != 0 || waiting == 0) return true;
    if (pipe2(copy, O_CLOEXEC | O_NONBLOCK) != 0) return false;
    const int size = fcntl(g.in.kept_read, F_GETPIPE_SZ);
    bool good =
        fcntl(copy[1], F_SETPIPE_SZ, size) >= 0 &&
        tee(g.in.kept_read, copy[1], static_cast<size_t>(size), SPLICE_F_NONBLOCK) == waiting &&
        queue_grow(unread, static_cast<size_t>(waiting));
    static char piece[4096];
    for (int left = waiting; good && left > 0;) {
        const ssize_t n = read(copy[0], piece, sizeof piece);
        good = n > 0;
        if (good) queue_put(unread, piece, static_cast<size_t>(n)), left -= static_cast<int>(n);
    }
    close(copy[0]);
    close(copy[1]);
    return good;
}

// Bytes typed before the job reads them wait in the line discipline. Without ICANON all of them can
// be read, an unended line too; then they are put back.
bool copy_typed_ahead(Queue* typed, bool* canonical) {
    struct termios old, raw;
    if (tcgetattr(g.slave, &old) != 0) return false;
    *canonical = (old.c_lflag & ICANON) != 0;
    raw = old;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON);
    raw.c_cc[VMIN] = 0;
    raw.c_cc[VTIME] = 0;
    if (tcsetattr(g.slave, TCSANOW, &raw) != 0) return false;
    static char piece[4096];
    bool good = true;
    for (ssize_t n; good && (n = read(g.slave, piece, sizeof piece)) > 0;) {
        good = queue_grow(typed, static_cast<size_t>(n));
        if (good) queue_put(typed, piece, static_cast<size_t>(n));
    }
    if (tcsetattr(g.slave, TCSANOW, &old) != 0) return false;
    return put_typed_ahead(typed, *canonical) && good;
}

// Back into the line discipline, whose work on these bytes is done: no signal, no editing, no
// translation; line by line if the job reads lines. A worker of the kernel carries the bytes over,
// and they must be in before the termios change: their echo, which nobody else can see now, tells
// that they are.
bool put_typed_ahead(const Queue* typed, bool canonical) {
    if (typed->len == 0) return true;
    struct termios old, plain;
    if (tcgetattr(g.slave, &old) != 0) return false;
    plain = old;
    plain.c_iflag = 0;
    plain.c_oflag = 0;
    plain.c_lflag = (canonical ? ICANON : 0) | ECHO;
    for (cc_t& c : plain.c_cc) c = _POSIX_VDISABLE;
    plain.c_cc[VMIN] = 1;
    plain.c_cc[VTIME] = 0;
    if (tcsetattr(g.slave, TCSANOW, &plain) != 0) return false;
    static char echo[4096];
    size_t written = 0, echoed = 0;
    while (echoed < typed->len) {
        if (written < typed->len) {
            size_t n;
            const char* bytes = queue_at(typed, typed->base + written, &n);
            const ssize_t done = write(g.master, bytes, n > 256 ? 256 : n);
            if (done > 0) written += static_cast<size_t>(done);
        }
        struct pollfd p = {g.master, POLLIN, 0};
        if (poll(&p, 1, 200) <= 0) break;
        const ssize_t n = read(
            g.master, echo, typed->len - echoed < sizeof echo ? typed->len - echoed : sizeof echo);
        if (n > 0) echoed += static_cast<size_t>(n);
    }
    return tcsetattr(g.slave, TCSANOW, &old) == 0 && written == typed->len;
}

}  // namespace souk::init
