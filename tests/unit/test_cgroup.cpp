// SPDX-License-Identifier: GPL-2.0-or-later
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <vector>

#include "kernel/base/number.hpp"
#include "kernel/sys/process/cgroup.hpp"
#include "tests/unit/cgroup_fixture.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using souk::unit::CgroupFixture;
using souk::unit::need_root;

namespace {

constexpr Nanos wait_max = Nanos::from_s(20);

[[noreturn]] void pause_for_ever() {
    while (true) ::pause();
}

std::string v1_only(const std::string& mountinfo) {
    std::string out;
    for (size_t at = 0; at < mountinfo.size();) {
        const size_t end = mountinfo.find('\n', at);
        const std::string line = mountinfo.substr(at, end - at);
        if (line.find(" - cgroup2 ") == std::string::npos) out += line + "\n";
        at = end == std::string::npos ? mountinfo.size() : end + 1;
    }
    return out;
}

// Shared with a forked counter: how far it got.
std::atomic<uint64_t>* shared_counter() {
    void* page = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(page != MAP_FAILED);
    return new (page) std::atomic<uint64_t>(0);
}

// Freezes, looks, thaws and ends a process that counts all the time.
void freeze_holds_and_thaw_releases(const CgroupFixture& cgroups) {
    Cgroup job = std::move(*cgroups->create("n1/jobs/n1.1"));
    std::atomic<uint64_t>* count = shared_counter();
    const Pidfd worker = cgroups.spawn(job, [&] {
        while (true) ++*count;
    });
    ck_assert(job.freeze(wait_max));
    const uint64_t frozen_at = *count;
    for (int i = 0; i < 50; ++i) ::sched_yield();
    ck_assert_uint_eq(*count, frozen_at);
    ck_assert(job.thaw());
    while (*count == frozen_at) ::sched_yield();  // Check's limit bounds this
    ck_assert(job.freeze(wait_max));
    ck_assert(job.kill_all(wait_max));  // frozen or not
    ck_assert(*worker.exited_within(wait_max));
    ck_assert(WIFSIGNALED(*worker.reap()));
    ck_assert(job.remove(wait_max));
    ck_assert(job.remove(wait_max));  // gone is ok
}

}  // namespace

START_TEST(mountinfo_says_where_each_controller_lives) {
    const CgroupLayout hybrid = detect_cgroups(
        "31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup "
        "rw,cpu,cpuacct\n"
        "32 30 0:28 / /with\\040blank rw - cgroup cgroup rw,freezer\n"
        "33 30 0:29 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n"
        "34 30 0:30 / /nowhere/unified rw,relatime - cgroup2 cgroup2 rw\n"
        "garbage\n35 - \n");
    ck_assert_text(hybrid.v2, "/nowhere/unified");
    ck_assert(hybrid.v2_controllers.empty());
    ck_assert_uint_eq(hybrid.v1.size(), 3);
    ck_assert_text(hybrid.v1.at("cpu"), "/sys/fs/cgroup/cpu,cpuacct");
    ck_assert_text(hybrid.v1.at("cpuacct"), "/sys/fs/cgroup/cpu,cpuacct");
    ck_assert_text(hybrid.v1.at("freezer"), "/with blank");
    const auto none = Cgroups::open(detect_cgroups(""));
    ck_assert(!none);
    ck_assert_int_eq(none.error().code, ENOTSUP);
}
END_TEST

START_TEST(a_process_is_born_in_its_group_in_every_hierarchy) {
    if (!need_root("making cgroups")) return;
    CgroupFixture cgroups;
    Cgroup job = std::move(*cgroups->create("n1/jobs/n1.7", {.cpu = true, .memory = true}));
    const Pidfd worker = cgroups.spawn(job, pause_for_ever);
    ck_assert(*job.pids() == std::vector<pid_t>{worker.pid()});
    const std::string path = "/" + cgroups.root() + "/n1/jobs/n1.7\n";
    const std::string groups =
        *read_file(AT_FDCWD, "/proc/" + std::to_string(worker.pid()) + "/cgroup");
    if (!cgroups->layout().v2.empty()) {
        ck_assert_msg(groups.find("0::" + path) != std::string::npos, "%s", groups.c_str());
        ck_assert_uint_ne(job.id(), 0);
    }
    for (const char* const controller : {"cpu", "memory"})
        if (!cgroups->layout().in_v2(controller))
            ck_assert_msg(groups.find(std::string(controller) + ":" + path) != std::string::npos,
                          "%s", groups.c_str());
    ck_assert(*cgroups->list("n1/jobs") == std::vector<std::string>{"n1.7"});
    ck_assert(*cgroups->list() == std::vector<std::string>{"n1"});
    ck_assert(cgroups->remove("n1", wait_max));
    ck_assert(*worker.exited_within(wait_max));
    ck_assert(worker.reap());
    ck_assert(cgroups->list()->empty());
}
END_TEST

