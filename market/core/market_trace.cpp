// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/market_trace.hpp"

#include <iterator>

#include "kernel/base/check.hpp"

namespace souk::market {

const char* to_string(Input input) {
    switch (input) {
        case Input::started: return "started";
        case Input::agent_connected: return "agent_connected";
        case Input::agent_lost: return "agent_lost";
        case Input::report: return "report";
        case Input::order_failed: return "order_failed";
        case Input::provider_report: return "provider_report";
        case Input::recall: return "recall";
        case Input::cancel: return "cancel";
        case Input::move: return "move";
        case Input::freeze: return "freeze";
        case Input::thaw: return "thaw";
        case Input::release: return "release";
        case Input::give: return "give";
        case Input::set_limits: return "set_limits";
        case Input::move_money: return "move_money";
        case Input::write_off: return "write_off";
        case Input::forget: return "forget";
        case Input::set_option: return "set_option";
        case Input::adopt: return "adopt";
        case Input::use_own: return "use_own";
        case Input::lend: return "lend";
        case Input::site_order: return "site_order";
        case Input::site_note: return "site_note";
        case Input::filtered: return "filtered";
    }
    MUST(false);
}

const char* to_string(const StoreOp& op) {
    static constexpr const char* names[] = {"job",         "node",      "account", "receipt",
                                            "meta",        "user",      "price",   "erase_user",
                                            "erase_price", "erase_node"};
    static_assert(std::size(names) == std::variant_size_v<StoreOp>);
    return names[op.index()];
}

const char* to_string(const FromMarket& message) {
    static constexpr const char* names[] = {"order", "note", "provider_note", "directory",
                                            "node_lost"};
    static_assert(std::size(names) == std::variant_size_v<FromMarket>);
    return names[message.index()];
}

namespace {

TraceLine line_of(TraceKind kind, std::string step, const JobId& id, Epoch epoch = {},
                  NodeName node = {}, std::string why = {}) {
    return {"market", kind, std::move(step), id, epoch, std::move(node), {}, std::move(why)};
}

TraceLine line_of(const StoreOp& op) {
    TraceLine line = line_of(TraceKind::output, std::string("store.") + to_string(op), {});
    if (const auto* job = std::get_if<JobRecord>(&op)) line.job = job->report.id;
    if (const auto* node = std::get_if<NodeRecord>(&op)) line.node = node->node;
    if (const auto* gone = std::get_if<EraseNode>(&op)) line.node = gone->node;
    if (const auto* receipt = std::get_if<Receipt>(&op)) {
        line.job = receipt->job;
        line.node = receipt->node;
    }
    return line;
}

TraceLine line_of(const Send& send) {
    TraceLine line = line_of(TraceKind::output, to_string(send.message), {}, {}, send.node);
    if (const auto* order = std::get_if<Order>(&send.message)) {
        line.step += std::string(".") + to_string(order->kind);
        line.job = order->id;
        line.to = order->node;
        line.why = order->reason;
    }
    if (const auto* note = std::get_if<JobNote>(&send.message)) {
        line.job = note->id;
        line.why = note->comment;
    }
    return line;
}

}  // namespace

void MarketTrace::tell_input(std::string step, const JobId& id, const NodeName& node,
                             const std::string& why) const {
    tracer_.tell(line_of(TraceKind::input, std::move(step), id, {}, node, why));
}

void MarketTrace::tell_report(const NodeName& node, const ToMarket& message) const {
    if (const auto* r = std::get_if<JobReport>(&message)) {
        TraceLine line = line_of(TraceKind::input, std::string("report.") + to_string(r->phase),
                                 r->id, r->epoch, node, r->comment);
        return tracer_.tell(line);
    }
    if (const auto* failed = std::get_if<OrderFailed>(&message))
        return tell_input(to_string(Input::order_failed), failed->id, node, failed->why);
    tell_input(to_string(Input::provider_report), {}, node,
               std::get<ProviderReport>(message).cannot);
}

void MarketTrace::tell_state(const Job& job) {
    TraceLine line = line_of(TraceKind::state, to_string(job.phase()), job.id(),
                             job.record.report.epoch, job.record.report.where, job.reason.text());
    if (const auto& order = job.record.order) {
        line.step += std::string(".ordered_") + to_string(order->kind);
        line.to = order->node;
    }
    tracer_.tell_state(job.id().text(), line);
}

void MarketTrace::tell_outputs(const Outputs& out, size_t stored, size_t sent) const {
    for (size_t i = stored; i < out.store.size(); ++i) tracer_.tell(line_of(out.store[i]));
    for (size_t i = sent; i < out.send.size(); ++i) tracer_.tell(line_of(out.send[i]));
}

}  // namespace souk::market
