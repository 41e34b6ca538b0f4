// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/outside_solver.hpp"

#include <algorithm>
#include <utility>

namespace souk::market {

OutsideSolver::Problem OutsideSolver::problem(std::vector<Problem::Place> places,
                                              const std::vector<KnownJob>& jobs) {
    Problem p;
    for (const auto& [key, spec] : jobs) {
        if (spec.pin == Pin::frozen) continue;
        if (spec.pin == Pin::free) {
            p.jobs.push_back({key, spec});
            continue;
        }
        const auto at =
            std::lower_bound(places.begin(), places.end(), spec.place,
                             [](const Problem::Place& a, ProviderKey b) { return a.key < b; });
        if (at == places.end() || at->key != spec.place) continue;
        at->spec.cpus -= spec.cpus;
        at->spec.memory_mb -= spec.memory_mb;
    }
    std::erase_if(places, [](const Problem::Place& place) {
        return place.spec.cpus <= 0 || place.spec.memory_mb < 0;
    });
    p.providers = std::move(places);
    return p;
}

bool OutsideSolver::wants_question() {
    if (!asking_) return asking_ = true;
    ask_again_ = true;
    return false;
}

void OutsideSolver::asked(const Problem& problem) {
    asked_.clear();
    for (const Problem::Bid& bid : problem.jobs) asked_.insert(bid.key);
}

bool OutsideSolver::answered() {
    asking_ = false;
    return std::exchange(ask_again_, false);
}

std::vector<Solver::Assignment> OutsideSolver::whole(const std::vector<Solver::Assignment>& answer,
                                                     const std::vector<KnownJob>& jobs) const {
    std::set<JobKey> open;  // still the answer's to place
    std::vector<Solver::Assignment> all;
    for (const auto& [key, spec] : jobs) {
        if (spec.pin == Pin::free && asked_.contains(key))
            open.insert(key);
        else if (spec.pin != Pin::frozen && spec.state == JobState::running)
            all.push_back({key, spec.place});
    }
    for (const Solver::Assignment& a : answer)
        if (open.contains(a.job) || !asked_.contains(a.job)) all.push_back(a);
    return all;
}

bool OutsideSolver::forgives(bool stale) {
    constexpr int stale_max = 3;
    return stale && ++stale_answers_ <= stale_max;
}

}  // namespace souk::market
