// SPDX-License-Identifier: GPL-2.0-or-later
// Guest: images that leave: with a move or thaw, or to their homes for the owner of the node. See
// guest.hpp.
#include <utility>

#include "agentd/core/guest.hpp"

namespace souk {

using namespace guest;
using What = Do::What;

void Guest::on_ship(Entry& e, const GuestCommand& c, Outputs& out) const {
    using Way = Shipment::Way;
    auto* r = e.in<Running>();
    if (!r && !e.in<state::Frozen>()) return tell(e, out);
    // the home node gives that move up
    if (r && (r->want == Want::keep || r->want == Want::cut)) return tell(e, out);
    const bool same = e.shipment.epoch == c.new_epoch;
    if (r) r->retained = false;  // another destination, so another decision
    e.shipment.epoch = c.new_epoch;
    e.shipment.dest = {c.dest, c.dest_address};
    e.shipment.arrived = false;
    if (!r || r->in<motion::Held>()) {
        if (e.shipment.way != Way::none) {
            if (!same) e.shipment.way = Way::again;
        } else if (e.job.state != GuestState::shipped || !same) {
            e.why.clear();
            ship_now(e, out);
        }
        return;
    }
    e.why.clear();
    want_now(*r, Want::ship);
    drive(e, out);
}

// To its home, which takes it from here. A home that has all of it asks for no more than it has.
void Guest::send_image(Entry& e, const GuestCommand& c, Outputs& out) const {
    if (e.shipment.arrived && e.shipment.epoch == c.new_epoch) return tell(e, out);
    e.leaving.not_sent.clear();
    on_ship(e, c, out);
}

void Guest::on_restore_here(Entry& source, const GuestCommand& c, Outputs& out) {
    const GuestKey to{c.id, c.new_epoch};
    Entry* e = entry(to);
    if (!e) return tell_unknown(to, out);
    if (!source.in<state::Frozen>() || !e->in<state::Prepared>()) return;
    e->become(state::Restoring{}, GuestState::starting);
    out.push_back(Do{What::restore_local, to, c.epoch, {}, 0, false});
}

std::string Guest::image_text(const Entry& e) const {
    const NodeName& home = e.job.key.id.home;
    if (!image_must_leave(e)) return {};
    if (!homes_up_.contains(home)) return "waits: no connection from its home " + home;
    if (e.shipment.way != Shipment::Way::none) return "is sent to " + e.shipment.dest.node;
    if (e.leaving.not_sent.empty()) return "waits until its home " + home + " takes it";
    return "did not get to its home " + home + ": " + e.leaving.not_sent;
}

bool Guest::is_to_leave(const GuestKey& key, const NodeName& self) const {
    const auto it = jobs_.find(key);
    if (it == jobs_.end()) return false;
    const Entry& e = it->second;
    // A copy that is being ended is written nowhere.
    const auto* const closing = e.in<state::Closing>();
    if (closing && closing->ending != Ending::to_frozen) return false;
    if (in_memory(e)) return must_go(e) && (!in_place(e) || e.job.by_order);
    return image_must_leave(e) && key.id.home != self && homes_up_.contains(key.id.home) &&
           e.leaving.not_sent.empty();
}

std::string Guest::image_waits(const GuestKey& key, const NodeName& self) const {
    const auto it = jobs_.find(key);
    return it == jobs_.end() || key.id.home == self ? std::string() : image_text(it->second);
}

}  // namespace souk
