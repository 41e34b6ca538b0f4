// SPDX-License-Identifier: GPL-2.0-or-later
// Method: a process in a cgroup of the test's own sends itself a stated number of bytes.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <string>

#include "bpf/load.hpp"
#include "tests/unit/cgroup_fixture.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using souk::unit::CgroupFixture;
using souk::unit::need_root;

namespace {

void end(const Pidfd& process) {
    ck_assert(*process.exited_within(Nanos::from_s(30)));
    const int status = *process.reap();
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

// To itself, over loopback.
void send_a_megabyte() {
    const Fd door(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    MUST(::bind(door.get(), reinterpret_cast<sockaddr*>(&at), size) == 0);
    MUST(::listen(door.get(), 1) == 0);
    MUST(::getsockname(door.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    const Fd sender(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    MUST(::connect(sender.get(), reinterpret_cast<sockaddr*>(&at), size) == 0);
    const Fd taker(::accept4(door.get(), nullptr, nullptr, SOCK_CLOEXEC));
    std::string part(16 << 10, 'x');
    for (int i = 0; i < 64; ++i) {
        MUST(::write(sender.get(), part.data(), part.size()) == 16 << 10);
        MUST(::recv(taker.get(), part.data(), part.size(), MSG_WAITALL) == 16 << 10);
    }
}

void the_bytes_of_the_network_are_counted(bool count) {
    CgroupFixture cgroups;
    const Cgroup one = std::move(*cgroups->create("n1/jobs/n1.1"));
    const Cgroup nested = std::move(*cgroups->create("n1/jobs/n1.1/its-own"));
    const Cgroup two = std::move(*cgroups->create("n1/jobs/n1.2"));
    LoadProbe probe = std::move(*LoadProbe::open(*cgroups, "n1", 2, {.count_network = count}));
    ck_assert_str_eq(probe.source(), "bpf");
    ck_assert_str_eq(probe.why_no_network().c_str(), count ? "" : "switched off");
    ck_assert(probe.add("n1/jobs/n1.1"));
    ck_assert(probe.add("n1/jobs/n1.2"));
    end(cgroups.spawn(nested, send_a_megabyte));
    send_a_megabyte();  // no guest's
    const LoadSample sample = *probe.read("n1/jobs/n1.1"), other = *probe.read("n1/jobs/n1.2");
    const LoadSample node = *probe.read_node();
    ck_assert_int_gt(sample.run.ns, 0);
    ck_assert_uint_eq(other.sent_bytes + other.received_bytes, 0);
    ck_assert_uint_eq(node.sent_bytes, sample.sent_bytes);
    ck_assert_uint_eq(node.received_bytes, sample.received_bytes);
    if (!count) ck_assert_uint_eq(sample.sent_bytes + sample.received_bytes, 0);
    if (!count) return;
    // Both ends are the job's: each packet goes once and comes once. Headers are some percent.
    for (const uint64_t bytes : {sample.sent_bytes, sample.received_bytes}) {
        ck_assert_uint_ge(bytes, 1 << 20);
        ck_assert_uint_le(bytes, (1 << 20) * 12 / 10);
    }
}

// Packets to an address behind an interface that leads nowhere.
void send_abroad(int64_t datagrams) {
    MUST(::unshare(CLONE_NEWNET) == 0);
    MUST(std::system("ip link add v0 type veth peer name v1 && ip addr add 10.9.9.1/24 dev v0 &&"
                     "ip link set v0 up && ip link set v1 up") == 0);
    const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(9);
    at.sin_addr.s_addr = htonl(0x0a090902);
    const std::string part(16 << 10, 'x');
    for (int64_t i = 0; i < datagrams; ++i)
        (void)::sendto(socket.get(), part.data(), part.size(), MSG_DONTWAIT,
                       reinterpret_cast<sockaddr*>(&at), sizeof at);
}

uint64_t noticed_bytes(LoadProbe& probe) {
    uint64_t bytes = 0;
    probe.take_notices([&](const LoadNotice& n) { bytes = std::max(bytes, n.bytes); });
    return bytes;
}

constexpr uint64_t much = 64 << 10;

// Whoever else uses the network of this machine meanwhile is an owner, so it is tried again.
void nobodys_but_the_owners_packets_are_noticed() {
    uint64_t noticed = 1;
    while (noticed > 0) {  // Check's limit bounds this
        CgroupFixture cgroups;
        const Cgroup job = std::move(*cgroups->create("n1/jobs/n1.1"));
        const Cgroup own = std::move(*cgroups->create("daemon"));
        Pipe go = std::move(*make_pipe());
        const auto daemon = cgroups.spawn(own, [&] {
            char byte = 0;
            MUST(::read(go.read_end.get(), &byte, 1) == 1);
            send_abroad(256);
        });
        LoadProbe probe = std::move(
            *LoadProbe::open(*cgroups, "n1", 2, {.daemon = daemon.pid(), .notice_bytes = much}));
        ck_assert_text(probe.why_no_network(), "");
        ck_assert(probe.notice_network(much));
        end(cgroups.spawn(job, [] { send_abroad(256); }));
        ck_assert_int_eq(::write(go.write_end.get(), "x", 1), 1);
        end(daemon);
        send_a_megabyte();  // of the owner's, to himself
        noticed = noticed_bytes(probe);
    }
}

void the_owners_packets_are_noticed() {
    CgroupFixture cgroups;
    // As for a daemon that may not attach them itself, and has told who may which ones they are.
    std::vector<int> programs;
    LoadProbe::Options options;
    options.daemon = 0;
    options.see_packets = [&] {
        ck_assert_uint_eq(programs.size(), 2);
        return see_packets(cgroups->layout().v2, programs[0], programs[1]);
    };
    LoadProbe probe = std::move(*LoadProbe::open(*cgroups, "n1", 2, options));
    programs = probe.packet_programs();
    ck_assert(probe.notice_network(much));
    const pid_t sender = ::fork();
    if (sender == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        send_abroad(INT64_MAX);
    }
    uint64_t noticed = 0;
    while (noticed == 0) {
        pollfd ready{probe.notices_fd(), POLLIN, 0};
        ck_assert_int_eq(::poll(&ready, 1, 30'000), 1);
        noticed = noticed_bytes(probe);
    }
    ::kill(sender, SIGKILL);
    ck_assert_int_eq(::waitpid(sender, nullptr, 0), sender);
    ck_assert_uint_ge(noticed, much);
    ck_assert(probe.notice_network(0));
}

// Its own packets would be as the owner's.
void a_daemon_without_a_group_of_its_own_is_told_so() {
    const auto groups = read_file(AT_FDCWD, "/proc/self/cgroup");
    UNIT_SKIP_IF(groups && ("\n" + *groups).find("\n0::/\n") != std::string::npos
                     ? nullptr
                     : "this process is in a group");
    CgroupFixture cgroups;
    LoadProbe probe = std::move(*LoadProbe::open(*cgroups, "n1"));
    const Status noticed = probe.notice_network(much);
    ck_assert(!noticed);
    ck_assert_text(noticed.error().message,
                   "agentd has no control group of its own, so that its packets are as his");
    LoadProbe uncounted =
        std::move(*LoadProbe::open(*cgroups, "n2", 2, {.count_network = false, .daemon = 0}));
    ck_assert_text(uncounted.notice_network(much).error().message,
                   "packets are not counted: switched off");
}

}  // namespace

START_TEST(that_the_owner_uses_the_network_is_noticed) {
    if (need_root("loading BPF programs")) the_owners_packets_are_noticed();
}
END_TEST

START_TEST(what_guests_and_the_daemon_send_is_no_use_of_the_owners) {
    if (need_root("loading BPF programs")) nobodys_but_the_owners_packets_are_noticed();
}
END_TEST

START_TEST(where_the_owners_packets_cannot_be_told_that_is_said) {
    if (need_root("loading BPF programs")) a_daemon_without_a_group_of_its_own_is_told_so();
}
END_TEST

START_TEST(the_bytes_that_a_job_sends_and_receives_are_its_own) {
    if (need_root("loading BPF programs")) the_bytes_of_the_network_are_counted(true);
}
END_TEST

START_TEST(where_packets_cannot_be_counted_the_rest_is_and_that_is_said) {
    if (need_root("loading BPF programs")) the_bytes_of_the_network_are_counted(false);
}
END_TEST

UNIT_SUITE(load_network, the_bytes_that_a_job_sends_and_receives_are_its_own,
           where_packets_cannot_be_counted_the_rest_is_and_that_is_said,
           that_the_owner_uses_the_network_is_noticed,
           what_guests_and_the_daemon_send_is_no_use_of_the_owners,
           where_the_owners_packets_cannot_be_told_that_is_said);
