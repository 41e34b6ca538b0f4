// SPDX-License-Identifier: GPL-2.0-or-later
// OwnerSigns: sessions of a logind that the test plays (in a mount namespace of its own), programs
// that are looked for, and what the kernel says of pressure.
#include "agentd/daemon/owner_signs.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <set>

#include "bpf/load.hpp"
#include "kernel/sys/host/accounts.hpp"
#include "tests/unit/cgroup_fixture.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

struct Signs {
    Loop loop = open_loop();
    Log log{{.level_max = Level::error, .program = "test_owner_signs"}};
    std::vector<std::pair<OwnerSign, std::string>> seen;
    SystemAccounts accounts;
    OwnerSigns signs{
        loop,     log,
        accounts, "souk/n1",
        "",       [this](OwnerSign sign, const std::string& why) { seen.emplace_back(sign, why); }};
};

// As logind writes it.
void write_session(const std::string& id, const char* active, const char* remote,
                   const char* seat) {
    const std::string path = "/run/systemd/sessions/" + id,
                      text = std::string(
                                 "UID=0\nUSER=root\nSTATE=active\nTYPE=tty\nCLASS=user\nACTIVE=") +
                             active + "\nREMOTE=" + remote + "\n" +
                             (*seat ? std::string("SEAT=") + seat + "\n" : "");
    OK(create_file(AT_FDCWD, path + ".new", text));
    ck_assert_int_eq(::rename((path + ".new").c_str(), path.c_str()), 0);
}

}  // namespace

START_TEST(a_login_session_that_is_in_use_is_seen_as_it_begins_and_as_long_as_it_lasts) {
    if (!need_root("a mount namespace")) return;
    UNIT_SKIP_IF(::access("/run/systemd", F_OK) == 0 ? nullptr : "no /run/systemd");
    ck_assert_int_eq(::unshare(CLONE_NEWNS), 0);
    ck_assert_int_eq(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr), 0);
    ck_assert_int_eq(::mount("none", "/run/systemd", "tmpfs", 0, nullptr), 0);
    for (const char* dir : {"sessions", "users", "seats", "machines"})
        ck_assert_int_eq(::mkdir((std::string("/run/systemd/") + dir).c_str(), 0755), 0);
    Signs s;
    s.signs.watch({.sessions = OwnerSignsWish::Sessions::local});
    ck_assert_text(s.signs.trouble(), "");
    ck_assert(s.seen.empty());
    write_session("c1", "1", "1", "");  // by ssh
    write_session("c2", "0", "0", "seat0");
    write_session("c3", "1", "0", "seat0");
    UNTIL(s.loop, !s.seen.empty());
    ck_assert(s.seen.back().first == OwnerSign::session);
    ck_assert_text(s.seen.back().second, "root is logged in (session c3 at seat0)");
    size_t before = s.seen.size();
    s.signs.tick(false);
    ck_assert_uint_eq(s.seen.size(), before + 1);
    ck_assert_int_eq(::unlink("/run/systemd/sessions/c3"), 0);
    UNTIL(s.loop, (before = s.seen.size(), s.signs.tick(false), s.seen.size() == before));
    s.signs.watch({.sessions = OwnerSignsWish::Sessions::all});
    ck_assert_text(s.seen.back().second, "root is logged in (session c1)");
    s.signs.watch({});
    before = s.seen.size();
    s.signs.tick(true);
    ck_assert_uint_eq(s.seen.size(), before);
}
END_TEST

START_TEST(who_types_at_a_terminal_is_seen_at_once_and_what_a_program_prints_is_no_use) {
    Signs s;
    s.signs.watch({.input = InputWatch::Which::all});
    ck_assert_text(s.signs.trouble(), "");
    // A terminal that comes while others are watched.
    int master = -1, slave = -1;
    char name[64];
    ck_assert_int_eq(::openpty(&master, &slave, name, nullptr, nullptr), 0);
    const Fd master_end(master), slave_end(slave);
    const auto told = [&] {
        return std::count(s.seen.begin(), s.seen.end(),
                          std::pair{OwnerSign::input, name + std::string(" is in use")});
    };
    char text[16];
    const auto types = [&] {
        ck_assert_int_eq(::write(master, "a\n", 2), 2);
        ck_assert_int_eq(::read(slave, text, sizeof text), 2);
    };
    UNTIL(s.loop, (types(), s.signs.tick(false), told() > 0));
    // Once a second, however much is typed.
    s.seen.clear();
    types();
    s.signs.tick(false);
    for (int i = 0; i < 100; ++i) types();
    (void)s.loop.run_until([] { return false; }, Nanos::from_ms(20));
    ck_assert_int_eq(told(), 1);
    UNTIL(s.loop, (s.seen.clear(), s.signs.tick(false), told() == 0));
    // It waits again, and is told by the kernel.
    types();
    UNTIL(s.loop, told() > 0);
    UNTIL(s.loop, (s.seen.clear(), s.signs.tick(false), told() == 0));
    for (int i = 0; i < 20; ++i) ck_assert_int_eq(::write(slave, "out", 3), 3);
    ck_assert_int_gt(::read(master, text, sizeof text), 0);
    (void)s.loop.run_until([] { return false; }, Nanos::from_ms(20));
    ck_assert_int_eq(told(), 0);
    s.signs.watch({});
    types();
    s.signs.tick(false);
    ck_assert_int_eq(told(), 0);
}
END_TEST

