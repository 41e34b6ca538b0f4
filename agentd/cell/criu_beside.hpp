// SPDX-License-Identifier: GPL-2.0-or-later
// CriuBeside: the CRIU of a capsule, on the loop (checkpoint/criu.hpp): one session at a time, the
// time that a step of it may take, and a CRIU that has let its job run and puts its own things
// away. Owned by the Cell. Dropped while it holds a job it refuses; see CriuSession for when that
// is safe.
#pragma once

#include <functional>
#include <utility>

#include "checkpoint/criu.hpp"
#include "kernel/sys/loop/loop.hpp"

namespace souk {

class CriuBeside {
  public:
    using Event = std::function<void(const CriuEvent&)>;
    CriuBeside(Loop& loop, Event event) : loop_(loop), event_(std::move(event)) {}

    Status start(CriuTool& tool, const CriuStart& how);
    explicit operator bool() const { return static_cast<bool>(session_); }
    CriuPhase phase() const { return session_.phase(); }
    Status dump(const DumpOptions& options) { return session_.dump(options); }
    Status restore(const RestoreOptions& options) { return session_.restore(options); }
    Status answer(bool go_on) { return session_.answer(go_on); }

    // `late` unless in_time(), close() or another limit comes before.
    void within(Nanos limit, std::function<void()> late);
    void in_time() { limit_.cancel(); }

    // The last one that was started has not ended yet, also if its session is over.
    bool is_there() const { return static_cast<bool>(started_); }
    // When that one has ended, unless close() comes before.
    void when_ended(std::function<void()> then) { then_ = std::move(then); }

    void kill();
    // It is over. close: and so is what has a limit; forget: that goes on.
    void close();
    void forget();
    // The job runs, and CRIU still has its own things to put away, which takes as long again as
    // letting the job run has taken.
    void let_go();

  private:
    void readable();
    void ended();

    Loop& loop_;
    Event event_;
    CriuSession session_,
        last_;       // last: of a restore whose job runs already, until it has ended
    Pidfd started_;  // the last one, until it has ended
    Watch watch_, last_watch_, started_watch_;
    std::function<void()> then_;
    Timer limit_, last_limit_;
};

}  // namespace souk
