// SPDX-License-Identifier: GPL-2.0-or-later
// GuestView: what a Guest (guest.hpp) holds right now, for the owner of the node and for people who
// look into a running daemon. It changes nothing.
#pragma once

#include <vector>

#include "agentd/core/guest_images.hpp"
#include "agentd/core/guest_jobs.hpp"
#include "agentd/core/memory_wish.hpp"

namespace souk {

class JsonWriter;

class GuestView {
  public:
    GuestView(const GuestJobs& jobs, const GuestOwner& owner, const GuestImages& images)
        : jobs_(jobs), owner_(owner), images_(images) {}

    guest::Here here(const NodeName& self) const;
    std::vector<guest::Left> left() const;
    // The guests that stand in memory, for the owner or the market, and those that leave.
    std::vector<MemoryWish::Standing> standing() const;
    // A guest stands for the owner of the node, or has been asked to.
    bool any_paused() const;
    // CRIU takes a guest away, or its capsule is being ended.
    bool any_leaves() const;
    void describe(const guest::Entry& e, Nanos now, JsonWriter& j) const;

  private:
    const GuestJobs& jobs_;
    const GuestOwner& owner_;
    const GuestImages& images_;
};

}  // namespace souk
