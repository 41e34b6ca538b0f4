// SPDX-License-Identifier: GPL-2.0-or-later
// Guest, first part: commands. See guest.hpp.
#include "agentd/core/guest.hpp"

#include <utility>

#include "kernel/base/check.hpp"

namespace souk {

using namespace guest;
using What = Do::What;

Guest::Entry* Guest::entry(const GuestKey& key) {
    const auto it = jobs_.find(key);
    return it == jobs_.end() ? nullptr : &it->second;
}

const GuestJob* Guest::find(const GuestKey& key) const {
    const auto it = jobs_.find(key);
    return it == jobs_.end() ? nullptr : &it->second.job;
}

bool Guest::expects_image(const GuestKey& key) const {
    const auto it = jobs_.find(key);
    return it != jobs_.end() && it->second.in<state::Prepared>();
}

bool Guest::takes_image_from(const GuestKey& key, const NodeName& sender) const {
    const auto it = jobs_.find(key);
    if (it == jobs_.end() || !it->second.in<state::Prepared>()) return false;
    return it->second.source.empty() || it->second.source == sender;
}

void Guest::tell(const Entry& e, Outputs& out) const {
    const auto* r = e.in<Running>();
    const auto* held = e.moves<motion::Held>();
    GuestEvent event;
    event.id = e.job.key.id;
    event.epoch = e.job.key.epoch;
    event.state = r && r->retained ? GuestState::retained : e.job.state;
    event.wait_status = e.job.wait_status;
    event.image_bytes = e.job.image_bytes;
    event.why = e.why;
    event.image_refused = e.image_refused && !e.why.empty();
    event.stopped = e.stopped;
    if (event.state == GuestState::running || event.state == GuestState::dump_ready)
        event.paused = e.paused;
    event.in_place = in_place(e);
    event.went_on = e.job.went_on;
    if (event.in_place && !e.job.by_order) event.cannot_move = e.why;
    if ((event.state == GuestState::running || (event.in_place && e.job.by_order)) && immovable(e))
        event.cannot_move = why_immovable(e);
    if (event.state == GuestState::dumping && r) event.forecast = r->forecast;
    if (const auto* failed = e.in<state::Failed>()) {
        event.error = failed->error;
        event.program_error = failed->program_error;
    }
    event.leased = leased(e);
    event.must_leave = image_must_leave(e);
    if (held && held->fenced && r->want == Want::ship) event.held_for = e.shipment.epoch;
    if (held && r->want == Want::cut) event.held_for = r->cut_number;
    event.lapsed =
        (held && held->by_lease()) || (event.state == GuestState::frozen && e.job.lapsed);
    // Stopped in the middle of a dump: as what stands.
    if (r && !held && e.lease.over()) {
        event.state = GuestState::dumping;
        event.lapsed = true;
        event.why = {CauseCode::lease_over, stands_still};
    }
    out.push_back(ToHome{event.id.home, std::move(event), false});
}

void Guest::tell_unknown(const GuestKey& key, Outputs& out) const {
    GuestEvent event;
    event.id = key.id;
    event.epoch = key.epoch;
    event.state = GuestState::unknown;
    out.push_back(ToHome{key.id.home, std::move(event), true});
}

void Guest::effect(const Entry& e, What what, Outputs& out) const {
    out.push_back(Do{what, e.job.key, {}, {}, 0, false});
}

// The owner wants it to leave; only what runs can be asked to.
void Guest::expel(const Entry& e, Outputs& out) const {
    const auto* r = e.in<Running>();
    const auto* closing = e.in<state::Closing>();
    const bool may_leave = r ? !r->retained && !in_place(e) : closing && closing->asked_to_leave;
    if (must_go(e) && may_leave)
        out.push_back(ToHome{e.job.key.id.home, Expel{e.job.key.id, e.job.key.epoch}, false});
}

void Guest::erase(const GuestKey& key, Outputs& out) {
    const auto it = jobs_.find(key);
    MUST(it != jobs_.end());
    remove(it->second, out);
    jobs_.erase(it);
}

void Guest::remove(const Entry& e, Outputs& out) {
    effect(e, What::remove, out);
    out.push_back(Erase{e.job.key});
    leaving_.insert(e.job.key);
}

// Nothing of it is left here but this answer.
void Guest::failed(Entry& e, Outputs& out, const state::Failed& as) {
    remove(e, out);
    const auto* closing = e.in<state::Closing>();
    Entry left;
    left.job.key = e.job.key;
    left.why = e.why;
    left.image_refused = e.image_refused;
    left.become(closing ? closing->failed : as, GuestState::failed);
    e = std::move(left);
    tell(e, out);
}

void Guest::refuse(const GuestKey& key, Trouble why, Outputs& out) {
    // not even room to remember a refusal: the home node asks again
    if (jobs_.size() >= 2 * jobs_max_) return;
    Entry e;
    e.job.key = key;
    e.become(state::Failed{}, GuestState::failed);
    e.why = std::move(why);
    tell(jobs_.emplace(key, std::move(e)).first->second, out);
}

void Guest::set_accepting(bool accepting, Trouble why, Outputs& out) {
    const Scene scene(*this, &out,
                      [&] { return trace_in(accepting ? Input::accept : Input::leave, {}, why); });
    const bool is_news = accepting_ != accepting;
    off_since_ = accepting ? Nanos::never() : accepting_ ? clock_ : std::min(off_since_, clock_);
    accepting_ = accepting;
    owner_due_ = {};
    why_not_ = std::move(why);
    for (auto& [key, e] : jobs_) {
        e.leaving.tries = 0;
        expel(e, out);
        e.leaving.not_sent.clear();
        if (is_news && e.in<state::Frozen>() && !e.job.kept) tell(e, out);
        // A component that is held has no more to wait for here.
        if (const auto* s = e.in<state::Starting>();
            s && !accepting && s->step == state::Starting::Step::held)
            not_started(e, why_not_.or_code(CauseCode::off_market), {}, out);
    }
}

void Guest::home_up(const NodeName& home, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_home(Input::home_up, home); });
    need_heartbeat(home);
    homes_up_.insert(home);
    for (const auto& [key, e] : jobs_) {
        if (key.id.home != home || e.in<state::Closing>()) continue;
        tell(e, out);
        expel(e, out);
    }
}

