// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: how busy this node and its guests are, second by second.
#include <malloc.h>

#include <algorithm>

#include "agentd/daemon/agent.hpp"
#include "kernel/sys/host/clock.hpp"

namespace souk {
namespace {

constexpr Nanos load_period = Nanos::from_s(1);
constexpr Nanos group_kept = Nanos::from_s(10);
constexpr uint64_t trim_ticks = 30, look_ticks = 60;

int64_t memory_free_mb() {
    const auto text = read_file(AT_FDCWD, "/proc/meminfo");
    const size_t at = text ? text->find("MemAvailable:") : std::string::npos;
    return at == std::string::npos ? 0 : std::atoll(text->c_str() + at + 13) / 1024;
}

}  // namespace

Status Agent::open_load() {
    if (!cgroups_) return {};
    TRY_ASSIGN(LoadProbe load,
               LoadProbe::open(*cgroups_, config_.cgroup.substr(config_.cgroup.find('/') + 1)));
    load_ = std::make_unique<LoadProbe>(std::move(load));
    if (!load_->why_not_bpf().empty())
        log_.notice("load is read from /proc", {{"WHY", load_->why_not_bpf()}});
    return {};
}

void Agent::tick_load() {
    LoadReading reading;
    reading.free_mb = memory_free_mb();
    reading.source = load_ ? load_->source() : "none";
    if (const auto sample = load_ ? load_->read_node() : Result<LoadSample>(fail("")); sample) {
        const Nanos now = Loop::now();
        const int64_t span = (now - load_at_).ns * provider_->record().cpus;
        const auto permille = [&](Nanos part, Nanos before) {
            return span > 0 ? static_cast<int32_t>(std::clamp<int64_t>(
                                  (part - before).ns * 1000 / span, 0, 1'000'000))
                            : 0;
        };
        reading.load_permille = permille(sample->run, load_sample_.run);
        reading.wait_permille = permille(sample->wait, load_sample_.wait);
        load_sample_ = *sample;
        load_at_ = now;
    }
    provider_step(
        [&](Provider& p, provider::Outputs& out) { p.set_load(reading, Loop::now(), out); });
    apply_bounds();  // what could not be yet
    // Each job when it is new, and then once a minute, a few of them now.
    size_t n = 0;
    for (const auto& [key, c] : cells_)
        if (n++ % look_ticks == load_ticks_ % look_ticks || !c->looked() || c->looks_often())
            c->look();
    if (groups_) groups_->drop_kept(monotonic_now(), group_kept);
    if (++load_ticks_ % trim_ticks == 0) ::malloc_trim(0);  // what a burst of jobs has left
    load_timer_ = loop_.after(load_period, [this] { tick_load(); });
}

}  // namespace souk
