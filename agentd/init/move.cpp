// SPDX-License-Identifier: GPL-2.0-or-later
// A dump leaves RESIDUE behind, and a restore needs it: the job's bytes on the way, byte-exact.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agentd/init/init.hpp"

namespace souk::init {
namespace {
constexpr const char* ns_last_pid = "/proc/sys/kernel/ns_last_pid";

// Keeps an answer, which the next flush() sends. Until then the loop takes no other record.
void answer(souk_type type, const char* failed, const void* bytes = nullptr, size_t n = 0) {
    Answer& a = g.answer;
    a.waits = true;
    a.type = type;
    a.failed = failed ? errno ? errno : EIO : 0;
    if (failed) bytes = failed, n = strlen(failed);
    a.n = n < sizeof a.bytes ? n : sizeof a.bytes;
    if (bytes) memcpy(a.bytes, bytes, a.n);
}

bool write_queue(int fd, const Queue& q) {
    uint64_t from = q.base;
    for (size_t left = q.len; left > 0;) {
        size_t n;
        const char* bytes = queue_at(&q, from, &n);
        if (!write_all(fd, bytes, n)) return false;
        from += n;
        left -= n;
    }
    return true;
}

// Reads `n` bytes of the residue into a queue at offset `base`, with `room` beyond them.
bool read_queue(int fd, Queue* q, uint64_t base, size_t n, size_t room) {
    if (!queue_open(q, n + room, base)) return false;
    q->len = n;
    return read_all(fd, q->data, n);
}

const char* write_residue(int image_dir, const Queue& unread, const Queue& typed, bool canonical) {
    souk_residue r = {};
    r.magic = SOUK_RESIDUE_MAGIC;
    r.version = SOUK_INIT_VERSION;
    r.root_pid = g.root;
    r.last_pid = static_cast<int32_t>(g.last_pid > 0 ? g.last_pid : read_number(ns_last_pid));
    r.tty = g.tty;
    r.uid = g.uid;
    r.gid = g.gid;
    r.durable = g.durable;
    memcpy(r.pipe_inode, g.pipe_inode, sizeof r.pipe_inode);
    r.tty_rdev = g.tty_rdev;
    r.tty_dev = g.tty_dev;
    r.input_offset = g.in.wait.base - unread.len;
    r.input_len = unread.len + g.in.wait.len;
    r.input_eof_at = g.in.eof_at;
    for (int i = 0; i < SOUK_STREAMS; ++i) {
        const Output& o = g.out[i];
        r.out[i] = {o.kept.base, o.kept.base + o.kept.len, o.eof, 0};
    }
    r.typed_len = static_cast<uint32_t>(typed.len);
    r.typed_canonical = canonical;
    const int fd = create_at(image_dir, SOUK_RESIDUE_NAME, O_TRUNC);
    if (fd < 0) return "create the residue";
    const bool good = write_all(fd, &r, sizeof r) && write_queue(fd, unread) &&
                      write_queue(fd, g.in.wait) && write_queue(fd, g.out[0].kept) &&
                      write_queue(fd, g.out[1].kept) && write_queue(fd, typed);
    const int code = errno;
    close(fd);
    errno = code;
    return good ? nullptr : "write the residue";
}

const char* read_residue(int fd, souk_residue* r) {
    struct stat st;
    if (fstat(fd, &st) != 0 || !read_all(fd, r, sizeof *r)) return "read the residue";
    errno = EINVAL;
    if (const char* wrong = check_residue(r, static_cast<size_t>(st.st_size))) return wrong;
    if ((r->tty != 0) != g.tty) return "residue: of a job with other stdio";
    munmap(g.in.wait.data, g.in.wait.cap);
    if (!read_queue(fd, &g.in.wait, r->input_offset, r->input_len, SOUK_INPUT_WINDOW))
        return "read the residue";
    for (int i = 0; i < SOUK_STREAMS; ++i) {
        Output* o = &g.out[i];
        const souk_stream_state& s = r->out[i];
        munmap(o->kept.data, o->kept.cap);
        if (!read_queue(fd, &o->kept, s.base, s.end - s.base, SOUK_OUTPUT_WINDOW))
            return "read the residue";
        if (s.eof && !g.tty) close(o->fd);
        if (s.eof) o->fd = -1;
        o->eof = s.eof != 0;
        send_from(o, g.safe_from[i]);
    }
    Queue typed;
    if (!read_queue(fd, &typed, 0, r->typed_len, 4096)) return "read the residue";
    if (g.tty && !put_typed_ahead(&typed, r->typed_canonical != 0))
        return "put typed-ahead input back";
    munmap(typed.data, typed.cap);
    g.root = r->root_pid;
    g.uid = r->uid;
    g.gid = r->gid;
    g.durable = r->durable != 0;
    g.in.eof_at = r->input_eof_at;
    g.in.told = false;
    g.last_pid = r->last_pid;
    return nullptr;
}
}  // namespace

// The job is frozen: whatever a read can get now is all there is, and it writes no more.
void drain(int image_dir) {
    if (g.state != SOUK_RUNNING && g.state != SOUK_DRAINED_STATE) {
        errno = ESRCH;
        return answer(SOUK_DRAINED, "the job does not run");
    }
    Queue unread, typed;
    bool canonical = false;
    if (!queue_open(&unread, 4096, 0) || !queue_open(&typed, 4096, 0))
        return answer(SOUK_DRAINED, "take memory");
    for (Output& o : g.out) read_output(&o, true);
    const char* failed = nullptr;
    if (g.tty ? !copy_typed_ahead(&typed, &canonical) : !copy_pipe_input(&unread))
        failed = "copy unread input";
    if (!failed) failed = write_residue(image_dir, unread, typed, canonical);
    if (!failed) failed = shm_save(image_dir);
    if (!failed) failed = attributes_save(image_dir);
    if (!failed) failed = network_save(image_dir);
    if (!failed) failed = find_what_stays();
    if (!failed) g.state = SOUK_DRAINED_STATE;
    answer(SOUK_DRAINED, failed);
    munmap(unread.data, unread.cap);
    munmap(typed.data, typed.cap);
}

void undrain() {
    if (g.state != SOUK_DRAINED_STATE) return;
    g.state = SOUK_RUNNING;
    if (g.root_dead) finish_root();
}

void prepare(bool tty) {
    errno = EBUSY;
    if (g.state != SOUK_FRESH) return answer(SOUK_PREPARED, "the capsule is in use");
    if (const char* failed = tty ? make_terminal(24, 80) : make_pipes())
        return answer(SOUK_PREPARED, failed);
    g.state = SOUK_PREPARED_STATE;
    answer(SOUK_PREPARED, nullptr);
}

void load(int image_dir) {
    errno = EBUSY;
    if (g.state != SOUK_PREPARED_STATE) return answer(SOUK_LOADED, "the capsule is not prepared");
    souk_residue r;
    const int fd = openat(image_dir, SOUK_RESIDUE_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    const char* failed = fd < 0 ? "open the residue" : read_residue(fd, &r);
    const int code = errno;
    if (fd >= 0) close(fd);
    errno = code;
    if (!failed) failed = shm_load(image_dir);
    if (failed) return answer(SOUK_LOADED, failed);
    make_run_user(g.uid, g.gid);
    if (g.tty && fchown(g.slave, g.uid, static_cast<gid_t>(-1)) != 0)
        say("chown the terminal", errno);
    for (const int end : g.job_end)
        if (end >= 0 && fchown(end, g.uid, g.gid) != 0) say("chown a pipe", errno);
    g.affinity = openat(image_dir, SOUK_AFFINITY_NAME, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    g.state = SOUK_LOADED_STATE;
    answer(SOUK_LOADED, nullptr, &r, sizeof r);
}

void restored() {
    if (g.state != SOUK_LOADED_STATE) return say("ignored a word that the job is restored", 0);
    helpers_leave();
    close_job_ends();
    if (g.affinity >= 0) {
        affinity_restore(g.affinity);
        close(g.affinity);
        g.affinity = -1;
    }
    g.state = SOUK_RUNNING;
    g.children_left = true;
    if (g.root_dead) finish_root();
}

// Programs name files by their pid, in directories that they share with other jobs: the pids of
// each job begin at a number of its own, below those of helpers.
void begin_pids() {
    constexpr long first = 1'000;
    const long end = read_number("/proc/sys/kernel/pid_max") / 100 * 60;
    uint32_t random;
    if (end <= first || getrandom(&random, sizeof random, 0) != sizeof random) return;
    const int code = write_number(ns_last_pid, first + static_cast<long>(random) % (end - first));
    if (code) say("write ns_last_pid", code);
}

// Whoever enters from outside must not take a pid that a restore will need. A job that forks while
// helpers enter beside it gets pids of the lower window, a restore's helpers those of the higher
// one: they cannot meet.
void helpers_enter(bool restore) {
    if (const char* found = restore ? nullptr : find_what_stays())
        return answer(SOUK_HELPERS_READY, found);
    const long max = read_number("/proc/sys/kernel/pid_max");
    const long last = read_number(ns_last_pid);
    errno = static_cast<int>(last < 0 ? -last : max < 0 ? -max : 0);
    if (last < 0 || max < 0) return answer(SOUK_HELPERS_READY, "read ns_last_pid");
    if (g.last_pid <= 0) g.last_pid = static_cast<int>(last);
    errno = write_number(ns_last_pid, max / 100 * (restore ? 95 : 70));
    answer(SOUK_HELPERS_READY, errno ? "write ns_last_pid" : nullptr);
}

void helpers_leave() {
    if (g.last_pid <= 0) return;
    const int code = write_number(ns_last_pid, g.last_pid);
    if (code) say("write ns_last_pid", code);
    g.last_pid = 0;
}

}  // namespace souk::init
