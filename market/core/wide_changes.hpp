// SPDX-License-Identifier: GPL-2.0-or-later
// WideChanges: what nodes have said of themselves that concerns jobs of the whole market: other
// attributes, named resources or processors. The jobs that it may concern are looked for once a
// second at most and for all nodes together, so that a node that says something else each time
// costs the market no walk over all jobs each time. Pure; owned by Market.
#pragma once

#include <algorithm>
#include <set>
#include <utility>

#include "market/core/book.hpp"
#include "market/core/places.hpp"
#include "market/core/work_list.hpp"

namespace souk::market {

class WideChanges {
  public:
    static constexpr Nanos pause = Nanos::from_s(1);

    // A new kind of machine is compared with all others, so one node brings one in so long.
    static constexpr Nanos machine_pause = Nanos::from_s(10);

    WideChanges(Book& book, Places& places, WorkList& work)
        : book_(book), places_(places), work_(work) {}

    void attributes() { attributes_ = true; }
    void resources() { resources_ = true; }
    // The node has reported: its machine may be another one than before.
    void machine(Node& node, Nanos now);

    // Touches the jobs that what was noted may concern, unless it has looked within the pause.
    void look(Nanos now);
    Nanos next() const {
        const Nanos walk = is_noted() ? next_ : Nanos::never();
        return later_.empty() ? walk : std::min(walk, later_.begin()->first);
    }

  private:
    bool is_noted() const { return attributes_ || resources_ || machines_; }
    bool concerns(const Job& job) const;

    Book& book_;
    Places& places_;
    WorkList& work_;
    bool attributes_ = false, resources_ = false, machines_ = false;
    Nanos next_{0};
    std::set<std::pair<Nanos, NodeName>> later_;  // their machines are looked at then
};

}  // namespace souk::market
