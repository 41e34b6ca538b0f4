// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/guest_host.hpp"

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <filesystem>
#include <string_view>

#include "agentd/daemon/file_systems.hpp"
#include "agentd/daemon/files_task.hpp"
#include "agentd/daemon/job_snapshots.hpp"
#include "agentd/store/records.hpp"
#include "agentd/wire/codec.hpp"
#include "checkpoint/criu.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/clock.hpp"

namespace souk {
namespace {

constexpr uint64_t look_ticks = 60;
constexpr Nanos group_limit = Nanos::from_s(2);
constexpr Nanos snapshot_limit = Nanos::from_s(20);  // the job stands meanwhile

}  // namespace

// -------------------------------------------------------------------------------------------------
// start

GuestHost::GuestHost(const GuestHostParts& parts)
    : loop_(parts.loop),
      log_(parts.log),
      root_(parts.root),
      config_(parts.config),
      tls_(parts.tls),
      tickets_(parts.tickets),
      node_(parts.config.node),
      commits_(parts.commits),
      peers_(parts.peers),
      load_(parts.load),
      share_(parts.share),
      own_(parts.own),
      listener_(parts.listener),
      guest_(guests_max, share_ != nullptr && !share_->cgroups().layout().v2.empty(),
             parts.config.policy,
             {parts.config.node, parts.tls ? parts.config.tickets : TicketRule::none}),
      users_(parts.log, parts.config.node, parts.root, parts.peers, parts.accounts, parts.tls),
      site_(parts.loop, parts.log, parts.root, parts.as_root, parts.config, parts.share),
      images_(parts.log, parts.config, guest_, cells_),
      moves_({.loop = parts.loop,
              .log = parts.log,
              .config = parts.config,
              .tls = parts.tls,
              .peers = parts.peers,
              .machine = guest_,
              .cells = cells_,
              .images = images_,
              .site = site_,
              .listener = *this}) {
    guest_.tell_to(parts.trace.listener());
    if (parts.shut_in)
        site_.cell_site().shut_in = [who = parts.shut_in] { return who->processes(); };
    take_resources();
}

void GuestHost::take_resources() {
    std::vector<NodeResource> own = config_.resources;
    std::erase_if(own, [this](const NodeResource& one) {
        return std::ranges::find(of_market_, one.offer.name) != of_market_.end();
    });
    guest_.set_resources(std::move(own));
}

void GuestHost::set_of_market(const std::vector<std::string>& names) {
    if (of_market_ == names) return;
    of_market_ = names;
    for (const std::string& name : names)
        log_.warning("resources: the market has " + name +
                         " itself, so this node's own is given to nobody: give it another name",
                     {{"STEP", "resources"}});
    take_resources();
}

Status GuestHost::open() {
    TRY(users_.reload(config_));
    TRY(site_.open());
    TRY(images_.open(site_.cell_site().ram.get()));
    wire_cells();
    wire_files();
    return {};
}

Status GuestHost::recover() {
    recovering_ = true;
    TRY_ASSIGN(const auto mark, commits_.db().get("ticket", "mark"));
    if (mark) guest_.restore_mark(whole_number<uint64_t>(*mark).value_or(0));
    std::set<std::string> known;
    TRY(commits_.read_all("guest", [&](const StateDb::Row& row) -> Status {
        TRY_ASSIGN(const GuestJob job, wire::unpack<GuestJob>(row.value));
        if (job.key.text() != row.key) return fail("it is of guest " + job.key.text());
        known.insert(row.key);
        recover(job);
        return {};
    }));
    std::set<std::string> secret_of = known;
    for (const JournalDb::SetAside& a : commits_.db().set_aside())
        if (a.kind == "guest") secret_of.insert(a.key);
    images_.forget_but(secret_of);
    TRY(remove_strays(std::move(known)));
    remove_old_groups();
    recovering_ = false;
    return {};
}

void GuestHost::recover(const GuestJob& job) {
    auto& c = cells_[job.key] = std::make_unique<Cell>(site_.cell_site(), job);
    const Guest::Found found = c->adopt();
    log_.info("found", {{"JOB", job.key.id.text()},
                        {"EPOCH", job.key.epoch.n},
                        {"capsule", found.capsule_alive ? "alive" : "gone"},
                        {"job", found.exited           ? "exited"
                                : found.job_alive      ? "alive"
                                : found.image_complete ? "frozen"
                                                       : "gone"}});
    step([&](Guest& g, guest::Outputs& out) { g.recovered(job, found, out); });
}

// Removes what was made before its record was, or whose record was removed first: nobody knows it.
// A whole image whose record cannot be read stays, as it may be all that there is of its job.
Status GuestHost::remove_strays(std::set<std::string> known) {
    for (const char* base : {"/guests", "/images", "/ram"}) {
        TRY_ASSIGN(const auto names, list_dir(AT_FDCWD, config_.state + base));
        for (std::string name : names) {
            if (name.ends_with(".part")) name.resize(name.size() - 5);
            if (known.contains(name) || name == DiskSecrets::directory_name) continue;
            const size_t dot = name.rfind('.');
            const auto id = dot == std::string::npos ? Result<JobId>(fail(""))
                                                     : parse_job_id(name.substr(0, dot));
            if (!id) {
                std::error_code ignored;
                std::filesystem::remove_all(config_.state + base + "/" + name, ignored);
                continue;
            }
            GuestJob stray;
            const auto epoch = leading_number<uint64_t>(std::string_view(name).substr(dot + 1));
            stray.key = {*id, Epoch{epoch.value_or(0)}};
            // Its limits are not known, so it is looked for in every hierarchy that has limits.
            stray.memory_mb = 1;
            auto& c = cells_[stray.key] = std::make_unique<Cell>(site_.cell_site(), stray);
            const Guest::Found found = c->adopt();
            known.insert(name);
            if (found.image_complete && !found.capsule_alive &&
                commits_.db().is_aside("guest", name)) {
                guest_.set_aside(stray.key);
                continue;
            }
            guest_.stray(stray.key);
            c->remove();
        }
    }
    return {};
}

// Removes the groups of capsules that ended while no daemon ran.
void GuestHost::remove_old_groups() {
    if (!share_) return;
    std::vector<std::string> in_use;
    for (const auto& [key, c] : cells_)
        if (c->has_capsule()) in_use.push_back(c->cgroup_name());
    if (auto removed = share_->capsules().remove_others(in_use, group_limit); !removed)
        log_.warning("cannot remove a control group", {{"WHY", removed.error()}});
}

void GuestHost::wire_cells() {
    CellSite& site = site_.cell_site();
    site.loop = &loop_;
    site.log = &log_;
    site.make_capsule = [this](const GuestKey& key, const CapsuleOptions& how) {
        return root_.capsule(how, key.id.home == node_, images_.ticket(key));
    };
    site.disk_secret = [this](const GuestKey& key) { return images_.disk_secret(key); };
    site.image_refused = [this](const GuestKey& key, const std::string& why) {
        images_.refused(key, why);
    };
    site.precopy_dropped = [this](const GuestKey& key) { moves_.drop_precopy(key); };
    site.want_pages = [this](const GuestKey& key, bool restored, uint64_t put,
                             const std::vector<PageRange>& wishes) {
        moves_.want_pages(key, restored, put, wishes);
    };
    site.pages_whole = [this](const GuestKey& key) { moves_.pages_whole(key); };
    site.pages_refused = [this](const GuestKey& key, const std::string& why) {
        moves_.pages_refused(key, why);
    };
    site.event = [this](const GuestKey& key, const guest::Event& e) { cell_event(key, e); };
    site.output = [this](const GuestKey& key, uint32_t s, uint64_t o, std::string_view b) {
        return cell_output(key, s, o, b);
    };
    site.input_taken = [this](const GuestKey& key, uint64_t offset) {
        const wire::StdioInputAck ack{key.id, key.epoch, offset};
        if (key.id.home != node_) return (void)peers_.to_home(key.id.home, ack);
        commits_.then([this, ack] { own_.from_own_guest(ack); });
    };
    site.cgroup_changed = [this](const Cgroup& capsule, Nanos used, bool added) {
        added ? load_.capsule_came(capsule, used, recovering_) : load_.capsule_went(capsule);
    };
}

void GuestHost::wire_files() {
    CellSite& site = site_.cell_site();
    files_ = std::make_unique<GuestFiles>(
        loop_, log_, peers_, site.reach.take,
        ContentStoreOptions{config_.state + "/contents",
                            static_cast<uint64_t>(config_.contents_mb) << 20,
                            files_starter(root_)});
    site.files_made = [this] { return GuestFiles::make(root_.devices()); };
    site.files_begin = [this](const GuestJob& job, const Capsule& capsule) {
        files_->begin(job, capsule);
    };
    site.files_end = [this](const GuestKey& key) { files_->end(key); };
    site.files_expected = [this](const GuestKey& key, const std::string& list, bool opens) {
        files_->expect(key, list, opens);
    };
    site.files_home = [this](const GuestKey& key, std::function<void(const Result<AtHome>&)> done) {
        return files_->ask_home(key, std::move(done));
    };
    site.syncer = [this](const Pidfd& init) -> Result<Fd> {
        int pair[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
            return fail_errno("socketpair", errno);
        Fd ours(pair[0]);
        const Fd theirs(pair[1]);
        TRY(root_.program(root::Program::files, {"sync"}, {theirs.get(), init.get()}, true));
        return ours;
    };
    site.files_own = [this](const GuestKey& key) { files_->own(key); };
    site.files_snapshot =
        [this](const GuestJob& job, Epoch to, int root,
               const std::function<void(const Status&)>& done) -> Result<std::shared_ptr<void>> {
        TRY_ASSIGN(
            auto task,
            FilesTask::start(loop_, files_starter(root_),
                             {"take", JobSnapshots::name(job.key.id, to.n), job.spec.launch.cwd},
                             job.spec.launch, root, snapshot_limit,
                             [done](const Result<std::string>& said) {
                                 done(said ? Status{} : tl::unexpected(said.error()));
                             }));
        return std::shared_ptr<FilesTask>(std::move(task));
    };
    site.has_file_systems = [](const std::string& named) { return has_file_systems(named); };
}

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
            // The guest has come again since, and its home has been told.
            if (e && guest_.find({e->id, e->epoch})) return;
            to_home(home, message);
        });
    }
    if (auto* m = std::get_if<guest::KeepMark>(&output))
        return commits_.put("ticket", "mark", std::to_string(m->mark), m->when);
    if (auto* a = std::get_if<guest::Audit>(&output)) return audit(*a);
    commits_.then([this, effect = std::get<guest::Do>(output)] { carry_out(effect); });
}

