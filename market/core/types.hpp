// SPDX-License-Identifier: GPL-2.0-or-later
// The values that tell the solver of jobs and providers, and its answers. They are plain: the
// caller (the market, the simulator, the solver program) owns the real things and maps its own ids
// to keys.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernel/base/money.hpp"
#include "kernel/base/rare.hpp"
#include "kernel/base/time.hpp"
#include "market/core/named_resources.hpp"

namespace souk::market {

// Keys are the caller's; 0 means "none" where a key is optional, so no job or provider may have it.
struct JobKey {
    uint64_t n = 0;
    constexpr auto operator<=>(const JobKey&) const = default;
};
struct ProviderKey {
    uint64_t n = 0;
    constexpr auto operator<=>(const ProviderKey&) const = default;
};

// waiting: never ran, nothing to move. running: at `place`. frozen: a checkpoint exists (at `place`
// if that is known).
enum class JobState : uint8_t { waiting, running, frozen };
const char* to_string(JobState state);

// A decision that is not the solver's to take: an operator's, or that of a move that is under way.
// free: none. stay: keeps its CPUs and memory at JobDemand::place whatever anybody bids. frozen:
// gets nothing.
enum class Pin : uint8_t { free, stay, frozen };
const char* to_string(Pin pin);

inline constexpr int32_t speed_standard = 100;
inline constexpr int32_t speed_max = 16'383;         // speeds are 1 to this
inline constexpr int32_t cpus_max = 1 << 20;         // CPUs are 1 to this
inline constexpr int64_t near_most = 1'000'000'000;  // us of a round trip, Mbit/s
inline constexpr int64_t memory_mb_max = 1LL << 40;  // memory is 0 to this

// A job that sees its home's files reads and writes so much through the network while it runs
// elsewhere (docs/files.md); at home it reads and writes the same without it.
struct FileTraffic {
    static constexpr int64_t bytes_most = 1'000'000'000'000, requests_most = 1'000'000'000;
    static constexpr Nanos round_trip_most = Nanos::from_s(60);

