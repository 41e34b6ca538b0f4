// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into CRIU: a process that may use the tiles of its processor for matrices (AMX) may use
// them elsewhere. It has asked the kernel for that (arch_prctl(2), ARCH_REQ_XCOMP_PERM), and CRIU
// knows nothing of it: the next instruction of the kind would end the process (SIGILL).
//
// CRIU carries neither the contents of a thread's tiles nor their configuration, so a job with a
// thread that has configured them is refused. A program may do that once in each thread and never
// release them (ggml does), so the refusal counts as lasting and is not tried again at once.
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "checkpoint/criu_user.h"

#ifdef __x86_64__
#include <cpuid.h>

#include "kernel/sys/process/call_at.h"

#define LIST "souk-tiles"
enum { tile_configuration = 17, tile_data = 18 };            // of XSAVE (asm/fpu/types.h)
enum { ask_for_right = 0x1023, say_rights = 0x1022 };        // asm/prctl.h
enum { xstate = 0x202, header_at = 512, state_max = 4096 };  // NT_X86_XSTATE

static bool has_processor_tiles(void) {
    enum { tiles = 1 << 24 };
    unsigned a, b, c, d;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & tiles) != 0;
}

static bool may_use_tiles(pid_t process) {
    uint64_t rights = 0;
    return call_and_read(process, (const long[7]){SYS_arch_prctl, say_rights}, 2, &rights,
                         sizeof rights) == 0 &&
           (rights >> tile_data & 1) != 0;
}

static bool has_filled_tiles(pid_t thread) {
    static unsigned char state[state_max];
    struct iovec area = {state, sizeof state};
    uint64_t in_use = 0;
    if (traces(PTRACE_GETREGSET, thread, xstate, &area) == 0 &&
        area.iov_len >= header_at + sizeof in_use)
        memcpy(&in_use, state + header_at, sizeof in_use);
    return (in_use & (UINT64_C(1) << tile_configuration | UINT64_C(1) << tile_data)) != 0;
}

bool note_tiles(const pid_t* threads, size_t count) {
    if (!has_processor_tiles()) return true;
    pid_t process = 0;
    for (size_t i = 0; i < count; ++i) {
        if (process == 0 || !is_thread_of(process, threads[i])) {
            process = process_of(threads[i]);
            const int list = may_use_tiles(threads[i]) ? append_to_image(LIST) : -1;
            if (list >= 0) (void)!syscall(SYS_write, list, &process, sizeof process);
            if (list >= 0) close(list);
        }
        if (!has_filled_tiles(threads[i])) continue;
        refuse(
            "thread %d has the tiles of its processor (AMX) configured; it can move when it has "
            "released them",
            threads[i]);
        return false;
    }
    return true;
}

bool give_tiles(void) {
    pid_t process;
    bool given = true;
    const int list = open_image(LIST, O_RDONLY);
    while (list >= 0 && given &&
           syscall(SYS_read, list, &process, sizeof process) == sizeof process) {
        given = !is_held(process) ||
                call_in(process, (const long[7]){SYS_arch_prctl, ask_for_right, tile_data}) == 0;
        if (!given)
            refuse("process %d may use the tiles of a processor (AMX), which this one has not",
                   process);
    }
    if (list >= 0) close(list);
    return given;
}

#else
bool note_tiles(const pid_t* threads, size_t count) {
    (void)threads, (void)count;
    return true;
}
bool give_tiles(void) { return true; }
#endif
