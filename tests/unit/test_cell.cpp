// SPDX-License-Identifier: GPL-2.0-or-later
// Cells as an agent drives them, each effect by hand, so that what rarely comes between two of them
// comes at that very moment: a CRIU that dies while it holds the job, a capsule's connection that
// breaks while CRIU gets ready.
#include "agentd/cell/cell.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <thread>

#include "tests/unit/cell_rig.hpp"

namespace souk::unit {
namespace {
using Kind = guest::Input;

// Opens a second connection to the souk-init of the capsule with that directory.
Fd other_connection(int directory) {
    const std::string text = std::move(*read_file(directory, "capsule"));
    return std::move(*connect_to_init(*Pidfd::open(std::atoi(text.c_str())), directory));
}

START_TEST(a_destination_whose_criu_dies_while_it_holds_the_job_has_failed_and_the_source_goes_on) {
    UNIT_SKIP_IF(moves_impossible());
    CellNode n;
    Cell &source = n.running(), &destination = n.held_copy_of(source);
    n.kill_criu(destination);
    n.await(destination, Kind::restore_failed);
    destination.finish_restore();  // a release that comes late: nothing runs, and the daemon lives
    n.await(destination, Kind::criu_failed);
    destination.kill_capsule();
    n.await(destination, Kind::capsule_gone);
    n.undone(source);
    n.counts_to(source, 2);
}
END_TEST

// Nobody can make Souk restore a job of root's as a plain user's: neither by its image, nor by the
// process that reads the image.
START_TEST(a_job_of_root_is_restored_for_no_user_also_if_who_reads_images_says_it_is_his) {
    UNIT_SKIP_IF(moves_impossible());
    constexpr uint32_t user = 4321;
    CoreImage his;
    his.alive = his.has_credentials = his.credentials.no_new_privs = true;
    his.credentials.uids.fill(user);
    his.credentials.gids.fill(user);
    for (const bool taken_over : {false, true}) {
        const auto lie = [his](int socket, inspect::FileKind question) {
            using inspect::FileKind;
            inspect::Answer answer = his;
            if (question == FileKind::files) answer = EntryKinds{0, {1}};
            if (question == FileKind::fs) answer = FsRoot{1};
            if (question == FileKind::ids || question == FileKind::inventory)
                answer = ImageNamespaces{};
            (void)send_packet(socket, pack(answer));
        };
        CellNode n(detect_cgroups(*read_file(AT_FDCWD, "/proc/self/mountinfo")),
                   taken_over ? says_of_images(lie) : reads_images());
        ck_assert_int_eq(::chmod(n.work.path.c_str(), 0755), 0);
        Cell& source = n.running();
        // The user owns the file, so only the job's credentials can fail the restore.
        ck_assert_int_eq(::chown((n.work.path + "/file").c_str(), user, user), 0);
        Cell& copy = n.copy_of(source, user);
        if (taken_over) {
            n.await(copy, Kind::restore_held);
            copy.finish_restore();
        }
        auto& all = n.events[copy.key()];
        const auto failed = [](const guest::Event& e) {
            return input_of(e) == Kind::restore_failed;
        };
        UNTIL(n.loop, std::ranges::any_of(all, failed));
        const std::string why = why_of(*std::ranges::find_if(all, failed));
        ck_assert_msg(why.starts_with("its image is refused: ") &&
                          why.ends_with("it would be user 0") &&
                          (why.find("restored for user 4321") != why.npos) == taken_over,
                      "%s", why.c_str());
        ck_assert_text(n.output, "1\n");
        all.clear();
        copy.kill_capsule();
        n.await(copy, Kind::capsule_gone);
        n.undone(source);
        n.counts_to(source, 2);
    }
}
END_TEST

// souk-root starts no second one. The one before stands here, and ends when the test says so.
START_TEST(criu_is_started_when_the_one_before_has_ended) {
    UNIT_SKIP_IF(moves_impossible());
    CellNode n;
    Cell& c = n.running();
    CriuTool& tool = *n.site.criu;
    std::vector<pid_t> started;
    Pidfd last;
    int refused = 0;
    tool.launch = [&](const CriuLaunch& how) -> Result<Pidfd> {
        if (last && !*last.exited_within({})) {
            ++refused;
            return fail_errno("another CRIU is in that capsule", EALREADY);
        }
        const std::string init = *read_file(AT_FDCWD, n.directory(c) + "/capsule");
        TRY(lay_out_run(*Pidfd::open(std::atoi(init.c_str())), false, ""));
        auto criu = launch_criu(tool.command, tool.preload.get(), how);
        if (criu) started.push_back(criu->pid());
        if (criu) last = Pidfd(*duplicate(criu->get()), criu->pid());
        return criu;
    };
    const auto stands = [&] {
        c.ready_criu(false, false);
        n.await(c, Kind::criu_ready);
        tool.end = [](const Pidfd&) {};
        ck_assert_int_eq(::kill(started.back(), SIGSTOP), 0);
        n.undone(c);
    };
    const auto none_more_than = [&](size_t count, int times) {
        (void)n.loop.run_until([] { return false; }, Nanos::from_ms(50));
        ck_assert_uint_eq(started.size(), count);
        ck_assert_int_eq(refused, times);  // it is not asked for again and again
    };
    const auto ends = [&] { ck_assert_int_eq(::kill(started.back(), SIGKILL), 0); };
    stands();
    c.ready_criu(false, false);
    UNTIL(n.loop, refused == 1);
    none_more_than(1, 1);
    ends();
    n.await(c, Kind::criu_ready);
    ck_assert_uint_eq(started.size(), 2);
    tool.end = kill_program;
    n.undone(c);
    // The dump is given up meanwhile.
    stands();
    c.ready_criu(false, false);
    UNTIL(n.loop, refused == 2);
    n.undone(c);
    ends();
    none_more_than(3, 2);
    tool.end = kill_program;
    n.dumped(c);
    ck_assert_uint_eq(started.size(), 4);
    n.undone(c);
    n.counts_to(c, 2);
    tool.launch = nullptr;
}
END_TEST

START_TEST(a_destination_whose_criu_dies_when_it_is_told_to_run_runs_or_has_failed) {
    UNIT_SKIP_IF(moves_impossible());
    Rng rng(5);
    for (int i = 0; i < 16; ++i) {
        CellNode n;
        Cell &source = n.running(), &destination = n.held_copy_of(source);
        const int criu = n.criu_of(destination);
        destination.finish_restore();
        const Nanos then = Loop::now() + Nanos::from_us(static_cast<int64_t>(rng.below(2500)));
        while (Loop::now() < then) continue;
        (void)::kill(criu, SIGKILL);
        const auto told = [&](Kind kind) {
            const auto& all = n.events[destination.key()];
            return std::any_of(all.begin(), all.end(),
                               [&](const guest::Event& e) { return input_of(e) == kind; });
        };
        UNTIL(n.loop, told(Kind::restore_running) || told(Kind::restore_failed));
        if (told(Kind::restore_running)) {
            n.counts_to(destination, 2);
            n.events[destination.key()].clear();
        } else {
            n.events[destination.key()].clear();
            n.undone(source);
            n.counts_to(source, 2);
        }
    }
}
END_TEST

START_TEST(
    a_source_whose_criu_dies_while_it_holds_the_dump_stands_frozen_until_its_home_has_decided) {
    UNIT_SKIP_IF(moves_impossible());
    CellNode n;
    Cell& c = n.running();
    for (int moves = 1; moves < 4; ++moves) {
        n.dumped(c);
        n.kill_criu(c);
        const auto group = n.cgroups->create(c.cgroup_name() + "/job");
        (void)n.loop.run_until([&] { return !n.events[c.key()].empty(); }, Nanos::from_ms(50));
        ck_assert(n.events[c.key()].empty());
        ck_assert_text(*read_file(group->entry().v2, "cgroup.freeze"), "1\n");
        n.undone(c);
        n.counts_to(c, moves + 1);
    }
}
END_TEST

START_TEST(a_source_that_no_group_of_cgroup_v2_holds_goes_on_without_its_criu_and_says_so) {
    UNIT_SKIP_IF(moves_impossible());
    CgroupLayout v1 = detect_cgroups(*read_file(AT_FDCWD, "/proc/self/mountinfo"));
    v1.v2.clear();
    UNIT_SKIP_IF(v1.v1.contains("freezer") ? nullptr : "no v1 freezer is mounted");
    CellNode n(v1);
    Cell& c = n.running();
    n.dumped(c);
    n.kill_criu(c);
    n.await(c, Kind::dump_failed);
    n.counts_to(c, 2);
}
END_TEST

// A CRIU that has let the job run and does not end: the job can be moved again, and its end is
// heard.
START_TEST(a_job_does_not_wait_for_the_criu_that_restored_it) {
    UNIT_SKIP_IF(moves_impossible());
    const auto line = [](const std::string& pid, const std::string& field) {
        const auto text = read_file(AT_FDCWD, "/proc/" + pid + "/status");
        const size_t at = text ? text->find("\n" + field + ":\t") : std::string::npos;
        if (at == std::string::npos) return std::string();
        const size_t begin = at + field.size() + 3;
        return text->substr(begin, text->find('\n', begin) - begin);
    };
    int caught = 0;
    const Nanos last_try = Loop::now() + Nanos::from_s(30);
    // each a little later in its last steps
    for (int tries = 0; caught < 2 && tries < 50 && Loop::now() < last_try; ++tries) {
        CellNode n;
        Cell &source = n.running(), &copy = n.held_copy_of(source);
        const int pid = n.criu_of(copy);
        const std::string criu = std::to_string(pid);
        const auto children = read_file(AT_FDCWD, "/proc/" + criu + "/task/" + criu + "/children");
        UNIT_SKIP_IF(children ? nullptr : "/proc/PID/task/TID/children is missing");
        const std::string root = children->substr(0, children->find(' '));
        std::jthread stops([&](const std::stop_token& enough) {
            for (bool held = false; !enough.stop_requested();) {
                const std::string tracer = line(root, "TracerPid");
                held = held || tracer == criu;
                if (!held || tracer != "0") continue;
                for (const Nanos end = Loop::now() + Nanos::from_us(20 * tries); Loop::now() < end;)
                    continue;
                return (void)::kill(pid, SIGSTOP);
            }
        });
        copy.finish_restore();
        const auto runs = [&] {
            return std::ranges::any_of(n.events[copy.key()], [](const guest::Event& e) {
                return input_of(e) == Kind::restore_running;
            });
        };
        const auto told = n.loop.run_until(runs, Nanos::from_ms(200));
        stops.request_stop();
        stops.join();
        if (!*told) (void)::kill(pid, SIGCONT);  // it was stopped before it could say so
        n.await(copy, Kind::restore_running);
        const bool stopped = line(criu, "State").starts_with("T");
        n.counts_to(copy, 2);
        if (stopped && caught == 0) {
            n.dumped(copy);
            n.undone(copy);
            n.counts_to(copy, 3);
        }
        if (stopped) ck_assert(line(criu, "State").starts_with("T"));
        copy.input(stopped && caught == 0 ? 6 : 4, "", true);
        n.await(copy, Kind::exited);
        ck_assert(!line(criu, "State").starts_with("T"));
        caught += stopped;
    }
}
END_TEST

START_TEST(criu_gets_ready_though_the_connection_to_the_capsule_breaks_meanwhile) {
    UNIT_SKIP_IF(moves_impossible());
    CellNode n;
    Cell& c = n.running();
    const Fd directory = std::move(*open_at(AT_FDCWD, n.directory(c), O_RDONLY | O_DIRECTORY));
    for (int i = 0; i < 6; ++i) {
        // souk-init serves one connection. Another connection ends the cell's, before or after
        // souk-init has read the request.
        Fd other;
        if (i % 2 == 0) other = other_connection(directory.get());
        c.ready_criu(false, false);
        if (i % 2 == 1) other = other_connection(directory.get());
        n.await(c, Kind::criu_ready);
        c.dump(0);
        n.await(c, Kind::dump_froze);
        n.await(c, Kind::dump_held);
        n.undone(c);
        n.counts_to(c, i + 2);
    }
}
END_TEST

START_TEST(a_capsule_that_answers_nobody_any_more_is_the_cause) {
    UNIT_SKIP_IF(moves_impossible());
    CellNode n;
    Cell& c = n.running();
    const std::string path = n.directory(c), name = path + "/" SOUK_CTL_NAME;
    const Fd directory = std::move(*open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY));
    const Fd other = other_connection(directory.get());  // ends the cell's
    ck_assert_int_eq(::rename(name.c_str(), (name + ".away").c_str()), 0);
    c.ready_criu(false, false);
    ck_assert(n.await(c, Kind::criu_failed).code == CauseCode::capsule_silent);
    ck_assert_int_eq(::rename((name + ".away").c_str(), name.c_str()), 0);
}
END_TEST

START_TEST(an_image_whose_processes_are_another_users_is_refused) {
    UNIT_SKIP_IF(moves_impossible());
    CellNode n;
    Cell &source = n.running(), &copy = n.add(2, 65534);
    copy.ready_criu(false, false);
    n.await(copy, Kind::criu_ready);
    n.dumped(source);
    n.ship(source, copy);
    copy.restore();
    const Trouble why = n.await(copy, Kind::restore_failed);
    ck_assert_msg(why.code == CauseCode::image_refused && why.ends_with("it would be user 0"), "%s",
                  why.c_str());
    n.undone(source);
    n.counts_to(source, 2);
}
END_TEST

START_TEST(what_the_capsule_stopped_goes_on_if_its_home_had_answered_a_daemon_that_slept) {
    UNIT_SKIP_IF(moves_impossible());
    CellNode n;
    Cell& c = n.running();
    const auto group = n.cgroups->create(c.cgroup_name() + "/job");
    for (int round = 1; round < 3; ++round) {
        c.keep_lease(Loop::now() + Nanos::from_ms(200), false);
        const Nanos limit_at = Loop::now() + limit;  // this daemon does nothing until it stands
        while (read_file(group->entry().v2, "cgroup.events")->find("frozen 1") == std::string::npos)
            ck_assert(Loop::now() < limit_at);
        // of an answer that it reads before its timer
        c.keep_lease(Loop::now() + Nanos::from_s(600), false);
        n.counts_to(c, round + 1);
        ck_assert(::access((n.directory(c) + "/" SOUK_LAPSED_NAME).c_str(), F_OK) != 0);
        for (const guest::Event& e : n.events[c.key()]) ck_assert(input_of(e) != Kind::lapsed);
    }
}
END_TEST

// A daemon that has just been started looks for the record before PID 1 has written it.
START_TEST(how_a_job_ended_is_found_though_it_is_written_while_a_new_daemon_looks) {
    CellNode n;
    Cell& before = n.running();
    GuestJob job;
    job.key = before.key();
    job.state = GuestState::running;
    before.input(2, "", true);
    n.await(before, Kind::exited);
    const std::string record = n.directory(before) + "/" SOUK_EXIT_NAME, aside = record + ".aside";
    struct stat st;
    ck_assert_int_eq(::stat(record.c_str(), &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0644);  // the daemon may run as a user of its own
    ck_assert_int_eq(::rename(record.c_str(), aside.c_str()), 0);
    n.cells.pop_back();
    Cell& after = n.cells.emplace_back(n.site, job);
    std::thread init([&] {
        ::usleep(20'000);
        MUST(::rename(aside.c_str(), record.c_str()) == 0);
    });
    const Guest::Found found = after.adopt();
    init.join();
    ck_assert(found.capsule_alive && !found.job_alive && found.exited);
    ck_assert_int_eq(found.wait_status, 0);
    n.await(after, Kind::exited);
}
END_TEST

// The kernel refuses so large a number of processes.
START_TEST(
    a_limit_that_cannot_be_set_is_logged_with_its_file_and_the_job_runs_in_a_group_of_its_own) {
    CellNode n;
    const Fd said(::memfd_create("log", MFD_CLOEXEC));
    Log log{{.fd = said.get(), .level_max = Level::warning, .program = "test_cell"}};
    n.site.log = &log;
    n.site.limits.pids = true;
    n.site.pids_max = int64_t{1} << 40;
    Cell& c = n.running();
    std::string text(4096, '\0');
    const ssize_t bytes = ::pread(said.get(), text.data(), text.size(), 0);
    ck_assert(bytes > 0);
    text.resize(static_cast<size_t>(bytes));
    ck_assert_msg(text.find("a job is not limited") != text.npos, "%s", text.c_str());
    ck_assert_msg(text.find("pids.max") != text.npos, "%s", text.c_str());
    n.counts_to(c, 2);
    // The group may still have limits of this job, so no other job gets it.
    const std::string group = c.cgroup_name();
    c.remove();
    n.await(c, Kind::removed);
    n.cells.pop_back();
    n.output.clear();
    ck_assert(n.running().cgroup_name() != group);
    n.site.log = &n.log;
}
END_TEST

}  // namespace

UNIT_SUITE_LONG(
    cell, 120, how_a_job_ended_is_found_though_it_is_written_while_a_new_daemon_looks,
    a_limit_that_cannot_be_set_is_logged_with_its_file_and_the_job_runs_in_a_group_of_its_own,
    what_the_capsule_stopped_goes_on_if_its_home_had_answered_a_daemon_that_slept,
    criu_is_started_when_the_one_before_has_ended,
    a_destination_whose_criu_dies_when_it_is_told_to_run_runs_or_has_failed,
    a_destination_whose_criu_dies_while_it_holds_the_job_has_failed_and_the_source_goes_on,
    a_source_whose_criu_dies_while_it_holds_the_dump_stands_frozen_until_its_home_has_decided,
    a_job_of_root_is_restored_for_no_user_also_if_who_reads_images_says_it_is_his,
    a_source_that_no_group_of_cgroup_v2_holds_goes_on_without_its_criu_and_says_so,
    a_job_does_not_wait_for_the_criu_that_restored_it,
    criu_gets_ready_though_the_connection_to_the_capsule_breaks_meanwhile,
    a_capsule_that_answers_nobody_any_more_is_the_cause,
    an_image_whose_processes_are_another_users_is_refused);

}  // namespace souk::unit
