// SPDX-License-Identifier: GPL-2.0-or-later
// GuestImages: images on their way from this node: with a move, a thaw, or to their homes for the
// owner of the node; and the homes that can take them. Part of Guest (guest.hpp).
#pragma once

#include <set>
#include <string>

#include "agentd/core/guest_dumps.hpp"

namespace souk {

class GuestImages {
  public:
    GuestImages(GuestDumps& dumps, const GuestOwner& owner, const GuestReports& reports)
        : dumps_(dumps), owner_(owner), reports_(reports) {}

    // There is a connection to that home, or there is none any more.
    void home_up(const NodeName& home) { homes_up_.insert(home); }
    void home_down(const NodeName& home) { homes_up_.erase(home); }

    // Commands of the home: ship; checkpoint of a frozen job, whose image its home takes from here.
    void ship(guest::Entry& e, const GuestCommand& c, guest::Outputs& out);
    void send_home(guest::Entry& e, const GuestCommand& c, guest::Outputs& out);

    void on_shipped(guest::Entry& e, guest::Outputs& out);
    void on_ship_failed(guest::Entry& e, guest::ShipFailed x, guest::Outputs& out);

    // An image that is to go to its home can go there as far as is known.
    bool can_go_home(const guest::Entry& e) const;
    // The owner wants the job gone, or its image from `self`, and as far as is known it can go.
    bool is_to_leave(const guest::Entry& e, const NodeName& self) const;
    // The reason why an image that is to leave waits; empty for any other job.
    std::string wait_text(const guest::Entry& e) const;

  private:
    bool ship_ended(guest::Entry& e, guest::Outputs& out) const;

    GuestDumps& dumps_;
    const GuestOwner& owner_;
    const GuestReports& reports_;
    std::set<NodeName> homes_up_;
};

}  // namespace souk
