// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/machines.hpp"

#include <utility>

namespace souk::market {

int Machines::take(const souk::Machine& machine) {
    if (machine.architecture.empty()) return 0;  // of an agent that does not tell
    if (const auto it = kinds_.find(machine); it != kinds_.end()) {
        ++uses_[static_cast<size_t>(it->second)];
        return it->second;
    }
    if (kinds_.size() == kinds_max) return 0;
    const int number = new_kind();
    const auto kind = static_cast<size_t>(number);
    machines_[kind] = &kinds_.emplace(machine, number).first->first;
    uses_[kind] = 1;
    for (size_t other = 1; other < machines_.size(); ++other) {
        if (other == kind || !machines_[other]) continue;
        set(other, kind, can_take(*machines_[other], machine).has_value());
        set(kind, other, can_take(machine, *machines_[other]).has_value());
    }
    return number;
}

void Machines::leave(int number) {
    const auto kind = static_cast<size_t>(number);
    if (number == 0 || --uses_[kind] > 0) return;
    for (size_t other = 1; other < machines_.size(); ++other) {
        set(other, kind, true);
        set(kind, other, true);
    }
    kinds_.erase(kinds_.find(*std::exchange(machines_[kind], nullptr)));
    free_.push_back(number);
}

int Machines::new_kind() {
    if (!free_.empty()) {
        const int number = free_.back();
        free_.pop_back();
        return number;
    }
    const size_t kind = machines_.size();
    machines_.push_back(nullptr);
    uses_.push_back(0);
    refusals_.push_back(0);
    for (auto& row : takes_) row.push_back(true);
    takes_.emplace_back(kind + 1, true);
    return static_cast<int>(kind);
}

void Machines::set(size_t here, size_t there, bool takes) {
    if (takes_[here][there] == takes) return;
    takes_[here][there] = takes;
    if (takes)
        --refusals_[there];
    else
        ++refusals_[there];
}

}  // namespace souk::market
