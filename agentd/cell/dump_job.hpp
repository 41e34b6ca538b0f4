// SPDX-License-Identifier: GPL-2.0-or-later
// DumpJob: a dump of the job of a cell, from its plan to its end. Its order keeps the job whole
// whoever dies in between:
//
//   the connections to the job are accepted; its network is shut; CRIU dumps
//   held        CRIU holds the job at post-dump, and its control group is frozen, so that a dead
//               agentd leaves it standing; its image is read, its memory is shared or sent
//   drained     souk-init has put what waits at the job's stdio into the image
//   flushed     its files are synced; an image that stays gets its memory (frozen_steps.hpp) and
//               its manifest; a freeze to disk is tried (thaw_trial.hpp)
//   complete    then: end the capsule (v1: let CRIU kill first); or undo: the group is thawed, the
//               stdio undrained, CRIU refused, and the job goes on
//
// The memory of a job that leaves goes ahead of it (precopy_rounds.hpp), in the image, or out of
// the frozen job (PageSource). Owned by the Cell, which has brought CRIU in, and hears of each end
// by DumpJob::Owner. What fails: CRIU, the job's processes, no room.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "agentd/cell/capsule_link.hpp"
#include "agentd/cell/cell_capsule.hpp"
#include "agentd/cell/cell_image.hpp"
#include "agentd/cell/criu_beside.hpp"
#include "agentd/cell/criu_stage.hpp"
#include "agentd/cell/dump_course.hpp"
#include "agentd/cell/frozen_steps.hpp"
#include "agentd/cell/job_root.hpp"
#include "agentd/cell/lease_watch.hpp"
#include "agentd/cell/precopy_rounds.hpp"
#include "agentd/cell/stopped_processes.hpp"
#include "agentd/cell/thaw_trial.hpp"
#include "checkpoint/page_source.hpp"
#include "checkpoint/plan.hpp"

namespace souk {

class DumpJob {
  public:
    // The Cell, as a dump knows it.
    class Owner {
      public:
        virtual ~Owner() = default;
        virtual void tell(guest::Event event) = 0;
        // CRIU's part cannot go on: whatever it works at is over, and the job runs.
        virtual void criu_failed(const Trouble& why) = 0;
        // The job goes on, and CRIU has let it go.
        virtual void dump_is_undone() = 0;
        virtual void kill_capsule() = 0;
        virtual void stay_awake() = 0;
        // The abilities that a node must have to restore the image.
        virtual Manifest needs() const = 0;
        virtual std::string disk_secret() const = 0;
        virtual void try_thaw(ThawTrial& trial, ThawTrial::Told told) = 0;
    };
    // The parts of the cell that a dump works with.
    struct Parts {
        CellSite& site;
        const GuestJob& job;
        const JobLog& log;
        CellGroups& groups;
        CellCapsule& capsule;
        CapsuleLink& link;
        JobRoot& root;
        LeaseWatch& lease;
        NetworkCut& network;
        CellImage& image;
        StoppedProcesses& processes;
        PrecopyRounds& rounds;
        CriuBeside& criu;
        inspect::Inspection& inspection;
        CriuStage& stage;
    };
    DumpJob(Parts parts, Owner& owner);

    // The purpose, the form and the trouble of the present dump.
    DumpCourse& course() { return course_; }
    const DumpCourse& course() const { return course_; }
    void checkpoint_of(Epoch epoch) { checkpoint_ = epoch; }

    // Before the job is stopped. worth_precopy: how much memory the job has, if some of it is to go
    // ahead; else 0. precopy_round: what to send next; null when it is time to stop the job.
    uint64_t worth_precopy(double link_bytes_per_s, Epoch to);
    Result<PrecopySource*> precopy_round();
    // Makes the place for the image.
    Status begin_image();
    // Begins the dump. link_bytes_per_s: what the last transfers to its destination made; 0: not
    // known, or no move.
    void begin(double link_bytes_per_s, bool no_hurry);

    // CRIU's words, and souk-init's.
    void froze(bool all_stand = false);
    void stopped() { p_.processes.take(course_.live()); }
    void held();
    void drained(const CapsuleClient::Event& e);

    // The dump decides: the job dies with its capsule.
    void finish();
    bool let_die() const { return let_die_; }
    // The job goes on, and the image stays.
    void go_on();
    void undo();
    void fail(Trouble why, bool of_job = false);
    // CRIU has no more part in it: steps that are under way end.
    void stop();
    // The job goes on here without the CRIU that held it.
    void mend_connections();

    // How the memory of the job that stands frozen here goes, and that memory, unless it goes with
    // the image.
    Result<std::unique_ptr<PageSource>> pages(Epoch to) const;
    // How far its memory is on the way to this node's disk.
    std::optional<FrozenSteps::Progress> writing(Nanos now) const { return steps_.progress(now); }
    // Whatever dies here, the job stands. (On v1 the job is in no group of its own: CRIU alone
    // holds it.)
    bool group_holds() const { return p_.lease.stopped() && p_.groups.can_stop(); }
    ThawTrial& trial() { return trial_; }

  private:
    using Stage = CriuStage::Stage;
    FrozenSteps::Hooks steps_hooks();
    Result<MoveFacts> facts(double link_bytes_per_s) const;
    Status plan(double link_bytes_per_s);
    void connections_are_settled(size_t unaccepted);
    void image_is_read(const Result<ImageFacts>& facts);
    void pages_are_shared();
    void is_flushed();
    void take_snapshot();
    void write_image();
    void finish_image(const ImageFile* pages);
    Status can_try() const;
    void try_thaw(uint64_t bytes);
    void complete(bool pages_stay, uint64_t bytes);
    void keep_frames(const std::optional<std::string>& frames);

    Parts p_;
    Owner& owner_;
    DumpCourse course_;
    FrozenSteps steps_;
    ThawTrial trial_;
    Epoch checkpoint_;                          // the dump is of a checkpoint of that epoch
    std::shared_ptr<void> snapshot_;            // of the job's files, under way
    std::optional<std::string> frames_at_cut_;  // what had come for it when it was saved
    int unaccepted_ = 0;  // saves and freezes in a row that unaccepted connections ended
    bool let_die_ = false;
};

}  // namespace souk
