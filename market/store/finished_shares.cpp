// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/store/finished_shares.hpp"

#include "kernel/base/check.hpp"

namespace souk {

FinishedShares::Owner FinishedShares::owner_of(const JobReport& report) {
    const std::string_view site = of_site(report.id.home).site;
    return {site.empty() ? report.id.home : std::string(site) + ":", report.uid};
}

void FinishedShares::add(const Owner& owner) { change(owner, 1); }
void FinishedShares::drop(const Owner& owner) { change(owner, -1); }

void FinishedShares::change(const Owner& owner, int64_t by) {
    Home& home = homes_[owner.home];
    uint64_t& had = home.users[owner.uid];
    MUST(by > 0 || had > 0);
    home.by_count.erase({had, owner.uid});
    by_count_.erase({home.count, owner.home});
    const auto step = static_cast<uint64_t>(by);
    had += step;
    home.count += step;
    count_ += step;
    if (had > 0)
        home.by_count.insert({had, owner.uid});
    else
        home.users.erase(owner.uid);
    if (home.count > 0)
        by_count_.insert({home.count, owner.home});
    else
        homes_.erase(owner.home);
}

FinishedShares::Owner FinishedShares::largest() const {
    MUST(count_ > 0);
    const std::string& home = by_count_.rbegin()->second;
    return {home, homes_.at(home).by_count.rbegin()->second};
}

}  // namespace souk
