// SPDX-License-Identifier: GPL-2.0-or-later
// HomeSets: checkpoints of whole gangs, while they are made (docs/gangs.md). Part of Home, which
// gives the words (home_gang_saves.cpp).
//
//   prepare  each component has a place for its image, and its node has CRIU ready beside it
//   dump     all are told to dump at once; whoever is dumped stands, with its network shut
//   send     all have stood together: each goes on, and its image comes to its home
//   whole    all images are here: one durable write makes the set the gang's checkpoint
//
// The checkpoints of a gang's components are always of one set: all are written at once, and
// dropped when one is damaged, or when a component has ended since. A restart of the home gives up
// what is being made. Pure.
#pragma once

#include <map>

#include "agentd/core/home_io.hpp"

namespace souk {

class HomeSets {
  public:
    struct Member {
        Epoch number;        // of its image (HomeJob::saving)
        bool place = false,  // for its image
            ready = false,   // to be dumped
            stands = false, whole = false;
        Nanos stood_at = Nanos::never();
        GuestEvent image;  // whole: what was said of it
    };
    enum class Step : uint8_t { prepare, dump, send };
    struct Set {
        std::map<uint64_t, Member> members;
        Step step = Step::prepare;
        Nanos due;  // by then this step has ended

        bool all(bool Member::*done) const;
    };

    Set* of_gang(uint64_t gang) {
        const auto it = sets_.find(gang);
        return it == sets_.end() ? nullptr : &it->second;
    }
    void begin(uint64_t gang, Set set) { sets_.insert_or_assign(gang, std::move(set)); }
    // Of a job that runs, and of which an image is made with others.
    Member* member(const HomeJob& job);
    // It is whole, or given up.
    Set take(uint64_t gang);
    Nanos due(const HomeJob& job) const;

  private:
    std::map<uint64_t, Set> sets_;  // by gang
};

}  // namespace souk
