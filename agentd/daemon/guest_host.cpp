// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/guest_host.hpp"

#include "agentd/store/records.hpp"
#include "agentd/wire/codec.hpp"
#include "checkpoint/criu.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {
namespace {

constexpr uint64_t look_ticks = 60;

}  // namespace

// -------------------------------------------------------------------------------------------------
// the machine

void GuestHost::step(const std::function<void(Guest&, guest::Outputs&)>& step) {
    guest::Outputs out;
    (void)guest_.tick(Loop::now(), out);
    step(guest_, out);
    for (guest::Output& o : out) apply(o);
    tick();
    listener_.guests_stepped();
}

// The machine says when it wants to be called next; each step may change that.
void GuestHost::tick() {
    guest::Outputs out;
    const Nanos next = guest_.tick(Loop::now(), out);
    for (guest::Output& o : out) apply(o);
    timer_.cancel();
    if (next == Nanos::never()) return;
    timer_ = loop_.at(next, [this] {
        tick();
        listener_.guests_stepped();
    });
}

void GuestHost::apply(guest::Output& output) {
    if (auto* p = std::get_if<guest::Persist>(&output))
        return commits_.put("guest", p->job.key.text(), wire::pack(p->job), p->when);
    if (auto* e = std::get_if<guest::Erase>(&output)) {
        commits_.forget_aside("guest", e->key.text());
        return commits_.erase("guest", e->key.text(), Durable::later);
    }
    if (auto* h = std::get_if<guest::ToHome>(&output)) {
        if (!h->after_erase || !commits_.erases_wait()) return to_home(h->home, h->message);
        return commits_.after_erases([this, home = h->home, message = h->message] {
            const auto* e = std::get_if<GuestEvent>(&message);
            // it has come since, and that has been told
            if (e && guest_.find({e->id, e->epoch})) return;
            to_home(home, message);
        });
    }
    if (auto* m = std::get_if<guest::KeepMark>(&output))
        return commits_.put("ticket", "mark", std::to_string(m->mark), m->when);
    if (auto* a = std::get_if<guest::Audit>(&output)) return audit(*a);
    commits_.then([this, effect = std::get<guest::Do>(output)] { carry_out(effect); });
}

// One line for each ticket that is shown, and for each command that needs one, a few a minute.
void GuestHost::audit(const guest::Audit& word) {
    const bool good = word.why.empty();
    Fields fields{{"JOB", word.key.id.text()},
                  {"EPOCH", word.key.epoch.n},
                  {"NODE", word.from},
                  {"verb", to_string(word.verb)}};
    if (!good) fields.emplace_back("WHY", word.why);
    log_.limited(good ? "ticket" : "ticket " + word.from, Loop::now(),
                 good ? Level::info : Level::warning,
                 good ? "a ticket is taken" : "a command was refused", fields);
}

// -------------------------------------------------------------------------------------------------
// homes

void GuestHost::home_up(const NodeName& node) {
    step([&](Guest& g, guest::Outputs& out) { g.home_up(node, out); });
    // What it was not there to take; its first word may be another than a query.
    resync(node);
}

void GuestHost::resync(const NodeName& home) {
    for (const auto& [key, c] : cells_)
        if (key.id.home == home) c->resync();
}

std::optional<Nanos> GuestHost::cpu_time(const GuestKey& key) const {
    const auto c = cells_.find(key);
    if (c == cells_.end()) return std::nullopt;
    return load_.cpu_time(c->second->cgroup_name());
}

std::optional<LoadSample> GuestHost::load(const GuestKey& key) const {
    const auto c = cells_.find(key);
    if (c == cells_.end()) return std::nullopt;
    return load_.load(c->second->cgroup_name());
}

std::optional<Nanos> GuestHost::memory_stall(const GuestKey& key) const {
    const auto c = cells_.find(key);
    if (c == cells_.end()) return std::nullopt;
    return load_.memory_stall(c->second->cgroup_name());
}

