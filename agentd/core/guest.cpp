// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/guest.hpp"

#include <algorithm>
#include <utility>

#include "agentd/core/guest_deadlines.hpp"
#include "agentd/core/guest_images.hpp"
#include "agentd/core/guest_jobs.hpp"
#include "agentd/core/guest_recovery.hpp"
#include "agentd/core/guest_starts.hpp"
#include "agentd/core/guest_trace.hpp"
#include "agentd/core/guest_view.hpp"
#include "kernel/base/wait_status.hpp"

namespace souk {

using namespace guest;
using What = Do::What;
using state::Running;

// The parts refer to each other, so they stay where they are when a Guest is moved.
struct Guest::Parts {
    Parts(size_t jobs_max, bool can_stop, OwnerPolicy policy, GuestTickets given)
        : tickets(std::move(given)),
          jobs(jobs_max),
          leases(can_stop, clock),
          owner(can_stop, clock),
          reports(leases, owner),
          dumps(leases, owner, reports, clock),
          starts(jobs, dumps, leases, owner, reports, clock),
          images(dumps, owner, reports),
          deadlines(policy, jobs, owner, dumps, starts, reports),
          recovery(dumps, leases, owner),
          view(jobs, owner, images) {}
    Parts(const Parts&) = delete;
    Parts& operator=(const Parts&) = delete;

