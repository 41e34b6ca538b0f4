// SPDX-License-Identifier: GPL-2.0-or-later
// souk calibrate [--json]: the speed of this machine. Nothing is kept: agentd --calibrate does
// that.
#include "kernel/sys/host/calibrate.hpp"

#include <cstdio>

#include "kernel/base/json.hpp"
#include "tools/souk/verbs.hpp"

namespace souk {
namespace {

double ms(Nanos span) { return static_cast<double>(span.ns / 1'000) / 1'000; }

}  // namespace

int cmd_calibrate(bool json) {
    const Calibration c = calibrate();
    if (json) {
        JsonWriter w;
        w.begin_object().field("speed", c.speed).field("runs", c.runs);
        w.field("run_ms", ms(c.median)).field("integer_ms", ms(c.integer));
        w.field("floating_ms", ms(c.floating)).field("memory_ms", ms(c.memory)).end_object();
        std::puts(w.take().c_str());
    } else {
        std::printf("speed %ld (100: a run in 100 ms; here %.1f ms, the median of %d)\n",
                    static_cast<long>(c.speed), ms(c.median), c.runs);
    }
    return std::fflush(stdout) == 0 ? 0 : 1;
}

}  // namespace souk
