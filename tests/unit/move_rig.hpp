// SPDX-License-Identifier: GPL-2.0-or-later
// Freeze and thaw of a CapsuleRig's job by CriuSession, step by step as agentd does it, with a
// plain poll loop.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/criu.hpp"
#include "tests/unit/capsule_rig.hpp"

namespace souk::unit {

const char* moves_impossible();  // null, or why tests that move must be skipped
CriuTool& test_criu();

struct SessionRig {
    SessionRig(CapsuleRig& where, int images, const CriuUser& user = {});
    ~SessionRig();
    // Waits for an event of that kind; false on another final one, which is kept in `last`, and
    // after `patience`.
    bool until(CriuEventKind kind, Nanos patience = Nanos::from_s(60));
    CapsuleRig& rig;
    CriuSession session;
    CriuEvent last;
    // The reason of the last event, with CRIU's own words.
    std::string why() const {
        const Trouble& t = last.message;
        return t.detail.empty() ? std::string(t) : t + ": " + t.detail;
    }
    int side_fd = -1;  // polled as well
    std::function<void()> side;

  private:
    std::vector<CriuEvent> pending_;
};

// Dumps the job and ends it. Returns an empty string, or why that failed. With `refuse` the job is
// left running.
std::string freeze(CapsuleRig& rig, int images, bool refuse = false,
                   TcpPolicy tcp = TcpPolicy::refuse);
// Returns a fresh capsule in which the job of that image runs; null, with `why`, if that failed.
// `refuse`: refuse at restore_held. `user`: the user whose rights count for the job's paths.
// `made`: as in RestoreOptions.
std::unique_ptr<CapsuleRig> thaw(JobOutput& output, int images, std::string& why,
                                 bool refuse = false, TcpPolicy tcp = TcpPolicy::refuse,
                                 const CriuUser& user = {},
                                 const std::function<Status(const Capsule&)>& made = {});
// freeze and thaw in one; the test fails if that fails. The old capsule is gone then.
void hop(std::unique_ptr<CapsuleRig>& rig);

const char* pages_impossible();  // as moves_impossible, of live_hop

// Moves the job with pages out of the frozen job's memory (checkpoint/page_source.hpp): all of them
// before it runs there, or while it already runs. Returns how many bytes of pages went so.
enum class LiveOrder : uint8_t { pages_first, run_first };
uint64_t live_hop(std::unique_ptr<CapsuleRig>& rig, LiveOrder order);

}  // namespace souk::unit