std::vector<JobSend> GuestHost::sends() const {
    std::vector<JobSend> all;
    precopy_->progress(Loop::now(), all);
    transfers_->progress(Loop::now(), all);
    for (const auto& [key, cell] : cells_)
        if (const auto p = cell->writing(Loop::now()))
            all.push_back({key.id, key.epoch, node_, p->written, p->bytes, p->span});
    return all;
}

Status GuestHost::from_image(uint64_t number, const NodeName& node, const wire::Frame& f) {
    if (GuestFiles::takes(f)) return files_->frame(number, node, f);
    return PrecopyLinks::takes(f) ? precopy_->frame(number, node, f)
                                  : transfers_->frame(number, node, f);
}

void GuestHost::image_closed(uint64_t number) {
    transfers_->closed(number);
    precopy_->closed(number);
    files_->closed(number);
}

pid_t GuestHost::pid(const GuestKey& key) const {
    const auto c = cells_.find(key);
    return c == cells_.end() ? 0 : c->second->pid();
}

void GuestHost::node_bound(bool on) {
    for (const auto& [key, c] : cells_) c->node_bound(on);
}

void GuestHost::look(uint64_t tick) {
    size_t n = 0;
    for (const auto& [key, c] : cells_) {
        const bool due = c->look_is_due();
        if (n++ % look_ticks == tick % look_ticks || due) c->look();
    }
}

Status GuestHost::from_home(const NodeName& node, const wire::Frame& f) {
    switch (f.type) {
        case wire::frame::guest_command: {
            auto command = wire::unpack<GuestCommand>(f.body);
            if (!command) return refuse_unread(node, f.body, command.error());
            this->command(node, std::move(*command));
            return {};
        }
        case wire::frame::stdio_ack: {
            TRY_ASSIGN(const wire::StdioAck ack, wire::unpack<wire::StdioAck>(f.body));
            if (ack.id.home == node) stdio_ack(ack);
            return {};
        }
        case wire::frame::stdio_input: {
            TRY_ASSIGN(const wire::StdioInput input, wire::unpack<wire::StdioInput>(f.body));
            if (input.id.home == node) stdio_input(input);
            return {};
        }
        case wire::frame::stdio_winch: {
            TRY_ASSIGN(const wire::StdioWinch winch, wire::unpack<wire::StdioWinch>(f.body));
            if (winch.id.home == node) stdio_winch(winch);
            return {};
        }
        case wire::frame::heartbeat: {
            TRY_ASSIGN(const Heartbeat heartbeat, wire::unpack<Heartbeat>(f.body));
            step([&](Guest& g, guest::Outputs& out) {
                g.heartbeat_answered(node, heartbeat, Loop::now(), out);
            });
            return {};
        }
        default:
            return fail("a home does not send frames of type " +
                        std::to_string(static_cast<int>(f.type)));
    }
}

// Its home hears why of that job alone.
Status GuestHost::refuse_unread(const NodeName& from, std::string_view body, const Error& why) {
    if (const auto named = wire::job_named_in(wire::frame::guest_command, body))
        step([&](Guest& g, guest::Outputs& out) {
            g.not_read(from, {named->first, named->second},
                       Cause(CauseCode::invalid, "node " + node_ + " cannot read what its home " +
                                                     "orders: " + why.message),
                       out);
        });
    return tl::unexpected(why);
}

void GuestHost::command(const NodeName& from, GuestCommand command) {
    // The ticket is of the user that the home names.
    const Warrant warrant =
        tickets_ ? tickets_->warrant(command, tls_->identity()->revoked, Loop::now(), unix_now())
                 : Warrant{};
    if (!take_user(from, command, warrant)) return;
    note_key(from, command);
    step([&](Guest& g, guest::Outputs& out) { g.command(from, command, out, warrant); });
    if (!guest_.find({command.id, command.epoch})) forget_key({command.id, command.epoch});
    if (command.verb != GuestVerb::query || from != command.id.home) return;
    if (Cell* c = cell({command.id, command.epoch})) c->resync();
}

