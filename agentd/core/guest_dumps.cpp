// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/guest_dumps.hpp"

#include <utility>

namespace souk {

using namespace guest;
using What = Do::What;
using state::Running;

namespace {

// A node waits so often for connections that are not accepted (agentd/cell).
constexpr int cut_tries_max = 3;
// A job that stands in place is dumped again after that, then after twice as long each time.
constexpr Nanos dump_again_after = Nanos::from_s(10);

}  // namespace

// -------------------------------------------------------------------------------------------------
// commands

void GuestDumps::prepare_dump(Entry& e, const GuestCommand& c, Outputs& out) {
    auto* r = e.in<Running>();
    if (r && r->want == Want::cut && c.cut == r->cut && c.new_epoch == r->cut_number)
        return reports_.tell(e, out);
    if (r) r->cut = c.cut;
    want(e, Want::ready, out);
}

// A home makes one checkpoint at a time, and none while it moves or freezes the job. So a
// checkpoint that is under way here is left over from before.
void GuestDumps::checkpoint(Entry& e, const GuestCommand& c, Outputs& out) {
    auto* r = e.in<Running>();
    if (!r || r->want == Want::keep || r->retained) return reports_.tell(e, out);
    if (r->want == Want::cut) {
        if (r->cut != Cut::checkpoint || r->cut_number != c.new_epoch || c.cut != Cut::none)
            return reports_.tell(e, out);
        return save_is_made(e, *r, out);  // all jobs of the cut stand
    }
    // The word came already and the job has gone on: another dump would be of another moment.
    if (c.cut == Cut::none && r->cut_number == c.new_epoch) return reports_.tell(e, out);
    r->cut = c.cut;
    if (c.cut != Cut::none) r->cut_number = c.new_epoch;
    e.checkpoint.epoch = c.new_epoch;
    e.checkpoint.dest = {c.dest, c.dest_address};
    want(e, Want::save, out);
}

void GuestDumps::freeze(Entry& e, const GuestCommand& c, Outputs& out) {
    if (e.in_place() && (c.stand || (c.or_stand && !e.job.by_order))) return reports_.tell(e, out);
    if (auto* r = e.in<Running>()) {
        const bool stands = r->want == Want::cut && r->cut == c.cut;
        if (stands && c.cut != Cut::none && r->cut_number == c.new_epoch)
            return reports_.tell(e, out);
        r->or_stand = c.or_stand;
        r->stand_first = c.stand;
        r->cut = c.cut;
        r->cut_number = c.new_epoch;
    }
    want(e, Want::freeze, out);
}

// The candidate owns the job. The copy that is held here dies, and its complete image stays until
// the home drops it. Without an image the copy itself stays. A job that is not held has gone on
// since: the commit is refused, and the home takes its decision back.
void GuestDumps::commit(Entry& e, Outputs& out) {
    const auto* held = e.moves<motion::Held>();
    if (!held || held->by != motion::Held::By::dump) return reports_.tell(e, out);
    auto& r = *e.in<Running>();
    if (r.want == Want::cut && r.cut == Cut::checkpoint) return reports_.tell(e, out);
    if (held->image != motion::Held::Image::whole) {
        r.retained = true;
        e.why.clear();
        return reports_.tell(e, out);
    }
    e.job.state = GuestState::frozen;
    out.push_back(Persist{e.job, r.shipped_kept ? Durable::soon : Durable::now});
    e.close(Ending::to_frozen, What::finish_dump, out);
}

void GuestDumps::resume(Entry& e, Outputs& out) {
    auto* r = e.in<Running>();
    if (!r) return reports_.tell(e, out);
    if (leases_.still_over(e, out)) return;
    r->want_now(Want::run);
    r->cut = Cut::none;
    e.why.clear();
    if (r->in<motion::Steady>()) return now_running(e, *r, out);
    drive(e, out);
}

void GuestDumps::refuse(Entry& e, Trouble why, Outputs& out) {
    e.why = std::move(why);
    auto* r = e.in<Running>();
    if (r && r->want == Want::ready) {
        r->want_now(Want::run);
        if (!r->in<motion::Steady>()) return drive(e, out);  // told when that is undone
    }
    reports_.tell(e, out);
    if (!r || !r->in<motion::Held>()) e.why.clear();
}

// Sets what prepare_dump, freeze or checkpoint wants. Nothing is told while that is under way; its
// end is told.
void GuestDumps::want(Entry& e, Want want, Outputs& out) {
    auto* r = e.in<Running>();
    if (!r) return reports_.tell(e, out);
    // When the job runs again, the home says it again.
    if (e.lease.over()) return resume(e, out);
    e.why.clear();
    r->want_now(want);
    drive(e, out);
}

// -------------------------------------------------------------------------------------------------
// steps

void GuestDumps::drive(Entry& e, Outputs& out) {
    auto* r = e.in<Running>();
    if (!r || r->in<motion::Undoing>() || r->stops_in_place()) return;
    if (r->in<motion::Making>() || r->in<motion::CriuComing>()) return;
    const bool held = r->in<motion::Held>();
    if (r->want == Want::kill)
        return e.close(Ending::to_killed, held ? What::finish_dump : What::kill_capsule, out);
    if (e.lease.over() && r->in<motion::Steady>()) {
        e.stand_for_lease(*r);
        return reports_.tell(e, out);
    }
    // A pre-copy is called off if something else is wanted by now.
    if (const auto* precopy = r->in<motion::Precopy>()) {
        if (r->want != Want::ship || precopy->to != e.shipment.epoch) undo(e, *r, out);
        return;
    }
    if (!held) return drive_running(e, *r, out);
    if (r->want != Want::ship && r->want != Want::keep && r->want != Want::cut) undo(e, *r, out);
}

// The job runs, and at most a CRIU stands ready beside it.
void GuestDumps::drive_running(Entry& e, Running& r, Outputs& out) {
    const bool wants_criu = r.want != Want::run && r.want != Want::keep && r.want != Want::cut;
    const auto* ready = r.in<motion::CriuReady>();
    const bool only_stop = r.want == Want::freeze && r.stand_first && owner_.can_stop();
    if (ready && (!wants_criu || ready->aim != r.aim() || only_stop)) return undo(e, r, out);
    if (!wants_criu) return;
    e.drop_checkpoint(out);
    if (only_stop) return begin_stop(e, r, out);
    ready ? make(e, r, out) : ask_criu(e, r, out);
}

void GuestDumps::ask_criu(Entry& e, Running& r, Outputs& out) {
    const Aim aim = r.aim();
    const bool lost = !e.leaving.not_restored.empty();
    if (aim == Aim::disk && r.or_stand && owner_.can_stop() && (e.immovable() || lost))
        return begin_stop(e, r, out);
    if (aim == Aim::disk && lost) return want_failed(e, r, e.leaving.not_restored, false, out);
    r.motion = motion::CriuComing{aim};
    out.push_back(Do{What::ready_criu, e.job.key, {}, {}, 0, aim == Aim::disk, aim == Aim::keep});
}

// CRIU is ready for what is wanted.
void GuestDumps::make(Entry& e, Running& r, Outputs& out) {
    if (r.want == Want::ready) {
        e.job.state = GuestState::dump_ready;
        return reports_.tell(e, out);
    }
    switch (const Aim aim = r.aim()) {
        case Aim::disk:
            r.motion = motion::Making{aim, false};
            e.effect(What::dump_to_disk, out);
            std::get<Do>(out.back()).no_hurry = e.no_hurry();
            return;
        case Aim::keep:
            r.motion = motion::Making{aim, false};
            out.push_back(Do{What::dump_to_keep, e.job.key, e.checkpoint.epoch, {}, 0, false});
            return;
        case Aim::move:
            r.motion = motion::Precopy{e.shipment.epoch};
            out.push_back(
                Do{What::send_precopy, e.job.key, e.shipment.epoch, e.shipment.dest, 0, false});
            return;
    }
}

// CRIU has let the job go.
void GuestDumps::let_go(const Entry& e, Running& r, Outputs& out) {
    r.motion = motion::Steady{};
    if (r.want == Want::run) r.made_anew = 0;
    for (const state::Signal& signal : std::exchange(r.signals, {})) e.signal(signal, out);
}

// The wanted operation is impossible: the job goes on, and its home hears why.
void GuestDumps::want_failed(Entry& e, Running& r, Trouble why, bool of_job, Outputs& out) {
    let_go(e, r, out);
    e.roll_back_shipped(r, out);
    e.job.state = GuestState::running;
    if (r.want == Want::kill) return drive(e, out);
    const Want wanted = std::exchange(r.want, Want::run);
    if (wanted != Want::run && of_job) owner_.note_trouble(e, why);
    if (wanted != Want::run) e.why = std::move(why);
    // A cut is tried again in its turn: if this job stood, its whole gang could go on only where
    // there is room on this node. Its owner does not wait for that.
    const auto again = [&] {
        return r.cut == Cut::freeze && !e.immovable() && !owner_.must_go(e) &&
               ++e.leaving.cut_tries < cut_tries_max;
    };
    if (wanted == Want::freeze && r.or_stand && !e.lease.over() && !again()) {
        if (owner_.can_stop()) return begin_stop(e, r, out);
        if (e.leaving.stood_at.ns == 0) e.leaving.stood_at = clock_;
        owner_.look_now();
    }
    now_running(e, r, out);
    if (!r.in<motion::Held>()) e.why.clear();
}

void GuestDumps::undo(Entry& e, Running& r, Outputs& out, What how) {
    const bool stood = e.in_place();
    r.motion = motion::Undoing{};
    r.retained = false;
    e.shipment.way = Shipment::Way::none;
    e.shipment.live = false;
    if (stood) leave_stop(e, r, out);
    e.roll_back_shipped(r, out);
    e.effect(how, out);
}

void GuestDumps::now_running(Entry& e, Running& r, Outputs& out) {
    e.job.state = GuestState::running;
    if (e.lease.over()) e.stand_for_lease(r);
    reports_.tell(e, out);
    owner_.settle_pause(e, out);
    if (!r.in<motion::Held>()) reports_.expel(e, out);
}

void GuestDumps::died(Entry& e, Trouble why, Outputs& out) const {
    e.end_as(GuestState::killed);
    e.why = std::move(why);
    out.push_back(Persist{e.job});
    reports_.tell(e, out);
}

// -------------------------------------------------------------------------------------------------
// stops in place

// That is on disk first: a group that is found frozen is then known not to stand for a dump.
void GuestDumps::begin_stop(Entry& e, Running& r, Outputs& out) {
    r.motion = motion::Standing{};
    r.want = Want::freeze;
    e.job.state = GuestState::running;
    e.job.in_place = true;
    e.job.by_order = r.stand_first && !e.immovable();
    out.push_back(Persist{e.job});
    e.effect(What::stand, out);
}

void GuestDumps::stands_in_place(Entry& e, Running& r) {
    using Held = motion::Held;
    Held held{r.in<Held>() ? Held::By::lease_in_place : Held::By::place, Held::Image::lost};
    if (!e.job.by_order)
        held.dump_again = clock_ + doubled(dump_again_after, e.leaving.stand_tries);
    r.motion = held;
    r.want_now(Want::keep);
    e.job.state = GuestState::dumping;
    owner_.look_now();
    if (e.job.by_order) return e.why.clear();
    if (e.immovable()) e.why = e.why_immovable();
    if (e.why.empty()) e.why = {CauseCode::dump_failed, "it could not be dumped"};
    if (e.leaving.stood_at.ns == 0) e.leaving.stood_at = clock_;
}

void GuestDumps::on_stood(Entry& e, Stood x, Outputs& out) {
    auto* r = e.in<Running>();
    if (!r || !r->stops_in_place()) return;
    if (!x.why.empty()) return stop_failed(e, *r, std::move(x), out);
    const Want wanted = r->want;
    stands_in_place(e, *r);
    // A ship that came meanwhile cannot be carried out: the home hears that the job stands.
    if (wanted == Want::freeze || wanted == Want::ship) {
        if (!e.job.by_order) r->want = Want::freeze;
        return reports_.tell(e, out);
    }
    r->want = wanted;
    e.why.clear();
    drive(e, out);
}

void GuestDumps::stop_failed(Entry& e, Running& r, Stood x, Outputs& out) {
    const Want wanted = r.want;
    if (auto* held = r.in<motion::Held>())  // its lease ended meanwhile
        held->by = motion::Held::By::lease;
    else
        r.motion = motion::Steady{};
    const bool by_order = std::exchange(e.job.by_order, false);
    e.job.in_place = r.stand_first = false;
    out.push_back(Persist{e.job, Durable::now});
    if (wanted != Want::freeze || by_order) return drive(e, out);  // it is frozen to disk instead
    r.want = Want::run;
    e.why = std::move(x.why);
    now_running(e, r, out);
    e.why.clear();
}

// The job stood in place, and is let go on. That is durable before it goes on: an old record that
// says that it stands would let a source go on whose home has decided for the destination.
void GuestDumps::leave_stop(Entry& e, const Running& r, Outputs& out) {
    e.job.in_place = e.job.by_order = false;
    GuestJob running = e.job;
    running.state = GuestState::running;
    out.push_back(Persist{std::move(running), Durable::now});
    if (r.want == Want::freeze) return;  // it is dumped once more
    e.leaving.stood_at = {};
    e.leaving.stand_tries = 0;
}

// -------------------------------------------------------------------------------------------------
// the owner's deadline and the lease

void GuestDumps::freeze_for_owner(Entry& e, Running& r, Outputs& out) {
    e.why.clear();
    r.want = Want::freeze;
    r.cut = Cut::none;
    r.or_stand = true;
    r.stand_first = false;
    drive(e, out);
}

// If the freeze fails, the job runs up to its deadline. A job that is held, or on its way
// elsewhere, stands already. A job that an order has stopped goes to disk while its lease holds.
void GuestDumps::lease_ends(Entry& e, Outputs& out) {
    e.lease.stage = Lease::Stage::ending;
    auto* r = e.in<Running>();
    const bool stands = r && (r->want == Want::keep || r->in<motion::Held>());
    if (!r || r->want == Want::ship || (stands && !e.in_place_by_order())) return;
    r->cut = Cut::none;
    e.why.clear();
    r->want_now(Want::freeze);
    r->or_stand = r->stand_first = false;  // until its deadline it may run
    drive(e, out);
}

void GuestDumps::on_lapsed(Entry& e, const Lapsed& x, Outputs& out) {
    if (!leases_.in_lease(e)) return;
    // A later deadline waits for the disk behind a record. It lets the job go on, so that nobody
    // may be told now that the job stands.
    if (x.until < e.lease.until && e.lease.stage == Lease::Stage::good) return;
    e.lease.stage = Lease::Stage::over;
    if (e.in<state::Filling>()) {  // this copy is not the job yet
        e.why = {CauseCode::lease_over, "its lease was over before all of its memory had come"};
        return e.close(Ending::to_failed, What::kill_capsule, out);
    }
    // An operation that is under way is judged at its end.
    auto* r = e.in<Running>();
    if (!r || r->in<motion::Undoing>() || r->in<motion::Making>() || r->in<motion::Held>()) return;
    if (!r->in<motion::Steady>() && !r->in<motion::Standing>()) return undo(e, *r, out);
    e.stand_for_lease(*r);
    reports_.tell(e, out);
}

// -------------------------------------------------------------------------------------------------
// ends of dumps

void GuestDumps::on_criu_ready(Entry& e, Outputs& out) {
    auto* r = e.in<Running>();
    const auto* coming = r ? r->in<motion::CriuComing>() : nullptr;
    if (!coming) return;
    r->motion = motion::CriuReady{coming->aim};
    drive(e, out);
}

void GuestDumps::on_criu_failed(Entry& e, CriuFailed x, Outputs& out) {
    auto* r = e.in<Running>();
    const bool beside_it = r && (r->in<motion::CriuComing>() || r->in<motion::CriuReady>() ||
                                 r->in<motion::Precopy>());
    if (beside_it) want_failed(e, *r, std::move(x.why), x.of_job, out);
}

void GuestDumps::on_sent_precopy(Entry& e, Outputs& out) {
    if (!e.moves<motion::Precopy>()) return;
    e.in<Running>()->motion = motion::Making{Aim::move, false};
    out.push_back(Do{What::dump_for_move, e.job.key, {}, e.shipment.dest, 0, false});
}

void GuestDumps::on_dump_froze(Entry& e, const DumpFroze& x, Outputs& out) {
    auto* making = e.moves<motion::Making>();
    if (!making) return;
    making->all_stand |= x.all_stand;
    auto& r = *e.in<Running>();
    r.forecast = x.forecast;
    e.job.state = GuestState::dumping;
    if (x.all_stand && r.cut == Cut::none) return;  // no home waits for that
    reports_.tell(e, out);
    if (x.all_stand) std::get<GuestEvent>(std::get<ToHome>(out.back()).message).all_stand = true;
}

// The job is dumped with others of its gang. In a freeze its image is the job if it dies as it
// stands, and that is on the disk before its home hears of the dump.
void GuestDumps::stands_for_cut(Entry& e, Running& r, Outputs& out) {
    r.want_now(Want::cut);
    e.why.clear();
    e.job.state = GuestState::shipped;
    if (r.cut == Cut::freeze) {
        r.shipped_kept = true;
        out.push_back(Persist{e.job});
    }
    reports_.tell(e, out);
}

// The checkpoint is in the image, and the job goes on.
void GuestDumps::save_is_made(Entry& e, Running& r, Outputs& out) {
    r.want = Want::run;
    r.cut = Cut::none;
    e.job.state = GuestState::dumping;
    e.checkpoint.save = Save::made;
    undo(e, r, out, What::go_on);
}

void GuestDumps::on_dump_held(Entry& e, const DumpHeld& x, Outputs& out) {
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
    // An image from before a signal is none of the job, unless they come without end.
    constexpr int made_anew_max = 3;
    if (!r->signals.empty() && (r->want == Want::ship || r->want == Want::freeze) &&
        ++r->made_anew <= made_anew_max)
        return undo(e, *r, out);
    const bool as_wanted = (aim == Aim::disk && r->want == Want::freeze) ||
                           (aim == Aim::keep && r->want == Want::save);
    if (as_wanted && r->cut != Cut::none && !x.live) return stands_for_cut(e, *r, out);
    // The image is the job from here on. That is on disk before the processes are killed.
    if (aim == Aim::disk && r->want == Want::freeze) {
        e.job.state = GuestState::frozen;
        e.job.lapsed = e.lease.stage != Lease::Stage::good;
        out.push_back(Persist{e.job});
        return e.close(Ending::to_frozen, What::finish_dump, out);
    }
    if (aim == Aim::keep && r->want == Want::save) return save_is_made(e, *r, out);
    if (aim == Aim::move && r->want == Want::ship) {
        e.ship(out);
        return x.fenced ? reports_.tell(e, out) : void();
    }
    if (r->want == Want::ship) return undo(e, *r, out);  // that dump was made for something else
    drive(e, out);
}

void GuestDumps::on_dump_failed(Entry& e, DumpFailed x, Outputs& out) {
    auto* r = e.in<Running>();
    if (!r || !(r->in<motion::Precopy>() || r->in<motion::Making>() || r->in<motion::Held>()))
        return;
    const bool given_up = r->want == Want::ready || r->want == Want::keep;
    if (!given_up) return want_failed(e, *r, std::move(x.why), x.of_job, out);
    let_go(e, *r, out);  // something else is wanted by now
    e.roll_back_shipped(*r, out);
    e.job.state = GuestState::running;
    drive(e, out);
}

void GuestDumps::on_dump_undone(Entry& e, Outputs& out) {
    auto* r = e.in<Running>();
    if (!r || !r->in<motion::Undoing>()) return;
    let_go(e, *r, out);
    e.job.state = GuestState::running;
    if (r->want != Want::run) {
        e.drop_checkpoint(out);
        return drive(e, out);
    }
    if (e.checkpoint.save == Save::made) {
        e.checkpoint.save = Save::sending;
        out.push_back(
            Do{What::send_checkpoint, e.job.key, e.checkpoint.epoch, e.checkpoint.dest, 0, false});
    }
    now_running(e, *r, out);
    if (!r->in<motion::Held>()) e.why.clear();  // it said why the move was refused
}

void GuestDumps::on_checkpoint_sent(Entry& e, Outputs& out) {
    if (e.checkpoint.save == Save::sending) e.drop_checkpoint(out);
}

void GuestDumps::on_checkpoint_failed(Entry& e, CheckpointFailed x, Outputs& out) {
    if (e.checkpoint.save != Save::sending) return;
    e.drop_checkpoint(out);
    if (!e.in<Running>() || e.job.state != GuestState::running) return;
    e.why = std::move(x.why);
    reports_.tell(e, out);
    e.why.clear();
}

}  // namespace souk