void Guest::home_down(const NodeName& home) {
    const Scene scene(*this, nullptr, [&] { return trace_home(Input::home_down, home); });
    homes_up_.erase(home);
    std::erase_if(jobs_, [&](const auto& j) {
        return j.first.id.home == home && std::holds_alternative<state::Failed>(j.second.state);
    });
}

// Whether it may be carried out; then it says what its ticket says.
Status Guest::admit(const NodeName& from, GuestCommand& c, const Warrant& warrant, Outputs& out) {
    const uint64_t before = tickets_.mark();
    Status may = tickets_.admit(from, c, warrant);
    if (tickets_.mark() != before) out.push_back(KeepMark{tickets_.mark()});
    if (!may || warrant.ticket)
        out.push_back(Audit{{c.id, c.epoch}, from, c.verb, may ? "" : may.error().message});
    return may;
}

// The home gives the move up, and the job goes on as before. (A checkpoint: it makes none.)
void Guest::may_not_send(Entry& e, Trouble why, Outputs& out) const {
    e.why = std::move(why);
    auto* r = e.in<Running>();
    if (r && r->want == Want::ready) {
        want_now(*r, Want::run);
        if (!r->in<motion::Steady>()) return drive(e, out);  // told when that is undone
    }
    tell(e, out);
    if (!r || !r->in<motion::Held>()) e.why.clear();
}