    Nanos clock;  // as the shell last said
    GuestTickets tickets;
    GuestJobs jobs;
    GuestLeases leases;
    GuestOwner owner;
    GuestReports reports;
    GuestDumps dumps;
    GuestStarts starts;
    GuestImages images;
    GuestDeadlines deadlines;
    GuestRecovery recovery;
    GuestView view;
};

Guest::Guest(size_t jobs_max, bool can_stop, OwnerPolicy policy, GuestTickets tickets)
    : parts_(std::make_unique<Parts>(jobs_max, can_stop, policy, std::move(tickets))) {}
Guest::~Guest() = default;
Guest::Guest(Guest&&) noexcept = default;
Guest& Guest::operator=(Guest&&) noexcept = default;

// -------------------------------------------------------------------------------------------------
// commands

void Guest::restore_mark(uint64_t mark) { parts_->tickets.restored(mark); }

// Says whether a command may be carried out, and puts into it what its ticket says.
Status Guest::admit(const NodeName& from, GuestCommand& c, const Warrant& warrant, Outputs& out) {
    GuestTickets& tickets = parts_->tickets;
    const uint64_t before = tickets.mark();
    Status may = tickets.admit(from, c, warrant);
    if (tickets.mark() != before) out.push_back(KeepMark{tickets.mark()});
    if (!may || warrant.ticket)
        out.push_back(Audit{{c.id, c.epoch}, from, c.verb, may ? "" : may.error().message});
    return may;
}

void Guest::command(const NodeName& from, const GuestCommand& asked, Outputs& out,
                    const Warrant& warrant) {
    const Scene scene(*this, &out, [&] { return trace_command(from, asked); });
    const GuestKey key{asked.id, asked.epoch};
    // Only the home speaks for its jobs.
    if (from != asked.id.home) return;
    if (parts_->jobs.is_aside(key)) return command_aside(asked, out);
    if (asked.verb == GuestVerb::start || asked.verb == GuestVerb::prepare ||
        asked.verb == GuestVerb::keep)
        return begin(from, asked, warrant, out);
    Entry* const e = parts_->jobs.find(key);
    // The refusal is kept, in case a start comes late.
    if (!e && asked.verb == GuestVerb::kill)
        return parts_->starts.refuse(key, Cause(CauseCode::killed, "ended before it began"), out);
    if (!e) return GuestReports::tell_unknown(key, out);
    if (e->in<state::Closing>()) return;  // its end is under way and will be told
    GuestCommand c = asked;
    if (auto may = admit(from, c, warrant, out); !may)
        return parts_->dumps.refuse(*e, caused_by(CauseCode::ticket_refused, may.error()), out);
    carry_out(*e, c, out);
}

void Guest::carry_out(Entry& e, const GuestCommand& c, Outputs& out) {
    Parts& p = *parts_;
    switch (c.verb) {
        case GuestVerb::query: return p.reports.tell(e, out);
        case GuestVerb::prepare_dump: return p.dumps.prepare_dump(e, c, out);
        case GuestVerb::ship: return p.images.ship(e, c, out);
        case GuestVerb::freeze: return p.dumps.freeze(e, c, out);
        case GuestVerb::commit: return p.dumps.commit(e, out);
        case GuestVerb::resume:
            if (c.not_restored) p.owner.note_not_restored(e);
            return p.dumps.resume(e, out);
        case GuestVerb::release: return p.starts.release(e, out);
        case GuestVerb::restore_here: return restore_here(e, c, out);
        case GuestVerb::drop: return drop(e, out);
        case GuestVerb::kill: return kill(e, out);
        case GuestVerb::signal: return signal(e, c, out);
        case GuestVerb::checkpoint:
            return e.in<state::Frozen>() ? p.images.send_home(e, c, out)
                                         : p.dumps.checkpoint(e, c, out);
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
    if (from != key.id.home || parts_->jobs.is_aside(key)) return;
    Entry* const e = parts_->jobs.find(key);
    if (!e) return parts_->starts.refuse(key, std::move(why), out);
    if (!e->in<state::Closing>()) parts_->dumps.refuse(*e, std::move(why), out);
}

void Guest::command_aside(const GuestCommand& c, Outputs& out) {
    if (c.verb != GuestVerb::kill && c.verb != GuestVerb::drop) return;
    const GuestKey key{c.id, c.epoch};
    parts_->jobs.remove_aside(key, out);
    GuestReports::tell_unknown(key, out);
}

void Guest::begin(const NodeName& from, const GuestCommand& asked, const Warrant& warrant,
                  Outputs& out) {
    Parts& p = *parts_;
    const GuestKey key{asked.id, asked.epoch};
    if (const Entry* known = p.jobs.find(key)) {
        if (!known->in<state::Closing>()) p.reports.tell(*known, out);
        return;
    }
    if (!p.owner.accepting() && asked.verb != GuestVerb::keep)
        return p.starts.refuse(key, p.owner.why_not(), out);
    if (p.jobs.is_full()) return p.starts.refuse(key, because(CauseCode::too_many_jobs), out);
    // The answer was lost, and the home asks for the very same again.
    if (p.jobs.goes(key)) return p.starts.refuse(key, because(CauseCode::being_removed), out);
    GuestCommand c = asked;
    if (auto may = admit(from, c, warrant, out); !may)
        return p.starts.refuse(key, caused_by(CauseCode::ticket_refused, may.error()), out);
    p.starts.begin(c, out);
}

// A signal that comes while a dump is given up waits until CRIU has let the job go. CRIU stops each
// process again that it found stopped, so a SIGCONT waits in any dump.
void Guest::signal(Entry& e, const GuestCommand& c, Outputs& out) {
    constexpr size_t signals_max = 64;
    const state::Signal signal{c.signal, c.to_all};
    auto* r = e.in<Running>();
    const bool in_dump = r && (r->in<motion::Making>() || r->in<motion::Undoing>());
    const bool waits = r && !r->signals.empty();  // those behind it keep their turn
    if (in_dump && (waits || r->want == Want::run || c.signal == SIGCONT)) {
        if (r->signals.size() < signals_max) r->signals.push_back(signal);
    } else if (e.takes_signals()) {
        e.signal(signal, out);
    }
}

void Guest::restore_here(const Entry& source, const GuestCommand& c, Outputs& out) {
    const GuestKey to{c.id, c.new_epoch};
    Entry* const e = parts_->jobs.find(to);
    if (!e) return GuestReports::tell_unknown(to, out);
    GuestStarts::restore_here(source, *e, out);
}

void Guest::kill(Entry& e, Outputs& out) {
    const GuestReports& reports = parts_->reports;
    // That end does not count: the home has the job elsewhere, or back at an earlier moment.
    if (e.in<state::Ended>() && e.job.state == GuestState::exited) e.effect(What::silence, out);
    if (e.in<state::Failed>() || e.in<state::Ended>()) return reports.tell(e, out);
    if (e.in<state::Frozen>()) {
        e.effect(What::silence, out);  // its connections must not send what came to it later
        e.end_as(GuestState::killed);
        out.push_back(Persist{e.job});
        return reports.tell(e, out);
    }
    auto* r = e.in<Running>();
    if (r && !e.lease.over() &&
        (r->in<motion::Making>() || r->in<motion::Undoing>() || r->stops_in_place())) {
        r->want = Want::kill;
        return;
    }
    const auto* h = e.in<state::Held>();
    const bool ran =
        r || e.in<state::Filling>() || (h && h->release == state::Held::Release::under_way);
    e.close(e.job.from_image && !ran ? Ending::to_dropped : Ending::to_killed,
            e.moves<motion::Held>() ? What::finish_dump : What::kill_capsule, out);
}

void Guest::drop(Entry& e, Outputs& out) {
    const GuestKey key = e.job.key;
    const auto* r = e.in<Running>();
    if (e.in<state::Failed>())
        parts_->jobs.forget(key);
    else if (e.in<state::Frozen>() || e.in<state::Ended>())
        parts_->jobs.erase(key, out);
    else if (r && r->is_spare())
        return e.close(Ending::to_dropped, What::kill_capsule, out);
    else
        return parts_->reports.tell(e, out);
    GuestReports::tell_unknown(key, out);
}

// -------------------------------------------------------------------------------------------------
// homes, clock and owner

void Guest::home_up(const NodeName& home, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_home(Input::home_up, home); });
    parts_->leases.need_heartbeat(home);
    parts_->images.home_up(home);
    for (const auto& [key, e] : parts_->jobs.all()) {
        if (key.id.home != home || e.in<state::Closing>()) continue;
        parts_->reports.tell(e, out);
        parts_->reports.expel(e, out);
    }
}

