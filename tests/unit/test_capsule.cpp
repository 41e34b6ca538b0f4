// SPDX-License-Identifier: GPL-2.0-or-later
// Capsules and souk-init for real: each test makes its own namespaces and leaves nothing.
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>

#include "kernel/base/rng.hpp"
#include "kernel/sys/process/movable.hpp"
#include "tests/unit/capsule_rig.hpp"
#include "tests/unit/unit.hpp"

namespace souk {
namespace {
using unit::CapsuleRig;
using unit::JobOutput;

START_TEST(what_no_dump_takes_along_is_known_by_its_name) {
    ck_assert(unmovable_file("anon_inode:[io_uring]") == CauseCode::holds_io_uring);
    for (const char* fine :
         {"anon_inode:[eventfd]", "anon_inode:[eventpoll]", "anon_inode:[timerfd]",
          "anon_inode:[signalfd]", "anon_inode:inotify", "anon_inode:[pidfd]", "pipe:[123]",
          "socket:[5]", "/dev/null", "/home/fuse", ""})
        ck_assert_msg(unmovable_file(fine) == CauseCode::none, "%s", fine);
}
END_TEST

START_TEST(the_peer_of_a_connection_is_read_from_the_kernels_tables) {
    const std::string v4 =
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  "
        "timeout inode\n"
        "   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        "
        "0 41 1 0000000000000000 100 0 0 10 0\n"
        "   1: 0B004F0A:C350 01004F0A:1B9E 01 00000000:00000000 02:00000B7A 00000000     0        "
        "0 4210 2 0000000000000000 20 4 30 10 -1\n"
        "   2: 0B004F0A:C351 01004F0A:1B9E 06 00000000:00000000 00:00000000 00000000     0        "
        "0 0 3 0000000000000000\n"
        "   3: 0B004F0A:C352 01004F0A:1B9E 08 00000000:00000000 00:00000000 00000000     0        "
        "0 43 1 0000000000000000 20 4 30 10 -1";
    const std::string v6 =
        "\n   0: 00000000000000000000000001000000:9C40 00000000000000000000000001000000:0050 01 "
        "00000000:00000000 00:00000000 00000000     0        0 77 1 0000000000000000 20 4 30 10 "
        "-1\n";
    ck_assert_text(tcp_peer(v4, "4210"), "10.79.0.1:7070");
    ck_assert_text(tcp_peer(v4, "43"), "10.79.0.1:7070");  // half closed, with no line end
    ck_assert_text(tcp_peer(v6, "77"), "[::1]:80");
    for (const char* none : {"41", "421", "0", "", "99"})
        ck_assert_msg(tcp_peer(v4, none).empty(), "%s", none);
    ck_assert(tcp_peer("", "43").empty() && tcp_peer("0: x 5", "5").empty());
}
END_TEST

START_TEST(a_job_gets_its_arguments_surroundings_and_limits_and_its_status_comes_back) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output, false, {true, 1234, 1234, {1234, 4321}});
    LaunchSpec spec = unit::shell(
        "pwd; umask; ulimit -n; id -u; id -G; echo \"$0 $1 $WORD $(($$ > 1000))\"; "
        "all=(/proc/[0-9]*); echo "
        "${#all[@]}; "
        "ls /proc/self/fd | wc -l; echo err >&2; exit 7");
    spec.argv.insert(spec.argv.end(), {"zero", "one two"});
    spec.env.push_back("WORD=three");
    spec.cwd = "/usr";
    spec.umask = 027;
    spec.uid = spec.gid = 1234;
    spec.groups = {1234, 4321};
    spec.rlimits = {{7, 333, 444}};  // RLIMIT_NOFILE
    rig.start(spec);
    ck_assert(rig.until([&] { return rig.ended(); }));
    ck_assert_text(output.text[0],
                   "/usr\n0027\n333\n1234\n1234 4321\nzero one two three 1\n2\n4\n");
    ck_assert_text(output.text[1], "err\n");
    ck_assert_int_eq(WEXITSTATUS(rig.exit->wait_status), 7);
    const auto record = read_exit_record(rig.dir.fd.get());
    ck_assert(record.has_value() && decode_exit(*record)->wait_status == rig.exit->wait_status);
}
END_TEST

