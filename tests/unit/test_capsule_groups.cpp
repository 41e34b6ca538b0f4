// SPDX-License-Identifier: GPL-2.0-or-later
// Control groups that are used again: what the next capsule must not find in them.
#include "kernel/sys/process/capsule_groups.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <thread>
#include <utility>

#include "kernel/sys/host/clock.hpp"
#include "tests/unit/cgroup_fixture.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using souk::unit::CgroupFixture;
using souk::unit::need_root;
using souk::unit::TempDir;

namespace {

constexpr Nanos wait_max = Nanos::from_s(20);
constexpr int64_t plenty = 1 << 30;
constexpr CgroupUse all_limits{.cpu = true, .memory = true, .pids = true};

bool can_keep(const CgroupFixture& cgroups) {
    if (!need_root("making cgroups")) return false;
    return !cgroups->layout().v2.empty();
}

struct CapsuleLimits {
    int64_t memory = 64 << 20;
};

void set_limits(const Cgroup& group, CapsuleLimits limits = {}) {
    ck_assert(group.set_pids_max(50));
    ck_assert(group.set_memory_max(limits.memory));
    ck_assert(group.set_cpus_max(1));
}

// Runs work in the group as an agent runs a job: the process enters, and begins its work when the
// limits are set.
void run_in(CapsuleGroups& groups, const CgroupFixture& cgroups, const CapsuleGroup& group,
            const auto& work, CapsuleLimits limits = {}) {
    CgroupEntry entry = group.capsule.entry();
    entry.v2 = group.job.entry().v2;
    Pipe entered = std::move(*make_pipe()), begin = std::move(*make_pipe());
    const auto job = fork_into(entry);
    ck_assert(job);
    char byte = 0;
    if (job->is_child) {
        cgroups.let_go();
        begin.write_end.reset();
        (void)!::write(entered.write_end.get(), "x", 1);
        (void)!::read(begin.read_end.get(), &byte, 1);
        work();
        ::_exit(0);
    }
    ck_assert_int_eq(::read(entered.read_end.get(), &byte, 1), 1);
    set_limits(group.capsule, limits);
    groups.job_begins(group.capsule.name());
    begin.write_end.reset();
    ck_assert(*job->pidfd.exited_within(wait_max));
    ck_assert(job->pidfd.reap());
}
void run_in(CapsuleGroups& groups, const CgroupFixture& cgroups, const CapsuleGroup& group) {
    run_in(groups, cgroups, group, [] {});
}

// The path of the group in the hierarchy in which that controller limits it.
std::string path_of(const CgroupFixture& cgroups, const Cgroup& group, const char* controller) {
    const CgroupLayout& layout = cgroups->layout();
    const std::string mount = layout.in_v2(controller) ? layout.v2 : layout.v1.at(controller);
    return mount + "/" + cgroups.root() + "/" + group.name();
}

bool there(const CgroupFixture& cgroups, const std::string& name) {
    const auto all = cgroups->list("n1/jobs");
    return all && std::find(all->begin(), all->end(), name) != all->end();
}

// Says whether the next capsule gets the group in which a job did this.
bool used_again_after(const auto& work, int64_t memory_bytes = plenty, CapsuleLimits limits = {}) {
    CgroupFixture cgroups;
    CapsuleGroups groups(*cgroups, "n1/jobs", 4);
    CapsuleGroup group = std::move(*groups.take(all_limits, plenty));
    const std::string name = group.capsule.name();
    run_in(
        groups, cgroups, group, [&] { work(cgroups, group); }, limits);
    ck_assert(groups.give_back(std::move(group), wait_max));
    const CapsuleGroup next = std::move(*groups.take(all_limits, memory_bytes));
    const bool again = next.capsule.name() == name;
    // A group that is not used again is removed.
    ck_assert(again || groups.kept() > 0 || !there(cgroups, name.substr(name.rfind('/') + 1)));
    return again;
}

}  // namespace

