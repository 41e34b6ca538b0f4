// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/cpu_event.hpp"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace souk {

Result<Fd> open_cpu_event(size_t cpu, Nanos every) {
    const bool clock = every.ns != 0;
    if (cpu >= cpus_most || (clock && (every < cpu_clock_least || every > cpu_clock_most)))
        return fail_errno("open an event of a CPU", EINVAL);
    perf_event_attr wish{};
    wish.size = sizeof wish;
    wish.type = PERF_TYPE_SOFTWARE;
    wish.config = clock ? PERF_COUNT_SW_CPU_CLOCK : PERF_COUNT_SW_BPF_OUTPUT;
    if (clock) {
        wish.sample_period = static_cast<uint64_t>(every.ns);
        wish.disabled = 1;
    } else {
        wish.sample_type = PERF_SAMPLE_RAW;
        wish.wakeup_events = 1;
    }
    Fd event(static_cast<int>(::syscall(SYS_perf_event_open, &wish, -1, static_cast<int>(cpu), -1,
                                        PERF_FLAG_FD_CLOEXEC)));
    if (!event) return fail_errno("open an event of a CPU", errno);
    return event;
}

}  // namespace souk