// Both processes share a table of files for a moment. There are many files, so some numbers are
// above those that are handed over, and some below.
START_TEST(a_capsule_gets_no_file_of_its_daemon_and_takes_none_from_it) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    std::vector<Fd> files;
    constexpr int count = 200;
    files.reserve(count);
    for (int i = 0; i < count; ++i) files.emplace_back(::open("/dev/null", O_RDWR));
    JobOutput output;
    CapsuleRig rig(output);
    ck_assert(rig.until([&] { return rig.welcomed; }));
    const std::string links = "/proc/" + std::to_string(rig.capsule.id().pid) + "/fd";
    const auto numbers = std::move(*list_dir(AT_FDCWD, links));
    ck_assert_int_eq(std::count_if(numbers.begin(), numbers.end(),
                                   [&](const std::string& number) {
                                       return std::filesystem::read_symlink(links + "/" + number) ==
                                              "/dev/null";
                                   }),
                     3);
    for (const Fd& fd : files) ck_assert_int_ge(::fcntl(fd.get(), F_GETFD), 0);
    // The daemon keeps no copy of souk-init's end, which would hide that this is gone.
    rig.capsule.kill();
    ck_assert(rig.until([&] { return rig.closed; }));
}
END_TEST

START_TEST(a_program_that_does_not_exist_is_named_and_a_missing_directory_too) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    for (const bool program : {true, false}) {
        JobOutput output;
        CapsuleRig rig(output);
        LaunchSpec spec = unit::shell("true");
        (program ? spec.path : spec.cwd) = "/no/such";
        rig.start(spec);
        ck_assert(rig.until([&] { return rig.failure.has_value(); }));
        ck_assert_text(*rig.failure, program ? "run /no/such: No such file or directory"
                                             : "go to /no/such: No such file or directory");
        ck_assert_int_eq(rig.program_failure, program);
    }
}
END_TEST

START_TEST(a_held_program_runs_no_byte_until_it_is_released_and_a_new_agent_finds_it_so) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    for (const bool released : {true, false}) {
        JobOutput output;
        CapsuleRig rig(output);
        rig.start(unit::shell("echo ran; exit 3"), -1, true);
        ck_assert(rig.until([&] { return rig.held; }));
        rig.drop_connection();
        rig.connect_again();
        ck_assert(rig.until([&] { return rig.held; }));
        ck_assert(!rig.started && !rig.exit && output.text[0].empty());
        if (released)
            ck_assert(rig.client.release().has_value());
        else
            rig.capsule.kill();
        ck_assert(rig.until([&] { return released ? rig.ended() : rig.closed; }));
        ck_assert_int_eq(rig.started, released);
        ck_assert_text(output.text[0], released ? "ran\n" : "");
        if (released) ck_assert_int_eq(WEXITSTATUS(rig.exit->wait_status), 3);
    }
}
END_TEST

START_TEST(a_released_program_that_does_not_exist_is_named) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output);
    LaunchSpec spec = unit::shell("true");
    spec.path = "/no/such";
    rig.start(spec, -1, true);
    ck_assert(rig.until([&] { return rig.held || rig.failure.has_value(); }));
    if (rig.held) ck_assert(rig.client.release().has_value());
    ck_assert(rig.until([&] { return rig.failure.has_value(); }));
    ck_assert_text(*rig.failure, "run /no/such: No such file or directory");
    ck_assert(!rig.started && rig.program_failure);
}
END_TEST

