// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into CRIU: what processes have done to System V semaphores with SEM_UNDO, which the
// kernel takes back at their end, goes along. CRIU carries the values alone. Also, a segment of
// shared memory that was removed and is still attached goes when the last process leaves it, and
// one that was locked is locked; a queue of messages has the room that it was given.
//
// No file of the kernel says what it would take back. But it refuses, with ERANGE, an operation
// that would bring that out of its range, and it looks at all operations of one semop(2) before any
// of them counts. So each thread asks in its own name with operations that are out of range from a
// certain number on, and the last of which cannot be done in any case: nothing changes, and nobody
// is woken. A restored thread does one semop(2) after which the value is as before, and the kernel
// takes back as much as before. That also says which process changed a semaphore last, and that the
// set was used at all (sem_otime), which programs ask to know whether somebody has set it up.
//
// The threads of a process share what is taken back, unless one has parted from them; so does a
// process that was made with CLONE_SYSVSEM, and that cannot be made again.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

#define IMAGE "souk-semaphores"

enum kind { undo, last, removed, locked, queue_room };

// A segment (removed, locked) is its id alone, in `set`. Of a queue `undo` is its room. Else one
// semaphore, and a thread: what the kernel is to take back at its end, or that its process was the
// last to change it.
struct record {
    int32_t thread, set, number, undo;
    uint32_t kind, parted;  // parted: it does not share with the first thread of its process
};

enum { undo_min = -32768, value_max = 32767, operations_max = 496, for_one_max = 8 };

// -------------------------------------------------------------------------------------------------
// operations in the name of a thread

static struct {
    pid_t thread;
    int memory;
    unsigned long place;
} there;  // where the thread finds its operations

static bool enter(pid_t thread) {
    char path[40];
    snprintf(path, sizeof path, "/proc/%d/mem", thread);
    there.memory = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC);
    if (there.memory < 0) return false;
    const long at = call_in(thread, (const long[7]){SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE,
                                                    MAP_PRIVATE | MAP_ANONYMOUS, -1});
    if (at < 0 && at > -4096) {
        close(there.memory);
        errno = (int)-at;
        return false;
    }
    there.thread = thread;
    there.place = (unsigned long)at;
    return true;
}

static void leave(void) {
    call_in(there.thread, (const long[7]){SYS_munmap, (long)there.place, 4096});
    close(there.memory);
}

static long operate(int set, const struct sembuf* all, int count) {
    const size_t bytes = (size_t)count * sizeof *all;
    if (pwrite(there.memory, all, bytes, (off_t)there.place) != (ssize_t)bytes) return -EFAULT;
    return call_in(there.thread, (const long[7]){SYS_semop, set, (long)there.place, count});
}

// Operations after which the kernel takes back `by` less, and the value is as before.
static int shift(struct sembuf* out, int number, int value, int by) {
    const int sign = by < 0 ? -1 : 1;
    // The first of each two has the value go to where there is more room.
    const int up = value_max - value > value ? 1 : -1;
    const int room = up > 0 ? value_max - value : value;
    int count = 0;
    for (int left = by * sign, part; left > 0; left -= part) {
        part = left < room ? left : room;
        const short undone = sign == up ? SEM_UNDO : 0;
        out[count++] = (struct sembuf){(unsigned short)number, (short)(up * part), undone};
        out[count++] = (struct sembuf){(unsigned short)number, (short)(-up * part),
                                       (short)(SEM_UNDO - undone)};
    }
    return count;
}

// 1: taking `by` off what the thread has to take back of one of the semaphores from `first` on is
// out of range; 0: of none. -errno: it does not say.
static long out_of_range(int set, const unsigned short* values, int first, int count, int by) {
    static struct sembuf all[operations_max + 1];
    int n = 0;
    for (int i = first; i < first + count; ++i) n += shift(all + n, i, values[i], by);
    all[n++] = (struct sembuf){(unsigned short)first, (short)(-values[first] - 1), IPC_NOWAIT};
    const long said = operate(set, all, n);
    return said == -ERANGE ? 1 : said == -EAGAIN ? 0 : said < 0 ? said : -EIO;
}

