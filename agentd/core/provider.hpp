// SPDX-License-Identifier: GPL-2.0-or-later
// Provider: what this node offers to the market: reservation price, speed, CPUs, memory, and when.
// Pure: the owner's words, the load reader's figures and the wall clock come in; a record to keep,
// a report for the market and a word for the Guest go out, in that order.
//
// On the market or not: at the edge of a time frame the node joins or leaves by itself; `market`
// (the owner by hand) holds until the next edge, also over a restart of the daemon. With "always"
// there is no edge: the word holds.
//
// Guests get all that is offered, or a part of it while the owner is here or at some hours
// (owner_share.hpp): then the market is told of a smaller node. A part of a CPU is one that is so
// much slower.
//
// The price is the owner's figure, or at some hours of the week that of his price curve, or one
// that is learned from the market's prices (`set_auto`) and is never below his floor or his curve.
//
// What the owner said (set, market) holds over what the configuration says, until `unset`;
// everything else is what the configuration says at each start.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "agentd/core/owner_share.hpp"
#include "agentd/core/price_curve.hpp"
#include "agentd/core/time_frames.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/base/trace.hpp"
#include "market/core/messages.hpp"

namespace souk {

class JsonWriter;

// What the market's solver ranks (speed_max of market/core/types.hpp).
inline constexpr int64_t provider_speed_max = 16'383;

// The wall clock, as the caller's time zone has it.
struct WallTime {
    int64_t unix_s = 0;
    int32_t second_of_week = 0;  // local, from Monday 00:00
};

// What the owner can set, as bits of ProviderRecord::set.
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

// What is kept on disk.
struct ProviderRecord {
    Money reserve;
    int64_t speed = 100;    // 100 is a standard machine
    int32_t cpus = 1;       // offered
    int64_t memory_mb = 1;  // offered
    std::string frames = "always";
    bool on_market = true;     // as it stood last
    bool by_hand = false;      // `on_market` is the owner's word and holds until the next edge
    int64_t since_unix_s = 0;  // of `by_hand`: when it was said
    uint32_t set = set_told;   // which of these are the owner's word (OwnerSet)
    std::string zone;          // of frames and curve; empty: this machine's
    std::string curve;         // price_curve.hpp
    int64_t warning_s = 0;     // so long before a frame ends, guests' users are told
    bool price_auto = false;   // `learned` holds, at least `floor`
    Money floor, learned;
    int32_t since_second = -1;      // of `by_hand`: the second of the week; below 0: not known
    std::vector<std::string> bans;  // owner_bans.hpp
    std::string share;              // owner_share.hpp
    bool operator==(const ProviderRecord&) const = default;
};

// What the machine has and is; only a reload of the configuration changes any of it.
struct Hardware {
    int32_t cpus = 1;
    int64_t memory_mb = 1;
    Machine machine;
    std::string restriction = {}, version = {};  // of ProviderReport
    std::string near_group = {};                 // likewise, as configured
    int64_t near_trip_us = 0, near_mbit = 0;
};

struct LoadReading {
    int64_t free_mb = 0;
    int32_t load_permille = 0, wait_permille = 0;
    std::string source;  // "bpf" or "proc"
    // Of all CPUs of the machine: what the owner's tasks run, what they wait for a CPU, what the
    // kernel's threads and the daemon run, and what guests may take without the owner waiting
    // longer. What he asks for is what he runs and what he waits; guests may have the rest.
    int32_t owner_permille = 0, owner_wait_permille = 0, system_permille = 0, headroom_permille = 0;
    int32_t cpus = 1;  // that the machine has
    // Of the last 10 s, the thousandths in which some task of the machine stood still for want of
    // memory; nothing: the kernel does not tell.
    std::optional<int32_t> memory_pressure_permille = {};
    // Of 100 waits of the owner's tasks one was longer; what bounds it, a power of two.
    Nanos owner_wait_p99 = {};
};

// What the machine's CPUs, as thousandths, leave to guests.
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
// What comes in: the methods of Provider by name.
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

class Provider {
  public:
    // `file`: what the configuration says; `kept`: the record from disk, if there is one: of it
    // counts what the owner set. Of a record that does not tell what that is, all that differs
    // counts. Errors: a value that no setter would take; what the machine does not have any more
    // (CPUs, memory) is cut down instead.
    static Result<Provider> create(NodeName node, Hardware machine, ProviderRecord file,
                                   std::optional<ProviderRecord> kept = std::nullopt);

    // Once, before anything else: where the frames stand now.
    void started(WallTime wall, provider::Outputs& out);
    // At every time that it asked for. Returns next_call().
    int64_t tick(WallTime wall, provider::Outputs& out);
    // Seconds until it wants to be called, at most an hour, so that a clock that was set or went
    // over to summer time is seen; 0: no need (always). To be asked after tick and after each word
    // of the owner.
    int64_t next_call(WallTime wall) const;
    // A fresh connection to the market: the whole report.
    void market_up(provider::Outputs& out);

