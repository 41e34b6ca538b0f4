// SPDX-License-Identifier: GPL-2.0-or-later
// LeaveWaits: who waits until no guest, or none of one job, runs on this node any more (`pvdctl
// market off`, `pvdctl evict`). Each is called once: when they have left, or after a bound of its
// own. Owned by OwnerRules.
#pragma once

#include <algorithm>
#include <functional>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "kernel/sys/loop/loop.hpp"
#include "kernel/wire/messages.hpp"

namespace souk {

// Whose leaving such a request waits for: of one job, of all (""), or nothing of the kind.
inline std::optional<std::string> waits_for(const wire::CtlRequest& request) {
    if (request.verb == "provider-evict" && request.args.size() == 1) return request.args[0];
    const bool off = request.verb == "provider-market" &&
                     request.args == std::vector<std::string>{"off", "wait"};
    return off ? std::optional<std::string>("") : std::nullopt;
}

class LeaveWaits {
  public:
    explicit LeaveWaits(Loop& loop) : loop_(loop) {}

    void add(Nanos limit, std::function<bool()> left, std::function<void()> done) {
        const auto it = waits_.insert(waits_.end(), {std::move(left), std::move(done), {}});
        it->limit = loop_.after(limit, [this, it] { end(it); });
    }
    bool empty() const { return waits_.empty(); }
    void look() {
        for (;;) {
            const auto it = std::find_if(waits_.begin(), waits_.end(),
                                         [](const Wait& wait) { return wait.left(); });
            if (it == waits_.end()) return;
            end(it);  // it may look again, and add others
        }
    }

  private:
    struct Wait {
        std::function<bool()> left;
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
