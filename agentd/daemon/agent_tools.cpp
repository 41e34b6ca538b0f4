// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: the unix socket. Submissions, and the answers to pvdctl.
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "agentd/core/files_choice.hpp"
#include "agentd/core/owner_names.hpp"
#include "agentd/daemon/agent.hpp"
#include "checkpoint/disk_key.hpp"
#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/proc_status.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/store/same_files.hpp"
#include "kernel/trust/openssl.hpp"

namespace souk {
namespace {

// A job runs as whom its home says: what it asks is no owner's word. Who cannot be looked at counts
// as one.
bool in_a_capsule(pid_t pid) {
    const auto status = read_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/status");
    const auto pids = status ? pids_of_status(*status) : std::nullopt;
    return !pids || pids->below;
}

// Thousandths of all CPUs of the machine.
void write_load(JsonWriter& j, const LoadReading& load, const LoadMeter& meter) {
    j.field("load_source", load.source);
    if (!meter.why_not_bpf().empty()) j.field("load_trouble", meter.why_not_bpf());
    if (!meter.why_no_network().empty()) j.field("network_trouble", meter.why_no_network());
    j.field("owner_permille", load.owner_permille)
        .field("owner_wait_permille", load.owner_wait_permille)
        .field("owner_wait_p99_us", load.owner_wait_p99.ns / 1'000)
        .field("system_permille", load.system_permille)
        .field("headroom_permille", load.headroom_permille);
    if (const auto& pressure = meter.memory_pressure())
        j.field("memory_pressure_permille", *pressure);
    else
        j.field("memory_pressure_trouble", pressure.error().message);
}

}  // namespace

// As many as the open files of this daemon allow, which jobs and other agents need too.
UserShare::Bounds Agent::tool_bounds(const Config& config) {
    constexpr size_t sessions_max = 8192;
    rlimit files{};
    const size_t all = ::getrlimit(RLIMIT_NOFILE, &files) < 0
                           ? sessions_max
                           : std::clamp<size_t>(files.rlim_max / 2, 64, sessions_max);
    const size_t each = config.user_connections > 0
                            ? std::min(all, static_cast<size_t>(config.user_connections))
                            : all / 4;
    return {.all = all, .reserve = all / 8, .each = each};
}

void Agent::accept_tool(Fd socket) {
    const auto who = peer_cred(socket.get());
    if (!who)
        return log_.limited("tool", Loop::now(), Level::warning, "refused a tool",
                            {{"WHY", who.error()}});
    auto place = tools_share_.take(who->uid);
    if (!place) {
        wire::send_last_word(socket.get(), place.error());
        return log_.limited("tool of " + std::to_string(who->uid), Loop::now(), Level::warning,
                            "refused a tool", {{"uid", int64_t{who->uid}}, {"WHY", place.error()}});
    }
    ToolHost& host = *this;
    std::vector<uint32_t> groups = peer_groups(socket.get());
    std::vector<uint32_t> all = groups;
    all.push_back(who->gid);
    const auto owns =
        accounts_.told([&] { return owned_by(config_.owners, who->uid, all, accounts_); });
    if (!owns)
        log_.limited("owner", Loop::now(), Level::warning,
                     "whether a tool is its owner's is unknown",
                     {{"uid", int64_t{who->uid}}, {"WHY", owns.error()}});
    const bool owner = owns.value_or(false) && !in_a_capsule(who->pid);
    auto session =
        std::make_shared<ToolSession>(host, *who, std::move(groups), owner, std::move(*place));
    if (auto opened = session->open(loop_, std::move(socket)); !opened)
        return log_.limited("tool", Loop::now(), Level::warning, "refused a tool",
                            {{"WHY", opened.error()}});
    sessions_.emplace(session.get(), session);
}

bool Agent::may_wait(uint32_t uid, size_t more) const {
    size_t waits = more;
    for (const auto& [session, kept] : sessions_)
        if (session->uid() == uid) waits += session->waiting();
    return waits <= static_cast<size_t>(config_.user_answers_mb) << 20;
}

void Agent::drop_session(ToolSession* session) {
    const auto it = sessions_.find(session);
    if (it == sessions_.end()) return;
    const auto kept = it->second;
    sessions_.erase(it);
    kept->end();
    loop_.defer([kept] {});  // it may be on the stack now
}

void Agent::ask_market(wire::CtlRequest request, std::function<void(wire::CtlReply)> answer) {
    if (request.verb == "quote")  // as the job would get
        for (std::string& arg : request.args)
            if (arg == "memory=0") arg = "memory=" + std::to_string(config_.home.memory_default_mb);
    market_->ask(std::move(request), std::move(answer));
}

void Agent::closed(ToolSession* session, bool welcomed, const Error& why) {
    if (!welcomed)
        log_.limited("tool", Loop::now(), Level::warning, "a connection ended before its hello",
                     {{"uid", int64_t{session->uid()}}, {"WHY", why}});
    drop_session(session);
}

// Out of the caller's loop over its sessions.
void Agent::finished(std::shared_ptr<ToolSession> session) {
    loop_.defer([this, session = std::move(session)] { drop_session(session.get()); });
}

// Long: a case for each verb.
wire::CtlReply Agent::provider_request(const wire::CtlRequest& request) {
    wire::CtlReply reply;
    const auto refuse = [&](Cause why) {
        reply.error = std::move(why);
        return reply;
    };
    if (request.verb == "node-status") {
        reply.ok = true;
        reply.json = node_json();
        return reply;
    }
    if (request.verb == "provider-history") return presence_->history().request(request);
    if (auto answer = rules_request(request)) return *answer;
    if (request.verb != "provider-status" && request.uid != 0)
        return refuse({CauseCode::not_allowed,
                       "only root may change what this node offers, and whom `owners` of agentd's "
                       "configuration names"});
    Status done;
    if (request.verb == "provider-market") {
        const std::string word = !request.args.empty() ? request.args[0] : "";
        if (word != "on" && word != "off") return refuse("market needs on or off");
        offer_->step([&](Provider& p, provider::Outputs& out) {
            p.market(word == "on", offer_->wall_now(), out);
        });
    } else if (request.verb == "provider-pause" || request.verb == "provider-resume") {
        presence_->pause(request.verb == "provider-pause");
    } else if (request.verb == "provider-renew") {
        done = renewal_->renew();
    } else if (request.verb == "provider-set") {
        if (request.args.size() != 2) return refuse("set needs a name and a value");
        const std::string& key = request.args[0];
        const std::string& text = request.args[1];
        const auto number = whole_number<int64_t>(text);
        offer_->step([&](Provider& p, provider::Outputs& out) {
            if (key == "price") {
                const auto price = parse_money(text);
                done = price ? p.set_price(*price, out) : Status(tl::unexpected(price.error()));
            } else if (key == "frames") {
                done = p.set_frames(text, offer_->wall_now(), out);
            } else if (!number) {
                done = fail("'" + text + "' is not a whole number");
            } else if (key == "speed") {
                done = p.set_speed(*number, out);
            } else if (key == "cpus") {
                done = p.set_cpus(*number, out);
            } else if (key == "memory") {
                done = p.set_memory(*number, out);
            } else {
                done = fail("'" + key + "' cannot be set: price, speed, cpus, memory or frames");
            }
        });
        if (!done) return refuse(as_asked(done.error()));
    } else if (request.verb == "provider-unset") {
        if (request.args.size() != 1) return refuse("unset needs a name");
        const std::string& name = request.args[0];
        const std::string zone =
            name == "zone" ? config_.frames_zone : offer_->provider().record().zone;
        offer_->step([&](Provider& p, provider::Outputs& out) {
            done = p.unset(name, OwnerOffer::wall_in(zone), out);
        });
        if (!done) return refuse(as_asked(done.error()));
    } else if (request.verb != "provider-status") {
        return refuse("unknown request " + request.verb);
    }
    if (request.verb != "provider-status") {
        offer_->arm();
        (void)presence_->apply_bounds();
        if (request.verb == "provider-unset") presence_->configured();
    }
    reply.ok = true;
    reply.json = provider_json();
    return reply;
}

std::string Agent::provider_json() const {
    const ProviderReport r = offer_->provider().report();
    JsonWriter j;
    j.begin_object().field("node", r.node);
    j.field("status", !r.on_market                ? "off market"
                      : offer_->note().guests > 0 ? "on market, busy"
                                                  : "on market, free");
    j.field("on_market", r.on_market)
        .field("reserve", r.reserve)
        .field("current_price", offer_->note().current_price);
    j.field("next_price", offer_->note().next_price).field("speed", r.speed).field("cpus", r.cpus);
    j.field("memory_mb", r.memory_mb)
        .field("free_mb", r.free_mb)
        .field("guests", offer_->note().guests);
    j.field("earned", offer_->note().earned)
        .field("load_permille", r.load_permille)
        .field("wait_permille", r.wait_permille);
    write_load(j, offer_->provider().load(), load_);
    j.field("frames", offer_->provider().record().frames).field("cannot", r.cannot);
    if (!r.restriction.empty()) j.field("restriction", r.restriction);
    write_near(j, r);
    j.field("user", as_root_.user);
    j.field("market", market_->connected()).field("market_trouble", market_->trouble());
    if (ledger_->mark().seq > 0) j.field("ledger_seen", ledger_->mark().text());
    presence_->write(j);
    j.key("set_by_owner").begin_array();
    for (const Provider::Override& o : offer_->provider().overrides())
        j.begin_object()
            .field("name", o.name)
            .field("value", o.value)
            .field("configuration", o.file)
            .end_object();
    j.end_array();
    if (!offer_->provider().share().empty())
        j.field("share", offer_->provider().record().share)
            .field("share_holds", offer_->provider().lent_by())
            .field("lent_cpus", static_cast<double>(offer_->provider().lent().cpu_milli) / 1'000)
            .field("lent_memory_mb", offer_->provider().lent().memory_mb);
    if (share_ && share_->memory_waits(r.memory_mb, offer_->machine_size()))
        j.field("memory_waits", true);  // guests hold more than that
    j.key("here");
    write_guests(j);
    return j.end_object().take();
}

std::string Agent::node_json() const {
    const ProviderReport r = offer_->provider().report();
    size_t unfinished = 0;
    for (const auto& [seq, job] : home_->machine().jobs())
        unfinished += job.phase != JobPhase::finished;
    JsonWriter j;
    j.begin_object()
        .field("node", config_.node)
        .field("address", config_.address)
        .field("pid", ::getpid());
    j.field("version", wire::protocol_version)
        .field("state_dir", config_.state)
        .field("market", market_->market());
    j.field("market_connected", market_->connected()).field("market_trouble", market_->trouble());
    j.field("home_jobs", unfinished)
        .field("guests", guests_->count())
        .field("load_source", r.load_source)
        .field("criu", r.machine.criu)
        .field("sends_ahead", guests_->sends_ahead());
    return j.end_object().take();
}

}  // namespace souk
