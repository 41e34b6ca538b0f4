// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/home_trace.hpp"

#include <iterator>

#include "kernel/base/check.hpp"

namespace souk::home {

const char* to_string(Input input) {
    switch (input) {
        case Input::restarted: return "restarted";
        case Input::submit: return "submit";
        case Input::change: return "change";
        case Input::cancel: return "cancel";
        case Input::signal: return "signal";
        case Input::market_up: return "market_up";
        case Input::order: return "order";
        case Input::note: return "note";
        case Input::market_down: return "market_down";
        case Input::guest_up: return "guest_up";
        case Input::guest_event: return "guest_event";
        case Input::undelivered: return "undelivered";
        case Input::expel: return "expel";
        case Input::heartbeat: return "heartbeat";
        case Input::node_lost: return "node_lost";
        case Input::spliced: return "spliced";
        case Input::files_used: return "files_used";
        case Input::tick: return "tick";
    }
    MUST(false);
}

const char* to_string(const Output& output) {
    static constexpr const char* names[] = {"persist", "erase", "to_market", "to_guest",
                                            "answer",  "tell",  "gone_back"};
    static_assert(std::size(names) == std::variant_size_v<Output>);
    return names[output.index()];
}

namespace {

TraceLine line_of(TraceKind kind, std::string step, const JobId& id, Epoch epoch = {},
                  NodeName node = {}, std::string why = {}) {
    return {"home", kind, std::move(step), id, epoch, std::move(node), {}, std::move(why)};
}

std::string place(const NodeName& node, Epoch epoch) {
    return node.empty() ? "" : node + "." + std::to_string(epoch.n);
}

std::string state_of(const HomeJob& job) {
    std::string phase = to_string(job.phase);
    if (job.cut != CutStep::none) phase += std::string(".") + to_string(job.cut);
    return job.step == MoveStep::none ? phase : phase + "." + to_string(job.step);
}

TraceLine to_market(const ToMarketMsg& m) {
    if (const auto* r = std::get_if<JobReport>(&m.message))
        return line_of(TraceKind::output, std::string("report.") + to_string(r->phase), r->id,
                       r->epoch, {}, r->comment);
    if (const auto* f = std::get_if<OrderFailed>(&m.message))
        return line_of(TraceKind::output, "order_failed", f->id, {}, f->node, f->why);
    return line_of(TraceKind::output, "provider_report", {});
}

}  // namespace

TraceLine trace_in(Input input, const JobId& id, Epoch epoch, const NodeName& node,
                   std::string why) {
    return line_of(TraceKind::input, to_string(input), id, epoch, node, std::move(why));
}

TraceLine trace_order(const Order& order) {
    return line_of(TraceKind::input, std::string("order.") + to_string(order.kind), order.id, {},
                   order.node, order.reason);
}

TraceLine trace_event(const NodeName& node, const GuestEvent& event) {
    return line_of(TraceKind::input, std::string("event.") + to_string(event.state), event.id,
                   event.epoch, node, event.why);
}

TraceLine trace_output(const Output& output) {
    const std::string name = to_string(output);
    if (const auto* p = std::get_if<Persist>(&output)) {
        TraceLine line =
            line_of(TraceKind::output, name + "." + state_of(p->job) + "." + to_string(p->when),
                    p->job.id, p->job.epoch, p->job.at.node);
        line.to = place(p->job.to.node, p->job.to_epoch);
        return line;
    }
    if (const auto* e = std::get_if<Erase>(&output)) return line_of(TraceKind::output, name, e->id);
    if (const auto* m = std::get_if<ToMarketMsg>(&output)) return to_market(*m);
    if (const auto* g = std::get_if<ToGuest>(&output)) {
        const GuestCommand& c = g->command;
        TraceLine line = line_of(TraceKind::output, std::string("command.") + to_string(c.verb),
                                 c.id, c.epoch, g->peer.node);
        line.to = place(c.dest, c.new_epoch);
        return line;
    }
    if (const auto* a = std::get_if<Answer>(&output))
        return line_of(TraceKind::output, name, {}, {}, a->node);
    if (const auto* t = std::get_if<Tell>(&output))
        return line_of(TraceKind::output, name + "." + to_string(t->what), t->id, {}, {}, t->text);
    return line_of(TraceKind::output, name, std::get<GoneBack>(output).id);
}

TraceLine trace_job(const HomeJob& job) {
    TraceLine line = line_of(TraceKind::state, state_of(job), job.id, job.epoch, job.at.node);
    if (job.step != MoveStep::none) line.to = place(job.to.node, job.to_epoch);
    line.why = job.why;
    return line;
}

TraceLine trace_gone(const JobId& id) { return line_of(TraceKind::state, "", id); }

}  // namespace souk::home
