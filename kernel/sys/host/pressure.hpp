// SPDX-License-Identifier: GPL-2.0-or-later
// PressureWatch: the kernel's pressure stall information (PSI) of one resource: how long some task
// of this machine stood still for want of it, less what those of one control group did. A trigger
// makes fd() ready (POLLPRI) when stalls last so long within 2 s; then over() says whether
// others than the group had it. Without PSI, open() fails. Owned by one thread.
#pragma once

#include <cstdint>
#include <string>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/host/device.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

class PressureWatch {
  public:
    // resource: "cpu", "memory" or "io". `group`: a directory of cgroup v2, empty: none is taken
    // off.
    static Result<PressureWatch> open(const std::string& resource, Nanos limit,
                                      const std::string& group,
                                      const OpenDevice& device = open_device);
    int fd() const { return trigger_.get(); }
    const std::string& resource() const { return resource_; }
    // Counts stalls anew from here on. Call it each second, and before the first over().
    void begin();
    // Returns how long others have stalled since begin(); zero: less than the limit.
    Nanos over() const;

  private:
    PressureWatch() = default;
    Nanos of_others() const;

    std::string resource_, group_;
    Nanos limit_, base_;
    Fd trigger_;
};

// The sum of "some ... total=N" in such a file, N in microseconds. Errors: it is none.
Result<Nanos> pressure_total(const std::string& text);
// Returns in which part of the last 10 s, in thousandths, some task of this machine stood still for
// want of memory. Fails if the kernel does not tell, and says why.
Result<int32_t> memory_pressure_permille();
// Parses "some avg10=N" of such a file, as thousandths.
Result<int32_t> pressure_permille(const std::string& text);

}  // namespace souk
