// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that dumps: which locks of files the job has. The list is written beside
// the image, for who takes them over and hands them on (criu_locks.c).
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "checkpoint/criu_locks.h"
#include "checkpoint/criu_user.h"
#include "kernel/sys/store/served_locks.h"

struct souk_locks_head locks_head;
struct souk_lock locks[souk_locks_max];
bool locks_noted;
bool locks_are_on_way;

static struct file { uint64_t device, inode; } files[souk_locks_max];  // by its lock

void read_boot(char boot[sizeof locks_head.boot]) {
    memset(boot, 0, sizeof locks_head.boot);
    const int fd =
        (int)syscall(SYS_openat, AT_FDCWD, "/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) (void)!read(fd, boot, sizeof locks_head.boot - 1);
    if (fd >= 0) close(fd);
}

bool stat_of(pid_t pid, int fd, struct statx* st) {
    char path[48];
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    return syscall(SYS_statx, AT_FDCWD, path, AT_STATX_DONT_SYNC, STATX_INO | STATX_NLINK, st) == 0;
}

// Two that were set by one description are one lock of it; those of a process are of its files.
static bool same_lock(uint32_t known, const struct souk_lock* b, const struct file* file) {
    const struct souk_lock* const a = &locks[known];
    if (a->kind != b->kind || a->start != b->start || a->length != b->length ||
        files[known].device != file->device || files[known].inode != file->inode)
        return false;
    return a->kind == souk_lock_posix
               ? a->pid == b->pid
               : syscall(SYS_kcmp, a->pid, b->pid, KCMP_FILE, a->fd, b->fd) == 0;
}

// Others see a file that has a name, outside of what is the capsule's own. What a server of files
// serves for this capsule alone is in its hands.
static bool others_see(const struct souk_lock* lock, const struct statx* its) {
    enum { fuse_magic = 0x65735546 };
    static const char* const own[] = {"/run", "/dev/shm"};
    char path[48];
    struct statx of_own;
    struct statfs fs;
    if (its->stx_nlink == 0) return false;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", lock->pid, lock->fd);
    if (statfs(path, &fs) != 0 || fs.f_type == fuse_magic) return false;
    for (size_t i = 0; i < sizeof own / sizeof *own; ++i)
        if (syscall(SYS_statx, AT_FDCWD, own[i], AT_STATX_DONT_SYNC, STATX_INO, &of_own) == 0 &&
            of_own.stx_dev_major == its->stx_dev_major &&
            of_own.stx_dev_minor == its->stx_dev_minor)
            return false;
    return true;
}

static bool is_write_only(const struct souk_lock* lock) {
    char path[48], text[256];
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", lock->pid, lock->fd);
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (n <= 0) return false;
    text[n] = 0;
    const char* const flags = strstr(text, "flags:\t");
    return flags != NULL && (strtoul(flags + 7, NULL, 8) & O_ACCMODE) == O_WRONLY;
}

// An entry of CRIU's (images/file-lock.proto): each of its fields is a number.
static bool parse_entry(struct bytes b, struct souk_lock* lock) {
    enum { flag = 1, type, pid, fd, start, length };
    uint64_t of[length + 1] = {0};
    for (struct member m; b.at < b.end;) {
        if (!next_member(&b, &m) || m.has_bytes) return false;
        if (m.number <= length) of[m.number] = m.value;
    }
    *lock = (struct souk_lock){.pid = (int32_t)of[pid],
                               .fd = (int32_t)of[fd],
                               .kind = (uint8_t)of[flag],
                               .writes = of[type] == F_WRLCK,
                               .start = of[start],
                               .length = of[length]};
    return of[type] == F_WRLCK || of[type] == F_RDLCK;
}

// Returns whether it is one that is new.
static bool add(struct souk_lock lock) {
    struct statx its;
    if (locks_head.count == souk_locks_max || !stat_of(lock.pid, lock.fd, &its)) return false;
    const struct file file = {(uint64_t)its.stx_dev_major << 32 | its.stx_dev_minor, its.stx_ino};
    for (uint32_t i = 0; i < locks_head.count; ++i)
        if (same_lock(i, &lock, &file)) return false;
    lock.kept = others_see(&lock, &its) && can_call(lock.pid);
    lock.write_only = lock.kind != souk_lock_flock && is_write_only(&lock);
    locks_head.kept += lock.kept;
    files[locks_head.count] = file;
    locks[locks_head.count++] = lock;
    return true;
}

static bool kind_named(const char* name, uint8_t* kind) {
    static const struct {
        const char* name;
        uint8_t kind;
    } kinds[] = {{"POSIX", souk_lock_posix}, {"FLOCK", souk_lock_flock}, {"OFDLCK", souk_lock_ofd}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i)
        if (strcmp(name, kinds[i].name) == 0) {
            *kind = kinds[i].kind;
            return true;
        }
    return false;
}

// "lock: 1: POSIX ADVISORY WRITE PID FILE START END" of the descriptors by which it was set. Of
// POSIX locks alone, or of all.
static void add_locks_of(pid_t pid, bool all_kinds) {
    char path[64], line[256], kind[8], type[8], end[24];
    snprintf(path, sizeof path, "/proc/%d/fdinfo", pid);
    DIR* const all = opendir(path);
    for (struct dirent* one; all != NULL && (one = readdir(all)) != NULL;) {
        snprintf(path, sizeof path, "/proc/%d/fdinfo/%.11s", pid, one->d_name);
        FILE* const info = one->d_name[0] == '.' ? NULL : fopen(path, "re");
        while (info != NULL && fgets(line, sizeof line, info) != NULL) {
            unsigned long long start;
            struct souk_lock lock = {.pid = pid, .fd = atoi(one->d_name)};
            if (sscanf(line, "lock: %*d: %7s %*s %7s %*d %*s %llu %23s", kind, type, &start, end) !=
                    4 ||
                !kind_named(kind, &lock.kind) || (!all_kinds && lock.kind != souk_lock_posix))
                continue;
            lock.writes = strcmp(type, "WRITE") == 0;
            lock.start = start;
            lock.length = strcmp(end, "EOF") == 0 ? 0 : strtoull(end, NULL, 10) + 1 - start;
            (void)add(lock);
        }
        if (info != NULL) fclose(info);
    }
    if (all != NULL) closedir(all);
}

// A descriptor on its way CRIU takes for the holder of the locks of its file, and forgets those of
// the processes that have the same file open (criu/files.c, dump_my_file).
static void add_of_all(void) {
    size_t count;
    const pid_t* const threads = held_threads(&count);
    for (size_t i = 0; i < count; ++i)
        if (process_of(threads[i]) == threads[i]) add_locks_of(threads[i], true);
}

// CRIU takes one process for the holder of all that is set by a description, and overlooks what
// other processes have set by the same one (criu/file-lock.c, discard_dup_locks_tail). The kernel
// says whose each is: "1: POSIX ADVISORY WRITE PID FILE START END", here with those of the job.
static void add_posix(void) {
    char line[256];
    FILE* const all = fopen("/proc/locks", "re");
    while (all != NULL && fgets(line, sizeof line, all) != NULL) {
        pid_t owner;
        if (sscanf(line, "%*d: POSIX %*s %*s %d", &owner) != 1 || owner <= 0) continue;
        bool known = false;
        for (uint32_t i = 0; i < locks_head.count && !known; ++i) known = locks[i].pid == owner;
        if (!known) add_locks_of(owner, false);
    }
    if (all != NULL) fclose(all);
}

static void add_entry(struct bytes entry) {
    struct souk_lock lock;
    if (!parse_entry(entry, &lock)) return;
    if (lock.kind == souk_lock_flock || lock.kind == souk_lock_ofd) (void)add(lock);
}

// -------------------------------------------------------------------------------------------------
// with the job's home

static long ask_home_by(const struct souk_lock* lock, struct flock* range) {
    const int command = lock->kind == souk_lock_posix ? F_GETLK : F_OFD_GETLK;
    range->l_type = F_WRLCK;
    return call_and_read(lock->pid, (const long[7]){SYS_fcntl, lock->fd, command}, 3, range,
                         sizeof *range);
}

bool is_of_index(const struct souk_lock* lock) {
    char path[48], name[4096];
    if (lock->kind != souk_lock_posix || lock->start != souk_index_byte || lock->length != 1)
        return false;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", lock->pid, lock->fd);
    const ssize_t n = readlink(path, name, sizeof name - 1);
    const size_t end = strlen(souk_index_ends);
    return n > (ssize_t)end && memcmp(name + n - end, souk_index_ends, end) == 0;
}

static uint32_t number_of(const struct souk_lock* lock, uint32_t number) {
    if (lock->kind == souk_lock_flock) return number | souk_locks_of_flock;
    return is_of_index(lock) ? number | souk_locks_of_index : number;
}

long ask_home(const struct souk_lock* lock, uint32_t question, uint32_t number) {
    struct flock range = {.l_start = (off_t)souk_locks_begin(question, number_of(lock, number)),
                          .l_len = (off_t)souk_locks_secret(locks_head.token)};
    const struct flock asked = range;
    const long done = ask_home_by(lock, &range);
    if (done < 0) return done;
    // If no home serves the file, somebody may hold a lock of all of it.
    return range.l_type != F_UNLCK && range.l_start == asked.l_start && range.l_len == asked.l_len;
}

bool may_be_served(pid_t pid, int fd, const struct statx* its) {
    enum { known_max = 16 };
    static struct known {
        uint32_t major, minor;
        bool is_fuse;
    } all[known_max];
    static size_t count;
    char path[48];
    struct statfs fs;
    for (size_t i = 0; i < count; ++i)
        if (all[i].major == its->stx_dev_major && all[i].minor == its->stx_dev_minor)
            return all[i].is_fuse;
    snprintf(path, sizeof path, "/proc/%d/fd/%d", pid, fd);
    const bool is_fuse = statfs(path, &fs) == 0 && fs.f_type == FUSE_SUPER_MAGIC;
    if (count < known_max)
        all[count++] = (struct known){its->stx_dev_major, its->stx_dev_minor, is_fuse};
    return is_fuse;
}

// All ranges of one holder have one number.
static long add_ranges_of(struct souk_lock lock) {
    static uint32_t holders;
    const struct souk_lock of = lock;
    bool is_new = false;
    // A home that says the same range again and again is heard so often at most.
    for (uint32_t n = 0; n < souk_locks_max && locks_head.count < souk_locks_max; ++n) {
        struct flock range = {
            .l_start = (off_t)souk_locks_begin(souk_locks_range, number_of(&of, n)),
            .l_len = (off_t)souk_locks_secret(locks_head.token)};
        const long done = ask_home_by(&lock, &range);
        if (done < 0) return done;
        if (range.l_type == F_UNLCK) break;
        lock.writes = range.l_type == F_WRLCK;
        lock.start = (uint64_t)range.l_start;
        lock.length = (uint64_t)range.l_len;
        lock.served = holders + 1;
        is_new = add(lock) || is_new;
    }
    if (!is_new) return 0;
    const long done = ask_home(&of, souk_locks_mark, ++holders);
    return done < 0 ? done : 0;
}

// The first question tells whether there is anything to ask.
static long add_served_of(pid_t pid, bool* are_some) {
    static const uint8_t kinds[] = {souk_lock_flock, souk_lock_ofd, souk_lock_posix};
    char path[32];
    long done = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    DIR* const all = opendir(path);
    for (struct dirent* one; all != NULL && *are_some && done >= 0 && (one = readdir(all));) {
        struct souk_lock lock = {.pid = pid, .fd = atoi(one->d_name), .kind = souk_lock_posix};
        struct statx its;
        if (one->d_name[0] == '.' || !stat_of(pid, lock.fd, &its) ||
            (its.stx_mode & S_IFMT) != S_IFREG || !may_be_served(pid, lock.fd, &its))
            continue;
        static bool asked;
        if (!asked) done = ask_home(&lock, souk_locks_any, 0);
        if (!asked && done == 0) *are_some = false;
        asked = true;
        if (done >= 0 && *are_some) done = ask_home(&lock, souk_locks_any, 1);
        for (size_t k = 0; done > 0 && k < sizeof kinds; ++k) {
            lock.kind = kinds[k];
            if ((done = add_ranges_of(lock)) == 0) done = 1;
        }
        lock.start = souk_index_byte;
        lock.length = 1;
        if (done > 0 && is_of_index(&lock)) done = add_ranges_of(lock);
    }
    if (all != NULL) closedir(all);
    return done == -EINVAL || done == -ENOSYS ? 0 : done;
}

static bool add_served(void) {
    size_t count;
    const pid_t* const threads = held_threads(&count);
    bool are_some = true;
    pid_t first = 0;
    for (size_t i = 0; i < count && are_some; ++i) {
        if (first != 0 && is_thread_of(first, threads[i])) continue;
        first = threads[i];
        const long done = can_call(first) ? add_served_of(first, &are_some) : 0;
        if (done >= 0) continue;
        refuse("its home does not say which locks of files process %d holds: %s", first,
               strerror((int)-done));
        errno = EAGAIN;
        return false;
    }
    return true;
}

// -------------------------------------------------------------------------------------------------
// all of them

bool note_locks(void) {
    enum { magics = 8, entry_max = 128 };
    unsigned char entry[entry_max];
    uint32_t size;
    if (getrandom(locks_head.token, sizeof locks_head.token, 0) != (ssize_t)sizeof locks_head.token)
        return true;
    add_posix();
    if (locks_are_on_way) add_of_all();
    const int image = open_image("filelocks.img", O_RDONLY);
    if (image >= 0 && lseek(image, magics, SEEK_SET) == magics)
        while (read(image, &size, sizeof size) == (ssize_t)sizeof size && size <= entry_max &&
               read(image, entry, size) == (ssize_t)size)
            add_entry((struct bytes){entry, entry + size});
    if (image >= 0) close(image);
    if (!add_served()) return false;
    if (locks_head.count == 0) return true;
    if (locks_head.count == souk_locks_max) {
        refuse("it holds more than %d locks of files", souk_locks_max - 1);
        errno = EFBIG;
        return false;
    }
    locks_noted = true;
    read_boot(locks_head.boot);
    const int out = open_image(SOUK_LOCKS_NAME, O_WRONLY | O_CREAT | O_TRUNC);
    const ssize_t bytes = (ssize_t)(locks_head.count * sizeof *locks);
    if (out < 0 || write(out, &locks_head, sizeof locks_head) != (ssize_t)sizeof locks_head ||
        write(out, locks, (size_t)bytes) != bytes)
        locks_head.count = locks_head.kept = 0;
    if (out >= 0) close(out);
    return true;
}
