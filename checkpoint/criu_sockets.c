// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that restores, so that a restore that fails takes no name from the sockets
// of its source, and so that sockets may be made that a setting of the job's own network allowed
// (set_network, before the first of them).
//
// Before CRIU binds a socket to its name it removes the file of that name (criu/sk-unix.c,
// unlink_sk). If both see the same file system, that file is the frozen source's own, which nobody
// can bind again. So the file gets another name here meanwhile, and a list in the image directory
// says so; checkpoint/kept_sockets.hpp gives the name back, or removes the file.
#define _GNU_SOURCE
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"
#include "kernel/sys/process/init_protocol.h"

static bool bound;  // what is removed now, CRIU has made itself

// Tells whether the process sees the file system as the agent does; only then the agent can find
// the names.
static bool has_nodes_root(void) {
    char root[2];
    return readlink("/proc/self/root", root, sizeof root) == 1 && root[0] == '/';
}

// Notes both names in the list, each ended by a zero, below the path of the directory that holds
// the socket without symbolic links: the agent comes to it later, and follows none.
static bool note(int directory, const char* kept, const char* base) {
    char link[32], path[PATH_MAX], pair[2 * PATH_MAX + 2 * NAME_MAX + 8];
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0 || path[0] != '/') return false;
    path[length == 1 ? 0 : length] = 0;
    const int first = snprintf(pair, sizeof pair, "%s/%s", path, kept);
    const int second =
        snprintf(pair + first + 1, sizeof pair - (size_t)first - 1, "%s/%s", path, base);
    const ssize_t all = first + 1 + second + 1;
    as_agent();  // the image is not the user's
    const int list = open_image("souk-sockets", O_WRONLY | O_CREAT | O_APPEND);
    const bool written = list >= 0 && syscall(SYS_write, list, pair, (size_t)all) == all;
    if (list >= 0) close(list);
    as_user();
    return written;
}

// The job's owner may change the path at any time: it is looked up once, and all is done in that
// directory.
static bool keep(const char* name) {
    char parent[PATH_MAX], kept[48];
    struct stat st;
    const char* slash = strrchr(name, '/');
    const char* base = slash == NULL ? name : slash + 1;
    if (!has_nodes_root() || (size_t)(base - name) >= sizeof parent) return false;
    snprintf(parent, sizeof parent, "%.*s", (int)(base - name), name);
    const int directory = open(parent[0] != 0 ? parent : ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (directory < 0) return false;
    bool done = fstatat(directory, base, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(st.st_mode);
    snprintf(kept, sizeof kept, ".souk-%lu", (unsigned long)st.st_ino);
    done = done && note(directory, kept, base) && renameat(directory, base, directory, kept) == 0;
    close(directory);
    return done;
}

// Souk-init has saved them (agentd/init/kernel_state.cpp). It cannot put them back: CRIU may begin
// before it.
void set_network(void) {
    static const char* const settings[SOUK_NETWORK_VALUES] = SOUK_NETWORK_SETTINGS;
    char values[SOUK_NETWORK_VALUES][SOUK_NETWORK_VALUE_MAX];
    open_trial_network();
    if (!has_own_network()) return;  // what an image says of the node's is not to be done
    const int file = open_image(SOUK_NETWORK_NAME, O_RDONLY);
    if (file < 0) return;
    const bool whole = syscall(SYS_read, file, values, sizeof values) == sizeof values;
    close(file);
    for (int i = 0; i < SOUK_NETWORK_VALUES && whole; ++i) {
        const size_t n = strnlen(values[i], sizeof values[i]);
        const int fd =
            n == 0 || n == sizeof values[i] ? -1 : open(settings[i], O_WRONLY | O_CLOEXEC);
        if (fd < 0) continue;
        (void)!syscall(SYS_write, fd, values[i], n);
        close(fd);
    }
}

int unlinkat(int directory, const char* name, int flags) {
    struct stat st;
    const bool of_the_source = getenv("SOUK_DUMP") == NULL && !bound && directory == AT_FDCWD &&
                               flags == 0 && lstat(name, &st) == 0 && S_ISSOCK(st.st_mode);
    if (of_the_source && is_trial()) return 0;
    if (of_the_source) {
        as_user();
        const bool kept = keep(name);
        as_agent();
        if (kept) return 0;
    }
    return unlink_of_job(directory, name, flags);
}

int bind(int fd, const struct sockaddr* address, socklen_t length) {
    int other;
    if (bind_for_trial(fd, address, length, &other)) return other;
    if (address->sa_family == AF_UNIX && length > sizeof address->sa_family &&
        address->sa_data[0] != 0)
        bound = true;
    if (address->sa_family != AF_UNIX) return passed_over(bind_plainly(fd, address, length));
    as_user();  // who makes the socket's file is its owner
    const int done = (int)syscall(SYS_bind, fd, address, length);
    as_agent();
    return done;
}
