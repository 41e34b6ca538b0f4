// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into each CRIU of a job: files of a frozen job that others take away. A job that moves
// is away for a moment; one that lies on a disk may lie there for days, and what it has open by a
// name must be there when it thaws. In /tmp others clean up: a Java program removes the
// /tmp/hsperfdata file of each of its user's that does not run.
//
// If the image is to stay (it has the file below), a dump puts small files that the job has open or
// mapped there into it, and notes which directories there it has open or is in. A restore makes
// those that are gone again, as the job's user, before anything opens them, and lists them for who
// compares the files (checkpoint/open_files.cpp). Elsewhere nothing is made: who has renamed a
// directory, or not mounted its file system, brings it back, and a job that ran in an empty one in
// its stead would find nothing of its own.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"
#include "checkpoint/kept_files.h"

enum { file_bytes_max = 1 << 20, all_bytes_max = 16 << 20, seen_max = 256 };

// A record has this head, and then the file's path and its bytes.
struct kept_file {
    uint32_t path_bytes, bytes;
    uint32_t mode, uid, gid, directory_mode;  // a directory has S_IFDIR in its mode, and no bytes
    int64_t modified_s, modified_ns;
};

// Tells by the length of the directory's name in which of the directories the path is that are
// cleaned up; 0: in none.
static size_t length_of_place(const char* path) {
    static const char* const places[] = {"/tmp/", "/var/tmp/"};
    for (size_t i = 0; i < sizeof places / sizeof *places; ++i)
        if (strncmp(path, places[i], strlen(places[i])) == 0) return strlen(places[i]);
    return 0;
}
static bool is_cleaned(const char* path) { return length_of_place(path) != 0; }

// -------------------------------------------------------------------------------------------------
// a dump

// Directories have a count of their own: a job with many open would have none of its files kept.
static struct seen {
    size_t count;
    struct {
        dev_t device;
        ino_t inode;
    } of[seen_max];
} seen_files, seen_directories;
static size_t bytes_left = all_bytes_max;
static char content[file_bytes_max];

static bool is_new(struct seen* seen, const struct stat* st) {
    for (size_t i = 0; i < seen->count; ++i)
        if (seen->of[i].device == st->st_dev && seen->of[i].inode == st->st_ino) return false;
    if (seen->count == seen_max) return false;
    seen->of[seen->count].device = st->st_dev;
    seen->of[seen->count++].inode = st->st_ino;
    return true;
}

static mode_t mode_of_directory(const char* path) {
    char directory[PATH_MAX];
    struct stat st;
    snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(path, '/') - path), path);
    return lstat(directory, &st) == 0 ? st.st_mode & 07777 : 0700;
}

