// SPDX-License-Identifier: GPL-2.0-or-later
// The control connection. Nothing is queued for it: every message is made from state when the
// socket takes it.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fcntl.h>
#include <sys/ioctl.h>

#include "agentd/init/init.hpp"

namespace souk::init {
namespace {
char record[sizeof(souk_msg) + SOUK_DATA_MAX] __attribute__((aligned(8)));

void drop_connection() {
    if (g.conn >= 0) close(g.conn);
    g.conn = -1;
    g.greeted = g.welcome_told = g.blocked = g.answer.waits = false;
}

// A new agentd: everything is to be told again.
void hello(const souk_msg* m) {
    g.safe_from[0] = m->offset;
    g.safe_from[1] = m->limit;
    for (int i = 0; i < SOUK_STREAMS; ++i) send_from(&g.out[i], g.safe_from[i]);
    g.in.told = g.started_told = g.failure_told = g.exit_told = g.welcome_told = g.lease_told =
        g.held_told = false;
    g.stop_told = !g.stopped;
    g.greeted = true;
}

bool tell_welcome() {
    souk_welcome w = {};
    w.state = g.state;
    w.root_pid = g.root;
    w.tty = g.tty;
    w.stopped = g.stopped;
    w.tty_rdev = g.tty_rdev;
    w.tty_dev = g.tty_dev;
    w.input_taken = g.in.wait.base + g.in.wait.len;
    w.input_limit = g.in.wait.base + SOUK_INPUT_WINDOW;
    for (int i = 0; i < SOUK_STREAMS; ++i) {
        const Output* o = &g.out[i];
        w.out[i] = {o->kept.base, o->kept.base + o->kept.len, o->eof, 0};
    }
    return send_record(SOUK_WELCOME, 0, 0, 0, 0, &w, sizeof w);
}

bool tell_answer() {
    const Answer& a = g.answer;
    const bool with_ends = a.type == SOUK_PREPARED && a.failed == 0;
    return send_record(a.type, 0, a.failed, 0, 0, a.bytes, a.n, g.tty ? &g.slave : g.job_end,
                       !with_ends ? 0
                       : g.tty    ? 1
                                  : 3);
}

// Everything before `offset` is safe with agentd.
void drop_safe(Output* o, uint64_t offset) {
    const uint64_t end = o->kept.base + o->kept.len;
    const uint64_t to = offset > end ? end : offset;
    if (to <= o->kept.base) return;
    queue_drop(&o->kept, static_cast<size_t>(to - o->kept.base));
    if (o->sent < o->kept.base) o->sent = o->kept.base;
}

void input(const souk_msg* m, const char* bytes, size_t n) {
    Queue* q = &g.in.wait;
    const uint64_t taken = q->base + q->len, limit = q->base + SOUK_INPUT_WINDOW;
    g.in.told = false;
    // a gap, or known already
    if (m->offset > taken || m->offset + n <= taken || g.in.eof_at != UINT64_MAX) return;
    const size_t skip = static_cast<size_t>(taken - m->offset);
    size_t add = n - skip;
    if (taken >= limit) return;
    if (add > limit - taken) add = static_cast<size_t>(limit - taken);
    queue_put(q, bytes + skip, add);
}

void ack(const souk_msg* m) {
    if (m->stream >= 1 && m->stream <= SOUK_STREAMS) drop_safe(&g.out[m->stream - 1], m->offset);
}

int kept[SOUK_KEPT_MAX];
int kept_count = 0;

void keep(int fd) {
    const int copy = kept_count < SOUK_KEPT_MAX ? fcntl(fd, F_DUPFD_CLOEXEC, 3) : -1;
    if (copy < 0) return say("cannot keep a file descriptor", errno);
    kept[kept_count++] = copy;
}

void let_go() {
    while (kept_count > 0) close(kept[--kept_count]);
}

void start(const souk_msg* m, const int* fds, int count) {
    const int filters = m->value == 1 && count > 1 ? 1 : 0;
    start_job(count > 0 ? fds[0] : -1, count - filters > 1 ? fds[1] : -1,
              filters ? fds[count - 1] : -1, m->stream == 1);
}

void handle(const souk_msg* m, const char* bytes, size_t n, const int* fds, int count) {
    const int fd = count > 0 ? fds[0] : -1;
    switch (m->type) {
        case SOUK_HELLO: return hello(m);
        case SOUK_START: return start(m, fds, count);
        case SOUK_ACK: return ack(m);
        case SOUK_INPUT: return input(m, bytes, n);
        case SOUK_INPUT_EOF:
            if (g.in.eof_at == UINT64_MAX && m->offset == g.in.wait.base + g.in.wait.len)
                g.in.eof_at = m->offset;
            g.in.told = false;
            return;
        case SOUK_WINCH: {
            struct winsize size = {};
            size.ws_row = static_cast<unsigned short>(m->stream);
            size.ws_col = static_cast<unsigned short>(m->value);
            if (g.master >= 0) ioctl(g.master, TIOCSWINSZ, &size);
            return;
        }
        case SOUK_SIGNAL: return send_signal(m->value, m->stream);
        case SOUK_HELPERS_ENTER: return helpers_enter(m->value != 0);
        case SOUK_HELPERS_LEAVE: return helpers_leave();
        case SOUK_DRAIN: return drain(fd);
        case SOUK_UNDRAIN: return undrain();
        case SOUK_PREPARE: return prepare(m->value != 0);
        case SOUK_LOAD: return load(fd);
        case SOUK_RESTORED: return restored();
        case SOUK_KEEP: return keep(fd);
        case SOUK_LET_GO: return let_go();
        case SOUK_LEASE: return keep_lease(m->offset, fd, bytes, n);
        case SOUK_RELEASE: return release_job();
        case SOUK_QUIT: _exit(0);
    }
    say("ignored an unknown message", 0);
}
}  // namespace

bool send_record(souk_type type, uint32_t stream, int32_t value, uint64_t offset, uint64_t limit,
                 const void* bytes, size_t n, const int* fds, int nfds) {
    souk_msg m = {};
    m.version = SOUK_INIT_VERSION;
    m.type = static_cast<uint16_t>(type);
    m.length = static_cast<uint32_t>(sizeof m + n);
    m.stream = stream;
    m.value = value;
    m.offset = offset;
    m.limit = limit;
    struct iovec parts[2] = {{&m, sizeof m}, {const_cast<void*>(bytes), n}};
    struct msghdr header = {};
    header.msg_iov = parts;
    header.msg_iovlen = n ? 2 : 1;
    char control[CMSG_SPACE(SOUK_FDS_MAX * sizeof(int))] __attribute__((aligned(8))) = {};
    if (nfds > 0) {
        header.msg_control = control;
        header.msg_controllen = CMSG_SPACE(static_cast<size_t>(nfds) * sizeof(int));
        struct cmsghdr* c = CMSG_FIRSTHDR(&header);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(static_cast<size_t>(nfds) * sizeof(int));
        memcpy(CMSG_DATA(c), fds, static_cast<size_t>(nfds) * sizeof(int));
    }
    if (g.conn >= 0 && sendmsg(g.conn, &header, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return true;
    g.blocked = true;
    return false;
}

// The ACK of what a HELLO says is safe may have been lost with the connection before: a full window
// would wait for it for ever.
void send_from(Output* o, uint64_t safe) {
    drop_safe(o, safe);
    o->sent = o->kept.base;
    o->eof_told = false;
}

void on_connect() {
    const int fd = accept4(g.listen, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) return;
    struct ucred who;
    socklen_t size = sizeof who;
    // A process of the capsule has a pid here, one outside has none. Only root outside may command.
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.pid != 0 || who.uid != 0) {
        close(fd);
        return;
    }
    drop_connection();
    g.conn = fd;
}

void on_record() {
    struct iovec part = {record, sizeof record};
    char control[CMSG_SPACE(SOUK_FDS_MAX * sizeof(int))] __attribute__((aligned(8)));
    struct msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    const ssize_t n = recvmsg(g.conn, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) return drop_connection();
    int fds[SOUK_FDS_MAX], count = 0;
    for (struct cmsghdr* c = CMSG_FIRSTHDR(&header); c; c = CMSG_NXTHDR(&header, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
        count = static_cast<int>((c->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        memcpy(fds, CMSG_DATA(c), static_cast<size_t>(count) * sizeof(int));
    }
    const souk_msg* m = souk_msg_check(record, static_cast<uint64_t>(n));
    if (m)
        handle(m, record + sizeof *m, static_cast<size_t>(n) - sizeof *m, fds, count);
    else
        drop_connection();
    for (int i = 0; i < count; ++i) close(fds[i]);
}

void flush() {
    g.blocked = false;
    if (g.conn < 0 || !g.greeted) return;
    if (!g.welcome_told) g.welcome_told = tell_welcome();
    if (!g.welcome_told) return;
    if (g.lease_until && !g.lease_told)
        g.lease_told = send_record(SOUK_LEASED, 0, 0, g.lease_until, 0, nullptr, 0);
    if (g.lease_stopped && send_record(SOUK_LEASED, 0, 1, g.lease_stopped, 0, nullptr, 0))
        g.lease_stopped = 0;
    if (g.answer.waits) g.answer.waits = !tell_answer();
    if (g.state == SOUK_NOT_STARTED && !g.failure_told)
        g.failure_told = send_record(SOUK_EXEC_FAILED, g.failure_program, g.failure_code, 0, 0,
                                     g.failure, strlen(g.failure));
    if (!g.held_told && g.state == SOUK_HELD_STATE)
        g.held_told = send_record(SOUK_HELD, 0, g.root, 0, 0, nullptr, 0);
    if (!g.started_told && (g.state == SOUK_RUNNING || g.state == SOUK_ENDED))
        g.started_told =
            send_record(SOUK_STARTED, g.tty, g.root, g.tty_rdev, g.tty_dev, nullptr, 0);
    if (!g.stop_told)
        g.stop_told = send_record(SOUK_STOPPED, 0, g.stopped ? g.stop_signal : 0, 0, 0, nullptr, 0);
    if (!g.in.told)
        g.in.told = send_record(SOUK_INPUT_TAKEN, 0, 0, g.in.wait.base + g.in.wait.len,
                                g.in.wait.base + SOUK_INPUT_WINDOW, nullptr, 0);
    if (g.state == SOUK_ENDED && !g.exit_told)
        g.exit_told = send_record(SOUK_EXITED, 0, 0, 0, 0, &g.exit, sizeof g.exit);
    for (uint32_t i = 0; i < SOUK_STREAMS; ++i) {
        Output* o = &g.out[i];
        const uint64_t end = o->kept.base + o->kept.len;
        while (o->sent < end) {
            size_t n;
            const char* bytes = queue_at(&o->kept, o->sent, &n);
            if (n > SOUK_DATA_MAX) n = SOUK_DATA_MAX;
            if (!send_record(SOUK_OUTPUT, i + 1, 0, o->sent, 0, bytes, n)) break;
            o->sent += n;
        }
        if (o->eof && !o->eof_told && o->sent == end)
            o->eof_told = send_record(SOUK_OUTPUT_EOF, i + 1, 0, end, 0, nullptr, 0);
    }
}

}  // namespace souk::init
