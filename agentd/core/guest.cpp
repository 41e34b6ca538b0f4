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
    return it != jobs_.end() && it->second.job.state == GuestState::prepared &&
           !it->second.restoring && it->second.ending == Ending::none;
}

void Guest::tell(const Entry& e, Outputs& out) const {
    GuestEvent event;
    event.id = e.job.key.id;
    event.epoch = e.job.key.epoch;
    event.state = e.retained && runs(e) ? GuestState::retained : e.job.state;
    event.wait_status = e.job.wait_status;
    event.image_bytes = e.job.image_bytes;
    event.why = e.why;
    event.stopped = e.stopped;
    event.in_place = e.in_place && runs(e);
    if (event.in_place) event.cannot_move = e.why;
    if (event.state == GuestState::running && immovable(e)) event.cannot_move = why_immovable(e);
    if (event.state == GuestState::dumping) event.forecast = e.forecast;
    event.error = e.error;
    event.program_error = e.program_error;
    event.leased = leased(e);
    if (e.firm && !e.stands && e.want == Want::ship && runs(e)) event.held_for = e.ship_epoch;
    event.lapsed = e.stands || (event.state == GuestState::frozen && e.job.lapsed);
    // Stopped in the middle of a dump: as what stands.
    if (e.over && e.dump != Entry::Dump::held && runs(e)) {
        event.state = GuestState::dumping;
        event.lapsed = true;
        event.why = stands_still;
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
    const bool criu = what == What::ready_criu;
    out.push_back(Do{what, e.job.key, {}, {}, 0, criu && e.to_disk, criu && e.to_keep});
}

// The owner wants it to leave; only what runs can be asked to.
void Guest::expel(const Entry& e, Outputs& out) const {
    if (!accepting_ && runs(e) && !e.retained && !e.in_place)
        out.push_back(ToHome{e.job.key.id.home, Expel{e.job.key.id, e.job.key.epoch}, false});
}

void Guest::end_capsule(Entry& e, Ending ending, What how, Outputs& out) const {
    if (e.ending != Ending::none) return;
    e.ending = ending;
    effect(e, how, out);
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
void Guest::failed(Entry& e, Outputs& out) {
    if (e.job.state != GuestState::failed) remove(e, out);
    const GuestKey key = e.job.key;
    const std::string why = e.why;
    const int32_t error = e.error;
    const bool program_error = e.program_error;
    e = Entry{};
    e.job.key = key;
    e.job.state = GuestState::failed;
    e.why = why;
    e.error = error;
    e.program_error = program_error;
    tell(e, out);
}

void Guest::refuse(const GuestKey& key, std::string why, Outputs& out) {
    // not even room to remember a refusal: the home node asks again
    if (jobs_.size() >= 2 * jobs_max_) return;
    Entry e;
    e.job.key = key;
    e.job.state = GuestState::failed;
    e.why = std::move(why);
    tell(jobs_.emplace(key, std::move(e)).first->second, out);
}

void Guest::set_accepting(bool accepting, std::string why, Outputs& out) {
    const Scene scene(*this, &out,
                      [&] { return trace_in(accepting ? Input::accept : Input::leave, {}, why); });
    off_since_ = accepting ? Nanos::never() : accepting_ ? clock_ : std::min(off_since_, clock_);
    accepting_ = accepting;
    owner_due_ = {};
    why_not_ = std::move(why);
    for (auto& [key, e] : jobs_) {
        e.leave_tries = 0;
        expel(e, out);
    }
}

void Guest::home_up(const NodeName& home, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_home(Input::home_up, home); });
    need_beat(home);
    for (const auto& [key, e] : jobs_) {
        if (key.id.home != home || e.ending != Ending::none) continue;
        tell(e, out);
        expel(e, out);
    }
}

void Guest::home_down(const NodeName& home) {
    const Scene scene(*this, nullptr, [&] { return trace_home(Input::home_down, home); });
    std::erase_if(jobs_, [&](const auto& j) {
        return j.first.id.home == home && j.second.job.state == GuestState::failed;
    });
}

