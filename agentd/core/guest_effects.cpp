// SPDX-License-Identifier: GPL-2.0-or-later
// Guest, third part: what a restart finds, and the ends of what lets a job run here, or ends it.
// See guest.hpp.
#include <utility>

#include "agentd/core/guest.hpp"
#include "kernel/base/check.hpp"
#include "kernel/base/wait_status.hpp"

namespace souk {

using namespace guest;
using What = Do::What;

namespace {

// What was told to run, and of whose run nothing is known yet: where its end is noted.
Early* early_of(State& state) {
    if (auto* s = std::get_if<state::Starting>(&state))
        return s->step == state::Starting::Step::job ? &s->early : nullptr;
    if (auto* h = std::get_if<state::Held>(&state))
        return h->release == state::Held::Release::under_way ? &h->early : nullptr;
    auto* f = std::get_if<state::Filling>(&state);
    return f ? &f->early : nullptr;
}

}  // namespace

// The capsule, its dump and its image are as `found`; what was decided is finished, what was not is
// undone.
void Guest::recovered(GuestJob job, const Found& found, Outputs& out) {
    const Scene scene(*this, &out,
                      [&] { return trace_in(Input::recovered, job.key, to_string(job.state)); });
    Entry& e = jobs_.insert_or_assign(job.key, Entry{}).first->second;
    e.job = std::move(job);
    const GuestState kept = e.job.state;
    if (kept == GuestState::exited || kept == GuestState::killed) return end_as(e, kept);
    // Shipped: held until its end: what killed it was told to, and the image is the job.
    const bool by_itself = found.exited && !ended_by_sigkill(found.wait_status);
    const bool shipped =
        kept == GuestState::shipped && !found.job_alive && !by_itself && found.image_complete;
    // Frozen without its image: if what it was made of still stands.
    if (!shipped && (kept != GuestState::frozen || !found.image_complete))
        return recovered_run(e, found, out);
    e.become(state::Frozen{}, GuestState::frozen);
    if (shipped) out.push_back(Persist{e.job});
    if (found.capsule_alive) end_capsule(e, Ending::to_frozen, What::kill_capsule, out);
}

// What is, or was, to run here. `running` and `held` on disk mean: was told to run.
void Guest::recovered_run(Entry& e, const Found& found, Outputs& out) {
    const auto give_up = [&](Cause why) {
        e.why = std::move(why);
        if (std::exchange(e.job.state, GuestState::starting) != GuestState::starting)
            out.push_back(Persist{e.job});
        end_capsule(e, Ending::to_failed, What::kill_capsule, out);
    };
    const GuestState kept = e.job.state;
    if (e.job.spec.hold && kept == GuestState::starting)
        return give_up({CauseCode::agentd_ended, "the daemon ended before the job was released"});
    if (kept == GuestState::frozen && !found.job_alive)
        return give_up(because(CauseCode::image_incomplete));
    if (e.job.from_image && kept == GuestState::starting)
        return give_up({CauseCode::agentd_ended, "the daemon ended before the job was restored"});
    if (kept == GuestState::filling)
        return give_up(
            {CauseCode::agentd_ended, "the daemon ended before all of its memory had come"});
    if (found.exited) {
        // CRIU kills what it restored when the daemon ends before it lets that run. (A job told to
        // run that got a SIGKILL of its own before the daemon knew that it runs cannot be told
        // apart; then it goes on from its image.)
        const bool by_criu = kept == GuestState::held && ended_by_sigkill(found.wait_status);
        if (by_criu)
            return give_up(
                {CauseCode::agentd_ended, "the daemon ended while the job was restored"});
        // it tells its end again, with how much the job has written: until then it runs
        if (found.capsule_alive) return recovered_job(e, found, out);
        end_as(e, GuestState::exited);
        e.job.wait_status = found.wait_status;
    } else if (found.job_alive) {
        recovered_job(e, found, out);
    } else if (found.capsule_alive || kept == GuestState::starting) {
        give_up({CauseCode::agentd_ended, "the daemon ended before the job was started"});
    } else {
        died(e, Cause(CauseCode::capsule_ended, "its capsule is gone"), out);
    }
}

// It runs, or stands frozen.
void Guest::recovered_job(Entry& e, const Found& found, Outputs& out) {
    const bool shipped_kept = e.job.state == GuestState::shipped;
    Running& r = e.become(Running{}, GuestState::running);
    r.shipped_kept = shipped_kept;
    if (found.exited) return roll_back_shipped(e, r, out);
    e.pause_asked = found.paused;
    if (found.paused)
        e.paused = pause_.empty() ? Cause(CauseCode::owner_uses, "its owner uses it") : pause_;
    if (!found.held_by_dump) {
        e.job.in_place = e.job.by_order = false;  // on disk as well with what is written next
        return roll_back_shipped(e, r, out);
    }
    // nothing goes on before its home has answered
    if (leased(e)) e.lease.stage = Lease::Stage::over;
    if (found.lapsed) {
        roll_back_shipped(e, r, out);
        return stand(e, r);
    }
    if (e.job.in_place) return stands_in_place(e, r);
    using Held = motion::Held;
    e.job.state = GuestState::dumping;
    r.want = Want::keep;
    r.motion = Held{Held::By::dump, found.image_complete ? Held::Image::whole : Held::Image::lost};
    e.why = {CauseCode::agentd_ended, "the daemon of its node ended during the dump"};
}

void Guest::on(Entry& e, CapsuleReady, Outputs& out) {
    using Step = state::Starting::Step;
    auto* s = e.in<state::Starting>();
    if (!s) return;
    if (e.job.kept) {
        e.become(state::Prepared{}, GuestState::prepared);
        return tell(e, out);
    }
    if (e.job.from_image) {
        s->step = Step::criu;
        return ask_criu(e, Aim::move, out);
    }
    if (e.job.spec.hold) {
        s->step = Step::holding;
        return effect(e, What::hold_job, out);
    }
    if (may_begin(e)) return start_now(e, *s, out);
    s->step = Step::answer;
    need_heartbeat(e.job.key.id.home);
}

// On disk first: a capsule that is found dead later may have run the job.
void Guest::start_now(Entry& e, state::Starting& s, Outputs& out) const {
    keep_lease(e, out);
    s.step = state::Starting::Step::job;
    GuestJob told = e.job;
    told.state = GuestState::running;
    out.push_back(Persist{std::move(told)});
    effect(e, e.job.spec.hold ? What::release_job : What::start_job, out);
}

void Guest::on(Entry& e, JobHeld, Outputs& out) {
    auto* s = e.in<state::Starting>();
    if (!s || s->step != state::Starting::Step::holding) return;
    s->step = state::Starting::Step::held;
    s->held_at = clock_;
    owner_due_ = {};
    if (!accepting_) return not_started(e, why_not_.or_code(CauseCode::off_market), {}, out);
    e.job.state = GuestState::held;  // on disk it is starting: a restart ends it
    tell(e, out);
}

// Its home has decided that all of its gang run.
void Guest::on_release_held(Entry& e, state::Starting& s, Outputs& out) {
    s.released = true;
    if (!may_begin(e)) return need_heartbeat(e.job.key.id.home);
    e.job.state = GuestState::starting;
    start_now(e, s, out);
}

void Guest::on(Entry& e, CapsuleFailed x, Outputs& out) {
    if (!e.in<state::Starting>() && !e.in<state::Restoring>()) return;
    e.why = std::move(x.why);
    // As a program that is not here: other nodes may have it.
    const bool lacks =
        (e.why.code == CauseCode::other_files || e.why.code == CauseCode::path_not_offered ||
         e.why.code == CauseCode::not_carried_out) &&
        !e.job.from_image;
    failed(e, out, lacks ? state::Failed{ENOENT, true} : state::Failed{});
}

// A start or release has succeeded; what came before its end was known counts now.
void Guest::after_start(Entry& e, const Early& early, Outputs& out) const {
    Running& r = e.become(Running{}, GuestState::running);
    if (!early.heard()) return now_running(e, r, out);
    tell(e, out);
    expel(e, out);
    if (early.what == Early::What::gone) return died(e, because(CauseCode::capsule_ended), out);
    end_as(e, GuestState::exited);
    e.job.wait_status = early.wait_status;
    tell(e, out);
}

// On disk as well: it did not run.
void Guest::not_started(Entry& e, Trouble why, state::Failed as, Outputs& out) const {
    e.why = std::move(why);
    e.job.state = GuestState::starting;
    out.push_back(Persist{e.job});
    end_capsule(e, Ending::to_failed, What::kill_capsule, out);
    e.in<state::Closing>()->failed = as;
}

void Guest::on(Entry& e, JobStarted, Outputs& out) {
    const auto* s = e.in<state::Starting>();
    if (!s || s->step != state::Starting::Step::job) return;
    after_start(e, Early(s->early), out);
}

void Guest::on(Entry& e, JobNotStarted x, Outputs& out) {
    const auto* s = e.in<state::Starting>();
    using Step = state::Starting::Step;
    if (!s || (s->step != Step::job && s->step != Step::holding && s->step != Step::held)) return;
    if (x.program_error) x.why.code = CauseCode::program_failed;
    not_started(e, std::move(x.why), {x.error, x.program_error}, out);
}

void Guest::on(Entry& e, ImageReceived x, Outputs& out) {
    if (!e.in<state::Prepared>()) return;
    e.job.image_bytes = x.image_bytes;
    if (e.job.kept) {
        e.become(state::Frozen{}, GuestState::frozen);
        out.push_back(Persist{e.job});
        return tell(e, out);
    }
    e.become(state::Restoring{x.form != MoveForm::post_copy}, GuestState::starting);
    effect(e, What::restore, out);
}

void Guest::on(Entry& e, ImageFailed x, Outputs& out) {
    if (!e.in<state::Prepared>()) return;
    e.why = std::move(x.why);
    end_capsule(e, Ending::to_failed, What::kill_capsule, out);
}

void Guest::on(Entry& e, PagesWhole, Outputs& out) {
    if (auto* restoring = e.in<state::Restoring>()) restoring->whole = true;
    if (auto* h = e.in<state::Held>(); h && !std::exchange(h->whole, true)) {
        // on disk as any other that was told to run
        if (h->release == state::Held::Release::under_way) out.push_back(Persist{e.job});
    } else if (const auto* filling = e.in<state::Filling>()) {
        const Early early = filling->early;
        e.job.state = GuestState::running;
        out.push_back(Persist{e.job});
        after_start(e, early, out);
    }
}

// The copy cannot go on, and was not the job yet.
void Guest::on(Entry& e, PagesLost x, Outputs& out) {
    const auto* h = e.in<state::Held>();
    if (!e.in<state::Restoring>() && !e.in<state::Filling>() && !(h && !h->whole)) return;
    e.why = std::move(x.why);
    e.image_refused = x.image_refused;
    end_capsule(e, Ending::to_failed, What::kill_capsule, out);
}

void Guest::on(Entry& e, RestoreHeld, Outputs& out) {
    const auto* restoring = e.in<state::Restoring>();
    if (!restoring) return;
    e.become(state::Held{{}, restoring->whole, {}}, GuestState::held);
    tell(e, out);
}

// Also of one that stands held: without CRIU it can never run.
void Guest::on(Entry& e, RestoreFailed x, Outputs& out) {
    if (!e.in<state::Restoring>() && !e.in<state::Held>()) return;
    e.image_refused = x.image_refused;
    not_started(e, std::move(x.why), {}, out);
}

void Guest::on(Entry& e, RestoreRunning, Outputs& out) {
    const auto* h = e.in<state::Held>();
    if (!h || h->release != state::Held::Release::under_way) return;
    const Early early = h->early;
    if (!h->whole) {
        e.become(state::Filling{early}, GuestState::filling);
        return e.lease.over() ? on(e, Lapsed{}, out) : tell(e, out);
    }
    e.job.state = GuestState::running;
    out.push_back(Persist{e.job, Durable::soon});  // `held` says as much
    after_start(e, early, out);
}

// Its capsule was ended, and is gone.
void Guest::closed(Entry& e, const state::Closing& closing, Outputs& out) {
    switch (closing.ending) {
        case Ending::to_frozen:
            e.shipment.way = Shipment::Way::none;
            e.why.clear();
            e.become(state::Frozen{}, GuestState::frozen);
            return tell(e, out);
        case Ending::to_killed:
            e.job.wait_status = closing.exited.value_or(0);
            end_as(e, closing.exited ? GuestState::exited : GuestState::killed);
            out.push_back(Persist{e.job});
            return tell(e, out);
        case Ending::to_dropped: {
            const GuestKey key = e.job.key;
            erase(key, out);
            return tell_unknown(key, out);
        }
        case Ending::to_failed:
            if (e.why.empty()) e.why = because(CauseCode::capsule_ended);
            return failed(e, out);
    }
}

void Guest::on(Entry& e, CapsuleGone, Outputs& out) {
    if (const auto* closing = e.in<state::Closing>())
        return closed(e, state::Closing(*closing), out);
    if (e.in<state::Frozen>() || e.in<state::Ended>() || e.in<state::Failed>()) return;
    if (const auto* r = e.in<Running>(); r && as_its_image(*r)) {
        e.become(state::Frozen{}, GuestState::frozen);
        out.push_back(Persist{e.job});
        e.shipment.way = Shipment::Way::none;
        e.why.clear();
        return tell(e, out);
    }
    // did it run? The end of that effect tells
    if (Early* early = early_of(e.state); early && !e.in<state::Filling>()) {
        if (!early->heard()) early->what = Early::What::gone;
        return;
    }
    if (e.why.empty()) e.why = because(CauseCode::capsule_ended);
    if (e.in<Running>()) return died(e, Trouble(e.why), out);
    failed(e, out);
}

// PID 1 has reaped the job's root. While a restore is under way that is CRIU's own kill, and the
// restore's end tells.
void Guest::on(Entry& e, Exited x, Outputs& out) {
    if (auto* closing = e.in<state::Closing>()) {  // perhaps by itself, just before it was killed
        if (closing->ending == Ending::to_killed && closing->ran &&
            !ended_by_sigkill(x.wait_status))
            closing->exited = x.wait_status;
    } else if (Early* early = early_of(e.state)) {
        *early = {Early::What::exited, x.wait_status};
        e.why = std::move(x.why);
    } else if (e.in<Running>()) {
        end_as(e, GuestState::exited);
        e.job.wait_status = x.wait_status;
        e.why = std::move(x.why);
        tell(e, out);
    }
}

void Guest::end_capsule(Entry& e, Ending ending, What how, Outputs& out) const {
    if (e.in<state::Closing>()) return;
    state::Closing closing;
    closing.ending = ending;
    if (const auto* r = e.in<Running>()) {
        closing.ran = true;
        closing.stood = r->in<motion::Held>();
        closing.asked_to_leave = ending != Ending::to_frozen && !r->retained && !in_place(e);
        if (r->retained) e.shipment.way = Shipment::Way::none;
    }
    if (const Early* early = early_of(e.state)) {
        closing.ran = e.in<state::Starting>();
        if (early->what == Early::What::exited) closing.exited = early->wait_status;
    }
    effect(e, how, out);
    e.state = closing;
}

void Guest::on(Entry& e, Movable x, Outputs& out) {
    if (e.leaving.looked == x.why_not) return;
    e.leaving.looked = std::move(x.why_not);
    owner_due_ = {};
    if (e.in<Running>() && e.job.state == GuestState::running) tell(e, out);
}

void Guest::on(Entry& e, Stopped x, Outputs& out) {
    if (e.stopped == x.is_stopped) return;
    e.stopped = x.is_stopped;
    if (e.job.state == GuestState::running) tell(e, out);
}

}  // namespace souk
