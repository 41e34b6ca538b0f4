// SPDX-License-Identifier: GPL-2.0-or-later
// Guest, second part: a job that runs, one step after the other towards what is wanted of it. See
// guest.hpp and guest_state.hpp.
#include <utility>

#include "agentd/core/guest.hpp"

namespace souk {

using namespace guest;
using What = Do::What;

namespace {
// As often as a node waits for connections that are not accepted (agentd/cell/cell_dump.cpp).
constexpr int cut_tries_max = 3;
}  // namespace

// A kill is final.
void Guest::want_now(Running& r, Want want) {
    if (r.want != Want::kill) r.want = want;
}

bool Guest::stops_in_place(const Running& r) {
    const auto* held = r.in<motion::Held>();
    return r.in<motion::Standing>() || (held && held->by == motion::Held::By::lease_midway);
}

bool Guest::as_its_image(const Running& r) {
    const auto* held = r.in<motion::Held>();
    return held && r.shipped_kept && held->image == motion::Held::Image::whole;
}

bool Guest::spare(const Running& r) {
    const auto* held = r.in<motion::Held>();
    return r.retained || (held && held->fenced);
}

// One step from where the job is towards what is wanted of it. Does nothing while an effect is
// under way whose end comes back here.
void Guest::drive(Entry& e, Outputs& out) const {
    auto* r = e.in<Running>();
    if (!r || r->in<motion::Undoing>() || stops_in_place(*r)) return;
    if (r->in<motion::Making>() || r->in<motion::CriuComing>()) return;
    const bool held = r->in<motion::Held>();
    if (r->want == Want::kill)
        return end_capsule(e, Ending::to_killed, held ? What::finish_dump : What::kill_capsule,
                           out);
    if (e.lease.over() && r->in<motion::Steady>()) {
        stand(e, *r);
        return tell(e, out);
    }
    // called off if something else is wanted by now
    if (const auto* precopy = r->in<motion::Precopy>()) {
        if (r->want != Want::ship || precopy->to != e.shipment.epoch) undo(e, *r, out);
        return;
    }
    if (!held) return drive_on(e, *r, out);
    if (r->want != Want::ship && r->want != Want::keep && r->want != Want::cut) undo(e, *r, out);
}

Aim Guest::aim_of(const Running& r) {
    const bool ready = r.want == Want::ready;
    if (r.want == Want::freeze || (ready && r.cut == Cut::freeze)) return Aim::disk;
    if (r.want == Want::save || (ready && r.cut == Cut::checkpoint)) return Aim::keep;
    return Aim::move;
}

// It runs, and at most a CRIU stands ready beside it.
void Guest::drive_on(Entry& e, Running& r, Outputs& out) const {
    const Aim aim = aim_of(r);
    const bool wants_criu = r.want != Want::run && r.want != Want::keep && r.want != Want::cut;
    const auto* ready = r.in<motion::CriuReady>();
    const bool only_stop = r.want == Want::freeze && r.stand_first && can_stop_;
    if (ready && (!wants_criu || ready->aim != aim || only_stop)) return undo(e, r, out);
    if (!wants_criu) return;
    drop_checkpoint(e, out);
    if (!ready) {
        const bool lost = !e.leaving.not_restored.empty();
        if (only_stop || (aim == Aim::disk && r.or_stand && can_stop_ && (immovable(e) || lost)))
            return begin_stand(e, r, out);
        if (aim == Aim::disk && lost) return want_failed(e, r, e.leaving.not_restored, false, out);
        r.motion = motion::CriuComing{aim};
        return ask_criu(e, aim, out);
    }
    if (r.want == Want::ready) {
        e.job.state = GuestState::dump_ready;
        return tell(e, out);
    }
    if (aim != Aim::move) {
        r.motion = motion::Making{aim, false};
        if (aim == Aim::disk) {
            effect(e, What::dump_to_disk, out);
            std::get<Do>(out.back()).no_hurry = no_hurry(e);
            return;
        }
        out.push_back(Do{What::dump_to_keep, e.job.key, e.checkpoint.epoch, {}, 0, false});
        return;
    }
    r.motion = motion::Precopy{e.shipment.epoch};
    out.push_back(Do{What::send_precopy, e.job.key, e.shipment.epoch, e.shipment.dest, 0, false});
}

void Guest::ask_criu(const Entry& e, Aim aim, Outputs& out) const {
    out.push_back(Do{What::ready_criu, e.job.key, {}, {}, 0, aim == Aim::disk, aim == Aim::keep});
}

// prepare_dump, freeze. Silent while under way: its end is told.
void Guest::want(Entry& e, Want want, Outputs& out) const {
    auto* r = e.in<Running>();
    if (!r) return tell(e, out);
    if (e.lease.over())
        return on_resume(e, out);  // when it runs again, the home node says it again
    e.why.clear();
    want_now(*r, want);
    drive(e, out);
}

// What was wanted cannot be: the job goes on, and the home node hears why.
void Guest::want_failed(Entry& e, Running& r, Trouble why, bool of_job, Outputs& out) const {
    r.motion = motion::Steady{};
    roll_back_shipped(e, r, out);
    e.job.state = GuestState::running;
    if (r.want == Want::kill) return drive(e, out);
    const Want wanted = std::exchange(r.want, Want::run);
    if (wanted != Want::run && of_job) note_trouble(e, why);
    if (wanted != Want::run) e.why = std::move(why);
    // A cut is tried again in its turn: if this one stood, its whole gang could go on only where
    // there is room on this node. Its owner does not wait for that.
    const auto again = [&] {
        return r.cut == Cut::freeze && !immovable(e) && !must_go(e) &&
               ++e.leaving.cut_tries < cut_tries_max;
    };
    if (wanted == Want::freeze && r.or_stand && !e.lease.over() && !again()) {
        if (can_stop_) return begin_stand(e, r, out);
        if (e.leaving.stood_at.ns == 0) e.leaving.stood_at = clock_;
        owner_due_ = {};
    }
    now_running(e, r, out);
    if (!r.in<motion::Held>()) e.why.clear();
}

// The job goes on, so its image is not the job.
void Guest::roll_back_shipped(Entry& e, Running& r, Outputs& out) const {
    if (!std::exchange(r.shipped_kept, false)) return;
    GuestJob running = e.job;
    running.state = GuestState::running;
    out.push_back(Persist{std::move(running)});
}

// Of no more use: something else is made of the job now, or it has come to its home.
void Guest::drop_checkpoint(Entry& e, Outputs& out) const {
    if (std::exchange(e.checkpoint.save, Save::none) != Save::none)
        effect(e, What::drop_checkpoint, out);
}

void Guest::undo(Entry& e, Running& r, Outputs& out, What how) const {
    const bool stood = in_place(e);
    r.motion = motion::Undoing{};
    r.retained = false;
    e.shipment.way = Shipment::Way::none;
    e.shipment.live = false;
    if (stood) go_off_stand(e, r, out);
    roll_back_shipped(e, r, out);
    effect(e, how, out);
}

void Guest::ship_now(Entry& e, Outputs& out) const {
    const auto* held = e.moves<motion::Held>();
    e.shipment.way = Shipment::Way::under_way;
    e.shipment.live = held && held->image == motion::Held::Image::live;
    out.push_back(Do{What::ship, e.job.key, e.shipment.epoch, e.shipment.dest, 0, false});
    std::get<Do>(out.back()).no_hurry = no_hurry(e);
}

// It is frozen, or is to be, or has stood for its owner before it was dumped. Not what runs until
// it is dumped, and goes on elsewhere then: it would stand for longer. Nor with others that wait
// for it, or before a deadline.
bool Guest::no_hurry(const Entry& e) {
    const auto* r = e.in<Running>();
    if (!r) return e.in<state::Frozen>();
    const bool stands = r->want == Want::freeze || (e.pause_asked && !e.paused.empty());
    return stands && r->cut == Cut::none && e.lease.stage == Lease::Stage::good;
}

void Guest::now_running(Entry& e, Running& r, Outputs& out) const {
    e.job.state = GuestState::running;
    if (e.lease.over()) stand(e, r);
    tell(e, out);
    settle_pause(e, out);
    if (!r.in<motion::Held>()) expel(e, out);
}

// Exited or killed. A transfer that fails after the candidate has become the job says nothing.
void Guest::end_as(Entry& e, GuestState how) {
    if (const auto* r = e.in<Running>()) {
        if (r->retained) e.shipment.way = Shipment::Way::none;
        e.job.went_on = !r->retained && !r->in<motion::Held>() && !r->in<motion::Standing>();
    }
    e.become(state::Ended{}, how);
}

// It ran, and was ended from outside: nothing of it goes on.
void Guest::died(Entry& e, Trouble why, Outputs& out) const {
    end_as(e, GuestState::killed);
    e.why = std::move(why);
    out.push_back(Persist{e.job});
    tell(e, out);
}

}  // namespace souk
