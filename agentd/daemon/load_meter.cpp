// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/load_meter.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstdlib>

#include "kernel/sys/loop/loop.hpp"

namespace souk {
namespace {

int64_t memory_free_mb() {
    const auto text = read_file(AT_FDCWD, "/proc/meminfo");
    const size_t at = text ? text->find("MemAvailable:") : std::string::npos;
    return at == std::string::npos ? 0 : std::atoll(text->c_str() + at + 13) / 1024;
}

}  // namespace

Status LoadMeter::open(const Cgroups& cgroups, const std::string& node) {
    TRY_ASSIGN(LoadProbe probe, LoadProbe::open(cgroups, node));
    probe_ = std::make_unique<LoadProbe>(std::move(probe));
    if (!probe_->why_not_bpf().empty())
        log_.notice("load is read from /proc", {{"WHY", probe_->why_not_bpf()}});
    return {};
}

void LoadMeter::capsule_came(const Cgroup& capsule, Nanos used, bool lived) {
    if (probe_) tell(capsule, probe_->add(capsule.name(), lived, capsule.id(), used));
}

void LoadMeter::capsule_went(const Cgroup& capsule) {
    if (probe_) tell(capsule, probe_->remove(capsule.name()));
}

void LoadMeter::tell(const Cgroup& capsule, const Status& done) {
    if (done) return;
    log_.limited("load", Loop::now(), Level::warning, "its load is not measured",
                 {{"group", capsule.name()}, {"WHY", done.error()}});
}

std::optional<Nanos> LoadMeter::cpu_time(const std::string& capsule) {
    const auto load = probe_ ? probe_->read(capsule) : Result<LoadSample>(fail(""));
    if (!load) return std::nullopt;
    return load->run;
}

LoadReading LoadMeter::read(int32_t cpus) {
    LoadReading reading;
    reading.free_mb = memory_free_mb();
    reading.source = probe_ ? probe_->source() : "none";
    const auto sample = probe_ ? probe_->read_node() : Result<LoadSample>(fail(""));
    if (!sample) return reading;
    const Nanos now = Loop::now();
    const int64_t span = (now - last_at_).ns * cpus;
    const auto permille = [&](Nanos part, Nanos before) {
        return span > 0 ? static_cast<int32_t>(
                              std::clamp<int64_t>((part - before).ns * 1000 / span, 0, 1'000'000))
                        : 0;
    };
    reading.load_permille = permille(sample->run, last_.run);
    reading.wait_permille = permille(sample->wait, last_.wait);
    last_ = *sample;
    last_at_ = now;
    return reading;
}

}  // namespace souk