static int open_plainly(const char* path, int flags, mode_t mode) {
    struct open_how how = {.flags = (uint64_t)flags | O_CLOEXEC | O_NOFOLLOW,
                           .mode = mode,
                           .resolve = RESOLVE_NO_SYMLINKS};
    return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

// CRIU is root here: whoever has the name of a file may be one who may not read it, or may swap it.
// So only a file of the process's own user is kept, whom nobody can keep from reading it.
static void keep(const char* path, uid_t user, int out) {
    struct stat st;
    if (!is_cleaned(path) || lstat(path, &st) != 0) return;
    if (S_ISDIR(st.st_mode)) {
        const struct kept_file head = {.path_bytes = (uint32_t)strlen(path),
                                       .mode = st.st_mode,
                                       .uid = st.st_uid,
                                       .gid = st.st_gid,
                                       .modified_s = st.st_mtim.tv_sec,
                                       .modified_ns = st.st_mtim.tv_nsec};
        if (!is_new(&seen_directories, &st)) return;
        (void)!write(out, &head, sizeof head);
        (void)!write(out, path, head.path_bytes);
        return;
    }
    if (!S_ISREG(st.st_mode)) return;
    const int fd = open_plainly(path, O_RDONLY | O_NONBLOCK, 0);
    const bool kept = fd >= 0 && fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == user &&
                      st.st_size <= file_bytes_max && (size_t)st.st_size <= bytes_left &&
                      is_new(&seen_files, &st);
    const ssize_t n = kept ? pread(fd, content, (size_t)st.st_size, 0) : -1;
    if (fd >= 0) close(fd);
    if (n < 0 || n != st.st_size) return;
    const struct kept_file head = {.path_bytes = (uint32_t)strlen(path),
                                   .bytes = (uint32_t)n,
                                   .mode = st.st_mode & 07777,
                                   .uid = st.st_uid,
                                   .gid = st.st_gid,
                                   .directory_mode = mode_of_directory(path),
                                   .modified_s = st.st_mtim.tv_sec,
                                   .modified_ns = st.st_mtim.tv_nsec};
    bytes_left -= (size_t)n;
    (void)!write(out, &head, sizeof head);
    (void)!write(out, path, head.path_bytes);
    (void)!write(out, content, (size_t)n);
}

static void keep_mapped(const char* process, uid_t user, int out) {
    char path[64], line[PATH_MAX + 128];
    snprintf(path, sizeof path, "/proc/%s/maps", process);
    FILE* const maps = fopen(path, "re");
    while (maps != NULL && fgets(line, sizeof line, maps) != NULL) {
        char* const file = strchr(line, '/');
        if (file == NULL) continue;
        file[strcspn(file, "\n")] = 0;
        keep(file, user, out);
    }
    if (maps != NULL) fclose(maps);
}

static void keep_open(const char* process, uid_t user, int out) {
    char path[64], file[PATH_MAX];
    snprintf(path, sizeof path, "/proc/%s/cwd", process);
    const ssize_t length = readlink(path, file, sizeof file - 1);
    file[length < 0 ? 0 : length] = 0;
    keep(file, user, out);
    snprintf(path, sizeof path, "/proc/%s/fd", process);
    DIR* const all = opendir(path);
    for (struct dirent* one; all != NULL && (one = readdir(all)) != NULL;) {
        const ssize_t n = readlinkat(dirfd(all), one->d_name, file, sizeof file - 1);
        if (n <= 0) continue;
        file[n] = 0;
        keep(file, user, out);
    }
    if (all != NULL) closedir(all);
}

// Opening a file breaks a lease that is held of it (fcntl(2), F_SETLEASE).
static bool has_leases(void) {
    char line[256];
    bool found = false;
    FILE* const all = fopen("/proc/locks", "re");
    while (all != NULL && !found && fgets(line, sizeof line, all) != NULL)
        found = strstr(line, " LEASE ") != NULL || strstr(line, " DELEG ") != NULL;
    if (all != NULL) fclose(all);
    return found;
}

void keep_files(void) {
    if (has_leases()) return;
    const int out = open_image(SOUK_KEPT_FILES_NAME, O_WRONLY | O_APPEND);
    DIR* const all = out < 0 ? NULL : opendir("/proc");
    for (struct dirent* one; all != NULL && (one = readdir(all)) != NULL;) {
        if (atoi(one->d_name) <= 1 || atoi(one->d_name) == (int)syscall(SYS_getpid)) continue;
        uid_t user;
        gid_t group;
        if (!ids_of(atoi(one->d_name), &user, &group)) continue;
        keep_mapped(one->d_name, user, out);
        keep_open(one->d_name, user, out);
    }
    if (all != NULL) closedir(all);
    if (out >= 0) close(out);
}

// -------------------------------------------------------------------------------------------------
// a restore

// The file's directory may be gone with it.
static int make(const char* path, const struct kept_file* head) {
    char directory[PATH_MAX];
    const int fd = open_plainly(path, O_WRONLY | O_CREAT | O_EXCL, head->mode & 0777);
    if (fd >= 0 || errno != ENOENT) return fd;
    snprintf(directory, sizeof directory, "%.*s", (int)(strrchr(path, '/') - path), path);
    // One that lies in another one could be reached by a link of somebody's.
    if (!is_cleaned(directory) || strchr(directory + length_of_place(directory), '/') != NULL ||
        syscall(SYS_mkdirat, AT_FDCWD, directory, head->directory_mode & 0777) != 0)
        return -1;
    return open_plainly(path, O_WRONLY | O_CREAT | O_EXCL, head->mode & 0777);
}

// It is opened before it gets its mode, by which its owner may be forbidden to read it.
static int make_directory(const char* path) {
    char above[PATH_MAX];
    const char* const name = strrchr(path, '/') + 1;
    snprintf(above, sizeof above, "%.*s", (int)(name - path), path);
    const int parent = open_plainly(above, O_PATH | O_DIRECTORY, 0);
    const bool made = parent >= 0 && syscall(SYS_mkdirat, parent, name, 0700) == 0;
    if (parent >= 0) close(parent);
    return made ? open_plainly(path, O_RDONLY | O_DIRECTORY, 0) : -1;
}

// Returns true if it was gone and is there again.
static bool make_again(const char* path, const struct kept_file* head) {
    const bool is_directory = S_ISDIR(head->mode);
    struct stat st;
    if (lstat(path, &st) == 0 || errno != ENOENT) return false;
    const struct timespec times[2] = {{0, UTIME_NOW},
                                      {(time_t)head->modified_s, (long)head->modified_ns}};
    as_user();
    const int fd = is_directory ? make_directory(path) : make(path, head);
    const bool whole = fd >= 0 && fstat(fd, &st) == 0 &&
                       (is_directory || write(fd, content, head->bytes) == (ssize_t)head->bytes);
    if (whole) {
        (void)!fchown(fd, head->uid, head->gid);
        (void)!fchmod(fd, head->mode & (is_directory ? 07777 : 0777));
        (void)!futimens(fd, times);
    }
    as_agent();
    if (fd >= 0) close(fd);
    const int list = whole ? open_image(SOUK_MADE_AGAIN_NAME, O_WRONLY | O_CREAT | O_APPEND) : -1;
    if (list < 0) return whole;
    char inode[32];
    (void)!write(list, path, strlen(path) + 1);
    (void)!write(list, inode, (size_t)snprintf(inode, sizeof inode, "%lu", st.st_ino) + 1);
    close(list);
    return true;
}

// Returns true if it has made any.
static bool make_all(int fd, bool directories) {
    struct kept_file head;
    char path[PATH_MAX];
    bool made = false;
    (void)lseek(fd, 0, SEEK_SET);
    while (read(fd, &head, sizeof head) == (ssize_t)sizeof head && head.path_bytes < sizeof path &&
           head.bytes <= file_bytes_max &&
           read(fd, path, head.path_bytes) == (ssize_t)head.path_bytes &&
           read(fd, content, head.bytes) == (ssize_t)head.bytes) {
        path[head.path_bytes] = 0;
        if (S_ISDIR(head.mode) == directories && is_cleaned(path) && make_again(path, &head))
            made = true;
    }
    return made;
}

void make_files_again(void) {
    if (is_trial()) return;
    const int fd = open_image(SOUK_KEPT_FILES_NAME, O_RDONLY);
    if (fd < 0) return;
    // agentd reads the list. It may have some already: of a restore before this one, which failed,
    // or of a helper that CRIU has made before the first process.
    const int list = open_image(SOUK_MADE_AGAIN_NAME, O_WRONLY | O_CREAT | O_APPEND);
    if (list >= 0) (void)!fchmod(list, 0644);
    if (list >= 0) close(list);
    // One may have been noted before the one that it lies in. Who removes them meanwhile does not
    // keep this going.
    for (int tries = 0; tries < seen_max && make_all(fd, true);) ++tries;
    make_all(fd, false);
    close(fd);
}