void Guest::command(const NodeName& from, const GuestCommand& c, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_command(from, c); });
    const GuestKey key{c.id, c.epoch};
    // Only the home node speaks for its jobs.
    if (from != c.id.home) return;
    if (c.verb == GuestVerb::start || c.verb == GuestVerb::prepare || c.verb == GuestVerb::keep)
        return on_start(c, out);
    Entry* e = entry(key);
    // also if a start comes late
    if (!e && c.verb == GuestVerb::kill) return refuse(key, "ended before it began", out);
    if (!e) return tell_unknown(key, out);
    if (e->ending != Ending::none) return;  // its end is under way and will be told
    switch (c.verb) {
        case GuestVerb::query: return tell(*e, out);
        case GuestVerb::prepare_dump: return want(*e, Want::ready, out);
        case GuestVerb::ship: return on_ship(*e, c, out);
        case GuestVerb::freeze: return on_freeze(*e, c, out);
        case GuestVerb::commit: return on_commit(*e, out);
        case GuestVerb::resume: return on_resume(*e, out);
        case GuestVerb::release: return on_release(*e, out);
        case GuestVerb::restore_here: return on_restore_here(*e, c, out);
        case GuestVerb::drop: return on_drop(*e, out);
        case GuestVerb::kill: return on_kill(*e, out);
        case GuestVerb::signal:
            if (e->job.state == GuestState::running || e->job.state == GuestState::dump_ready)
                out.push_back(Do{What::signal, key, {}, {}, c.signal, false});
            return;
        case GuestVerb::checkpoint: return on_checkpoint(*e, c, out);
        case GuestVerb::start:
        case GuestVerb::keep:
        case GuestVerb::prepare: return;
    }
}

void Guest::on_start(const GuestCommand& c, Outputs& out) {
    const GuestKey key{c.id, c.epoch};
    if (const Entry* known = entry(key)) {
        if (known->ending == Ending::none) tell(*known, out);
        return;
    }
    const bool kept = c.verb == GuestVerb::keep;
    if (!accepting_ && !kept) return refuse(key, why_not_, out);
    if (jobs_.size() >= jobs_max_) return refuse(key, "the node holds too many jobs", out);
    // Its answer was lost, and its home asks for the very same again.
    if (leaving_.contains(key))
        return refuse(key, "what is left of its last start there is being removed", out);
    Entry e;
    e.job.key = key;
    e.job.spec = c.spec;
    e.job.memory_mb = c.memory_mb;
    e.job.cpus = c.cpus;
    e.job.from_image = c.verb != GuestVerb::start;
    e.job.kept = kept;
    const Entry& entry = jobs_.emplace(key, std::move(e)).first->second;
    if (leased(entry)) need_beat(key.id.home);
    // A capsule without a record is ended at the next start, and the home node asks again.
    out.push_back(Persist{entry.job, Durable::later});
    effect(entry, kept ? What::make_place : What::create_capsule, out);
}

// One step from where the job is towards what is wanted of it. Does nothing while an effect is
// under way whose end comes back here.
void Guest::drive(Entry& e, Outputs& out) const {
    if (!runs(e) || e.ending != Ending::none || e.undoing || e.standing) return;
    if (e.dump == Entry::Dump::making || e.criu == Entry::Criu::coming) return;
    if (e.over && !e.kill_asked && e.dump == Entry::Dump::none && e.criu == Entry::Criu::none) {
        stand(e);
        return tell(e, out);
    }
    const bool held = e.dump == Entry::Dump::held;
    // called off if something else is wanted by now
    if (e.dump == Entry::Dump::ahead && !e.kill_asked) {
        if (e.want != Want::ship || e.ahead_epoch != e.ship_epoch) undo(e, out);
        return;
    }
    if (e.kill_asked)
        return end_capsule(e, Ending::to_killed, held ? What::finish_dump : What::kill_capsule,
                           out);
    if (held) {
        if (e.want != Want::ship && e.want != Want::keep) undo(e, out);
        return;
    }
    const bool to_disk = e.want == Want::freeze, to_keep = e.want == Want::save;
    const bool wants_criu = e.want != Want::run && e.want != Want::keep;
    const bool other = e.to_disk != to_disk || e.to_keep != to_keep;
    if (e.criu == Entry::Criu::ready && (!wants_criu || other)) return undo(e, out);
    if (!wants_criu) return;
    drop_checkpoint(e, out);
    if (to_disk && e.or_stand && can_stop_ && e.criu == Entry::Criu::none && immovable(e))
        return begin_stand(e, out);
    if (e.criu == Entry::Criu::none) {
        e.criu = Entry::Criu::coming;
        e.to_disk = to_disk;
        e.to_keep = to_keep;
        return effect(e, What::ready_criu, out);
    }
    if (e.want == Want::ready) {
        e.job.state = GuestState::dump_ready;
        return tell(e, out);
    }
    const bool moves = !to_disk && !to_keep;
    e.dump = moves ? Entry::Dump::ahead : Entry::Dump::making;
    e.ahead_epoch = e.ship_epoch;
    if (!moves) return effect(e, to_disk ? What::dump_to_disk : What::dump_to_keep, out);
    out.push_back(Do{What::send_ahead, e.job.key, e.ship_epoch, e.ship_dest, 0, false});
}

