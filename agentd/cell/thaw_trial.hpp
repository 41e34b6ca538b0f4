// SPDX-License-Identifier: GPL-2.0-or-later
// ThawTrial: whether a job that is about to be frozen to disk can thaw. Its image, whole on the
// disk, is restored here for trial while the job stands stopped beside it: in a second capsule,
// with the same steps and the same CRIU as a thaw, up to the moment at which a thaw would let it
// run. Then CRIU ends the processes that it has made. None of them has run an instruction of the
// job's, and nobody outside of that capsule has heard of it (checkpoint/criu_trial.c).
//
// The trial is a Cell of its own under a number that no home gives, so that a new daemon removes
// what one before it has left. Its memory is not read: only what CRIU's part of the image has is
// put in place.
//
// Owned by the Cell of the job. What fails: nothing; its Outcome says how it ended.
#pragma once

#include <functional>
#include <memory>

#include "agentd/cell/cell_site.hpp"
#include "kernel/base/cause.hpp"
#include "kernel/base/time.hpp"

namespace souk {

class Cell;

class ThawTrial {
  public:
    enum class Outcome : uint8_t {
        thaws,
        fails,      // a restore of this image fails, or does not end in time
        not_known,  // this node could make no place for it: that says nothing of the image
    };
    using Told = std::function<void(Outcome, const Trouble& why)>;
    // site: of the job's cell, which outlives this.
    explicit ThawTrial(const CellSite& site);
    // A trial under way is ended; its directories go when a daemon begins.
    ~ThawTrial();

    // `frozen` has its image whole on the disk. told: once, when nothing of the trial is left; not
    // after stop().
    void begin(const Cell& frozen, Told told);
    // It is given up, and ended soon.
    void stop();
    // Something of one is still here.
    bool is_there() const { return static_cast<bool>(beside_); }
    // When that has gone.
    void when_gone(std::function<void()> then) { then_ = std::move(then); }

  private:
    struct Beside;
    void take_events();
    void event(const guest::Event& e);
    void end(Outcome outcome, Trouble why = {});
    void kill();
    void give_up(Outcome outcome, Trouble why = {});
    void gone();
    void tell();

    const CellSite& site_;
    std::unique_ptr<Beside> beside_;
    Told told_;
    std::function<void()> then_;
    Outcome outcome_ = Outcome::not_known;
    Trouble why_;
    bool ending_ = false;
    Timer limit_, next_;
};

}  // namespace souk
