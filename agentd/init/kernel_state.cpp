// SPDX-License-Identifier: GPL-2.0-or-later
// What the kernel keeps for the job outside of its processes, and CRIU, which takes the processes
// alone, leaves behind. POSIX message queues cannot be carried: a job that has one does not move.
// Settings of a network of its own can.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agentd/init/init.hpp"

namespace souk::init {
namespace {
// Whether a socket may be made at all depends on them.
constexpr const char* settings[SOUK_NETWORK_VALUES] = SOUK_NETWORK_SETTINGS;
constexpr size_t value_max = SOUK_NETWORK_VALUE_MAX;

bool read_value(const char* path, char (&value)[value_max]) {
    memset(value, 0, sizeof value);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = fd < 0 ? -1 : read(fd, value, sizeof value - 1);
    if (fd >= 0) close(fd);
    return n > 0;
}

void write_value(const char* path, const char* value) {
    const int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, value, strlen(value)) < 0) say(path, errno);
    if (fd >= 0) close(fd);
}

// Their file system, mounted where nobody sees it.
int mount_queues() {
    constexpr int attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    const int fs = static_cast<int>(syscall(SYS_fsopen, "mqueue", FSOPEN_CLOEXEC));
    if (fs < 0) return -1;
    const bool made = syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0;
    const long fd = made ? syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attributes) : -1;
    close(fs);
    return static_cast<int>(fd);
}
}  // namespace

const char* find_message_queue() {
    static char what[SOUK_WHAT_MAX];
    if (g.queues < 0) g.queues = mount_queues();
    if (g.queues < 0) return nullptr;  // a kernel without them
    const int fd = openat(g.queues, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* names = fd < 0 ? nullptr : fdopendir(fd);
    if (!names) {
        if (fd >= 0) close(fd);
        return nullptr;
    }
    const char* found = nullptr;
    while (const struct dirent* name = readdir(names)) {
        if (strcmp(name->d_name, ".") == 0 || strcmp(name->d_name, "..") == 0) continue;
        snprintf(what, sizeof what, "cannot move: it has a POSIX message queue (/%.200s)",
                 name->d_name);
        found = what;
        break;
    }
    closedir(names);
    if (found) errno = EOPNOTSUPP;
    return found;
}

void set_ping_groups(const char* groups) { write_value(settings[0], groups); }

const char* network_save(int image_dir) {
    if (!g.own_net) return nullptr;
    char values[SOUK_NETWORK_VALUES][value_max];
    size_t i = 0;
    for (const char* path : settings)
        if (!read_value(path, values[i++])) values[i - 1][0] = 0;  // a kernel without it
    const int fd = create_at(image_dir, SOUK_NETWORK_NAME, O_TRUNC);
    const bool good = fd >= 0 && write_all(fd, values, sizeof values);
    const int code = errno;
    if (fd >= 0) close(fd);
    errno = code;
    return good ? nullptr : "write the settings of its network";
}

}  // namespace souk::init
