// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into CRIU, for an epoll that watches a file which its process has closed and another
// process still has open, as in servers that fork: the kernel goes on telling of it, by the number
// that the file had.
//
// CRIU looks for what an epoll watches among the descriptors of the process that it finds the epoll
// in, and refuses (criu/eventpoll.c). Here it does not see such a number in /proc/PID/fdinfo, nor
// what else is watched by it; a list beside the image says who has those files. When all is
// restored, they are watched as before: of a file and the number by which it was added the kernel
// keeps no more than these, whoever adds it.
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/kcmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

#define LIST "souk-epolls"
static const char kind[] = "anon_inode:[eventpoll]";

struct watched {
    int32_t pid, epoll;  // who has the epoll
    int32_t holder, fd;  // who has the file
    int32_t number;      // by which it was added
    uint32_t events;
    uint64_t data;
};

// -------------------------------------------------------------------------------------------------
// at a dump

struct line {
    const char* text;
    size_t length;
    int number;
    unsigned nth;  // of those with the same number
    uint32_t events;
    uint64_t data;
    unsigned long inode;  // of the file; 0: the kernel does not say
    bool watches;
};

// CRIU has just looked at this: it asks for /proc/PID/fdinfo of a descriptor, then for that of its
// own copy.
static pid_t looked_pid;
static int looked_fd;

static long compare(pid_t other, int type, unsigned long fd, unsigned long with) {
    return syscall(SYS_kcmp, other, syscall(SYS_getpid), type, fd, with);
}

static bool is_target(pid_t process, int fd, int epoll, const struct line* l) {
    struct kcmp_epoll_slot slot = {(uint32_t)epoll, (uint32_t)l->number, l->nth};
    const long same = compare(process, KCMP_EPOLL_TFD, (unsigned long)fd, (unsigned long)&slot);
    // A kernel that cannot tell: as CRIU takes it.
    return same == 0 || (same < 0 && errno != EBADF);
}

void looked_at(pid_t* process, int* fd) {
    *process = looked_pid;
    *fd = looked_fd;
}

void refuse_of(const char* what, const char* when) {
    refuse("%s of process %d (file %d); it can move %s", what, looked_pid, looked_fd, when);
}

static char* read_all(int fd) {
    size_t room = 4096, size = 0;
    char* text = malloc(room);
    for (ssize_t n = 1; text != NULL && n > 0; size += (size_t)n) {
        if (room - size < 2048) {
            char* const more = realloc(text, room *= 2);
            if (more == NULL) free(text);
            text = more;
            if (text == NULL) return NULL;
        }
        n = syscall(SYS_read, fd, text + size, room - size - 1);
        if (n < 0) n = 0;
    }
    if (text != NULL) text[size] = 0;
    return text;
}

static size_t lines_of(const char* text, struct line** all) {
    size_t count = 0, room = 0;
    *all = NULL;
    while (*text != 0) {
        const char* const end = strchrnul(text, '\n');
        if (count == room) {
            struct line* const more = realloc(*all, (room = 2 * room + 16) * sizeof **all);
            if (more == NULL) return 0;
            *all = more;
        }
        struct line* const l = &(*all)[count++];
        *l = (struct line){.text = text, .length = (size_t)(end - text) + (*end != 0)};
        unsigned long long data;
        l->watches =
            sscanf(text, "tfd: %d events: %x data: %llx", &l->number, &l->events, &data) == 3 &&
            l->number >= 0;
        if (l->watches) l->data = data;
        const char* const inode = l->watches ? strstr(text, " ino:") : NULL;
        if (inode != NULL && inode < end) l->inode = strtoul(inode + 5, NULL, 16);
        text += l->length;
    }
    return count;
}

// The files that are open in processes which CRIU holds: they stand, so that one look is enough.
static struct held_file {
    pid_t process;
    int fd;
    unsigned long inode;
} * held;
static size_t held_count, held_room;

