// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into a CRIU that dumps: a process with mappings that CRIU cannot make again
// (own_mappings.h) does not move.
//
// Neither does one that waits for files by io_submit(2) (IOCB_CMD_POLL). CRIU makes its context
// anew, and not what was asked there: the process would wait for ever. All else that is asked there
// is done a moment later.
//
// No kernel says what has been asked and not yet answered. But a request stays in the memory of its
// process, since the answer names it by its address, and has a form that nothing else has: the
// kernel wants zeros in half of it, and a file of few kinds. So we look for one in the memory of
// the few processes that have a context, as far as they have touched it. Small mappings come first,
// as the heap, the stacks of threads and what a library has of its own are such. After bytes_max we
// look no further: a server with much memory, which reads files in this way, could never move.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"
#include "kernel/sys/process/own_mappings.h"

enum { page = 4096, pages = 256, bytes_max = 256 << 20, small = 16 << 20 };
enum answer { no, yes, cannot_tell };

// The kernel takes a poll of these alone.
static bool can_be_polled(pid_t process, uint32_t fd) {
    static const char* const kinds[] = {"socket:", "pipe:", "anon_inode:", "/dev/"};
    char path[48], link[16];
    snprintf(path, sizeof path, "/proc/%d/fd/%u", process, fd);
    const ssize_t n = readlink(path, link, sizeof link);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; ++i) {
        const size_t length = strlen(kinds[i]);
        if (n >= (ssize_t)length && memcmp(link, kinds[i], length) == 0) return true;
    }
    return false;
}

static bool is_poll(const struct iocb* one, pid_t process) {
    enum { events = 0x27ff };  // asm-generic/poll.h
    const bool tells = (one->aio_flags & IOCB_FLAG_RESFD) != 0;
    return one->aio_lio_opcode == IOCB_CMD_POLL && one->aio_buf != 0 &&
           (one->aio_buf & ~(uint64_t)events) == 0 && one->aio_nbytes == 0 &&
           one->aio_offset == 0 && one->aio_reserved2 == 0 && one->aio_key == 0 &&
           one->aio_rw_flags == 0 && one->aio_reqprio == 0 &&
           (one->aio_flags & ~(uint32_t)IOCB_FLAG_RESFD) == 0 && (tells || one->aio_resfd == 0) &&
           can_be_polled(process, one->aio_fildes) &&
           (!tells || can_be_polled(process, one->aio_resfd));
}

static bool has_poll(const char* bytes, size_t count, pid_t process) {
    for (size_t at = 0; at + sizeof(struct iocb) <= count; at += 8) {
        struct iocb one;
        if (bytes[at + offsetof(struct iocb, aio_lio_opcode)] != IOCB_CMD_POLL) continue;
        memcpy(&one, bytes + at, sizeof one);
        if (is_poll(&one, process)) return true;
    }
    return false;
}

// Looks at one range of memory, `left` bytes at most. A request that lies on the border of two
// pieces is found, as each piece begins with the end of the last one.
static enum answer is_asked_in(pid_t process, int map, unsigned long from, unsigned long to,
                               size_t* left) {
    enum { overlap = sizeof(struct iocb) };
    static char bytes[overlap + pages * page];
    uint64_t there[pages];
    const uint64_t present = UINT64_C(1) << 63, swapped = UINT64_C(1) << 62;
    size_t kept = 0;
    for (; from < to && *left >= pages * page; from += pages * page) {
        const size_t count = to - from < pages * page ? (to - from) / page : pages;
        if (pread(map, there, count * sizeof *there, (off_t)(from / page * sizeof *there)) !=
            (ssize_t)(count * sizeof *there))
            return cannot_tell;
        for (size_t first = 0, end; first < count; first = end + 1) {
            for (end = first; end < count && (there[end] & (present | swapped)) != 0;) ++end;
            if (end == first) {
                kept = 0;
                continue;
            }
            struct iovec here = {bytes + kept, (end - first) * page},
                         its = {(void*)(from + first * page), (end - first) * page};
            const ssize_t n = process_vm_readv(process, &here, 1, &its, 1, 0);
            const size_t all = n > 0 ? kept + (size_t)n : 0;
            *left -= n > 0 && *left >= (size_t)n ? (size_t)n : 0;
            if (has_poll(bytes, all, process)) return yes;
            kept = end == count && all >= overlap ? overlap : 0;
            memmove(bytes, bytes + all - kept, kept);
        }
    }
    return no;
}

// `maps`: the text of its mappings. A request lies in what the process may write.
static enum answer is_asked_in_those(pid_t process, FILE* maps, int map, bool small_ones,
                                     size_t* left) {
    char line[512], rights[8];
    enum answer found = no;
    rewind(maps);
    while (found == no && fgets(line, sizeof line, maps) != NULL) {
        unsigned long from, to;
        if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) == 3 && strncmp(rights, "rw", 2) == 0 &&
            (to - from <= small) == small_ones && strstr(line, " /[aio]") == NULL)
            found = is_asked_in(process, map, from, to, left);
    }
    return found;
}

static enum answer is_asked(pid_t process, FILE* maps) {
    char path[32];
    size_t left = bytes_max;
    snprintf(path, sizeof path, "/proc/%d/pagemap", process);
    const int map = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC);
    if (map < 0) return cannot_tell;
    enum answer found = is_asked_in_those(process, maps, map, true, &left);
    if (found == no) found = is_asked_in_those(process, maps, map, false, &left);
    close(map);
    return found;
}

static bool has_context(FILE* maps) {
    char line[512];
    bool found = false;
    while (!found && fgets(line, sizeof line, maps) != NULL)
        found = strstr(line, " /[aio]") != NULL;
    rewind(maps);
    return found;
}

bool has_usual_mappings(const pid_t* processes, size_t count) {
    for (size_t i = 0; i < count; ++i) {
        char path[32], words[256];
        snprintf(path, sizeof path, "/proc/%d/maps", processes[i]);
        FILE* const maps = fopen(path, "re");
        if (maps == NULL) continue;  // it has ended
        const bool lasts = souk_lasting_mapping(maps, words, sizeof words) != 0;
        rewind(maps);
        const enum answer polls = !lasts && has_context(maps) ? is_asked(processes[i], maps) : no;
        fclose(maps);
        if (lasts) refuse("process %d has %s", processes[i], words);
        if (polls != no)
            refuse(
                "process %d %s for files by io_submit (IOCB_CMD_POLL), of which CRIU does not know",
                processes[i], polls == yes ? "waits" : "may wait, which its memory does not tell,");
        if (lasts || polls != no) return false;
    }
    return true;
}
