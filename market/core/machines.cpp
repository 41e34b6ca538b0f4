// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/machines.hpp"

namespace souk::market {

int Machines::kind_of(const Machine& machine) {
    if (machine.architecture.empty()) return 0;  // of an agent that does not tell
    if (takes_.size() > kinds_max && !kinds_.contains(machine)) return 0;
    const auto [it, is_new] = kinds_.emplace(machine, static_cast<int>(takes_.size()));
    if (!is_new) return it->second;
    const size_t kind = takes_.size();
    machines_.push_back(&it->first);
    takes_.emplace_back(kind + 1, true);
    all_.push_back(true);
    takes_[0].push_back(true);
    for (size_t other = 1; other < kind; ++other) {
        takes_[other].push_back(can_take(*machines_[other], machine).has_value());
        takes_[kind][other] = can_take(machine, *machines_[other]).has_value();
        if (!takes_[other][kind]) all_[kind] = false;
        if (!takes_[kind][other]) all_[other] = false;
    }
    return it->second;
}

}  // namespace souk::market