void Guest::home_down(const NodeName& home) {
    const Scene scene(*this, nullptr, [&] { return trace_home(Input::home_down, home); });
    parts_->images.home_down(home);
    parts_->jobs.forget_failed(home);
}

Nanos Guest::tick(Nanos now, Outputs& out) {
    const Scene scene(
        *this, &out, [&] { return trace_in(Input::tick, {}); }, true);
    Parts& p = *parts_;
    p.clock = now;
    if (now >= p.owner.due()) p.deadlines.tick(now, out);
    if (now >= p.leases.due()) {
        for (Entry* const e : p.leases.near_end(now, p.jobs)) p.dumps.lease_ends(*e, out);
        p.leases.send_heartbeats(now, out);
    }
    return std::min(p.leases.due(), p.owner.due());
}

void Guest::heartbeat_answered(const NodeName& home, const Heartbeat& heartbeat, Nanos now,
                               Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_home(Input::heartbeat_answered, home); });
    Parts& p = *parts_;
    p.clock = std::max(p.clock, now);
    if (!p.leases.answered(home, heartbeat, now)) return;
    for (auto& [key, e] : p.jobs.all())
        if (key.id.home == home && p.leases.leased(e) && !e.in<state::Closing>() &&
            p.leases.may_begin(e))
            p.starts.home_answered(e, out);
}

void Guest::set_resources(std::vector<NodeResource> all) {
    parts_->starts.set_resources(std::move(all));
}

void Guest::set_accepting(bool accepting, Trouble why, Outputs& out) {
    const Scene scene(*this, &out,
                      [&] { return trace_in(accepting ? Input::accept : Input::leave, {}, why); });
    Parts& p = *parts_;
    const bool is_news = p.owner.set_accepting(accepting, std::move(why));
    for (auto& [key, e] : p.jobs.all()) {
        e.leaving.tries = 0;
        p.reports.expel(e, out);
        e.leaving.not_sent.clear();
        if (is_news && e.in<state::Frozen>() && !e.job.kept) p.reports.tell(e, out);
        if (!accepting) p.starts.end_held_component(e, out);
    }
}

bool Guest::evict(const JobId& id, Trouble why, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::leave, {id, {}}, why); });
    Parts& p = *parts_;
    bool any = false;
    for (auto& [key, e] : p.jobs.all()) {
        if (key.id != id) continue;
        const auto* r = e.in<Running>();
        any |= r && !r->retained;
        if (!e.evicted()) e.leaving.evicted = p.clock;
        e.leaving.tries = 0;
        p.reports.expel(e, out);
        if (p.owner.image_must_leave(e)) p.reports.tell(e, out);
    }
    p.owner.look_now();
    return any;
}