void GuestHost::to_home(const NodeName& home, const guest::HomeWord& message) {
    if (const auto* heartbeat = std::get_if<Heartbeat>(&message))
        return (void)peers_.to_home(home, *heartbeat);
    if (const auto* expel = std::get_if<Expel>(&message)) {
        if (home != node_) return (void)peers_.to_home(home, *expel);
        return commits_.then([this, e = *expel] { own_.from_own_guest(e); });
    }
    GuestEvent event = std::get<GuestEvent>(message);
    // A paused job is reported as not running, so that it is not charged.
    listener_.guest_said({event.id, event.epoch},
                         event.paused.empty() ? event.state : GuestState::dumping);
    if (Cell* c = cell({event.id, event.epoch})) {
        for (int i = 0; i < 2; ++i) event.output_end[i] = c->stream_ends().output[i];
        event.input_end = c->stream_ends().input;
        if (event.state == GuestState::running) {
            event.pid = c->pid();
            event.as = c->runs_as();
        }
        if (const auto used = load_.cpu_time(c->cgroup_name())) event.cpu_time = *used;
    }
    if (home != node_) return (void)peers_.to_home(home, event);
    commits_.then([this, event] { own_.from_own_guest(event); });
}

// Of a job that runs: what changes without an event, its CPU time.
void GuestHost::tell_again(const GuestKey& key) {
    const GuestJob* job = guest_.find(key);
    if (!job || job->state != GuestState::running) return;
    GuestCommand query;
    query.id = key.id;
    query.epoch = key.epoch;
    step([&](Guest& g, guest::Outputs& out) { g.command(key.id.home, query, out); });
}

Cell* GuestHost::cell(const GuestKey& key) {
    const auto it = cells_.find(key);
    return it == cells_.end() ? nullptr : it->second.get();
}

void GuestHost::carry_out(const guest::Do& effect) {
    using What = guest::Do::What;
    if (effect.what == What::create_capsule || effect.what == What::make_place) {
        const GuestJob* job = guest_.find(effect.key);
        if (!job) return;
        const auto it =
            cells_.insert_or_assign(effect.key, std::make_unique<Cell>(site_, *job)).first;
        if (!job->kept) return it->second->create_capsule();
        if (const Status room = image_has_room(effect.key); !room)
            return guest_ended(effect.key, guest::CapsuleFailed{room.error()});
        return it->second->make_place();
    }
    Cell* c = cell(effect.key);
    if (!c) {  // a record without anything behind it (its directory was removed by hand)
        if (effect.what == What::kill_capsule || effect.what == What::finish_dump)
            guest_ended(effect.key, guest::CapsuleGone{});
        if (effect.what == What::remove) guest_removed(effect.key);
        return;
    }
    switch (effect.what) {
        case What::create_capsule:
        case What::make_place: return;
        case What::start_job: return c->start_job();
        case What::hold_job: return c->hold_job();
        case What::release_job: return c->release_job();
        case What::ready_criu: return c->ready_criu(effect.to_disk, effect.to_keep);
        case What::send_precopy: return send_precopy(*c, effect);
        case What::dump_for_move: transfers_->reach(effect.key, effect.dest); [[fallthrough]];
        case What::dump_to_keep: c->checkpoint_of(effect.other_epoch); [[fallthrough]];
        case What::dump_to_disk:
            if (effect.what != What::dump_for_move)
                if (const Status room = image_has_room(effect.key); !room)
                    return guest_ended(effect.key, guest::DumpFailed{room.error(), false});
            return c->dump(transfers_->bytes_per_s(effect.dest.node), effect.no_hurry);
        case What::ship:
            return transfers_->send(
                effect.key, {effect.key.id, effect.other_epoch}, effect.dest, cargo(*c, effect),
                [this, key = effect.key](const Result<Manifest>& sent) { image_sent(key, sent); });
        case What::finish_dump: return c->finish_dump();
        case What::undo_dump: transfers_->cancel_sending(effect.key); return c->undo_dump();
        case What::go_on: return c->go_on();
        case What::send_checkpoint: return send_checkpoint(effect, *c);
        case What::drop_checkpoint: transfers_->cancel_sending(effect.key); return c->drop_image();
        case What::restore: return c->restore();
        case What::restore_local:
            return c->restore_local(cell({effect.key.id, effect.other_epoch}));
        case What::finish_restore: return c->finish_restore();
        case What::kill_capsule: transfers_->cancel_sending(effect.key); return c->kill_capsule();
        case What::silence: return c->silence();
        case What::remove: transfers_->cancel_sending(effect.key); return c->remove();
        case What::signal: return c->signal(effect.signal, effect.to_all);
        case What::keep_lease: return c->keep_lease(effect.until, effect.stands);
        case What::stand: return c->stand();
        case What::pause: return c->pause(effect.on);
    }
}

