// SPDX-License-Identifier: GPL-2.0-or-later
// RoomMaker: moves of others that make room for a gang. A gang may fit into the room that all
// machines together have at its rank and still wait, because no machine has enough of it. Then
// running jobs that rank before it move to other machines of their class, where they run as fast
// and as cheaply as before, at most 8 of them, if that makes room for all required components.
//
//  - A job moves into room that is there before any of these moves, beside those that rank before
//    the gang. Who ranks after the gang makes place, as for any job.
//  - With a horizon, what the gang gains by running for that long must be worth all the moves.
//    With moves_max they use up its tokens. Nobody moves whom min_stay or a pin protects, who reads
//    files over the network, or whose own gang minds how it lies.
//  - No move gives room to somebody who ranks before the gang and has a use for it: else the gang
//    would lose it at once. A component of another gang counts as one who has a use for it.
//
// A decision does this when everybody has had his turn, for the waiting gangs that fit in sum, in
// the order of their ranks. It depends on the allocation alone, so repairing is still the same as
// deciding about everything. The search is exact as far as its steps go, which is every set of
// moves in small markets. In large ones: the machines with the most room, and single moves first.
#pragma once

#include "market/core/turns.hpp"

namespace souk::market {

class RoomMaker {
  public:
    struct JobMove {
        uint32_t job, from, to;  // machines
    };

    RoomMaker(Seating& seats, Turns& turns, MoveBudget& budget)
        : seats_(seats), turns_(turns), budget_(budget), all_(seats.occupancy()) {}
    void make_room();

  private:
    using Gang = Occupancy::Gang;

    bool fits_in_sum(const Gang& g, const GangTurns::Turn& turn) const;
    void carry_out(const Gang& g, const std::vector<JobMove>& moves);

    Seating& seats_;
    Turns& turns_;
    MoveBudget& budget_;
    const Occupancy& all_;
};

}  // namespace souk::market
