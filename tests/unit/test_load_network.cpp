// SPDX-License-Identifier: GPL-2.0-or-later
// Method: a process in a cgroup of the test's own sends itself a stated number of bytes.
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

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

}  // namespace

START_TEST(the_bytes_that_a_job_sends_and_receives_are_its_own) {
    if (need_root("loading BPF programs")) the_bytes_of_the_network_are_counted(true);
}
END_TEST

START_TEST(where_packets_cannot_be_counted_the_rest_is_and_that_is_said) {
    if (need_root("loading BPF programs")) the_bytes_of_the_network_are_counted(false);
}
END_TEST

UNIT_SUITE(load_network, the_bytes_that_a_job_sends_and_receives_are_its_own,
           where_packets_cannot_be_counted_the_rest_is_and_that_is_said);
