// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/guest_images.hpp"

#include <utility>

namespace souk {

using namespace guest;
using state::Running;

void GuestImages::ship(Entry& e, const GuestCommand& c, Outputs& out) {
    using Way = Shipment::Way;
    auto* r = e.in<Running>();
    if (!r && !e.in<state::Frozen>()) return reports_.tell(e, out);
    // The home gives that move up.
    if (r && (r->want == Want::keep || r->want == Want::cut)) return reports_.tell(e, out);
    const bool same = e.shipment.epoch == c.new_epoch;
    if (r) r->retained = false;  // another destination means another decision
    e.shipment.epoch = c.new_epoch;
    e.shipment.dest = {c.dest, c.dest_address};
    e.shipment.arrived = false;
    if (!r || r->in<motion::Held>()) {
        if (e.shipment.way != Way::none) {
            if (!same) e.shipment.way = Way::again;
        } else if (e.job.state != GuestState::shipped || !same) {
            e.why.clear();
            e.ship(out);
        }
        return;
    }
    e.why.clear();
    r->want_now(Want::ship);
    dumps_.drive(e, out);
}

// A home that has the whole image already needs no more than to hear so.
void GuestImages::send_home(Entry& e, const GuestCommand& c, Outputs& out) {
    if (e.shipment.arrived && e.shipment.epoch == c.new_epoch) return reports_.tell(e, out);
    e.leaving.not_sent.clear();
    ship(e, c, out);
}

// One transfer has ended. True: nothing is to be told, because none was under way, or a newer one
// follows at once.
bool GuestImages::ship_ended(Entry& e, Outputs& out) const {
    using Way = Shipment::Way;
    const Way way = std::exchange(e.shipment.way, Way::none);
    if (way == Way::none || e.in<state::Closing>()) return true;
    if (way == Way::again) e.ship(out);
    return way == Way::again;
}

void GuestImages::on_shipped(Entry& e, Outputs& out) {
    if (ship_ended(e, out)) return;
    auto* r = e.in<Running>();
    e.shipment.arrived = e.in<state::Frozen>();
    if (!r) return;
    e.job.state = GuestState::shipped;
    if (!e.shipment.live) {
        r->shipped_kept = true;
        out.push_back(Persist{e.job, Durable::soon});
    }
    reports_.tell(e, out);
}

void GuestImages::on_ship_failed(Entry& e, ShipFailed x, Outputs& out) {
    if (ship_ended(e, out)) return;
    const auto* r = e.in<Running>();
    if (r && r->retained) return;  // the destination fails too, and its failure counts
    e.why = std::move(x.why);
    e.image_refused = x.image_refused && !r;
    reports_.tell(e, out);  // dumping or frozen with a reason: the home gives the move up
    e.image_refused = false;
    if (!r) e.leaving.not_sent = std::exchange(e.why, {});
}

bool GuestImages::can_go_home(const Entry& e) const {
    return owner_.image_must_leave(e) && homes_up_.contains(e.job.key.id.home) &&
           e.leaving.not_sent.empty();
}

bool GuestImages::is_to_leave(const Entry& e, const NodeName& self) const {
    // A copy that is being ended is written nowhere.
    const auto* const closing = e.in<state::Closing>();
    if (closing && closing->ending != Ending::to_frozen) return false;
    if (e.in_memory()) return owner_.must_go(e) && (!e.in_place() || e.job.by_order);
    return e.job.key.id.home != self && can_go_home(e);
}

std::string GuestImages::wait_text(const Entry& e) const {
    const NodeName& home = e.job.key.id.home;
    if (!owner_.image_must_leave(e)) return {};
    if (!homes_up_.contains(home)) return "waits: no connection from its home " + home;
    if (e.shipment.way != Shipment::Way::none) return "is sent to " + e.shipment.dest.node;
    if (e.leaving.not_sent.empty()) return "waits until its home " + home + " takes it";
    return "did not get to its home " + home + ": " + e.leaving.not_sent;
}

}  // namespace souk