void Guest::command(const NodeName& from, const GuestCommand& asked, Outputs& out,
                    const Warrant& warrant) {
    const Scene scene(*this, &out, [&] { return trace_command(from, asked); });
    const GuestKey key{asked.id, asked.epoch};
    // Only the home node speaks for its jobs.
    if (from != asked.id.home) return;
    if (aside_.contains(key)) return on_aside(asked, out);
    if (asked.verb == GuestVerb::start || asked.verb == GuestVerb::prepare ||
        asked.verb == GuestVerb::keep)
        return on_start(from, asked, warrant, out);
    GuestCommand c = asked;
    Entry* e = entry(key);
    // also if a start comes late
    if (!e && c.verb == GuestVerb::kill)
        return refuse(key, Cause(CauseCode::killed, "ended before it began"), out);
    if (!e) return tell_unknown(key, out);
    if (e->in<state::Closing>()) return;  // its end is under way and will be told
    if (auto may = admit(from, c, warrant, out); !may)
        return may_not_send(*e, caused_by(CauseCode::ticket_refused, may.error()), out);
    switch (c.verb) {
        case GuestVerb::query: return tell(*e, out);
        case GuestVerb::prepare_dump: return on_prepare_dump(*e, c, out);
        case GuestVerb::ship: return on_ship(*e, c, out);
        case GuestVerb::freeze: return on_freeze(*e, c, out);
        case GuestVerb::commit: return on_commit(*e, out);
        case GuestVerb::resume:
            if (c.not_restored) note_not_restored(*e);
            return on_resume(*e, out);
        case GuestVerb::release: return on_release(*e, out);
        case GuestVerb::restore_here: return on_restore_here(*e, c, out);
        case GuestVerb::drop: return on_drop(*e, out);
        case GuestVerb::kill: return on_kill(*e, out);
        case GuestVerb::signal:
            if (Do effect{What::signal, key, {}, {}, c.signal}; takes_signals(*e)) {
                effect.to_all = c.to_all;
                out.push_back(std::move(effect));
            }
            return;
        case GuestVerb::checkpoint: return on_checkpoint(*e, c, out);
        case GuestVerb::start:
        case GuestVerb::keep:
        case GuestVerb::prepare: return;
    }
}

void Guest::not_read(const NodeName& from, const GuestKey& key, Trouble why, Outputs& out) {
    GuestCommand c;
    c.id = key.id;
    c.epoch = key.epoch;
    const Scene scene(*this, &out, [&] { return trace_command(from, c); });
    if (from != key.id.home || aside_.contains(key)) return;
    Entry* const e = entry(key);
    if (!e) return refuse(key, std::move(why), out);
    if (!e->in<state::Closing>()) may_not_send(*e, std::move(why), out);
}

void Guest::on_aside(const GuestCommand& c, Outputs& out) {
    if (c.verb != GuestVerb::kill && c.verb != GuestVerb::drop) return;
    const GuestKey key{c.id, c.epoch};
    aside_.erase(key);
    leaving_.insert(key);
    out.push_back(Do{What::remove, key, {}, {}, 0, false});
    out.push_back(Erase{key});
    tell_unknown(key, out);
}

void Guest::on_start(const NodeName& from, const GuestCommand& asked, const Warrant& warrant,
                     Outputs& out) {
    GuestCommand c = asked;
    const GuestKey key{c.id, c.epoch};
    if (const Entry* known = entry(key)) {
        if (!known->in<state::Closing>()) tell(*known, out);
        return;
    }
    const bool kept = c.verb == GuestVerb::keep;
    if (!accepting_ && !kept) return refuse(key, why_not_.or_code(CauseCode::off_market), out);
    if (jobs_.size() >= jobs_max_) return refuse(key, because(CauseCode::too_many_jobs), out);
    // Its answer was lost, and its home asks for the very same again.
    if (leaving_.contains(key)) return refuse(key, because(CauseCode::being_removed), out);
    if (auto may = admit(from, c, warrant, out); !may)
        return refuse(key, caused_by(CauseCode::ticket_refused, may.error()), out);
    Entry e;
    e.source = c.source;
    e.job.key = key;
    e.job.spec = c.spec;
    e.job.memory_mb = c.memory_mb;
    e.job.cpus = c.cpus;
    e.job.from_image = c.verb != GuestVerb::start;
    e.job.kept = kept;
    const Entry& entry = jobs_.emplace(key, std::move(e)).first->second;
    if (leased(entry)) need_heartbeat(key.id.home);
    // A capsule without a record is ended at the next start, and the home node asks again.
    out.push_back(Persist{entry.job, Durable::later});
    effect(entry, kept ? What::make_place : What::create_capsule, out);
}

// The home node makes one at a time, and none while it moves or freezes the job: what is under way
// here is left over.
void Guest::on_checkpoint(Entry& e, const GuestCommand& c, Outputs& out) const {
    if (e.in<state::Frozen>()) return send_image(e, c, out);
    auto* r = e.in<Running>();
    if (!r || r->want == Want::keep || r->retained) return tell(e, out);
    if (r->want == Want::cut) {
        if (r->cut != Cut::checkpoint || r->cut_number != c.new_epoch || c.cut != Cut::none)
            return tell(e, out);
        return save_is_made(e, *r, out);  // the others stand, too
    }
    // That word came before, and it has gone on: another dump would be of another time.
    if (c.cut == Cut::none && r->cut_number == c.new_epoch) return tell(e, out);
    r->cut = c.cut;
    if (c.cut != Cut::none) r->cut_number = c.new_epoch;
    e.checkpoint.epoch = c.new_epoch;
    e.checkpoint.dest = {c.dest, c.dest_address};
    want(e, Want::save, out);
}

