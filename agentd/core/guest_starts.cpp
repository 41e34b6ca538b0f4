// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/guest_starts.hpp"

#include <utility>

#include "kernel/base/wait_status.hpp"

namespace souk {

using namespace guest;
using What = Do::What;
using state::Running;
using state::Starting;

// -------------------------------------------------------------------------------------------------
// commands

void GuestStarts::begin(const GuestCommand& c, Outputs& out) {
    const GuestKey key{c.id, c.epoch};
    const bool kept = c.verb == GuestVerb::keep;
    Entry e;
    e.source = c.source;
    e.job.key = key;
    e.job.spec = c.spec;
    e.job.memory_mb = c.memory_mb;
    e.job.cpus = c.cpus;
    e.job.from_image = c.verb != GuestVerb::start;
    e.job.kept = kept;
    e.job.resources = c.resources;
    if (Trouble why = take_resources(e); !why.empty()) return refuse(key, std::move(why), out);
    const Entry& entry = jobs_.add(key, std::move(e));
    if (leases_.leased(entry)) leases_.need_heartbeat(key.id.home);
    // If a crash loses the record, its capsule is ended at the next start, and the home asks again.
    out.push_back(Persist{entry.job, Durable::later});
    entry.effect(kept ? What::make_place : What::create_capsule, out);
}

// Gives the job what it asks for and this node has. Who is here already keeps what it has, whatever
// the market or the configuration says now.
Trouble GuestStarts::take_resources(Entry& e) const {
    if (e.job.kept || e.job.resources.empty()) return {};
    const auto needs = parse_resources(e.job.resources);
    if (!needs) return Trouble(needs.error());
    std::vector<GuestHolds> others;
    for (const auto& [key, other] : jobs_.all())
        if (other.has_resources()) others.push_back({other.job.resources, other.job.devices});
    auto given = give_resources(*needs, resources_, others, e.job.from_image);
    if (!given) return Trouble(given.error());
    e.job.devices = std::move(given->devices);
    add_variables(e.job.spec.launch.env, *given);
    return {};
}

void GuestStarts::refuse(const GuestKey& key, Trouble why, Outputs& out) {
    Entry e;
    e.job.key = key;
    e.become(state::Failed{}, GuestState::failed);
    e.why = std::move(why);
    reports_.tell(jobs_.add_failed(key, std::move(e)), out);
}

void GuestStarts::release(Entry& e, Outputs& out) {
    using Release = state::Held::Release;
    auto* s = e.in<Starting>();
    if (s && s->step == Starting::Step::held) return release_component(e, *s, out);
    auto* h = e.in<state::Held>();
    if (!h) return reports_.tell(e, out);
    if (h->release == Release::under_way)
        return leases_.still_over(e, out) ? void() : reports_.tell(e, out);
    h->release = leases_.may_begin(e) ? Release::under_way : Release::waits;
    if (h->release == Release::waits) return leases_.need_heartbeat(e.job.key.id.home);
    leases_.keep(e, out);
    GuestJob told = e.job;  // `held` on disk means: was told to run
    if (!h->whole) told.state = GuestState::filling;
    out.push_back(Persist{std::move(told)});
    e.effect(What::finish_restore, out);
}

// The home has decided that all components of the gang run.
void GuestStarts::release_component(Entry& e, Starting& s, Outputs& out) {
    s.released = true;
    if (!leases_.may_begin(e)) return leases_.need_heartbeat(e.job.key.id.home);
    e.job.state = GuestState::starting;
    start_now(e, s, out);
}

void GuestStarts::restore_here(const Entry& source, Entry& e, Outputs& out) {
    if (!source.in<state::Frozen>() || !e.in<state::Prepared>()) return;
    e.become(state::Restoring{}, GuestState::starting);
    out.push_back(Do{What::restore_local, e.job.key, source.job.key.epoch, {}, 0, false});
}

void GuestStarts::start_now(Entry& e, Starting& s, Outputs& out) {
    leases_.keep(e, out);
    s.step = Starting::Step::job;
    GuestJob told = e.job;
    told.state = GuestState::running;
    out.push_back(Persist{std::move(told)});
    e.effect(e.job.spec.hold ? What::release_job : What::start_job, out);
}

void GuestStarts::home_answered(Entry& e, Outputs& out) {
    using Stage = Lease::Stage;
    auto* s = e.in<Starting>();
    auto* h = e.in<state::Held>();
    const auto* r = e.in<Running>();
    // The home has heard nothing of this job yet, so it has not gone on without it.
    if (s && s->step == Starting::Step::job) e.lease.stage = Stage::good;
    // A dump that is undone would let the job run by a new deadline. But it is to stand, since its
    // home may have let it go on elsewhere.
    const bool is_undone = r && r->in<motion::Undoing>() && e.lease.over();
    if (leases_.in_lease(e) && !is_undone) leases_.keep(e, out);
    if (!e.lease.over() && !(r && r->want == Want::freeze)) e.lease.stage = Stage::good;
    if (s && s->step == Starting::Step::answer) return start_now(e, *s, out);
    if (s && s->step == Starting::Step::held && s->released) return release_component(e, *s, out);
    if (e.lease.over()) e.lease.stage = Stage::renewed;
    // An earlier word of the home about these jobs may be old: the home says it again.
    const bool waits = h && h->release == state::Held::Release::waits;
    if (waits) h->release = state::Held::Release::none;
    if (waits || e.lease.over()) reports_.tell(e, out);
}

void GuestStarts::end_held_component(Entry& e, Outputs& out) {
    const auto* s = e.in<Starting>();
    if (s && s->step == Starting::Step::held) not_started(e, owner_.why_not(), {}, out);
}

// -------------------------------------------------------------------------------------------------
// a start

void GuestStarts::on_capsule_ready(Entry& e, Outputs& out) {
    using Step = Starting::Step;
    auto* s = e.in<Starting>();
    if (!s) return;
    if (e.job.kept) {
        e.become(state::Prepared{}, GuestState::prepared);
        return reports_.tell(e, out);
    }
    if (e.job.from_image) {
        s->step = Step::criu;
        out.push_back(Do{What::ready_criu, e.job.key, {}, {}, 0, false, false});
        return;
    }
    if (e.job.spec.hold) {
        s->step = Step::holding;
        return e.effect(What::hold_job, out);
    }
    if (leases_.may_begin(e)) return start_now(e, *s, out);
    s->step = Step::answer;
    leases_.need_heartbeat(e.job.key.id.home);
}

void GuestStarts::on_capsule_failed(Entry& e, CapsuleFailed x, Outputs& out) {
    if (!e.in<Starting>() && !e.in<state::Restoring>()) return;
    e.why = std::move(x.why);
    // It is told as a program that is not here: other nodes may have it.
    const bool lacks =
        (e.why.code == CauseCode::other_files || e.why.code == CauseCode::path_not_offered ||
         e.why.code == CauseCode::not_carried_out) &&
        !e.job.from_image;
    failed(e, out, lacks ? state::Failed{ENOENT, true} : state::Failed{});
}

void GuestStarts::on_job_held(Entry& e, Outputs& out) {
    auto* s = e.in<Starting>();
    if (!s || s->step != Starting::Step::holding) return;
    s->step = Starting::Step::held;
    s->held_at = clock_;
    owner_.look_now();
    if (!owner_.accepting()) return not_started(e, owner_.why_not(), {}, out);
    e.job.state = GuestState::held;  // on disk it is starting: a restart of the daemon ends it
    reports_.tell(e, out);
}

void GuestStarts::on_job_started(Entry& e, Outputs& out) {
    const auto* s = e.in<Starting>();
    if (!s || s->step != Starting::Step::job) return;
    after_start(e, Early(s->early), out);
}

void GuestStarts::on_job_not_started(Entry& e, JobNotStarted x, Outputs& out) {
    const auto* s = e.in<Starting>();
    using Step = Starting::Step;
    if (!s || (s->step != Step::job && s->step != Step::holding && s->step != Step::held)) return;
    if (x.program_error) x.why.code = CauseCode::program_failed;
    not_started(e, std::move(x.why), {x.error, x.program_error}, out);
}

// A start or release has succeeded. An event that came before that was known counts now.
void GuestStarts::after_start(Entry& e, const Early& early, Outputs& out) {
    Running& r = e.become(Running{}, GuestState::running);
    if (!early.heard()) return dumps_.now_running(e, r, out);
    reports_.tell(e, out);
    reports_.expel(e, out);
    if (early.what == Early::What::gone)
        return dumps_.died(e, because(CauseCode::capsule_ended), out);
    e.end_as(GuestState::exited);
    e.job.wait_status = early.wait_status;
    reports_.tell(e, out);
}

void GuestStarts::not_started(Entry& e, Trouble why, state::Failed as, Outputs& out) {
    e.why = std::move(why);
    e.job.state = GuestState::starting;
    out.push_back(Persist{e.job});
    e.close(Ending::to_failed, What::kill_capsule, out);
    e.in<state::Closing>()->failed = as;
}

// -------------------------------------------------------------------------------------------------
// a restore

void GuestStarts::on_criu_ready(Entry& e, Outputs& out) {
    const auto* s = e.in<Starting>();
    if (!s || s->step != Starting::Step::criu) return;
    e.become(state::Prepared{}, GuestState::prepared);
    reports_.tell(e, out);
}

void GuestStarts::on_criu_failed(Entry& e, CriuFailed x, Outputs& out) {
    const auto* s = e.in<Starting>();
    const auto* h = e.in<state::Held>();  // a restore or release under way ends by itself
    if (!(s && s->step == Starting::Step::criu) && !(e.in<state::Prepared>() && !e.job.kept) &&
        !(h && h->release != state::Held::Release::under_way))
        return;
    e.why = std::move(x.why);
    e.close(Ending::to_failed, What::kill_capsule, out);
}

void GuestStarts::on_image_received(Entry& e, const ImageReceived& x, Outputs& out) {
    if (!e.in<state::Prepared>()) return;
    e.job.image_bytes = x.image_bytes;
    if (e.job.kept) {
        e.become(state::Frozen{}, GuestState::frozen);
        out.push_back(Persist{e.job});
        return reports_.tell(e, out);
    }
    e.become(state::Restoring{x.form != MoveForm::post_copy}, GuestState::starting);
    e.effect(What::restore, out);
}

void GuestStarts::on_image_failed(Entry& e, ImageFailed x, Outputs& out) {
    if (!e.in<state::Prepared>()) return;
    e.why = std::move(x.why);
    e.close(Ending::to_failed, What::kill_capsule, out);
}

void GuestStarts::on_pages_whole(Entry& e, Outputs& out) {
    if (auto* restoring = e.in<state::Restoring>()) restoring->whole = true;
    if (auto* h = e.in<state::Held>(); h && !std::exchange(h->whole, true)) {
        // From now on the record says `held`, as that of any job that was told to run.
        if (h->release == state::Held::Release::under_way) out.push_back(Persist{e.job});
    } else if (const auto* filling = e.in<state::Filling>()) {
        const Early early = filling->early;
        e.job.state = GuestState::running;
        out.push_back(Persist{e.job});
        after_start(e, early, out);
    }
}

// The copy cannot go on, and was not the job yet.
void GuestStarts::on_pages_lost(Entry& e, PagesLost x, Outputs& out) {
    const auto* h = e.in<state::Held>();
    if (!e.in<state::Restoring>() && !e.in<state::Filling>() && !(h && !h->whole)) return;
    e.why = std::move(x.why);
    e.image_refused = x.image_refused;
    e.close(Ending::to_failed, What::kill_capsule, out);
}

void GuestStarts::on_restore_held(Entry& e, Outputs& out) {
    const auto* restoring = e.in<state::Restoring>();
    if (!restoring) return;
    e.become(state::Held{{}, restoring->whole, {}}, GuestState::held);
    reports_.tell(e, out);
}

// It may concern a job that stands held, which can never run without CRIU.
void GuestStarts::on_restore_failed(Entry& e, RestoreFailed x, Outputs& out) {
    if (!e.in<state::Restoring>() && !e.in<state::Held>()) return;
    e.image_refused = x.image_refused;
    not_started(e, std::move(x.why), {}, out);
}

void GuestStarts::on_restore_running(Entry& e, Outputs& out) {
    const auto* h = e.in<state::Held>();
    if (!h || h->release != state::Held::Release::under_way) return;
    const Early early = h->early;
    if (!h->whole) {
        e.become(state::Filling{early}, GuestState::filling);
        return e.lease.over() ? dumps_.on_lapsed(e, {e.lease.until}, out) : reports_.tell(e, out);
    }
    e.job.state = GuestState::running;
    out.push_back(Persist{e.job, Durable::soon});  // `held` on disk means as much
    after_start(e, early, out);
}

// -------------------------------------------------------------------------------------------------
// ends

// Removes all of the job but this answer.
void GuestStarts::failed(Entry& e, Outputs& out, const state::Failed& as) {
    jobs_.remove(e, out);
    const auto* closing = e.in<state::Closing>();
    Entry left;
    left.job.key = e.job.key;
    left.why = e.why;
    left.image_refused = e.image_refused;
    left.become(closing ? closing->failed : as, GuestState::failed);
    const GuestKey key = left.job.key;
    reports_.tell(jobs_.add_failed(key, std::move(left)), out);
}

// The capsule was being ended, and is gone.
void GuestStarts::closed(Entry& e, const state::Closing& closing, Outputs& out) {
    switch (closing.ending) {
        case Ending::to_frozen:
            e.shipment.way = Shipment::Way::none;
            e.why.clear();
            e.become(state::Frozen{}, GuestState::frozen);
            return reports_.tell(e, out);
        case Ending::to_killed:
            e.job.wait_status = closing.exited.value_or(0);
            e.end_as(closing.exited ? GuestState::exited : GuestState::killed);
            out.push_back(Persist{e.job});
            return reports_.tell(e, out);
        case Ending::to_dropped: {
            const GuestKey key = e.job.key;
            jobs_.erase(key, out);
            return GuestReports::tell_unknown(key, out);
        }
        case Ending::to_failed:
            if (e.why.empty()) e.why = because(CauseCode::capsule_ended);
            return failed(e, out);
    }
}

void GuestStarts::on_capsule_gone(Entry& e, Outputs& out) {
    if (const auto* closing = e.in<state::Closing>())
        return closed(e, state::Closing(*closing), out);
    if (e.in<state::Frozen>() || e.in<state::Ended>() || e.in<state::Failed>()) return;
    if (const auto* r = e.in<Running>(); r && r->is_as_its_image()) {
        e.become(state::Frozen{}, GuestState::frozen);
        out.push_back(Persist{e.job});
        e.shipment.way = Shipment::Way::none;
        e.why.clear();
        return reports_.tell(e, out);
    }
    // Whether the job ran is known at the end of its start or release.
    if (Early* early = e.early(); early && !e.in<state::Filling>()) {
        if (!early->heard()) early->what = Early::What::gone;
        return;
    }
    if (e.why.empty()) e.why = because(CauseCode::capsule_ended);
    if (e.in<Running>()) return dumps_.died(e, Trouble(e.why), out);
    failed(e, out);
}

// PID 1 has reaped the job's root. During a restore that was CRIU's own kill, and the restore's end
// tells it.
void GuestStarts::on_exited(Entry& e, Exited x, Outputs& out) {
    if (auto* closing = e.in<state::Closing>()) {  // perhaps by itself, just before it was killed
        if (closing->ending == Ending::to_killed && closing->ran &&
            !ended_by_sigkill(x.wait_status))
            closing->exited = x.wait_status;
    } else if (Early* early = e.early()) {
        *early = {Early::What::exited, x.wait_status};
        e.why = std::move(x.why);
    } else if (e.in<Running>()) {
        e.end_as(GuestState::exited);
        e.job.wait_status = x.wait_status;
        e.why = std::move(x.why);
        reports_.tell(e, out);
    }
}

}  // namespace souk
