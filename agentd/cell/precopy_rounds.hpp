// SPDX-License-Identifier: GPL-2.0-or-later
// PrecopyRounds: memory that goes ahead of a job, while it runs (pre-copy), at the source, in
// rounds; the job stands still for a moment before each, since the kernel cannot tell which pages
// were written to and forget it in one. When it stands frozen and dumped, one more look says what
// of all that is still true: a file of the image names it, and only the rest goes out of the frozen
// job. What the rounds have shown of the job, how fast it writes, goes along with it.
//
// Owned by the Cell. What fails: /proc of a process that is there, the job's lease; then the move
// goes on without what was sent.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "agentd/cell/job_log.hpp"
#include "checkpoint/pages.hpp"
#include "checkpoint/plan.hpp"
#include "checkpoint/precopy_source.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/base/time.hpp"

namespace souk {

// How fast a job writes to memory that it had left alone, as long as that is fresh.
class DirtyRate {
  public:
    void measured(const DirtyFacts& facts, Nanos at) { facts_ = facts, at_ = at; }
    std::optional<DirtyFacts> now() const;
    // With its age, as clocks differ; in a file of the image, which may be lost.
    void save(int image) const;
    void load(int image);

  private:
    DirtyFacts facts_;
    Nanos at_ = Nanos::never();  // never: it was not measured
};

class PrecopyRounds {
  public:
    struct Hooks {
        // The job stands still; it goes on.
        std::function<Status()> pause, resume;
        std::function<Result<std::vector<pid_t>>()> pids;
        std::function<void()> dropped;  // nothing of it is read any more
        OpenProcessFiles open = open_process_files;
        LookAt look = look_from_here;
    };
    // check: what was sent is compared with the frozen job's memory before it is used.
    PrecopyRounds(JobLog log, bool check, Hooks hooks)
        : log_(std::move(log)), check_(check), hooks_(std::move(hooks)) {}

    // A move is asked for; whatever an earlier one has sent is dropped.
    void expect();
    // Its memory is worth sending to that epoch.
    void begin(Epoch to, uint64_t memory_bytes);
    // The next memory to send while the job runs; null: it is time to stop the job.
    Result<PrecopySource*> round();
    // That failed since the job did not stand still in time; soon it may.
    bool late() const { return rounds_ && rounds_->stands_late; }
    bool sending() const { return rounds_ && !rounds_->over; }
    std::optional<PrecopyFacts> facts() const;
    // The job stands frozen, its image is there but for the list. Returns what is left to send, if
    // anything was sent.
    Result<std::optional<uint64_t>> list(int image);
    // The memory that a destination does not have.
    Result<std::vector<PageRange>> ranges_for(Epoch to, int image) const;
    void drop();

    DirtyRate& dirty() { return dirty_; }
    const DirtyRate& dirty() const { return dirty_; }
    uint64_t dirty_expected() const { return dirty_expected_; }

  private:
    struct Rounds {
        explicit Rounds(const Hooks& hooks) : source(hooks.open, hooks.look) {}
        Epoch to;  // for whom
        PrecopySource source;
        RoundFacts facts;
        Nanos began, longest_stop;
        int late = 0;                 // how often it did not stand in time
        bool stands_late = false;     // the last time
        bool over = false;            // there will be no more rounds
        bool listed = false;          // the image says what of it is true
        std::vector<PageRange> rest;  // what it does not have
    };
    Result<bool> look(Nanos stopped);

    JobLog log_;
    bool check_;
    Hooks hooks_;
    std::unique_ptr<Rounds> rounds_;  // from the first round to the end of the move
    DirtyRate dirty_;
    uint64_t dirty_expected_ = 0;  // what of it the plan of this move knew
};

}  // namespace souk
