// SPDX-License-Identifier: GPL-2.0-or-later
// LoadProbe: what of the owner's use the kernel tells as it begins, and the clocks that look for
// it.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/perf_event.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bpf/load.h"
#include "bpf/load.hpp"

namespace souk {

// A task that runs on is noticed by the next look after it has run so long. Both spans together
// stay within 50 ms, with the time that agentd takes to hear of it.
void LoadProbe::notice(Nanos run, Nanos wait) {
    constexpr Nanos within = Nanos::from_ms(45), least = Nanos::from_ms(5),
                    most = Nanos::from_ms(25);
    const Nanos every = run.ns > 0 ? std::clamp(within - run, least, most) : Nanos{};
    if (every != look_every_ || (every.ns > 0 && clocks_.empty())) {
        const Status looks = arm_clocks(every);
        why_no_look_ = looks ? "" : looks.error().message;
    }
    for (size_t i = 0; cpus_ != nullptr && i < cpu_count_; ++i) {
        __atomic_store_n(&cpus_[i].notice_run_ns, static_cast<uint64_t>(run.ns), __ATOMIC_RELAXED);
        __atomic_store_n(&cpus_[i].notice_wait_ns, static_cast<uint64_t>(wait.ns),
                         __ATOMIC_RELAXED);
    }
}

// A CPU that is off now has no clock.
Status LoadProbe::arm_clocks(Nanos every) {
    clocks_.clear();
    look_every_ = {};
    if (!look_ || every.ns == 0) return {};
    for (size_t i = 0; i < cpu_count_; ++i) {
        auto clock = open_event_(i, every);
        if (!clock && clock.error().code == ENODEV) continue;
        if (clock && (::ioctl(clock->get(), PERF_EVENT_IOC_SET_BPF, look_.get()) != 0 ||
                      ::ioctl(clock->get(), PERF_EVENT_IOC_ENABLE, 0) != 0))
            clock = fail_errno("set it", errno);
        if (!clock) {
            clocks_.clear();
            return wrap("look at the task that runs", clock.error());
        }
        clocks_.push_back(std::move(*clock));
    }
    look_every_ = every;
    return {};
}

Status LoadProbe::notice_programs(const std::set<std::string>& programs) {
    if (cpus_ == nullptr) return {};
    if (programs.size() > LOAD_NAMES)
        return fail("at most " + std::to_string(LOAD_NAMES) + " programs are noticed");
    char key[LOAD_NAME];
    while (bpf_map_get_next_key(names_.get(), nullptr, key) == 0)
        bpf_map_delete_elem(names_.get(), key);
    for (const std::string& program : programs) {
        std::memset(key, 0, sizeof key);
        program.copy(key, sizeof key - 1);
        const uint32_t one = 1;
        if (const int error = bpf_map_update_elem(names_.get(), key, &one, BPF_ANY); error != 0)
            return fail_errno("notice program " + program, -error);
    }
    return {};
}

Status LoadProbe::give_way(bool on) {
    if (cpus_ == nullptr)
        return on ? Status(fail("the kernel's switches are not seen: " + why_not_bpf_)) : Status{};
    if (on && !wakers_) {
        TRY_ASSIGN(wakers_, CpuWakers::start(wakes_.get(), cpu_count_, open_event_));
    }
    for (size_t i = 0; i < cpu_count_; ++i)
        __atomic_store_n(&cpus_[i].give_way, on ? 1 : 0, __ATOMIC_RELAXED);
    return {};
}

uint64_t LoadProbe::gave_way() const {
    uint64_t total = 0;
    for (size_t i = 0; cpus_ != nullptr && i < cpu_count_; ++i)
        total += __atomic_load_n(&cpus_[i].gave_way, __ATOMIC_RELAXED);
    return total;
}

int LoadProbe::notices_fd() const { return ring_ ? ring_buffer__epoll_fd(ring_.get()) : -1; }

void LoadProbe::take_notices(const std::function<void(const LoadNotice&)>& each) {
    if (!ring_) return;
    *on_notice_ = each;
    ring_buffer__consume(ring_.get());
}

}  // namespace souk
