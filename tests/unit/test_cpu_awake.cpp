// SPDX-License-Identifier: GPL-2.0-or-later
// Processors that stay awake for a move, and sleep again.
#include <filesystem>

#include "kernel/sys/host/cpu_awake.hpp"
#include "tests/unit/loop_fixture.hpp"

using namespace souk;
using namespace souk::unit;

namespace {
// The number of open files of this process that ask the kernel to keep the processors awake. The
// kernel counts the same files.
int asked() {
    int n = 0;
    std::error_code gone;
    for (const auto& fd : std::filesystem::directory_iterator("/proc/self/fd"))
        n += std::filesystem::read_symlink(fd.path(), gone) == CpuAwake::device;
    return n;
}
const char* missing() {
    return ::access(CpuAwake::device, W_OK) == 0 ? nullptr
                                                 : "/dev/cpu_dma_latency cannot be written";
}
}  // namespace

START_TEST(processors_stay_awake_until_the_last_end_that_was_asked_for) {
    UNIT_SKIP_IF(missing());
    Loop loop = open_loop();
    CpuAwake awake(loop);
    ck_assert_int_eq(asked(), 0);
    const Nanos begin = Loop::now();
    awake.hold(Nanos::from_ms(40));
    awake.hold(Nanos::from_ms(5));  // no shorter for that
    ck_assert_int_eq(asked(), 1);
    UNTIL(loop, !awake.holds());
    ck_assert(Loop::now() - begin >= Nanos::from_ms(40));
    ck_assert_int_eq(asked(), 0);
    awake.hold(Nanos::from_ms(1));
    ck_assert_int_eq(asked(), 1);
    awake.hold(Nanos::from_s(60));
    UNTIL(loop, Loop::now() - begin >= Nanos::from_ms(50));
    ck_assert_int_eq(asked(), 1);
}
END_TEST

START_TEST(processors_sleep_again_when_who_asked_is_gone) {
    UNIT_SKIP_IF(missing());
    Loop loop = open_loop();
    {
        CpuAwake awake(loop);
        awake.hold(Nanos::from_s(60));
        ck_assert_int_eq(asked(), 1);
    }
    ck_assert_int_eq(asked(), 0);
}
END_TEST

UNIT_SUITE(cpu_awake, processors_stay_awake_until_the_last_end_that_was_asked_for,
           processors_sleep_again_when_who_asked_is_gone);
