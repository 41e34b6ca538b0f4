// SPDX-License-Identifier: GPL-2.0-or-later
// The control groups as a job sees them: the capsule's own group is the top of each hierarchy. A
// file of its group so has the same name on each node, whatever the group is called there, and CRIU
// opens it again. Without this a program that keeps its limits open (cpu.max) could move once,
// because the name of its group goes away with the first capsule.
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agentd/init/init.hpp"

namespace souk::init {
namespace {
constexpr size_t hierarchies_max = 32;

// One line of /proc/self/cgroup, proc_pid_cgroup(5): `4:cpu,cpuacct:/souk/n1/jobs/c7`.
struct Hierarchy {
    const char* controllers;  // "": version 2
    const char* group;
};

struct Hierarchies {
    char text[16 * 1024];
    Hierarchy each[hierarchies_max];
    size_t count;
};

bool read_hierarchies(Hierarchies* all) {
    FILE* const file = fopen("/proc/self/cgroup", "re");
    const size_t n = file ? fread(all->text, 1, sizeof all->text - 1, file) : 0;
    if (file) fclose(file);
    if (n == 0) return false;
    char* next = all->text;
    while (all->count < hierarchies_max) {
        char* const line = strsep(&next, "\n");
        if (!line) break;
        char* const controllers = strchr(line, ':');
        char* const group = controllers ? strchr(controllers + 1, ':') : nullptr;
        if (!group) continue;
        *group = 0;
        all->each[all->count++] = {controllers + 1, group + 1};
    }
    return true;
}

bool has_word(const char* list, const char* word, size_t n) {
    for (; *list != 0; list += strcspn(list, ",") + (list[strcspn(list, ",")] == ','))
        if (strcspn(list, ",") == n && strncmp(list, word, n) == 0) return true;
    return false;
}

// The group of the hierarchy that is mounted so; null: this process is in none that is known.
const char* group_in(const Hierarchies& all, const char* type, const char* options) {
    const bool second = strcmp(type, "cgroup2") == 0;
    if (!second && strcmp(type, "cgroup") != 0) return nullptr;
    for (size_t i = 0; i < all.count; ++i) {
        const char* const own = all.each[i].controllers;
        if (second ? *own == 0 : *own != 0 && has_word(options, own, strcspn(own, ",")))
            return all.each[i].group;
    }
    return nullptr;
}

// The mount is replaced, and not covered: Java takes the first one that /proc/self/mountinfo names.
void put_in_place(const char* path, const char* point) {
    constexpr unsigned clone = 1, from_fd = 4;  // OPEN_TREE_CLONE, MOVE_MOUNT_F_EMPTY_PATH
    const auto tree = static_cast<int>(syscall(SYS_open_tree, AT_FDCWD, path, clone | O_CLOEXEC));
    if (tree < 0) return say(path, errno);
    umount2(point, MNT_DETACH);  // what may not be taken away is covered
    if (syscall(SYS_move_mount, tree, "", AT_FDCWD, point, from_fd) != 0) say(point, errno);
    close(tree);
}

// Puts the directory of this process's group in the place of its hierarchy's mount. `line` is one
// of proc_pid_mountinfo(5), and is changed.
void narrow_mount(const Hierarchies& all, char* line) {
    constexpr size_t words_max = 32;
    enum { root = 3, point = 4 };
    char* word[words_max];
    size_t count = 0, dash = 0;
    for (char* one; count < words_max && (one = strsep(&line, " \n")); ++count) {
        word[count] = one;
        if (dash == 0 && count > point && strcmp(one, "-") == 0) dash = count;
    }
    if (dash == 0 || dash + 3 >= count) return;
    const char* group = group_in(all, word[dash + 1], word[dash + 3]);
    if (!group) return;
    // A mount may show a part of its hierarchy, as in a container.
    if (strcmp(word[root], "/") != 0) {
        const size_t n = strlen(word[root]);
        if (strncmp(group, word[root], n) != 0 || (group[n] != 0 && group[n] != '/')) return;
        group += n;
    }
    if (strcmp(group, "") == 0 || strcmp(group, "/") == 0) return;
    char path[1024];
    const int n = snprintf(path, sizeof path, "%s%s", word[point], group);
    if (n >= static_cast<int>(sizeof path)) return say(word[point], ENAMETOOLONG);
    put_in_place(path, word[point]);
}
}  // namespace

void set_up_groups() {
    static Hierarchies all;
    FILE* const mounts = read_hierarchies(&all) ? fopen("/proc/self/mountinfo", "re") : nullptr;
    if (!mounts) return say("read its control groups", errno);
    static char buffer[16 * 1024];  // the C library's own asks for a few lines at a time
    setvbuf(mounts, buffer, _IOFBF, sizeof buffer);
    char* line = nullptr;
    size_t size = 0;
    while (getline(&line, &size, mounts) > 0)
        if (strstr(line, " - cgroup")) narrow_mount(all, line);
    free(line);
    fclose(mounts);
    // Afterwards: until here the table tells groups by their names on this node.
    if (unshare(CLONE_NEWCGROUP) != 0) say("a view of control groups of its own", errno);
}

}  // namespace souk::init