// To the rounds, or past them. What goes wrong with them leaves a job that runs, and a move in
// another form; only a destination that had taken memory and is lost ends the move.
void GuestHost::send_precopy(Cell& c, const guest::Do& effect) {
    const uint64_t bytes =
        c.worth_precopy(transfers_->bytes_per_s(effect.dest.node), effect.other_epoch);
    if (bytes == 0) return guest_ended(effect.key, guest::SentPrecopy{});
    const GuestKey to{effect.key.id, effect.other_epoch};
    log_.info("memory goes ahead", {{"JOB", effect.key.id.text()},
                                    {"EPOCH", effect.key.epoch.n},
                                    {"bytes", std::to_string(bytes)},
                                    {"to", effect.dest.node}});
    precopy_->open(effect.key, to, effect.dest, bytes);
}

void GuestHost::precopy_round(const GuestKey& key) {
    Cell* c = cell(key);
    if (!c) return precopy_->close(key);
    const auto more = c->precopy_round();
    if (more && *more) return precopy_->send(key, **more);
    if (!more && c->precopy_late()) return precopy_->round_later(key);
    if (!more) {
        log_.warning("memory is not sent ahead",
                     {{"JOB", key.id.text()}, {"EPOCH", key.epoch.n}, {"WHY", more.error()}});
        c->drop_precopy();
    }
    guest_ended(key, guest::SentPrecopy{});
}

void GuestHost::precopy_broken(const GuestKey& key, const std::string& why) {
    Cell* c = cell(key);
    if (!c || c->dumping()) return;  // its image will not be taken, and that tells
    const bool sending = c->sending_precopy();
    c->drop_precopy();
    if (!sending) return;  // the dump that is about to begin takes all
    log_.info("guest", {{"JOB", key.id.text()}, {"EPOCH", key.epoch.n}, {"WHY", why}});
    guest_ended(key, guest::DumpFailed{"send memory ahead: " + why, false});
}

Result<Transfers::Cargo> GuestHost::cargo(const Cell& c, const guest::Do& effect) {
    const Epoch to = effect.other_epoch;
    Transfers::Cargo cargo;
    TRY_ASSIGN(cargo.image, c.image());
    cargo.seal = seal(c.key(), to);
    cargo.seal.destination = effect.dest.node;
    if (effect.no_hurry) cargo.rate = &leave_rate_;
    cargo.needs = c.needs();
    cargo.disk_secret = c.disk_secret();
    const GuestJob* job = guest_.find(c.key());
    if (job && job->state == GuestState::frozen) return cargo;  // its image is all there is
    cargo.form = c.form();
    if (cargo.form != MoveForm::stop_and_copy) {
        TRY_ASSIGN(cargo.pages, c.pages(to));
    }
    return cargo;
}

// Whole and sealed, while the job goes on; or of one that is frozen here, which leaves with it.
void GuestHost::send_checkpoint(const guest::Do& effect, const Cell& c) {
    const auto take = [&]() -> Result<Transfers::Cargo> {
        Transfers::Cargo cargo;
        TRY_ASSIGN(cargo.image, c.open_sealed());
        const GuestJob* const job = guest_.find(c.key());
        if (job && job->state == GuestState::frozen && image_has_locks(cargo.image.get()))
            return fail("it holds locks of files, which are kept here");
        cargo.seal = seal(c.key(), effect.other_epoch);
        cargo.seal.destination = effect.dest.node;
        cargo.needs = c.needs();
        cargo.disk_secret = c.disk_secret();
        return cargo;
    };
    transfers_->send(effect.key, {effect.key.id, effect.other_epoch}, effect.dest, take(),
                     [this, key = effect.key](const Result<Manifest>& sent) {
                         if (sent) return guest_ended(key, guest::CheckpointSent{});
                         guest_ended(key, guest::CheckpointFailed{sent.error()});
                     });
}