    ProviderKey home;            // the node that has the files; 0: none that is known
    int64_t bytes_per_s = 0;     // in both directions
    int64_t requests_per_s = 0;  // each waits for a round trip
    Nanos round_trip;
    bool any() const { return home.n != 0 && (bytes_per_s > 0 || requests_per_s > 0); }
    bool operator==(const FileTraffic&) const = default;
};

// A job ranks by its value times its weight, which grows while it waits (age.hpp). It is in
// 1024ths; that of a job that has not waited is weight_plain.
inline constexpr int32_t weight_plain = 1024, weight_most = weight_plain << 12;

// The value counts as this in ranks. (value and weight in their ranges: below 2^62.)
constexpr Money weighed(Money value, int32_t weight) {
    return Money{static_cast<int64_t>(static_cast<__int128>(value.micro) * weight / weight_plain)};
}
// The least value that counts as at least `counts`.
constexpr Money least_weighed(Money counts, int32_t weight) {
    const auto wide = static_cast<__int128>(counts.micro) * weight_plain;
    return Money{static_cast<int64_t>((wide + weight - 1) / weight)};
}

// How long a job goes on yet (job_rest.hpp). Below 0: that is not known.
struct JobRest {
    Nanos clock{-1};  // run time by the clock, at any speed
    Nanos work{-1};   // run time on a standard machine (speed 100)
    bool learned = false;
    bool is_known() const { return clock.ns >= 0 || work.ns >= 0; }
    // How long it runs yet on a machine of this speed. never(): that is not known.
    Nanos at(int64_t speed) const;
    // It has run there for so long.
    void take(Nanos span, int64_t speed);
    bool operator==(const JobRest&) const = default;
};

// The market's knowledge of a job's future, for algorithms that look ahead (backfilling.cpp).
struct JobAhead {
    JobRest rest;  // as of rest_from, from which on it runs; before that it has not begun
    Nanos rest_from;
    // A place that is sold to it, from then to then; 0: none.
    ProviderKey at;
    Nanos from, to;
    bool operator==(const JobAhead&) const = default;
};

struct JobDemand {
    Money value;            // the most it pays per CPU-hour; 0 to money_max
    int64_t memory_mb = 0;  // needed wherever it runs
    int32_t cpus = 1;       // needed on one provider
    uint32_t user = 0;
    // among those that rank equally the earlier one goes first, then the lower key
    Nanos arrival;
    int32_t weight = weight_plain;  // to weight_most; greedy_migration alone looks at it
    JobState state = JobState::waiting;
    ProviderKey place;               // where it runs or is frozen
    int64_t move_bytes = -1;         // what a move must carry; -1: its memory_mb
    int64_t dirty_bytes_per_s = -1;  // how fast it dirties memory while it is copied; -1: not known
    Pin pin = Pin::free;
    std::vector<ProviderKey> barred;  // not there (back-off, srun --needs); in their order
    ProviderKey only;                 // of a component: nowhere but there; 0: anywhere
    FileTraffic files;
    // Named resources that it needs of its provider, and of the market wherever it runs. kept: it
    // keeps them whatever becomes of it, so they are no part of what is offered to others.
    NamedAmounts named, licences;
    bool named_kept = false;
    Rare<JobAhead> ahead = {};
    bool asks_named() const { return !named.empty() || !licences.empty(); }
};

// How the required components of a gang are to lie.
struct GangLayout {
    uint32_t most_on_one = 0;  // of them on one machine; 0: any number
    // on as few machines as hold them at the speed that it gets and the reserves that it meets
    bool few = false;
    // all on machines of one network, each with these figures there, or all on one machine
    bool near = false;
    int64_t trip_us_most = 0;  // 0: any round trip
    int64_t mbit_least = 0;
    bool operator==(const GangLayout&) const = default;
};

struct ProviderSpec {
    Money reserve;  // not given below this per CPU-hour; 0 to money_max
    int32_t speed = speed_standard;
    int32_t cpus = 1;
    int64_t memory_mb = 0;
    bool accepting = true;  // false: takes nobody and expels its guests, except pinned ones
    uint64_t network = 0;   // which machines are near it: those of the same one; 0: none
    static constexpr uint64_t network_max = UINT64_MAX >> 1;
    // From it to any other of its network: the longest round trip and the least bandwidth; 0: not
    // known.
    int64_t trip_us = 0, mbit = 0;
    NamedOffers named = {};  // its named resources
    bool operator==(const ProviderSpec&) const = default;
};

enum class ChangeKind : uint8_t { start, move, freeze, thaw };
const char* to_string(ChangeKind kind);

// Why a change was made. The text comes from Solver::reason(), made only when somebody asks.
enum class Cause : uint8_t {
    placed,         // its bid won a place
    cheaper,        // at the prices now another place, or none, is worth more to it (welfare)
    faster,         // a faster (or, at equal speed, cheaper) place came within its reach
    displaced,      // `other` took its place
    below_reserve,  // its provider's reserve is above its bid
    provider_gone,  // its provider left or stopped accepting
    no_room,        // its provider offers less than it needs
    barred,         // it may no longer be where it was
    share,          // proportional share: the turn of another user
    pinned,         // held frozen from outside
    adopted,        // decided by another solver (Solver::adopt)
    balanced,       // the load is lower there (balance)
    near_files,     // what it reads and writes is there, and costs more than elsewhere is gained
};
const char* to_string(Cause cause);

struct Change {
    JobKey job;
    ChangeKind kind = ChangeKind::start;
    // where it ran (move, freeze); where it was frozen, if known (thaw)
    ProviderKey from;
    ProviderKey to;  // none for freeze
    Cause cause = Cause::placed;
    JobKey other;       // displaced, share: who took the place
    Money other_value;  // and its bid, as that counts in ranks
};

struct Payment {
    JobKey job;
    ProviderKey provider;
    Money price;  // per CPU-hour
};

// Per hour, over all running jobs. A job's worth is value x speed / fastest speed x CPUs.
struct Surplus {
    Money consumers;  // worth - price
    Money providers;  // price - reserve
    Money welfare;    // the sum of both: worth - reserve
};

// How the caller calls its jobs and providers ("n1.7", "n2"); used for reasons alone.
struct Names {
    std::function<std::string(JobKey)> job;
    std::function<std::string(ProviderKey)> provider;
};

}  // namespace souk::market
