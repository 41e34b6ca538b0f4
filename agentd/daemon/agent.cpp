// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/agent.hpp"
#include "agentd/store/records.hpp"

#include <time.h>

#include "kernel/base/check.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/host/zone.hpp"

namespace souk {

Agent::Agent(Loop& loop, Log& log, Config config, AsRoot as_root, root::Helper& root)
    : loop_(loop),
      log_(log),
      config_(std::move(config)),
      as_root_(std::move(as_root)),
      root_(root),
      home_(config_.node, config_.home) {}

Agent::~Agent() = default;

// -------------------------------------------------------------------------------------------------
// steps

void Agent::home_step(const std::function<void(Home&, home::Outputs&)>& step) {
    home::Outputs out;
    home_.set_unix_time(unix_now());
    step(home_, out);
    for (home::Output& o : out) apply(o);
    tick_home();
}

// The machine says when it wants to be called next; each step may change that.
void Agent::tick_home() {
    home::Outputs out;
    const Nanos next = home_.tick(Loop::now(), out);
    for (home::Output& o : out) apply(o);
    home_timer_.cancel();
    if (next != Nanos::never()) home_timer_ = loop_.at(next, [this] { tick_home(); });
}

void Agent::after_commit(std::function<void()> fn) { state_->then(std::move(fn)); }

// -------------------------------------------------------------------------------------------------
// outputs

void Agent::apply(home::Output& output) {
    if (auto* p = std::get_if<home::Persist>(&output)) {
        if (p->job.spec.files == FilesMode::home)
            after_commit([this, id = p->job.id] {
                const HomeJob* job = home_.find(id);
                if (!job) return;
                files_->job(*job);
                snapshots_.job(*job);
            });
        if (p->job.phase != JobPhase::finished && terminals_->attended(p->job.id))
            terminals_->meter(p->job.id, meter(p->job));
        output_files_->job(p->job);
        return state_->put("home", std::to_string(p->job.id.seq), wire::pack(p->job), p->when);
    }
    if (auto* e = std::get_if<home::Erase>(&output)) {
        state_->erase("home", std::to_string(e->id.seq), Durable::now);
        return after_commit([this, id = e->id] {
            output_files_->forget(id);
            terminals_->erase(id);
            files_->forget(id);
            snapshots_.forget(id);
        });
    }
    if (auto* m = std::get_if<home::ToMarketMsg>(&output)) return market_->send(m->message);
    if (auto* g = std::get_if<home::ToGuest>(&output)) return command_guest(g->peer, g->command);
    if (auto* a = std::get_if<home::Answer>(&output))
        return (void)peers_->to_guest(a->node, a->heartbeat);
    if (auto* b = std::get_if<home::GoneBack>(&output))
        return after_commit([this, id = b->id] { gone_back(id); });
    tell(std::get<home::Tell>(output));
}

}  // namespace souk
