// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/bound_reply.hpp"

#include <algorithm>
#include <tuple>
#include <vector>

#include "kernel/base/json.hpp"

namespace souk {

std::string bounds_reply(const market::Market& market) {
    constexpr size_t homes_shown = 16;
    struct Home {
        uint64_t refused;
        size_t jobs;
        NodeName node;
    };
    std::vector<Home> homes;
    size_t jobs = 0;
    for (const auto& [name, node] : market.nodes()) {
        Home home{market.refused_of_home(name), market.jobs_of_home(name), name};
        jobs += home.jobs;
        if (home.jobs > 0 || home.refused > 0) homes.push_back(std::move(home));
    }
    std::sort(homes.begin(), homes.end(), [](const Home& a, const Home& b) {
        return std::tie(b.refused, b.jobs, a.node) < std::tie(a.refused, a.jobs, b.node);
    });
    if (homes.size() > homes_shown) homes.resize(homes_shown);
    const market::Book::Limits& bounds = market.bounds();
    JsonWriter w;
    w.begin_object().field("jobs", jobs).field("jobs_max", bounds.jobs_max);
    w.field("jobs_home_max", bounds.jobs_home_max).field("jobs_user_max", bounds.jobs_user_max);
    w.field("jobs_reserve", bounds.reserve()).field("jobs_few", bounds.few());
    w.field("nodes", market.nodes().size()).field("nodes_max", bounds.nodes_max);
    w.key("homes").begin_array();
    for (const Home& home : homes)
        w.begin_object()
            .field("node", home.node)
            .field("jobs", home.jobs)
            .field("refused", home.refused)
            .end_object();
    w.end_array().end_object();
    return w.take();
}

}  // namespace souk
