// SPDX-License-Identifier: GPL-2.0-or-later
// The record, inputs and outputs of a Provider (provider.hpp), each with its name, and what it is
// told of the machine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "kernel/base/money.hpp"
#include "kernel/base/time.hpp"
#include "market/core/messages.hpp"

namespace souk {

// The highest speed that the market's solver ranks (speed_max of market/core/types.hpp).
inline constexpr int64_t provider_speed_max = 16'383;

// The wall clock in the caller's time zone.
struct WallTime {
    int64_t unix_s = 0;
    int32_t second_of_week = 0;  // local, from Monday 00:00
};

// The values that the owner can set, as bits of ProviderRecord::set.
enum OwnerSet : uint32_t {
    set_price_bit = 1,
    set_speed_bit = 2,
    set_cpus_bit = 4,
    set_memory_bit = 8,
    set_frames_bit = 16,
    set_market_bit = 32,
    set_zone_bit = 64,
    set_curve_bit = 128,
    set_warning_bit = 256,
    set_share_bit = 512,
    set_told = 1u << 31,  // missing: a record of a version that did not keep this
};

// The record on disk.
struct ProviderRecord {
    Money reserve;
    int64_t speed = 100;    // 100 is a standard machine
    int32_t cpus = 1;       // offered
    int64_t memory_mb = 1;  // offered
    std::string frames = "always";
    bool on_market = true;     // as it stood last
    bool by_hand = false;      // `on_market` is the owner's word and holds until the next edge
    int64_t since_unix_s = 0;  // by_hand: when it was said
    uint32_t set = set_told;   // which of these are the owner's word (OwnerSet)
    std::string zone;          // for frames and curve; empty: this machine's
    std::string curve;         // price_curve.hpp
    int64_t warning_s = 0;     // guests' users are told so long before a frame ends
    bool price_auto = false;   // `learned` holds, at least `floor`
    Money floor, learned;
    int32_t since_second = -1;      // by_hand: the second of the week; below 0: not known
    std::vector<std::string> bans;  // owner_bans.hpp
    std::string share;              // owner_share.hpp
    bool operator==(const ProviderRecord&) const = default;
};

// The machine. Only a reload of the configuration changes any of it.
struct Hardware {
    int32_t cpus = 1;
    int64_t memory_mb = 1;
    Machine machine;
    std::string restriction = {}, version = {};  // as in ProviderReport
    std::string near_group = {};                 // as in ProviderReport, as configured
    int64_t near_trip_us = 0, near_mbit = 0;
    std::vector<std::string> attributes = {};
    std::vector<ResourceOffer> resources = {};
};

struct LoadReading {
    int64_t free_mb = 0;
    int32_t load_permille = 0, wait_permille = 0;
    std::string source;  // "bpf" or "proc"
    // Shares of all CPUs of the machine: the owner's tasks run, the owner's tasks wait for a CPU,
    // the kernel's threads and the daemon run, and guests may take this without the owner waiting
    // longer. He asks for what he runs and what he waits; guests may have the rest.
    int32_t owner_permille = 0, owner_wait_permille = 0, system_permille = 0, headroom_permille = 0;
    int32_t cpus = 1;  // that the machine has
    // The thousandths of the last 10 s in which some task of the machine stood still for want of
    // memory; nothing: the kernel does not tell.
    std::optional<int32_t> memory_pressure_permille = {};
    // One of 100 waits of the owner's tasks was longer than this power of two.
    Nanos owner_wait_p99 = {};
};

// The thousandths of the machine's CPUs that are left to guests.
constexpr int32_t headroom(int32_t owner, int32_t owner_wait, int32_t system) {
    return std::max(0, 1000 - owner - owner_wait - system);
}

namespace provider {
struct Persist {
    ProviderRecord record;
};
struct Report {
    ProviderReport report;
};
struct Accepting {
    bool accepting = false;
    std::string why;
};  // for Guest::set_accepting
using Output = std::variant<Persist, Report, Accepting>;
using Outputs = std::vector<Output>;
const char* to_string(const Output& output);  // persist, report, accepting
// The inputs: the methods of Provider by name.
enum class Input : uint8_t {
    started,
    tick,
    market_up,
    market_on,
    market_off,
    set_price,
    set_speed,
    set_cpus,
    set_memory,
    set_frames,
    unset,
    set_cannot,
    set_resting,
    set_load,
    set_auto,
    set_zone,
    set_curve,
    set_warning,
    learned,
    ban,
    allow,
    set_share,
    set_here,
};
const char* to_string(Input input);
}  // namespace provider

}  // namespace souk