START_TEST(a_program_that_the_owner_names_is_seen_as_long_as_it_runs) {
    TempDir dir;
    const std::string game = dir.path + "/souk-game-with-a-long-name";
    ck_assert_int_eq(::symlink("/bin/sleep", game.c_str()), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ::execl(game.c_str(), game.c_str(), "1000", nullptr);
        ::_exit(127);
    }
    Signs s;
    s.signs.watch({.programs = {"souk-game-with-"}});
    UNTIL_PEER(s.loop, (s.signs.tick(true), !s.seen.empty()));  // it may not have begun yet
    ck_assert(s.seen.back().first == OwnerSign::program);
    ck_assert_text(s.seen.back().second,
                   "program souk-game-with- runs (process " + std::to_string(child) + ")");
    s.signs.began(::getpid());  // another
    ck_assert_int_eq(::kill(child, SIGKILL), 0);
    size_t before = 0;
    UNTIL(s.loop, (before = s.seen.size(), s.signs.tick(false), s.seen.size() == before));
    ck_assert_int_eq(::waitpid(child, nullptr, 0), child);
}
END_TEST

START_TEST(a_program_that_is_named_is_told_as_it_begins) {
    if (!need_root("loading BPF programs")) return;
    CgroupFixture cgroups;
    LoadProbe probe = std::move(*LoadProbe::open(*cgroups, "n1", 2, {.daemon = 0}));
    ck_assert_str_eq(probe.source(), "bpf");
    ck_assert(probe.notice_programs({"another", "souk-game-with-"}));
    TempDir dir;
    const std::string game = dir.path + "/souk-game-with-a-long-name";
    ck_assert_int_eq(::symlink("/bin/true", game.c_str()), 0);
    pid_t child = 0, told = 0;
    while (told != child || child == 0) {  // one that the ring had no place for is started again
        child = ::fork();
        if (child == 0) ::execl(game.c_str(), game.c_str(), nullptr);
        if (child == 0) ::_exit(127);
        ck_assert_int_eq(::waitpid(child, nullptr, 0), child);
        pollfd ready{probe.notices_fd(), POLLIN, 0};
        ck_assert_int_eq(::poll(&ready, 1, static_cast<int>(limit.ns / 1'000'000)), 1);
        probe.take_notices([&](const LoadNotice& n) {
            if (n.program) told = n.pid;
        });
    }
    ck_assert(probe.notice_programs({}));
    ck_assert(!probe.notice_programs([] {
        std::set<std::string> many;
        for (int i = 0; i < 65; ++i) many.insert(std::to_string(i));
        return many;
    }()));
}
END_TEST

START_TEST(the_sum_of_stalls_is_read_as_the_kernel_writes_it) {
    const auto total = pressure_total(
        "some avg10=0.00 avg60=0.12 avg300=0.05 total=1234567\nfull avg10=0.00 total=9\n");
    ck_assert(total && total->ns == 1'234'567'000);
    for (const char* bad : {"", "full total=1\n", "some avg10=0.00\nfull total=1\n",
                            "some total=x\n", "some total=-5\n"})
        ck_assert(!pressure_total(bad));
    const auto share = pressure_permille("some avg10=12.34 avg60=0.12 avg300=0.05 total=1\n");
    ck_assert(share && *share == 123);
    ck_assert_int_eq(*pressure_permille("some avg10=0.00 avg60=0.00"), 0);
    ck_assert_int_eq(*pressure_permille("some avg10=100.00 avg60=0.00"), 1000);
    for (const char* bad : {"", "full avg10=1.00", "some avg10=", "some avg10=-1.00",
                            "some avg10=101.00", "some avg60=1.00"})
        ck_assert(!pressure_permille(bad));
    UNIT_SKIP_IF(::access("/proc/pressure/memory", W_OK) == 0 ? nullptr : "no PSI");
    Signs s;
    s.signs.watch({.pressure = Nanos::from_ms(500)});
    ck_assert_text(s.signs.trouble(), "");
    s.signs.tick(false);
    Signs bad;
    bad.signs.watch({.pressure = Nanos{1}});  // no trigger of the kernel's
    ck_assert(!bad.signs.trouble().empty());
}
END_TEST

UNIT_SUITE(owner_signs, a_login_session_that_is_in_use_is_seen_as_it_begins_and_as_long_as_it_lasts,
           who_types_at_a_terminal_is_seen_at_once_and_what_a_program_prints_is_no_use,
           a_program_that_the_owner_names_is_seen_as_long_as_it_runs,
           a_program_that_is_named_is_told_as_it_begins,
           the_sum_of_stalls_is_read_as_the_kernel_writes_it);

}  // namespace souk::unit
