// SPDX-License-Identifier: GPL-2.0-or-later
// The kernel keeps these things for the job outside of its processes, and CRIU, which takes the
// processes alone, leaves them behind. POSIX message queues cannot be carried, nor what a job of
// root mounts: a job that has one does not move. Settings of a network of its own can be carried. A
// connection that no process has open cannot: the program at its other end hears that it is gone
// (checkpoint/criu_cut_off.c).
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agentd/init/records.hpp"

namespace souk::init {
namespace {
// The kernel asks these when a program makes a socket: they can forbid it.
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

// Whoever waits at the other end hears nothing without them. (include/net/tcp_states.h)
bool has_words_to_come(unsigned state) {
    enum {
        established = 1,
        syn_received = 3,
        fin_wait1 = 4,
        close_wait = 8,
        last_ack,
        closing = 11
    };
    return state == established || state == syn_received || state == fin_wait1 ||
           state == close_wait || state == last_ack || state == closing;
}

// A connection that a program has not accepted, or has closed before all was delivered, has no
// inode. Format: proc_net_tcp.rst of the kernel; addresses are words as they lie in memory.
bool save_cut_off(const char* table, int family, Records* out) {
    FILE* const file = fopen(table, "re");
    char line[256], local[33], remote[33];
    bool good = true;
    while (file && good && fgets(line, sizeof line, file)) {
        unsigned local_port, remote_port, state;
        unsigned long inode;
        if (sscanf(line, "%*d: %32[0-9A-F]:%x %32[0-9A-F]:%x %x %*x:%*x %*x:%*x %*x %*u %*u %lu",
                   local, &local_port, remote, &remote_port, &state, &inode) != 6 ||
            inode != 0 || !has_words_to_come(state))
            continue;
        souk_cut_off one = {};
        one.family = static_cast<uint16_t>(family);
        one.local_port = static_cast<uint16_t>(local_port);
        one.remote_port = static_cast<uint16_t>(remote_port);
        for (int i = 0; i < (family == AF_INET ? 1 : 4); ++i) {
            uint32_t word;
            if (sscanf(local + 8 * i, "%8x", &word) == 1) memcpy(one.local + 4 * i, &word, 4);
            if (sscanf(remote + 8 * i, "%8x", &word) == 1) memcpy(one.remote + 4 * i, &word, 4);
        }
        good = out->add(&one, sizeof one);
    }
    if (file) fclose(file);
    return good;
}

// Mounts the file system of message queues where nobody sees it.
int mount_queues() {
    constexpr int attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC;
    const int fs = static_cast<int>(syscall(SYS_fsopen, "mqueue", FSOPEN_CLOEXEC));
    if (fs < 0) return -1;
    const bool made = syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) == 0;
    const long fd = made ? syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attributes) : -1;
    close(fs);
    return static_cast<int>(fd);
}

// Visits what is mounted in the capsule: a number for each that says which mount it is and where.
template <class Visit>
void each_mount(Visit visit) {
    static char line[4096];
    bool begins = true;
    FILE* const file = fopen("/proc/self/mountinfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        char number[16], device[24], place[SOUK_WHAT_MAX / 2];
        if (begins && sscanf(line, "%15s %*s %23s %*s %127s", number, device, place) == 3) {
            uint64_t sum = 0xcbf29ce484222325;  // FNV-1a
            const char* const texts[] = {number, device, place};
            for (const char* text : texts)
                for (; *text != 0; ++text)
                    sum = (sum ^ static_cast<unsigned char>(*text)) * 0x100000001b3;
            visit(sum, place);
        }
        begins = strchr(line, '\n') != nullptr;
    }
    if (file) fclose(file);
}

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
    return found;
}
}  // namespace

void note_mounts() {
    constexpr size_t mounts_max = 65'536;
    size_t count = 0;
    each_mount([&](uint64_t, const char*) { ++count; });
    free(g.mounts);
    g.mounts =
        count > mounts_max ? nullptr : static_cast<uint64_t*>(calloc(count, sizeof *g.mounts));
    g.mount_count = 0;
    each_mount([&](uint64_t sum, const char*) {
        if (g.mounts && g.mount_count < count) g.mounts[g.mount_count++] = sum;
    });
}

// A mount of the machine's may go: the kernel takes it away in all namespaces when its directory is
// removed.
const char* find_what_stays() {
    static char what[SOUK_WHAT_MAX];
    const char* found = find_message_queue();
    each_mount([&](uint64_t sum, const char* place) {
        if (found || !g.mounts) return;
        for (size_t i = 0; i < g.mount_count; ++i)
            if (g.mounts[i] == sum) return;
        snprintf(what, sizeof what, "cannot move: it has mounted something in its capsule (at %s)",
                 place);
        found = what;
    });
    if (found) errno = EOPNOTSUPP;
    return found;
}

void set_ping_groups(const char* groups) { write_value(settings[0], groups); }

const char* network_save(int image_dir) {
    if (!g.own_net) return nullptr;
    Records cut_off = {image_dir, SOUK_CUT_OFF_NAME};
    if (!save_cut_off("/proc/net/tcp", AF_INET, &cut_off) ||
        !save_cut_off("/proc/net/tcp6", AF_INET6, &cut_off))
        return "write which connections are cut off";
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
