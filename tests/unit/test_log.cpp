// SPDX-License-Identifier: GPL-2.0-or-later
// Log lines as text, the choice between journal and people, the rate limit, and readiness to a
// service manager.
#include "kernel/sys/host/log.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/host/log_trace.hpp"
#include "kernel/sys/host/notify.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {

std::string all_of(int fd) {
    std::string out;
    char buf[65536];
    for (ssize_t n; (n = read(fd, buf, sizeof buf)) > 0;) out.append(buf, static_cast<size_t>(n));
    return out;
}

Pipe nonblocking_pipe() {
    auto pipe = make_pipe();
    ck_assert(pipe.has_value());
    fcntl(pipe->read_end.get(), F_SETFL, O_NONBLOCK);
    return std::move(*pipe);
}

}  // namespace

START_TEST(a_line_holds_message_and_fields_and_no_input_can_forge_another) {
    ck_assert_text(format_log_line(false, "12:00", "agentd", Level::info, "job started",
                                   {{"job", "n1.7"}, {"cpus", 2}}),
                   "12:00 agentd: job started job=n1.7 cpus=2\n");
    ck_assert_text(format_log_line(true, "", "agentd", Level::warning, "odd",
                                   {{"why", "two words"}, {"none", ""}}),
                   "<4>odd why=\"two words\" none=\"\"\n");
    ck_assert_text(
        format_log_line(false, "", "", Level::error, "a\n<0>b", {{"x", "1\x1b[31m\n=\"\\"}}),
        "error: a\\n<0>b x=\"1\\x1b[31m\\n=\\\"\\\\\"\n");
    const std::string line =
        format_log_line(true, "", "", Level::info, std::string(10'000, 'm'), {});
    ck_assert_uint_eq(line.size(), 4096);
    ck_assert(line.ends_with("m...\n"));
}
END_TEST

START_TEST(the_journal_is_recognised_by_its_stream_and_levels_filter) {
    Pipe pipe = nonblocking_pipe();
    struct stat st;
    fstat(pipe.write_end.get(), &st);
    setenv("JOURNAL_STREAM", (std::to_string(st.st_dev) + ":" + std::to_string(st.st_ino)).c_str(),
           1);
    Log journal(
        {.fd = pipe.write_end.get(), .level_max = Level::info, .program = "agentd", .journal = ""});
    ck_assert(journal.for_journal());
    journal.debug("not this");
    journal.error("this", {{"error", Error{2, "no such file"}}});
    ck_assert_text(all_of(pipe.read_end.get()), "<3>this error=\"no such file\"\n");
    setenv("JOURNAL_STREAM", "1:1", 1);
    Log people({.fd = pipe.write_end.get(), .level_max = Level::debug, .program = "agentd"});
    ck_assert(!people.for_journal());
    people.debug("hm");
    const std::string line = all_of(pipe.read_end.get());
    ck_assert_msg(line.size() == strlen("2026-01-02 03:04:05.678 agentd: debug: hm\n") &&
                      line.ends_with(" agentd: debug: hm\n"),
                  "%s", line.c_str());
}
END_TEST

// The journal's own socket is one of the test's: a datagram for each line, and stderr when that is
// gone.
START_TEST(the_journal_has_each_field_as_its_own_and_stderr_takes_over_when_it_is_gone) {
    ck_assert_text(format_journal_entry("agentd", Level::debug, "guest state",
                                        {{"JOB", "n1.7"}, {"why", "a \"b\"\nPRIORITY=0"}}),
                   "MESSAGE=guest state JOB=n1.7 why=\"a "
                   "\\\"b\\\"\\nPRIORITY=0\"\nPRIORITY=7\nSYSLOG_IDENTIFIER=agentd\n"
                   "JOB=n1.7\nWHY=a \"b\"\\nPRIORITY=0\n");
    Pipe pipe = nonblocking_pipe();
    struct stat st;
    fstat(pipe.write_end.get(), &st);
    setenv("JOURNAL_STREAM", (std::to_string(st.st_dev) + ":" + std::to_string(st.st_ino)).c_str(),
           1);
    Fd journal(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const std::string name = "@souk-journal-" + std::to_string(getpid());
    sockaddr_un un{};
    un.sun_family = AF_UNIX;
    memcpy(un.sun_path + 1, name.data() + 1, name.size() - 1);
    ck_assert_int_eq(bind(journal.get(), reinterpret_cast<sockaddr*>(&un),
                          static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())),
                     0);
    Log log({.fd = pipe.write_end.get(),
             .level_max = Level::info,
             .program = "agentd",
             .journal = name});
    log.info("a job started", {{"JOB", "n1.7"}});
    char buf[200];
    ck_assert_text(
        std::string(buf, static_cast<size_t>(recv(journal.get(), buf, sizeof buf, MSG_DONTWAIT))),
        "MESSAGE=a job started JOB=n1.7\nPRIORITY=6\nSYSLOG_IDENTIFIER=agentd\nJOB=n1.7\n");
    ck_assert_text(all_of(pipe.read_end.get()), "");
    journal.reset();
    log.info("on it goes");
    ck_assert_text(all_of(pipe.read_end.get()), "<6>on it goes\n");
}
END_TEST

// A step of a machine has the same fields wherever it is told; what it does not have is left out.
START_TEST(a_step_of_a_machine_is_a_line_with_the_fields_of_all_steps) {
    setenv("JOURNAL_STREAM", "", 1);
    Pipe pipe = nonblocking_pipe();
    Log log({.fd = pipe.write_end.get(), .level_max = Level::debug, .program = "agentd"});
    LogTrace trace(log);
    ck_assert(trace.listener() == &trace);
    trace.tell(
        {"home", TraceKind::output, "command.ship", {"n1", 7}, {1}, "n2", "n3.2", "two words"});
    trace.tell({"guest", TraceKind::input, "tick", {}, {}, {}, {}, {}});
    const std::string text = all_of(pipe.read_end.get());
    ck_assert_msg(text.find(" agentd: debug: home output STEP=command.ship JOB=n1.7 EPOCH=1 "
                            "NODE=n2 TO=n3.2 WHY=\"two words\"\n") != text.npos,
                  "%s", text.c_str());
    ck_assert_msg(text.ends_with("guest input STEP=tick\n"), "%s", text.c_str());
    Log quiet({.fd = pipe.write_end.get(), .level_max = Level::info, .program = "agentd"});
    ck_assert(LogTrace(quiet).listener() == nullptr);  // then the machines make no line
}
END_TEST

START_TEST(lines_that_repeat_are_limited_and_counted) {
    setenv("JOURNAL_STREAM", "", 1);
    Pipe pipe = nonblocking_pipe();
    Log log({.fd = pipe.write_end.get(), .level_max = Level::info, .program = {}});
    const auto count = [&] {
        const std::string text = all_of(pipe.read_end.get());
        return std::count(text.begin(), text.end(), '\n');
    };
    for (int i = 0; i < 100; ++i)
        log.limited("accept", Nanos::from_s(i / 10), Level::warning, "accept failed");
    log.limited("other", Nanos::from_s(10), Level::warning, "another site");
    ck_assert_int_eq(count(), 6);
    log.limited("accept", Nanos::from_s(60), Level::warning, "accept failed");
    const std::string text = all_of(pipe.read_end.get());
    ck_assert_msg(
        text.find("similar lines were left out about=accept count=95") != std::string::npos, "%s",
        text.c_str());
    ck_assert_int_eq(std::count(text.begin(), text.end(), '\n'), 2);
    // However many keys: memory and lines stay bounded.
    for (int i = 0; i < 2000; ++i)
        log.limited("k" + std::to_string(i), Nanos::from_s(61), Level::info, "x");
    ck_assert_int_eq(count(), static_cast<long>(Log::keys_max) - 2 + Log::lines_max);
}
END_TEST

START_TEST(a_log_that_nobody_reads_loses_lines_and_does_not_block) {
    setenv("JOURNAL_STREAM", "", 1);
    auto pipe = make_pipe();
    fcntl(pipe->write_end.get(), F_SETPIPE_SZ, 4096);
    Log log({.fd = pipe->write_end.get(), .level_max = Level::info, .program = {}});
    for (int i = 0; i < 6; ++i) log.info(std::string(2000, 'x'));  // returns: two fit
    pipe->write_end.reset();
    ck_assert_uint_le(all_of(pipe->read_end.get()).size(), 4096);
}
END_TEST

START_TEST(readiness_reaches_the_service_manager_and_none_is_no_error) {
    unsetenv("NOTIFY_SOCKET");
    ck_assert(notify_ready().has_value());
    const Fd manager(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const std::string name = "@souk-notify-" + std::to_string(getpid());
    sockaddr_un un{};
    un.sun_family = AF_UNIX;
    memcpy(un.sun_path + 1, name.data() + 1, name.size() - 1);
    ck_assert_int_eq(bind(manager.get(), reinterpret_cast<sockaddr*>(&un),
                          static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + name.size())),
                     0);
    setenv("NOTIFY_SOCKET", name.c_str(), 1);
    ck_assert(notify_ready("3 jobs\nX=1").has_value());
    ck_assert(notify_stopping().has_value());
    char buf[100];
    ck_assert_text(
        std::string(buf, static_cast<size_t>(recv(manager.get(), buf, sizeof buf, MSG_DONTWAIT))),
        "READY=1\nSTATUS=3 jobs");
    ck_assert_text(
        std::string(buf, static_cast<size_t>(recv(manager.get(), buf, sizeof buf, MSG_DONTWAIT))),
        "STOPPING=1");
    setenv("NOTIFY_SOCKET", "@souk-nobody-here", 1);
    ck_assert(!notify_ready());
}
END_TEST

UNIT_SUITE(log, a_line_holds_message_and_fields_and_no_input_can_forge_another,
           the_journal_is_recognised_by_its_stream_and_levels_filter,
           the_journal_has_each_field_as_its_own_and_stderr_takes_over_when_it_is_gone,
           a_step_of_a_machine_is_a_line_with_the_fields_of_all_steps,
           lines_that_repeat_are_limited_and_counted,
           a_log_that_nobody_reads_loses_lines_and_does_not_block,
           readiness_reaches_the_service_manager_and_none_is_no_error);