    // The owner's words. An error is one line and changes nothing.
    void market(bool on, WallTime wall, provider::Outputs& out);
    Status set_price(Money reserve, provider::Outputs& out);
    Status set_speed(int64_t speed, provider::Outputs& out);
    Status set_cpus(int64_t cpus, provider::Outputs& out);
    Status set_memory(int64_t memory_mb, provider::Outputs& out);
    Status set_frames(std::string_view text, WallTime wall, provider::Outputs& out);
    // One frame more, or one less: by its number (from 1) or its text.
    Status add_frame(std::string_view text, WallTime wall, provider::Outputs& out);
    Status remove_frame(std::string_view which, WallTime wall, provider::Outputs& out);
    // `wall` is by the new zone's clocks; the shell has made sure that there is such a zone.
    Status set_zone(std::string_view zone, WallTime wall, provider::Outputs& out);
    Status set_curve(std::string_view text, WallTime wall, provider::Outputs& out);
    Status set_warning(int64_t seconds, WallTime wall, provider::Outputs& out);
    // What guests get at most, and when.
    Status set_share(std::string_view text, WallTime wall, provider::Outputs& out);
    // From now on what is learned holds as the price, but never less than this.
    Status set_auto(Money floor, provider::Outputs& out);
    void learned(Money price, provider::Outputs& out);
    // Whose jobs, and which programs, do not run here (owner_bans.hpp).
    Status ban(std::string_view whom, provider::Outputs& out);
    Status allow(std::string_view whom, provider::Outputs& out);
    // Back to what the configuration says: price, speed, cpus, memory, frames, zone, curve,
    // warning, share or market.
    Status unset(std::string_view name, WallTime wall, provider::Outputs& out);

    // What the owner's word holds at another value than the configuration says.
    struct Override {
        std::string name, value, file;
        bool operator==(const Override&) const = default;
    };
    std::vector<Override> overrides() const;

    // Why this node cannot take jobs whatever its owner wants; empty when it can.
    void set_cannot(std::string why, provider::Outputs& out);
    // Likewise; and its guests are to go elsewhere, as when the owner takes it off the market. What
    // the owner said of that is not touched.
    void set_leaving(std::string why, provider::Outputs& out);
    // Likewise; but guests stay, and what comes all the same is taken.
    void set_resting(std::string why, provider::Outputs& out);
    // Whether the owner uses the machine himself.
    void set_here(bool here, provider::Outputs& out);
    // From the load reader, each second. Reports at once what matters (a twentieth of the machine,
    // a new source), at most once a second; anything else every half minute. What was held back
    // goes with the next call.
    void set_load(const LoadReading& load, Nanos now, provider::Outputs& out);

    // Who hears of each step (kernel/base/trace.hpp); null: nobody. It outlives the machine.
    void tell_to(TraceListener* listener) { tracer_.tell_to(listener); }
    const ProviderRecord& record() const { return record_; }
    const TimeFrames& frames() const { return frames_; }
    const PriceCurve& curve() const { return curve_; }
    const OwnerShare& share() const { return share_; }
    // What all guests together may have now, of what is offered, by the wall clock that it last
    // saw.
    MachineSize lent() const;
    // The rules that make it less than what is offered; empty: none holds.
    std::string lent_by() const;
    // What is asked now, by the wall clock that it last saw.
    Money asked() const { return asked_at(second_); }
    Money asked_at(int32_t second_of_week) const;
    // Unix time: off the market, when it is on again by its frames; on it, when they end. 0: not
    // known.
    int64_t opens_unix_s() const { return opens_unix_s_; }
    int64_t closes_unix_s() const { return closes_unix_s_; }
    // For the owner: why it asks what it asks, and stands as it stands; keys of an open JSON
    // object.
    void explain(JsonWriter& j) const;
    const Hardware& machine() const { return machine_; }
    ProviderReport report() const;
    const LoadReading& load() const { return load_; }

  private:
    Provider(NodeName node, Hardware machine, ProviderRecord file, ProviderRecord record,
             TimeFrames frames, PriceCurve curve, OwnerShare share)
        : node_(std::move(node)),
          machine_(std::move(machine)),
          file_(std::move(file)),
          record_(std::move(record)),
          frames_(std::move(frames)),
          curve_(std::move(curve)),
          share_(std::move(share)) {}
    // provider_trace.cpp
    using Input = provider::Input;
    friend class TraceScene<Provider, provider::Outputs>;
    using Scene = TraceScene<Provider, provider::Outputs>;
    TraceLine trace_in(Input input, std::string why = {}) const;
    TraceLine trace_of(const provider::Output& output) const;
    void trace_state(const JobId& id, Epoch epoch);

    void changed(provider::Outputs& out) const;
    void turn(bool on, provider::Outputs& out);
    void accepting(provider::Outputs& out) const;
    void see(WallTime wall);
    int64_t to_edge(WallTime wall, bool opens) const;
    bool warns() const;
    void new_frames(TimeFrames frames, WallTime wall, provider::Outputs& out);
    void owner_said(uint32_t bit, bool set, provider::Outputs& out);
    bool edge_since_word(WallTime wall) const;
    // Takes a value as the owner's word, or as none.
    template <class T>
    void assign(T ProviderRecord::*field, T value, uint32_t bit, bool set, provider::Outputs& out);

    Tracer tracer_;
    NodeName node_;
    Hardware machine_;
    ProviderRecord file_, record_;
    TimeFrames frames_;
    PriceCurve curve_;
    OwnerShare share_;
    bool here_ = false;   // the owner
    int32_t second_ = 0;  // of the week, as last seen
    int64_t now_unix_s_ = 0;
    std::string cannot_;
    bool leaving_ = false;
    std::string resting_;
    int64_t opens_unix_s_ = 0, closes_unix_s_ = 0;
    LoadReading load_, told_;
    Nanos told_at_ = Nanos::never();
};

}  // namespace souk
