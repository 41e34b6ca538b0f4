// SPDX-License-Identifier: GPL-2.0-or-later
#include "tests/unit/capsule_rig.hpp"

#include <poll.h>
#include <sys/stat.h>

#include <cstring>
#include <filesystem>

#include "kernel/base/check.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {

const char* capsules_impossible() {
    if (::geteuid() != 0) return "a test of capsules needs root";
    return ::access(souk_init_path().c_str(), X_OK) == 0
               ? nullptr
               : "a test of capsules needs souk-init: make bins";
}

std::string souk_init_path() {
    return (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() /
            "bin/souk-init")
        .string();
}

CapsuleRig::CapsuleRig(JobOutput& shared, bool own_net, const RunsAs& user) : output(shared) {
    CapsuleOptions options;
    options.init_path = souk_init_path();
    options.dir = dir.fd.get();
    options.own_net = own_net;
    options.user = user;
    auto made = Capsule::spawn(options);
    ck_assert_msg(made.has_value(), "%s", made ? "" : made.error().message.c_str());
    capsule = std::move(*made);
    client = CapsuleClient(capsule.take_connection());
    ck_assert(client.hello(output.acknowledged[0], output.acknowledged[1]).has_value());
}

CapsuleRig::~CapsuleRig() {
    capsule.kill();
    if (!capsule.pidfd().exited_within(Nanos::from_s(10)))
        std::fprintf(stderr, "capsule %d does not end\n", capsule.id().pid);
    (void)capsule.pidfd().reap();
}

void CapsuleRig::start(const LaunchSpec& spec, int cgroup, bool hold) {
    ck_assert(client.start(spec, cgroup, -1, hold).has_value());
}

void CapsuleRig::drop_connection() {
    client = {};
    welcomed = false;
}

void CapsuleRig::connect_again() {
    auto again = Capsule::reconnect(dir.fd.get(), capsule.id());
    ck_assert_msg(again.has_value(), "%s", again ? "" : again.error().message.c_str());
    client = CapsuleClient(again->take_connection());
    welcomed = closed = held = false;
    ck_assert(client.hello(output.acknowledged[0], output.acknowledged[1]).has_value());
}

bool CapsuleRig::until(const std::function<bool()>& done, double seconds) {
    timespec begin, now;
    ::clock_gettime(CLOCK_MONOTONIC, &begin);
    while (!done()) {
        ::clock_gettime(CLOCK_MONOTONIC, &now);
        if (double(now.tv_sec - begin.tv_sec) + double(now.tv_nsec - begin.tv_nsec) / 1e9 > seconds)
            return false;
        pump(100);
    }
    return true;
}

void CapsuleRig::pump(int timeout_ms) {
    pollfd p{client.fd(), static_cast<short>(POLLIN | (client.wants_write() ? POLLOUT : 0)), 0};
    if (::poll(&p, 1, timeout_ms) <= 0 || closed) return;
    if (p.revents & POLLOUT) ck_assert(client.on_writable().has_value());
    auto events = client.on_readable();
    ck_assert_msg(events.has_value(), "%s", events ? "" : events.error().message.c_str());
    for (auto& event : *events) handle(event);
}

void CapsuleRig::send_input(std::string_view bytes) {
    typed += bytes;
    push_input();
}

void CapsuleRig::push_input() {
    while (!typed.empty() && input_sent < input_limit) {
        const size_t n =
            std::min<uint64_t>({typed.size(), input_limit - input_sent, SOUK_DATA_MAX});
        if (!client.input(input_sent, std::string_view(typed).substr(0, n))) return;
        input_sent += n;
        typed.erase(0, n);
    }
}

void CapsuleRig::handle(CapsuleClient::Event& e) {
    switch (e.kind) {
        case InitEventKind::welcome:
            welcomed = true;
            welcome = e.welcome;
            input_limit = e.welcome.input_limit;
            break;
        case InitEventKind::started:
            started = true;
            root = e.value;
            if (e.stream == 1) terminal = tty_key(e.offset, e.limit);
            break;
        case InitEventKind::held: held = true; break;
        case InitEventKind::exec_failed:
        case InitEventKind::failed:
            failure = e.trouble();
            failure_code = e.value;
            program_failure = e.stream == 1;
            break;
        case InitEventKind::output: {
            std::string& text = output.text[e.stream - 1];
            ck_assert_msg(e.offset <= text.size(), "a hole in the output: %zu, then %zu",
                          text.size(), size_t(e.offset));
            const size_t known = std::min<size_t>(text.size() - e.offset, e.bytes.size());
            ck_assert_msg(text.compare(e.offset, known, e.bytes, 0, known) == 0,
                          "output told twice is different");
            text += e.bytes.substr(known);
            if (acknowledge)
                ck_assert(client.ack(e.stream, output.acknowledged[e.stream - 1] = text.size())
                              .has_value());
            break;
        }
        case InitEventKind::output_eof:
            ck_assert_uint_eq(e.offset, output.text[e.stream - 1].size());
            output.eof[e.stream - 1] = true;
            break;
        case InitEventKind::input_taken:
            input_taken = e.offset;
            input_limit = e.limit;
            push_input();
            break;
        case InitEventKind::exited: exit = e.exit; break;
        case InitEventKind::stopped: stopped = e.value; break;
        case InitEventKind::helpers_ready:
            ck_assert_int_eq(e.value, 0);
            helpers_ready = true;
            break;
        case InitEventKind::drained:
            drained = e.value;
            if (e.value != 0) failure = e.trouble();
            break;
        case InitEventKind::prepared:
            ck_assert_int_eq(e.value, 0);
            ends = std::move(e.fds);
            prepared = true;
            break;
        case InitEventKind::loaded:
            ck_assert_msg(e.value == 0, "%s", e.trouble().c_str());
            residue = e.residue;
            loaded = true;
            break;
        case InitEventKind::leased:
        case InitEventKind::closed: closed = true; break;
    }
}

LaunchSpec shell(const std::string& script) {
    LaunchSpec spec;
    spec.path = "/bin/bash";
    spec.argv = {"bash", "-c", script};
    spec.env = {"PATH=/usr/bin:/bin", "LC_ALL=C"};
    spec.cwd = "/";
    return spec;
}

LaunchSpec python(const std::string& script) {
    LaunchSpec spec = shell("");
    spec.path = "/usr/bin/python3";
    spec.argv = {"python3", "-u", "-c", script};
    return spec;
}

}  // namespace souk::unit
