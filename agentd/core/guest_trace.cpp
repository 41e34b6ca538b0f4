// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/guest_trace.hpp"

#include <iterator>

#include "kernel/base/check.hpp"

namespace souk::guest {

const char* to_string(Input input) {
    switch (input) {
        case Input::recovered: return "recovered";
        case Input::command: return "command";
        case Input::home_up: return "home_up";
        case Input::home_down: return "home_down";
        case Input::accept: return "accept";
        case Input::leave: return "leave";
        case Input::tick: return "tick";
        case Input::heartbeat_answered: return "heartbeat_answered";
        case Input::lease_found: return "lease_found";
        case Input::lapsed: return "lapsed";
        case Input::capsule_ready: return "capsule_ready";
        case Input::capsule_failed: return "capsule_failed";
        case Input::job_started: return "job_started";
        case Input::job_not_started: return "job_not_started";
        case Input::criu_ready: return "criu_ready";
        case Input::criu_failed: return "criu_failed";
        case Input::sent_precopy: return "sent_precopy";
        case Input::dump_froze: return "dump_froze";
        case Input::dump_held: return "dump_held";
        case Input::dump_failed: return "dump_failed";
        case Input::dump_undone: return "dump_undone";
        case Input::stood: return "stood";
        case Input::shipped: return "shipped";
        case Input::ship_failed: return "ship_failed";
        case Input::image_received: return "image_received";
        case Input::checkpoint_sent: return "checkpoint_sent";
        case Input::checkpoint_failed: return "checkpoint_failed";
        case Input::pages_whole: return "pages_whole";
        case Input::pages_lost: return "pages_lost";
        case Input::image_failed: return "image_failed";
        case Input::restore_held: return "restore_held";
        case Input::restore_failed: return "restore_failed";
        case Input::restore_running: return "restore_running";
        case Input::capsule_gone: return "capsule_gone";
        case Input::removed: return "removed";
        case Input::stray: return "stray";
        case Input::exited: return "exited";
        case Input::stopped: return "stopped";
        case Input::movable: return "movable";
        case Input::pause: return "pause";
        case Input::go_on: return "go_on";
        case Input::paused: return "paused";
        case Input::job_held: return "job_held";
        case Input::want_memory: return "want_memory";
    }
    MUST(false);
}

const char* to_string(const Output& output) {
    static constexpr const char* names[] = {"persist", "erase",     "to_home",
                                            "do",      "keep_mark", "audit"};
    static_assert(std::size(names) == std::variant_size_v<Output>);
    return names[output.index()];
}

namespace {

TraceLine line_of(TraceKind kind, std::string step, const GuestKey& key, NodeName node = {},
                  std::string why = {}) {
    return {"guest", kind, std::move(step), key.id, key.epoch, std::move(node), {}, std::move(why)};
}

std::string place(const Peer& peer, Epoch epoch) {
    if (peer.node.empty()) return epoch.n > 0 ? std::to_string(epoch.n) : "";
    return epoch.n > 0 ? peer.node + "." + std::to_string(epoch.n) : peer.node;
}

}  // namespace

TraceLine trace_in(Input input, const GuestKey& key, std::string why) {
    return line_of(TraceKind::input, to_string(input), key, {}, std::move(why));
}

TraceLine trace_home(Input input, const NodeName& home) {
    return line_of(TraceKind::input, to_string(input), {}, home);
}

TraceLine trace_command(const NodeName& from, const GuestCommand& c) {
    TraceLine line = line_of(TraceKind::input, std::string("command.") + to_string(c.verb),
                             {c.id, c.epoch}, from);
    line.to = place({c.dest, {}}, c.new_epoch);
    return line;
}

TraceLine trace_output(const Output& output) {
    const std::string name = to_string(output);
    if (const auto* p = std::get_if<Persist>(&output)) {
        const std::string step = name + "." + to_string(p->job.state) + "." + to_string(p->when);
        return line_of(TraceKind::output, step, p->job.key);
    }
    if (const auto* e = std::get_if<Erase>(&output))
        return line_of(TraceKind::output, name, e->key);
    if (const auto* d = std::get_if<Do>(&output)) {
        TraceLine line = line_of(TraceKind::output, name + "." + to_string(d->what), d->key);
        line.to = place(d->dest, d->other_epoch);
        return line;
    }
    if (const auto* a = std::get_if<Audit>(&output))
        return line_of(TraceKind::output, name + "." + to_string(a->verb), a->key, a->from, a->why);
    if (const auto* m = std::get_if<KeepMark>(&output)) {
        TraceLine line = line_of(TraceKind::output, name, {});
        line.to = std::to_string(m->mark);
        return line;
    }
    const auto& told = std::get<ToHome>(output);
    if (const auto* e = std::get_if<GuestEvent>(&told.message))
        return line_of(TraceKind::output, std::string("event.") + to_string(e->state),
                       {e->id, e->epoch}, told.home, e->why);
    if (const auto* x = std::get_if<Expel>(&told.message))
        return line_of(TraceKind::output, "expel", {x->id, x->epoch}, told.home);
    return line_of(TraceKind::output, "heartbeat", {}, told.home);
}

TraceLine trace_entry(const Entry& e) {
    TraceLine line = line_of(TraceKind::state, to_string(e.job.state), e.job.key);
    const auto* r = e.in<state::Running>();
    if (r && r->want != Want::run) line.step += std::string(".") + to_string(r->want);
    if (r && (r->in<motion::Precopy>() || r->in<motion::Making>() || r->in<motion::Held>()))
        line.step += std::string(".") + to_string(r->motion);
    if (const auto* closing = e.in<state::Closing>())
        line.step += std::string(".") + to_string(closing->ending);
    line.why = e.why;
    return line;
}

TraceLine trace_gone(const GuestKey& key) { return line_of(TraceKind::state, "", key); }

}  // namespace souk::guest
