// SPDX-License-Identifier: GPL-2.0-or-later
// Cell: the effects of one (job, epoch) on this node: its capsule, its control group, CRIU beside
// or inside it, its directory and image. It decides nothing: the Guest machine says what to do
// (guest::Do), the Cell does it and says how it ended (guest::Event). Its parts do the work, each
// with a header of its own in this directory; DumpJob dumps the job and RestoreJob restores it. The
// Cell puts their steps in order: it brings CRIU in and hears its words and those of souk-init.
// Owned by the Agent. A Cell that is dropped while its capsule lives ends nothing: adopt() finds it
// again.
//
// Directories: GUESTS/KEY belongs to the capsule (CellCapsule). An image lies in RAM/KEY (on its
// way) or IMAGES/KEY (frozen to disk), and is whole only once its manifest is there.
#pragma once

#include <bit>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agentd/cell/capsule_link.hpp"
#include "agentd/cell/cell_capsule.hpp"
#include "agentd/cell/cell_groups.hpp"
#include "agentd/cell/cell_image.hpp"
#include "agentd/cell/cell_site.hpp"
#include "agentd/cell/criu_beside.hpp"
#include "agentd/cell/criu_stage.hpp"
#include "agentd/cell/dump_job.hpp"
#include "agentd/cell/job_log.hpp"
#include "agentd/cell/job_root.hpp"
#include "agentd/cell/job_stdio.hpp"
#include "agentd/cell/kept_image.hpp"
#include "agentd/cell/lease_watch.hpp"
#include "agentd/cell/network_cut.hpp"
#include "agentd/cell/page_intake.hpp"
#include "agentd/cell/precopy_rounds.hpp"
#include "agentd/cell/restore_job.hpp"
#include "agentd/cell/stopped_processes.hpp"
#include "agentd/cell/thaw_trial.hpp"
#include "agentd/core/guest.hpp"
#include "checkpoint/page_source.hpp"
#include "checkpoint/plan.hpp"

namespace souk {

class Cell final : private DumpJob::Owner, private RestoreJob::Owner {
  public:
    Cell(CellSite& site, GuestJob job);
    ~Cell() override;

    // The effects of guest::Do.
    void create_capsule();
    void start_job(bool hold = false);
    void hold_job();
    void release_job();
    void ready_criu(bool to_disk, bool to_keep);
    // Makes a place for the image of a checkpoint.
    void make_place();
    // Keeps that image when it is here. `done` is called once: when all of it is on the disk under
    // its name, or why it is not. The loop goes on meanwhile; a cell that is removed before that
    // says nothing.
    void keep(const Manifest& manifest, std::function<void(const Status&)> done) {
        kept_.keep(manifest, std::move(done));
    }
    // Undoes a dump, and keeps its image.
    void go_on() { dump_.go_on(); }
    void drop_image();
    // Sends memory ahead of a dump, to that destination. worth_precopy: how much the job has, if
    // some of it is to go before it is stopped; else 0. precopy_round: what to send next while the
    // job runs; null when it is time to stop it. Without success, or after drop_precopy(), all goes
    // after the stop.
    uint64_t worth_precopy(double link_bytes_per_s, Epoch to) {
        return dump_.worth_precopy(link_bytes_per_s, to);
    }
    Result<PrecopySource*> precopy_round() { return dump_.precopy_round(); }
    bool precopy_late() const { return rounds_.late(); }  // that is why it failed: soon again
    void drop_precopy() { rounds_.drop(); }
    bool sending_precopy() const { return rounds_.sending(); }
    bool dumping() const { return stage_.dumps(); }
    // The dump that follows is of a checkpoint of that epoch.
    void checkpoint_of(Epoch epoch) { dump_.checkpoint_of(epoch); }
    // link_bytes_per_s: what the last transfers to its destination made; 0: not known, or no move.
    // no_hurry: as in guest::Do.
    void dump(double link_bytes_per_s, bool no_hurry = false) {
        dump_.begin(link_bytes_per_s, no_hurry);
    }
    void finish_dump() { dump_.finish(); }
    void undo_dump() { dump_.undo(); }
    void restore() { restore_.begin(); }
    void restore_local(const Cell* source);
    void finish_restore() { restore_.finish(); }
    void kill_capsule() override;
    // CRIU, which restores, is told nothing more: it ends by itself at its next word. `then` is
    // called when it has ended, at once if there is none.
    void leave_criu(std::function<void()> then);
    // Its job has ended by itself, and its home does not want that end.
    void silence();
    void remove();
    // `to_all`: to each of its processes, not to its foreground process group or root alone.
    void signal(int number, bool to_all);
    // The job may run until then, by the loop's clock; PID 1 of its capsule keeps that too. stands:
    // a job that the last deadline stopped stays so.
    void keep_lease(Nanos until, bool stands) { lease_.keep(until, stands); }
    // Stops the job where it is; undo_dump lets it go on.
    void stand();
    // The job stands for the owner of the node until he says otherwise.
    void pause(bool on);
    // The bound of the CPUs of all guests is being set: off, this one has none of its own.
    void node_bound(bool on) { groups_.node_bound(on); }
    // Looks whether the job, while it runs, can move.
    void look();
    // Asked each second: the job is to be looked at out of its turn. A job opens most of its files
    // as it starts, so that is so seldomer and seldomer. A job that must be able to move is refused
    // soon or never.
    bool look_is_due() {
        if (looks_ == 0) return true;
        if (seconds_ >= 64) return false;
        ++seconds_;
        return std::has_single_bit(seconds_) || (job_.spec.must_migrate && seconds_ < 12);
    }

