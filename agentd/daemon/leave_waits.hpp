// SPDX-License-Identifier: GPL-2.0-or-later
// LeaveWaits: who waits until no guest runs on this node any more (`pvdctl market off`). Each is
// called once: when all have left, or after a bound of its own. Owned by the Agent.
#pragma once

#include <functional>
#include <list>

#include "kernel/sys/loop/loop.hpp"

namespace souk {

class LeaveWaits {
  public:
    explicit LeaveWaits(Loop& loop) : loop_(loop) {}

    void add(Nanos limit, std::function<void()> done) {
        const auto it = waits_.insert(waits_.end(), {std::move(done), {}});
        it->limit = loop_.after(limit, [this, it] { end(it); });
    }
    bool empty() const { return waits_.empty(); }
    void all_left() {
        while (!waits_.empty()) end(waits_.begin());
    }

  private:
    struct Wait {
        std::function<void()> done;
        Timer limit;
    };
    void end(std::list<Wait>::iterator it) {
        const auto done = std::move(it->done);
        waits_.erase(it);
        done();
    }

    Loop& loop_;
    std::list<Wait> waits_;
};

}  // namespace souk
