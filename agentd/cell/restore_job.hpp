// SPDX-License-Identifier: GPL-2.0-or-later
// RestoreJob: the restore of an image that is here, up to the word that the job runs and all of its
// memory is there. Its order:
//
//   the image is checked and linked; souk-init loads what waits at the job's stdio; CRIU restores
//   held      CRIU holds the job at post-restore; no instruction of the job has run
//   told to run, then: it runs; or: the capsule is ended
//
// CRIU may begin early, when the image says all that it needs; usually when souk-init has loaded;
// and late, when the job is told to run: locks of files that both nodes share are the source's as
// long as it is held (RestoreTurn). Owned by the Cell, which has brought CRIU in, and hears of each
// end by RestoreJob::Owner. What fails: the image, CRIU, what this node lacks.
#pragma once

#include <optional>
#include <vector>

#include "agentd/cell/capsule_link.hpp"
#include "agentd/cell/cell_capsule.hpp"
#include "agentd/cell/cell_image.hpp"
#include "agentd/cell/criu_beside.hpp"
#include "agentd/cell/criu_stage.hpp"
#include "agentd/cell/job_stdio.hpp"
#include "agentd/cell/page_intake.hpp"
#include "agentd/cell/precopy_rounds.hpp"
#include "agentd/cell/restore_turn.hpp"
#include "agentd/cell/stopped_processes.hpp"
#include "checkpoint/core_image.hpp"

namespace souk {

// An image that is whole on this node's disk, of another epoch of the job.
struct LocalImage {
    GuestKey key;
    Result<Fd> image;
    std::string disk_secret;
};

class RestoreJob {
  public:
    // The Cell, as a restore knows it.
    class Owner {
      public:
        virtual ~Owner() = default;
        virtual void tell(guest::Event event) = 0;
        // CRIU's part cannot go on, and the job does not run. refused: its image is not what it
        // should be.
        virtual void restore_failed(const Trouble& why, bool refused = false) = 0;
        // CRIU, or its end, has let the job run.
        virtual void job_runs() = 0;
        virtual void stay_awake() = 0;
    };
    // The parts of the cell that a restore works with.
    struct Parts {
        CellSite& site;
        const GuestJob& job;
        CellGroups& groups;
        CellCapsule& capsule;
        CapsuleLink& link;
        JobStdio& stdio;
        NetworkCut& network;
        CellImage& image;
        StoppedProcesses& processes;
        PageIntake& intake;
        PrecopyRounds& rounds;
        CriuBeside& criu;
        inspect::Inspection& inspection;
        CriuStage& stage;
    };
    RestoreJob(Parts parts, Owner& owner) : p_(parts), owner_(owner) {}

    // The user of the job, for CRIU.
    CriuUser user() const;

    // souk-init has made the ends of the job's stdio, which CRIU is to give to it.
    void prepared(std::vector<Fd> ends) { turn_.prepared(std::move(ends)); }
    bool is_prepared() const { return turn_.is_prepared(); }
    std::vector<int> ends() const { return turn_.ends(); }
    void close_ends() { turn_.close_ends(); }

    // Begins with the image that has come, or with one that lies here (null: it does not).
    void begin();
    void begin_local(const LocalImage* source);

    // Words of souk-init and CRIU: the stdio is loaded; CRIU is ready, or holds the job.
    void loaded(const CapsuleClient::Event& e);
    void criu_is_ready() { restore(); }
    void held();
    // The job may run.
    void finish();
    bool told_to_run() const { return told_to_run_; }
    // CRIU ended at the moment when it was told to let the job run. If the job runs, its end, if
    // any, will tell.
    void look_without_criu();
    // The job runs. source_is_good: the image that it was thawed from may be used again.
    void runs();
    void source_is_good() const;
    // CRIU has no more part in it.
    void stop();
    // The image that lies here is not what it should be: its own cell keeps it for the operator.
    bool local_image_refused(const Error& error);

  private:
    using Stage = CriuStage::Stage;
    Status take_local(const LocalImage& source);
    void load();
    void image_is_read(const Result<ImageFacts>& facts);
    void begin_early();
    void restore();
    void is_held();
    Status check_files() const;
    Status check_rights() const;

    Parts p_;
    Owner& owner_;
    RestoreTurn turn_;
    std::optional<ImageFacts> facts_;  // what is read from the image
    GuestKey local_source_;            // the image that the job is thawed from, if that lies here
    bool told_to_run_ = false;
};

}  // namespace souk
