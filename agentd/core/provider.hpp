// SPDX-License-Identifier: GPL-2.0-or-later
// Provider: what this node offers to the market: reservation price, speed, CPUs, memory, and when. Pure: the owner's
// words, the load reader's figures and the wall clock come in; a record to keep, a report for the market and a word
// for the Guest go out, in that order.
//
// On the market or not: at the edge of a time frame the node joins or leaves by itself; `market` (the owner by hand)
// holds until the next edge, also over a restart of the daemon. With "always" there is no edge: the word holds.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "agentd/core/time_frames.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "market/core/messages.hpp"

namespace souk {

// What the market's solver ranks (speed_max of market/core/types.hpp).
inline constexpr int64_t provider_speed_max = 16'383;

// The wall clock, as the caller's time zone has it.
struct WallTime {
    int64_t unix_s = 0;
    int32_t second_of_week = 0;  // local, from Monday 00:00
};

// What is kept on disk.
struct ProviderRecord {
    Money reserve;
    int64_t speed = 100;     // 100 is a standard machine
    int32_t cpus = 1;        // offered
    int64_t memory_mb = 1;   // offered
    std::string frames = "always";
    bool on_market = true;   // as it stood last
    bool by_hand = false;    // `on_market` is the owner's word and holds until the next edge
    int64_t since_unix_s = 0;  // of `by_hand`: when it was said
    bool operator==(const ProviderRecord&) const = default;
};

// What the machine has and is; never changes while the daemon lives.
struct Hardware {
    int32_t cpus = 1;
    int64_t memory_mb = 1;
    Machine machine;
};

struct LoadReading {
    int64_t free_mb = 0;
    int32_t load_permille = 0, wait_permille = 0;
    std::string source;  // "bpf" or "proc"
};

namespace provider {
struct Persist { ProviderRecord record; };
struct Report { ProviderReport report; };
struct Accepting { bool accepting = false; std::string why; };  // for Guest::set_accepting
using Output = std::variant<Persist, Report, Accepting>;
using Outputs = std::vector<Output>;
}  // namespace provider

class Provider {
  public:
    // `record` is the one from disk, or the configuration's. Errors: a value of it that no setter would take; what the
    // machine does not have any more (CPUs, memory) is cut down instead.
    static Result<Provider> create(NodeName node, Hardware machine, ProviderRecord record);

    // Once, before anything else: where the frames stand now.
    void started(WallTime wall, provider::Outputs& out);
    // At every time that it asked for. Returns seconds until it wants to be called again, at most an hour, so that a
    // clock that was set or went over to summer time is seen; 0: no need (always).
    int64_t tick(WallTime wall, provider::Outputs& out);
    // A fresh connection to the market: the whole report.
    void market_up(provider::Outputs& out) const;

    // The owner's words. An error is one line and changes nothing.
    void market(bool on, WallTime wall, provider::Outputs& out);
    Status set_price(Money reserve, provider::Outputs& out);
    Status set_speed(int64_t speed, provider::Outputs& out);
    Status set_cpus(int64_t cpus, provider::Outputs& out);
    Status set_memory(int64_t memory_mb, provider::Outputs& out);
    Status set_frames(std::string_view text, WallTime wall, provider::Outputs& out);

    // Why this node cannot take jobs whatever its owner wants; empty when it can.
    void set_cannot(std::string why, provider::Outputs& out);
    // From the load reader, each second. Reports at once what matters (a twentieth of the machine, a new source), at
    // most once a second; anything else every half minute. What was held back goes with the next call.
    void set_load(const LoadReading& load, Nanos now, provider::Outputs& out);

    const ProviderRecord& record() const { return record_; }
    const TimeFrames& frames() const { return frames_; }
    const Hardware& machine() const { return machine_; }
    ProviderReport report() const;

  private:
    Provider(NodeName node, Hardware machine, ProviderRecord record, TimeFrames frames)
        : node_(std::move(node)),
          machine_(std::move(machine)),
          record_(std::move(record)),
          frames_(std::move(frames)) {}
    void changed(provider::Outputs& out) const;
    void turn(bool on, provider::Outputs& out);
    void accepting(provider::Outputs& out) const;
    bool edge_since_word(WallTime wall) const;

    NodeName node_;
    Hardware machine_;
    ProviderRecord record_;
    TimeFrames frames_;
    std::string cannot_;
    LoadReading load_, told_;
    Nanos told_at_ = Nanos::never();
};

}  // namespace souk
