// SPDX-License-Identifier: GPL-2.0-or-later
// GangCheckpoints: checkpoints of whole gangs, while they are made (docs/gangs.md). Part of Home.
//
//   prepare  each component has a place for its image, and its node has CRIU ready beside it
//   dump     all are told to dump at once; a component that is dumped stands, with its network shut
//   send     all have stood together: each goes on, and its image comes to its home
//   whole    all images are here: one durable write makes the set the gang's checkpoint
//
// The checkpoints of a gang's components are always of one set: all are written at once, and they
// are dropped when one is damaged, or when a component has ended since. A restart of the home gives
// up a set that is being made. Pure.
#pragma once

#include <map>

#include "agentd/core/end_confirmations.hpp"
#include "agentd/core/home_checkpoints.hpp"
#include "agentd/core/home_evacuations.hpp"
#include "agentd/core/home_gangs.hpp"
#include "agentd/core/home_records.hpp"
#include "agentd/core/job_steps.hpp"

namespace souk {

class GangCheckpoints {
  public:
    struct Limits {
        Nanos step_patience;      // to have all ready
        Nanos transfer_patience;  // to dump all, and to have all images here
    };
    GangCheckpoints(Limits limits, HomeRecords& records, const HomeGangs& gangs,
                    HomeCheckpoints& checkpoints, HomeEvacuations& evacuations,
                    const EndConfirmations& doubts, JobSteps& steps)
        : limits_(limits),
          records_(records),
          gangs_(gangs),
          checkpoints_(checkpoints),
          evacuations_(evacuations),
          doubts_(doubts),
          steps_(steps) {}

    // The job runs, and an image of it is made with others.
    bool has(const HomeJob& job) { return member(job) != nullptr; }
    // The component's node tells how it is, while has(). True: that is all it means.
    bool hear(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    // This node tells how the place of such an image is.
    void hear_keeper(HomeJob& job, const GuestEvent& event, const HomeTurn& turn);
    // Takes the next step if all that it waits for is there. A set that lacks a member is given up.
    void go_on(uint64_t gang, const HomeTurn& turn);
    // Another operation begins on the job: an image or checkpoint of it that is being made ends.
    void end_saving(HomeJob& job, const HomeTurn& turn);
    // The others' part of the last whole set is of no use without this job's.
    void drop(const HomeJob& job, const HomeTurn& turn);

    // The daemon was started again.
    void restarted(HomeJob& job, const HomeTurn& turn);
    // When the present step must have ended; never(): none is under way.
    Nanos due(const HomeJob& job) const;
    // To be called when that is due, or the component's next checkpoint is.
    void tick(HomeJob& job, const HomeTurn& turn);

  private:
    struct Member {
        Epoch number;         // of its image (HomeJob::saving)
        bool place = false;   // there is one for its image
        bool ready = false;   // CRIU stands ready to dump it
        bool stands = false;  // it is dumped
        bool whole = false;   // its image is here
        Nanos stood_at = Nanos::never();
        GuestEvent image;  // whole: what was said of it
    };
    enum class Step : uint8_t { prepare, dump, send };
    struct Set {
        std::map<uint64_t, Member> members;
        Step step = Step::prepare;
        Nanos due;  // by then this step has ended

        bool all(bool Member::*done) const;
    };
    static GuestCommand command(const HomeJob& job, Step step);
    Set* of_gang(uint64_t gang);
    Member* member(const HomeJob& job);
    Set take(uint64_t gang);
    void begin(HomeJob& job, const HomeTurn& turn);
    void enter(Set& set, Step step, const HomeTurn& turn);
    void is_whole(uint64_t gang, const HomeTurn& turn);
    void give_up(uint64_t gang, const HomeTurn& turn);

    Limits limits_;
    HomeRecords& records_;
    const HomeGangs& gangs_;
    HomeCheckpoints& checkpoints_;
    HomeEvacuations& evacuations_;
    const EndConfirmations& doubts_;
    JobSteps& steps_;
    std::map<uint64_t, Set> sets_;  // by gang
};

}  // namespace souk