START_TEST(a_connection_that_breaks_anywhere_loses_no_byte_in_either_direction) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output);
    rig.start(unit::shell("cat; echo end >&2"));
    Rng rng(7);
    std::string text;
    for (int i = 0; i < 60'000; ++i) text += "line " + std::to_string(i) + "\n";
    ck_assert(rig.until([&] { return rig.started; }));
    rig.send_input(text);
    for (int cut = 0; cut < 40; ++cut) {
        for (uint64_t n = rng.below(6); n > 0; --n) rig.pump(20);
        rig.drop_connection();
        rig.connect_again();
        ck_assert(rig.until([&] { return rig.welcomed; }));
        rig.input_sent = rig.welcome.input_taken;
        rig.typed = text.substr(rig.input_sent);
        rig.send_input("");
    }
    ck_assert(rig.until([&] { return rig.input_taken == text.size(); }));
    ck_assert(rig.client.input_eof(text.size()).has_value());
    ck_assert(rig.until([&] { return rig.ended(); }));
    ck_assert(output.text[0] == text);
    ck_assert_text(output.text[1], "end\n");
}
END_TEST

START_TEST(output_that_nobody_acknowledges_stops_the_job_and_nothing_is_lost) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output);
    rig.acknowledge = false;
    rig.start(unit::shell("seq 1 200000"));
    ck_assert(rig.until([&] { return output.text[0].size() == SOUK_OUTPUT_WINDOW; }));
    rig.pump(50);
    ck_assert_uint_eq(output.text[0].size(), SOUK_OUTPUT_WINDOW);
    rig.acknowledge = true;
    ck_assert(rig.client.ack(1, output.text[0].size()).has_value());
    ck_assert(rig.until([&] { return rig.ended(); }));
    std::string expected;
    for (int i = 1; i <= 200'000; ++i) expected += std::to_string(i) + "\n";
    ck_assert(output.text[0] == expected);
}
END_TEST

START_TEST(an_acknowledgement_that_is_lost_with_its_connection_is_made_up_for_by_the_next_hello) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output);
    rig.acknowledge = false;
    rig.start(unit::shell("seq 1 200000"));
    ck_assert(rig.until([&] { return output.text[0].size() == SOUK_OUTPUT_WINDOW; }));
    rig.drop_connection();
    output.acknowledged[0] = SOUK_OUTPUT_WINDOW;
    rig.acknowledge = true;
    rig.connect_again();
    ck_assert(rig.until([&] { return rig.ended(); }));
    std::string expected;
    for (int i = 1; i <= 200'000; ++i) expected += std::to_string(i) + "\n";
    ck_assert(output.text[0] == expected);
}
END_TEST

// When the job has written all, souk-init has read all but a pipe of each stream: more than the
// socket takes.
START_TEST(an_answer_that_finds_the_socket_full_of_output_comes_later) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output);
    const std::string written = rig.dir.path + "/written";
    rig.start(unit::shell("read x; head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2; : > " +
                          written + "; read x"));
    ck_assert(rig.until([&] { return rig.welcomed && rig.started; }));
    rig.send_input("go\n");
    while (::access(written.c_str(), F_OK) != 0) ::usleep(1000);
    rig.welcomed = false;
    ck_assert(rig.client.helpers_enter(false).has_value());
    ck_assert(rig.client.hello(0, 0).has_value());
    ck_assert(rig.until([&] { return rig.helpers_ready && rig.welcomed; }));
    ck_assert(rig.until(
        [&] { return output.text[0].size() == 300'000 && output.text[1].size() == 300'000; }));
    ck_assert(!rig.closed);
}
END_TEST

START_TEST(a_job_that_ends_while_no_agent_is_there_is_told_to_the_next_one) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output);
    rig.start(unit::shell("read x; echo got $x; exit 3"));
    ck_assert(rig.until([&] { return rig.started && rig.welcomed; }));
    rig.send_input("word\n");
    rig.drop_connection();
    while (!read_exit_record(rig.dir.fd.get())) ::usleep(1000);
    rig.connect_again();
    ck_assert(rig.until([&] { return rig.ended(); }));
    ck_assert_int_eq(WEXITSTATUS(rig.exit->wait_status), 3);
    ck_assert_text(output.text[0], "got word\n");
    ck_assert(rig.client.quit().has_value());
    ck_assert(rig.capsule.pidfd().exited_within(Nanos::from_s(30)).value());
}
END_TEST

