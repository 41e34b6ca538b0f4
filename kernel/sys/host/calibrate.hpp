// SPDX-License-Identifier: GPL-2.0-or-later
// Measures how fast this machine is, as one number that ranks machines: 100 is a machine that does
// the work of one run in 100 ms of wall time. That is a core of an AMD EPYC server of 2021 that
// nobody else uses.
//
// A run is one third of that time integer work (sorting), floating point (multiplying matrices) and
// memory (a walk through 16 MB in random order), the same on every machine. The speed is that of
// the median run, so that what else the machine did for a moment does not count. It is measured on
// one core, as a job of one CPU would have it: a limit of the control group that this process is in
// counts.
#pragma once

#include <cstdint>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"

namespace souk {

struct Calibration {
    int64_t speed = 0;
    int runs = 0;
    Nanos median;                     // of a whole run
    Nanos integer, floating, memory;  // medians of the parts
};
// Takes about 1 s on the reference; begins no run after 2 s.
Calibration calibrate();

// The speed that `file` keeps from an earlier measurement. Errors: there is none.
Result<int64_t> kept_speed(const std::string& file);
// Makes its directory too.
Status keep_speed(const std::string& file, int64_t speed);

}  // namespace souk
