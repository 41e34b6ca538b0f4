// SPDX-License-Identifier: GPL-2.0-or-later
// LeaseWatch: whether the control group of a job may run, and what has stopped it: a dump, an order
// to stand in place, the owner of the node (pause), or the end of the lease that its home gives
// (agentd/core/lease.hpp). PID 1 of the capsule stops the job at the deadline whatever becomes of
// this daemon. This daemon does too, because that one may be of an older version. Every step that
// lets the group go on is here, and looks at the deadline first.
//
// Owned by the Cell. A job that the deadline stopped has a file in its directory
// (SOUK_LAPSED_NAME), so that a daemon that is started again knows; so has one that is stopped for
// the owner alone (SOUK_PAUSED_NAME). What the owner has stopped runs while CRIU dumps it, which
// needs its processes for that. What fails: the control group.
#pragma once

#include <functional>

#include "agentd/cell/job_log.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

// The control group of a job, below that of PID 1 of its capsule.
class JobGroup {
  public:
    virtual ~JobGroup() = default;
    // False: this node has none for it; nothing of the others is called then.
    virtual bool there() const = 0;
    virtual Status freeze(Nanos wait_max) const = 0;  // returns when all of it stands
    virtual Status stop() const = 0;                  // does not wait
    virtual Status thaw() const = 0;
};

class LeaseWatch {
  public:
    struct Hooks {
        // PID 1 of the capsule is to know this deadline.
        std::function<void(Nanos until)> tell_init;
        std::function<void(Nanos until)> lapsed;
    };
    // `directory` of the capsule; it may be opened later.
    LeaseWatch(Loop& loop, JobLog log, const JobGroup& group, const Fd& directory, Hooks hooks)
        : loop_(loop),
          log_(std::move(log)),
          group_(group),
          directory_(directory),
          hooks_(std::move(hooks)) {}

    // The job may run until then, by the loop's clock. stands: a job that the last deadline stopped
    // stays so.
    void keep(Nanos until, bool stands);
    // There is a new connection to PID 1.
    void connected() const;
    // PID 1 knows this deadline. True if none was known here.
    bool found(Nanos until);
    // PID 1 says that it has stopped the job. That deadline may not be the last: then the last one
    // came while PID 1 stopped the job, or while this daemon slept past it.
    void stopped_by_init();
    // The capsule ends: no deadline counts any more. rest: nor does it matter here for now.
    void end();
    void rest() { timer_.cancel(); }

    // Stops the job for a dump, or for an order. An error leaves it as it was.
    Status stop_for_dump();
    Status stand();
    // Lets a stopped job go on, unless its lease is over: then it stands until its home has
    // answered, and this is false.
    bool let_run();
    // The job stands for the owner of the node until he says otherwise. It runs only for a dump.
    Status pause(bool on);
    // CRIU begins to dump it, or has ended without that the job has ended.
    void at_dump(bool on);
    // Found after a restart of the daemon: it is stopped for the owner alone.
    bool found_paused();
    // For a moment.
    Status pause(Nanos wait_max) const { return group_.freeze(wait_max); }
    // Error: its lease is over, and it stands from here on.
    Status resume();
    // Found after a restart of the daemon.
    void found_stopped(bool in_place);
    void found_running() { stop_ = Stop::none; }

    bool stopped() const { return stop_ != Stop::none; }  // not by the lease alone
    bool in_place() const { return stop_ == Stop::in_place; }
    bool lapsed() const { return lapsed_; }

  private:
    enum class Stop : uint8_t { none, dump, in_place };
    void watch();
    void over();
    bool past() const;
    void mark(bool lapsed);
    void mark_paused(bool paused) const;
    Status run() const;

    Loop& loop_;
    JobLog log_;
    const JobGroup& group_;
    const Fd& directory_;
    Hooks hooks_;
    Nanos until_ = Nanos::never();
    Timer timer_;
    Stop stop_ = Stop::none;
    bool lapsed_ = false;  // whether for a dump as well or not
    bool ended_ = false;
    bool paused_ = false, at_dump_ = false;
};

}  // namespace souk