// Finds how much it has to take back of this one.
static long find_undo(int set, const unsigned short* values, int number, int* undo) {
    int least = undo_min, most = value_max;
    while (least < most) {
        const int middle = least + (most - least + 1) / 2;  // is it less than that?
        const long less = out_of_range(set, values, number, 1, middle - undo_min);
        if (less < 0) return less;
        if (less)
            most = middle - 1;
        else
            least = middle;
    }
    *undo = least;
    return 0;
}

// -------------------------------------------------------------------------------------------------
// a dump, when all threads stand and nothing of them is changed yet

static struct record* found;
static size_t found_count, found_room;

static bool note(struct record one) {
    if (found_count == found_room) {
        const size_t room = found_room == 0 ? 64 : 2 * found_room;
        struct record* const more = realloc(found, room * sizeof *found);
        if (more == NULL) return false;
        found = more;
        found_room = room;
    }
    found[found_count++] = one;
    return true;
}

struct set {
    int id, count;
    unsigned short* values;
};
static struct set* sets;
static int set_count;

static bool take_set(int id, int count, bool used) {
    struct set* const more = realloc(sets, (size_t)(set_count + 1) * sizeof *sets);
    unsigned short* const values = malloc((size_t)count * sizeof *values);
    if (more == NULL || values == NULL) return false;
    sets = more;
    sets[set_count++] = (struct set){id, count, values};
    if (semctl(id, 0, GETALL, values) != 0) return false;
    for (int i = 0; i < count && used; ++i) {
        const int pid = semctl(id, i, GETPID);
        if (pid >= 0 && !note((struct record){pid, id, i, 0, last, false})) return false;
    }
    return true;
}

static bool take_segments(void) {
    struct shm_info info;
    struct shmid_ds state;
    const int most = shmctl(0, SHM_INFO, (struct shmid_ds*)&info);
    for (int i = 0; i <= most && info.used_ids > 0; ++i) {
        const int id = shmctl(i, SHM_STAT, &state);
        const unsigned mode = id < 0 ? 0 : state.shm_perm.mode;
        if (((mode & SHM_DEST) != 0 && !note((struct record){.set = id, .kind = removed})) ||
            ((mode & SHM_LOCKED) != 0 && !note((struct record){.set = id, .kind = locked})))
            return false;
    }
    return true;
}

// A new queue has the room that the namespace gives.
static bool take_queues(void) {
    struct msginfo info;
    struct msqid_ds state;
    const int most = msgctl(0, MSG_INFO, (struct msqid_ds*)&info);
    for (int i = 0; i <= most && info.msgpool > 0; ++i) {
        const int id = msgctl(i, MSG_STAT, &state);
        if (id >= 0 && state.msg_qbytes <= INT32_MAX &&
            !note((struct record){.set = id, .undo = (int)state.msg_qbytes, .kind = queue_room}))
            return false;
    }
    return true;
}

static bool take_sets(void) {
    union {
        struct seminfo* info;
        struct semid_ds* state;
    } to;
    struct seminfo info;
    struct semid_ds state;
    to.info = &info;
    const int most = semctl(0, 0, SEM_INFO, to);
    to.state = &state;
    for (int i = 0; i <= most && info.semusz > 0; ++i) {
        const int id = semctl(i, 0, SEM_STAT, to);
        if (id >= 0 && !take_set(id, (int)state.sem_nsems, state.sem_otime != 0)) return false;
    }
    return most >= 0 && take_segments() && take_queues();
}

