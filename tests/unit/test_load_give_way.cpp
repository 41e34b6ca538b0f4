// SPDX-License-Identifier: GPL-2.0-or-later
// Method: a guest that is lowered and a task of the owner's compute on one CPU. How long a guest
// has the CPU at a time is what the owner's task waits; with and without giving way, in one run.
#include <sched.h>

#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

#include "bpf/load.hpp"
#include "tests/unit/cgroup_fixture.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using souk::unit::CgroupFixture;
using souk::unit::need_root;

namespace {

constexpr int first_cpu = 0;

[[noreturn]] void compute_on_one_cpu() {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(first_cpu, &set);
    ::sched_setaffinity(0, sizeof set, &set);
    for (;;) asm volatile("");
}

void compute_lowered() {
    const sched_param none{};
    MUST(::sched_setscheduler(0, SCHED_IDLE, &none) == 0);
    compute_on_one_cpu();
}

// The guest's mean time on the CPU, of as many that ended because another task wanted it. Check's
// limit bounds the wait.
Nanos mean_stretch(LoadProbe& probe, uint64_t stretches) {
    const LoadSample before = *probe.read("n1/jobs/n1.1");
    LoadSample now = before;
    while (now.preempted - before.preempted < stretches) {
        const timespec pause{0, 10'000'000};
        ::nanosleep(&pause, nullptr);
        now = *probe.read("n1/jobs/n1.1");
    }
    return {(now.run - before.run).ns / static_cast<int64_t>(now.preempted - before.preempted)};
}

struct Machine {
    CgroupFixture cgroups;
    Cgroup guests = std::move(*cgroups->create("n1/jobs/n1.1"));
    Cgroup owners = std::move(*cgroups->create("owner"));
    // The probe knows no daemon, because the processes that the test starts would else count as the
    // daemon's children.
    LoadProbe probe = std::move(*LoadProbe::open(*cgroups, "n1", 2, {.daemon = 0}));

    bool sees_switches() {
        if (std::string(probe.source()) == "bpf") return true;
        std::printf("skipped: %s\n", probe.why_not_bpf().c_str());
        return false;
    }
};

void a_lowered_guest_gives_way() {
    Machine machine;
    if (!machine.sees_switches()) return;
    LoadProbe& probe = machine.probe;
    ck_assert(probe.add("n1/jobs/n1.1"));
    const Pidfd owner = machine.cgroups.spawn(machine.owners, compute_on_one_cpu);
    const Pidfd guest = machine.cgroups.spawn(machine.guests, compute_lowered);

    (void)mean_stretch(probe, 1);  // one that began before it was lowered
    const Nanos kept = mean_stretch(probe, 4);
    ck_assert_int_eq(probe.gave_way(), 0);

    const Status on = probe.give_way(true);
    ck_assert_msg(on.has_value(), "%s", on ? "" : on.error().message.c_str());
    ck_assert(probe.give_way(true));
    const Nanos given = mean_stretch(probe, 40);
    ck_assert_int_gt(probe.gave_way(), 0);
    std::printf("the guest has the CPU for %.3f ms at a time, %.3f ms when it gives way\n",
                kept.ms(), given.ms());
    ck_assert_msg(given.ns * 3 < kept.ns, "%.3f ms in place of %.3f", given.ms(), kept.ms());

    ck_assert(probe.give_way(false));
    (void)mean_stretch(probe, 1);  // of a switch that saw it on
    const uint64_t until_then = probe.gave_way();
    (void)mean_stretch(probe, 2);
    ck_assert_int_eq(probe.gave_way(), until_then);

    // A probe that has been moved keeps its threads, and ends them.
    LoadProbe moved = std::move(probe);
    ck_assert(moved.give_way(true));
    (void)mean_stretch(moved, 3);
    ck_assert_int_gt(moved.gave_way(), until_then);
    for (const Pidfd* process : {&owner, &guest}) ck_assert(process->signal(SIGKILL));
}

}  // namespace

START_TEST(a_guest_that_is_lowered_gives_the_cpu_back_before_the_next_tick) {
    if (need_root("loading BPF programs")) a_lowered_guest_gives_way();
}
END_TEST

START_TEST(who_does_not_see_switches_says_that_guests_keep_the_cpu) {
    if (!need_root("control groups")) return;
    CgroupFixture cgroups;
    LoadProbe probe = std::move(*LoadProbe::open(*cgroups, "n1", 2, {.allow_bpf = false}));
    const Status on = probe.give_way(true);
    ck_assert(!on);
    ck_assert_str_eq(on.error().message.c_str(),
                     "the kernel's switches are not seen: switched off");
    ck_assert(probe.give_way(false));
    ck_assert_int_eq(probe.gave_way(), 0);
}
END_TEST

UNIT_SUITE(load_give_way, a_guest_that_is_lowered_gives_the_cpu_back_before_the_next_tick,
           who_does_not_see_switches_says_that_guests_keep_the_cpu);
