// SPDX-License-Identifier: GPL-2.0-or-later
// NetworkPacking: GangPacking for a gang that may want all its required components near each other
// (GangLayout::near). Then each network is a packing of its own, in which rooms come in the same
// order, and the first that holds all is taken. More room anywhere makes no network later, so
// neither the first of them: what prices and repairs rest on holds (gang_packing.hpp). A machine
// that is of no network, or too far from the others of its own, is a network by itself. A gang that
// wants nothing of the kind is one GangPacking. Pure; owned by who asks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "market/core/gang_packing.hpp"

namespace souk::market {

// The network of a machine for a gang that wants to lie so; 0: it does not ask.
uint64_t network_of(const ProviderSpec& machine, ProviderKey key, const GangLayout& layout);

class NetworkPacking {
  public:
    using Need = GangPacking::Need;
    explicit NetworkPacking(std::vector<Need> needs, const GangLayout& layout = {})
        : whole_(std::move(needs), layout) {}

    // No room has come. `only`: components that have a place lie in this network, and no other is
    // of use; 0: any.
    void begin(uint64_t only = 0);
    // As GangPacking::add; `network`: network_of the machine.
    bool add(int64_t cpus, int64_t memory_mb, uint64_t machine, uint32_t siblings,
             uint64_t network) {
        return near() ? add_near(cpus, memory_mb, machine, siblings, network)
                      : whole_.add(cpus, memory_mb, machine, siblings);
    }
    bool packed() const { return near() ? chosen_.has_value() : whole_.packed(); }
    // The machine of each component, counted from 0 in the order of add().
    std::vector<uint32_t> places() const;

    const GangLayout& layout() const { return whole_.layout(); }
    Need least() const { return whole_.least(); }
    bool alike() const { return whole_.alike(); }

  private:
    struct Network {
        GangPacking packing;
        std::vector<uint32_t> rooms;  // of all that came
    };
    bool add_near(int64_t cpus, int64_t memory_mb, uint64_t machine, uint32_t siblings,
                  uint64_t network);
    bool near() const { return whole_.layout().near; }

    GangPacking whole_;  // `near`: no room ever comes, and each network begins as a copy
    std::map<uint64_t, Network> networks_;
    std::optional<uint64_t> chosen_;
    uint64_t only_ = 0;
    uint32_t rooms_ = 0;
};

}  // namespace souk::market
