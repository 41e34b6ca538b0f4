// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/owner_rules.hpp"

#include <algorithm>
#include <map>

#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/zone.hpp"

namespace souk {
namespace {

constexpr Nanos leave_wait_max = Nanos::from_s(25), leave_wait_more = Nanos::from_s(5);
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

// `hours` has what the node asks in each hour of the week, from Monday 00:00. Where a rule begins
// or ends within an hour, it is what the node asks as that hour begins.
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

// The share that guests may have now.
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

// Shows the most that guests get, and the whole machine beside it.
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

// Loads are thousandths of all CPUs of the machine.
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

Error not_allowed() {
    return {0,
            "only root may change what this node offers, and whom `owners` of agentd's "
            "configuration names",
            CauseCode::not_allowed};
}

// Says what is wrong with the words of a request that changes something; empty: nothing is.
std::string ill_formed(const wire::CtlRequest& request) {
    const std::string& verb = request.verb;
    const auto& args = request.args;
    if (verb == "provider-market") {
        const bool known = !args.empty() && (args[0] == "on" || args[0] == "off");
        return known ? "" : "market needs on or off";
    }
    if (verb == "provider-set") return args.size() == 2 ? "" : "set needs a name and a value";
    if (verb == "provider-unset") return args.size() == 1 ? "" : "unset needs a name";
    if (verb == "provider-pause" || verb == "provider-resume" || verb == "provider-renew")
        return {};
    return "unknown request " + verb;
}

}  // namespace

// -------------------------------------------------------------------------------------------------
// requests

wire::CtlReply OwnerRules::request(const wire::CtlRequest& request) {
    wire::CtlReply reply;
    const auto refuse = [&](Cause why) {
        reply.error = std::move(why);
        return reply;
    };
    if (request.verb == "provider-history") return p_.presence.history().request(request);
    if (auto answer = rule(request)) return *answer;
    if (request.verb != "provider-status") {
        if (request.uid != 0) return refuse(not_allowed());
        if (std::string wrong = ill_formed(request); !wrong.empty())
            return refuse(std::move(wrong));
        if (const Status done = change(request); !done) return refuse(as_asked(done.error()));
        p_.offer.arm();
        (void)p_.presence.apply_bounds();
        if (request.verb == "provider-unset") p_.presence.configured();
    }
    reply.ok = true;
    reply.json = status_json();
    return reply;
}

Status OwnerRules::change(const wire::CtlRequest& request) {
    const std::string& verb = request.verb;
    const auto& args = request.args;
    if (verb == "provider-set") return set(args[0], args[1]);
    if (verb == "provider-unset") return unset(args[0]);
    if (verb == "provider-renew") return p_.renewal.renew();
    if (verb == "provider-pause" || verb == "provider-resume")
        p_.presence.pause(verb == "provider-pause");
    if (verb == "provider-market")
        p_.offer.step([&](Provider& p, provider::Outputs& out) {
            p.market(args[0] == "on", p_.offer.wall_now(), out);
        });
    return {};
}

Status OwnerRules::set(const std::string& name, const std::string& value) {
    Status done;
    const auto number = whole_number<int64_t>(value);
    p_.offer.step([&](Provider& p, provider::Outputs& out) {
        if (name == "price") {
            const auto price = parse_money(value);
            done = price ? p.set_price(*price, out) : Status(tl::unexpected(price.error()));
        } else if (name == "frames") {
            done = p.set_frames(value, p_.offer.wall_now(), out);
        } else if (!number) {
            done = fail("'" + value + "' is not a whole number");
        } else if (name == "speed") {
            done = p.set_speed(*number, out);
        } else if (name == "cpus") {
            done = p.set_cpus(*number, out);
        } else if (name == "memory") {
            done = p.set_memory(*number, out);
        } else {
            done = fail("'" + name + "' cannot be set: price, speed, cpus, memory or frames");
        }
    });
    return done;
}

Status OwnerRules::unset(const std::string& name) {
    Status done;
    const std::string zone =
        name == "zone" ? p_.config.frames_zone : p_.offer.provider().record().zone;
    p_.offer.step([&](Provider& p, provider::Outputs& out) {
        done = p.unset(name, OwnerOffer::wall_in(zone), out);
    });
    return done;
}

std::string OwnerRules::status_json() const {
    const Provider& provider = p_.offer.provider();
    const ProviderNote& note = p_.offer.note();
    const ProviderReport r = provider.report();
    JsonWriter j;
    j.begin_object().field("node", r.node);
    j.field("status", !r.on_market      ? "off market"
                      : note.guests > 0 ? "on market, busy"
                                        : "on market, free");
    j.field("on_market", r.on_market)
        .field("reserve", r.reserve)
        .field("current_price", note.current_price);
    if (!note.of_market.empty()) {
        j.key("of_market").begin_array();
        for (const std::string& one : note.of_market) j.value(one);
        j.end_array();
    }
    j.field("next_price", note.next_price).field("speed", r.speed).field("cpus", r.cpus);
    j.field("memory_mb", r.memory_mb).field("free_mb", r.free_mb).field("guests", note.guests);
    j.field("earned", note.earned)
        .field("load_permille", r.load_permille)
        .field("wait_permille", r.wait_permille);
    write_load(j, provider.load(), p_.load);
    j.field("frames", provider.record().frames).field("cannot", r.cannot);
    if (!r.restriction.empty()) j.field("restriction", r.restriction);
    write_near(j, r);
    j.field("user", p_.as_root.user);
    j.field("market", p_.market.connected()).field("market_trouble", p_.market.trouble());
    if (p_.ledger.mark().seq > 0) j.field("ledger_seen", p_.ledger.mark().text());
    p_.presence.write(j);
    j.key("set_by_owner").begin_array();
    for (const Provider::Override& o : provider.overrides())
        j.begin_object()
            .field("name", o.name)
            .field("value", o.value)
            .field("configuration", o.file)
            .end_object();
    j.end_array();
    if (!provider.share().empty())
        j.field("share", provider.record().share)
            .field("share_holds", provider.lent_by())
            .field("lent_cpus", static_cast<double>(provider.lent().cpu_milli) / 1'000)
            .field("lent_memory_mb", provider.lent().memory_mb);
    if (p_.share && p_.share->memory_waits(r.memory_mb, p_.offer.machine_size()))
        j.field("memory_waits", true);  // guests hold more than the share leaves them
    j.key("here");
    write_guests(j);
    return j.end_object().take();
}

Status OwnerRules::zone(const std::string& zone) {
    if (auto known = known_zone(zone); !known) return wrap("zone", known.error());
    Status done;
    p_.offer.step([&](Provider& p, provider::Outputs& out) {
        done = p.set_zone(zone, OwnerOffer::wall_in(zone), out);
    });
    return done;
}

// The arguments are nothing, or `add FRAME`, `remove NUMBER-OR-FRAME`, `zone NAME`, `warning
// SECONDS`.
Status OwnerRules::frames(const std::vector<std::string>& args) {
    if (args.empty()) return {};
    if (args.size() != 2) return fail("frames takes a verb and a value");
    const std::string &verb = args[0], &value = args[1];
    if (verb == "zone") return zone(value);
    Status done;
    p_.offer.step([&](Provider& p, provider::Outputs& out) {
        if (verb == "add") {
            done = p.add_frame(value, p_.offer.wall_now(), out);
        } else if (verb == "remove") {
            done = p.remove_frame(value, p_.offer.wall_now(), out);
        } else if (verb == "warning") {
            const auto seconds = whole_number<int64_t>(value);
            done = seconds ? p.set_warning(*seconds, p_.offer.wall_now(), out)
                           : Status(fail("warning: '" + value + "' is no number of seconds"));
        } else {
            done = fail("frames: '" + verb + "' is not one of add, remove, zone, warning");
        }
    });
    return done;
}

// The arguments are nothing, `curve TEXT`, or `auto FLOOR`.
Status OwnerRules::price(const std::vector<std::string>& args) {
    if (args.empty()) return {};
    if (args.size() != 2) return fail("price takes a verb and a value");
    Status done;
    p_.offer.step([&](Provider& p, provider::Outputs& out) {
        if (args[0] == "curve") {
            done = p.set_curve(args[1], p_.offer.wall_now(), out);
        } else if (args[0] == "auto") {
            const auto floor = parse_money(args[1]);
            done = floor ? p.set_auto(*floor, out) : Status(wrap("floor", floor.error()));
        } else {
            done = fail("price: '" + args[0] + "' is not one of curve, auto");
        }
    });
    return done;
}

// The argument, if there is one, is the most that guests get ("all": all that is offered).
Status OwnerRules::share(const std::vector<std::string>& args) {
    if (args.empty()) return {};
    if (args.size() != 1) return fail("share takes one value");
    Status done;
    p_.offer.step([&](Provider& p, provider::Outputs& out) {
        done = p.set_share(args[0], p_.offer.wall_now(), out);
    });
    if (done) p_.presence.configured();  // whether the owner is here may matter now
    return done;
}

void OwnerRules::evict_banned() {
    p_.guests.users().bans(p_.offer.provider().record().bans);
    for (const JobId& id : p_.guests.users().banned(p_.guests.machine()))
        p_.guests.step([&](Guest& g, guest::Outputs& out) {
            (void)g.evict(id, Cause(CauseCode::off_market, "its node's owner does not take it"),
                          out);
        });
}

Status OwnerRules::ban(const std::string& whom, bool on) {
    Status done;
    p_.offer.step([&](Provider& p, provider::Outputs& out) {
        done = on ? p.ban(whom, out) : p.allow(whom, out);
    });
    if (done) evict_banned();
    return done;
}

// The job does not come again until `allow job ID`.
Status OwnerRules::evict(const std::string& text) {
    TRY_ASSIGN(const JobId id, parse_job_id(text));
    const auto& all = p_.guests.machine().all();
    if (std::none_of(all.begin(), all.end(), [&](const auto& e) { return e.first.id == id; }))
        return fail(CauseCode::not_found, "no guest of job " + id.text() + " is on this node");
    p_.log.notice("the owner evicts a job", {{"JOB", id.text()}});
    return ban("job " + id.text(), true);
}

std::string OwnerRules::rule_json(const std::string& verb) const {
    JsonWriter j;
    j.begin_object().field("node", p_.config.node);
    if (verb == "provider-frames") {
        write_frames(j, p_.offer.provider());
    } else if (verb == "provider-price") {
        write_curve(j, p_.offer.provider());
    } else if (verb == "provider-share") {
        write_rules(j, p_.offer.provider());
    } else if (verb == "provider-why") {
        p_.offer.provider().explain(j);
        p_.learning.write(j);
    } else {
        write_limits(j, p_.offer.provider(), p_.config);
    }
    return j.end_object().take();
}

// Returns nothing if the request is not about a rule.
std::optional<wire::CtlReply> OwnerRules::rule(const wire::CtlRequest& request) {
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
        done = tl::unexpected(not_allowed());
    else if (shows && !args.empty())
        done = fail(verb + " takes no argument");
    else if (acts && args.size() != 1)
        done = fail(verb + " takes one argument");
    else if (verb == "provider-frames")
        done = frames(args);
    else if (verb == "provider-price")
        done = price(args);
    else if (verb == "provider-share")
        done = share(args);
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
    if (either && !args.empty()) p_.offer.arm();
    if (verb == "provider-price" && !args.empty()) p_.learning.learn_soon();
    reply.json = verb == "provider-evict" ? status_json() : rule_json(verb);
    return reply;
}

// -------------------------------------------------------------------------------------------------
// guests

// Lists for the owner which jobs are here, and which of them still run.
void OwnerRules::write_guests(JsonWriter& j) const {
    std::map<GuestKey, Guest::Left> left;
    for (Guest::Left& l : p_.guests.machine().left()) left.emplace(l.key, std::move(l));
    std::map<GuestKey, JobSend> sends;
    for (JobSend& s : p_.guests.sends()) sends[{s.id, s.epoch}] = std::move(s);
    j.begin_array();
    for (const auto& [key, e] : p_.guests.machine().all()) {
        const auto here = left.find(key);
        const bool frozen = e.job.state == GuestState::frozen && !e.job.kept;
        if (here == left.end() && !frozen) continue;
        const bool paused = !frozen && !here->second.paused.empty();
        const char* const state = frozen                ? "frozen"
                                  : here->second.stands ? "stopped"
                                  : paused              ? "paused"
                                                        : "running";
        j.begin_object()
            .field("job", key.id.text())
            .field("state", state)
            .field("memory_mb", e.job.memory_mb);
        if (const std::string image = p_.guests.machine().image_waits(key, p_.config.node);
            frozen && !image.empty())
            j.field("image", image);
        if (!frozen && !here->second.why.empty()) j.field("cannot_move", here->second.why);
        if (paused) write_cause(j, "why", here->second.paused);
        if (const auto s = sends.find(key); s != sends.end())
            j.field("sent_bytes", s->second.sent_bytes)
                .field("sending_bytes", s->second.total_bytes);
        j.end_object();
    }
    j.end_array();
}

void OwnerRules::when_guests_left(const std::string& job, std::function<void()> done) {
    const auto gone = [this, job] {
        if (job.empty() && p_.guests.machine().here(p_.config.node).going > 0) return false;
        const auto left = p_.guests.machine().left();
        return std::all_of(left.begin(), left.end(), [&](const Guest::Left& l) {
            return job.empty() ? l.stays : l.key.id.text() != job;
        });
    };
    waits_.add(std::min(p_.config.policy.leave + leave_wait_more, leave_wait_max), gone,
               std::move(done));
    guests_stepped();
}

void OwnerRules::guests_stepped() {
    if (!waits_.empty()) waits_.look();
}

}  // namespace souk
