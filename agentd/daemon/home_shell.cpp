// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/home_shell.hpp"

#include <sys/statvfs.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "agentd/core/files_choice.hpp"
#include "agentd/daemon/file_systems.hpp"
#include "agentd/store/records.hpp"
#include "checkpoint/disk_key.hpp"
#include "checkpoint/stream_tag.hpp"
#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/store/same_files.hpp"
#include "kernel/trust/openssl.hpp"

namespace souk {
namespace {

constexpr Nanos bill_limit = Nanos::from_ms(500);
// A market that is started again is back sooner than that.
constexpr Nanos outage_worth_telling = Nanos::from_s(1);

// How much is free on the disk of that directory; nothing: that is not known.
std::optional<int64_t> bytes_free_at(const std::string& directory) {
    struct statvfs fs {};
    if (::statvfs(directory.c_str(), &fs) != 0) return std::nullopt;
    const uint64_t free = static_cast<uint64_t>(fs.f_bavail) * fs.f_frsize;
    return static_cast<int64_t>(std::min<uint64_t>(free, INT64_MAX));
}

// The cause's code, if what is told of a job is the cause that its record names.
CauseCode code_of(const HomeJob& job, const std::string& told) {
    for (const Cause* known : {&job.comment, &job.why})
        if (told == *known) return known->code;
    return CauseCode::none;
}

}  // namespace

// -------------------------------------------------------------------------------------------------
// start

HomeShell::HomeShell(const HomeShellParts& parts)
    : p_(parts),
      home_(parts.config.node, parts.config.home),
      snapshots_(parts.loop, parts.log, files_starter(parts.root)) {}

Status HomeShell::open(GuestHost& guests) {
    guests_ = &guests;
    const Config& config = p_.config;
    TRY_ASSIGN(image_secret_, trust::random_bytes(StreamTag::key_bytes));
    home_.tell_to(p_.trace.listener());
    TRY_ASSIGN(Fd spools, open_at(AT_FDCWD, config.state + "/home", O_RDONLY | O_DIRECTORY));
    terminals_ = std::make_unique<Terminals>(
        p_.loop, std::move(spools),
        TerminalBounds{.stream_bytes = static_cast<uint64_t>(config.output_mb) << 20,
                       .user_bytes = static_cast<uint64_t>(config.user_output_mb) << 20,
                       .disk_reserve_bytes = config.disk_reserve_bytes()},
        outlet());
    output_files_ = std::make_unique<OutputFiles>(
        p_.loop, p_.log, *terminals_,
        OutputFiles::Host{[this](const JobId& id) { return home_.find(id); },
                          [this](const JobId& id) { attached_to_finished(id); },
                          [this](std::function<void()> fn) { p_.commits.then(std::move(fn)); },
                          files_starter(p_.root)});
    files_ = std::make_unique<HomeFiles>(
        p_.loop, p_.log, files_starter(p_.root),
        BulkIdentity{config.node, config.address, p_.tls, &p_.peers.ways()},
        config.state + "/files", [this](const JobId& id, const FilesUse& use) {
            step([&](Home& h, home::Outputs& out) { h.files_used(id, use, Loop::now(), out); });
        });
    return {};
}

Status HomeShell::recover() {
    if (!p_.config.home.address_known) {
        TRY_ASSIGN(const auto address, p_.commits.db().get("address", "own"));
        if (address) home_.own_address(*address);  // as the market told it last
    }
    TRY(p_.commits.read_all("home", [this](const StateDb::Row& row) -> Status {
        TRY_ASSIGN(HomeJob job, wire::unpack<HomeJob>(row.value));
        if (job.id != JobId{p_.config.node, whole_number<uint64_t>(row.key).value_or(0)})
            return fail("it is of job " + job.id.text());
        TRY(HomeRecords::sound(job));
        home_.load(std::move(job));
        return {};
    }));
    for (const JournalDb::SetAside& a : p_.commits.db().set_aside())
        if (a.kind == "home") home_.set_aside(whole_number<uint64_t>(a.key).value_or(0));
    step([](Home& h, home::Outputs& out) { h.restarted(Loop::now(), out); });
    for (const NodeName& node : home_.guests_needed()) {
        const auto peer = home_.peer_of(node);
        if (node != p_.config.node && peer) p_.peers.need(*peer);
    }
    // This node as its own guest is always there.
    guest_up(p_.config.node);
    files_->recovered(home_.jobs());
    snapshots_.recovered(home_.jobs());
    output_files_->recovered(home_.jobs());
    terminals_->recovered(home_.jobs());
    for (const auto& [seq, job] : home_.jobs()) {
        if (job.phase == JobPhase::finished)
            finish_terminals(job.id);
        else
            terminals_->splice(job);
    }
    return adopt_users();
}

// Jobs of an older version may belong to users whom souk-root has not seen.
Status HomeShell::adopt_users() {
    std::map<uint32_t, std::set<uint32_t>> groups;
    for (const auto& [seq, job] : home_.jobs()) {
        if (job.phase == JobPhase::finished) continue;
        const LaunchSpec& launch = job.spec.launch;
        groups[launch.uid].insert(launch.gid);
        groups[launch.uid].insert(launch.groups.begin(), launch.groups.end());
    }
    std::vector<RunsAs> users;
    users.reserve(groups.size());
    for (const auto& [uid, all] : groups)
        users.push_back({true, uid, *all.begin(), {all.begin(), all.end()}});
    return p_.root.adopt(users);
}

// -------------------------------------------------------------------------------------------------
// the machine

void HomeShell::step(const std::function<void(Home&, home::Outputs&)>& step) {
    home::Outputs out;
    home_.set_unix_time(unix_now());
    step(home_, out);
    for (home::Output& o : out) apply(o);
    tick();
}

// The machine says when it wants to be called next. Each step may change that.
void HomeShell::tick() {
    home::Outputs out;
    home_.set_unix_time(unix_now());
    const Nanos next = home_.tick(Loop::now(), out);
    for (home::Output& o : out) apply(o);
    timer_.cancel();
    if (next != Nanos::never()) timer_ = p_.loop.at(next, [this] { tick(); });
}

void HomeShell::apply(home::Output& output) {
    if (auto* p = std::get_if<home::Persist>(&output)) return persist(*p);
    if (auto* e = std::get_if<home::Erase>(&output)) return erase(e->id);
    if (auto* m = std::get_if<home::ToMarketMsg>(&output)) return to_market(m->message);
    if (auto* g = std::get_if<home::ToGuest>(&output)) return command_guest(g->peer, g->command);
    if (auto* a = std::get_if<home::Answer>(&output))
        return (void)p_.peers.to_guest(a->node, a->heartbeat);
    if (auto* b = std::get_if<home::GoneBack>(&output))
        return p_.commits.then([this, id = b->id] { gone_back(id); });
    tell(std::get<home::Tell>(output));
}

void HomeShell::persist(const home::Persist& p) {
    if (p.job.spec.files == FilesMode::home)
        p_.commits.then([this, id = p.job.id] {
            const HomeJob* job = home_.find(id);
            if (!job) return;
            files_->job(*job);
            snapshots_.job(*job);
        });
    if (p.job.phase != JobPhase::finished && terminals_->attended(p.job.id))
        terminals_->meter(p.job.id, meter(p.job));
    output_files_->job(p.job);
    p_.commits.put("home", std::to_string(p.job.id.seq), wire::pack(p.job), p.when);
}

void HomeShell::erase(const JobId& id) {
    p_.commits.erase("home", std::to_string(id.seq), Durable::now);
    p_.commits.then([this, id] {
        output_files_->forget(id);
        terminals_->erase(id);
        files_->forget(id);
        snapshots_.forget(id);
    });
}

void HomeShell::free_memory(int64_t mb) {
    const auto disk = bytes_free_at(p_.config.state + "/images");
    step([&](Home& h, home::Outputs&) {
        h.free_memory(mb << 20);
        if (disk) h.free_disk(*disk);
    });
}

// -------------------------------------------------------------------------------------------------
// guests

// A command gets the key of the disk if it may make or read an image of that epoch on its node's
// disk.
void HomeShell::add_disk_secret(GuestCommand& command) const {
    switch (command.verb) {
        case GuestVerb::start:
        case GuestVerb::prepare:
        case GuestVerb::prepare_dump:
        case GuestVerb::ship:
        case GuestVerb::freeze:
        case GuestVerb::restore_here:
        case GuestVerb::keep:
        case GuestVerb::checkpoint: break;
        default: return;
    }
    const HomeJob* job = home_.find(command.id);
    const auto secret = trust::from_hex(job ? job->disk_secret : "");
    if (secret) command.disk_secret = trust::hex(epoch_secret(*secret, command.id, command.epoch));
}

// Both ends of a transfer get a key that nobody else has. The secret need not outlive the daemon,
// because a move that a restart of the daemon interrupts is given up, or its image has been taken.
void HomeShell::add_image_key(GuestCommand& command) const {
    add_disk_secret(command);
    const bool comes = command.verb == GuestVerb::prepare || command.verb == GuestVerb::keep;
    const bool goes = command.verb == GuestVerb::ship || command.verb == GuestVerb::checkpoint;
    if (!comes && !goes) return;
    const Epoch to = comes ? command.epoch : command.new_epoch;
    command.image_key = trust::hex(image_key(image_secret_, command.id, to));
}

// The node compares these file systems with its own before it shows its own to the job.
void HomeShell::add_file_systems(GuestCommand& command) const {
    const bool comes = command.verb == GuestVerb::start || command.verb == GuestVerb::prepare;
    if (!comes || !command.spec.files_auto) return;
    const bool shared = command.spec.files == FilesMode::local;
    const auto text = file_systems(shared ? p_.config.shared_files : "");
    if (text)
        command.spec.file_systems = *text;
    else
        p_.log.warning("what is mounted here cannot be told", {{"WHY", text.error()}});
}

void HomeShell::command_guest(const Peer& peer, GuestCommand command) {
    add_image_key(command);
    add_file_systems(command);
    if (peer.node == p_.config.node)
        return p_.commits.then([this, command] { guests_->command(p_.config.node, command); });
    Peer to = peer;
    if (to.address.empty())
        if (const auto known = home_.peer_of(peer.node)) to = *known;
    p_.peers.command(to, command);
}

Status HomeShell::from_guest(const NodeName& node, const wire::Frame& f) {
    switch (f.type) {
        case wire::frame::guest_event: {
            TRY_ASSIGN(const GuestEvent event, wire::unpack<GuestEvent>(f.body));
            guest_event(node, event);
            return {};
        }
        case wire::frame::expel: {
            TRY_ASSIGN(const Expel expel, wire::unpack<Expel>(f.body));
            expelled(node, expel);
            return {};
        }
        case wire::frame::heartbeat: {
            TRY_ASSIGN(const Heartbeat heartbeat, wire::unpack<Heartbeat>(f.body));
            step([&](Home& h, home::Outputs& out) {
                h.heartbeat(node, heartbeat, Loop::now(), out);
            });
            return {};
        }
        case wire::frame::stdio_data: {
            TRY_ASSIGN(const wire::StdioData data, wire::unpack<wire::StdioData>(f.body));
            stdio_data(node, data);
            return {};
        }
        case wire::frame::stdio_input_ack: {
            TRY_ASSIGN(const wire::StdioInputAck ack, wire::unpack<wire::StdioInputAck>(f.body));
            stdio_input_ack(node, ack);
            return {};
        }
        default:
            return fail("a guest does not send frames of type " +
                        std::to_string(static_cast<int>(f.type)));
    }
}

// An exit counts when the whole output is here. The output travels before the event, but a full
// disk may have refused it.
void HomeShell::guest_event(const NodeName& node, const GuestEvent& told) {
    GuestEvent event = told;
    event.heard = unix_now();
    const auto take = [this, node, event] {
        if (event.state == GuestState::exited) files_->tell_now(event.id);
        step([&](Home& h, home::Outputs& out) { h.guest_event(node, event, Loop::now(), out); });
    };
    const HomeJob* job = output_owner(node, event.id, event.epoch);
    if (event.state == GuestState::exited && job &&
        !terminals_->complete(*job, event.output_end, take))
        return;
    take();
    job = home_.find(event.id);
    if (event.state == GuestState::running && job && job->phase == JobPhase::running &&
        job->at.node == node)
        terminals_->resync(*job);
}

// Returns the job if its output comes from that (node, epoch) now, else null.
const HomeJob* HomeShell::output_owner(const NodeName& node, const JobId& id, Epoch epoch) const {
    const HomeJob* job = home_.find(id);
    if (!job || job->phase == JobPhase::finished) return nullptr;
    const bool owner = job->at.node == node && job->epoch == epoch;
    const bool released =
        job->step == MoveStep::release && job->to.node == node && job->to_epoch == epoch;
    return owner || released ? job : nullptr;
}

void HomeShell::stdio_data(const NodeName& node, const wire::StdioData& data) {
    if (const HomeJob* job = output_owner(node, data.id, data.epoch)) terminals_->data(*job, data);
}

void HomeShell::stdio_input_ack(const NodeName& node, const wire::StdioInputAck& ack) {
    if (const HomeJob* job = output_owner(node, ack.id, ack.epoch))
        terminals_->input_taken(*job, ack);
}

void HomeShell::expelled(const NodeName& node, const Expel& expel) {
    step([&](Home& h, home::Outputs& out) { h.expel(node, expel, Loop::now(), out); });
}

void HomeShell::guest_up(const NodeName& node) {
    step([&](Home& h, home::Outputs& out) { h.guest_up(node, Loop::now(), out); });
}

void HomeShell::undelivered(const NodeName& node, const GuestCommand& c) {
    step([&](Home& h, home::Outputs& out) { h.undelivered(node, c, Loop::now(), out); });
}

void HomeShell::guest_too_old(const NodeName& node, const GuestCommand& c, const Trouble& why) {
    GuestEvent refused;
    refused.id = c.id;
    refused.epoch = c.epoch;
    refused.state = GuestState::failed;
    if (c.verb == GuestVerb::start) {  // it fails as a program that is not there does
        refused.error = ENOENT;
        refused.program_error = true;
    }
    refused.why = why;
    guest_event(node, refused);
}

void HomeShell::guest_drained(const NodeName& node) {
    for (const auto& [seq, job] : home_.jobs())
        if (job.phase == JobPhase::running && job.at.node == node) terminals_->resync(job);
}

TerminalOutlet HomeShell::outlet() {
    TerminalOutlet o;
    const auto node_of = [](const HomeJob& job, Epoch epoch) {
        return epoch == job.epoch ? job.at.node : job.to.node;
    };
    o.job = [this](const JobId& id) { return home_.find(id); };
    o.ack = [this, node_of](const HomeJob& job, const wire::StdioAck& ack) {
        const NodeName node = node_of(job, ack.epoch);
        if (node == p_.config.node)
            return p_.commits.then([this, ack] { guests_->stdio_ack(ack); });
        (void)p_.peers.to_guest(node, ack);
    };
    o.input = [this](const HomeJob& job, const wire::StdioInput& input) {
        if (job.at.node == p_.config.node)
            return p_.commits.then([this, input] { guests_->stdio_input(input); });
        (void)p_.peers.to_guest(job.at.node, input);
    };
    o.winch = [this](const HomeJob& job, const wire::StdioWinch& winch) {
        if (job.at.node == p_.config.node)
            return p_.commits.then([this, winch] { guests_->stdio_winch(winch); });
        (void)p_.peers.to_guest(job.at.node, winch);
    };
    o.trouble = [this](const JobId& id, const std::string& why) {
        p_.log.limited("output", Loop::now(), Level::warning, "output is held back",
                       {{"JOB", id.text()}, {"WHY", why}});
    };
    return o;
}

// -------------------------------------------------------------------------------------------------
// the market

// A report says how a job stands, so one that has no room is forgotten, and made anew later.
void HomeShell::to_market(const ToMarket& message) {
    if (p_.market.send(message)) return;
    const JobId& id = std::get<JobReport>(message).id;
    const HomeJob* job = home_.find(id);
    unreported_[job ? job->spec.launch.uid : 0].insert(id.seq);
}

// The users take turns, so that nobody's jobs wait for all of another's to be reported.
void HomeShell::market_drained() {
    auto owed = std::exchange(unreported_, {});
    while (!owed.empty() && unreported_.empty())
        for (auto it = owed.begin(); it != owed.end();) {
            const uint64_t seq = it->second.extract(it->second.begin()).value();
            if (it->second.empty())
                it = owed.erase(it);
            else
                ++it;
            step([&](Home& h, home::Outputs& out) {
                h.report({p_.config.node, seq}, Loop::now(), out);
            });
        }
    for (auto& [uid, seqs] : owed) unreported_[uid].merge(seqs);
}

void HomeShell::market_up(const std::string& seen_at) {
    unreported_.clear();
    learn_address(seen_at);
    step([](Home& h, home::Outputs& out) { h.market_up(Loop::now(), out); });
    outage_timer_.cancel();
    if (std::exchange(outage_told_, false)) tell_waiting();
}

void HomeShell::market_down() {
    step([](Home& h, home::Outputs&) { h.market_down(); });
    outage_timer_ = p_.loop.after(outage_worth_telling, [this] {
        outage_told_ = true;
        tell_waiting();
    });
}

// An agent that listens on every address does not know which of them others reach. The market tells
// it where it sees the agent. The address is kept, because checkpoints need it also when the market
// is away.
void HomeShell::learn_address(const std::string& seen_at) {
    if (p_.config.home.address_known || seen_at.empty()) return;
    home_.own_address(seen_at);
    const auto known = p_.commits.db().get("address", "own");
    if (!known || *known != seen_at) p_.commits.put("address", "own", seen_at, Durable::later);
}

void HomeShell::from_market(const FromMarket& message) {
    if (const auto* order = std::get_if<Order>(&message))
        return step([&](Home& h, home::Outputs& out) { h.order(*order, Loop::now(), out); });
    if (const auto* note = std::get_if<JobNote>(&message)) {
        step([&](Home& h, home::Outputs& out) { h.note(*note, Loop::now(), out); });
        if (note->settled && exit_waits_.contains(note->id)) finish_terminals(note->id);
        return;
    }
    if (const auto* lost = std::get_if<NodeLost>(&message)) {
        p_.log.notice("a node is lost", {{"NODE", lost->node}});
        step([&](Home& h, home::Outputs& out) { h.node_lost(lost->node, Loop::now(), out); });
    }
}

// -------------------------------------------------------------------------------------------------
// terminals

// The files of the job go back first, because the job may read them as soon as it runs.
void HomeShell::gone_back(const JobId& id) {
    if (const HomeJob* job = home_.find(id))
        snapshots_.go_back(*job, [this, id](const std::string& files) { splice(id, files); });
}

// Tells the machine where the output goes on. Both lengths follow from what is on disk by now.
void HomeShell::splice(const JobId& id, const std::string& files) {
    uint64_t output_end[2], input_end = 0;
    if (!terminals_->lengths(id, output_end, input_end)) return;
    step([&](Home& h, home::Outputs& out) {
        h.spliced(id, output_end, input_end, files, Loop::now(), out);
    });
    p_.commits.then([this, id] {
        if (const HomeJob* job = home_.find(id)) terminals_->splice(*job);
    });
}

void HomeShell::tell(const home::Tell& tell) {
    const HomeJob* job = home_.find(tell.id);
    if (!tell.text.empty() && job)
        p_.log.info("job", {{"JOB", tell.id.text()},
                            {"EPOCH", job->epoch.n},
                            {"ORDER", job->order_seq},
                            {"STEP", to_string(tell.what)},
                            {"CODE", to_string(code_of(*job, tell.text))},
                            {"WHY", tell.text}});
    if (tell.what != home::Tell::What::finished)
        return terminals_->tell(tell.id, {tell.what, tell.text});
    // The bill comes from the market a moment later. The terminal waits for it, but no longer than
    // the limit.
    if (!p_.market.connected()) return finish_terminals(tell.id);
    exit_waits_[tell.id] =
        p_.loop.after(bill_limit, [this, id = tell.id] { finish_terminals(id); });
}

std::string HomeShell::why_waits(const HomeJob& job) const {
    if (job.phase != JobPhase::waiting && job.phase != JobPhase::frozen) return {};
    if (p_.market.connected()) return job.comment;
    return "no connection to the market at " + p_.market.market() + " (" + p_.market.trouble() +
           "); until there is one, what runs goes on and nothing new begins";
}

wire::Meter HomeShell::meter(const HomeJob& job) const {
    return {.phase = job.phase,
            .where = job.at.node,
            .price = job.price,
            .cost = std::max(Money{}, Home::cost(job, Loop::now())),
            .cpus = job.terms.cpus,
            .counts = HomeClock::runs(job)};
}

void HomeShell::tell_waiting() {
    for (const auto& [seq, job] : home_.jobs()) {
        if (job.phase != JobPhase::waiting && job.phase != JobPhase::frozen) continue;
        const std::string why = why_waits(job);
        terminals_->tell(
            job.id, {home::Tell::What::comment, why.empty() ? "the market is there again" : why});
    }
}

void HomeShell::finish_terminals(const JobId& id) {
    exit_waits_.erase(id);
    const HomeJob* job = home_.find(id);
    if (!job) return;
    wire::Exit exit;
    exit.wait_status = job->wait_status;
    exit.cancelled = job->cancelled;
    exit.why = job->why;
    exit.summary = summary(*job);
    terminals_->finished(id, std::move(exit));
}

std::string HomeShell::summary(const HomeJob& job) const {
    // The exit status is the one that srun exits with.
    const bool own_end = job.why.empty() || (!job.cancelled && WIFSIGNALED(job.wait_status));
    JsonWriter j;
    j.begin_object().field("id", job.id.text()).field("name", job.name);
    j.field("exit", !own_end                       ? 255
                    : WIFSIGNALED(job.wait_status) ? 128 + WTERMSIG(job.wait_status)
                                                   : WEXITSTATUS(job.wait_status));
    j.field("signal", own_end && WIFSIGNALED(job.wait_status) ? WTERMSIG(job.wait_status) : 0);
    j.field("why", job.why);
    if (job.why.code != CauseCode::none) j.field("why_code", to_string(job.why.code));
    j.field("cancelled", job.cancelled)
        .field("value", job.terms.max_price)
        .field("cost", home_.cost(job, Loop::now()));
    j.field("runtime_s", job.stats.run_time.seconds());
    j.key("places").begin_array();
    for (const NodeName& node : job.places) j.value(node);
    j.end_array();
    j.field("freezes", job.stats.freezes)
        .field("thaws", job.stats.thaws)
        .field("migrations", job.stats.migrations);
    j.field("failed_moves", job.stats.failed_moves)
        .field("longest_pause_ms", job.stats.longest_pause.ms());
    j.key("story").begin_object();
    write_story(j, job.story);
    return j.end_object().end_object().take();
}

// -------------------------------------------------------------------------------------------------
// tools

Result<std::string> HomeShell::user_name(uint32_t uid) const {
    TRY_ASSIGN(const auto account, p_.accounts.told([&] { return p_.accounts.numbered(uid); }));
    return account ? account->name : std::to_string(uid);
}

// Makes the job of what its user asks for. An error says why this home refuses it.
Result<Submission> HomeShell::submission(const wire::Submit& request, uint32_t uid) const {
    if (uid == 0 && !takes_root_jobs(p_.config))
        return fail(
            CauseCode::not_allowed,
            "root has no jobs on this machine: submit as a plain user, or set root_jobs = true in "
            "agentd's configuration");
    Submission s;
    s.spec = request.spec;
    s.terms = request.terms;
    s.name = request.name;
    TRY_ASSIGN(s.user, user_name(uid));
    s.spec.user = s.user;
    s.spec.as = {};
    TRY_ASSIGN(const auto shared, directories_of(p_.config.shared_files));
    choose_files(s.spec, request.files_said, p_.config.files, lies_below(s.spec.launch.cwd, shared),
                 p_.config.files_tmp);
    for (const std::string* path : {&s.spec.launch.cwd, &s.spec.launch.path})
        if (s.spec.tmp == FilesTmp::own && lies_below(*path, {"/tmp"}))
            return fail(CauseCode::invalid, "its /tmp is its own, and empty as it begins: " +
                                                *path + " is not there (srun --tmp=shared)");
    if (s.spec.files == FilesMode::local && !s.spec.local_paths.empty())
        return fail("--local-path is for --files=home or auto: this job sees all of its node");
    if (s.spec.files_snapshot && s.spec.files == FilesMode::local)
        return fail("--files-snapshot is for --files=home or auto: this job sees its node's files");
    if (s.spec.files_snapshot && lies_below(s.spec.launch.cwd, laid_over(s.spec)))
        return fail("--files-snapshot: " + s.spec.launch.cwd +
                    " is not its home's, where the job runs");
    if (s.spec.files_snapshot && s.spec.checkpoint_every.ns == 0 &&
        p_.config.home.checkpoint_every.ns == 0)
        return fail("--files-snapshot needs --checkpoint-every: it is taken with each checkpoint");
    s.token = request.token;
    s.group = request.group;
    s.tries = request.tries;
    s.out_file = request.out_file;
    s.err_file = request.err_file;
    TRY_ASSIGN(const std::string secret, trust::random_bytes(DiskKey::secret_bytes));
    s.disk_secret = trust::hex(secret);
    return s;
}

Result<JobId> HomeShell::submit(const wire::Submit& request, uint32_t uid) {
    if (request.retry)
        if (const HomeJob* known = home_.find_token(uid, request.token)) return known->id;
    TRY_ASSIGN(Submission s, submission(request, uid));
    const JobId next = home_.next_id();
    TRY(terminals_->prepare(next, request.attach, uid));
    Result<JobId> id = fail("");
    step([&](Home& h, home::Outputs& out) { id = h.submit(std::move(s), unix_now(), out); });
    if (!id) terminals_->erase(next);
    return id;
}

Status HomeShell::change(const JobId& id, const JobTerms& terms) {
    Status done;
    step([&](Home& h, home::Outputs& out) { done = h.change(id, terms, Loop::now(), out); });
    return done;
}

void HomeShell::signal(const JobId& id, int32_t number, bool ends) {
    step([&](Home& h, home::Outputs& out) {
        // A job that stands in memory could take the signal, but only when it goes on.
        const HomeJob* job = h.find(id);
        const bool taken = !(ends && job && job->phase == JobPhase::frozen) &&
                           h.signal(id, number, out).has_value();
        if (!taken && ends) (void)h.cancel(id, Loop::now(), out);
    });
}

void HomeShell::attached_to_finished(const JobId& id) {
    if (!exit_waits_.contains(id)) finish_terminals(id);
}

}  // namespace souk
