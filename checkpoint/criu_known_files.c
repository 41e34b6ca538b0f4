// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores: a file whose name the job has deleted, and which has
// another, CRIU finds by a name that the dump has given it (link_remap.N). Of a job that went on
// that name is gone again. Another name in the same directory will do: it is known by the inode,
// which the list of the image has.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

enum { bytes_max = 256 << 20 };

// A file as the list of the image has it: each of its fields is text that ends with a zero
// (checkpoint/open_files.cpp, OpenFiles::encode).
struct listed {
    const char* path;
    uint64_t device, inode;
};
static struct listed* all;
static size_t count;
static bool one_kernel;

static char* text_of_file(int fd, size_t* bytes) {
    struct stat st;
    const bool good = fd >= 0 && fstat(fd, &st) == 0 && st.st_size <= bytes_max;
    char* const text = good ? malloc((size_t)st.st_size + 1) : NULL;
    *bytes = 0;
    for (ssize_t n = 1; text != NULL && n > 0 && *bytes < (size_t)st.st_size; *bytes += (size_t)n)
        if ((n = syscall(SYS_read, fd, text + *bytes, (size_t)st.st_size - *bytes)) < 0) n = 0;
    if (text != NULL) text[*bytes] = 0;
    return text;
}

static int by_path(const void* a, const void* b) {
    return strcmp(((const struct listed*)a)->path, ((const struct listed*)b)->path);
}

static bool is_this_kernel(const char* boot) {
    char now[64];
    const int fd =
        (int)syscall(SYS_openat, AT_FDCWD, "/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? 0 : syscall(SYS_read, fd, now, sizeof now - 1);
    if (fd >= 0) close(fd);
    now[n < 0 ? 0 : n] = 0;
    return strcmp(now, boot) == 0;
}

void know_files(void) {
    enum { head, boot, first, path = 2, device = 5, inode = 6, each = 11 };
    if (all != NULL) return;  // the process that made this one has read it
    const int fd = open_image("souk-files", O_RDONLY);
    size_t bytes, strings = 0;
    char* const text = text_of_file(fd, &bytes);
    if (fd >= 0) close(fd);
    for (size_t i = 0; i < bytes; ++i) strings += text[i] == 0;
    if (strings <= first || (all = malloc(strings / each * sizeof *all + 1)) == NULL) return;
    const char *at = text, *of[each] = {NULL};
    for (size_t i = 0; i < strings; at += strlen(at) + 1, ++i) {
        if (i == boot) one_kernel = is_this_kernel(at);
        if (i < first) continue;
        of[(i - first) % each] = at;
        if ((i - first) % each == each - 1)
            all[count++] = (struct listed){of[path], strtoull(of[device], NULL, 10),
                                           strtoull(of[inode], NULL, 10)};
    }
    qsort(all, count, sizeof *all, by_path);
}

// Looks a file up whose name CRIU has without its first slash. NULL: it is not listed.
static const struct listed* find(const char* name, size_t bytes, const char* end,
                                 char path[PATH_MAX]) {
    if (bytes + strlen(end) + 2 > PATH_MAX) return NULL;
    snprintf(path, PATH_MAX, "/%.*s%s", (int)bytes, name, end);
    const struct listed wanted = {.path = path};
    return bsearch(&wanted, all, count, sizeof *all, by_path);
}

bool is_name_of_dump(const char* path) {
    static const char given[] = "link_remap.";
    const char* const slash = strrchr(path, '/');
    return getenv("SOUK_DUMP") == NULL &&
           strncmp(slash == NULL ? path : slash + 1, given, sizeof given - 1) == 0;
}

// `at`: a directory with the names below it.
static bool has_inode(int at, const char* name, const struct listed* one) {
    struct statx st;
    return syscall(SYS_statx, at, name, AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_TYPE, &st) == 0 &&
           S_ISREG(st.stx_mode) && st.stx_ino == one->inode &&
           makedev(st.stx_dev_major, st.stx_dev_minor) == one->device;
}

bool find_other_name(int directory, const char* deleted, char other[PATH_MAX]) {
    char path[PATH_MAX];
    const char* const slash = strrchr(deleted, '/');
    const struct listed* const one = find(deleted, strlen(deleted), " (deleted)", path);
    if (one == NULL || slash == NULL || !one_kernel) return false;
    const int length = (int)(slash - deleted);
    snprintf(path, sizeof path, "%.*s", length, deleted);
    as_user();
    const int at = (int)syscall(SYS_openat, directory, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* const names = at < 0 ? NULL : fdopendir(at);
    bool found = false;
    for (struct dirent* name; names != NULL && !found && (name = readdir(names)) != NULL;) {
        found = name->d_ino == one->inode && has_inode(at, name->d_name, one);
        if (found) snprintf(other, PATH_MAX, "%.*s/%.255s", length, deleted, name->d_name);
    }
    as_agent();
    if (names != NULL)
        closedir(names);
    else if (at >= 0)
        close(at);
    return found;
}
