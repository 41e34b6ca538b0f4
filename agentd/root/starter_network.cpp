// SPDX-License-Identifier: GPL-2.0-or-later
// Starter: the interfaces of jobs, and who sees the packets of the machine.
#include <fcntl.h>

#include <cerrno>

#include "agentd/root/descriptors.hpp"
#include "agentd/root/starter.hpp"
#include "kernel/sys/net/packets.hpp"
#include "kernel/sys/net/tcp_repair.hpp"
#include "kernel/sys/process/cgroup.hpp"
#include "kernel/sys/process/packet_sight.hpp"

namespace souk::root {
namespace {

constexpr size_t frames_bytes_max = 16 << 20;

Status add_maps(const Armed& armed, Starter::Answer& to) {
    for (const Fd* map : {&armed.gate.map(), &armed.gate.kept()}) {
        TRY_ASSIGN(Fd copy, duplicate(map->get()));
        to.descriptors.push_back(std::move(copy));
    }
    to.told = Done{armed.within};
    return {};
}

// A file in memory that nobody changes any more: to read it waits for nobody.
Result<std::vector<std::string>> frames_in(int file) {
    const int seals = ::fcntl(file, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_WRITE) == 0) return fail("no file of frames");
    TRY_ASSIGN(const std::string bytes, bytes_of(file, frames_bytes_max));
    return decode_frames(bytes);
}

}  // namespace

Result<Starter::Answer> Starter::start(const MakePort& asked, const std::vector<int>& fds) {
    TRY(capsules_.init(fds[0]));
    if (network_ && !asked.plan.found && !network_->range.contains(asked.plan.address))
        return fail("an address that is not of this node's network for jobs");
    TRY_ASSIGN(LocalPort::Made made, LocalPort::open(network_, asked.plan, fds[0]));
    Answer done{Done{}, {}};
    TRY_ASSIGN(Fd end, ports_.add(std::move(made.work)));
    done.descriptors.push_back(std::move(end));
    if (made.armed) TRY(add_maps(*made.armed, done));
    return done;
}

Result<Starter::Answer> Starter::start(const ArmPort& asked, const std::vector<int>& fds) {
    Answer done{Done{}, {}};
    TRY(ports_.with(fds[0], [&](PortWork& port) -> Status {
        TRY_ASSIGN(const Armed armed, port.arm(asked.at_first));
        return add_maps(armed, done);
    }));
    return done;
}

Result<Starter::Answer> Starter::start(const ActOnPort& asked, const std::vector<int>& fds) {
    TRY(ports_.with(fds[0], [&](PortWork& port) { return port.act(asked.what); }));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const HoldFrames& asked, const std::vector<int>& fds) {
    TRY(ports_.with(fds[0], [&](PortWork& port) { return port.hold(asked.way, asked.follows); }));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const FeedFrames& asked, const std::vector<int>& fds) {
    std::vector<std::string> frames;
    if (asked.frames) {
        TRY_ASSIGN(frames, frames_in(fds[1]));
    }
    TRY(ports_.with(fds[0], [&](PortWork& port) { return port.feed(asked.since, frames); }));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const TellHeld&, const std::vector<int>& fds) {
    Answer done{Done{}, {}};
    TRY(ports_.with(fds[0], [&](PortWork& port) -> Status {
        TRY_ASSIGN(const std::string held, port.held());
        TRY_ASSIGN(Fd file, memory_file("souk-frames", held));
        done.descriptors.push_back(std::move(file));
        return {};
    }));
    return done;
}

Result<Starter::Answer> Starter::start(const ReleaseFrames& asked, const std::vector<int>& fds) {
    TRY(ports_.with(fds[0], [&](PortWork& port) { return port.release(asked.how); }));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const SayFrames& asked, const std::vector<int>& fds) {
    TRY_ASSIGN(const auto frames, frames_in(fds[1]));
    TRY(ports_.with(fds[0], [&](PortWork& port) { return port.say(asked.way, frames); }));
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const EndRepair& asked, const std::vector<int>& fds) {
    TRY_ASSIGN(const Inside process, capsules_.process_of_job(fds[0]));
    TRY_ASSIGN(Fd own, duplicate(fds[0]));
    TRY_ASSIGN(const bool ended, end_tcp_repair_of(Pidfd(std::move(own), process.here),
                                                   static_cast<int>(asked.number)));
    return Answer{Done{ended}, {}};
}

// Later it could be what somebody else has made, who has agentd in his hands.
Result<Starter::Answer> Starter::start(const KeepPackets&, const std::vector<int>& fds) {
    if (packets_) return fail("which programs see packets is said already");
    std::vector<Fd> programs;
    for (const int fd : fds) {
        TRY_ASSIGN(Fd program, duplicate(fd));
        programs.push_back(std::move(program));
    }
    packets_ = std::move(programs);
    return Answer{Done{}, {}};
}

Result<Starter::Answer> Starter::start(const SeePacketsOfAll&, const std::vector<int>&) const {
    if (!packets_ || packets_->empty()) return fail("agentd has no programs that see packets");
    TRY_ASSIGN(const std::string mounts, read_file(AT_FDCWD, "/proc/self/mountinfo"));
    TRY_ASSIGN(auto links, see_packets(detect_cgroups(mounts).v2, packets_->at(0).get(),
                                       packets_->at(1).get()));
    return Answer{Done{}, std::move(links)};
}

}  // namespace souk::root
