// SPDX-License-Identifier: GPL-2.0-or-later
// HomeCuts: gangs that are frozen at one cut, while that is under way (docs/gangs.md). Part of
// Home, which gives the words (home_gang_cuts.cpp).
//
//   asked    each component that runs is one of the cut; its node has CRIU ready beside it
//   dumped   all are ready: all are told to dump at once; whoever is dumped stands, with its
//            network shut
//   decided  all stand: one durable write (CutStep::decided in the record of each), then all are
//            frozen; before it, whatever fails lets all go on where they were
//
// Nobody goes on before all are dumped, so nothing that one does after its dump reaches another
// before its own. What is here follows from what guests say again, but for which components it is:
// a restart of the home gives a cut up that is not decided. Pure.
#pragma once

#include <algorithm>
#include <map>
#include <optional>

#include "agentd/core/home_io.hpp"

namespace souk {

class HomeCuts {
  public:
    struct Member {
        Epoch number;        // of this cut, for this component
        bool ready = false;  // CRIU stands ready, or cannot: then the dump says why
        bool dumped = false;
        bool in_place = false;  // so, but it stands where it is: it cannot be dumped
        Trouble cannot_move;    // that is why
        Nanos stood_at = Nanos::never();
    };
    struct Cut {
        std::map<uint64_t, Member> members;
        bool told = false;  // to dump
        Nanos due;          // by then this step has ended
    };
    // How it was, for the story: of how many, and how long from the first that stood to the last,
    // as their home heard of it; below 0: not known.
    struct Made {
        uint32_t components = 0;
        Nanos skew{-1};
    };

    Cut* of_gang(uint64_t gang) {
        const auto it = cuts_.find(gang);
        return it == cuts_.end() ? nullptr : &it->second;
    }
    Cut& begin(uint64_t gang, Nanos due) {
        return cuts_.insert_or_assign(gang, Cut{{}, false, due}).first->second;
    }
    // Of a job that is one of a cut that is not decided.
    Member* member(const HomeJob& job);
    // It is none of it any more. (It has ended, or was frozen by itself.)
    void leave(const HomeJob& job);
    // The cut is over: decided, or given up.
    Cut take(uint64_t gang);
    // Of the members of a cut, or of a set (home_sets.hpp), by number.
    template <class Members>
    static Made made_of(const Members& members);
    // Decided: until each is frozen.
    void decided(uint64_t seq, const Made& made) { made_[seq] = made; }
    Made take_made(uint64_t seq) {
        auto entry = made_.extract(seq);
        return entry ? entry.mapped() : Made{};
    }

    // A component that stands where it is, and is to go on with the others that thaw: by then.
    void goes_on_later(uint64_t seq, Nanos due) { go_on_[seq] = due; }
    bool goes_on(uint64_t seq) const { return go_on_.contains(seq); }
    bool goes_on_no_more(uint64_t seq) { return go_on_.erase(seq) > 0; }

    Nanos due(const HomeJob& job) const;
    void forget(uint64_t seq) {
        made_.erase(seq);
        go_on_.erase(seq);
    }

  private:
    std::map<uint64_t, Cut> cuts_;  // by gang
    std::map<uint64_t, Made> made_;
    std::map<uint64_t, Nanos> go_on_;
};

template <class Members>
HomeCuts::Made HomeCuts::made_of(const Members& members) {
    Made made{static_cast<uint32_t>(members.size())};
    Nanos first = Nanos::never(), last{-1};
    for (const auto& [seq, m] : members) {
        if (m.stood_at == Nanos::never()) return made;
        first = std::min(first, m.stood_at);
        last = std::max(last, m.stood_at);
    }
    if (!members.empty()) made.skew = last - first;
    return made;
}

}  // namespace souk