// Calls `look` in the namespace of that process's semaphores. `look` may return 1: the namespace is
// CRIU's own. Closes nothing on failure, because CRIU ends then.
static int visit(pid_t process, bool (*look)(void)) {
    char path[40];
    struct stat own_id, its_id;
    snprintf(path, sizeof path, "/proc/%d/ns/ipc", process);
    const int own = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/ns/ipc", O_RDONLY | O_CLOEXEC);
    const int its = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (own < 0 || its < 0 || fstat(own, &own_id) != 0 || fstat(its, &its_id) != 0) return -1;
    int done = own_id.st_ino == its_id.st_ino && own_id.st_dev == its_id.st_dev;
    if (done == 0) {
        if (setns(its, CLONE_NEWIPC) != 0) return -1;
        if (!look()) done = -1;
        if (setns(own, CLONE_NEWIPC) != 0) done = -1;
    }
    close(own);
    close(its);
    return done;
}

static bool shares(pid_t one, pid_t other) {
    return syscall(SYS_kcmp, one, other, KCMP_SYSVSEM, 0UL, 0UL) == 0;
}

static bool look_at_set(pid_t thread, const struct set* s, bool parted) {
    const int at_once = operations_max / for_one_max;
    for (int first = 0; first < s->count; first += at_once) {
        const int count = s->count - first < at_once ? s->count - first : at_once;
        // Less than 0, or more.
        long some = out_of_range(s->id, s->values, first, count, -undo_min);
        if (some == 0) some = out_of_range(s->id, s->values, first, count, -value_max);
        // The process has not changed semaphores that it may not change.
        if (some == -EACCES || some == -EPERM) return true;
        for (int i = first; i < first + count && some > 0; ++i) {
            struct record one = {thread, s->id, i, 0, undo, parted};
            const long failed = find_undo(s->id, s->values, i, &one.undo);
            if (failed < 0) some = failed;
            if (one.undo != 0 && !note(one)) some = -ENOMEM;
        }
        if (some >= 0) continue;
        refuse("cannot learn which semaphore operations of process %d are to be undone: %s", thread,
               strerror((int)-some));
        return false;
    }
    return true;
}

static bool look_at_thread(pid_t thread, bool parted) {
    const size_t before = found_count;
    if (!enter(thread)) {
        // The thread has ended; or no call can be made for it, and the values of its semaphores go
        // along alone.
        if (errno == ESRCH || errno == ENOENT || errno == ENOSYS) return true;
        refuse("cannot ask process %d what it has done to semaphores: %s", thread, strerror(errno));
        return false;
    }
    bool good = true;
    for (int i = 0; i < set_count && good; ++i) good = look_at_set(thread, &sets[i], parted);
    leave();
    pid_t other = 0;
    for (size_t i = 0; i < before && found_count > before; ++i) {
        if (found[i].kind != undo || found[i].thread == other) continue;
        other = found[i].thread;
        if (!shares(other, thread)) continue;
        refuse(
            "processes %d and %d share which semaphore operations are to be undone "
            "(CLONE_SYSVSEM)",
            other, thread);
        return false;
    }
    return good;
}

static bool write_records(void) {
    if (found_count == 0) return true;
    const int fd = open_image(IMAGE, O_WRONLY | O_CREAT | O_TRUNC);
    const ssize_t bytes = (ssize_t)(found_count * sizeof *found);
    const bool good = fd >= 0 && syscall(SYS_write, fd, found, (size_t)bytes) == bytes;
    if (!good) refuse("cannot write %s: %s", IMAGE, strerror(errno));
    if (fd >= 0) close(fd);
    return good;
}

bool dump_semaphores(const pid_t* threads, size_t count) {
    const int state = count == 0 ? 1 : visit(threads[0], take_sets);
    if (state < 0) refuse("cannot look at its semaphores: %s", strerror(errno));
    if (state != 0) return state > 0;
    for (size_t i = 0; i < count && set_count > 0; ++i) {
        const pid_t first = process_of(threads[i]);
        const bool other = first > 0 && first != threads[i];
        if (other && shares(first, threads[i])) continue;
        if (!look_at_thread(threads[i], other)) return false;
    }
    return write_records();
}

// -------------------------------------------------------------------------------------------------
// a restore, when all threads stand and have not run yet

static const struct record* asked;
static int value_now;

