// SPDX-License-Identifier: GPL-2.0-or-later
// The lock that holds up a shutdown, against a logind of the test's own on a bus of its own.
#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#include <fstream>

#include "kernel/sys/host/shutdown_delay.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::unit;

namespace {

int lock_pipe[2];

int inhibit(sd_bus_message* m, void*, sd_bus_error*) {
    const char *what, *who, *why, *mode;
    if (::sd_bus_message_read(m, "ssss", &what, &who, &why, &mode) < 0) return -EINVAL;
    if (std::string(what) != "shutdown" || std::string(mode) != "delay") return -EINVAL;
    const int sent = ::sd_bus_reply_method_return(m, "h", lock_pipe[1]);
    ::close(lock_pipe[1]);
    return sent;
}

const sd_bus_vtable table[] = {
    SD_BUS_VTABLE_START(0),
    SD_BUS_METHOD("Inhibit", "ssss", "h", inhibit, SD_BUS_VTABLE_UNPRIVILEGED),
    SD_BUS_SIGNAL("PrepareForShutdown", "b", 0), SD_BUS_VTABLE_END};

// In a process of its own: gives the lock, begins a shutdown, and says on `out` when it may go on.
[[noreturn]] void logind(int ready, int out) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    sd_bus* bus = nullptr;
    if (::sd_bus_open_system(&bus) < 0 || ::pipe2(lock_pipe, O_CLOEXEC) < 0 ||
        ::sd_bus_add_object_vtable(bus, nullptr, "/org/freedesktop/login1",
                                   "org.freedesktop.login1.Manager", table, nullptr) < 0 ||
        ::sd_bus_request_name(bus, "org.freedesktop.login1", 0) < 0)
        ::_exit(1);
    (void)!::write(ready, "r", 1);
    while (::fcntl(lock_pipe[1], F_GETFD) >= 0) {  // until the lock was taken
        if (::sd_bus_process(bus, nullptr) == 0) ::sd_bus_wait(bus, UINT64_MAX);
    }
    ::sd_bus_emit_signal(bus, "/org/freedesktop/login1", "org.freedesktop.login1.Manager",
                         "PrepareForShutdown", "b", 1);
    ::sd_bus_flush(bus);
    char none;
    (void)!::read(lock_pipe[0], &none, 1);  // ends when the last holder lets go
    (void)!::write(out, "f", 1);
    ::_exit(0);
}

pid_t bus_daemon(const std::string& dir) {
    std::ofstream(dir + "/bus.conf") << "<busconfig><listen>unix:path=" << dir << "/bus</listen>"
                                     << "<policy context='default'><allow send_destination='*' "
                                        "eavesdrop='true'/><allow eavesdrop='true'/>"
                                     << "<allow own='*'/><allow user='*'/></policy></busconfig>";
    int ready[2];
    ck_assert(::pipe(ready) == 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        ::execl("/usr/bin/dbus-daemon", "dbus-daemon", "--nofork", "--nopidfile",
                ("--config-file=" + dir + "/bus.conf").c_str(),
                ("--print-address=" + std::to_string(ready[1])).c_str(), nullptr);
        ::_exit(127);
    }
    ::close(ready[1]);
    char text[256];
    ck_assert(::read(ready[0], text, sizeof text) > 0);
    ::close(ready[0]);
    ::setenv("DBUS_SYSTEM_BUS_ADDRESS", ("unix:path=" + dir + "/bus").c_str(), 1);
    return pid;
}

}  // namespace

START_TEST(a_shutdown_waits_until_the_lock_is_let_go) {
    if (::access("/usr/bin/dbus-daemon", X_OK) != 0) return;
    const TempDir dir;
    const pid_t bus = bus_daemon(dir.path);
    int ready[2], out[2];
    ck_assert(::pipe(ready) == 0 && ::pipe2(out, O_NONBLOCK) == 0);
    const pid_t fake = ::fork();
    if (fake == 0) logind(ready[1], out[1]);
    char byte;
    ck_assert_int_eq(::read(ready[0], &byte, 1), 1);
    Loop loop = open_loop();
    bool begins = false;
    auto delay = ShutdownDelay::open(loop, "souk n1", "guests leave", [&](bool b) { begins = b; });
    ck_assert_msg(delay.has_value(), "%s", delay ? "" : delay.error().message.c_str());
    UNTIL(loop, (*delay)->held() && begins);
    ck_assert_int_eq(::read(out[0], &byte, 1), -1);  // it waits
    (*delay)->release();
    UNTIL_PEER(loop, ::read(out[0], &byte, 1) == 1);
    for (const pid_t pid : {fake, bus}) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
    }
}
END_TEST

START_TEST(without_a_bus_there_is_no_lock_and_one_line_says_why) {
    Loop loop = open_loop();
    ::setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent/bus", 1);
    const auto delay = ShutdownDelay::open(loop, "souk n1", "guests leave", [](bool) {});
    if (delay) {  // it connects later
        UNTIL(loop, !(*delay)->trouble().empty());
        ck_assert(!(*delay)->held());
    } else {
        ck_assert(delay.error().message.find("system bus") != std::string::npos);
    }
}
END_TEST

UNIT_SUITE(shutdown_delay, a_shutdown_waits_until_the_lock_is_let_go,
           without_a_bus_there_is_no_lock_and_one_line_says_why);
