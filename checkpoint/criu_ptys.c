// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into CRIU, so that what waits in a pty inside a job is the same after a dump and after
// a restore.
//
// A dump can only read it out (criu/tty.c, tty_dump_queued_data). CRIU makes both ends non-blocking
// for that, and puts all back only if it is to leave the job running, through the line discipline:
// echoed, translated, signalled once more. Here one read of CRIU's gives all that waits at an end,
// and puts it back before it returns: byte by byte where it was (TIOCSTI), with a line discipline
// that does nothing but lines meanwhile. The descriptions stay as they are. A restore puts it there
// in the same way.
//
// In canonical mode the image has an end of file that waits as the character that makes one, and
// the stop of output as the character that stops it, behind all input.
#include <asm/ioctls.h>
#include <asm/termbits.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/tty.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

// A line discipline holds at most so many bytes (drivers/tty/n_tty.c: N_TTY_BUF_SIZE less one).
// Further bytes wait in front of it.
enum { held_max = 4095, nothing = 0 };

static bool dumps;
static bool met;             // this process has met a terminal: whoever has none pays nothing
static int taken_from = -1;  // the end that was read out last

__attribute__((constructor)) static void loaded(void) { dumps = getenv("SOUK_DUMP") != NULL; }

static long control(int fd, unsigned long request, const void* argument) {
    return syscall(SYS_ioctl, fd, request, argument);
}

enum end { no_pty, master, slave };
static enum end end_of(int fd) {
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISCHR(st.st_mode)) return no_pty;
    if (st.st_rdev == makedev(5, 2)) return master;
    return major(st.st_rdev) >= 136 && major(st.st_rdev) <= 143 ? slave : no_pty;
}

// Lines as they are, and nothing else: no signal, echo, editing or translation. Output that was
// stopped stays so, for which IXON must not change.
static struct termios2 plain_of(const struct termios2* old) {
    struct termios2 t = *old;
    t.c_iflag &= IXON | IXOFF;
    t.c_lflag &= ICANON | IEXTEN | TOSTOP | EXTPROC;
    for (int i = 0; i < NCCS; ++i)
        if (i != VEOF && i != VEOL && i != VEOL2) t.c_cc[i] = nothing;
    return t;
}

static bool readable(int fd) {
    struct pollfd p = {fd, POLLIN, 0};  // which also lets the kernel finish what is on its way
    return poll(&p, 1, 0) == 1 && (p.revents & POLLIN) != 0 && (p.revents & POLLHUP) == 0;
}

static ssize_t read_out(int fd, char* to, size_t room) {
    size_t n = 0;
    while (n < room && readable(fd)) {
        const ssize_t got = syscall(SYS_read, fd, to + n, room - n);
        if (got <= 0) break;
        n += (size_t)got;
    }
    return (ssize_t)n;
}

// Whole lines; what an end of file has ended gets that character.
static ssize_t read_lines(int fd, char* to, size_t room, const struct termios2* t) {
    const unsigned char* cc = t->c_cc;
    size_t n = 0;
    while (n + 1 < room && readable(fd)) {
        const ssize_t got = syscall(SYS_read, fd, to + n, room - n - 1);
        if (got < 0) break;
        n += (size_t)got;
        const unsigned char last = got > 0 ? (unsigned char)to[n - 1] : nothing;
        const bool ended =
            last == '\n' || (last != nothing && (last == cc[VEOL] || last == cc[VEOL2]));
        if (!ended && cc[VEOF] != nothing) to[n++] = (char)cc[VEOF];
    }
    return (ssize_t)n;
}

// Puts bytes into the queue that this end reads from. Returns how many went in.
static size_t put(int fd, const char* bytes, size_t n) {
    size_t done = 0;
    while (done < n && done < held_max && control(fd, TIOCSTI, bytes + done) == 0) ++done;
    return done;
}

