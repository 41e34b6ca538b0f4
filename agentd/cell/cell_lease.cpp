// SPDX-License-Identifier: GPL-2.0-or-later
// Cell, fifth part: the deadline of a job that another node is the home of (agentd/core/lease.hpp).
// PID 1 of the capsule stops the job at it whatever becomes of this daemon; this daemon does too,
// as that one may be of an older version, and lets nothing go on that would run into it.
#include <fcntl.h>
#include <unistd.h>

#include "agentd/cell/cell.hpp"
#include "agentd/core/lease.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {

void Cell::keep_lease(Nanos until, bool stands) {
    lease_until_ = until;
    watch_lease();
    tell_lease();
    update_watch();
    // What it caught in the middle of its start, restore or dump goes on.
    if (lapsed_ && !stands && !group_frozen_) (void)let_group_run();
}

void Cell::tell_lease() {
    if (!client_ || !job_group_ || lease_until_ == Nanos::never()) return;
    const auto freezer = job_group_->open_freezer();
    const Status told = freezer ? client_.lease(static_cast<uint64_t>(lease_until_.ns),
                                                freezer->get(), job_group_->freezer_word())
                                : Status(tl::unexpected(freezer.error()));
    if (!told)
        site_.log->warning(
            "PID 1 of a capsule does not know its lease",
            {{"JOB", key_.id.text()}, {"EPOCH", key_.epoch.n}, {"WHY", told.error()}});
}

void Cell::watch_lease() {
    lease_timer_ = site_.loop->at(lease_until_, [this] { lease_is_over(); });
}

void Cell::lease_is_over() {
    if (gone_ || !job_group_ || removing_) return;
    if (!group_frozen_ && !lapsed_) {
        mark_lapsed(true);
        site_.log->warning(
            "a job is stopped: its home was not heard from",
            {{"JOB", key_.id.text()}, {"EPOCH", key_.epoch.n}, {"home", key_.id.home}});
        if (auto stopped = job_group_->stop(); !stopped)
            site_.log->error(
                "a job is not stopped",
                {{"JOB", key_.id.text()}, {"EPOCH", key_.epoch.n}, {"WHY", stopped.error()}});
    }
    tell(guest::Lapsed{});
}

// The deadline that it knew may not be the last: then that one came while it stopped the job, or
// while this daemon slept past it, and nobody but this one lets the job go on.
void Cell::stopped_by_init() {
    if (gone_ || !job_group_ || removing_ || lapsed_) return;
    // before an answer that waits to be read gives it another
    if (past_lease()) return lease_is_over();
    mark_lapsed(false);
    if (!group_frozen_) (void)job_group_->thaw();
}

bool Cell::past_lease() const {
    return lease_until_ != Nanos::never() && Loop::now() + lease_slack >= lease_until_;
}

void Cell::mark_lapsed(bool lapsed) {
    lapsed_ = lapsed;
    if (!lapsed) {
        (void)::unlinkat(dir_fd_.get(), SOUK_LAPSED_NAME, 0);
    } else if (auto mark = open_at(dir_fd_.get(), SOUK_LAPSED_NAME, O_WRONLY | O_CREAT, 0600);
               !mark) {
        site_.log->warning(
            "cannot mark a job as stopped",
            {{"JOB", key_.id.text()}, {"EPOCH", key_.epoch.n}, {"WHY", mark.error()}});
    }
}

// What a dump has frozen goes on, unless its lease is over: then it stands, until its home has
// answered.
bool Cell::let_group_run() {
    if (!group_frozen_ && !lapsed_) return true;
    group_frozen_ = false;
    if (past_lease()) {
        if (!lapsed_) mark_lapsed(true);
        (void)job_group_->stop();  // a freeze that failed has let it go
        return false;
    }
    if (lapsed_) mark_lapsed(false);
    (void)job_group_->thaw();
    return true;
}

}  // namespace souk