    // After a restart of the daemon: says what is there, and connects to the capsule again if it
    // lives.
    Guest::Found adopt();

    // Its home's words on its stdio (job_stdio.hpp).
    void ack(uint32_t stream, uint64_t offset, bool again) { stdio_.ack(stream, offset, again); }
    void resync() { stdio_.resync(); }
    void input(uint64_t offset, std::string_view bytes, bool eof) {
        stdio_.input(offset, bytes, eof);
    }
    void winch(uint16_t rows, uint16_t cols);
    // The ends of the streams of a job that has exited, or of a checkpoint.
    const StreamEnds& stream_ends() const { return stdio_.ends(); }

    // The directory of its image, made by a dump or being received.
    Result<Fd> image() const { return image_.open(); }
    // The bytes of an image for the disk that is not whole yet; 0: none is being written.
    uint64_t bytes_written() const { return image_.on_disk() && image_ ? image_.bytes() : 0; }
    Manifest needs() const override;
    // At the source: how the memory of the job that stands frozen here goes, and that memory,
    // unless it goes with the image.
    MoveForm form() const { return dump_.course().form(); }
    Result<std::unique_ptr<PageSource>> pages(Epoch to) const { return dump_.pages(to); }
    // At the destination: memory ahead of the image, how the rest comes, and pages
    // (page_intake.hpp).
    Status expect_precopy(uint64_t bytes) { return intake_.expect_precopy(bytes); }
    Status take_precopy(const PageRange& range, std::string_view bytes) {
        return intake_.take_precopy(range, bytes);
    }
    void precopy_lost() { intake_.precopy_lost(); }
    void expect_pages(MoveForm form) { intake_.expect(form); }
    Status put_pages(const PageRange& range, std::string_view bytes) {
        return intake_.put(range, bytes);
    }
    Status seal(const Manifest& manifest) { return image_.seal(manifest); }
    // The image of a frozen job.
    Result<Fd> open_sealed() const { return image_.open_whole(); }
    std::string disk_secret() const override {
        return site_.disk_secret ? site_.disk_secret(key_) : "";
    }
    // The key with which an image that comes is encrypted; none: it is not.
    const DiskKey& image_key() const { return image_.key(); }
    // Its image is not what it should be: when it is dropped it is kept for the node's operator.
    void refuse_image(bool refused) { image_.refuse(refused); }
    const GuestJob& job() const { return job_; }
    const GuestKey& key() const { return key_; }
    // The job's first process, on this node; 0: no look has found it yet.
    pid_t pid() const { return root_.here(); }
    RunsAs runs_as() const {
        const LaunchSpec& l = job_.spec.launch;
        return {true, l.uid, l.gid, l.groups};
    }
    bool has_capsule() const { return capsule_ && life_ != Life::gone; }
    // The memory that its capsule holds; if that is not counted, the memory that it may hold.
    uint64_t memory_bytes() const { return groups_.memory_bytes(); }
    // The most memory that the job has held here at once; 0: it is not counted.
    int64_t memory_peak() { return groups_.memory_peak(); }
    // How far its memory is on the way to this node's disk.
    std::optional<FrozenSteps::Progress> writing(Nanos now) const { return dump_.writing(now); }
    // The control group of its capsule, "n1/jobs/c7"; empty: there is none.
    const std::string& cgroup_name() const { return groups_.name(); }
    // The group's directory in cgroup v2; empty: there is none.
    std::string group_directory() const { return groups_.directory(); }

