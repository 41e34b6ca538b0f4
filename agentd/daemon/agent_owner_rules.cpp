// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: the rules that the owner of this node gives by pvdctl: in which hours and at what price it
// is offered, who does not come, and who is to go now.
#include <algorithm>

#include "agentd/daemon/agent.hpp"
#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/host/zone.hpp"

namespace souk {
namespace {

constexpr int32_t hours_of_week = 168;

void write_frames(JsonWriter& j, const Provider& p) {
    int number = 0;
    j.key("frames").begin_array();
    for (const std::string& frame : p.frames().parts())
        j.begin_object().field("number", ++number).field("frame", frame).end_object();
    j.end_array();
    j.field("always", p.frames().always()).field("zone", p.record().zone);
    j.field("warning_s", p.record().warning_s).field("on_market", p.report().on_market);
    if (!p.record().on_market && p.opens_unix_s() > 0) j.field("opens_unix_s", p.opens_unix_s());
    if (p.record().on_market && p.closes_unix_s() > 0) j.field("closes_unix_s", p.closes_unix_s());
}

// `hours`: what it asks in each of the week's, from Monday 00:00, and where a rule begins or ends
// within one, at its begin.
void write_curve(JsonWriter& j, const Provider& p) {
    const ProviderRecord& r = p.record();
    j.field("price", p.asked()).field("otherwise", r.reserve).field("zone", r.zone);
    j.field("price_auto", r.price_auto);
    if (r.price_auto) j.field("floor", r.floor).field("learned", r.learned);
    j.key("rules").begin_array();
    for (const PriceCurve::Rule& rule : p.curve().rules())
        j.begin_object().field("frame", rule.frames.text()).field("price", rule.price).end_object();
    j.end_array().key("hours").begin_array();
    for (int32_t hour = 0; hour < hours_of_week; ++hour) j.value(p.asked_at(hour * 3600));
    j.end_array();
}

// What guests may have now.
void write_lent(JsonWriter& j, const Provider& p) {
    const MachineSize now = p.lent();
    j.field("lent_cpus", static_cast<double>(now.cpu_milli) / 1'000)
        .field("lent_memory_mb", now.memory_mb);
}

void write_rules(JsonWriter& j, const Provider& p) {
    j.key("rules").begin_array();
    for (const OwnerShare::Rule& rule : p.share().rules()) j.value(rule.text);
    j.end_array();
    j.field("holds", p.lent_by()).field("zone", p.record().zone);
    j.field("cpus", p.record().cpus).field("machine_cpus", p.machine().cpus);
    j.field("memory_mb", p.record().memory_mb).field("machine_memory_mb", p.machine().memory_mb);
    write_lent(j, p);
}

// What guests get at most, and what the machine has.
void write_limits(JsonWriter& j, const Provider& p, const Config& config) {
    const ProviderRecord& r = p.record();
    const Hardware& m = p.machine();
    j.field("cpus", r.cpus).field("machine_cpus", m.cpus);
    j.field("memory_mb", r.memory_mb).field("machine_memory_mb", m.memory_mb);
    if (!r.share.empty()) j.field("share", r.share);
    write_lent(j, p);
    if (config.swap_mb >= 0) j.field("swap_mb_each", config.swap_mb);
    if (config.disk_mb_per_s > 0) j.field("disk_mb_per_s_each", config.disk_mb_per_s);
    j.field("pids_each", config.pids_max).field("cpu_weight", config.cpu_weight);
    j.field("price", p.asked()).field("leave_s", config.policy.leave.ns / 1'000'000'000);
    if (config.owner_free_mb > 0) j.field("owner_free_mb", config.owner_free_mb);
    if (config.leave_mb_per_s > 0) j.field("leave_mb_per_s", config.leave_mb_per_s);
    j.field("immovable", config.policy.kill ? "kill" : "stop")
        .field("immovable_s", config.policy.stand.ns / 1'000'000'000);
    j.field("free_cpu_ms", config.promise.free_cpu.ns / 1'000'000)
        .field("free_memory_s", config.promise.free_memory.ns / 1'000'000'000)
        .field("empty_s", config.promise.empty.ns / 1'000'000'000);
    j.key("bans").begin_array();
    for (const std::string& ban : r.bans) j.value(ban);
    j.end_array();
}

}  // namespace

Status Agent::change_zone(const std::string& zone) {
    if (auto known = known_zone(zone); !known) return wrap("zone", known.error());
    Status done;
    offer_->step([&](Provider& p, provider::Outputs& out) {
        done = p.set_zone(zone, OwnerOffer::wall_in(zone), out);
    });
    return done;
}

// Nothing, or `add FRAME`, `remove NUMBER-OR-FRAME`, `zone NAME`, `warning SECONDS`.
Status Agent::frames_request(const std::vector<std::string>& args) {
    if (args.empty()) return {};
    if (args.size() != 2) return fail("frames takes a verb and a value");
    const std::string &verb = args[0], &value = args[1];
    if (verb == "zone") return change_zone(value);
    Status done;
    offer_->step([&](Provider& p, provider::Outputs& out) {
        if (verb == "add") {
            done = p.add_frame(value, offer_->wall_now(), out);
        } else if (verb == "remove") {
            done = p.remove_frame(value, offer_->wall_now(), out);
        } else if (verb == "warning") {
            const auto seconds = whole_number<int64_t>(value);
            done = seconds ? p.set_warning(*seconds, offer_->wall_now(), out)
                           : Status(fail("warning: '" + value + "' is no number of seconds"));
        } else {
            done = fail("frames: '" + verb + "' is not one of add, remove, zone, warning");
        }
    });
    return done;
}

// Nothing, `curve TEXT`, or `auto FLOOR`.
Status Agent::price_request(const std::vector<std::string>& args) {
    if (args.empty()) return {};
    if (args.size() != 2) return fail("price takes a verb and a value");
    Status done;
    offer_->step([&](Provider& p, provider::Outputs& out) {
        if (args[0] == "curve") {
            done = p.set_curve(args[1], offer_->wall_now(), out);
        } else if (args[0] == "auto") {
            const auto floor = parse_money(args[1]);
            done = floor ? p.set_auto(*floor, out) : Status(wrap("floor", floor.error()));
        } else {
            done = fail("price: '" + args[0] + "' is not one of curve, auto");
        }
    });
    return done;
}

// Nothing, or what guests get at most ("all": all that is offered).
Status Agent::share_request(const std::vector<std::string>& args) {
    if (args.empty()) return {};
    if (args.size() != 1) return fail("share takes one value");
    Status done;
    offer_->step([&](Provider& p, provider::Outputs& out) {
        done = p.set_share(args[0], offer_->wall_now(), out);
    });
    if (done) presence_->configured();  // whether he is here may matter now
    return done;
}

void Agent::evict_banned() {
    guests_->bans(offer_->provider().record().bans);
    for (const JobId& id : guests_->banned())
        guests_->step([&](Guest& g, guest::Outputs& out) {
            (void)g.evict(id, Cause(CauseCode::off_market, "its node's owner does not take it"),
                          out);
        });
}

Status Agent::ban(const std::string& whom, bool on) {
    Status done;
    offer_->step([&](Provider& p, provider::Outputs& out) {
        done = on ? p.ban(whom, out) : p.allow(whom, out);
    });
    if (done) evict_banned();
    return done;
}

// It does not come again until `allow job ID`.
Status Agent::evict(const std::string& text) {
    TRY_ASSIGN(const JobId id, parse_job_id(text));
    const auto& all = guests_->machine().all();
    if (std::none_of(all.begin(), all.end(), [&](const auto& e) { return e.first.id == id; }))
        return fail(CauseCode::not_found, "no guest of job " + id.text() + " is on this node");
    log_.notice("the owner evicts a job", {{"JOB", id.text()}});
    return ban("job " + id.text(), true);
}

std::string Agent::rules_json(const std::string& verb) const {
    JsonWriter j;
    j.begin_object().field("node", config_.node);
    if (verb == "provider-frames") {
        write_frames(j, offer_->provider());
    } else if (verb == "provider-price") {
        write_curve(j, offer_->provider());
    } else if (verb == "provider-share") {
        write_rules(j, offer_->provider());
    } else if (verb == "provider-why") {
        offer_->provider().explain(j);
        learning_->write(j);
    } else {
        write_limits(j, offer_->provider(), config_);
    }
    return j.end_object().take();
}

// Nothing: it is none of these.
std::optional<wire::CtlReply> Agent::rules_request(const wire::CtlRequest& request) {
    const std::string& verb = request.verb;
    const auto& args = request.args;
    const bool shows = verb == "provider-limits" || verb == "provider-why";
    const bool either =
        verb == "provider-frames" || verb == "provider-price" || verb == "provider-share";
    const bool acts =
        verb == "provider-ban" || verb == "provider-allow" || verb == "provider-evict";
    if (!shows && !either && !acts) return std::nullopt;
    Status done;
    if ((acts || !args.empty()) && request.uid != 0)
        done = fail(CauseCode::not_allowed,
                    "only root may change what this node offers, and whom `owners` of agentd's "
                    "configuration names");
    else if (shows && !args.empty())
        done = fail(verb + " takes no argument");
    else if (acts && args.size() != 1)
        done = fail(verb + " takes one argument");
    else if (verb == "provider-frames")
        done = frames_request(args);
    else if (verb == "provider-price")
        done = price_request(args);
    else if (verb == "provider-share")
        done = share_request(args);
    else if (verb == "provider-evict")
        done = evict(args[0]);
    else if (acts)
        done = ban(args[0], verb == "provider-ban");
    wire::CtlReply reply;
    reply.ok = done.has_value();
    if (!done) {
        reply.error = as_asked(done.error());
        return reply;
    }
    if (either && !args.empty()) offer_->arm();
    if (verb == "provider-price" && !args.empty()) learning_->learn_soon();
    reply.json = verb == "provider-evict" ? provider_json() : rules_json(verb);
    return reply;
}

}  // namespace souk