START_TEST(what_the_root_leaves_behind_ends_with_it) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output);
    rig.start(unit::shell("sleep 1000 & (setsid sleep 1000 &) ; echo done"));
    ck_assert(rig.until([&] { return rig.ended(); }));
    ck_assert_text(output.text[0], "done\n");
    ck_assert(rig.until([&] { return capsule_processes(rig.capsule)->size() == 1; }));
}
END_TEST

START_TEST(a_terminal_has_a_size_echo_signals_and_job_control) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output);
    LaunchSpec spec = unit::shell(
        "trap 'echo resized; stty size' WINCH; tty >/dev/null && stty size; echo ready; while :; "
        "do read -r x && echo "
        "\"<$x>\"; done");
    spec.tty = true;
    spec.rows = 31;
    spec.cols = 77;
    rig.start(spec);
    const auto shown = [&](const char* text) {
        return rig.until([&] { return output.text[0].find(text) != std::string::npos; });
    };
    ck_assert(shown("31 77\r\nready\r\n"));
    rig.send_input("hello\n");
    ck_assert(shown("hello\r\n<hello>\r\n"));
    ck_assert(rig.client.window_size(10, 20).has_value());
    rig.send_input("again\n");
    ck_assert(shown("10 20\r\n"));
    ck_assert(shown("<again>\r\n"));  // a shell that waits for a child does not end by Ctrl-C
    ck_assert(rig.client.signal(SIGSTOP, SOUK_TO_ROOT).has_value());
    ck_assert(rig.until([&] { return rig.stopped == SIGSTOP; }));
    ck_assert(rig.client.signal(SIGCONT, SOUK_TO_ROOT).has_value());
    ck_assert(rig.until([&] { return rig.stopped == 0; }));
    rig.send_input("\x03");  // Ctrl-C
    ck_assert(rig.until([&] { return rig.ended(); }));
    ck_assert(WIFSIGNALED(rig.exit->wait_status) && WTERMSIG(rig.exit->wait_status) == SIGINT);
}
END_TEST

START_TEST(signals_reach_the_root_the_foreground_or_the_whole_job) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output);
    rig.start(
        unit::shell("trap 'echo root' USR1; (trap 'echo child' USR1; echo up; while :; do sleep "
                    "0.02; done) & while :; "
                    "do sleep 0.02; done"));
    ck_assert(rig.until([&] { return output.text[0] == "up\n"; }));
    ck_assert(rig.client.signal(SIGUSR1, SOUK_TO_ROOT).has_value());
    ck_assert(rig.until([&] { return output.text[0] == "up\nroot\n"; }));
    ck_assert(rig.client.signal(SIGTERM, SOUK_TO_ALL).has_value());
    ck_assert(rig.until([&] { return rig.ended(); }));
    ck_assert_int_eq(WTERMSIG(rig.exit->wait_status), SIGTERM);
}
END_TEST

START_TEST(a_daemon_stays_below_the_root_and_what_does_not_is_named) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output);
    rig.start(unit::shell("(setsid sleep 1000 >/dev/null 2>&1 &); echo up; read x"));
    ck_assert(rig.until([&] { return output.text[0] == "up\n"; }));
    auto processes = capsule_processes(rig.capsule);
    ck_assert(processes.has_value());
    const Status good = check_movable(*processes, rig.root);
    ck_assert_msg(good.has_value(), "%s", good ? "" : good.error().message.c_str());
    for (const CapsuleProcess& p : *processes) ck_assert_int_eq(p.threads, 1);
    processes->push_back({4242, 1, 'S', "stray one", 1, 4096, 1});
    const Status bad = check_movable(*processes, rig.root);
    ck_assert(!bad.has_value());
    ck_assert_text(bad.error().message.substr(0, 47),
                   "cannot move: process 4242 (stray one) has left ");
}
END_TEST