void Guest::want_memory(const std::vector<GuestKey>& of, Outputs& out) {
    Parts& p = *parts_;
    for (const GuestKey& key : of) {
        const Scene scene(*this, &out, [&] { return trace_in(Input::want_memory, key); });
        Entry* const e = p.jobs.find(key);
        if (!e || !e->in<Running>() || e->is_wanted()) continue;
        e->leaving.wanted = p.clock;
        e->leaving.tries = 0;
        p.reports.expel(*e, out);
    }
    p.owner.look_now();
}

void Guest::want_no_memory() {
    for (auto& [key, e] : parts_->jobs.all()) e.leaving.wanted = Nanos::never();
}

void Guest::set_paused(Cause why, Outputs& out) {
    const Scene scene(*this, &out,
                      [&] { return trace_in(why.empty() ? Input::go_on : Input::pause, {}, why); });
    parts_->owner.set_pause(std::move(why));
    for (auto& [key, e] : parts_->jobs.all())
        if (e.in<Running>()) parts_->owner.settle_pause(e, out);
}

// -------------------------------------------------------------------------------------------------
// events

// Hands each event to the part that acts on it.
struct Guest::Dispatch {
    Guest& guest;
    Parts& p;
    Entry& e;
    Outputs& out;

    void operator()(CapsuleReady&) const { p.starts.on_capsule_ready(e, out); }
    void operator()(CapsuleFailed& x) const { p.starts.on_capsule_failed(e, std::move(x), out); }
    void operator()(JobStarted&) const { p.starts.on_job_started(e, out); }
    void operator()(JobHeld&) const { p.starts.on_job_held(e, out); }
    void operator()(JobNotStarted& x) const { p.starts.on_job_not_started(e, std::move(x), out); }
    void operator()(CriuReady&) const {
        e.in<Running>() ? p.dumps.on_criu_ready(e, out) : p.starts.on_criu_ready(e, out);
    }
    void operator()(CriuFailed& x) const {
        e.in<Running>() ? p.dumps.on_criu_failed(e, std::move(x), out)
                        : p.starts.on_criu_failed(e, std::move(x), out);
    }
    void operator()(SentPrecopy&) const { p.dumps.on_sent_precopy(e, out); }
    void operator()(const DumpFroze& x) const { p.dumps.on_dump_froze(e, x, out); }
    void operator()(const DumpHeld& x) const { p.dumps.on_dump_held(e, x, out); }
    void operator()(DumpFailed& x) const { p.dumps.on_dump_failed(e, std::move(x), out); }
    void operator()(DumpUndone&) const { p.dumps.on_dump_undone(e, out); }
    void operator()(Stood& x) const { p.dumps.on_stood(e, std::move(x), out); }
    void operator()(Shipped&) const { p.images.on_shipped(e, out); }
    void operator()(ShipFailed& x) const { p.images.on_ship_failed(e, std::move(x), out); }
    void operator()(const ImageReceived& x) const { p.starts.on_image_received(e, x, out); }
    void operator()(ImageFailed& x) const { p.starts.on_image_failed(e, std::move(x), out); }
    void operator()(CheckpointSent&) const { p.dumps.on_checkpoint_sent(e, out); }
    void operator()(CheckpointFailed& x) const {
        p.dumps.on_checkpoint_failed(e, std::move(x), out);
    }
    void operator()(PagesWhole&) const { p.starts.on_pages_whole(e, out); }
    void operator()(PagesLost& x) const { p.starts.on_pages_lost(e, std::move(x), out); }
    void operator()(RestoreHeld&) const { p.starts.on_restore_held(e, out); }
    void operator()(RestoreFailed& x) const { p.starts.on_restore_failed(e, std::move(x), out); }
    void operator()(RestoreRunning&) const { p.starts.on_restore_running(e, out); }
    void operator()(CapsuleGone&) const { p.starts.on_capsule_gone(e, out); }
    void operator()(Exited& x) const { p.starts.on_exited(e, std::move(x), out); }
    void operator()(const Lapsed& x) const { p.dumps.on_lapsed(e, x, out); }
    void operator()(const LeaseFound& x) const { p.leases.found(e, x.until); }
    void operator()(Movable& x) const { guest.movable(e, std::move(x), out); }
    void operator()(const Stopped& x) const { guest.stopped(e, x, out); }
    void operator()(const Paused& x) const { guest.paused(e, x, out); }
    // The job is removed, and no entry of its key tells anything.
    void operator()(Removed&) const {}
};

