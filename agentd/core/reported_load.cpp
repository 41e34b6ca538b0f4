// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/reported_load.hpp"

#include <cstdlib>

namespace souk {

bool ReportedLoad::matters(int64_t machine_mb) const {
    constexpr int32_t worth_permille = 50;
    return load_.source != told_.source ||
           std::abs(load_.load_permille - told_.load_permille) >= worth_permille ||
           std::abs(load_.wait_permille - told_.wait_permille) >= worth_permille ||
           std::abs(load_.memory_pressure_permille.value_or(0) -
                    told_.memory_pressure_permille.value_or(0)) >= worth_permille ||
           std::abs(load_.free_mb - told_.free_mb) * 1000 >= machine_mb * worth_permille;
}

bool ReportedLoad::differs() const {
    return load_.load_permille != told_.load_permille ||
           load_.wait_permille != told_.wait_permille ||
           load_.memory_pressure_permille != told_.memory_pressure_permille ||
           load_.free_mb != told_.free_mb;
}

bool ReportedLoad::set(const LoadReading& load, Nanos now, int64_t machine_mb) {
    constexpr Nanos often = Nanos::from_s(1), seldom = Nanos::from_s(30);
    load_ = load;
    const bool first = told_at_ == Nanos::never();
    const Nanos age = first ? seldom : now - told_at_;
    const bool matter = first || matters(machine_mb);
    const bool differ = first || differs();
    if (!(matter && age >= often) && !(differ && age >= seldom)) return false;
    told_ = load;
    told_at_ = now;
    return true;
}

}  // namespace souk
