// SPDX-License-Identifier: GPL-2.0-or-later
// Guest, fourth part: the ends of what is made of a job that runs: dumps, transfers, checkpoints.
// See guest.hpp.
#include <utility>

#include "agentd/core/guest.hpp"

namespace souk {

using namespace guest;
using What = Do::What;

void Guest::on(Entry& e, CriuReady, Outputs& out) {
    if (auto* s = e.in<state::Starting>(); s && s->step == state::Starting::Step::criu) {
        e.become(state::Prepared{}, GuestState::prepared);
        return tell(e, out);
    }
    auto* r = e.in<Running>();
    const auto* coming = r ? r->in<motion::CriuComing>() : nullptr;
    if (!coming) return;
    r->motion = motion::CriuReady{coming->aim};
    drive(e, out);
}

void Guest::on(Entry& e, CriuFailed x, Outputs& out) {
    if (auto* r = e.in<Running>()) {
        const bool beside_it =
            r->in<motion::CriuComing>() || r->in<motion::CriuReady>() || r->in<motion::Precopy>();
        return beside_it ? want_failed(e, *r, std::move(x.why), x.of_job, out) : void();
    }
    const auto* s = e.in<state::Starting>();
    const auto* h = e.in<state::Held>();  // being restored or released, that ends by itself
    if (!(s && s->step == state::Starting::Step::criu) &&
        !(e.in<state::Prepared>() && !e.job.kept) &&
        !(h && h->release != state::Held::Release::under_way))
        return;
    e.why = std::move(x.why);
    end_capsule(e, Ending::to_failed, What::kill_capsule, out);
}

void Guest::on(Entry& e, SentPrecopy, Outputs& out) {
    if (!e.moves<motion::Precopy>()) return;
    e.in<Running>()->motion = motion::Making{Aim::move, false};
    out.push_back(Do{What::dump_for_move, e.job.key, {}, e.shipment.dest, 0, false});
}

void Guest::on(Entry& e, DumpFroze x, Outputs& out) {
    auto* making = e.moves<motion::Making>();
    if (!making) return;
    making->all_stand |= x.all_stand;
    auto& r = *e.in<Running>();
    r.forecast = x.forecast;
    e.job.state = GuestState::dumping;
    if (x.all_stand && r.cut == Cut::none) return;  // nobody asks
    tell(e, out);
    if (x.all_stand) std::get<GuestEvent>(std::get<ToHome>(out.back()).message).all_stand = true;
}

// With others. For a freeze its image is the job if it dies as it stands, and that is on the disk
// before its home hears of it.
void Guest::stands_for_cut(Entry& e, Running& r, Outputs& out) const {
    want_now(r, Want::cut);
    e.why.clear();
    e.job.state = GuestState::shipped;
    if (r.cut == Cut::freeze) {
        r.shipped_kept = true;
        out.push_back(Persist{e.job});
    }
    tell(e, out);
}

// All that was wanted is in the image: it goes on.
void Guest::save_is_made(Entry& e, Running& r, Outputs& out) const {
    r.want = Want::run;
    r.cut = Cut::none;
    e.job.state = GuestState::dumping;
    e.checkpoint.save = Save::made;
    undo(e, r, out, What::go_on);
}

void Guest::on(Entry& e, DumpHeld x, Outputs& out) {
    auto* r = e.in<Running>();
    const auto* making = r ? r->in<motion::Making>() : nullptr;
    if (!making) return;
    using Held = motion::Held;
    const Aim aim = making->aim;
    r->motion = Held{Held::By::dump, x.live ? Held::Image::live : Held::Image::whole, x.fenced};
    e.leaving.troubles = {};
    e.job.state = GuestState::dumping;
    e.job.image_bytes = x.image_bytes;
    if (r->want == Want::kill) return drive(e, out);
    const bool as_wanted = (aim == Aim::disk && r->want == Want::freeze) ||
                           (aim == Aim::keep && r->want == Want::save);
    if (as_wanted && r->cut != Cut::none && !x.live) return stands_for_cut(e, *r, out);
    // the image is the job, and on disk before what ran is killed
    if (aim == Aim::disk && r->want == Want::freeze) {
        e.job.state = GuestState::frozen;
        e.job.lapsed = e.lease.stage != Lease::Stage::good;
        out.push_back(Persist{e.job});
        return end_capsule(e, Ending::to_frozen, What::finish_dump, out);
    }
    if (aim == Aim::keep && r->want == Want::save) return save_is_made(e, *r, out);
    if (aim == Aim::move && r->want == Want::ship) {
        ship_now(e, out);
        return x.fenced ? tell(e, out) : void();
    }
    if (r->want == Want::ship) return undo(e, *r, out);  // to the wrong place: again
    drive(e, out);
}

void Guest::on(Entry& e, DumpFailed x, Outputs& out) {
    auto* r = e.in<Running>();
    if (!r || !(r->in<motion::Precopy>() || r->in<motion::Making>() || r->in<motion::Held>()))
        return;
    const bool given_up = r->want == Want::ready || r->want == Want::keep;
    if (!given_up) return want_failed(e, *r, std::move(x.why), x.of_job, out);
    r->motion = motion::Steady{};  // and something else is wanted
    roll_back_shipped(e, *r, out);
    e.job.state = GuestState::running;
    drive(e, out);
}

void Guest::on(Entry& e, DumpUndone, Outputs& out) {
    auto* r = e.in<Running>();
    if (!r || !r->in<motion::Undoing>()) return;
    r->motion = motion::Steady{};
    e.job.state = GuestState::running;
    if (r->want != Want::run) {
        drop_checkpoint(e, out);
        return drive(e, out);
    }
    if (e.checkpoint.save == Save::made) {
        e.checkpoint.save = Save::sending;
        out.push_back(
            Do{What::send_checkpoint, e.job.key, e.checkpoint.epoch, e.checkpoint.dest, 0, false});
    }
    now_running(e, *r, out);
    if (!r->in<motion::Held>()) e.why.clear();  // why its move was refused
}

void Guest::on(Entry& e, CheckpointSent, Outputs& out) {
    if (e.checkpoint.save == Save::sending) drop_checkpoint(e, out);
}

void Guest::on(Entry& e, CheckpointFailed x, Outputs& out) {
    if (e.checkpoint.save != Save::sending) return;
    drop_checkpoint(e, out);
    if (!e.in<Running>() || e.job.state != GuestState::running) return;
    e.why = std::move(x.why);
    tell(e, out);
    e.why.clear();
}

// The end of one transfer; true if a newer one follows at once, or none was under way, and nothing
// is to be told.
bool Guest::ship_ended(Entry& e, Outputs& out) const {
    using Way = Shipment::Way;
    const Way way = std::exchange(e.shipment.way, Way::none);
    if (way == Way::none || e.in<state::Closing>()) return true;
    if (way == Way::again) ship_now(e, out);
    return way == Way::again;
}

void Guest::on(Entry& e, Shipped, Outputs& out) {
    if (ship_ended(e, out)) return;
    auto* r = e.in<Running>();
    e.shipment.arrived = e.in<state::Frozen>();
    if (!r) return;
    e.job.state = GuestState::shipped;
    if (!e.shipment.live) {
        r->shipped_kept = true;
        out.push_back(Persist{e.job, Durable::soon});
    }
    tell(e, out);
}

void Guest::on(Entry& e, ShipFailed x, Outputs& out) {
    if (ship_ended(e, out)) return;
    const auto* r = e.in<Running>();
    if (r && r->retained) return;  // the destination fails too, and that counts
    e.why = std::move(x.why);
    e.image_refused = x.image_refused && !r;
    tell(e, out);  // dumping or frozen, with a reason: the home node gives the move up
    e.image_refused = false;
    if (!r) e.leaving.not_sent = std::exchange(e.why, {});
}

}  // namespace souk