void Guest::on_prepare_dump(Entry& e, const GuestCommand& c, Outputs& out) const {
    auto* r = e.in<Running>();
    if (r && r->want == Want::cut && c.cut == r->cut && c.new_epoch == r->cut_number)
        return tell(e, out);
    if (r) r->cut = c.cut;
    want(e, Want::ready, out);
}

// The candidate owns the job. What is held here dies, and its complete image stays until the home
// node drops it; without an image it stays itself. A job that is not held has gone on since:
// refused, and the home node takes the decision back.
void Guest::on_commit(Entry& e, Outputs& out) const {
    const auto* held = e.moves<motion::Held>();
    if (!held || held->by != motion::Held::By::dump) return tell(e, out);
    auto& r = *e.in<Running>();
    if (r.want == Want::cut && r.cut == Cut::checkpoint) return tell(e, out);
    if (held->image != motion::Held::Image::whole) {
        r.retained = true;
        e.why.clear();
        return tell(e, out);
    }
    e.job.state = GuestState::frozen;
    out.push_back(Persist{e.job, r.shipped_kept ? Durable::soon : Durable::now});
    end_capsule(e, Ending::to_frozen, What::finish_dump, out);
}

void Guest::on_resume(Entry& e, Outputs& out) const {
    auto* r = e.in<Running>();
    if (!r) return tell(e, out);
    if (still_over(e, out)) return;
    want_now(*r, Want::run);
    r->cut = Cut::none;
    e.why.clear();
    if (r->in<motion::Steady>()) return now_running(e, *r, out);
    drive(e, out);
}

void Guest::on_release(Entry& e, Outputs& out) {
    using Release = state::Held::Release;
    auto* s = e.in<state::Starting>();
    if (s && s->step == state::Starting::Step::held) return on_release_held(e, *s, out);
    auto* h = e.in<state::Held>();
    if (!h) return tell(e, out);
    if (h->release == Release::under_way) return still_over(e, out) ? void() : tell(e, out);
    h->release = may_begin(e) ? Release::under_way : Release::waits;
    if (h->release == Release::waits) return need_heartbeat(e.job.key.id.home);
    keep_lease(e, out);
    GuestJob told = e.job;  // `held` on disk means: was told to run
    if (!h->whole) told.state = GuestState::filling;
    out.push_back(Persist{std::move(told)});
    effect(e, What::finish_restore, out);
}

void Guest::on_kill(Entry& e, Outputs& out) const {
    // That end does not count: its home has the job elsewhere, or back at an earlier moment.
    if (e.in<state::Ended>() && e.job.state == GuestState::exited) effect(e, What::silence, out);
    if (e.in<state::Failed>() || e.in<state::Ended>()) return tell(e, out);
    if (e.in<state::Frozen>()) {
        effect(e, What::silence, out);  // nor is what was sent to it sent after it
        end_as(e, GuestState::killed);
        out.push_back(Persist{e.job});
        return tell(e, out);
    }
    auto* r = e.in<Running>();
    if (r && !e.lease.over() &&
        (r->in<motion::Making>() || r->in<motion::Undoing>() || stops_in_place(*r))) {
        r->want = Want::kill;
        return;
    }
    const auto* h = e.in<state::Held>();
    const bool ran =
        r || e.in<state::Filling>() || (h && h->release == state::Held::Release::under_way);
    end_capsule(e, e.job.from_image && !ran ? Ending::to_dropped : Ending::to_killed,
                e.moves<motion::Held>() ? What::finish_dump : What::kill_capsule, out);
}

void Guest::on_drop(Entry& e, Outputs& out) {
    const GuestKey key = e.job.key;
    const auto* r = e.in<Running>();
    if (e.in<state::Failed>())
        jobs_.erase(key);
    else if (e.in<state::Frozen>() || e.in<state::Ended>())
        erase(key, out);
    else if (r && spare(*r))
        return end_capsule(e, Ending::to_dropped, What::kill_capsule, out);
    else
        return tell(e, out);
    tell_unknown(key, out);
}

}  // namespace souk