START_TEST(a_process_whose_first_thread_has_ended_is_named) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output);
    rig.start(unit::python(R"(
import ctypes, os, sys, threading, time
if os.fork(): print(os.wait()); sys.exit()
def work():
    while open(f'/proc/{os.getpid()}/stat').read().rsplit(')', 1)[1].split()[0] != 'Z':
        time.sleep(0.001)
    os.write(1, b'up\n')
    input()
    os._exit(0)
threading.Thread(target=work).start()
ctypes.CDLL(None).syscall(ctypes.c_long(60), 0))"));
    ck_assert_msg(rig.until([&] { return output.text[0] == "up\n"; }), "%s",
                  output.text[1].c_str());
    const Status headless = check_movable(rig.capsule, rig.root, TcpPolicy::close);
    ck_assert(!headless.has_value());
    const std::string& why = headless.error().message;
    ck_assert_msg(why.starts_with("cannot move: the first thread of process ") &&
                      why.ends_with(" has ended, and others go on"),
                  "%s", why.c_str());
    ck_assert(Trouble(headless.error()).code == CauseCode::first_thread_ended);
    rig.send_input("\n");
    ck_assert(rig.until([&] { return rig.ended(); }));
}
END_TEST

START_TEST(a_connection_and_a_message_queue_have_a_code_if_they_keep_the_job) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output, true);
    rig.start(unit::python(R"(
import ctypes, os, socket
s = socket.create_server(('127.0.0.1', 0))
c = socket.create_connection(s.getsockname()); a, _ = s.accept()
print('up'); input()
c.close(); a.close(); s.close()
q = ctypes.CDLL(None).mq_open(b'/souk-test', os.O_CREAT | os.O_RDWR, 0o600, None)
print(q >= 0); input())"));
    ck_assert(rig.until([&] { return output.text[0] == "up\n"; }));
    const Status connected = check_movable(rig.capsule, rig.root, TcpPolicy::refuse);
    ck_assert(!connected && Trouble(connected.error()).code == CauseCode::holds_connection);
    ck_assert(check_movable(rig.capsule, rig.root, TcpPolicy::close));
    rig.send_input("\n");
    ck_assert(rig.until([&] { return output.text[0] == "up\nTrue\n"; }));
    const Status queued = check_movable(rig.capsule, rig.root, TcpPolicy::close);
    ck_assert(!queued && Trouble(queued.error()).code == CauseCode::holds_message_queue);
    rig.send_input("\n");
    ck_assert(rig.until([&] { return rig.ended(); }));
}
END_TEST

START_TEST(a_lock_that_a_server_would_give_away_keeps_a_job_where_it_is) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output);
    rig.start(unit::python(R"(
import fcntl, tempfile
f = tempfile.TemporaryFile()
print('up'); input()
fcntl.flock(f, fcntl.LOCK_EX)
print('locked'); input())"));
    ck_assert(rig.until([&] { return output.text[0] == "up\n"; }));
    const auto check = [&](bool (*is_server)(std::string_view)) {
        return check_movable(rig.capsule, rig.root, TcpPolicy::close, movable_files_max, {}, {},
                             is_server);
    };
    const auto each = [](std::string_view) { return true; };
    ck_assert(check(each));
    rig.send_input("\n");
    ck_assert(rig.until([&] { return output.text[0] == "up\nlocked\n"; }));
    const Status locked = check(each);
    ck_assert(!locked && Trouble(locked.error()).code == CauseCode::holds_server_lock);
    ck_assert(check(is_locked_by_server));
    ck_assert(is_locked_by_server("nfs4") && !is_locked_by_server("fuse.souk"));
    rig.send_input("\n");
    ck_assert(rig.until([&] { return rig.ended(); }));
}
END_TEST

START_TEST(a_socket_a_pipe_and_memory_that_keep_the_job_are_named) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output, true);
    rig.start(unit::python(R"(
import ctypes, mmap, os, socket
def say(made): print(made); input()
try: s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); say('mptcp'); s.close()
except OSError: say('none')
r, w = os.pipe2(os.O_DIRECT); say('packets'); os.close(r); os.close(w)
try: s = socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET, 0); say('ALG'); s.close()
except OSError: say('none')
fd = ctypes.CDLL(None).syscall(447, 0)
if fd < 0: say('none')
else:
    os.ftruncate(fd, 4096); m = mmap.mmap(fd, 4096); os.close(fd); say('secret'); m.close()
