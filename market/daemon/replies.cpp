// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/replies.hpp"

#include <time.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>

#include "kernel/base/array_spec.hpp"
#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "market/daemon/bound_reply.hpp"
#include "market/daemon/job_list.hpp"
#include "market/daemon/job_reply.hpp"
#include "market/daemon/ledger_replies.hpp"
#include "market/daemon/money_replies.hpp"
#include "market/daemon/node_list.hpp"
#include "market/daemon/quote_replies.hpp"
#include "market/daemon/reservation_list.hpp"
#include "market/daemon/resource_reply.hpp"
#include "market/daemon/user_replies.hpp"
#include "market/daemon/why_reply.hpp"

namespace souk {
namespace {

using market::Job;
using market::Market;

struct Context {
    Market& market;
    const ReceiptBook& book;
    const FinishedJobs& finished;
    const MarketFace& face;
    Nanos now;
    uint32_t uid;
    const std::vector<std::string>& args;
    const std::string& after;
    std::string& next;
};

Result<std::string> status(const Context& c) {
    const market::Totals t = c.market.totals(c.now);
    size_t homes = 0, providers = 0;
    for (const auto& [name, node] : c.market.nodes()) {
        homes += node.connected && of_site(name).site.empty();
        providers += node.connected && node.record.has_report && node.record.report.on_market;
    }
    const Nanos next = c.market.next_call();
    JsonWriter w;
    w.begin_object().field("hostname", c.face.name).key("ports").begin_array();
    for (const uint16_t port : c.face.ports) w.value(port);
    w.end_array()
        .field("home_nodes", homes)
        .field("market_type", "central")
        .field("solver", c.face.solver);
    w.field("pricing", c.market.solver_options().pricing).key("set").begin_array();
    for (const market::SolverSetting& s : c.market.settings()) {
        w.begin_object().field("what", s.what).field("value", s.value).field("why", s.why);
        w.field("uid", s.uid).field("at_unix_s", s.at.seconds()).end_object();
    }
    w.end_array().key("jobs").begin_object();
    w.field("total", c.market.jobs().size() - t.finished + c.finished.count())
        .field("wait", t.waiting)
        .field("run", t.running + t.in_transit);
    w.field("suspend", t.frozen)
        .field("finish", c.finished.count())
        .field("in_transit", t.in_transit)
        .end_object();
    w.field("metered", c.market.metered());
    const market::ResourceBook& resources = c.market.resources();
    if (!resources.licences().empty())
        write_resources(w, resources.licences(),
                        [&](const std::string& name) { return resources.taken(name); });
    w.field("providers", providers).field("clusters", providers > 0 ? 1 : 0).key("next_run_s");
    if (next == Nanos::never())
        w.null();
    else
        w.value(std::max(Nanos{0}, next - c.now).seconds());
    w.field("consumers_surplus", t.surplus.consumers)
        .field("providers_surplus", t.surplus.providers);
    w.field("social_welfare", t.surplus.welfare).field("paid", t.paid).field("earned", t.earned);
    w.field("commits", c.face.commits)
        .field("decision_p50_ms", c.face.decision_p50.ms())
        .field("decision_p99_ms", c.face.decision_p99.ms());
    w.field("settling", c.market.settling()).key("warnings").begin_array();
    for (const std::string& warning : c.face.warnings) w.value(warning);
    w.end_array();
    if (const auto& d = c.face.decisions) {
        w.key("decisions").begin_object().field("number", d->number).field("head", d->head);
        w.field("bytes", d->bytes).field("since_unix_s", d->since.seconds());
        if (!d->trouble.empty()) w.field("trouble", d->trouble);
        w.end_object();
    }
    w.end_object();
    return w.take();
}

Result<std::string> list_jobs(const Context& c) {
    return list_jobs_reply(
        c.market, c.finished, c.args, c.after, {c.uid, c.now},
        [&c](JsonWriter& w, const Job& job) { write_job(w, job, c.market, c.now, c.uid); }, c.next);
}

Result<std::string> list_providers(const Context& c) {
    return list_nodes_reply(c.market, c.face.uncertified, c.args, c.after, c.now, c.next);
}

Result<std::string> reservations(const Context& c) {
    return reservations_reply(c.market, c.after, c.now, c.uid, c.next);
}

// The market as a whole, then its nodes and its jobs, finished ones left out.
Result<std::string> dump(const Context& c) {
    if (c.uid != 0)
        return fail(CauseCode::not_allowed, "only root may see all that the market holds");
    JsonWriter w;
    w.begin_array();
    const auto add = [&](const char* kind, const auto&... what) {
        w.begin_object().field("kind", kind);
        c.market.describe(what..., c.now, w);
        w.end_object();
    };
    const std::string_view after = c.after;
    if (after.empty()) add("market");
    auto node = c.market.nodes().begin();
    if (after.starts_with("n ")) node = c.market.nodes().upper_bound(std::string(after.substr(2)));
    for (; !after.starts_with("j ") && node != c.market.nodes().end(); ++node) {
        add("node", node->second);
        if (w.bytes() < wire::json_part_bytes) continue;
        c.next = "n " + node->first;
        return w.end_array().take();
    }
    auto job = c.market.jobs().begin();
    if (after.starts_with("j ")) {
        TRY_ASSIGN(const JobId last, parse_job_id(after.substr(2)));
        job = c.market.jobs().upper_bound(last);
    }
    for (; job != c.market.jobs().end(); ++job) {
        if (job->second.phase() == JobPhase::finished) continue;
        add("job", job->second);
        if (w.bytes() < wire::json_part_bytes) continue;
        c.next = "j " + job->first.text();
        break;
    }
    return w.end_array().take();
}

Result<std::string> why(const Context& c) {
    return why_reply(c.market, c.finished, c.args[0], c.uid, c.now);
}

Result<JobId> job_argument(const Context& c) { return parse_job_id(c.args[0]); }

Result<JobId> live_job(const Context& c) {
    TRY_ASSIGN(const JobId id, job_argument(c));
    TRY(must_live(c.market, c.finished, id));
    return id;
}

Result<bool> hold_argument(const Context& c, size_t at) {
    if (c.args[at] == "hold") return true;
    if (c.args[at] == "once") return false;
    return fail("'" + c.args[at] + "' is neither hold nor once");
}

Result<std::string> done(const Context& c, const JobId& id, Result<std::string> line) {
    if (!line) return tl::unexpected(std::move(line).error());
    JsonWriter w;
    const Job& job = *c.market.find(id);
    w.begin_object().field("id", id.text()).field("hold", hold_of(job)).field("message", *line);
    w.field("failures", job.failed->times)
        .field("migrations", job.record.report.stats.migrations)
        .end_object();
    return w.take();
}

Result<std::string> job(const Context& c) {
    TRY_ASSIGN(const JobId id, job_argument(c));
    JsonWriter w;
    if (const Job* found = c.market.find(id)) {
        write_job(w, *found, c.market, c.now, c.uid);
        return w.take();
    }
    TRY_ASSIGN(auto finished, c.finished.find(id));
    if (!finished) return fail(CauseCode::not_found, "no such job: " + id.text());
    write_job(w, finished_job(std::move(*finished)), c.market, c.now, c.uid);
    return w.take();
}

// Which live jobs a cancel of several is about: each of these that is given must be so.
struct Several {
    std::string name, user, array;
    bool all = false;