START_TEST(a_running_process_can_be_added_and_is_counted_below_its_parents) {
    if (!need_root("making cgroups")) return;
    CgroupFixture cgroups;
    Cgroup node = std::move(*cgroups->create("n1"));
    Cgroup first = std::move(*cgroups->create("n1/first"));
    Cgroup second = std::move(*cgroups->create("n1/second", {.cpu = true}));
    const Pidfd worker = cgroups.spawn(first, pause_for_ever);
    ck_assert(second.add(worker.pid()));
    ck_assert(first.pids()->empty());
    ck_assert(*second.pids() == std::vector<pid_t>{worker.pid()});
    ck_assert(*node.pids() == std::vector<pid_t>{worker.pid()});
    ck_assert(node.kill_all(wait_max));
    ck_assert(worker.reap());
    ck_assert_int_eq(second.add(worker.pid()).error().code, ESRCH);
}
END_TEST

START_TEST(a_frozen_group_stands_still_and_dies_when_killed) {
    if (!need_root("freezing a cgroup")) return;
    CgroupFixture cgroups;
    freeze_holds_and_thaw_releases(cgroups);
}
END_TEST

START_TEST(without_cgroup_v2_the_v1_freezer_does_the_same) {
    if (!need_root("freezing a cgroup")) return;
    const CgroupLayout layout =
        detect_cgroups(v1_only(*read_file(AT_FDCWD, "/proc/self/mountinfo")));
    UNIT_SKIP_IF(layout.v1.contains("freezer") ? nullptr : "this machine has no v1 freezer");
    CgroupFixture cgroups(layout);
    freeze_holds_and_thaw_releases(cgroups);
    Cgroup job = std::move(*cgroups->create("n1/jobs/n1.2"));
    ck_assert_uint_eq(job.id(), 0);
    const Pidfd worker = cgroups.spawn(job, [] {
        for (volatile int i = 0; i < 20'000'000;) i = i + 1;
    });
    ck_assert(*worker.exited_within(wait_max));
    if (layout.v1.contains("cpuacct")) ck_assert_int_gt(job.cpu_time()->ns, 1'000'000);
    // Left frozen by somebody, a group can still be ended.
    const Pidfd frozen = cgroups.spawn(job, pause_for_ever);
    ck_assert(job.freeze(wait_max));
    ck_assert(cgroups->remove("n1", wait_max));
    ck_assert(*frozen.exited_within(wait_max));
}
END_TEST

