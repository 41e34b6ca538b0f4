// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: this node as the home of its jobs. Commands to guests (this node's own among them), what
// they say, the market's orders, and the terminals.
#include <sys/wait.h>

#include "agentd/daemon/agent.hpp"
#include "agentd/daemon/file_systems.hpp"
#include "checkpoint/disk_key.hpp"
#include "checkpoint/stream_tag.hpp"
#include "kernel/base/json.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/trust/openssl.hpp"

namespace souk {
namespace {

constexpr Nanos bill_limit = Nanos::from_ms(500);

}  // namespace

// Whatever may make or read an image of that epoch on its node's disk.
void Agent::add_disk_secret(GuestCommand& command) const {
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

// Both ends of a transfer get a key that nobody else has. A move that this daemon's restart
// interrupts is given up, or its image has been taken: the secret need not outlive the daemon.
void Agent::add_image_key(GuestCommand& command) const {
    add_disk_secret(command);
    const bool comes = command.verb == GuestVerb::prepare || command.verb == GuestVerb::keep;
    const bool goes = command.verb == GuestVerb::ship || command.verb == GuestVerb::checkpoint;
    if (!comes && !goes) return;
    const Epoch to = comes ? command.epoch : command.new_epoch;
    command.image_key = trust::hex(image_key(image_secret_, command.id, to));
}

// What a node compares with its own, before it shows these to the job.
void Agent::add_file_systems(GuestCommand& command) const {
    const bool comes = command.verb == GuestVerb::start || command.verb == GuestVerb::prepare;
    if (!comes || !command.spec.files_auto) return;
    const bool shared = command.spec.files == FilesMode::local;
    const auto text = file_systems(shared ? config_.shared_files : "");
    if (text)
        command.spec.file_systems = *text;
    else
        log_.warning("what is mounted here cannot be told", {{"WHY", text.error()}});
}

void Agent::command_guest(const Peer& peer, GuestCommand command) {
    add_image_key(command);
    add_file_systems(command);
    if (peer.node == config_.node)
        return after_commit([this, command] { guests_->command(config_.node, command); });
    Peer to = peer;
    if (to.address.empty())
        if (const auto known = home_.peer_of(peer.node)) to = *known;
    peers_->command(to, command);
}

Status Agent::from_guest(const NodeName& node, const wire::Frame& f) {
    switch (f.type) {
        case wire::frame::guest_event: {
            TRY_ASSIGN(const GuestEvent event, wire::unpack<GuestEvent>(f.body));
            guest_event(node, event);
            return {};
        }
        case wire::frame::expel: {
            TRY_ASSIGN(const Expel expel, wire::unpack<Expel>(f.body));
            home_step([&](Home& h, home::Outputs& out) { h.expel(node, expel, Loop::now(), out); });
            return {};
        }
        case wire::frame::heartbeat: {
            TRY_ASSIGN(const Heartbeat heartbeat, wire::unpack<Heartbeat>(f.body));
            home_step([&](Home& h, home::Outputs& out) {
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

// An exit counts when the whole output is here: it travels before the event, but a full disk may
// have refused it.
void Agent::guest_event(const NodeName& node, const GuestEvent& told) {
    GuestEvent event = told;
    event.heard = unix_now();
    const auto take = [this, node, event] {
        if (event.state == GuestState::exited) files_->tell_now(event.id);
        home_step(
            [&](Home& h, home::Outputs& out) { h.guest_event(node, event, Loop::now(), out); });
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

// The job, if that (node, epoch) is where its output comes from now.
const HomeJob* Agent::output_owner(const NodeName& node, const JobId& id, Epoch epoch) const {
    const HomeJob* job = home_.find(id);
    if (!job || job->phase == JobPhase::finished) return nullptr;
    const bool owner = job->at.node == node && job->epoch == epoch;
    const bool released =
        job->step == MoveStep::release && job->to.node == node && job->to_epoch == epoch;
    return owner || released ? job : nullptr;
}

void Agent::stdio_data(const NodeName& node, const wire::StdioData& data) {
    if (const HomeJob* job = output_owner(node, data.id, data.epoch)) terminals_->data(*job, data);
}

void Agent::stdio_input_ack(const NodeName& node, const wire::StdioInputAck& ack) {
    if (const HomeJob* job = output_owner(node, ack.id, ack.epoch))
        terminals_->input_taken(*job, ack);
}

void Agent::from_own_guest(const Expel& expel) {
    home_step([&](Home& h, home::Outputs& out) { h.expel(config_.node, expel, Loop::now(), out); });
}

TerminalOutlet Agent::outlet() {
    TerminalOutlet o;
    const auto node_of = [](const HomeJob& job, Epoch epoch) {
        return epoch == job.epoch ? job.at.node : job.to.node;
    };
    o.job = [this](const JobId& id) { return home_.find(id); };
    o.ack = [this, node_of](const HomeJob& job, const wire::StdioAck& ack) {
        const NodeName node = node_of(job, ack.epoch);
        if (node == config_.node) return after_commit([this, ack] { guests_->stdio_ack(ack); });
        (void)peers_->to_guest(node, ack);
    };
    o.input = [this](const HomeJob& job, const wire::StdioInput& input) {
        if (job.at.node == config_.node)
            return after_commit([this, input] { guests_->stdio_input(input); });
        (void)peers_->to_guest(job.at.node, input);
    };
    o.winch = [this](const HomeJob& job, const wire::StdioWinch& winch) {
        if (job.at.node == config_.node)
            return after_commit([this, winch] { guests_->stdio_winch(winch); });
        (void)peers_->to_guest(job.at.node, winch);
    };
    o.trouble = [this](const JobId& id, const std::string& why) {
        log_.limited("output", Loop::now(), Level::warning, "output is held back",
                     {{"JOB", id.text()}, {"WHY", why}});
    };
    return o;
}

void Agent::from_market(const FromMarket& message) {
    if (const auto* order = std::get_if<Order>(&message))
        return home_step([&](Home& h, home::Outputs& out) { h.order(*order, Loop::now(), out); });
    if (const auto* note = std::get_if<JobNote>(&message)) {
        home_step([&](Home& h, home::Outputs& out) { h.note(*note, Loop::now(), out); });
        ledger_->compare_soon();
        if (note->settled && exit_waits_.contains(note->id)) finish_terminals(note->id);
        return;
    }
    if (const auto* lost = std::get_if<NodeLost>(&message)) {
        log_.notice("a node is lost", {{"NODE", lost->node}});
        return home_step(
            [&](Home& h, home::Outputs& out) { h.node_lost(lost->node, Loop::now(), out); });
    }
    if (const auto* note = std::get_if<ProviderNote>(&message)) offer_->noted(*note);
}

// Its files first.
void Agent::gone_back(const JobId& id) {
    if (const HomeJob* job = home_.find(id))
        snapshots_.go_back(*job, [this, id](const std::string& files) { splice(id, files); });
}

// Where its output goes on, and what is said there; both follow from what is on disk by now.
void Agent::splice(const JobId& id, const std::string& files) {
    uint64_t output_end[2], input_end = 0;
    if (!terminals_->lengths(id, output_end, input_end)) return;
    home_step([&](Home& h, home::Outputs& out) {
        h.spliced(id, output_end, input_end, files, Loop::now(), out);
    });
    after_commit([this, id] {
        if (const HomeJob* job = home_.find(id)) terminals_->splice(*job);
    });
}

namespace {

// Of what is told of a job, where it is the cause that its record names.
CauseCode code_of(const HomeJob& job, const std::string& told) {
    for (const Cause* known : {&job.comment, &job.why})
        if (told == *known) return known->code;
    return CauseCode::none;
}

}  // namespace

void Agent::tell(const home::Tell& tell) {
    const HomeJob* job = home_.find(tell.id);
    if (!tell.text.empty() && job)
        log_.info("job", {{"JOB", tell.id.text()},
                          {"EPOCH", job->epoch.n},
                          {"ORDER", job->order_seq},
                          {"STEP", to_string(tell.what)},
                          {"CODE", to_string(code_of(*job, tell.text))},
                          {"WHY", tell.text}});
    if (tell.what != home::Tell::What::finished)
        return terminals_->tell(tell.id, {tell.what, tell.text});
    // The bill comes from the market a moment later; the terminal waits that long for it, and no
    // longer.
    if (!market_->connected()) return finish_terminals(tell.id);
    exit_waits_[tell.id] = loop_.after(bill_limit, [this, id = tell.id] { finish_terminals(id); });
}

// Of a job that does not run; empty: nothing is known.
std::string Agent::why_waits(const HomeJob& job) const {
    if (job.phase != JobPhase::waiting && job.phase != JobPhase::frozen) return {};
    if (market_->connected()) return job.comment;
    return "no connection to the market at " + market_->market() + " (" + market_->trouble() +
           "); until there is one, what runs goes on and nothing new begins";
}

wire::Meter Agent::meter(const HomeJob& job) const {
    return {.phase = job.phase,
            .where = job.at.node,
            .price = job.price,
            .cost = std::max(Money{}, Home::cost(job, Loop::now())),
            .cpus = job.terms.cpus,
            .counts = HomeClock::runs(job)};
}

void Agent::tell_waiting() {
    for (const auto& [seq, job] : home_.jobs()) {
        if (job.phase != JobPhase::waiting && job.phase != JobPhase::frozen) continue;
        const std::string why = why_waits(job);
        terminals_->tell(
            job.id, {home::Tell::What::comment, why.empty() ? "the market is there again" : why});
    }
}

void Agent::finish_terminals(const JobId& id) {
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

std::string Agent::summary(const HomeJob& job) const {
    // as srun exits
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

}  // namespace souk