def call(number, *words):
    return ctypes.CDLL(None).syscall(ctypes.c_long(number), *[ctypes.c_long(w) for w in words])
for name, fd in (('wakes', call(283, 8, 0)), ('thread', call(434, os.getpid(), os.O_EXCL)),
                 ('unmounted', ctypes.CDLL(None).syscall(428, -100, b'/usr', 1))):
    say(name if fd >= 0 else 'none')
    if fd >= 0: os.close(fd)
wait, go = os.pipe()
child = os.fork()
if child == 0:
    unshared = ctypes.CDLL(None).unshare(0x4000000) == 0
    print('namespace' if unshared else 'none'), os.read(wait, 1), os._exit(0)
input(), os.write(go, b'x'), os.waitpid(child, 0)
say('end'))"));
    const std::pair<const char*, CauseCode> all[] = {{"mptcp", CauseCode::holds_mptcp},
                                                     {"packets", CauseCode::holds_packet_pipe},
                                                     {"ALG", CauseCode::holds_unsupported},
                                                     {"secret", CauseCode::holds_secret_memory},
                                                     {"wakes", CauseCode::holds_unsupported},
                                                     {"thread", CauseCode::holds_unsupported},
                                                     {"unmounted", CauseCode::file_mount_unknown},
                                                     {"namespace", CauseCode::namespace_nested},
                                                     {"end", CauseCode::none}};
    std::string said;
    for (const auto& [kind, code] : all) {
        const std::string with = said + kind + "\n", without = said + "none\n";
        ck_assert_msg(
            rig.until([&] { return output.text[0] == with || output.text[0] == without; }), "%s",
            output.text[1].c_str());
        said = output.text[0];
        const Status can = check_movable(rig.capsule, rig.root, TcpPolicy::close);
        const CauseCode why = can ? CauseCode::none : Trouble(can.error()).code;
        ck_assert_msg(why == (said == with ? code : CauseCode::none), "%s: %s", kind,
                      can ? "" : can.error().message.c_str());
        if (!can) ck_assert(can.error().message.find("process ") != std::string::npos);
        rig.send_input("\n");
    }
    ck_assert(rig.until([&] { return rig.ended(); }));
}
END_TEST

START_TEST(more_addresses_than_can_be_restored_keep_a_job_where_it_is) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output);
    rig.start(unit::python(R"(
import ctypes
m = ctypes.CDLL(None).mmap
m.restype = ctypes.c_void_p
m.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
map_all = lambda: m(None, 46 << 40, 0, 0x4022, -1, 0) not in (None, 2**64 - 1)
print(map_all()); input()
print(map_all()); input())"));
    ck_assert(rig.until([&] { return output.text[0] == "True\n"; }));
    ck_assert(check_movable(rig.capsule, rig.root, TcpPolicy::close));
    rig.send_input("\n");
    ck_assert(rig.until([&] { return output.text[0] == "True\nTrue\n"; }));
    const Status much = check_movable(rig.capsule, rig.root, TcpPolicy::close);
    ck_assert(!much && Trouble(much.error()).code == CauseCode::reserves_too_much);
    rig.send_input("\n");
    ck_assert(rig.until([&] { return rig.ended(); }));
}
END_TEST

START_TEST(a_daemon_that_another_than_the_root_has_adopted_is_named) {
    // pid, parent, state, name, threads, bytes, pages, session
    const std::vector<CapsuleProcess> below_root = {
        {1, 0, 'S', "souk-init", 1, 0, 0, 1}, {2, 1, 'S', "root", 1, 0, 0, 2},
        {9, 2, 'S', "daemon", 1, 0, 0, 7},    {10, 9, 'S', "worker", 1, 0, 0, 7},
        {11, 9, 'S', "leader", 1, 0, 0, 11},  {12, 9, 'S', "older", 1, 0, 0, 2}};
    ck_assert(check_movable(below_root, 2).has_value());
    std::vector<CapsuleProcess> adopted = below_root;
    adopted.push_back({20, 11, 'S', "lost", 1, 0, 0, 19});
    ck_assert_text(check_movable(adopted, 2).error().message,
                   "cannot move: process 20 (lost) is in a session whose leader has ended, and its "
                   "parent is not the job's "
                   "first process");
    std::vector<CapsuleProcess> stray = below_root;
    stray.push_back({30, 1, 'S', "stray", 1, 0, 0, 30});
    ck_assert(Trouble(check_movable(stray, 2).error()).code == CauseCode::left_process_tree);
}
END_TEST

