// SPDX-License-Identifier: GPL-2.0-or-later
// UseMeter: how long each guest has run on this node, as the node itself sees it: beside what the
// guest's home tells the market (market/core/use_check.hpp). It is fed each state of a guest, and
// outlives the daemon by its records: the jobs run on while no daemon is there. Pure.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "agentd/core/guest_io.hpp"

namespace souk {

// The use of one (job, epoch), as it is kept on disk.
struct GuestUse {
    GuestKey key;
    Nanos run;                     // until `since`
    Nanos since = Nanos::never();  // it runs since then, by this machine's clock of that boot
    uint64_t boot = 0;
    bool ended = false;
    bool operator==(const GuestUse&) const = default;
};

class UseMeter {
  public:
    // An entry that has ended is told anew to a market that comes back, for so long.
    static constexpr Nanos remembered = Nanos::from_s(3'600);
    static constexpr size_t ended_max = 1024;

    explicit UseMeter(uint64_t boot) : boot_(boot) {}
    void load(GuestUse use, Nanos now);

    // Takes the state of a guest now. Returns the record to keep; nothing: it is as before.
    std::optional<GuestUse> saw(const GuestKey& key, GuestState state, Nanos now);
    // The guests that run, to be kept from time to time: after a reboot no more is known.
    std::vector<GuestUse> running(Nanos now) const;
    // Forgets what ended long ago; their keys.
    std::vector<GuestKey> forget(Nanos now);

    // The report for the market: of all guests, or of those that run or have ended since the last.
    // `cpu`: the CPU time that a guest has used, 0 if that is not known.
    UseReport report(bool all, Nanos now, const std::function<Nanos(const GuestKey&)>& cpu);
    bool has_news() const { return news_; }
    size_t size() const { return entries_.size(); }

  private:
    struct Entry {
        GuestUse use;
        Nanos ended_at, cpu;
        bool told = false;
    };
    Nanos run(const Entry& e, Nanos now) const;

    uint64_t boot_;
    std::map<GuestKey, Entry> entries_;
    bool news_ = false;  // something has ended that was not told
};

}  // namespace souk
