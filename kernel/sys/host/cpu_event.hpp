// SPDX-License-Identifier: GPL-2.0-or-later
// Perf events of the kernel's own software on one CPU, as BPF programs use them. Who may not open
// one (CAP_PERFMON; on Debian's kernels, whose kernel.perf_event_paranoid is 3, CAP_SYS_ADMIN) has
// somebody open it. They sample nothing: what they are good for, the program says that is set on
// them or writes to them.
#pragma once

#include <cstddef>
#include <functional>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

inline constexpr Nanos cpu_clock_least = Nanos::from_ms(1), cpu_clock_most = Nanos::from_s(1);
inline constexpr size_t cpus_most = 8192;

// `every`: the CPU's clock, which calls a program so often once it is enabled, from 1 ms to 1 s. 0:
// an event that programs write to. ENODEV: that CPU is off; EACCES, EPERM: this process may not;
// EINVAL: beyond these bounds, or of a CPU that the kernel cannot have.
Result<Fd> open_cpu_event(size_t cpu, Nanos every);
using OpenCpuEvent = std::function<Result<Fd>(size_t cpu, Nanos every)>;

}  // namespace souk
