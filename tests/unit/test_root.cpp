// SPDX-License-Identifier: GPL-2.0-or-later
// agentd asks souk-root for some operations, and has given up the right to do them itself.
// tests/attack/test_root.py shows what an attacker in agentd's place gets from the real program.
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <thread>

#include "agentd/root/files_words.hpp"
#include "agentd/root/helper.hpp"
#include "kernel/sys/host/probe.hpp"
#include "kernel/sys/net/packets.hpp"
#include "kernel/sys/process/own_rights.hpp"
#include "kernel/sys/process/sandbox.hpp"
#include "kernel/sys/store/linkless.hpp"
#include "tests/unit/capsule_rig.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {
using namespace souk::root;

struct Sample {
    Asked asked;
    size_t descriptors;
};
std::vector<Sample> samples() {
    StartProgram serve{
        Program::files, {"serve", "/", "1000", "1000", "5,6", "/proc", "+/usr"}, true};
    StartProgram append{Program::files, {"append", "1", "1", "", "18", "/home/a", "out", ""}, true};
    StartProgram snapshot{Program::files, {"snapshot", "take", "1", "1", "", "n1.7", "/a"}, true};
    MakeCapsule capsule{.own_net = true,
                        .check_access = true,
                        .hosts = true,
                        .files = true,
                        .cgroup = true,
                        .user = {true, 1000, 100, {4, 5}},
                        .ticket = std::string("sealed\0", 7),
                        .laid_over = {"/a b", "/c"},
                        .hidden = {"/home"},
                        .run_keep = "munge"};
    StartCriu dump{false, false, false, 0}, restore{true, true, true, 3};
    const AdoptUsers users{{{true, 1000, 100, {4, 5}}, {true, 0, 0, {}}}, true};
    return {{StartProgram{Program::handshake, {}, false}, 1},
            {serve, 2},
            {append, 2},
            {snapshot, 2},
            {StartProgram{Program::files, {"client", "7", "8"}, false}, 3},
            {StartProgram{Program::files, {"store", "1073741824"}, false}, 2},
            {StartProgram{Program::files, {"sync"}, true}, 2},
            {capsule, 4},
            {capsule, 9},
            {dump, 4},
            {restore, 7},
            {restore, 11},
            {OpenFile{ProcessFile::oom_score}, 1},
            {OpenFile{ProcessFile::page_map}, 24},
            {MakePort{{false, true, {0x0a4f4041}, "sj0123456789ab"}}, 1},
            {MakePort{{true, false, {1}, "sjffffffffffff"}}, 1},
            {ArmPort{Gate::shut}, 1},
            {ActOnPort{PortAct::announce}, 1},
            {ActOnPort{PortAct::be_as_always}, 1},
            {HoldFrames{FrameWay::to_job, true}, 1},
            {HoldFrames{FrameWay::from_job, false}, 1},
            {FeedFrames{Nanos{1'700'000'000'000'000'001}, true}, 2},
            {FeedFrames{{}, false}, 1},
            {TellHeld{}, 1},
            {ReleaseFrames{{true, Nanos{7}, Nanos::never()}}, 1},
            {SayFrames{FrameWay::within}, 2},
            {EndRepair{4711}, 1},
            {KeepPackets{true}, 2},
            {KeepPackets{false}, 0},
            {SeePacketsOfAll{}, 0},
            {TakeDescriptor{77}, 1},
            {SettleSockets{true}, 1},
            {PutStatus{"up=1\n"}, 0},
            {OpenFile{ProcessFile::root}, 2},
            {OpenDirectory{CapsuleDirectory::run}, 1},
            {LookInside{{true, false, true, false, true, false, true, 4096}, {2, 17}}, 1},
            {FitRestored{{4711, 4712}, {{RLIMIT_NOFILE, 1 << 20}}}, 1},
            {users, 0},
            {AskLoaded{}, 1},
            {AskWaits{}, 1},
            {EndProcess{}, 1},
            {ConnectInit{}, 2},
            {OpenOfMachine{Device::io_pressure}, 0},
            {GiveFiles{}, 1},
            {LearnKernel{}, 1},
            {AddInputs{true}, 1},
            {OpenOwnFile{OwnFile::users}, 0},
            {OpenEvent{63, 25'000}, 0}};
}

START_TEST(a_request_is_read_as_it_was_asked) {
    for (const Sample& s : samples()) {
        const auto read = parse_asked(pack(s.asked), s.descriptors);
        ck_assert_msg(read.has_value(), "%s", read ? "" : read.error().message.c_str());
        ck_assert(*read == s.asked);
    }
    for (const Told& told : {Told(Started{4711, 12345678901}), Told(Refused{EPERM, "so it is"}),
                             Told(Done{}), Told(Done{false})})
        ck_assert(parse_told(pack(told)).value() == told);
}
END_TEST

START_TEST(a_request_that_is_not_whole_is_refused_as_a_whole) {
    for (const Sample& s : samples()) {
        const std::string packet = pack(s.asked);
        for (size_t n = 0; n < packet.size(); ++n)
            ck_assert(!parse_asked(packet.substr(0, n), s.descriptors));
        ck_assert(!parse_asked(packet + '\0', s.descriptors));
        ck_assert(!parse_asked(packet, s.descriptors == 0 ? 1 : 0));
    }
    for (const Told& told : {Told(Started{1, 2}), Told(Refused{1, "why"})}) {
        const std::string packet = pack(told);
        for (size_t n = 0; n < packet.size(); ++n) ck_assert(!parse_told(packet.substr(0, n)));
        ck_assert(!parse_told(packet + 'x'));
    }
    ck_assert(!parse_told(pack(Told(Started{0, 0}))));
    ck_assert(!parse_told(pack(Told(Started{-1, 0}))));
    const auto line = parse_told(pack(Told(Refused{0, "two\nlines"})));
    ck_assert(std::get<Refused>(line.value()).why.find('\n') == std::string::npos);
}
END_TEST

START_TEST(an_interface_is_asked_for_by_a_name_of_souks_own_and_with_an_address) {
    const PortPlan good{false, true, {0x0a4f4041}, "sj0123456789ab"};
    ck_assert(parse_asked(pack(MakePort{good}), 1).has_value());
    for (const char* name : {"", "sj", "eth0", "sj0123456789a", "sj0123456789abc", "sj0123456789AB",
                             "sx0123456789ab", "sj01234567/9ab"}) {
        PortPlan bad = good;
        bad.name = name;
        ck_assert_msg(!parse_asked(pack(MakePort{bad}), 1), "%s", name);
    }
    PortPlan bad = good;
    bad.found = true;  // and made shut
    ck_assert(!parse_asked(pack(MakePort{bad}), 1));
    bad = good;
    bad.address = {};
    ck_assert(!parse_asked(pack(MakePort{bad}), 1));
    for (const Asked& asked :
         {Asked(HoldFrames{FrameWay::within, false}), Asked(HoldFrames{FrameWay::from_job, true}),
          Asked(ArmPort{Gate{3}}), Asked(ActOnPort{PortAct{0}}), Asked(ActOnPort{PortAct{6}})})
        ck_assert(!parse_asked(pack(asked), 1));
    ck_assert(!parse_asked(pack(SayFrames{FrameWay::from_job}), 2));
}
END_TEST

START_TEST(souk_files_is_started_in_its_own_forms_alone) {
    using Words = std::vector<std::string>;
    ck_assert(check_files_words({"serve", "/", "1", "1", "1,2", "+/usr"}, 2, true).has_value());
    ck_assert(check_files_words({"serve", "/", "1", "1", ""}, 2, true).has_value());
    for (const Words& words :
         {Words{}, Words{"try", "/", "/mnt"}, Words{"serve"}, Words{"serve", "/", "1", "1"},
          Words{"serve", "/", "1", "1", "", "usr"}, Words{"serve", "/", "4294967295", "1", ""},
          Words{"serve", "/", "1", "1", "2,x"}, Words{"serve", "/", "1", "1", "2,4294967295"}})
        ck_assert(!check_files_words(words, 2, true));
    ck_assert(!check_files_words({"client", "1", "1"}, 2, false));
    ck_assert(!check_files_words({"client", "1", "1"}, 3, true));
    ck_assert(!check_files_words({"client", "1", "1", "1"}, 3, false));
    ck_assert(!check_files_words({"store", "-1"}, 2, false));
}
END_TEST

// A capsule that another process has made is as one of its own, and ends alone.
START_TEST(souk_root_makes_a_capsule_and_starts_a_program) {
    UNIT_SKIP_IF(capsules_impossible());
    Loop loop = open_loop();
    std::string lost;
    TempDir dir;
    Helper helper(loop, [&](const std::string& why) { lost = why; });
    OK(helper.start("/"));
    CapsuleOptions options;
    options.dir = dir.fd.get();
    options.own_net = true;
    options.user = {true, 1000, 1000, {4, 27}};
    auto made = helper.capsule(options, true, "");
    ck_assert_msg(made.has_value(), "%s", made ? "" : made.error().message.c_str());
    ck_assert(process_id(made->id().pid).value() == made->id());
    CapsuleClient client(made->take_connection());
    OK(client.hello(0, 0));
    bool welcomed = false;
    const Watch watch = loop.watch(client.fd(), POLLIN,
                                   [&](short) {
                                       const auto events = client.on_readable();
                                       if (!events) return;
                                       for (const auto& e : *events)
                                           welcomed = welcomed || e.kind == InitEventKind::welcome;
                                   })
                            .value();
    UNTIL(loop, welcomed);
    // souk-root opens files of the capsule's processes alone. A refused file spoils no other.
    const Reach reach = helper.reach();
    const std::vector<Fd> maps =
        reach.open({made->id().pid, ::getpid(), 0, made->id().pid}, ProcessFile::page_map);
    ck_assert(maps.size() == 4 && maps[0] && !maps[1] && !maps[2] && maps[3]);
    ck_assert(reach.open({}, ProcessFile::page_map).empty());
    const PortPlan plan{false, true, {0x0a4f4041}, "sj0123456789ab"};
    const auto port = reach.port(made->pidfd(), {}, plan);
    ck_assert_msg(!port && port.error().message == "this node has no network for jobs", "%s",
                  port ? "" : port.error().message.c_str());
    ck_assert(!reach.mend(made->pidfd(), 0).value_or(false));
    ck_assert(!reach.take(made->pidfd(), 0));
    // The processes of the capsule have their inside numbers; no process of the machine is there.
    const auto proc = reach.inside(made->pidfd(), CapsuleDirectory::proc);
    ck_assert(proc && capsule_processes(proc->get()).value().size() == 1);
    const auto self = Pidfd::open(::getpid());
    ck_assert(!reach.inside(*self, CapsuleDirectory::proc) && !reach.look(*self, {1}, {}));
    const auto look = reach.look(made->pidfd(), {1, 77}, {.states = true, .maps = true});
    ck_assert_msg(look.has_value(), "%s", look ? "" : look.error().message.c_str());
    ck_assert(look->size() == 2 && look->at(0).error == 0 && look->at(1).error == ENOENT);
    ck_assert(look->at(0).maps.find("souk-init") != std::string::npos);
    ck_assert(!reach.fit(made->pidfd(), {{1000, 1000, {}}, {::getpid()}, {}}));
    ck_assert(reach.fit(made->pidfd(), {{1000, 1000, {}}, {}, {}}));
    ck_assert(!reach.waits(made->pidfd()).value());  // there is none
    ck_assert(!helper.put_status("up=1\n"));
    made->kill();
    ck_assert(made->pidfd().exited_within(limit).value());

    int ends[2];
    ck_assert_int_eq(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const Fd ours(ends[0]);
    Fd theirs(ends[1]);
    const auto inspect = helper.program(Program::inspect, {}, {theirs.get()}, false);
    ck_assert_msg(inspect.has_value(), "%s", inspect ? "" : inspect.error().message.c_str());
    theirs.reset();
    ck_assert(wait_for_packet(ours.get(), 64, limit).has_value());  // it has begun
    helper.end()(*self);                                            // not what it has started
    helper.end()(*inspect);
    ck_assert(inspect->exited_within(limit).value());

    options.dir = ours.get();  // refused, and told so; it goes on
    ck_assert(!helper.capsule(options, true, ""));
    ck_assert(lost.empty());
}
END_TEST

START_TEST(who_does_not_start_processes_any_more_cannot) {
    UNIT_SKIP_IF(::geteuid() != 0 ? "only root gives anything up" : nullptr);
    UNIT_SKIP_IF(sandbox_is_wide ? "a sanitizer keeps its calls" : nullptr);
    Pipe pipe = std::move(*make_pipe());
    const pid_t other = ::fork();  // of another user
    if (other == 0) {
        (void)!::setuid(4321);
        pipe.write_end.reset();
        for (;;) ::pause();
    }
    pipe.write_end.reset();
    char byte;
    ck_assert_int_eq(::read(pipe.read_end.get(), &byte, 1), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        if (!give_up_starting()) ::_exit(100);
        const auto refuses = [](long result) { return result == -1 && errno == EPERM; };
        char sh[] = "/bin/true";
        char* argv[] = {sh, nullptr};
        if (!refuses(::execve(sh, argv, argv))) ::_exit(1);
        if (!refuses(::fork())) ::_exit(2);
        if (!refuses(::unshare(CLONE_NEWNS))) ::_exit(3);
        if (!refuses(::mount("x", "/", "tmpfs", 0, nullptr))) ::_exit(4);
        if (!refuses(::setuid(1000))) ::_exit(5);
        if (!refuses(::ptrace(PTRACE_ATTACH, 1, nullptr, nullptr))) ::_exit(6);
        if (!refuses(::chroot("/"))) ::_exit(7);
        const int pid_ns = ::open("/proc/self/ns/pid", O_RDONLY);
        const int net_ns = ::open("/proc/self/ns/net", O_RDONLY);
        if (!refuses(::setns(pid_ns, CLONE_NEWPID)) || !refuses(::setns(pid_ns, 0))) ::_exit(8);
        if (!refuses(::setns(net_ns, CLONE_NEWNET))) ::_exit(9);
        if (!refuses(::syscall(SYS_pidfd_getfd, pid_ns, 0, 0))) ::_exit(11);
        if (!refuses(::process_vm_readv(1, nullptr, 0, nullptr, 0, 0))) ::_exit(12);
        // A process that has more rights cannot be looked into, whoever it belongs to, and a
        // process of another user cannot be ended.
        const std::string memory = "/proc/" + std::to_string(::getppid()) + "/mem";
        if (::open(memory.c_str(), O_RDONLY) >= 0 || errno != EACCES) ::_exit(13);
        if (!refuses(::kill(other, SIGKILL))) ::_exit(14);
        bool ran = false;  // threads it may have
        std::thread([&] { ran = true; }).join();
        ::_exit(ran ? 0 : 10);
    }
    int status = 0;
    ck_assert_int_eq(::waitpid(child, &status, 0), child);
    ::kill(other, SIGKILL);
    ck_assert_int_eq(::waitpid(other, nullptr, 0), other);
    ck_assert_msg(status == 0, "exit %d", WEXITSTATUS(status));
}
END_TEST

START_TEST(who_becomes_a_user_keeps_little_and_no_file_of_roots) {
    UNIT_SKIP_IF(::geteuid() != 0 ? "needs root" : nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
        if (!become_user(4321, 4322)) ::_exit(1);
        if (::getuid() != 4321 || ::geteuid() != 4321 || ::getegid() != 4322) ::_exit(2);
        if (::getgroups(0, nullptr) != 0) ::_exit(3);
        if (!have_capability(CAP_NET_ADMIN) || have_capability(CAP_NET_RAW) ||
            have_capability(CAP_DAC_OVERRIDE))
            ::_exit(4);
        if (::open("/etc/shadow", O_RDONLY) >= 0 || errno != EACCES) ::_exit(5);
        if (::setuid(0) == 0 || ::setreuid(0, 0) == 0) ::_exit(6);
        if (!give_up_starting()) ::_exit(7);
        if (!give_up_measuring() || have_capability(CAP_NET_ADMIN)) ::_exit(8);
        ::_exit(have_capability(CAP_NET_BIND_SERVICE) ? 0 : 9);
    }
    int status = 0;
    ck_assert_int_eq(::waitpid(child, &status, 0), child);
    ck_assert_msg(status == 0, "exit %d", WEXITSTATUS(status));
}
END_TEST

START_TEST(no_link_is_followed_in_a_linkless_mount) {
    UNIT_SKIP_IF(::geteuid() != 0 ? "needs root" : nullptr);
    TempDir dir;
    OK(create_file(dir.fd.get(), "file", "kept"));
    ck_assert_int_eq(::symlinkat("file", dir.fd.get(), "link"), 0);
    ck_assert(!is_linkless(dir.fd.get()));
    auto mount = linkless(dir.fd.get());
    UNIT_SKIP_IF(!mount && mount.error().code == ENOSYS ? "a kernel before 5.12" : nullptr);
    // CRIU opens the directory anew, by its number.
    const Fd again = std::move(*open_at(AT_FDCWD, "/proc/self/fd/" + std::to_string(mount->get()),
                                        O_RDONLY | O_DIRECTORY));
    ck_assert(is_linkless(again.get()));
    ck_assert_text(read_file(again.get(), "file").value(), "kept");
    ck_assert_int_eq(read_file(again.get(), "link").error().code, ELOOP);
    ck_assert_int_eq(create_file(again.get(), "link", "x", O_TRUNC).error().code, ELOOP);
    OK(create_file(again.get(), "new", "by another name"));
    ck_assert_text(read_file(dir.fd.get(), "link").value(), "kept");
}
END_TEST

// root has made files in a directory of another user and gives them to that user, but no file that
// has a second name or belongs to somebody else.
START_TEST(what_is_given_away_is_a_file_of_one_name) {
    UNIT_SKIP_IF(::geteuid() != 0 ? "needs root" : nullptr);
    TempDir dir;
    const AgentUser user{4321, 4322};
    for (const char* name : {"plain", "linked", "theirs"}) OK(create_file(dir.fd.get(), name, "x"));
    ck_assert_int_eq(::linkat(dir.fd.get(), "linked", dir.fd.get(), "again", 0), 0);
    ck_assert_int_eq(::fchownat(dir.fd.get(), "theirs", 5000, 5000, 0), 0);
    ck_assert_int_eq(::symlinkat("/etc/passwd", dir.fd.get(), "link"), 0);
    OK(give_files(dir.fd.get(), user));
    const auto owner = [&](const char* name) {
        struct stat st {};
        ck_assert_int_eq(::fstatat(dir.fd.get(), name, &st, AT_SYMLINK_NOFOLLOW), 0);
        return st.st_uid;
    };
    ck_assert_uint_eq(owner("plain"), 4321);
    ck_assert_uint_eq(owner("linked"), 0);
    ck_assert_uint_eq(owner("theirs"), 5000);
    struct stat st {};
    ck_assert_int_eq(::stat("/etc/passwd", &st), 0);
    ck_assert_uint_eq(st.st_uid, 0);
    ck_assert(!find_agent_user("_no-such-user-here"));
    ck_assert(!find_agent_user("4294967295"));
    ck_assert_uint_eq(find_agent_user("root").value().uid, 0);
}
END_TEST

}  // namespace

UNIT_SUITE(root, a_request_is_read_as_it_was_asked,
           a_request_that_is_not_whole_is_refused_as_a_whole,
           an_interface_is_asked_for_by_a_name_of_souks_own_and_with_an_address,
           souk_files_is_started_in_its_own_forms_alone,
           souk_root_makes_a_capsule_and_starts_a_program,
           who_does_not_start_processes_any_more_cannot,
           who_becomes_a_user_keeps_little_and_no_file_of_roots,
           no_link_is_followed_in_a_linkless_mount, what_is_given_away_is_a_file_of_one_name);

}  // namespace souk::unit