START_TEST(freezing_the_job_s_own_group_leaves_souk_init_awake) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    // Any cgroup v2 mount; a group of our own at its top.
    std::string top;
    for (const char* mount : {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"})
        if (::access((std::string(mount) + "/cgroup.controllers").c_str(), F_OK) == 0) top = mount;
    UNIT_SKIP_IF(top.empty() ? "a test of control groups needs cgroup v2" : nullptr);
    struct Group {
        explicit Group(std::string p) : path(std::move(p)) {
            ck_assert_int_eq(::mkdir(path.c_str(), 0755), 0);
        }
        ~Group() {
            while (::rmdir(path.c_str()) != 0 && errno == EBUSY) ::usleep(1000);
        }
        std::string path;
    };
    const Group group(top + "/souk-test-capsule-" + std::to_string(::getpid()));
    const Fd directory = *open_at(AT_FDCWD, group.path, O_RDONLY | O_DIRECTORY);
    JobOutput output;
    CapsuleRig rig(output);
    rig.start(unit::shell("echo up; read x; echo \"<$x>\""), directory.get());
    ck_assert(rig.until([&] { return output.text[0] == "up\n"; }));
    ck_assert(write_file(directory.get(), "cgroup.freeze", "1").has_value());
    ck_assert(rig.until([&] {
        return read_file(directory.get(), "cgroup.events")->find("frozen 1") != std::string::npos;
    }));
    rig.drop_connection();
    rig.connect_again();
    ck_assert(rig.until([&] { return rig.welcomed; }));  // it answers
    rig.send_input("word\n");
    ck_assert(rig.until([&] { return rig.input_taken == 5; }));
    ck_assert_text(output.text[0], "up\n");
    ck_assert(write_file(directory.get(), "cgroup.freeze", "0").has_value());
    ck_assert(rig.until([&] { return rig.ended(); }));
    ck_assert_text(output.text[0], "up\n<word>\n");
}
END_TEST

START_TEST(a_process_inside_cannot_command_souk_init) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output);
    rig.start(unit::python(
        "import socket\ns=socket.socket(socket.AF_UNIX,socket.SOCK_SEQPACKET)\ns.connect('" +
        rig.dir.path + "/ctl.sock')\nprint(len(s.recv(100)))"));
    ck_assert(rig.until([&] { return rig.ended(); }));
    ck_assert_text(output.text[0], "0\n");
}
END_TEST

START_TEST(a_capsule_that_is_gone_is_not_taken_for_another_process) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output);
    ck_assert(rig.until([&] { return rig.welcomed; }));
    ProcessId other = rig.capsule.id();
    other.start_ticks += 1;
    const auto again = Capsule::reconnect(rig.dir.fd.get(), other);
    ck_assert(!again.has_value() && again.error().code == ESRCH);
}
END_TEST