static int no_change(struct sembuf* out, int number, int value) {
    const short first = value < value_max ? 1 : -1;
    out[0] = (struct sembuf){(unsigned short)number, first, 0};
    out[1] = (struct sembuf){(unsigned short)number, (short)-first, 0};
    return 2;
}

static bool ask_value(void) {
    value_now = semctl(asked->set, asked->number, GETVAL);
    return value_now >= 0;
}

// Whoever was the last is not there any more.
static bool use_by_itself(void) {
    struct sembuf all[2];
    return semop(asked->set, all, (size_t)no_change(all, asked->number, value_now)) == 0;
}

// The process has the limits again that it had; a dump had raised them (criu_limits.c).
static bool enter_restored(pid_t thread) {
    const pid_t process = process_of(thread);
    if (enter(thread)) return true;
    if (errno != ENOMEM || !lift_limits(&process, 1)) return false;
    const bool entered = enter(thread);
    put_limits_back(0);
    return entered;
}

static bool in_thread(const struct record* r) {
    static pid_t parted;  // a second time, and it would undo what it has to undo by now
    struct sembuf all[for_one_max];
    if (!enter_restored(r->thread)) return false;
    long done = 0;
    if (r->kind == undo && r->parted && r->thread != parted) {
        parted = r->thread;
        done = call_in(r->thread, (const long[7]){SYS_unshare, CLONE_SYSVSEM});
    }
    const int n = r->kind == last ? no_change(all, r->number, value_now)
                                  : shift(all, r->number, value_now, -r->undo);
    if (done == 0) done = operate(r->set, all, n);
    leave();
    if (done < 0) errno = (int)-done;
    return done == 0;
}

static bool change_segment(void) {
    return shmctl(asked->set, asked->kind == removed ? IPC_RMID : SHM_LOCK, NULL) == 0;
}

// Only root may have given it more than a new queue has.
static bool give_room(void) {
    struct msginfo info;
    struct msqid_ds state;
    if (msgctl(asked->set, IPC_STAT, &state) != 0 ||
        msgctl(0, IPC_INFO, (struct msqid_ds*)&info) < 0)
        return false;
    const int wanted = must_be_users() && asked->undo > info.msgmnb ? info.msgmnb : asked->undo;
    if (wanted < 0 || state.msg_qbytes == (msglen_t)wanted) return true;
    state.msg_qbytes = (msglen_t)wanted;
    return msgctl(asked->set, IPC_SET, &state) == 0;
}

static bool restore_one(pid_t root) {
    const bool of_thread = asked->kind == undo || asked->kind == last;
    if (visit(root, asked->kind == queue_room ? give_room
                    : of_thread               ? ask_value
                                              : change_segment) != 0)
        return false;
    return !of_thread || in_thread(asked) ||
           (asked->kind == last && visit(root, use_by_itself) == 0);
}

// The records of who was last come after the others, as these change that.
static bool restore_of(pid_t root, const struct record* all, size_t count, bool lasts) {
    for (size_t i = 0; i < count; ++i) {
        asked = &all[i];
        if ((asked->kind == last) != lasts || restore_one(root)) continue;
        refuse("cannot restore all of the %s %d: %s",
               asked->kind == queue_room ? "queue of messages"
               : asked->kind > last      ? "shared memory"
                                         : "set of semaphores",
               asked->set, strerror(errno));
        return false;
    }
    return true;
}

bool restore_semaphores(pid_t root) {
    struct stat st;
    const int fd = open_image(IMAGE, O_RDONLY);
    if (fd < 0) return true;
    struct record* all = NULL;
    bool good = fstat(fd, &st) == 0 && (all = malloc((size_t)st.st_size + 1)) != NULL &&
                read(fd, all, (size_t)st.st_size) == (ssize_t)st.st_size;
    if (!good) refuse("cannot read %s", IMAGE);
    const size_t count = good ? (size_t)st.st_size / sizeof *all : 0;
    good = good && restore_of(root, all, count, false) && restore_of(root, all, count, true);
    free(all);
    close(fd);
    return good;
}