// The log has one line for each ticket that is shown, and for each command that needs one, but no
// more than a few a minute.
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
    // The home gets again the output that it was not there to take. Its first command may be
    // another than a query, which would ask for the output.
    home_drained(node);
}

void GuestHost::home_down(const NodeName& node) {
    step([&](Guest& g, guest::Outputs&) { g.home_down(node); });
}

void GuestHost::home_drained(const NodeName& home) {
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
    moves_.progress(Loop::now(), all);
    for (const auto& [key, cell] : cells_)
        if (const auto p = cell->writing(Loop::now()))
            all.push_back({key.id, key.epoch, node_, p->written, p->bytes, p->span});
    return all;
}

Status GuestHost::from_image(uint64_t number, const NodeName& node, const wire::Frame& f) {
    if (GuestFiles::takes(f)) return files_->frame(number, node, f);
    return moves_.frame(number, node, f);
}

void GuestHost::image_closed(uint64_t number) {
    moves_.closed(number);
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

// The home hears why, by an event of that job alone.
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
    // The ticket is made out to the user that the home names, so it is looked at before the user
    // becomes another.
    const Warrant warrant =
        tickets_ ? tickets_->warrant(command, tls_->identity()->revoked, Loop::now(), unix_now())
                 : Warrant{};
    if (const auto refused = users_.refuse(from, command, warrant)) return to_home(from, *refused);
    images_.note(from, command);
    step([&](Guest& g, guest::Outputs& out) { g.command(from, command, out, warrant); });
    if (!guest_.find({command.id, command.epoch})) images_.forget({command.id, command.epoch});
    if (command.verb != GuestVerb::query || from != command.id.home) return;
    if (Cell* c = find_cell(cells_, {command.id, command.epoch})) c->resync();
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
    if (Cell* c = find_cell(cells_, {event.id, event.epoch})) {
        event.memory_peak = c->memory_peak();
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

// Tells the home of a job that runs what changes without an event: its CPU time.
void GuestHost::tell_again(const GuestKey& key) {
    const GuestJob* job = guest_.find(key);
    if (!job || job->state != GuestState::running) return;
    GuestCommand query;
    query.id = key.id;
    query.epoch = key.epoch;
    step([&](Guest& g, guest::Outputs& out) { g.command(key.id.home, query, out); });
}

void GuestHost::carry_out(const guest::Do& effect) {
    using What = guest::Do::What;
    if (effect.what == What::create_capsule || effect.what == What::make_place) {
        const GuestJob* job = guest_.find(effect.key);
        if (!job) return;
        const auto it =
            cells_.insert_or_assign(effect.key, std::make_unique<Cell>(site_.cell_site(), *job))
                .first;
        if (!job->kept) return it->second->create_capsule();
        if (const Status room = images_.has_room(effect.key); !room)
            return effect_ended(effect.key, guest::CapsuleFailed{room.error()});
        return it->second->make_place();
    }
    Cell* c = find_cell(cells_, effect.key);
    if (!c) {  // nothing lies behind the record: its directory was removed by hand
        if (effect.what == What::kill_capsule || effect.what == What::finish_dump)
            effect_ended(effect.key, guest::CapsuleGone{});
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
        case What::send_precopy: return moves_.send_precopy(*c, effect);
        case What::dump_for_move: moves_.reach(effect); [[fallthrough]];
        case What::dump_to_keep: c->checkpoint_of(effect.other_epoch); [[fallthrough]];
        case What::dump_to_disk:
            if (effect.what != What::dump_for_move)
                if (const Status room = images_.has_room(effect.key); !room)
                    return effect_ended(effect.key, guest::DumpFailed{room.error(), false});
            return c->dump(moves_.bytes_per_s(effect.dest.node), effect.no_hurry);
        case What::ship: return moves_.ship(*c, effect);
        case What::finish_dump: return c->finish_dump();
        case What::undo_dump: moves_.cancel(effect.key); return c->undo_dump();
        case What::go_on: return c->go_on();
        case What::send_checkpoint: return moves_.send_checkpoint(*c, effect);
        case What::drop_checkpoint: moves_.cancel(effect.key); return c->drop_image();
        case What::restore: return c->restore();
        case What::restore_local:
            return c->restore_local(find_cell(cells_, {effect.key.id, effect.other_epoch}));
        case What::finish_restore: return c->finish_restore();
        case What::kill_capsule: moves_.cancel(effect.key); return c->kill_capsule();
        case What::silence: return c->silence();
        case What::remove: moves_.cancel(effect.key); return c->remove();
        case What::signal: return c->signal(effect.signal, effect.to_all);
        case What::keep_lease: return c->keep_lease(effect.until, effect.stands);
        case What::stand: return c->stand();
        case What::pause: return c->pause(effect.on);
    }
}

// Says for the log that a job came, ended or went; null: the event says neither. A restored copy
// also says that it has started, so that event counts for a new job alone.
static const char* came_or_went(const guest::Event& e, const GuestJob* job) {
    const bool new_here = job && job->state == GuestState::starting;
    return std::holds_alternative<guest::JobStarted>(e)       ? new_here ? "started here" : nullptr
           : std::holds_alternative<guest::RestoreRunning>(e) ? "came, and runs"
           : std::holds_alternative<guest::Exited>(e)         ? "ended here"
           : std::holds_alternative<guest::Removed>(e)        ? "is gone"
                                                              : nullptr;
}

void GuestHost::cell_event(const GuestKey& key, const guest::Event& e) {
    // The log is the owner's record of which jobs were here. Homes and the market have the rest.
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
        moves_.forget_reached(key);
    if (const Trouble why = why_of(e); !why.empty())
        log_.info("guest", {{"JOB", key.id.text()},
                            {"EPOCH", key.epoch.n},
                            {"CODE", to_string(why.code)},
                            {"WHY", why},
                            {"DETAIL", why.detail}});
    effect_ended(key, e);
    if (std::holds_alternative<guest::Movable>(e)) tell_again(key);  // its pid, and the CPU time
}

void GuestHost::effect_ended(const GuestKey& key, guest::Event event) {
    step([&](Guest& g, guest::Outputs& out) { g.ended(key, std::move(event), out); });
}

// The machine returns no output for this.
void GuestHost::guest_removed(const GuestKey& key) {
    images_.forget(key);
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
    if (Cell* c = find_cell(cells_, {ack.id, ack.epoch}))
        c->ack(static_cast<uint32_t>(ack.stream), ack.offset, ack.again);
}

void GuestHost::stdio_input(const wire::StdioInput& input) {
    if (Cell* c = find_cell(cells_, {input.id, input.epoch}))
        c->input(input.offset, input.data, input.eof);
}

void GuestHost::stdio_winch(const wire::StdioWinch& winch) {
    if (Cell* c = find_cell(cells_, {winch.id, winch.epoch})) c->winch(winch.rows, winch.cols);
}

// -------------------------------------------------------------------------------------------------
// for the owner

void GuestHost::pace(uint64_t bytes_per_s) {
    RateLimit& rate = site_.leave_rate();
    if (bytes_per_s == rate.rate()) return;
    const bool begins = rate.rate() == 0, ends = bytes_per_s == 0;
    rate.set(bytes_per_s, Loop::now());
    if (begins || ends)
        log_.info("what leaves for the owner",
                  {{"bytes_per_s", ends ? "as many as it can" : std::to_string(bytes_per_s)}});
}

std::vector<MemoryWish::Standing> GuestHost::standing() const {
    std::vector<MemoryWish::Standing> all = guest_.standing();
    for (MemoryWish::Standing& s : all)
        if (const auto c = cells_.find(s.key); c != cells_.end())
            s.memory_mb = static_cast<int64_t>(c->second->memory_bytes() >> 20);
    return all;
}

// Memory that is on its way to another node or to the disk is less by what has gone.
LeavePace::Left GuestHost::to_leave() const {
    std::map<GuestKey, JobSend> sends;
    for (JobSend& s : this->sends()) sends[{s.id, s.epoch}] = std::move(s);
    LeavePace::Left left;
    for (const auto& [key, c] : cells_) {
        const auto sent = sends.find(key);
        const bool goes = sent != sends.end() && sent->second.total_bytes > 0;
        if (!goes && !guest_.is_to_leave(key, node_)) continue;
        const GuestJob* job = guest_.find(key);
        const bool frozen = job && job->state == GuestState::frozen;
        uint64_t bytes = frozen ? static_cast<uint64_t>(job->image_bytes) : c->memory_bytes();
        if (goes) bytes = sent->second.total_bytes - sent->second.sent_bytes;
        (frozen ? left.images : left.memory) += bytes;
    }
    return left;
}

}  // namespace souk