void GuestHost::image_sent(const GuestKey& key, const Result<Manifest>& sent) {
    precopy_->close(key);
    Status done = sent ? Status{} : Status(tl::unexpected(sent.error()));
    // The source's own copy counts from here on: it is what is left if the destination is lost.
    Cell* c = cell(key);
    const GuestJob* job = guest_.find(key);
    if (done && c && job && job->state != GuestState::frozen &&
        c->form() == MoveForm::stop_and_copy)
        done = c->seal(*sent);
    if (done && c) c->refuse_image(false);
    if (done) return guest_ended(key, guest::Shipped{});
    const bool refused = job && job->state == GuestState::frozen && image_is_refused(done.error());
    if (refused) image_refused(key, done.error().message);
    guest_ended(key, guest::ShipFailed{done.error(), refused});
}

// A restored copy says that it has started as well. Null: neither.
static const char* came_or_went(const guest::Event& e, const GuestJob* job) {
    const bool new_here = job && job->state == GuestState::starting;
    return std::holds_alternative<guest::JobStarted>(e)       ? new_here ? "started here" : nullptr
           : std::holds_alternative<guest::RestoreRunning>(e) ? "came, and runs"
           : std::holds_alternative<guest::Exited>(e)         ? "ended here"
           : std::holds_alternative<guest::Removed>(e)        ? "is gone"
                                                              : nullptr;
}

void GuestHost::cell_event(const GuestKey& key, const guest::Event& e) {
    // The owner's record of who was here; homes and the market have the rest.
    if (const char* what = came_or_went(e, guest_.find(key)))
        log_.info("guest", {{"JOB", key.id.text()}, {"EPOCH", key.epoch.n}, {"STEP", what}});
    if (std::holds_alternative<guest::Removed>(e)) {
        return loop_.defer([this, key] {
            cells_.erase(key);
            guest_removed(key);
        });
    }
    if (std::holds_alternative<guest::DumpFailed>(e) ||
        std::holds_alternative<guest::CapsuleGone>(e))
        transfers_->forget_reached(key);
    if (const Trouble why = why_of(e); !why.empty())
        log_.info("guest", {{"JOB", key.id.text()},
                            {"EPOCH", key.epoch.n},
                            {"CODE", to_string(why.code)},
                            {"WHY", why},
                            {"DETAIL", why.detail}});
    guest_ended(key, e);
    if (std::holds_alternative<guest::Movable>(e)) tell_again(key);  // its pid, and the CPU time
}

void GuestHost::guest_ended(const GuestKey& key, guest::Event event) {
    step([&](Guest& g, guest::Outputs& out) { g.ended(key, std::move(event), out); });
}

// (No output comes of it.)
void GuestHost::guest_removed(const GuestKey& key) {
    forget_key(key);
    guest::Outputs none;
    guest_.ended(key, guest::Removed{}, none);
    listener_.guests_stepped();
}

bool GuestHost::cell_output(const GuestKey& key, uint32_t stream, uint64_t offset,
                            std::string_view bytes) {
    wire::StdioData data{key.id, key.epoch, stream == 1 ? wire::Stream::out : wire::Stream::err,
                         offset, std::string(bytes)};
    if (key.id.home != node_) return peers_.to_home(key.id.home, data);
    commits_.then([this, data = std::move(data)] { own_.from_own_guest(data); });
    return true;
}

void GuestHost::stdio_ack(const wire::StdioAck& ack) {
    if (Cell* c = cell({ack.id, ack.epoch}))
        c->ack(static_cast<uint32_t>(ack.stream), ack.offset, ack.again);
}

void GuestHost::stdio_input(const wire::StdioInput& input) {
    if (Cell* c = cell({input.id, input.epoch})) c->input(input.offset, input.data, input.eof);
}

void GuestHost::stdio_winch(const wire::StdioWinch& winch) {
    if (Cell* c = cell({winch.id, winch.epoch})) c->winch(winch.rows, winch.cols);
}

}  // namespace souk
