// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/agent.hpp"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "agentd/daemon/tool_session.hpp"
#include "kernel/base/check.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {
namespace {

constexpr off_t ballast_bytes = 4 << 20;
constexpr Nanos ballast_retry = Nanos::from_s(10), lazy_commit = Nanos::from_s(1),
                disk_retry = Nanos::from_s(1);

}  // namespace

Agent::Agent(Loop& loop, Log& log, Config config)
    : loop_(loop),
      log_(log),
      config_(std::move(config)),
      home_(config_.node, config_.home),
      guest_(guests_max, false, config_.policy) {}

Agent::~Agent() {
    if (!db_) return;
    for (auto& [name, record] : soon_) db_->put(name.first, name.second, std::move(record));
    (void)db_->commit();  // what could wait
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

void Agent::after_commit(std::function<void()> fn) {
    after_commit_.push_back(std::move(fn));
    if (holds_ || std::exchange(flush_due_, true)) return;
    loop_.defer([this] { flush(); });
}

void Agent::put(const char* kind, const std::string& key, std::string record, Durable when) {
    const std::pair<std::string, std::string> name{kind, key};
    if (when == Durable::soon) {
        // Only the newest may be lost: what follows may rely on the one before.
        const auto older = soon_.find(name);
        if (older != soon_.end()) {
            db_->put(kind, key, std::move(older->second));
            commit_now();
        }
        soon_[name] = std::move(record);
        // A timer set by a deferred function fires when what was queued for sending has left.
        return after_commit([this] { soon_timer_ = loop_.after(Nanos{}, [this] { put_soon(); }); });
    }
    soon_.erase(name);
    db_->put(kind, key, std::move(record));
    if (when == Durable::later) return commit_later();
    commit_now();
}

void Agent::put_soon() {
    for (auto& [name, record] : std::exchange(soon_, {}))
        db_->put(name.first, name.second, std::move(record));
    commit_now();
}

void Agent::erase(const char* kind, const std::string& key) {
    soon_.erase({kind, key});
    db_->erase(kind, key);
    commit_later();
}

void Agent::commit_now() {
    commit_due_ = true;
    after_commit([] {});
}

void Agent::commit_later() {
    if (!commit_timer_.waiting())
        commit_timer_ = loop_.after(lazy_commit, [this] { commit_now(); });
}

// Room on the state's disk that is kept for the state alone: a job's image or output may have
// filled the rest.
void Agent::take_ballast() {
    const std::string path = config_.state + "/ballast";
    auto fd = open_at(AT_FDCWD, path, O_RDWR | O_CREAT, 0600);
    const bool taken = fd && ::posix_fallocate(fd->get(), 0, ballast_bytes) == 0;
    if (!taken) ::unlink(path.c_str());
    if (!taken) ballast_timer_ = loop_.after(ballast_retry, [this] { take_ballast(); });
}

bool Agent::give_up_ballast() {
    if (::unlink((config_.state + "/ballast").c_str()) != 0) return false;
    log_.warning("the disk of the state directory is full: its reserve is used up",
                 {{"directory", config_.state}});
    ballast_timer_ = loop_.after(ballast_retry, [this] { take_ballast(); });
    return true;
}

void Agent::flush() {
    flush_due_ = false;
    if (commit_due_) {
        if (const Status committed = commit(); !committed) return hold(committed.error());
        commit_due_ = false;
    }
    for (const auto& fn : std::exchange(after_commit_, {})) fn();
}

Status Agent::commit() {
    auto committed = db_->commit();
    if (!committed && give_up_ballast()) committed = db_->commit();
    if (!committed) return committed;
    commit_timer_.cancel();
    erase_waits_ = false;
    for (const auto& fn : std::exchange(after_erase_, {})) fn();
    return {};
}

// Until the disk takes what is decided, nothing of it leaves, and no effect begins. What comes in
// is decided on all the same, and waits with the rest: in records one each, in queues that are
// bounded.
void Agent::hold(const Error& why) {
    log_.limited("disk", Loop::now(), Level::error,
                 "cannot store state: nothing leaves this node until it can", {{"WHY", why}});
    holds_ = true;
    loop_.hold_sends(true);
    hold_timer_ = loop_.after(disk_retry, [this] {
        if (const Status committed = commit(); !committed) return hold(committed.error());
        log_.notice("state can be stored again");
        holds_ = commit_due_ = false;
        loop_.hold_sends(false);
        flush();
    });
}

// -------------------------------------------------------------------------------------------------
// outputs

void Agent::apply(home::Output& output) {
    if (auto* p = std::get_if<home::Persist>(&output))
        return put("home", std::to_string(p->job.id.seq), wire::pack(p->job), p->when);
    if (auto* e = std::get_if<home::Erase>(&output)) {
        erase("home", std::to_string(e->id.seq));
        commit_now();
        return after_commit([this, id = e->id] { terminals_->erase(id); });
    }
    if (auto* m = std::get_if<home::ToMarketMsg>(&output)) return market_->send(m->message);
    if (auto* g = std::get_if<home::ToGuest>(&output)) return command_guest(g->peer, g->command);
    if (auto* a = std::get_if<home::Answer>(&output))
        return (void)peers_->to_guest(a->node, a->beat);
    if (auto* b = std::get_if<home::GoneBack>(&output))
        return after_commit([this, id = b->id] { gone_back(id); });
    tell(std::get<home::Tell>(output));
}

void Agent::apply(guest::Output& output) {
    if (auto* p = std::get_if<guest::Persist>(&output))
        return put("guest", p->job.key.text(), wire::pack(p->job), p->when);
    if (auto* e = std::get_if<guest::Erase>(&output)) {
        erase("guest", e->key.text());
        erase_waits_ = true;
        return;
    }
    if (auto* h = std::get_if<guest::ToHome>(&output)) {
        if (!h->after_erase || !erase_waits_) return to_home(h->home, h->message);
        return after_erase_.push_back([this, home = h->home, message = h->message] {
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