START_TEST(the_groups_of_a_capsule_that_has_ended_serve_the_next_one) {
    CgroupFixture cgroups;
    if (!can_keep(cgroups)) return;
    CapsuleGroups groups(*cgroups, "n1/jobs", 4);
    CapsuleGroup group = std::move(*groups.take(all_limits, plenty));
    const uint64_t id = group.capsule.id(), job_id = group.job.id();
    for (int i = 0; i < 50; ++i) {
        run_in(groups, cgroups, group);
        ck_assert(groups.give_back(std::move(group), wait_max));
        ck_assert_uint_eq(groups.kept(), 1);
        group = std::move(*groups.take(all_limits, plenty));
        ck_assert_uint_eq(groups.kept(), 0);
        ck_assert_uint_eq(group.capsule.id(), id);
        ck_assert_uint_eq(group.job.id(), job_id);
        ck_assert(group.capsule.pids()->empty());
        ck_assert_int_eq(*group.capsule.memory_kills(), 0);
        ck_assert_int_eq(group.used.ns, group.capsule.cpu_time()->ns);
    }
    // A second capsule that runs beside the first gets a group of its own.
    const CapsuleGroup other = std::move(*groups.take(all_limits, plenty));
    ck_assert_uint_ne(other.capsule.id(), id);
}
END_TEST

