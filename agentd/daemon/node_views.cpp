// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/node_views.hpp"

#include <unistd.h>

#include <charconv>
#include <optional>
#include <span>

#include "agentd/core/record_fields.hpp"
#include "kernel/base/field_json.hpp"
#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/trust/openssl.hpp"

namespace souk {
namespace {

// A list in parts goes on after an entry, which it knows by its name, whether the entry is still
// there or not. Guests come before jobs.
struct After {
    std::optional<GuestKey> guest;
    std::optional<uint64_t> job;
};
std::string name_of(const GuestKey& key) {
    return key.id.text() + " " + std::to_string(key.epoch.n);
}
std::string name_of(const JobId& id) { return id.text(); }

Result<After> parse_after(const std::string& name) {
    After after;
    if (name.empty()) return after;
    const size_t blank = name.find(' ');
    TRY_ASSIGN(const JobId id, parse_job_id(std::string_view(name).substr(0, blank)));
    if (blank == name.npos) {
        after.job = id.seq;
        return after;
    }
    GuestKey key{id, {}};
    if (std::from_chars(name.data() + blank + 1, name.data() + name.size(), key.epoch.n).ec !=
        std::errc{})
        return fail("'" + name + "' is not a guest");
    after.guest = key;
    return after;
}

// Writes every field of a record on disk. Lists of many jobs leave it out, as it is long.
template <class Record>
void write_record(JsonWriter& j, const Record& record) {
    j.key("record").begin_object();
    write_fields(j, record);
    j.end_object();
}

}  // namespace

bool NodeViews::answers(const wire::CtlRequest& request) const {
    if (request.verb == "guests") return true;
    if (request.args.empty()) return false;
    const bool output = request.verb == "output";
    if (!output && (request.verb != "story" || request.args.size() != 1)) return false;
    const auto id = parse_job_id(request.args[0]);
    return id && id->home == config_.node;
}

wire::CtlReply NodeViews::answer_market(wire::CtlRequest request) const {
    request.uid = UINT32_MAX;  // no user has that number, so what root alone may see is refused
    return view(request, true);
}

wire::CtlReply NodeViews::view(const wire::CtlRequest& request, bool by_market) const {
    wire::CtlReply reply;
    reply.request = request.request;
    const auto refuse = [&](Cause why) {
        reply.error = std::move(why);
        return reply;
    };
    if (request.verb == "guests") return held(request);
    const bool output = request.verb == "output" && !request.args.empty();
    if (output ? by_market
               : (request.verb != "story" && request.verb != "load") || request.args.size() != 1)
        return refuse("unknown request " + request.verb);
    const auto id = parse_job_id(request.args[0]);
    if (!id) return refuse(id.error());
    if (request.verb == "load") {
        auto load =
            by_market ? figures_.guest_load_json(*id) : fail("load: the market asks for that");
        if (!load) return refuse(load.error());
        reply.ok = true;
        reply.json = std::move(*load);
        return reply;
    }
    const HomeJob* job = home_.machine().find(*id);
    if (!job)
        return refuse({CauseCode::not_found,
                       "job " + id->text() +
                           " is not known to its home node any more: it keeps the last " +
                           std::to_string(config_.home.finished_max) + " that are finished"});
    if (!by_market && request.uid != 0 && request.uid != job->spec.launch.uid)
        return refuse({CauseCode::not_allowed, "job " + id->text() + " is another user's: its " +
                                                   request.verb + " is that user's own"});
    if (output) {
        auto kept = output_json(request, *job);
        if (!kept) return refuse(kept.error());
        reply.ok = true;
        reply.json = std::move(*kept);
        return reply;
    }
    JsonWriter j;
    j.begin_object().field("id", id->text()).field("phase", to_string(job->phase));
    write_story(j, job->story);
    reply.ok = true;
    reply.json = j.end_object().take();
    return reply;
}

wire::CtlReply NodeViews::held(const wire::CtlRequest& request) const {
    wire::CtlReply reply;
    reply.request = request.request;
    const auto refuse = [&](Cause why) {
        reply.error = std::move(why);
        return reply;
    };
    if (request.uid != 0)
        return refuse({CauseCode::not_allowed, "only root may see all that this node holds"});
    if (request.args.size() > 1) return refuse("guests takes a job's id or nothing");
    auto list = list_held(request.args.empty() ? "" : request.args[0], request.after, reply.next);
    if (!list) return refuse(list.error());
    reply.ok = true;
    reply.json = std::move(*list);
    return reply;
}

// Lists what this node holds as a host, then what it holds as a home: finished jobs only if
// something of them lies elsewhere. With an id it shows that job alone.
Result<std::string> NodeViews::list_held(const std::string& id, const std::string& begin,
                                         std::string& next) const {
    TRY_ASSIGN(const After after, parse_after(begin));
    const Nanos now = Loop::now();
    JsonWriter j;
    j.begin_array();
    for (const auto& [key, entry] : guests_.machine().all()) {
        if (after.job || (after.guest && !(*after.guest < key)) ||
            (!id.empty() && key.id.text() != id))
            continue;
        j.begin_object().field("kind", "guest");
        guests_.machine().describe(key, now, j);
        if (const pid_t pid = guests_.pid(key); pid > 0) j.field("pid", pid);
        if (!id.empty()) write_record(j, *guests_.machine().find(key));
        j.end_object();
        if (j.bytes() < wire::json_part_bytes) continue;
        next = name_of(key);
        return j.end_array().take();
    }
    const auto& jobs = home_.machine().jobs();
    for (auto it = after.job ? jobs.upper_bound(*after.job) : jobs.begin(); it != jobs.end();
         ++it) {
        const HomeJob& job = it->second;
        if (!id.empty() ? job.id.text() != id
                        : job.phase == JobPhase::finished && job.orphans.empty())
            continue;
        j.begin_object().field("kind", "job");
        home_.machine().describe(job.id, now, j);
        if (!id.empty()) write_record(j, job);
        j.end_object();
        if (j.bytes() < wire::json_part_bytes) continue;
        next = name_of(job.id);
        break;
    }
    return j.end_array().take();
}

// Shows the output as far as it is kept here, in hexadecimal digits, because it may be any bytes.
Result<std::string> NodeViews::output_json(const wire::CtlRequest& request,
                                           const HomeJob& job) const {
    uint64_t from[2] = {0, 0};
    std::optional<uint64_t> lines;
    for (const std::string& arg : std::span(request.args).subspan(1)) {
        const size_t at = arg.find('=') + 1;
        const auto number = whole_number<uint64_t>(std::string_view(arg).substr(at));
        const std::string_view name = std::string_view(arg).substr(0, at);
        if (!number || (name != "out=" && name != "err=" && name != "lines="))
            return fail(CauseCode::invalid, "output: '" + arg + "' is not out=, err= or lines=");
        if (name == "lines=")
            lines = *number;
        else
            from[name == "err="] = *number;
    }
    JsonWriter j;
    j.begin_object().field("id", job.id.text());
    j.field("ended", job.phase == JobPhase::finished).key("streams").begin_array();
    for (const int stream : {0, 1}) {
        TRY_ASSIGN(const auto kept, home_.terminals().peek(job, stream, from[stream], lines));
        j.begin_object().field("begin", kept.begin).field("from", kept.from);
        j.field("end", kept.end).field("hex", trust::hex(kept.bytes)).end_object();
    }
    return j.end_array().end_object().take();
}

wire::CtlReply NodeViews::status() const {
    const ProviderReport r = offer_.provider().report();
    size_t unfinished = 0;
    for (const auto& [seq, job] : home_.machine().jobs())
        unfinished += job.phase != JobPhase::finished;
    JsonWriter j;
    j.begin_object()
        .field("node", config_.node)
        .field("address", config_.address)
        .field("pid", ::getpid());
    j.field("version", wire::protocol_version)
        .field("state_dir", config_.state)
        .field("market", market_.market());
    j.field("market_connected", market_.connected()).field("market_trouble", market_.trouble());
    j.field("home_jobs", unfinished)
        .field("guests", guests_.count())
        .field("load_source", r.load_source)
        .field("criu", r.machine.criu)
        .field("sends_ahead", guests_.sends_ahead());
    figures_.add_gateway(j);
    wire::CtlReply reply;
    reply.ok = true;
    reply.json = j.end_object().take();
    return reply;
}

}  // namespace souk
