// SPDX-License-Identifier: GPL-2.0-or-later
// Provider: the offer of this node to the market: reservation price, speed, CPUs, memory, and when.
// Pure: the owner's words, the load reader's figures and the wall clock come in; a record to keep,
// a report for the market and a word for the Guest go out, in that order.
//
// At the edge of a time frame the node joins or leaves the market by itself. A word of the owner
// (`market`) holds until the next edge, also over a restart of the daemon. With "always" there is
// no edge, and the word holds.
//
// Guests get all that is offered, or a part of it while the owner is here or at some hours
// (owner_share.hpp): then the market is told of a smaller node. A part of a CPU is told as a CPU
// that is so much slower.
//
// The price is the owner's figure, or at some hours of the week that of his price curve, or one
// that is learned from the market's prices (`set_auto`) and is never below his floor or his curve.
//
// A value that the owner said (set, market) holds over the configuration until `unset`; every other
// value is the configuration's at each start.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agentd/core/owner_share.hpp"
#include "agentd/core/price_curve.hpp"
#include "agentd/core/provider_io.hpp"
#include "agentd/core/provider_settings.hpp"
#include "agentd/core/reported_load.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/base/time_frames.hpp"
#include "kernel/base/trace.hpp"
#include "market/core/messages.hpp"

namespace souk {

class JsonWriter;

class Provider {
  public:
    // `file`: the configuration; `kept`: the record from disk, if there is one (provider::joined).
    // Errors: a value that no setter would take. CPUs and memory that the machine does not have any
    // more are cut down instead.
    static Result<Provider> create(NodeName node, Hardware machine, ProviderRecord file,
                                   std::optional<ProviderRecord> kept = std::nullopt);

    // Takes the time, so that the frames hold; called once, before anything else.
    void started(WallTime wall, provider::Outputs& out);
    // To be called at every time that it asked for. Returns next_call().
    int64_t tick(WallTime wall, provider::Outputs& out);
    // Seconds until it wants to be called, at most an hour, so that it sees a clock that was set or
    // went over to summer time; 0: no need (always). To be asked after tick and after each word of
    // the owner.
    int64_t next_call(WallTime wall) const;
    // There is a fresh connection to the market: it gets the whole report.
    void market_up(provider::Outputs& out);

    // The owner's words. An error is one line and changes nothing.
    void market(bool on, WallTime wall, provider::Outputs& out);
    Status set_price(Money reserve, provider::Outputs& out);
    Status set_speed(int64_t speed, provider::Outputs& out);
    Status set_cpus(int64_t cpus, provider::Outputs& out);
    Status set_memory(int64_t memory_mb, provider::Outputs& out);
    Status set_frames(std::string_view text, WallTime wall, provider::Outputs& out);
    // Adds a frame; removes one by its number (from 1) or its text.
    Status add_frame(std::string_view text, WallTime wall, provider::Outputs& out);
    Status remove_frame(std::string_view which, WallTime wall, provider::Outputs& out);
    // `wall` is by the new zone's clocks; the shell has made sure that there is such a zone.
    Status set_zone(std::string_view zone, WallTime wall, provider::Outputs& out);
    Status set_curve(std::string_view text, WallTime wall, provider::Outputs& out);
    Status set_warning(int64_t seconds, WallTime wall, provider::Outputs& out);
    // Bounds the share that guests get, and when.
    Status set_share(std::string_view text, WallTime wall, provider::Outputs& out);
    // From now on the learned price holds, but never less than this.
    Status set_auto(Money floor, provider::Outputs& out);
    void learned(Money price, provider::Outputs& out);
    // Sets the users and programs whose jobs do not run here (owner_bans.hpp).
    Status ban(std::string_view whom, provider::Outputs& out);
    Status allow(std::string_view whom, provider::Outputs& out);
    // Goes back to the configuration's price, speed, cpus, memory, frames, zone, curve, warning,
    // share or market.
    Status unset(std::string_view name, WallTime wall, provider::Outputs& out);

    // The values of the owner that differ from the configuration's.
    using Override = provider::Override;
    std::vector<Override> overrides() const;

    // Sets the reason why this node cannot take jobs whatever its owner wants; empty: it can.
    void set_cannot(std::string why, provider::Outputs& out);
    // The same, and its guests are to go elsewhere, as when the owner takes it off the market. The
    // owner's own word on that is not touched.
    void set_leaving(std::string why, provider::Outputs& out);
    // The same, but guests stay, and a job that comes all the same is taken.
    void set_resting(std::string why, provider::Outputs& out);
    // Says whether the owner uses the machine himself.
    void set_here(bool here, provider::Outputs& out);
    // Takes a reading of the load each second, and reports it when it is due (ReportedLoad).
    void set_load(const LoadReading& load, Nanos now, provider::Outputs& out);

    // Sets the listener that hears of each step (kernel/base/trace.hpp); null: none. It outlives
    // the machine.
    void tell_to(TraceListener* listener) { tracer_.tell_to(listener); }
    const ProviderRecord& record() const { return record_; }
    const TimeFrames& frames() const { return frames_; }
    const PriceCurve& curve() const { return curve_; }
    const OwnerShare& share() const { return share_; }
    // The part of the offer that all guests together may have now, by the wall clock that it last
    // saw.
    MachineSize lent() const;
    // The rules that make it less than the offer; empty: none holds.
    std::string lent_by() const;
    // The price now, by the wall clock that it last saw; and at a second of the week.
    Money asked() const { return asked_at(second_); }
    Money asked_at(int32_t second_of_week) const;
    // Unix time at which its frames put it on the market again, or take it off. 0: not known.
    int64_t opens_unix_s() const { return opens_unix_s_; }
    int64_t closes_unix_s() const { return closes_unix_s_; }
    // Explains to the owner the price and the state on the market: keys of an open JSON object.
    void explain(JsonWriter& j) const;
    const Hardware& machine() const { return machine_; }
    ProviderReport report() const;
    const LoadReading& load() const { return load_.now(); }

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
    std::vector<OpenHours> hours() const;
    bool warns() const;
    void new_frames(TimeFrames frames, WallTime wall, provider::Outputs& out);
    void owner_said(uint32_t bit, bool set, provider::Outputs& out);
    bool edge_since_word(WallTime wall) const;
    // Takes a value as the owner's word, or as the configuration's.
    template <class T>
    void assign(T ProviderRecord::*field, T value, uint32_t bit, bool set, provider::Outputs& out);

    Tracer tracer_;
    NodeName node_;
    Hardware machine_;
    ProviderRecord file_, record_;
    TimeFrames frames_;
    PriceCurve curve_;
    OwnerShare share_;
    bool here_ = false;   // the owner uses the machine
    int32_t second_ = 0;  // the second of the week, as last seen
    int64_t now_unix_s_ = 0;
    std::string cannot_;
    bool leaving_ = false;
    std::string resting_;
    int64_t opens_unix_s_ = 0, closes_unix_s_ = 0;
    ReportedLoad load_;
};

}  // namespace souk