static bool write_rest(int fd, const char* bytes, size_t n) {
    while (n > 0) {
        const ssize_t done = syscall(SYS_write, fd, bytes, n);
        if (done <= 0) return false;
        bytes += done;
        n -= (size_t)done;
    }
    return true;
}

// CRIU has both ends open. -1: none.
static int master_of(int fd) {
    struct stat own, other;
    if (fstat(fd, &own) != 0) return -1;
    for (int at = 0; at < 4096; ++at) {
        unsigned number;
        if (at == fd || fstat(at, &other) != 0 || other.st_rdev != makedev(5, 2)) continue;
        if (control(at, TIOCGPTN, &number) == 0 && number == minor(own.st_rdev) &&
            other.st_dev == own.st_dev)
            return at;
    }
    return -1;
}

// Sets packet mode, which must be off meanwhile: each read would begin with a byte of its own, and
// what is done here would be told to the reader.
static int set_packet(int fd, int on) {
    int was = 0;
    if (control(fd, TIOCGPKT, &was) == 0 && was != on && control(fd, TIOCPKT, &on) == 0) return was;
    return on;
}

// The job could not write to it, and not for what waits at the other end.
static bool is_stopped(int fd, int other, const struct termios2* t) {
    struct pollfd p = {fd, POLLOUT, 0};
    int waits = held_max;
    return (t->c_iflag & IXON) != 0 && t->c_cc[VSTOP] != nothing && poll(&p, 1, 0) == 0 &&
           control(other, FIONREAD, &waits) == 0 && waits < held_max;
}

static ssize_t take_input(int fd, int other, char* to, size_t room) {
    struct termios2 old, plain, raw;
    if (room-- == 0 || control(fd, TCGETS2, &old) != 0) return -1;
    plain = raw = plain_of(&old);
    raw.c_lflag &= ~(tcflag_t)ICANON;
    size_t n = 0;
    if ((old.c_lflag & ICANON) != 0) {
        if (control(fd, TCSETS2, &plain) != 0) return -1;
        n = (size_t)read_lines(fd, to, room, &old);
    }
    if (control(fd, TCSETS2, &raw) != 0) return -1;
    n += (size_t)read_out(fd, to + n, room - n);  // with ICANON: a line that has not ended
    bool good = control(fd, TCSETS2, &plain) == 0;
    const size_t back = put(fd, to, n);
    if (back < n) good = write_rest(other, to + back, n - back) && good;
    if (control(fd, TCSETS2, &old) != 0 || !good) return -1;
    if (is_stopped(fd, other, &old)) to[n++] = (char)old.c_cc[VSTOP];
    return (ssize_t)n;
}

static ssize_t take_slave(int fd, char* to, size_t room) {
    const int other = master_of(fd), packet = set_packet(other, 0);
    const ssize_t n = take_input(fd, other, to, room);
    (void)set_packet(other, packet);
    return n;
}

// Through the other end, untranslated.
static bool write_plainly(int to, const char* bytes, size_t n) {
    struct termios2 old, plain;
    if (control(to, TCGETS2, &old) != 0) return false;
    plain = old;
    plain.c_oflag &= ~(tcflag_t)OPOST;
    if (control(to, TCSETS2, &plain) != 0) return false;
    const bool good = write_rest(to, bytes, n);
    return control(to, TCSETS2, &old) == 0 && good;
}

static int peer_of(int fd) {
    return (int)control(fd, TIOCGPTPEER, (const void*)(long)(O_RDWR | O_NOCTTY | O_CLOEXEC));
}

static ssize_t take_master(int fd, char* to, size_t room) {
    const int packet = set_packet(fd, 0);
    const size_t n = (size_t)read_out(fd, to, room);
    const size_t back = put(fd, to, n);
    bool good = true;
    if (back < n) {
        const int peer = peer_of(fd);
        good = write_plainly(peer, to + back, n - back);
        close(peer);
    }
    (void)set_packet(fd, packet);
    return good ? (ssize_t)n : -1;
}