  private:
    using Stage = CriuStage::Stage;
    // The life of the capsule. ending: it was told to end; its last words may be a closed
    // connection.
    enum class Life : uint8_t { lives, ending, removing, gone };

    // The parts ask for these.
    JobStdio::Hooks stdio_hooks();
    PageIntake::Hooks intake_hooks();
    PrecopyRounds::Hooks rounds_hooks();
    DumpJob::Parts dump_parts();
    RestoreJob::Parts restore_parts();
    void tell(guest::Event event) override { site_.event(key_, std::move(event)); }
    void criu_failed(const Trouble& why) override { criu_failed(why, false); }
    void restore_failed(const Trouble& why, bool refused) override {
        criu_failed(why, false, refused);
    }
    void dump_is_undone() override;
    void job_runs() override;
    void try_thaw(ThawTrial& trial, ThawTrial::Told told) override {
        trial.begin(*this, std::move(told));
    }
    // For a small job's move: from CRIU's start to its stop, as long for that, and for the restore.
    void stay_awake() override {
        if (site_.awake) site_.awake->hold(Nanos::from_ms(60));
    }

    // The capsule.
    void connect(Fd connection);
    void client_event(CapsuleClient::Event& e);
    void lost_client(const std::string& why);
    void welcomed(const CapsuleClient::Event& e);
    void job_started(const CapsuleClient::Event& e);
    void job_held(const CapsuleClient::Event& e);
    void helpers_ready(const CapsuleClient::Event& e);
    void tell_lease(Nanos until);
    void leased(const CapsuleClient::Event& e);
    void capsule_ended();
    void remove_files();
    void find_stop(Guest::Found& found);

    // CRIU beside or inside the capsule.
    void look_soon();
    Status can_be_dumped() const;
    void enter_capsule();
    void begin_criu();
    void start_criu();
    void criu_event(const CriuEvent& e);
    void criu_is_ready();
    void criu_failed(const Trouble& why, bool of_job, bool image_refused = false);
    void criu_ended_badly(const CriuEvent& e);
    bool try_again(const CriuEvent& e);
    void helpers_leave();
    void close_criu();
    bool fits_memory() const;
    void memory_is_whole();
    // The job runs without all of its memory, and is not the job yet.
    bool filling() const { return stdio_.silent(); }

    CellSite& site_;
    GuestJob job_;
    GuestKey key_;
    JobLog log_;
    Life life_ = Life::lives;
    bool has_job_ = false;     // started, restored or found running
    bool released_ = false;    // a component: its program was let run
    bool helpers_in_ = false;  // the capsule has made way for CRIU
    Timer look_;               // at a job that has just begun to run here
    int looks_ = 0;
    unsigned seconds_ = 0;  // since the first of them
    Watch exit_watch_;

    // The parts, each with its own state.
    CellGroups groups_;
    NetworkCut network_;
    CellCapsule capsule_;
    CapsuleLink link_;
    JobStdio stdio_;
    JobRoot root_;
    LeaseWatch lease_;
    CellImage image_;
    KeptImage kept_;
    StoppedProcesses processes_;
    PageIntake intake_;
    PrecopyRounds rounds_;
    CriuBeside criu_;
    CriuStage stage_;
    inspect::Inspection inspection_;  // of its image, made here or come
    DumpJob dump_;
    RestoreJob restore_;
};

}  // namespace souk
