// SPDX-License-Identifier: GPL-2.0-or-later
// GangTurns: what places a gang gets. The required components all have a place or none has one;
// nothing is held for a gang while it waits.
//
// A gang has its turn at its rank, as a single job has. Its speed is that of its slowest required
// component, and it gets the greatest speed s at which all of them can be packed into the machines
// of at least that speed, beside who ranks before it (gang_packing.hpp: the more room, the greater
// s, so a higher bid never makes it slower, and the critical price is defined as for a single job).
// It moves only for a greater speed: then, and when somebody displaced a component, the components
// that have a machine of at least that speed stay. A component that moves takes free room first,
// then the machine whose strongest displaced guest is the weakest; unlike ones are packed into free
// room, then into any. If the gang fits nowhere, all leave at that instant, and who ranks after it
// has their room.
//
// How a gang wants to lie (GangLayout, JobDemand::only) is a matter of what packs: no bound and no
// name makes more room worse, so all of the above holds. `few` chooses among the machines up to the
// class of the last one that it needs: neither its speed nor its price depends on it.
//
// An optional component is a job of its own, ranked right behind the required ones, which has a
// place only while they have theirs.
//
// A horizon holds for a gang as a whole: a greater speed must pay for moving all its components.
// min_stay, moves_max and the traffic of files are not looked at for components. A provider that is
// barred to one required component is barred to all.
//
// It holds no state between two turns: what there is of gangs is in the Seating that it works on.
#pragma once

#include <map>
#include <vector>

#include "market/core/network_packing.hpp"
#include "market/core/seating.hpp"

namespace souk::market {

class GangTurns {
  public:
    static constexpr uint32_t none = UINT32_MAX;
    using Gang = Occupancy::Gang;
    using Machine = Occupancy::Machine;
    using Room = Occupancy::Room;

    // How things stand for a gang when its turn comes.
    struct Turn {
        bool able = true;             // no required component is pinned where it does not run
        std::vector<uint32_t> free;   // the required components that are not pinned
        std::vector<uint32_t> stays;  // where each of these may stay, or none
        bool all_stay = true;         // each of them
        int32_t cap = speed_max;      // of the pinned ones
        int32_t slowest = speed_max;  // of those that may stay, and of the pinned ones
        std::vector<ProviderKey> barred;
        std::vector<uint32_t> machines;         // that the packing was offered, in its order
        std::map<uint32_t, uint32_t> siblings;  // by machine: required ones that are not `free`
        uint64_t network = 0;  // GangLayout::near: that of the siblings; 0: there are none

        std::vector<NetworkPacking::Need> needs(const Occupancy& all) const;
        bool bars(ProviderKey provider) const;
    };

    explicit GangTurns(Seating& seats)
        : seats_(seats),
          all_(seats.occupancy()),
          jobs_(all_.jobs()),
          machines_(all_.machines()),
          order_(seats.machine_order()) {}

    Turn turn_of(const Gang& g) const;
    // A gang's turn: everybody ranked above it has its place.
    void process(const Gang& g);
    // An optional component loses its place with its gang. True: it has none, as its gang has none.
    bool without_gang(uint32_t j);
    // Whether a gang that ranks between these two may have a use for room on this machine: one of
    // its components is on it, and may make way for a larger one.
    bool unlike_want(const Machine& m, const Rank& after, const Rank& before) const;
    // Whether the gang would get a place at this bid, the others as they are.
    bool would_run(const Gang& g, Money value);

  private:
    void count_siblings(const Gang& g, Turn& turn) const;
    bool stay_jointly(const Gang& g, Turn& turn) const;
    bool pack(Turn& turn, NetworkPacking& packing, Money value, const Rank& before, ClassKey below,
              bool free_only);
    ClassKey bound_of(const Turn& turn) const;
    void settle(const Gang& g, Turn& turn, NetworkPacking& packing, int32_t speed);
    std::vector<uint32_t> places_beside(const Gang& g, Turn& movers, Money value, ClassKey below);
    void seat_alike(uint32_t j, const Turn& turn, const Gang& g, ClassKey below);
    void release(const Gang& g, const Turn& turn);

    Seating& seats_;
    const Occupancy& all_;
    const Chunks<Occupancy::Job>& jobs_;
    const Chunks<Machine>& machines_;
    MachineOrder& order_;
};

}  // namespace souk::market