static void hold_files_of(pid_t process) {
    char path[40];
    struct stat st;
    snprintf(path, sizeof path, "/proc/%d/fd", process);
    DIR* const files = opendir(path);
    for (struct dirent* f; files != NULL && (f = readdir(files)) != NULL;) {
        // Such a name in /proc is a link to the file itself.
        if (f->d_name[0] == '.' || syscall(SYS_newfstatat, dirfd(files), f->d_name, &st, 0) != 0)
            continue;
        if (held_count == held_room) {
            struct held_file* const more = realloc(held, (2 * held_room + 64) * sizeof *held);
            if (more == NULL) break;
            held = more;
            held_room = 2 * held_room + 64;
        }
        held[held_count++] = (struct held_file){process, atoi(f->d_name), st.st_ino};
    }
    if (files != NULL) closedir(files);
}

static void look_at_held_files(void) {
    static bool looked;
    if (looked) return;
    looked = true;
    DIR* const processes = opendir("/proc");
    for (struct dirent* p; processes != NULL && (p = readdir(processes)) != NULL;) {
        const pid_t pid = (pid_t)atol(p->d_name);
        if (pid > 0 && is_held(pid)) hold_files_of(pid);
    }
    if (processes != NULL) closedir(processes);
}

bool is_open_in_job(int fd) {
    struct stat st;
    const pid_t own = (pid_t)syscall(SYS_getpid);
    look_at_held_files();
    if (fstat(fd, &st) != 0) return false;
    for (size_t i = 0; i < held_count; ++i)
        if (held[i].inode == st.st_ino &&
            syscall(SYS_kcmp, held[i].process, own, KCMP_FILE, held[i].fd, fd) == 0)
            return true;
    return false;
}

// A job whose files need more of them is not taken, as it would stand too long.
enum { comparisons_max = 1 << 20 };
static size_t comparisons;

// The file must be open in a process that CRIU holds. Only files of the same inode are compared,
// and first the one behind the last that was found: what has one inode for all (an eventfd) lies
// there mostly in the order in which it is watched.
static bool find_holder(int epoll, const struct line* l, struct watched* w) {
    static size_t next;
    look_at_held_files();
    for (size_t i = 0; i < held_count; ++i) {
        const size_t at = (next + i) % held_count;
        const struct held_file* const h = &held[at];
        if (l->inode != 0 && l->inode != h->inode) continue;
        if (++comparisons > comparisons_max) return false;
        if (!is_target(h->process, h->fd, epoll, l)) continue;
        w->holder = h->process;
        w->fd = h->fd;
        next = at + 1;
        return true;
    }
    return false;
}

// A dump that has failed may have left one.
int append_to_image(const char* name) {
    static char begun[3][24];
    bool again = false;
    for (size_t i = 0; i < sizeof begun / sizeof *begun && !again; ++i) {
        again = strcmp(begun[i], name) == 0;
        if (again || begun[i][0] != 0) continue;
        strcpy(begun[i], name);
        break;
    }
    return open_image(name, O_WRONLY | O_CREAT | (again ? O_APPEND : O_TRUNC));
}

static bool note(int epoll, const struct line* l) {
    struct watched w = {looked_pid, looked_fd, 0, 0, l->number, l->events, l->data};
    if (!find_holder(epoll, l, &w)) {
        refuse(
            "the epoll of process %d (file %d) watches file %d, which %s; it can move when the "
            "epoll is closed",
            looked_pid, looked_fd, l->number,
            comparisons > comparisons_max ? "other processes of the job have open, among too many"
                                          : "no process of the job has open any more");
        return false;
    }
    const int list = append_to_image(LIST);
    const bool noted = list >= 0 && syscall(SYS_write, list, &w, sizeof w) == sizeof w;
    if (list >= 0) close(list);
    return noted;
}

// The numbers by which a file was added that is not the one that the process has by it now. Null:
// there are none.
static bool* strange_numbers(struct line* all, size_t count, int epoll) {
    int most = -1;
    bool any = false;
    for (size_t i = 0; i < count; ++i)
        if (all[i].watches && all[i].number > most) most = all[i].number;
    unsigned* const nth = calloc((size_t)most + 1, sizeof *nth);
    bool* const strange = calloc((size_t)most + 1, sizeof *strange);
    for (size_t i = 0; i < count && nth != NULL && strange != NULL; ++i) {
        struct line* const l = &all[i];
        if (!l->watches) continue;
        l->nth = nth[l->number]++;
        if (is_target(looked_pid, l->number, epoll, l)) continue;
        strange[l->number] = any = true;
    }
    free(nth);
    if (any) return strange;
    free(strange);
    return NULL;
}