// A restore: input of the job, by the master's end.
static bool give_input(int fd, const char* bytes, size_t n) {
    struct termios2 old, plain;
    const int peer = peer_of(fd);
    if (peer < 0) return false;
    const int packet = set_packet(fd, 0);
    bool good = control(peer, TCGETS2, &old) == 0;
    if (good) {
        const unsigned char stop = (old.c_iflag & IXON) != 0 ? old.c_cc[VSTOP] : nothing;
        const bool stopped = stop != nothing && (unsigned char)bytes[n - 1] == stop;
        if (stopped) --n;
        plain = plain_of(&old);
        good = control(peer, TCSETS2, &plain) == 0;
        const size_t done = put(peer, bytes, n);
        good = write_rest(fd, bytes + done, n - done) && good;
        good = control(peer, TCSETS2, &old) == 0 && good;
        if (stopped) good = put(peer, bytes + n, 1) == 1 && good;
    }
    (void)set_packet(fd, packet);
    close(peer);
    return good;
}

// CRIU would have it be one of lines.
static bool has_other_discipline(int fd) {
    int discipline = N_TTY;
    if (end_of(fd) == no_pty || control(fd, TIOCGETD, &discipline) != 0 || discipline == N_TTY)
        return false;
    char what[64];
    snprintf(what, sizeof what, "an unusual discipline of lines (%d) in a terminal", discipline);
    refuse_of(what, "when it is N_TTY again (TIOCSETD)");
    return true;
}

int ioctl(int fd, unsigned long request, ...) {
    va_list rest;
    va_start(rest, request);
    void* const argument = va_arg(rest, void*);
    va_end(rest);
    if (request == TCGETS || request == TIOCSPTLCK) met = true;
    const int done = (int)control(fd, request, argument);
    return done == 0 && dumps && request == FIONREAD ? waiting_before_mark(fd, argument) : done;
}

int fcntl64(int fd, int command, ...) {
    va_list rest;
    va_start(rest, command);
    const long argument = va_arg(rest, long);
    va_end(rest);
    enum { getsig = 11, ofd_setlk = 37 };  // F_GETSIG, F_OFD_SETLK
    if (command == F_SETLKW || command == ofd_setlk)
        return set_by_criu(fd, command, (struct flock*)argument);
    // CRIU's first question about a descriptor once it knows what is open there.
    if (dumps && command == getsig && has_other_discipline(fd)) {
        errno = EINVAL;
        return -1;
    }
    int done;
    if (!dumps && command == F_SETFL && make_semaphore(fd, argument, &done)) return done;
    if (met && dumps && command == F_SETFL && argument == (O_RDWR | O_NONBLOCK) &&
        end_of(fd) != no_pty)
        return 0;
    const long found = syscall(SYS_fcntl, fd, command, argument);
    return (int)(command == F_GETFL ? told_flags(fd, found) : found);
}

ssize_t read(int fd, void* to, size_t room) {
    const enum end end = met && dumps ? end_of(fd) : no_pty;
    if (end == no_pty) {
        const ssize_t n = look_at_read(fd, to, syscall(SYS_read, fd, to, room));
        return dumps ? mark_semaphore(to, n, room) : n;
    }
    if (taken_from == fd) {  // it asks until there is no more
        errno = EAGAIN;
        return -1;
    }
    taken_from = fd;
    const ssize_t n = end == master ? take_master(fd, to, room) : take_slave(fd, to, room);
    if (n > 0) return n;
    errno = n == 0 ? EAGAIN : EIO;
    return -1;
}

ssize_t write(int fd, const void* bytes, size_t n) {
    if (!before_word(bytes, n)) return -1;
    const enum end end = met && n > 0 ? end_of(fd) : no_pty;
    if (end == no_pty) return syscall(SYS_write, fd, bytes, n);
    if (dumps) return (ssize_t)n;  // a dump that has failed would put back what is there
    if (end == master ? give_input(fd, bytes, n) : write_plainly(fd, bytes, n)) return (ssize_t)n;
    errno = EIO;
    return -1;
}
