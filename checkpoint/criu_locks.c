// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into each CRIU of a job: a lock of a file that the job holds is let go at no moment
// between the end of its processes and the first instruction of the restored ones, as long as the
// kernel stays the same. In between souk-root has a process that keeps it (agentd/root/locks.hpp).
//
// No call hands a lock to another holder. So it goes over in steps, between which somebody always
// holds some of it:
// - Where it can be shared, the old holder shares it, the new one takes its share, the old one lets
//   go, the new one has it alone. Nobody who waits to have it alone ever gets it.
// - A range of bytes goes over in two parts. Nobody who wants all of it gets it, alone or shared.
// Somebody else may get it in these microseconds if he wants to share what has no parts, or wants
// alone a part that only a descriptor for writing holds. The last step waits until he lets go.
//
// - A dump writes beside the image which locks there are, as soon as it is complete, and takes them
//   over when it is told that the processes are to end. A lock of flock(2) or of an open file
//   description is had by a copy of the descriptor; a POSIX lock, which is the process's, is
//   handed to such a copy (as a lock of the description) by calls in the process's name.
// - A restore hands them over before the first thread goes on, and fails if one is not to be had.
//   CRIU sets POSIX locks too early: they are lost again when it closes files that are mapped. What
//   CRIU sets is only tried, as what is kept is in its way.
//
// Locks of files that the job's home serves are with the home, and the kernel here does not tell
// them. The home is asked, and keeps them itself from the end of the processes until the restored
// ones say by a name that they are theirs (kernel/sys/store/served_locks.h).
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "checkpoint/criu_locks.h"
#include "checkpoint/criu_user.h"
#include "checkpoint/kept_locks.h"
#include "kernel/sys/store/served_locks.h"

static int kept[souk_locks_max];      // by its lock; 0: not kept
static bool adopted[souk_locks_max];  // by its lock
static pid_t criu;

__attribute__((constructor)) static void loaded(void) { criu = (pid_t)syscall(SYS_getpid); }

static bool restores(void) { return getenv("SOUK_DUMP") == NULL; }

static void sleep_briefly(void) {
    const struct timespec moment = {0, 200 * 1000};
    nanosleep(&moment, NULL);
}

// -------------------------------------------------------------------------------------------------
// what a lock is, and how one is set

static long set_flock(int fd, int operation) { return syscall(SYS_flock, fd, operation); }

static long set_of_description(int fd, const struct souk_lock* lock, short type) {
    struct flock range = {
        .l_type = type, .l_start = (off_t)lock->start, .l_len = (off_t)lock->length};
    return syscall(SYS_fcntl, fd, F_OFD_SETLK, &range);
}

static short own_type(const struct souk_lock* lock) { return lock->writes ? F_WRLCK : F_RDLCK; }

// A copy that is kept is set at once or not at all.
static bool set_kept(const struct souk_lock* lock, int fd, short type) {
    if (lock->kind != souk_lock_flock) return set_of_description(fd, lock, type) == 0;
    const int operation = type == F_UNLCK ? LOCK_UN : type == F_WRLCK ? LOCK_EX : LOCK_SH;
    return set_flock(fd, operation | LOCK_NB) == 0;
}

// CRIU holds its process, in whose name it is set, at once or not at all. -errno if not.
static long set_in(const struct souk_lock* lock, short type) {
    if (lock->kind == souk_lock_flock) {
        const int operation = type == F_UNLCK ? LOCK_UN : type == F_WRLCK ? LOCK_EX : LOCK_SH;
        return call_in(lock->pid, (const long[7]){SYS_flock, lock->fd, operation | LOCK_NB});
    }
    struct flock range = {
        .l_type = type, .l_start = (off_t)lock->start, .l_len = (off_t)lock->length};
    const int command = lock->kind == souk_lock_posix ? F_SETLK : F_OFD_SETLK;
    return call_with(lock->pid, (const long[7]){SYS_fcntl, lock->fd, command}, 3, &range,
                     sizeof range);
}

// Others who share one for a moment are waited for, for as long as readers may take, all together.
static bool may_wait(void) {
    enum { patience_s = 3 };
    static struct timespec until;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (until.tv_sec == 0) until.tv_sec = now.tv_sec + patience_s;
    if (now.tv_sec >= until.tv_sec) return false;
    sleep_briefly();
    return true;
}

