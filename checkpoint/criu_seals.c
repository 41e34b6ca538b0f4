// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into CRIU: memory that a process has sealed (mseal(2)) is sealed again before it runs;
// so is it refused memory to write and to execute (PR_SET_MDWE), and what it maps from then on is
// locked (mlockall(2)), where it has asked for that.
//
// The kernel says a seal among the flags of each mapping, which CRIU reads when it dumps, and CRIU
// does not know that one. So it is looked for in what CRIU reads: to read it once more would cost
// as much again, and the job stands. The kernel seals mappings of its own (the vDSO) by itself. The
// other two each process is asked, the last one only if it has locked any memory at all.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

#define IMAGE "souk-seals"
enum { mseal = 462 };  // asm/unistd_64.h, of 6.10

enum kind { sealed, denied, locked };
enum { set_denied = 65, get_denied = 66, lock_future = 2, lock_on_fault = 4 };

struct rule {
    int32_t pid, kind;
    uint64_t first, second;  // where it begins and ends; of the others what was asked for
};

// -------------------------------------------------------------------------------------------------
// a dump

static void note(struct rule one) {
    const int fd = open_image(IMAGE, O_WRONLY | O_CREAT | O_APPEND);
    const bool good = fd >= 0 && syscall(SYS_write, fd, &one, sizeof one) == (ssize_t)sizeof one;
    if (fd >= 0) close(fd);
    if (good) return;
    refuse("cannot write which memory is sealed or locked: %s", strerror(errno));
    put_limits_back(0);
    _exit(1);  // the job goes on
}

static struct {
    int fd;  // the file smaps of a process, as long as CRIU reads it; else -1
    struct rule mapping;
    bool of_kernel;
    char line[192];  // cut off there
    size_t length;
} smaps = {.fd = -1};

// The number in the link of a directory /proc/PID, 0 of any other.
pid_t process_at(int directory) {
    char link[32], path[32];
    int pid = 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", directory);
    const ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = 0;
    return sscanf(path, "/proc/%d", &pid) == 1 ? pid : 0;
}

int watch_smaps(int directory, const char* name, int fd) {
    if (fd < 0 || strcmp(name, "smaps") != 0 || getenv("SOUK_DUMP") == NULL) return fd;
    const int error = errno;
    smaps.mapping = (struct rule){.pid = process_at(directory), .kind = sealed};
    smaps.fd = smaps.mapping.pid > 0 ? fd : -1;
    smaps.length = 0;
    errno = error;
    return fd;
}

static void end_line(void) {
    static const char flags[] = "VmFlags:";
    unsigned long begin, end;
    smaps.line[smaps.length] = 0;
    smaps.length = 0;
    if (strncmp(smaps.line, flags, sizeof flags - 1) == 0) {
        if (strstr(smaps.line, " sl") != NULL && !smaps.of_kernel) note(smaps.mapping);
    } else if (sscanf(smaps.line, "%lx-%lx ", &begin, &end) == 2) {
        smaps.mapping.first = begin;
        smaps.mapping.second = end;
        smaps.of_kernel = strstr(smaps.line, " [v") != NULL || strstr(smaps.line, " [uprobes]");
    }
}

static void look_at(const char* text, ssize_t size) {
    for (ssize_t i = 0; i < size; ++i) {
        if (text[i] == '\n')
            end_line();
        else if (smaps.length < sizeof smaps.line - 1)
            smaps.line[smaps.length++] = text[i];
    }
}

ssize_t look_at_read(int fd, const void* bytes, ssize_t n) {
    if (fd != smaps.fd || fd < 0) return n;
    look_at(bytes, n);
    if (n <= 0) smaps.fd = -1;
    return n;
}

static unsigned long locked_kb(pid_t process) {
    char path[32], line[128];
    unsigned long kb = 0;
    snprintf(path, sizeof path, "/proc/%d/status", process);
    FILE* const status = fopen(path, "re");
    while (status != NULL && fgets(line, sizeof line, status) != NULL)
        if (sscanf(line, "VmLck: %lu", &kb) == 1) break;
    if (status != NULL) fclose(status);
    return kb;
}

static bool is_there(pid_t process, unsigned long at) {
    char path[32];
    uint64_t page = 0;
    snprintf(path, sizeof path, "/proc/%d/pagemap", process);
    const int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    (void)!pread(fd, &page, sizeof page, (off_t)(at / 4096 * sizeof page));
    if (fd >= 0) close(fd);
    return page >> 63 != 0;
}

// Finds out whether a page that the process maps now is locked, and when.
static void ask_for_locks(pid_t process) {
    const unsigned long before = locked_kb(process);
    if (before == 0) return;
    const long at = call_in(process, (const long[7]){SYS_mmap, 0, 4096, PROT_READ | PROT_WRITE,
                                                     MAP_PRIVATE | MAP_ANONYMOUS, -1});
    const bool mapped = at > 0;
    const bool is_locked = mapped ? locked_kb(process) > before : at == -EAGAIN;
    const bool late = mapped && is_locked && !is_there(process, (unsigned long)at);
    if (mapped) call_in(process, (const long[7]){SYS_munmap, at, 4096});
    if (is_locked)
        note((struct rule){process, locked, lock_future | (late ? lock_on_fault : 0), 0});
}

void note_memory(const pid_t* processes, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        const long bits = call_in(processes[i], (const long[7]){SYS_prctl, get_denied});
        if (bits > 0) note((struct rule){processes[i], denied, (uint64_t)bits, 0});
        ask_for_locks(processes[i]);
    }
}

// -------------------------------------------------------------------------------------------------
// a restore

static int open_seals(void) { return open_image(IMAGE, O_RDONLY); }

bool can_seal(void) {
    const int error = errno;
    struct rule one;
    bool can = true;
    const int fd = open_seals();
    while (fd >= 0 && can && read(fd, &one, sizeof one) == (ssize_t)sizeof one)
        can = one.kind != sealed || syscall(mseal, 0, 0, 0) == 0;
    if (fd >= 0) close(fd);
    if (!can) refuse("it has sealed memory (mseal), and the kernel of this node seals none");
    errno = error;
    return can;
}

static long set_again(const struct rule* r) {
    const long first = (long)r->first;
    switch (r->kind) {
        case sealed:
            return call_in(r->pid, (const long[7]){mseal, first, (long)(r->second - r->first)});
        case denied: return call_in(r->pid, (const long[7]){SYS_prctl, set_denied, first});
        case locked: return call_in(r->pid, (const long[7]){SYS_mlockall, first});
        default: return -EINVAL;
    }
}

bool restore_seals(void) {
    struct rule one;
    long failed = 0;
    const int fd = open_seals();
    while (fd >= 0 && failed == 0 && read(fd, &one, sizeof one) == (ssize_t)sizeof one)
        failed = set_again(&one);
    if (failed != 0)
        refuse("cannot seal or lock memory of process %d again: %s", one.pid,
               strerror((int)-failed));
    if (fd >= 0) close(fd);
    return failed == 0;
}
