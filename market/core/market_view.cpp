// SPDX-License-Identifier: GPL-2.0-or-later
// Market: what it holds right now of a job, a node and as a whole, for people who look into a
// running daemon.
#include "kernel/base/json.hpp"
#include "market/core/market.hpp"

namespace souk::market {

namespace {

void write_backoff(JsonWriter& j, const char* name, const Backoff& b, Nanos now) {
    if (!b.active) return;
    j.key(name)
        .begin_object()
        .field("left_s", (b.until - now).seconds())
        .field("failures", b.failures)
        .field("why", b.why)
        .end_object();
}

void write_order(JsonWriter& j, const Job& job, Nanos now) {
    const Order& o = *job.record.order;
    j.key("order").begin_object().field("kind", to_string(o.kind)).field("seq", o.seq);
    if (!o.node.empty()) j.field("node", o.node);
    j.field("age_s", (now - job.ordered_at).seconds());
    if (job.doubt_since != Nanos::never()) j.field("in_doubt_s", (now - job.doubt_since).seconds());
    j.field("why", o.reason).end_object();
}

}  // namespace

void Market::describe(Nanos now, JsonWriter& j) const {
    j.field("jobs", book_.jobs().size())
        .field("nodes", book_.nodes().size())
        .field("users", book_.users().size());
    j.field("next_order", orders_.next_seq())
        .field("settling", settling())
        .field("external_solver", outside_.is_used())
        .field("asking", outside_.is_asked());
    j.field("solver", solver_.options().algorithm).field("pricing", solver_.options().pricing);
    j.field("pending", !pending_.empty())
        .field("alarms", alarms_.size())
        .field("lacking", lacking_.size());
    if (const Nanos next = next_call(); next != Nanos::never())
        j.field("next_call_s", std::max(Nanos{}, next - now).seconds());
}

void Market::describe(const Job& job, Nanos now, JsonWriter& j) const {
    const JobRecord& r = job.record;
    j.field("job", job.id().text()).field("phase", to_string(job.phase())).field("key", job.key.n);
    if (!r.report.where.empty()) j.field("where", r.report.where);
    if (!r.report.to.empty()) j.field("to", r.report.to);
    j.field("epoch", r.report.epoch.n).field("bid", job.bid).field("price", r.price);
    if (r.order) write_order(j, job, now);
    if (r.hold != Hold::none) j.field("hold", to_string(r.hold)).field("hold_node", r.hold_node);
    if (job.held != Job::Held::none) j.field("held_by_limit_of", to_string(job.held));
    if (job.once) j.field("once", job.once->empty() ? "freeze" : *job.once);
    if (!job.via.empty()) j.field("via", job.via);
    j.key("claims").begin_array();
    for (const NodeName& node : job.claims)
        if (!node.empty()) j.value(node);
    j.end_array().key("flags").begin_array();
    for (const auto& [name, set] : {std::pair{"reported", job.reported},
                                    {"in_solver", job.in_solver},
                                    {"stored", job.stored},
                                    {"cancel", r.cancel},
                                    {"out_of_budget", r.out_of_budget},
                                    {"rooted", places_.rooted().contains(job.id())},
                                    {"displaced", job.displaced},
                                    {"in_transit", in_transit(job)}})
        if (set) j.value(name);
    j.end_array();
    write_backoff(j, "stuck", job.failed->stuck, now);
    j.key("not_on").begin_array();
    for (const auto& [node, bar] : job.failed->bars)
        if (bar.active) j.value(node + ": " + bar.why);
    j.end_array();
    if (job.alarm != Nanos::never()) j.field("alarm_s", (job.alarm - now).seconds());
    if (!job.failed->last.empty()) j.field("last_failed", job.failed->last);
    if (!job.reason.empty()) j.field("comment", job.reason.text());
}

void Market::describe(const Node& node, Nanos now, JsonWriter& j) const {
    j.field("node", node.id()).field("state", provider_state(node, now)).field("key", node.key.n);
    j.field("connected", node.connected);
    if (!node.connected) j.field("away_s", (now - node.lost_at).seconds());
    j.field("used_cpus", node.used_cpus)
        .field("used_mb", node.used_mb)
        .field("rooted_mb", node.rooted_mb);
    if (node.record.has_report)
        j.field("cpus", node.record.report.cpus).field("memory_mb", node.record.report.memory_mb);
    if (node.record.has_report && speed_found(node) != node.record.report.speed)
        j.field("speed_found", speed_found(node));
    j.field("room_mb", node.room_mb).field("in_solver", node.in_solver).key("jobs").begin_array();
    for (const auto& [id, job] : node.jobs) j.value(id.text());
    j.end_array();
}

}  // namespace souk::market
