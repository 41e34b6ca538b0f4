// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/agent.hpp"
#include "agentd/store/records.hpp"

#include <time.h>

#include "kernel/base/check.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {

Agent::Agent(Loop& loop, Log& log, Config config)
    : loop_(loop),
      log_(log),
      config_(std::move(config)),
      home_(config_.node, config_.home),
      guest_(guests_max, false, config_.policy) {}

Agent::~Agent() {
    if (state_) (void)state_->journal().finish();
}

WallTime Agent::wall_now() {
    const time_t now = ::time(nullptr);
    tm local{};
    ::localtime_r(&now, &local);
    const int day = (local.tm_wday + 6) % 7;  // from Monday
    return {now,
            day * 86'400 + local.tm_hour * 3600 + local.tm_min * 60 + std::min(local.tm_sec, 59)};
}

// -------------------------------------------------------------------------------------------------
// steps

void Agent::home_step(const std::function<void(Home&, home::Outputs&)>& step) {
    home::Outputs out;
    home_.set_unix_time(unix_now());
    step(home_, out);
    for (home::Output& o : out) apply(o);
    tick<home::Outputs>(home_, home_timer_);
}

void Agent::guest_step(const std::function<void(Guest&, guest::Outputs&)>& step) {
    guest::Outputs out;
    (void)guest_.tick(Loop::now(), out);
    step(guest_, out);
    for (guest::Output& o : out) apply(o);
    tick<guest::Outputs>(guest_, guest_timer_);
    check_left();
}

void Agent::provider_step(const std::function<void(Provider&, provider::Outputs&)>& step) {
    provider::Outputs out;
    step(*provider_, out);
    for (provider::Output& o : out) apply(o);
}

// The machine says when it wants to be called next; each step may change that.
template <class Outputs, class Machine>
void Agent::tick(Machine& machine, Timer& timer) {
    Outputs out;
    const Nanos next = machine.tick(Loop::now(), out);
    for (auto& o : out) apply(o);
    timer.cancel();
    if (next != Nanos::never())
        timer = loop_.at(next, [this, &machine, &timer] { tick<Outputs>(machine, timer); });
}

void Agent::put(const char* kind, const std::string& key, std::string record, Durable when) {
    state_->journal().put(kind, key, std::move(record), when);
    ask_flush();
}

void Agent::erase(const char* kind, const std::string& key, Durable when) {
    state_->journal().erase(kind, key, when);
    ask_flush();
}

void Agent::after_commit(std::function<void()> fn) {
    state_->journal().then(std::move(fn));
    ask_flush();
}

void Agent::ask_flush() {
    if (!state_->journal().due() || std::exchange(flush_due_, true)) return;
    loop_.defer([this] { flush(); });
}

// A timer set by a deferred function fires when what was queued for sending has left.
void Agent::flush() {
    Journal& journal = state_->journal();
    flush_due_ = false;
    const bool held = journal.holds();
    const Journal::Flushed flushed = journal.flush(Loop::now());
    tell_disk(flushed, held);
    journal_timer_.cancel();
    if (const Nanos next = journal.next(); next != Nanos::never())
        journal_timer_ = loop_.at(next, [this] {
            state_->journal().tick(Loop::now());
            if (!std::exchange(flush_due_, true)) loop_.defer([this] { flush(); });
        });
    for (const auto& call : flushed.calls) call();
}

void Agent::tell_disk(const Journal::Flushed& flushed, bool held) {
    if (flushed.gave_room)
        log_.warning("the disk of the state directory is full: its reserve is used up",
                     {{"directory", config_.state}});
    if (!flushed.committed)
        log_.limited("disk", Loop::now(), Level::error,
                     "cannot store state: nothing leaves this node until it can",
                     {{"WHY", flushed.committed.error()}});
    const bool holds = state_->journal().holds();
    if (holds == held) return;
    if (held) log_.notice("state can be stored again");
    loop_.hold_sends(holds);
}

// -------------------------------------------------------------------------------------------------
// outputs

void Agent::apply(home::Output& output) {
    if (auto* p = std::get_if<home::Persist>(&output))
        return put("home", std::to_string(p->job.id.seq), wire::pack(p->job), p->when);
    if (auto* e = std::get_if<home::Erase>(&output)) {
        erase("home", std::to_string(e->id.seq), Durable::now);
        return after_commit([this, id = e->id] { terminals_->erase(id); });
    }
    if (auto* m = std::get_if<home::ToMarketMsg>(&output)) return market_->send(m->message);
    if (auto* g = std::get_if<home::ToGuest>(&output)) return command_guest(g->peer, g->command);
    if (auto* a = std::get_if<home::Answer>(&output))
        return (void)peers_->to_guest(a->node, a->heartbeat);
    if (auto* b = std::get_if<home::GoneBack>(&output))
        return after_commit([this, id = b->id] { gone_back(id); });
    tell(std::get<home::Tell>(output));
}

void Agent::apply(guest::Output& output) {
    if (auto* p = std::get_if<guest::Persist>(&output))
        return put("guest", p->job.key.text(), wire::pack(p->job), p->when);
    if (auto* e = std::get_if<guest::Erase>(&output))
        return erase("guest", e->key.text(), Durable::later);
    if (auto* h = std::get_if<guest::ToHome>(&output)) {
        if (!h->after_erase || !state_->journal().erases_wait())
            return to_home(h->home, h->message);
        return state_->journal().after_erases([this, home = h->home, message = h->message] {
            const auto* e = std::get_if<GuestEvent>(&message);
            // it has come since, and that has been told
            if (e && guest_.find({e->id, e->epoch})) return;
            to_home(home, message);
        });
    }
    after_commit([this, effect = std::get<guest::Do>(output)] { carry_out(effect); });
}

void Agent::apply(provider::Output& output) {
    if (auto* p = std::get_if<provider::Persist>(&output))
        return put("provider", "record", wire::pack(p->record), Durable::now);
    if (auto* r = std::get_if<provider::Report>(&output)) return market_->send(r->report);
    const auto& a = std::get<provider::Accepting>(output);
    guest_step([&](Guest& g, guest::Outputs& out) { g.set_accepting(a.accepting, a.why, out); });
}

}  // namespace souk
