// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/lease_watch.hpp"

#include <fcntl.h>
#include <unistd.h>

#include "agentd/core/lease.hpp"
#include "kernel/sys/process/init_protocol.h"

namespace souk {
namespace {
constexpr Nanos stop_limit = Nanos::from_s(1);
}

void LeaseWatch::keep(Nanos until, bool stands) {
    until_ = until;
    watch();
    connected();
    // A job that the deadline caught in the middle of its start, restore or dump goes on.
    if (lapsed_ && !stands && !stopped()) (void)let_run();
}

void LeaseWatch::connected() const {
    if (until_ != Nanos::never()) hooks_.tell_init(until_);
}

bool LeaseWatch::found(Nanos until) {
    if (until_ != Nanos::never()) return false;
    until_ = until;
    watch();
    return true;
}

void LeaseWatch::watch() {
    timer_ = loop_.at(until_, [this] { over(); });
}

void LeaseWatch::over() {
    if (ended_ || !group_.there()) return;
    if (!stopped() && !lapsed_) {
        mark(true);
        log_.warning("a job is stopped: its home was not heard from", {{"home", log_.id().home}});
        if (auto stop = group_.stop(); !stop) log_.error("a job is not stopped", stop.error());
    }
    hooks_.lapsed(until_);
}

void LeaseWatch::stopped_by_init() {
    if (ended_ || !group_.there() || lapsed_) return;
    // before an answer that waits to be read gives it another
    if (past()) return over();
    mark(false);
    if (!stopped()) (void)run();
}

void LeaseWatch::end() {
    timer_.cancel();
    ended_ = true;
}

bool LeaseWatch::past() const {
    return until_ != Nanos::never() && Loop::now() + lease_slack >= until_;
}

void LeaseWatch::mark(bool lapsed) {
    lapsed_ = lapsed;
    if (!lapsed) {
        (void)::unlinkat(directory_.get(), SOUK_LAPSED_NAME, 0);
    } else if (auto mark = open_at(directory_.get(), SOUK_LAPSED_NAME, O_WRONLY | O_CREAT, 0600);
               !mark && ::faccessat(directory_.get(), SOUK_LAPSED_NAME, F_OK, 0) != 0) {
        log_.warning("cannot mark a job as stopped", mark.error());
    }
}

Status LeaseWatch::stop_for_dump() {
    if (!group_.there()) return {};
    TRY(group_.freeze(stop_limit));
    if (!stopped()) stop_ = Stop::dump;
    return {};
}

Status LeaseWatch::stand() {
    Status done = group_.stop();
    stop_ = done ? Stop::in_place : Stop::none;
    return done;
}

bool LeaseWatch::let_run() {
    if (!stopped() && !lapsed_) return true;
    stop_ = Stop::none;
    if (past()) {
        if (!lapsed_) mark(true);
        (void)group_.stop();  // a freeze that failed has let it go
        return false;
    }
    if (lapsed_) mark(false);
    (void)run();
    return true;
}

// It may run, as far as its lease, its dump and its home say.
Status LeaseWatch::run() const {
    const bool stands = paused_ && !at_dump_;
    mark_paused(stands);
    return stands ? group_.stop() : group_.thaw();
}

Status LeaseWatch::pause(bool on) {
    if (!group_.there()) return fail("it has no control group");
    paused_ = on;
    if (at_dump_ || stopped() || lapsed_ || ended_) return {};  // it comes to run() later
    Status done = run();
    if (!done && on) mark_paused(false);
    return done;
}

void LeaseWatch::at_dump(bool on) {
    at_dump_ = on;
    if (paused_ && group_.there() && !stopped() && !lapsed_ && !ended_) (void)run();
}

void LeaseWatch::mark_paused(bool paused) const {
    if (!paused)
        (void)::unlinkat(directory_.get(), SOUK_PAUSED_NAME, 0);
    else
        (void)open_at(directory_.get(), SOUK_PAUSED_NAME, O_WRONLY | O_CREAT, 0600);
}

bool LeaseWatch::found_paused() {
    return paused_ = ::faccessat(directory_.get(), SOUK_PAUSED_NAME, F_OK, 0) == 0;
}

Status LeaseWatch::resume() {
    if (past()) {
        mark(true);
        return fail("its lease is over");
    }
    return run();
}

void LeaseWatch::found_stopped(bool in_place) {
    stop_ = in_place ? Stop::in_place : Stop::dump;
    lapsed_ = ::faccessat(directory_.get(), SOUK_LAPSED_NAME, F_OK, 0) == 0;
}

}  // namespace souk
