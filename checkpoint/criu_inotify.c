// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores: who watches files hears when notices are lost
// (IN_Q_OVERFLOW), as the kernel says it when too many wait.
//
// CRIU only makes the watches again. Notices that wait in an inotify at a dump are lost, as are
// those of what happens to the files while the job is moved or frozen: a file that is watched, or
// one in a directory that is watched, has changed since. A program that hears of an overflow looks
// for itself.
//
// The kernel says so when as many notices wait as may (fs.inotify.max_queued_events), and nobody
// can have it say so otherwise. So here that many come of a file that nobody else knows, and are
// read again, all but the last, which says it.
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"
#include "kernel/sys/process/init_protocol.h"

#ifndef INOTIFY_IOC_SETNEXTWD
#define INOTIFY_IOC_SETNEXTWD _IOW('I', 0, int32_t)
#endif

static long most_waiting(void) {
    char text[24] = "";
    const int fd =
        (int)syscall(SYS_openat, AT_FDCWD, "/proc/sys/fs/inotify/max_queued_events", O_RDONLY);
    if (fd >= 0) (void)!syscall(SYS_read, fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    return atol(text);
}

static void leave_last(int inotify) {
    const int last = sizeof(struct inotify_event);
    int waiting = 0;
    if (syscall(SYS_ioctl, inotify, FIONREAD, &waiting) != 0 || waiting <= last) return;
    char* const room = malloc((size_t)waiting);
    if (room == NULL) return;
    (void)!syscall(SYS_read, inotify, room, waiting - last);
    free(room);
}

// One write is told of the file and of its directory: of two notices that are the same the kernel
// keeps one.
static void fill(int inotify, const char* directory, const char* name, int file) {
    const int above = (int)syscall(SYS_inotify_add_watch, inotify, directory, IN_MODIFY);
    const int own = (int)syscall(SYS_inotify_add_watch, inotify, name, IN_MODIFY);
    for (long n = most_waiting(); n >= 0; n -= 2) (void)!pwrite(file, "", 1, 0);
    // Nobody is told of that: there is no room.
    inotify_rm_watch(inotify, own);
    inotify_rm_watch(inotify, above);
    leave_last(inotify);
    // The next one has the number that it would have had.
    if (above > 0) syscall(SYS_ioctl, inotify, INOTIFY_IOC_SETNEXTWD, above);
}

static void tell_lost(int inotify) {
    char directory[40], name[48];
    int waiting = 0;
    const bool told = syscall(SYS_ioctl, inotify, FIONREAD, &waiting) == 0 &&
                      waiting == (int)sizeof(struct inotify_event);
    if (told) return;
    // The directory is in the capsule's own /run. Several processes are restored at a time, so each
    // has its own.
    snprintf(directory, sizeof directory, "/run/souk-inotify.%ld", syscall(SYS_getpid));
    snprintf(name, sizeof name, "%s/file", directory);
    syscall(SYS_mkdirat, AT_FDCWD, directory, 0700);
    const int file =
        (int)syscall(SYS_openat, AT_FDCWD, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file >= 0) fill(inotify, directory, name, file);
    if (file >= 0) close(file);
    syscall(SYS_unlinkat, AT_FDCWD, name, 0);
    syscall(SYS_unlinkat, AT_FDCWD, directory, AT_REMOVEDIR);
}

// -------------------------------------------------------------------------------------------------
// names

// The kernel may have forgotten the name of a file that is watched and not open. CRIU would note
// its handle alone then, by which it opens nothing when it restores (criu/mount.c,
// read_mnt_ns_img), and the job could never go on. So it is told that the handle leads nowhere: it
// looks for the name in /etc and other places (criu/irmap.c), or ends the dump, and the job runs
// on.
static bool has_no_name(int file) {
    char link[40], name[3];
    struct stat st;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    return fstat(file, &st) == 0 && st.st_nlink > 0 && !S_ISDIR(st.st_mode) &&
           readlink(link, name, sizeof name) == 1;
}

// CRIU opens handles and makes processes, and does little else, by this one.
long syscall(long number, ...) {
    static long (*real)(long, ...);
    long word[6];
    va_list rest;
    va_start(rest, number);
    for (int i = 0; i < 6; ++i) word[i] = va_arg(rest, long);
    va_end(rest);
    if (real == NULL) real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    if (number == SYS_clone3) keep_exit_signal((struct clone_args*)word[0]);
    const long done = real(number, word[0], word[1], word[2], word[3], word[4], word[5]);
    if (number != SYS_open_by_handle_at || done < 0 || getenv("SOUK_DUMP") == NULL ||
        !has_no_name((int)done))
        return done;
    refuse("the name of a file that it watches is not known: it has to be looked up once");
    close((int)done);
    errno = ESTALE;
    return -1;
}

// -------------------------------------------------------------------------------------------------
// changes since the dump

static struct souk_notified then;  // one of them, since all are of one dump
static bool known;

void know_notices(void) {
    const int list = open_image(SOUK_NOTIFIED_NAME, O_RDONLY);
    known = list >= 0 && syscall(SYS_read, list, &then, sizeof then) == sizeof then;
    if (list >= 0) close(list);
}

// The inodes of what is watched and has changed. CRIU's processes find them, and its first process
// tells of them when all is restored: CRIU reads and drops what waits in an inotify before that.
enum { inodes_max = 500 };
static struct {
    unsigned count;  // with more than there is room for, all count as changed
    unsigned long long inodes[inodes_max];
} * changed_files;

__attribute__((constructor)) static void share_changed(void) {
    changed_files = shared_in_restore(sizeof *changed_files);
}

static void note_changed(ino_t inode) {
    const unsigned at =
        changed_files == NULL ? 0 : __atomic_fetch_add(&changed_files->count, 1, __ATOMIC_RELAXED);
    if (changed_files != NULL && at < inodes_max) changed_files->inodes[at] = inode;
}

static bool has_changed(int inotify) {
    if (changed_files == NULL || changed_files->count == 0) return false;
    if (changed_files->count > inodes_max) return true;
    char path[40], line[256];
    bool one = false;
    unsigned long long inode;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", inotify);
    FILE* const watches = fopen(path, "re");
    while (watches != NULL && !one && fgets(line, sizeof line, watches) != NULL) {
        if (sscanf(line, "inotify wd:%*x ino:%llx", &inode) != 1) continue;
        for (unsigned i = 0; i < changed_files->count; ++i)
            one |= changed_files->inodes[i] == inode;
    }
    if (watches != NULL) fclose(watches);
    return one;
}

static bool later(const struct stat* st) {
    // The kernel's clock for files goes by its ticks.
    enum { tick_ns = 10 * 1000 * 1000 };
    const int64_t since =
        (st->st_ctim.tv_sec - then.seen) * 1000 * 1000 * 1000 + st->st_ctim.tv_nsec - then.seen_ns;
    return since > -tick_ns;
}

static bool changed(const char* path) {
    enum { looked_at_max = 10000 };  // with more it takes a change for granted
    struct stat st;
    if (stat(path, &st) != 0 || later(&st)) return true;
    DIR* const files = S_ISDIR(st.st_mode) ? opendir(path) : NULL;
    bool one = S_ISDIR(st.st_mode) && files == NULL;
    static int count;  // of all that its process watches
    for (struct dirent* f; files != NULL && !one && (f = readdir(files)) != NULL;)
        one = ++count > looked_at_max ||
              (syscall(SYS_newfstatat, dirfd(files), f->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
               strcmp(f->d_name, "..") != 0 && later(&st));
    if (files != NULL) closedir(files);
    return one;
}

// CRIU has opened what the image names by a handle, which leads past all directories. So the user
// must come to it by its name, too; what has none any more must be his.
static bool may_find(const char* link) {
    static const char deleted[] = " (deleted)";
    char name[PATH_MAX];
    struct stat is, found;
    const ssize_t n = readlink(link, name, sizeof name - 1);
    if (n <= 0 || stat(link, &is) != 0) return false;
    name[n] = 0;
    const size_t behind = sizeof deleted - 1;
    if ((size_t)n > behind && strcmp(name + n - behind, deleted) == 0)
        return is.st_uid == user_id();
    as_user();
    const bool same =
        stat(name, &found) == 0 && found.st_ino == is.st_ino && found.st_dev == is.st_dev;
    as_agent();
    return same;
}

// CRIU makes a watch again, in the process that is to have it.
int inotify_add_watch(int inotify, const char* path, uint32_t events) {
    if (must_be_users() && !may_find(path)) {
        refuse("a watch of its image is of a file that its user does not find");
        errno = EACCES;
        return -1;
    }
    as_user();
    const int watch = (int)syscall(SYS_inotify_add_watch, inotify, path, events);
    struct stat st;
    if (watch >= 0 && known && stat(path, &st) == 0 && changed(path)) note_changed(st.st_ino);
    as_agent();
    return watch;
}

static bool is_one_of(int fd, const int* all, size_t count) {
    const long own = syscall(SYS_getpid);
    for (size_t i = 0; i < count; ++i)
        if (syscall(SYS_kcmp, own, own, KCMP_FILE, (long)fd, (long)all[i]) == 0) return true;
    return false;
}

void tell_of_lost_notices(void) {
    struct souk_notified one;
    int* told = NULL;
    size_t count = 0;
    const int list = open_image(SOUK_NOTIFIED_NAME, O_RDONLY);
    while (list >= 0 && syscall(SYS_read, list, &one, sizeof one) == sizeof one) {
        int* const more = realloc(told, (count + 1) * sizeof *told);
        const int inotify = more == NULL ? -1 : file_of(one.pid, one.fd);
        if (more != NULL) told = more;
        if (inotify < 0) continue;
        // Several processes may have it open.
        const bool lost = one.waits || has_changed(inotify);
        if (lost && !is_one_of(inotify, told, count)) tell_lost(inotify);
        told[count++] = inotify;
    }
    while (count > 0) close(told[--count]);
    free(told);
    if (list >= 0) close(list);
}
