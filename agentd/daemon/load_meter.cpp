// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/load_meter.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "kernel/sys/host/pressure.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {
namespace {

int64_t memory_free_mb() {
    const auto text = read_file(AT_FDCWD, "/proc/meminfo");
    const size_t at = text ? text->find("MemAvailable:") : std::string::npos;
    return at == std::string::npos ? 0 : std::atoll(text->c_str() + at + 13) / 1024;
}

int32_t permille(Nanos part, int64_t span_ns) {
    if (span_ns <= 0) return 0;
    return static_cast<int32_t>(std::clamp<int64_t>(part.ns * 1000 / span_ns, 0, 1'000'000));
}

}  // namespace

Status LoadMeter::open(const Cgroups& cgroups, const std::string& node,
                       const LoadProbe::Options& options) {
    TRY_ASSIGN(LoadProbe probe, LoadProbe::open(cgroups, node, 2, options));
    probe_ = std::make_unique<LoadProbe>(std::move(probe));
    if (!probe_->why_not_bpf().empty())
        log_.notice("load is read from /proc", {{"WHY", probe_->why_not_bpf()}});
    else if (!probe_->why_no_network().empty())
        log_.notice("bytes of the network are not counted", {{"WHY", probe_->why_no_network()}});
    (void)read(1);  // what was before is nobody's use of now
    return {};
}

Result<Nanos> LoadMeter::stalled(int group) {
    TRY_ASSIGN(const std::string text, read_file(group, "memory.pressure"));
    return pressure_total(text);
}

void LoadMeter::notice(const LoadProbe::Options& options) {
    Status network = fail("nothing is counted without control groups");
    if (probe_) network = probe_->notice_network(options.notice_bytes);
    const bool seen = network || options.notice_bytes == 0;
    const std::string why_not = seen ? "" : network.error().message;
    if (!why_not.empty() && why_not != why_no_network_notice_)
        log_.warning("the owner's use of the network is not seen", {{"WHY", why_not}});
    why_no_network_notice_ = why_not;
    if (!probe_) return;
    const std::string before = probe_->why_no_look();
    probe_->notice(options.notice_run, options.notice_wait);
    if (const std::string& why = probe_->why_no_look(); !why.empty() && why != before)
        log_.notice("what runs alone on a CPU is noticed each second", {{"WHY", why}});
}

void LoadMeter::give_way(bool on) {
    Status done = probe_ ? probe_->give_way(on) : Status{};
    if (on && !probe_) done = fail("nothing is measured without control groups");
    const std::string why = done ? "" : done.error().message;
    if (!why.empty() && why != why_no_give_way_)
        log_.notice("the owner may wait for guests until the next tick of the kernel",
                    {{"WHY", why}});
    why_no_give_way_ = why;
}

void LoadMeter::capsule_came(const Cgroup& capsule, Nanos used, bool lived) {
    const int group = capsule.entry().v2;
    if (const auto before = group >= 0 ? stalled(group) : Result<Nanos>(fail("")); before)
        stalls_[capsule.name()] = {Fd(::fcntl(group, F_DUPFD_CLOEXEC, 0)),
                                   lived ? Nanos{} : *before};
    if (probe_) tell(capsule, probe_->add(capsule.name(), lived, capsule.id(), used));
}

void LoadMeter::capsule_went(const Cgroup& capsule) {
    stalls_.erase(capsule.name());
    if (probe_) tell(capsule, probe_->remove(capsule.name()));
}

void LoadMeter::tell(const Cgroup& capsule, const Status& done) {
    if (done) return;
    log_.limited("load", Loop::now(), Level::warning, "its load is not measured",
                 {{"group", capsule.name()}, {"WHY", done.error()}});
}

std::optional<Nanos> LoadMeter::cpu_time(const std::string& capsule) {
    const auto all = load(capsule);
    if (!all) return std::nullopt;
    return all->run;
}

std::optional<LoadSample> LoadMeter::load(const std::string& capsule) {
    const auto read = probe_ ? probe_->read(capsule) : Result<LoadSample>(fail(""));
    if (!read) return std::nullopt;
    return *read;
}

std::optional<Nanos> LoadMeter::memory_stall(const std::string& capsule) const {
    const auto it = stalls_.find(capsule);
    if (it == stalls_.end()) return std::nullopt;
    const auto now = stalled(it->second.group.get());
    if (!now) return std::nullopt;
    return *now - it->second.base;
}

LoadReading LoadMeter::read(int32_t cpus) {
    LoadReading reading;
    reading.free_mb = memory_free_mb();
    memory_pressure_ = memory_pressure_permille();
    reading.source = probe_ ? probe_->source() : "none";
    const auto sample = probe_ ? probe_->read_node() : Result<LoadSample>(fail(""));
    if (!sample) return reading;
    const Nanos now = Loop::now();
    const int64_t span_ns = (now - last_at_).ns;
    reading.load_permille = permille(sample->run - last_.run, span_ns * cpus);
    reading.wait_permille = permille(sample->wait - last_.wait, span_ns * cpus);
    reading.cpus = static_cast<int32_t>(::sysconf(_SC_NPROCESSORS_ONLN));
    read_owner(span_ns * reading.cpus, reading);
    last_ = *sample;
    last_at_ = now;
    return reading;
}

void LoadMeter::read_owner(int64_t span_ns, LoadReading& reading) {
    const auto owner = probe_->read_owner();
    if (!owner) return;
    const LoadSample system = probe_->read_system();
    reading.owner_permille = permille(owner->run - last_of_owner_.run, span_ns);
    reading.owner_wait_permille = permille(owner->wait - last_of_owner_.wait, span_ns);
    reading.owner_wait_p99 = owner->wait_quantile(last_of_owner_, 990);
    reading.system_permille = permille(system.run - last_of_system_.run, span_ns);
    reading.headroom_permille =
        headroom(reading.owner_permille, reading.owner_wait_permille, reading.system_permille);
    last_of_owner_ = *owner;
    last_of_system_ = system;
}

}  // namespace souk
