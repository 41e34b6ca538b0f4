// SPDX-License-Identifier: GPL-2.0-or-later
// EndConfirmations: components that have failed while their gang has a checkpoint to go back to
// (docs/gangs.md). They may have failed because another one is lost and their connection to it has
// ended, and that loss may be heard a moment later. So the end counts no earlier than
//
//   grace    some seconds later: a loss that was under way has been heard by then; and
//   asked    every other component's node has said, since then, how that one is
//
// A loss that is heard before takes all back, and the end with it. None of this is on disk: after a
// restart of the home the node says the end again. Pure. GangReturn asks the nodes.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "agentd/core/home_io.hpp"

namespace souk {

class EndConfirmations {
  public:
    static constexpr Nanos grace = Nanos::from_s(2);

    bool has(const HomeJob& job) const { return doubts_.contains(job.id.seq); }
    void begin(const HomeJob& job, int32_t wait_status, Nanos now) {
        doubts_.try_emplace(job.id.seq, Doubt{wait_status, now + grace, false, {}, ++last_});
    }
    int32_t wait_status(const HomeJob& job) const { return doubts_.at(job.id.seq).wait_status; }
    // The grace is over: these are asked, and the end waits until then for their answers.
    void ask(const HomeJob& job, std::vector<uint64_t> others, Nanos until);
    bool asked(const HomeJob& job) const { return doubts_.at(job.id.seq).asked; }
    // The components that have not answered.
    const std::vector<uint64_t>& silent(const HomeJob& job) const {
        return doubts_.at(job.id.seq).silent;
    }
    // The components whose ends are confirmed now that this one has said how it is, in the order in
    // which they failed: the first end is the one that ends the others.
    std::vector<uint64_t> heard(uint64_t other);
    void forget(uint64_t seq) { doubts_.erase(seq); }
    Nanos due(const HomeJob& job) const;

  private:
    struct Doubt {
        int32_t wait_status = 0;
        Nanos due;
        bool asked = false;
        std::vector<uint64_t> silent;
        uint64_t number = 0;  // orders them by their beginning
    };
    std::map<uint64_t, Doubt> doubts_;
    uint64_t last_ = 0;
};

}  // namespace souk
