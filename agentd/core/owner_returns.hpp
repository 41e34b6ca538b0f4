// SPDX-License-Identifier: GPL-2.0-or-later
// OwnerReturns: what the owner of a node was promised for when he comes back, and how it was each
// time: from the first sign of his use until the CPUs, the memory and the whole machine were his
// again. Pure: what guests hold comes in with the time; a record to keep comes out when one has
// changed. The newest `kept_max` returns are kept.
//
// A promise is missed by a time that is longer, and by one that never came though he stayed longer
// than it; so is one that was kept and then broken while he is here. Who goes before has missed
// nothing.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "kernel/base/time.hpp"

namespace souk {

class JsonWriter;

// Zero: nothing is promised.
struct OwnerPromise {
    Nanos free_cpu;     // guests get what he leaves of the CPUs
    Nanos free_memory;  // no guest holds memory, or no more than the share that he leaves them
    // Nothing of a guest is here, nor its image. Not where he leaves them a share.
    Nanos empty;
    bool operator==(const OwnerPromise&) const = default;
};

// One return, as kept on disk. Times are since `began`; below 0: it did not come to that.
struct OwnerReturn {
    uint64_t number = 0;
    Nanos began;  // Unix time
    std::string cause, why;
    uint32_t guests = 0;  // that ran when he came
    int64_t memory_mb = 0;
    Nanos free_cpu{-1}, stopped{-1}, free_memory{-1}, empty{-1}, away{-1};
    // what was promised then, and why it was not kept; empty: it was, or nothing was
    Nanos cpu_promise, memory_promise, empty_promise;
    std::string cpu_missed, memory_missed, empty_missed;
    std::string share;  // what he left to guests: his memory is his when they hold no more
    bool operator==(const OwnerReturn&) const = default;
};

class OwnerReturns {
  public:
    static constexpr size_t kept_max = 1'000;

    // The resources that guests hold right now.
    struct Guests {
        uint32_t running = 0;    // that use CPUs: neither stand, nor are held by their dump
        uint32_t in_memory = 0;  // with those that stand
        uint32_t here = 0;       // with images on the disk
        int64_t memory_mb = 0;
        bool lowered = false;      // the kernel has been told
        std::string who = {};      // holds things up, for people
        std::string trouble = {};  // why they are not lowered
        // The rules by which they stay while he is here, and whether they hold no more memory than
        // that leaves them; empty: he leaves them nothing.
        std::string share = {};
        bool within_share = false;
    };
    // The returns that are to be written down, and those that are to be forgotten.
    struct News {
        std::optional<OwnerReturn> kept;
        std::vector<uint64_t> forgotten;
    };

    void configured(const OwnerPromise& promise) { promise_ = promise; }
    // Takes the returns of the daemon before, in order. The last may be open, and ends as it is.
    void load(OwnerReturn before);

    News began(Nanos now, Nanos unix_time, std::string cause, std::string why, const Guests& g);
    // Something may have changed.
    News see(Nanos now, const Guests& g);
    News ended(Nanos now, const Guests& g);
    // When a promise ends that is not kept yet; never: none does.
    Nanos due() const;

    bool open() const { return began_ != Nanos::never(); }
    const std::deque<OwnerReturn>& all() const { return all_; }

    enum class Which : uint8_t { free_cpu, free_memory, empty };
    struct Figures {
        uint32_t count = 0, missed = 0;
        Nanos p50{-1}, p99{-1}, p999{-1};
    };
    Figures figures(Which which) const;
    // {promises: {...}, returns: [...]}, the newest first; at most so many of them.
    void write(JsonWriter& j, size_t limit) const;

  private:
    News keep(const OwnerReturn& before);
    void judge(Nanos now, const Guests& g, bool ends);

    OwnerPromise promise_;
    std::deque<OwnerReturn> all_;
    Nanos began_ = Nanos::never();  // by the daemon's clock, of the last
};
const char* to_string(OwnerReturns::Which which);  // free_cpu, free_memory, empty

}  // namespace souk