// Whoever holds the connection to the capsule may be an agentd that was taken over.
START_TEST(a_capsule_that_was_made_for_a_user_begins_nobody_elses_job) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    const RunsAs user{true, 1000, 100, {4, 27}};
    const auto started = [&](const RunsAs& as) {
        JobOutput output;
        CapsuleRig rig(output, false, user);
        ck_assert(rig.until([&] { return rig.welcomed; }));
        const auto told = capsule_user(rig.capsule.pidfd());
        ck_assert(told && *told == user);
        LaunchSpec spec = unit::shell("id -u; id -g; id -G");
        spec.uid = as.uid;
        spec.gid = as.gid;
        spec.groups = as.groups;
        spec.cwd = "/";
        rig.start(spec);
        ck_assert(rig.until([&] { return rig.ended() || rig.failure; }));
        return rig.failure.value_or(output.text[0]);
    };
    ck_assert_text(started(user), "1000\n100\n100 4 27\n");
    for (const RunsAs& other :
         {RunsAs{true, 0, 0, {}}, RunsAs{true, 1001, 100, {4, 27}}, RunsAs{true, 1000, 0, {4, 27}},
          RunsAs{true, 1000, 100, {4}}, RunsAs{true, 1000, 100, {4, 27, 0}},
          RunsAs{true, 1000, 100, {4, 0}}})
        ck_assert(started(other).find("is for another user") != std::string::npos);
    JobOutput output;
    CapsuleRig rig(output);  // for nobody in particular
    ck_assert(rig.until([&] { return rig.welcomed; }));
    ck_assert(!capsule_user(rig.capsule.pidfd()).value().known);
    ck_assert(!capsule_user(*Pidfd::open(::getpid())).value().known);
}
END_TEST

START_TEST(a_souk_init_that_cannot_be_run_is_named_to_who_made_the_capsule) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    const unit::TempDir dir;
    CapsuleOptions options;
    options.init_path = "/no/such/init";
    options.dir = dir.fd.get();
    auto capsule = Capsule::spawn(options);
    ck_assert(capsule.has_value());
    CapsuleClient client(capsule->take_connection());
    (void)client.hello(0, 0);  // it may be gone already
    const auto gone = capsule->pidfd().exited_within(Nanos::from_s(30));
    ck_assert(gone.has_value() && *gone);
    (void)capsule->pidfd().reap();
    const auto events = client.on_readable();
    ck_assert(events.has_value() && !events->empty());
    ck_assert(events->front().kind == InitEventKind::failed);
    ck_assert_int_eq(events->front().value, ENOENT);
    ck_assert_text(events->front().trouble(), "run souk-init: No such file or directory");
}
END_TEST
}  // namespace

UNIT_SUITE(capsule, what_no_dump_takes_along_is_known_by_its_name,
           the_peer_of_a_connection_is_read_from_the_kernels_tables,
           a_souk_init_that_cannot_be_run_is_named_to_who_made_the_capsule,
           a_capsule_that_was_made_for_a_user_begins_nobody_elses_job,
           a_job_gets_its_arguments_surroundings_and_limits_and_its_status_comes_back,
           a_capsule_gets_no_file_of_its_daemon_and_takes_none_from_it,
           a_program_that_does_not_exist_is_named_and_a_missing_directory_too,
           a_held_program_runs_no_byte_until_it_is_released_and_a_new_agent_finds_it_so,
           a_released_program_that_does_not_exist_is_named,
           a_connection_that_breaks_anywhere_loses_no_byte_in_either_direction,
           output_that_nobody_acknowledges_stops_the_job_and_nothing_is_lost,
           an_acknowledgement_that_is_lost_with_its_connection_is_made_up_for_by_the_next_hello,
           an_answer_that_finds_the_socket_full_of_output_comes_later,
           a_job_that_ends_while_no_agent_is_there_is_told_to_the_next_one,
           what_the_root_leaves_behind_ends_with_it,
           a_terminal_has_a_size_echo_signals_and_job_control,
           signals_reach_the_root_the_foreground_or_the_whole_job,
           a_daemon_stays_below_the_root_and_what_does_not_is_named,
           a_socket_a_pipe_and_memory_that_keep_the_job_are_named,
           a_daemon_that_another_than_the_root_has_adopted_is_named,
           a_connection_and_a_message_queue_have_a_code_if_they_keep_the_job,
           a_lock_that_a_server_would_give_away_keeps_a_job_where_it_is,
           more_addresses_than_can_be_restored_keep_a_job_where_it_is,
           a_process_whose_first_thread_has_ended_is_named,
           freezing_the_job_s_own_group_leaves_souk_init_awake,
           a_process_inside_cannot_command_souk_init,
           a_capsule_that_is_gone_is_not_taken_for_another_process);

}  // namespace souk