// A copy without these lines; -1: errno.
static int without(const struct line* all, size_t count, const bool* strange, int epoll) {
    const int copy = (int)syscall(SYS_memfd_create, "souk-fdinfo", MFD_CLOEXEC);
    bool good = copy >= 0;
    for (size_t i = 0; i < count && good; ++i)
        good = all[i].watches && strange[all[i].number]
                   ? note(epoll, &all[i])
                   : syscall(SYS_write, copy, all[i].text, all[i].length) == (long)all[i].length;
    if (good && lseek(copy, 0, SEEK_SET) == 0) return copy;
    if (copy >= 0) close(copy);
    errno = EIO;
    return -1;
}

static bool is_epoll(int fd) {
    char link[40], target[sizeof kind];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    const ssize_t n = readlink(link, target, sizeof target);
    return n == sizeof kind - 1 && memcmp(target, kind, sizeof kind - 1) == 0 &&
           compare(looked_pid, KCMP_FILE, (unsigned long)looked_fd, (unsigned long)fd) == 0;
}

int shown_fdinfo(int directory, const char* path, int info) {
    char link[32], process[PATH_MAX];
    if (info < 0 || getenv("SOUK_DUMP") == NULL) return info;
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    const ssize_t n = readlink(link, process, sizeof process - 1);
    process[n < 0 ? 0 : n] = 0;
    const char* const slash = strrchr(process, '/');
    const pid_t pid = slash == NULL ? 0 : (pid_t)atol(slash + 1);
    const int fd = atoi(strchr(path, '/') + 1);
    if (pid != syscall(SYS_getpid)) {
        looked_pid = pid;
        looked_fd = fd;
        return info;
    }
    if (!is_epoll(fd)) return info;
    struct line* all;
    char* const text = read_all(info);
    const size_t count = text == NULL ? 0 : lines_of(text, &all);
    bool* const strange = count == 0 ? NULL : strange_numbers(all, count, fd);
    int shown = info;
    if (strange != NULL) {
        shown = without(all, count, strange, fd);
        close(info);
    } else {
        (void)lseek(info, 0, SEEK_SET);
    }
    free(strange);
    if (text != NULL) free(all);
    free(text);
    return shown;
}

// -------------------------------------------------------------------------------------------------
// at a restore, while all threads stand

// CRIU may have a file of its own by that number, which stands aside meanwhile.
static void watch(int epoll, int file, const struct watched* w) {
    struct epoll_event event = {.events = w->events, .data.u64 = w->data};
    const int aside = (int)syscall(SYS_fcntl, w->number, F_DUPFD_CLOEXEC, w->number + 1);
    if (dup2(file, w->number) == w->number) {
        epoll_ctl(epoll, EPOLL_CTL_ADD, w->number, &event);
        close(w->number);
    }
    if (aside < 0) return;
    dup2(aside, w->number);
    close(aside);
}

// A descriptor with another number than that, and above it.
static int above(int fd, int number) {
    const int moved = fd < 0 ? -1 : (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, number + 1);
    if (fd >= 0) close(fd);
    return moved;
}

void watch_again(void) {
    struct watched w;
    const int list = open_image(LIST, O_RDONLY);
    while (list >= 0 && syscall(SYS_read, list, &w, sizeof w) == sizeof w) {
        if (w.number < 0) continue;
        const int epoll = above(file_of(w.pid, w.epoll), w.number);
        const int file = above(file_of(w.holder, w.fd), w.number);
        if (epoll >= 0 && file >= 0) watch(epoll, file, &w);
        if (epoll >= 0) close(epoll);
        if (file >= 0) close(file);
    }
    if (list >= 0) close(list);
}
