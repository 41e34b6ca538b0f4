// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores: files are known by their inodes, which the list of the image
// has (checkpoint/open_files.hpp).
//
// - A file whose name the job has deleted, and which has another, CRIU finds by a name that the
//   dump has given it (link_remap.N). Of a job that went on that name is gone again. Another name
//   in the same directory will do.
// - CRIU takes a file for another one if its length or its mode differs from what it was. Others
//   may change both of a file that the job shares with them: a database, a log. If the inode is the
//   same, CRIU reads an image without the two. A program or a library keeps them, since CRIU
//   compares its build id with them: one that was written over is another program. What the
//   capsule lays over files of the kernel is another text on each node.
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"
#include "kernel/sys/process/laid_over.h"

enum { bytes_max = 256 << 20 };

// A file as the list of the image has it: each of its fields is text that ends with a zero
// (checkpoint/open_files.cpp, OpenFiles::encode).
struct listed {
    const char *path, *type;
    uint64_t device, inode;
};
static struct listed* all;
static size_t count;
static bool known, one_kernel;

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
    enum { head, boot, first, path = 2, type = 3, device = 5, inode = 6, each = 11 };
    if (known) return;  // this process has read it, or the one that made it
    known = true;
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
            all[count++] = (struct listed){of[path], of[type], strtoull(of[device], NULL, 10),
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
    know_files();
    return count == 0 ? NULL : bsearch(&wanted, all, count, sizeof *all, by_path);
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

// -------------------------------------------------------------------------------------------------
// lengths and modes

// Files of the job's home (agentd/init/setup.cpp) are compared before the job runs, on whatever
// node, by a number that only who knows the home's tree can reckon; so is one without that name.
static bool is_the_same(const char* name, size_t bytes) {
    char path[PATH_MAX];
    const struct listed* one = find(name, bytes, " (deleted)", path);
    if (one != NULL) return one_kernel;
    if (bytes + 2 > sizeof path) return false;
    snprintf(path, sizeof path, "/%.*s", (int)bytes, name);
    if (souk_is_laid_over(path)) return true;
    if ((one = find(name, bytes, "", path)) == NULL) return false;
    if (strcmp(one->type, "fuse.souk") == 0) return true;
    as_user();
    const bool same = one_kernel && has_inode(AT_FDCWD, path, one);
    as_agent();
    return same;
}

// Gives both members of a reg_file_entry (images/regfile.proto) a number that CRIU does not know.
static void set_free(struct bytes file, unsigned char* image) {
    enum { name = 6, size = 8, mode = 10, build_id = 11, unknown = 15 };
    size_t found[8], count_found = 0;
    struct bytes path = {NULL, NULL};
    const unsigned char* const begin = file.at;
    for (struct member m; next_member(&file, &m);) {
        if (m.number == build_id) return;
        if (m.number == name) path = m.inner;
        if ((m.number == size || m.number == mode) && *m.tag == m.number << 3 && count_found < 8)
            found[count_found++] = (size_t)(m.tag - begin);
    }
    if (file.at != file.end || path.at == NULL || path.at == path.end || *path.at != '/' ||
        !is_the_same((const char*)path.at + 1, (size_t)(path.end - path.at) - 1))
        return;
    for (size_t i = 0; i < count_found; ++i) image[found[i]] = unknown << 3;
}

// The image has two numbers, and then messages of the kind file_entry (images/fdinfo.proto), each
// with its length before it.
static void set_all_free(char* image, size_t bytes) {
    enum { head = 8, regular = 3 };
    uint32_t length;
    for (size_t at = head; at + sizeof length <= bytes; at += length) {
        memcpy(&length, image + at, sizeof length);
        at += sizeof length;
        if (length > bytes - at) return;
        struct bytes entry = {(unsigned char*)image + at, (unsigned char*)image + at + length};
        for (struct member m; next_member(&entry, &m);)
            if (m.number == regular && m.inner.at != m.inner.end)
                set_free(m.inner, (unsigned char*)image + (m.inner.at - (unsigned char*)image));
    }
}

int image_of_files(const char* name, int fd) {
    if (fd < 0 || strcmp(name, "files.img") != 0 || getenv("SOUK_DUMP") != NULL) return fd;
    size_t bytes, done = 0;
    char* const image = text_of_file(fd, &bytes);
    const int copy = (int)syscall(SYS_memfd_create, name, MFD_CLOEXEC);
    if (image != NULL) set_all_free(image, bytes);
    for (ssize_t n = 1; image != NULL && copy >= 0 && n > 0 && done < bytes; done += (size_t)n)
        if ((n = syscall(SYS_pwrite64, copy, image + done, bytes - done, done)) < 0) n = 0;
    free(image);
    if (done == bytes && done > 0) {
        close(fd);
        return copy;
    }
    // CRIU reads it as it is, and finds other lengths.
    if (copy >= 0) close(copy);
    (void)!syscall(SYS_lseek, fd, 0, SEEK_SET);
    return fd;
}