void Guest::ended(const GuestKey& key, Event event, Outputs& out) {
    const Input input = input_of(event);
    const Scene scene(
        *this, &out, [&] { return trace_in(input, key, text_of(event)); }, input == Input::movable);
    if (input == Input::removed) parts_->jobs.has_gone(key);
    Entry* const e = parts_->jobs.find(key);
    if (!e) return;
    const Dispatch dispatch{*this, *parts_, *e, out};
    std::visit(
        [&](auto& happened) {
            if constexpr (requires { happened.otherwise; })
                happened.why = happened.why.or_code(happened.otherwise);
            dispatch(happened);
        },
        event);
}

void Guest::movable(Entry& e, Movable x, Outputs& out) {
    if (e.leaving.looked == x.why_not) return;
    e.leaving.looked = std::move(x.why_not);
    parts_->owner.look_now();
    if (e.in<Running>() && e.job.state == GuestState::running) parts_->reports.tell(e, out);
}

void Guest::stopped(Entry& e, const Stopped& x, Outputs& out) {
    if (e.stopped == x.is_stopped) return;
    e.stopped = x.is_stopped;
    if (e.job.state == GuestState::running) parts_->reports.tell(e, out);
}

void Guest::paused(Entry& e, const Paused& x, Outputs& out) {
    if (!e.in<Running>() || x.on != e.pause_asked) return;  // a newer word is on its way
    e.paused = x.on && x.why.empty() ? parts_->owner.pause() : Cause();
    if (e.job.state == GuestState::running || e.job.state == GuestState::dump_ready)
        parts_->reports.tell(e, out);
}

void Guest::recovered(GuestJob job, const Found& found, Outputs& out) {
    const Scene scene(*this, &out,
                      [&] { return trace_in(Input::recovered, job.key, to_string(job.state)); });
    Entry& e = parts_->jobs.add_anew(job.key);
    e.job = std::move(job);
    parts_->recovery.take_up(e, found, out);
}

void Guest::stray(const GuestKey& key) {
    const Scene scene(*this, nullptr, [&] { return trace_in(Input::stray, key); });
    parts_->jobs.is_going(key);
}

void Guest::set_aside(const GuestKey& key) { parts_->jobs.set_aside(key); }

// -------------------------------------------------------------------------------------------------
// views

const GuestJob* Guest::find(const GuestKey& key) const {
    const Entry* const e = parts_->jobs.find(key);
    return e ? &e->job : nullptr;
}

bool Guest::expects_image(const GuestKey& key) const {
    const Entry* const e = parts_->jobs.find(key);
    return e && e->in<state::Prepared>();
}

bool Guest::takes_image_from(const GuestKey& key, const NodeName& sender) const {
    if (!expects_image(key)) return false;
    const NodeName& source = parts_->jobs.find(key)->source;
    return source.empty() || source == sender;
}

void Guest::describe(const GuestKey& key, Nanos now, JsonWriter& j) const {
    if (const Entry* const e = parts_->jobs.find(key)) parts_->view.describe(*e, now, j);
}

bool Guest::is_to_leave(const GuestKey& key, const NodeName& self) const {
    const Entry* const e = parts_->jobs.find(key);
    return e && parts_->images.is_to_leave(*e, self);
}

std::string Guest::image_waits(const GuestKey& key, const NodeName& self) const {
    const Entry* const e = parts_->jobs.find(key);
    return !e || key.id.home == self ? std::string() : parts_->images.wait_text(*e);
}

std::vector<MemoryWish::Standing> Guest::standing() const { return parts_->view.standing(); }
bool Guest::any_paused() const { return parts_->view.any_paused(); }
bool Guest::any_leaves() const { return parts_->view.any_leaves(); }
std::vector<Left> Guest::left() const { return parts_->view.left(); }
Here Guest::here(const NodeName& self) const { return parts_->view.here(self); }
const std::map<GuestKey, Entry>& Guest::all() const { return parts_->jobs.all(); }

TraceLine Guest::trace_of(const Output& output) { return trace_output(output); }

void Guest::trace_state(const JobId& id, Epoch epoch) {
    if (id.home.empty()) return;
    const GuestKey key{id, epoch};
    const Entry* const e = parts_->jobs.find(key);
    tracer_.tell_state(key.text(), e ? trace_entry(*e) : trace_gone(key));
}

}  // namespace souk