    bool lets(const Job& job, uint32_t asker) const {
        const JobReport& r = job.record.report;
        if (job.phase() == JobPhase::finished || job.record.cancel) return false;
        if (asker != market::root_uid && asker != r.uid) return false;
        if (!name.empty() && name != r.name) return false;
        if (!array.empty() && array != r.array) return false;
        if (!user.empty()) return user == r.user || user == std::to_string(r.uid);
        return !(name + array).empty() || asker == r.uid || all;
    }
};

Result<std::string> cancel_each(const Context& c, const std::vector<JobId>& ids) {
    JsonWriter w;
    w.begin_object().field("count", ids.size()).key("cancelled").begin_array();
    for (const JobId& id : ids) {
        TRY(c.market.cancel(id, c.uid));
        if (w.bytes() < wire::json_part_bytes) w.value(id.text());
    }
    w.end_array().end_object();
    return w.take();
}

// name=NAME, user=USER, or all: the caller's, or with root's word everybody's of that name or user.
Result<std::string> cancel_several(const Context& c) {
    Several which;
    for (const std::string& word : c.args) {
        if (word == "all")
            which.all = true;
        else if (word.starts_with("name=") && word.size() > 5)
            which.name = word.substr(5);
        else if (word.starts_with("user=") && word.size() > 5)
            which.user = word.substr(5);
        else if (word.starts_with("array=") && word.size() > 6)
            which.array = word.substr(6);
        else
            return fail("cancel: '" + word + "' is none of name=NAME, user=USER, array=ID and all");
    }
    std::vector<JobId> ids;
    for (const auto& [id, job] : c.market.jobs())
        if (which.lets(job, c.uid)) ids.push_back(id);
    if (ids.empty()) return fail(CauseCode::not_found, "cancel: no live job of yours is so");
    return cancel_each(c, ids);
}

// The jobs that one word of a list means: ID, range=ID-NUMBER (of one home, from the one to the
// other), array=ID (all of it) or array=ID[LIST] (these elements).
struct Listed {
    JobId first;
    uint64_t last = 0;
    bool range = false, array = false;
    std::optional<ArraySpec> only;

