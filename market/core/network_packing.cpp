// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/network_packing.hpp"

#include "kernel/base/check.hpp"

namespace souk::market {

uint64_t network_of(const ProviderSpec& machine, ProviderKey key, const GangLayout& layout) {
    constexpr uint64_t alone = ProviderSpec::network_max + 1;  // a bit that no network has
    if (!layout.near) return 0;
    const bool soon =
        layout.trip_us_most == 0 || (machine.trip_us > 0 && machine.trip_us <= layout.trip_us_most);
    const bool of_it = machine.network != 0 && soon && machine.mbit >= layout.mbit_least;
    return of_it ? machine.network : alone | key.n;
}

void NetworkPacking::begin(uint64_t only) {
    whole_.begin();
    networks_.clear();
    chosen_.reset();
    only_ = only;
    rooms_ = 0;
}

bool NetworkPacking::add_near(int64_t cpus, int64_t memory_mb, uint64_t machine, uint32_t siblings,
                              uint64_t network) {
    const uint32_t room = rooms_++;
    if (only_ != 0 && network != only_) return packed();
    if (chosen_ && network != *chosen_) return true;
    Network& one = networks_.try_emplace(network, Network{whole_, {}}).first->second;
    one.rooms.push_back(room);
    if (one.packing.add(cpus, memory_mb, machine, siblings)) chosen_ = network;
    return packed();
}

std::vector<uint32_t> NetworkPacking::places() const {
    MUST(packed());
    if (!near()) return whole_.places();
    const Network& one = networks_.at(*chosen_);
    std::vector<uint32_t> out = one.packing.places();
    for (uint32_t& place : out) place = one.rooms[place];
    return out;
}

}  // namespace souk::market