// prepare_dump, freeze. Silent while under way: its end is told.
void Guest::want(Entry& e, Want want, Outputs& out) const {
    if (!runs(e)) return tell(e, out);
    if (e.over) return on_resume(e, out);  // when it runs again, the home node says it again
    e.why.clear();
    e.want = want;
    drive(e, out);
}

// What was wanted cannot be: the job goes on, and the home node hears why.
void Guest::want_failed(Entry& e, std::string why, bool of_job, Outputs& out) const {
    e.criu = Entry::Criu::none;
    e.dump = Entry::Dump::none;
    e.firm = false;
    if (!runs(e)) return;
    take_back_shipped(e, out);
    e.job.state = GuestState::running;
    if (e.kill_asked) return drive(e, out);
    const Want wanted = std::exchange(e.want, Want::run);
    if (wanted != Want::run && of_job) note_trouble(e, why);
    if (wanted != Want::run) e.why = std::move(why);
    if (wanted == Want::freeze && e.or_stand && !e.over && !e.early_exit && !e.gone) {
        if (can_stop_) return begin_stand(e, out);
        if (e.stood_at.ns == 0) e.stood_at = clock_;
        owner_due_ = {};
    }
    now_running(e, out);
    if (!e.stands) e.why.clear();
}

// The job goes on, so its image is not the job.
void Guest::take_back_shipped(Entry& e, Outputs& out) const {
    if (!std::exchange(e.shipped_kept, false)) return;
    GuestJob running = e.job;
    running.state = GuestState::running;
    out.push_back(Persist{std::move(running)});
}

// Of no more use: something else is made of the job now, or it has come to its home.
void Guest::drop_checkpoint(Entry& e, Outputs& out) const {
    if (std::exchange(e.save, Entry::Save::none) != Entry::Save::none)
        effect(e, What::drop_checkpoint, out);
}

// The home node makes one at a time, and none while it moves or freezes the job: what is under way
// here is left over.
void Guest::on_checkpoint(Entry& e, const GuestCommand& c, Outputs& out) const {
    if (!runs(e) || e.want == Want::keep || e.retained) return tell(e, out);
    e.save_epoch = c.new_epoch;
    e.save_dest = {c.dest, c.dest_address};
    want(e, Want::save, out);
}

void Guest::undo(Entry& e, Outputs& out, What how) const {
    e.undoing = true;
    e.criu = Entry::Criu::none;
    e.dump = Entry::Dump::none;
    e.shipping = e.ship_again = e.image_lost = e.live = e.firm = e.retained = e.stands = false;
    go_off_stand(e, out);
    take_back_shipped(e, out);
    effect(e, how, out);
}

void Guest::ship_now(Entry& e, Outputs& out) const {
    e.shipping = true;
    e.ship_again = false;
    out.push_back(Do{What::ship, e.job.key, e.ship_epoch, e.ship_dest, 0, false});
}