static bool set_kept_at_last(const struct souk_lock* lock, int fd) {
    do
        if (set_kept(lock, fd, own_type(lock))) return true;
    while (may_wait());
    return false;
}

static long set_in_at_last(const struct souk_lock* lock) {
    for (;;) {
        const long done = set_in(lock, own_type(lock));
        if ((done != -EAGAIN && done != -EACCES) || !may_wait()) return done;
    }
}

// -------------------------------------------------------------------------------------------------
// which there are (criu_locks_found.c)

static bool read_locks(void) {
    const int fd = open_image(SOUK_LOCKS_NAME, O_RDONLY);
    if (fd < 0) return false;
    const bool whole = read(fd, &locks_head, sizeof locks_head) == (ssize_t)sizeof locks_head &&
                       locks_head.count <= souk_locks_max &&
                       pread(fd, locks, sizeof locks, sizeof locks_head) ==
                           (ssize_t)(locks_head.count * sizeof *locks);
    if (!whole) locks_head.count = 0;
    close(fd);
    return whole;
}

static const struct souk_lock* first_served(void) {
    for (uint32_t i = 0; i < locks_head.count; ++i)
        if (locks[i].served != 0) return &locks[i];
    return NULL;
}

// -------------------------------------------------------------------------------------------------
// with souk-root

static bool send_packet(int socket, uint8_t what, bool more, const int* fds, size_t count) {
    struct souk_locks_packet packet = {.what = what, .more = more};
    memcpy(packet.token, locks_head.token, sizeof packet.token);
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(souk_lock_descriptors * sizeof(int))];
    } control = {0};
    struct iovec bytes = {&packet, sizeof packet};
    struct msghdr message = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (count > 0) {
        message.msg_control = control.room;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        control.head = (struct cmsghdr){.cmsg_len = CMSG_LEN(count * sizeof(int)),
                                        .cmsg_level = SOL_SOCKET,
                                        .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.head), fds, count * sizeof(int));
    }
    return syscall(SYS_sendmsg, socket, &message, MSG_NOSIGNAL) == (long)sizeof packet;
}

// Returns how many descriptors came; -1: nothing that was expected did.
static int receive_packet(int socket, struct souk_locks_packet* packet,
                          int fds[souk_lock_descriptors]) {
    union {
        struct cmsghdr head;
        char room[CMSG_SPACE(souk_lock_descriptors * sizeof(int))];
    } control;
    struct iovec bytes = {packet, sizeof *packet};
    struct msghdr message = {.msg_iov = &bytes,
                             .msg_iovlen = 1,
                             .msg_control = control.room,
                             .msg_controllen = sizeof control.room};
    if (syscall(SYS_recvmsg, socket, &message, MSG_CMSG_CLOEXEC) != (long)sizeof *packet) return -1;
    const struct cmsghdr* const c = CMSG_FIRSTHDR(&message);
    if (c == NULL || c->cmsg_type != SCM_RIGHTS) return 0;
    const size_t count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    memcpy(fds, CMSG_DATA(c), count * sizeof(int));
    return (int)count;
}

