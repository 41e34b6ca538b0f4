// SPDX-License-Identifier: GPL-2.0-or-later
// Refusals: jobs that the market did not take, as it has as many as it may (Book::admit), and when
// their homes are asked for them again. It keeps the numbers of a home's refused jobs as a range,
// so that a home takes no room here by what it is refused. Pauses grow while a home is refused on.
// Pure; part of Market, which asks.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "kernel/base/ids.hpp"
#include "kernel/base/time.hpp"

namespace souk::market {

class Refusals {
  public:
    // A job was refused; `waits`: its home is to be asked for it again.
    void refused(const JobId& id, bool waits, Nanos now);
    // A job of that home was taken: the next pause is short.
    void taken(const NodeName& home);
    // Its connection has ended: it reports all its jobs when it comes back.
    void gone(const NodeName& home);
    // When due() has something to say; never(): nobody waits.
    Nanos next() const { return due_.empty() ? Nanos::never() : due_.begin()->first; }
    // The next of them, some of each home whose time has come. `has_room(home)`: it may be given
    // more; `knows(id)`: the market has that job.
    template <class HasRoom, class Knows>
    std::vector<JobId> due(Nanos now, const HasRoom& has_room, const Knows& knows) {
        std::vector<JobId> all;
        while (!due_.empty() && due_.begin()->first <= now) {
            const NodeName name = due_.begin()->second;
            due_.erase(due_.begin());
            Home& home = homes_.at(name);
            home.at = Nanos::never();
            const bool goes_on = has_room(name) && ask(name, home, knows, all);
            // A home whose jobs were refused once more is asked for the rest more slowly.
            wait(name, home, now, goes_on && !std::exchange(home.again, false));
        }
        return all;
    }
    // How often it was refused a job in this life of the market.
    uint64_t count(const NodeName& home) const;

  private:
    struct Range {
        uint64_t from = 1, to = 0;
        bool empty() const { return from > to; }
    };
    struct Home {
        Range asked, next;  // of this pass over its jobs, and of the one after it
        Nanos at = Nanos::never(), pause = {};
        bool again = false;  // a job was refused that this pass has asked for
        uint64_t count = 0;
    };
    // True: more of this pass is left.
    template <class Knows>
    static bool ask(const NodeName& name, Home& home, const Knows& knows, std::vector<JobId>& all) {
        constexpr int looked_at_max = 1'024, asked_max = 256;
        if (home.asked.empty()) home.asked = std::exchange(home.next, {});
        int asked = 0;
        for (int i = 0; i < looked_at_max && asked < asked_max && !home.asked.empty(); ++i) {
            const JobId id{name, home.asked.from++};
            if (knows(id)) continue;
            all.push_back(id);
            ++asked;
        }
        return !home.asked.empty();
    }
    void wait(const NodeName& name, Home& home, Nanos now, bool goes_on);

    std::map<NodeName, Home> homes_;
    std::set<std::pair<Nanos, NodeName>> due_;
};

}  // namespace souk::market