START_TEST(a_group_that_its_job_has_changed_serves_nobody_else) {
    CgroupFixture cgroups;
    if (!can_keep(cgroups)) return;
    ck_assert(used_again_after([](const CgroupFixture&, const CapsuleGroup&) {}));
    // The job's own pages and files in memory are gone with it.
    ck_assert(used_again_after([](const CgroupFixture&, const CapsuleGroup&) {
        void* memory = ::mmap(nullptr, 16 << 20, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
        if (memory == MAP_FAILED) ::_exit(1);
    }));
    const auto writes = [](const char* controller, const char* file, const char* text) {
        return [=](const CgroupFixture& its, const CapsuleGroup& group) {
            MUST(write_file(AT_FDCWD, path_of(its, group.capsule, controller) + "/" + file, text));
        };
    };
    const bool v2 = detect_cgroups(*read_file(AT_FDCWD, "/proc/self/mountinfo")).in_v2("cpu");
    ck_assert(!used_again_after(writes("cpu", v2 ? "cpu.weight" : "cpu.shares", "77")));
    ck_assert(!used_again_after(writes("pids", "pids.max", "7")));
    ck_assert(!used_again_after([](const CgroupFixture&, const CapsuleGroup& group) {
        MUST(write_file(group.job.entry().v2, "cgroup.max.depth", "1"));
    }));
    ck_assert(!used_again_after([](const CgroupFixture& its, const CapsuleGroup& group) {
        const std::string below = path_of(its, group.capsule, "memory") + "/of-the-job";
        MUST(::mkdir(below.c_str(), 0755) == 0);
    }));
    ck_assert(!used_again_after([](const CgroupFixture& its, const CapsuleGroup& group) {
        const std::string file = path_of(its, group.capsule, "memory") + "/cgroup.procs";
        MUST(::chmod(file.c_str(), 0666) == 0);
    }));
    ck_assert(!used_again_after(
        [](const CgroupFixture&, const CapsuleGroup& group) { MUST(group.job.thaw()); }));
}
END_TEST

START_TEST(memory_that_a_job_leaves_behind_is_not_charged_to_the_next) {
    CgroupFixture cgroups;
    if (!can_keep(cgroups)) return;
    const TempDir dir;
    const auto leaves = [&](size_t bytes) {
        return [&dir, bytes](const CgroupFixture&, const CapsuleGroup&) {
            const std::string text(bytes, 'x');
            MUST(create_file(AT_FDCWD, dir.path + "/left", text));
        };
    };
    ck_assert(!used_again_after(leaves(8 << 20)));
    // A little is no harm to a job that may have much.
    ck_assert(used_again_after(leaves(256 << 10)));
    ck_assert(!used_again_after(leaves(256 << 10), 4 << 20));
    // A process was killed for its memory: the next job's end must not say so.
    ck_assert(!used_again_after([](const CgroupFixture&, const CapsuleGroup&) {
        char* memory = static_cast<char*>(
            ::mmap(nullptr, 128 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
        for (size_t i = 0; i < 128 << 20; i += 4096) const_cast<volatile char*>(memory)[i] = 1;
    }));
}
END_TEST

START_TEST(what_the_kernel_has_counted_in_a_group_is_little_or_the_group_goes) {
    CgroupFixture cgroups;
    if (!can_keep(cgroups)) return;
    // The job was refused a process, because processes that have ended count until their parent has
    // looked. So its group is not used again.
    ck_assert(!used_again_after([](const CgroupFixture&, const CapsuleGroup&) {
        for (int i = 0; i < 60; ++i)
            if (::fork() == 0) ::_exit(0);
    }));
    // Threads: what the kernel held for a copy of this large process is charged a while longer.
    ck_assert(used_again_after([](const CgroupFixture&, const CapsuleGroup&) {
        for (int i = 0; i < 10; ++i) std::thread([] {}).join();
    }));
    const auto burns = [](Nanos time) {
        return [time](const CgroupFixture&, const CapsuleGroup&) {
            while (process_cpu_time() < time) {
            }
        };
    };
    ck_assert(used_again_after(burns(Nanos::from_ms(200))));
    ck_assert(!used_again_after(burns(Nanos::from_ms(1050))));
    // The most memory at once, though all is given back.
    const CapsuleLimits roomy{.memory = 256 << 20};
    const auto holds = [](size_t bytes) {
        return [bytes](const CgroupFixture&, const CapsuleGroup&) {
            if (::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0) == MAP_FAILED)
                ::_exit(1);
        };
    };
    ck_assert(used_again_after(holds(32 << 20), plenty, roomy));
    ck_assert(!used_again_after(holds(80 << 20), plenty, roomy));
}
END_TEST

START_TEST(a_group_that_is_kept_limits_nothing_until_the_next_limits_are_set) {
    CgroupFixture cgroups;
    if (!can_keep(cgroups)) return;
    CapsuleGroups groups(*cgroups, "n1/jobs", 4);
    CapsuleGroup group = std::move(*groups.take(all_limits, plenty));
    const auto limits = [&](const Cgroup& of) {
        std::vector<std::string> found;
        for (const auto& [controller, files] :
             {std::pair{"cpu", std::array{"cpu.max", "cpu.cfs_quota_us"}},
              std::pair{"memory", std::array{"memory.max", "memory.limit_in_bytes"}},
              std::pair{"pids", std::array{"pids.max", "pids.max"}}}) {
            const bool v2 = cgroups->layout().in_v2(controller);
            found.push_back(std::move(
                *read_file(AT_FDCWD, path_of(cgroups, of, controller) + "/" + files[v2 ? 0 : 1])));
        }
        return found;
    };
    const auto none = limits(group.capsule);
    run_in(groups, cgroups, group);
    const auto set = limits(group.capsule);
    for (size_t i = 0; i < set.size(); ++i) ck_assert(set[i] != none[i]);
    ck_assert(groups.give_back(std::move(group), wait_max));
    group = std::move(*groups.take(all_limits, plenty));
    ck_assert(limits(group.capsule) == none);
}
END_TEST

START_TEST(a_group_is_used_again_only_for_the_same_limits_and_never_for_a_restore) {
    CgroupFixture cgroups;
    if (!can_keep(cgroups)) return;
    CapsuleGroups groups(*cgroups, "n1/jobs", 4);
    CapsuleGroup group = std::move(*groups.take(all_limits, plenty));
    const std::string name = group.capsule.name();
    run_in(groups, cgroups, group);
    ck_assert(groups.give_back(std::move(group), wait_max));
    const CapsuleGroup other =
        std::move(*groups.take({.cpu = false, .memory = true, .pids = true}, plenty));
    ck_assert(other.capsule.name() != name && !other.capsule.has("cpu"));
    const CapsuleGroup restored = std::move(*groups.take(all_limits, 0));
    ck_assert(restored.capsule.name() != name);
    ck_assert(groups.take(all_limits, plenty)->capsule.name() == name);
    // A group in which no job has begun is not known to be like a new one.
    CapsuleGroup unused = std::move(*groups.take(all_limits, plenty));
    ck_assert(groups.give_back(std::move(unused), wait_max));
    ck_assert_uint_eq(groups.kept(), 0);
}
END_TEST

START_TEST(what_is_left_of_a_capsule_is_killed_and_its_group_removed) {
    CgroupFixture cgroups;
    if (!can_keep(cgroups)) return;
    CapsuleGroups groups(*cgroups, "n1/jobs", 4);
    CapsuleGroup group = std::move(*groups.take(all_limits, plenty));
    set_limits(group.capsule);
    groups.job_begins(group.capsule.name());
    const Pidfd left = cgroups.spawn(group.capsule, [] {
        while (true) ::pause();
    });
    ck_assert(groups.give_back(std::move(group), wait_max));
    ck_assert(*left.exited_within(wait_max));
    ck_assert(left.reap());
    ck_assert_uint_eq(groups.kept(), 0);
    ck_assert(cgroups->list("n1/jobs")->empty());
}
END_TEST

START_TEST(only_so_many_are_kept_and_none_for_long) {
    CgroupFixture cgroups;
    if (!can_keep(cgroups)) return;
    std::optional<CapsuleGroup> running;
    {
        CapsuleGroups groups(*cgroups, "n1/jobs", 2);
        std::vector<CapsuleGroup> used;
        used.reserve(4);
        for (int i = 0; i < 4; ++i) used.push_back(std::move(*groups.take(all_limits, plenty)));
        for (const CapsuleGroup& one : used) run_in(groups, cgroups, one);
        for (CapsuleGroup& one : used) ck_assert(groups.give_back(std::move(one), wait_max));
        ck_assert_uint_eq(groups.kept(), 2);
        ck_assert_uint_eq(cgroups->list("n1/jobs")->size(), 2);
        const Nanos now = monotonic_now();
        groups.drop_kept(now, Nanos::from_s(10));
        ck_assert_uint_eq(groups.kept(), 2);
        groups.drop_kept(now + Nanos::from_s(11), Nanos::from_s(10));
        ck_assert_uint_eq(groups.kept(), 0);
        ck_assert(cgroups->list("n1/jobs")->empty());
        running = std::move(*groups.take(all_limits, plenty));
        CapsuleGroup ended = std::move(*groups.take(all_limits, plenty));
        run_in(groups, cgroups, ended);
        ck_assert(groups.give_back(std::move(ended), wait_max));
        ck_assert_uint_eq(cgroups->list("n1/jobs")->size(), 2);
    }
    // The kept groups go with the daemon, and the group of a capsule stays.
    const std::string name = running->capsule.name();
    ck_assert(*cgroups->list("n1/jobs") == std::vector{name.substr(name.rfind('/') + 1)});
}
END_TEST

START_TEST(a_daemon_that_comes_back_finds_its_capsules_groups_and_removes_all_others) {
    CgroupFixture cgroups;
    if (!can_keep(cgroups)) return;
    const Cgroup older = std::move(*cgroups->create("n1/jobs/n1.1.1"));
    const Cgroup stale = std::move(*cgroups->create("n1/jobs/c9"));
    const Cgroup lives = std::move(*cgroups->create("n1/jobs/c3"));
    CapsuleGroups groups(*cgroups, "n1/jobs", 2);
    // A new group must not be one of those that were left, even before these are known.
    CapsuleGroup early = std::move(*groups.take(all_limits, plenty));
    ck_assert_text(early.capsule.name(), "n1/jobs/c10");
    ck_assert(groups.give_back(std::move(early), wait_max));
    CapsuleGroup found = std::move(*groups.find("n1/jobs/c3", all_limits));
    ck_assert_uint_eq(found.capsule.id(), lives.id());
    const CapsuleGroup named = std::move(*groups.find("n1/jobs/n1.1.1", all_limits));
    ck_assert_uint_eq(named.capsule.id(), older.id());
    ck_assert(groups.remove_others({"n1/jobs/c3", "n1/jobs/n1.1.1"}, wait_max));
    ck_assert((*cgroups->list("n1/jobs") == std::vector<std::string>{"c3", "n1.1.1"}));
    // New groups have other names than any group that was there.
    ck_assert_text(groups.take(all_limits, plenty)->capsule.name(), "n1/jobs/c11");
    // Earlier jobs may have changed this group before the daemon started, so it is not used again.
    groups.job_begins(found.capsule.name());
    ck_assert(groups.give_back(std::move(found), wait_max));
    ck_assert_uint_eq(groups.kept(), 0);
}
END_TEST

UNIT_SUITE(capsule_groups, the_groups_of_a_capsule_that_has_ended_serve_the_next_one,
           a_group_that_its_job_has_changed_serves_nobody_else,
           memory_that_a_job_leaves_behind_is_not_charged_to_the_next,
           what_the_kernel_has_counted_in_a_group_is_little_or_the_group_goes,
           a_group_that_is_kept_limits_nothing_until_the_next_limits_are_set,
           a_group_is_used_again_only_for_the_same_limits_and_never_for_a_restore,
           what_is_left_of_a_capsule_is_killed_and_its_group_removed,
           only_so_many_are_kept_and_none_for_long,
           a_daemon_that_comes_back_finds_its_capsules_groups_and_removes_all_others);