// souk-root may be busy with another request.
static void wait_at_most(int socket) {
    const struct timeval limit = {10, 0};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(socket, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

static bool give_to_keeper(void) {
    int fds[souk_lock_descriptors];
    struct souk_locks_packet told;
    size_t count = 0;
    uint32_t left = locks_head.kept;
    wait_at_most(souk_locks_fd);
    for (uint32_t i = 0; i < locks_head.count; ++i) {
        if (!locks[i].kept) continue;
        fds[count++] = kept[i];
        --left;
        if (count < souk_lock_descriptors && left > 0) continue;
        if (!send_packet(souk_locks_fd, souk_locks_keep, left > 0, fds, count)) return false;
        count = 0;
    }
    return receive_packet(souk_locks_fd, &told, fds) >= 0 && told.what == souk_locks_done;
}

// Each holder of what a home keeps is one, and each of its ranges has its number.
static void take_number_of(uint32_t number, int fd) {
    bool is_first = true;
    for (uint32_t i = 0; i < locks_head.count; ++i) {
        if (locks[i].served != number || adopted[i]) continue;
        kept[i] = is_first ? fd : dup(fd);
        is_first = false;
    }
    if (is_first) close(fd);
}

static void ask_for_kept(uint8_t what) {
    int fds[souk_lock_descriptors];
    struct souk_locks_packet told;
    uint32_t next = 0, number = 0;
    wait_at_most(souk_locks_fd);
    if (!send_packet(souk_locks_fd, what, false, NULL, 0)) return;
    do {
        const int count = receive_packet(souk_locks_fd, &told, fds);
        if (count < 0 || told.what != souk_locks_keep) return;
        for (int i = 0; i < count; ++i) {
            if (what == souk_locks_take_served) {
                take_number_of(++number, fds[i]);
                continue;
            }
            while (next < locks_head.count && !locks[next].kept) ++next;
            if (next < locks_head.count)
                kept[next++] = fds[i];
            else
                close(fds[i]);
        }
    } while (told.more);
}

// -------------------------------------------------------------------------------------------------
// a dump, when the processes are to end

// A range in two parts; of flock(2) there is one.
static int parts_of(const struct souk_lock* lock, struct souk_lock parts[2]) {
    parts[0] = parts[1] = *lock;
    if (lock->kind == souk_lock_flock || lock->length == 1) return 1;
    parts[0].length = 1;
    parts[1].start = lock->start + 1;
    parts[1].length = lock->length == 0 ? 0 : lock->length - 1;
    return 2;
}

static bool can_be_shared(const struct souk_lock* lock) { return !lock->write_only; }

static void take_part(const struct souk_lock* part, int fd) {
    const bool shared =
        can_be_shared(part) && set_in(part, F_RDLCK) == 0 && set_kept(part, fd, F_RDLCK);
    if (set_in(part, F_UNLCK) == 0 && (part->writes || !shared)) (void)set_kept_at_last(part, fd);
}

static void take_over(const struct souk_lock* lock, int fd) {
    struct souk_lock parts[2];
    if (lock->kind != souk_lock_posix) return;  // it is the description's
    const int count = parts_of(lock, parts);
    for (int i = 0; i < count; ++i) take_part(&parts[i], fd);
}

// Called before CRIU hears the word that ends the processes.
void before_end(void) {
    const struct souk_lock* const served = first_served();
    if (!locks_noted || (locks_head.kept == 0 && served == NULL)) return;
    locks_noted = false;
    die_with_criu();
    if (served != NULL) (void)ask_home(served, souk_locks_hold, 0);
    if (locks_head.kept == 0) return;
    uint32_t had = 0;
    for (uint32_t i = 0; i < locks_head.count; ++i) {
        if (!locks[i].kept) continue;
        kept[i] = file_of(locks[i].pid, locks[i].fd);
        had += kept[i] > 0;
    }
    if (had < locks_head.kept || !give_to_keeper())
        return;  // it dies as those of a killed process do
    for (uint32_t i = 0; i < locks_head.count; ++i)
        if (locks[i].kept) take_over(&locks[i], kept[i]);
}

// -------------------------------------------------------------------------------------------------
// a restore

// Called in a process that CRIU has made, while it has the image open.
void locks_of_process(void) {
    if (restores()) (void)read_locks();
}

// fcntl(2) by CRIU. It would wait for a lock that is kept, and set it for each process that has the
// description of its file (criu/file-lock.c, restore_file_lock).
int set_by_criu(int fd, int command, struct flock* range) {
    const pid_t own = (pid_t)syscall(SYS_getpid);
    if (is_trial()) return 0;  // they are the job's that stands beside it
    if (!restores() || own == criu || locks_head.count == 0) {
        return (int)syscall(SYS_fcntl, fd, command, range);
    }
    const uint8_t kind = command == F_OFD_SETLK ? souk_lock_ofd : souk_lock_posix;
    if (command == F_SETLKW) command = F_SETLK;
    for (uint32_t i = 0; i < locks_head.count; ++i) {
        const struct souk_lock* const lock = &locks[i];
        if (lock->pid != own || lock->fd != fd || lock->kind != kind ||
            lock->start != (uint64_t)range->l_start || lock->length != (uint64_t)range->l_len)
            continue;
        (void)syscall(SYS_fcntl, fd, command, range);
        break;
    }
    return 0;  // it is set before the process runs
}

int flock(int fd, int operation) {
    if (is_trial()) return 0;
    if (!restores() || syscall(SYS_getpid) == criu || locks_head.count == 0)
        return (int)set_flock(fd, operation);
    (void)set_flock(fd, operation | LOCK_NB);
    return 0;
}

static void say(const struct souk_lock* lock, long error) {
    char path[48], name[256];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", lock->pid, lock->fd);
    const ssize_t n = readlink(path, name, sizeof name - 1);
    name[n < 0 ? 0 : n] = 0;
    refuse("process %d held a lock of %s: %s", lock->pid, name,
           error == -EAGAIN || error == -EACCES ? "another program has it now"
                                                : strerror((int)-error));
}

static long hand_part(const struct souk_lock* part, int fd) {
    long done = 0;
    if (part->writes && can_be_shared(part) && set_kept(part, fd, F_RDLCK)) {
        done = set_in(part, F_RDLCK);
        if (done != 0) (void)set_kept_at_last(part, fd);
    } else if (!part->writes) {
        done = set_in(part, F_RDLCK);
    }
    if (done != 0) return done;
    (void)set_kept(part, fd, F_UNLCK);
    return set_in_at_last(part);
}

static long hand_over(const struct souk_lock* lock, int fd) {
    struct souk_lock parts[2];
    if (fd <= 0) return set_in_at_last(lock);
    // Here it is shared, and a home has it alone, or the other way round.
    if (is_of_index(lock)) {
        (void)set_kept(lock, fd, F_UNLCK);
        return set_in_at_last(lock);
    }
    const int count = parts_of(lock, parts);
    long done = 0;
    for (int i = 0; i < count && done == 0; ++i) done = hand_part(&parts[i], fd);
    return done;
}

// Takes the lock back as far as it can: the process is about to die.
static void take_back(const struct souk_lock* lock, int fd) {
    (void)set_in(lock, F_UNLCK);
    (void)set_kept_at_last(lock, fd);
}

// A home that serves the files has the locks, or takes those that it keeps. Whoever held one has a
// new number there; the lock itself stays as it is. Returns a lock of a file that is served.
static const struct souk_lock* adopt_served(void) {
    const struct souk_lock *served = NULL, *lacks = NULL;
    uint32_t number = 0;
    for (uint32_t i = 0; i < locks_head.count; ++i) {
        const struct souk_lock* const lock = &locks[i];
        struct statx its;
        number += lock->kept;
        if ((lock->served == 0 && !lock->kept) || !stat_of(lock->pid, lock->fd, &its) ||
            !may_be_served(lock->pid, lock->fd, &its) || (lock->kept && is_of_index(lock)))
            continue;
        adopted[i] = ask_home(lock, lock->kept ? souk_locks_fetch : souk_locks_adopt,
                              lock->kept ? number : lock->served) == 1;
        served = lock;
        if (!adopted[i]) lacks = lock;
    }
    if (lacks != NULL) (void)ask_home(lacks, souk_locks_alone, 0);
    return served;
}

// At home the job has the files themselves, and takes the locks from whoever keeps them.
static void ask_keepers(void) {
    char boot[sizeof locks_head.boot];
    bool lacks_kept = false, lacks_served = false;
    for (uint32_t i = 0; i < locks_head.count; ++i) {
        lacks_kept = lacks_kept || (locks[i].kept && !adopted[i]);
        lacks_served = lacks_served || (locks[i].served != 0 && !adopted[i]);
    }
    read_boot(boot);
    if (lacks_kept && memcmp(boot, locks_head.boot, sizeof boot) == 0)
        ask_for_kept(souk_locks_take);
    if (lacks_served) ask_for_kept(souk_locks_take_served);
}

bool hand_over_locks(void) {
    if (!read_locks()) return true;
    const struct souk_lock* const served = adopt_served();
    ask_keepers();
    for (uint32_t i = 0; i < locks_head.count; ++i) {
        const long error = adopted[i] ? 0 : hand_over(&locks[i], kept[i]);
        if (error == 0 || error == -ENOSYS) continue;  // or CRIU has set it as it could
        say(&locks[i], error);
        for (uint32_t k = 0; k <= i; ++k)
            if (kept[k] > 0 && !adopted[k]) take_back(&locks[k], kept[k]);
        errno = EPERM;
        return false;
    }
    if (served != NULL) (void)ask_home(served, souk_locks_go, 0);
    return true;
}