void Guest::on_ship(Entry& e, const GuestCommand& c, Outputs& out) const {
    const bool frozen = e.job.state == GuestState::frozen;
    if (!runs(e) && !frozen) return tell(e, out);
    if (e.want == Want::keep) return tell(e, out);  // the home node gives that move up
    const bool same = e.ship_epoch == c.new_epoch;
    e.retained = false;  // another destination, so another decision
    e.ship_epoch = c.new_epoch;
    e.ship_dest = {c.dest, c.dest_address};
    if (frozen || e.dump == Entry::Dump::held) {
        if (e.shipping) {
            e.ship_again = e.ship_again || !same;
        } else if (e.job.state != GuestState::shipped || !same) {
            e.why.clear();
            ship_now(e, out);
        }
        return;
    }
    e.why.clear();
    e.want = Want::ship;
    drive(e, out);
}

void Guest::on_restore_here(Entry& source, const GuestCommand& c, Outputs& out) {
    const GuestKey to{c.id, c.new_epoch};
    Entry* e = entry(to);
    if (!e) return tell_unknown(to, out);
    if (source.job.state != GuestState::frozen || !expects_image(to)) return;
    e->restoring = true;
    e->job.state = GuestState::starting;
    out.push_back(Do{What::restore_local, to, c.epoch, {}, 0, false});
}

// The candidate owns the job. What is held here dies, and its complete image stays until the home
// node drops it; without an image it stays itself. A job that is not held has gone on since:
// refused, and the home node takes the decision back.
void Guest::on_commit(Entry& e, Outputs& out) const {
    if (!runs(e) || e.dump != Entry::Dump::held || e.stands || e.in_place) return tell(e, out);
    if (e.live || e.image_lost) {
        e.retained = true;
        e.why.clear();
        return tell(e, out);
    }
    e.job.state = GuestState::frozen;
    out.push_back(Persist{e.job, e.shipped_kept ? Durable::soon : Durable::now});
    end_capsule(e, Ending::to_frozen, What::finish_dump, out);
}

void Guest::on_resume(Entry& e, Outputs& out) const {
    if (!runs(e)) return tell(e, out);
    if (still_over(e, out)) return;
    e.want = Want::run;
    e.why.clear();
    if (e.dump == Entry::Dump::none && e.criu == Entry::Criu::none && !e.undoing && !e.standing)
        return now_running(e, out);
    drive(e, out);
}

void Guest::on_release(Entry& e, Outputs& out) {
    if (e.job.state != GuestState::held) return tell(e, out);
    if (e.releasing) return still_over(e, out) ? void() : tell(e, out);
    e.release_waits = !may_begin(e);
    if (e.release_waits) return need_beat(e.job.key.id.home);
    keep_lease(e, out);
    e.releasing = true;
    GuestJob told = e.job;  // `held` on disk means: was told to run
    if (!e.whole) told.state = GuestState::filling;
    out.push_back(Persist{std::move(told)});
    effect(e, What::finish_restore, out);
}

void Guest::on_kill(Entry& e, Outputs& out) const {
    switch (e.job.state) {
        case GuestState::failed:
        case GuestState::exited:
        case GuestState::killed: return tell(e, out);
        case GuestState::frozen:
            e.job.state = GuestState::killed;
            out.push_back(Persist{e.job});
            return tell(e, out);
        default: break;
    }
    if ((e.dump == Entry::Dump::making || e.undoing || e.standing) && !e.over) {
        e.kill_asked = true;
        return;
    }
    const bool never_ran =
        e.job.from_image && !e.releasing && !runs(e) && e.job.state != GuestState::filling;
    end_capsule(e, never_ran ? Ending::to_dropped : Ending::to_killed,
                e.dump == Entry::Dump::held ? What::finish_dump : What::kill_capsule, out);
}

void Guest::on_drop(Entry& e, Outputs& out) {
    const GuestKey key = e.job.key;
    const GuestState s = e.job.state;
    if (s == GuestState::failed)
        jobs_.erase(key);
    else if (s == GuestState::frozen || s == GuestState::exited || s == GuestState::killed)
        erase(key, out);
    else if (spare(e))
        return end_capsule(e, Ending::to_dropped, What::kill_capsule, out);
    else
        return tell(e, out);
    tell_unknown(key, out);
}

}  // namespace souk