    bool means(const Job& job) const {
        const JobId& id = job.id();
        if (range) return id.home == first.home && id.seq >= first.seq && id.seq <= last;
        if (!array) return id == first;
        const JobReport& report = job.record.report;
        return report.array == first.text() &&
               (!only || std::ranges::binary_search(only->indexes, report.array_index));
    }
};

Result<Listed> listed_of(std::string_view word) {
    Listed listed;
    listed.array = word.starts_with("array=");
    listed.range = word.starts_with("range=");
    if (listed.array || listed.range) word.remove_prefix(word.find('=') + 1);
    const size_t bracket = listed.array ? word.find('[') : word.npos;
    if (bracket != word.npos) {
        if (!word.ends_with(']')) return fail("'" + std::string(word) + "' is no list of elements");
        TRY_ASSIGN(listed.only, parse_array(word.substr(bracket + 1, word.size() - bracket - 2)));
        word = word.substr(0, bracket);
    }
    if (listed.range) {
        const size_t dash = word.rfind('-');
        const auto last =
            whole_number<uint64_t>(dash == word.npos ? std::string_view() : word.substr(dash + 1));
        if (!last) return fail("a range is ID-NUMBER");
        listed.last = *last;
        word = word.substr(0, dash);
    }
    TRY_ASSIGN(listed.first, parse_job_id(word));
    return listed;
}

// The live jobs of the words that the caller may end or hold. A job that is named by itself has to
// be the caller's; jobs that have ended are left out. Errors: none is left.
Result<std::set<JobId>> listed_jobs(const Context& c) {
    std::vector<Listed> all;
    for (const std::string& word : c.args) {
        TRY_ASSIGN(Listed listed, listed_of(word));
        all.push_back(std::move(listed));
    }
    std::set<JobId> ids;
    const auto may = [&](const Job& job) {
        return c.uid == market::root_uid || c.uid == job.record.report.uid;
    };
    const auto take = [&](const Job& job) {
        if (job.phase() != JobPhase::finished && may(job)) ids.insert(job.id());
    };
    for (const Listed& listed : all) {
        if (listed.range || listed.array) {
            for (const auto& [id, job] : c.market.jobs())
                if (listed.means(job)) take(job);
        } else if (const Job* const job = c.market.find(listed.first)) {
            if (!may(*job))
                return fail(CauseCode::not_allowed,
                            "job " + listed.first.text() + " belongs to another user");
            take(*job);
        }
    }
    if (ids.empty()) return fail(CauseCode::not_found, "no live job of yours is so");
    return ids;
}

Result<std::string> cancel(const Context& c) {
    if (c.args.empty()) return fail("cancel: a job's id is missing");
    const auto is_listed = [](const std::string& word) {
        return word.starts_with("range=") || word.starts_with("array=") || parse_job_id(word);
    };
    const bool several = c.args.size() > 1 || c.args[0].starts_with("range=") ||
                         c.args[0].find('[') != std::string::npos;
    if (several && std::ranges::all_of(c.args, is_listed)) {
        TRY_ASSIGN(const std::set<JobId> ids, listed_jobs(c));
        return cancel_each(c, {ids.begin(), ids.end()});
    }
    if (c.args.size() > 1 || !parse_job_id(c.args[0])) return cancel_several(c);
    TRY_ASSIGN(const JobId id, live_job(c));
    return done(c, id, c.market.cancel(id, c.uid));
}

Result<std::string> move(const Context& c) {
    TRY_ASSIGN(const JobId id, live_job(c));
    TRY_ASSIGN(const bool hold, hold_argument(c, 2));
    return done(c, id, c.market.move(id, c.args[1], hold, c.uid));
}

Result<std::string> freeze(const Context& c) {
    TRY_ASSIGN(const JobId id, live_job(c));
    TRY_ASSIGN(const bool hold, hold_argument(c, 1));
    return done(c, id, c.market.freeze(id, hold, c.uid));
}

Result<std::string> thaw(const Context& c) {
    TRY_ASSIGN(const JobId id, live_job(c));
    TRY_ASSIGN(const bool hold, hold_argument(c, 2));
    return done(c, id, c.market.thaw(id, c.args[1] == "-" ? "" : c.args[1], hold, c.uid));
}

// Holds or releases each job that can be, of those that the words name as for a cancel. It is an
// error if none can.
Result<std::string> hold_each(const Context& c, bool holds) {
    const auto change = [&](const JobId& id) {
        return holds ? c.market.freeze(id, true, c.uid) : c.market.release(id, c.uid);
    };
    if (c.args.size() == 1 && parse_job_id(c.args[0])) {
        TRY_ASSIGN(const JobId id, live_job(c));
        return done(c, id, change(id));
    }
    TRY_ASSIGN(const std::set<JobId> ids, listed_jobs(c));
    size_t count = 0;
    std::optional<Error> trouble;
    for (const JobId& id : ids) {
        const auto changed = change(id);
        count += changed.has_value();
        if (!changed) trouble = changed.error();
    }
    if (count == 0 && trouble) return tl::unexpected(*trouble);
    JsonWriter w;
    w.begin_object().field("count", count);
    if (trouble) w.field("others", trouble->message);
    return w.end_object().take();
}

Result<std::string> hold(const Context& c) { return hold_each(c, true); }
Result<std::string> release(const Context& c) { return hold_each(c, false); }

// ID and USER; "-": nobody any more.
Result<std::string> give(const Context& c) {
    TRY_ASSIGN(const JobId id, live_job(c));
    uint32_t to = 0;
    if (c.args[1] != "-") {
        TRY_ASSIGN(to, user_of(c.market, c.args[1]));
        if (to == market::root_uid)
            return fail(CauseCode::invalid, "root has no jobs: a place is given to another user");
    }
    TRY_ASSIGN(const std::string line, c.market.give(id, to, c.uid));
    JsonWriter w;
    w.begin_object().field("id", id.text()).field("message", line);
    if (to != 0) w.field("given", called_by(c.market, to));
    return w.end_object().take();
}

Result<std::string> node_lost(const Context& c) {
    TRY_ASSIGN(const std::string line, c.market.write_off(c.args[1], c.uid));
    JsonWriter w;
    w.begin_object().field("node", c.args[1]).field("message", line).end_object();
    return w.take();
}

Result<std::string> node_forget(const Context& c) {
    TRY_ASSIGN(const std::string line, c.market.forget(c.args[0], c.uid, c.now));
    JsonWriter w;
    w.begin_object().field("node", c.args[0]).field("message", line).end_object();
    return w.take();
}

Result<std::string> account(const Context& c) { return account_reply(c.market, c.args[0], c.uid); }

Result<std::string> receipts(const Context& c) {
    return receipts_reply(c.market, c.book, c.args, c.after, c.uid, c.next);
}

template <const char* verb>
Result<std::string> move_money(const Context& c) {
    return move_money_reply(c.market, verb, c.args, c.uid, c.now);
}
constexpr char deposit[] = "deposit", withdraw[] = "withdraw", transfer[] = "transfer",
               payout[] = "payout";

Result<std::string> statement(const Context& c) {
    return statement_reply(c.market, c.book, c.args, c.after, c.uid, c.next);
}

Result<std::string> user_show(const Context& c) {
    return users_reply(c.market, c.args[0], c.uid, c.now);
}

Result<std::string> user_limit(const Context& c) {
    return limit_reply(c.market, c.args, c.uid, c.now);
}

Result<std::string> project(const Context& c) {
    return project_reply(c.market, c.args, c.uid, c.now);
}

// what, value, why
Result<std::string> set_option(const Context& c) {
    TRY_ASSIGN(const std::string said,
               c.market.set_option(c.args[0], c.args[1], c.args[2], c.uid, c.now));
    JsonWriter w;
    w.begin_object().field("what", c.args[0]).field("message", said).end_object();
    return w.take();
}

Result<std::string> prices(const Context& c) {
    return prices_reply(c.market, c.args, c.after, c.next);
}

Result<std::string> limits(const Context& c) { return bounds_reply(c.market); }

constexpr size_t any_args = SIZE_MAX;
struct Verb {
    size_t args;
    Result<std::string> (*run)(const Context&);
};
const std::map<std::string, Verb, std::less<>>& verbs() {
    static const std::map<std::string, Verb, std::less<>> all = {
        {"status", {0, status}},
        {"list-jobs", {any_args, list_jobs}},
        {"list-providers", {any_args, list_providers}},
        {"reservations", {0, reservations}},
        {"dump", {0, dump}},
        {"job", {1, job}},
        {"why", {1, why}},
        {"cancel", {any_args, cancel}},
        {"move", {3, move}},
        {"freeze", {2, freeze}},
        {"thaw", {3, thaw}},
        {"hold", {any_args, hold}},
        {"release", {any_args, release}},
        {"account", {1, account}},
        {"receipts", {any_args, receipts}},
        {"deposit", {any_args, move_money<deposit>}},
        {"withdraw", {any_args, move_money<withdraw>}},
        {"transfer", {any_args, move_money<transfer>}},
        {"payout", {any_args, move_money<payout>}},
        {"statement", {any_args, statement}},
        {"prices", {2, prices}},
        {"user-show", {1, user_show}},
        {"user-limit", {any_args, user_limit}},
        {"project", {3, project}},
        {"limits", {0, limits}},
        {"give", {2, give}},
        {"node", {2, node_lost}},
        {"node-forget", {1, node_forget}},
        {"set", {3, set_option}},
    };
    return all;
}

}  // namespace

wire::CtlReply answer(Market& market, const ReceiptBook& book, const FinishedJobs& finished,
                      const wire::CtlRequest& request, const MarketFace& face, Nanos now) {
    wire::CtlReply reply;
    reply.request = request.request;
    const auto verb = verbs().find(request.verb);
    if (verb == verbs().end()) {
        reply.error = {CauseCode::invalid,
                       "the market does not know the verb '" + request.verb + "'"};
        return reply;
    }
    if (verb->second.args != any_args && request.args.size() != verb->second.args) {
        reply.error = request.verb + " takes " + std::to_string(verb->second.args) +
                      " arguments, not " + std::to_string(request.args.size());
        return reply;
    }
    auto json = verb->second.run(
        {market, book, finished, face, now, request.uid, request.args, request.after, reply.next});
    if (!json) {
        reply.error = as_asked(json.error());
    } else if (json->size() > wire::json_bytes_max) {
        reply.error =
            "the answer is longer than " + std::to_string(wire::json_bytes_max >> 10) + " KiB";
    } else {
        reply.ok = true;
        reply.json = std::move(*json);
    }
    return reply;
}

}  // namespace souk