START_TEST(limits_reach_the_kernel_and_the_cpu_time_is_its_own) {
    if (!need_root("limiting a cgroup")) return;
    CgroupFixture cgroups;
    Cgroup node = std::move(*cgroups->create("n1", {.cpu = true, .memory = true, .pids = true}));
    ck_assert(node.set_cpu_weight(50));
    ck_assert(node.set_memory_max(16 << 20));
    const CgroupLayout& layout = cgroups->layout();
    const std::string cpu =
        (layout.in_v2("cpu") ? layout.v2 : layout.v1.at("cpu")) + "/" + cgroups.root() + "/n1/";
    if (layout.in_v2("cpu")) {
        ck_assert_text(*read_file(AT_FDCWD, cpu + "cpu.weight"), "50\n");
    } else {
        ck_assert_text(*read_file(AT_FDCWD, cpu + "cpu.shares"), "512\n");
    }
    ck_assert_int_eq(*node.memory_kills(), 0);
    // A job that touches more memory than its node has is killed by the kernel. Little memory:
    // where the host has to find each page first, that takes its time.
    const Pidfd eater = cgroups.spawn(node, [] {
        char* memory = static_cast<char*>(
            ::mmap(nullptr, 64 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        for (size_t i = 0; i < 64 << 20; i += 4096) const_cast<volatile char*>(memory)[i] = 1;
    });
    ck_assert(*eater.exited_within(wait_max));
    const int status = *eater.reap();
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    ck_assert_int_eq(*node.memory_kills(), 1);
    // One that wants more processes than it may have gets an error, and they are counted together.
    ck_assert(node.set_pids_max(3));
    const Pidfd forker = cgroups.spawn(node, [] {
        for (int i = 0; i < 2; ++i)
            if (const pid_t child = ::fork(); child <= 0)
                child == 0 ? pause_for_ever() : ::_exit(3);
        if (::fork() >= 0 || errno != EAGAIN) ::_exit(4);
    });
    ck_assert(*forker.exited_within(wait_max));
    ck_assert_int_eq(*forker.reap(), 0);
    ck_assert(node.kill_all(wait_max));
    ck_assert(node.set_pids_max(0));
    ck_assert_int_gt(node.cpu_time()->ns, 100'000);
    ck_assert_int_ge(*node.memory_bytes(), 0);
    const auto plain = cgroups->create("n2");
    ck_assert(!plain->has("pids") && node.has("pids"));
    for (const Status& refused : {plain->set_memory_max(1 << 20), plain->set_pids_max(5)})
        ck_assert_int_eq(refused.error().code, ENOTSUP);
}
END_TEST

START_TEST(a_limit_that_is_lowered_below_what_is_held_kills_nobody) {
    if (!need_root("limiting a cgroup")) return;
    CgroupFixture cgroups;
    Cgroup node = std::move(*cgroups->create("n1", {.cpu = true, .memory = true}));
    Cgroup job = std::move(*cgroups->create("n1/jobs", {.memory = true}));
    Pipe held = std::move(*make_pipe());
    const Pidfd holder = cgroups.spawn(job, [&] {
        constexpr size_t bytes = 48 << 20;
        char* memory = static_cast<char*>(
            ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        for (size_t i = 0; i < bytes; i += 4096) const_cast<volatile char*>(memory)[i] = 1;
        (void)!::write(held.write_end.get(), "x", 1);
        pause_for_ever();
    });
    char byte;
    ck_assert_int_eq(::read(held.read_end.get(), &byte, 1), 1);
    ck_assert(!*node.lower_memory_max(16 << 20));  // by the group above as well
    ck_assert(!*job.lower_memory_max(16 << 20));
    ck_assert(!*holder.exited_within(Nanos::from_ms(50)));
    ck_assert_int_eq(*job.memory_kills(), 0);
    ck_assert(*node.lower_memory_max(128 << 20));
    ck_assert(job.kill_all(wait_max));
    ck_assert(holder.reap());
    ck_assert(*node.lower_memory_max(16 << 20));
}
END_TEST

START_TEST(a_group_has_the_cpus_that_it_is_given) {
    if (!need_root("limiting a cgroup")) return;
    CgroupFixture cgroups;
    Cgroup job = std::move(*cgroups->create("n1", {.cpu = true}));
    const CgroupLayout& layout = cgroups->layout();
    const std::string path =
        (layout.in_v2("cpu") ? layout.v2 : layout.v1.at("cpu")) + "/" + cgroups.root() + "/n1/";
    const auto quota = [&] {
        return *read_file(AT_FDCWD, path + (layout.in_v2("cpu") ? "cpu.max" : "cpu.cfs_quota_us"));
    };
    ck_assert(job.set_cpus_max(3));
    ck_assert_msg(quota().starts_with("300000"), "%s", quota().c_str());
    ck_assert(job.set_cpus_max(2, true));
    ck_assert(job.set_cpus_max(1, true));
    ck_assert_msg(quota().starts_with("100000"), "%s", quota().c_str());
    ck_assert(job.set_cpus_max(0));
    ck_assert_msg(quota().starts_with(layout.in_v2("cpu") ? "max" : "-1"), "%s", quota().c_str());
}
END_TEST

// Each of them takes half of what is left below the fixture's root, which has half of what the
// other groups of this machine leave.
const char* no_realtime_to_divide(const CgroupFixture& cgroups, int makers) {
    const CgroupLayout& layout = cgroups->layout();
    if (layout.in_v2("cpu") || !layout.v1.contains("cpu")) return nullptr;
    ck_assert(cgroups->create("first/jobs/1", {.cpu = true}).has_value());
    const auto root =
        read_file(AT_FDCWD, layout.v1.at("cpu") + "/" + cgroups.root() + "/cpu.rt_runtime_us");
    ck_assert(cgroups->remove("first", wait_max));
    if (!root) return nullptr;
    return leading_number<int64_t>(*root).value_or(0) >> (makers + 5) > 0
               ? nullptr
               : "others have this machine's time for real-time policies";
}

// A v1 kernel divides the time for real-time policies among groups, and refuses a part that is no
// longer there: of many that take theirs at once each gets some.
START_TEST(groups_that_are_made_at_once_all_have_time_for_real_time_policies) {
    if (!need_root("dividing real-time")) return;
    constexpr int makers = 8;
    CgroupFixture cgroups;
    UNIT_SKIP_IF(no_realtime_to_divide(cgroups, makers));
    for (int round = 0; round < 10; ++round) {
        Pipe start = std::move(*make_pipe());
        std::vector<pid_t> children;
        for (int i = 0; i < makers; ++i) {
            const pid_t child = ::fork();
            ck_assert_int_ge(child, 0);
            children.push_back(child);
            if (child > 0) continue;
            cgroups.let_go();
            start.write_end.reset();
            char byte;
            (void)!::read(start.read_end.get(), &byte, 1);
            const auto job = cgroups->create("n" + std::to_string(i) + "/jobs/1", {.cpu = true});
            ::_exit(job && job->allows_realtime() ? 0 : 1);
        }
        start.write_end.reset();
        for (const pid_t child : children) {
            int status = 0;
            ck_assert_int_eq(::waitpid(child, &status, 0), child);
            ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "round %d", round);
        }
        for (int i = 0; i < makers; ++i)
            ck_assert(cgroups->remove("n" + std::to_string(i), wait_max));
    }
}
END_TEST

START_TEST(a_group_that_is_made_again_keeps_its_time_for_real_time_policies) {
    if (!need_root("dividing real-time")) return;
    const CgroupFixture cgroups;
    UNIT_SKIP_IF(no_realtime_to_divide(cgroups, 8));
    const CgroupLayout& layout = cgroups->layout();
    const auto time_of = [&](const std::string& name) {
        const auto text = read_file(
            AT_FDCWD, layout.v1.at("cpu") + "/" + cgroups.root() + name + "/cpu.rt_runtime_us");
        return leading_number<int64_t>(text.value_or("0")).value_or(0);
    };
    if (layout.in_v2("cpu") || !layout.v1.contains("cpu")) return;
    // Two daemons make the same groups, one from each end.
    const Cgroups other = std::move(*Cgroups::open(layout, cgroups.root()));
    ck_assert(cgroups->create("n1/jobs", {.cpu = true}).has_value());
    const int64_t top = time_of(""), node = time_of("/n1"), jobs = time_of("/n1/jobs");
    ck_assert(other.create("n1", {.cpu = true}).has_value());
    ck_assert(other.create("n1/jobs", {.cpu = true}).has_value());
    ck_assert_int_eq(time_of(""), top);
    ck_assert_int_eq(time_of("/n1"), node);
    ck_assert_int_eq(time_of("/n1/jobs"), jobs);
    // Five more are made by daemons of their own: each has time.
    for (const char* const name : {"n2", "n3", "n4", "n5", "n6"}) {
        const Cgroups own = std::move(*Cgroups::open(layout, cgroups.root()));
        ck_assert_msg(own.create(name, {.cpu = true})->allows_realtime(), "%s", name);
    }
}
END_TEST

START_TEST(names_that_could_leave_the_root_are_refused) {
    const Cgroups cgroups =
        std::move(*Cgroups::open(detect_cgroups("1 1 0:1 / /nowhere rw - cgroup2 cgroup2 rw\n")));
    for (const char* const name : {"", "..", "a/../b", "/a", "a/", "a//b", "a b", "a/.", "\n"})
        ck_assert_msg(!cgroups.create(name), "'%s' was taken", name);
    ck_assert(!cgroups.remove("../x", wait_max));
    const auto missing = cgroups.create("n1");
    ck_assert_int_eq(missing.error().code, ENOENT);
    ck_assert(missing.error().message.find("/nowhere/souk") != std::string::npos);
}
END_TEST

UNIT_SUITE(cgroup, mountinfo_says_where_each_controller_lives,
           a_process_is_born_in_its_group_in_every_hierarchy,
           a_running_process_can_be_added_and_is_counted_below_its_parents,
           a_frozen_group_stands_still_and_dies_when_killed,
           without_cgroup_v2_the_v1_freezer_does_the_same,
           limits_reach_the_kernel_and_the_cpu_time_is_its_own,
           a_limit_that_is_lowered_below_what_is_held_kills_nobody,
           a_group_has_the_cpus_that_it_is_given,
           groups_that_are_made_at_once_all_have_time_for_real_time_policies,
           a_group_that_is_made_again_keeps_its_time_for_real_time_policies,
           names_that_could_leave_the_root_are_refused);
