// SPDX-License-Identifier: GPL-2.0-or-later
// Cell: the effects of one (job, epoch) on this node: its capsule, its control group, CRIU beside
// or inside it, its directory and image. It decides nothing: the Guest machine says what to do
// (guest::Do), the Cell does it and says how it ended (guest::Event). Its parts do the work, each
// with a header of its own in this directory; the Cell puts their steps in order. Owned by the
// Agent; a Cell dropped while its capsule lives ends nothing: adopt() finds it again.
//
// Directories: GUESTS/KEY holds the capsule's control socket and exit record; an image lies in
// RAM/KEY (on its way) or IMAGES/KEY (frozen to disk), whole only once its manifest is there.
#pragma once

#include <bit>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agentd/cell/capsule_link.hpp"
#include "agentd/cell/cell_image.hpp"
#include "agentd/cell/cell_site.hpp"
#include "agentd/cell/criu_beside.hpp"
#include "agentd/cell/dump_course.hpp"
#include "agentd/cell/frozen_steps.hpp"
#include "agentd/cell/job_log.hpp"
#include "agentd/cell/job_root.hpp"
#include "agentd/cell/job_stdio.hpp"
#include "agentd/cell/lease_watch.hpp"
#include "agentd/cell/network_cut.hpp"
#include "agentd/cell/page_intake.hpp"
#include "agentd/cell/precopy_rounds.hpp"
#include "agentd/cell/restore_turn.hpp"
#include "agentd/cell/thaw_trial.hpp"
#include "agentd/core/guest.hpp"
#include "checkpoint/open_files.hpp"
#include "checkpoint/page_source.hpp"
#include "checkpoint/plan.hpp"
#include "kernel/sys/process/capsule.hpp"
#include "kernel/sys/process/cgroup.hpp"

namespace souk {

class Cell {
  public:
    Cell(CellSite& site, GuestJob job);
    ~Cell();

    // guest::Do, one by one.
    void create_capsule();
    void start_job(bool hold = false);
    void hold_job();
    void release_job();
    void ready_criu(bool to_disk, bool to_keep);
    // For the image of a checkpoint, and when it is here.
    void make_place();
    // `done` once: when all of it is on the disk under its name, or why it is not. The loop goes on
    // meanwhile; a cell that is removed before that says nothing.
    void keep(const Manifest& manifest, std::function<void(const Status&)> done);
    // As undo_dump, and the image stays.
    void go_on();
    void drop_image();
    // Memory ahead of a dump, to that destination. worth_precopy: how much the job has, if some of
    // it is to go before it is stopped; else 0. precopy_round: what to send next, the job running;
    // null when it is time to stop it. Without success, or after drop_precopy(), all goes after the
    // stop.
    uint64_t worth_precopy(double link_bytes_per_s, Epoch to);
    Result<PrecopySource*> precopy_round();
    bool precopy_late() const { return rounds_.late(); }  // that is why it failed: soon again
    void drop_precopy() { rounds_.drop(); }
    bool sending_precopy() const { return rounds_.sending(); }
    bool dumping() const { return plan_ >= Plan::dumping && plan_ <= Plan::undoing; }
    // The dump that follows is of a checkpoint of that epoch.
    void checkpoint_of(Epoch epoch) { checkpoint_ = epoch; }
    // What the last transfers to its destination made; 0: not known, or no move. no_hurry: as of
    // guest::Do.
    void dump(double link_bytes_per_s, bool no_hurry = false);
    void finish_dump();
    void undo_dump();
    void restore();
    void restore_local(const Cell* source);
    void finish_restore();
    void kill_capsule();
    // CRIU, which restores, is told nothing more: it ends by itself at its next word. then: when it
    // has; at once where there is none.
    void leave_criu(std::function<void()> then);
    // Its job has ended by itself, and its home does not want that end.
    void silence();
    void remove();
    // `to_all`: to each of its processes, not to its foreground process group or root alone.
    void signal(int number, bool to_all);
    // Until then, by the loop's clock, it may run; PID 1 of its capsule keeps that too. stands:
    // what the last deadline stopped stays so.
    void keep_lease(Nanos until, bool stands) { lease_.keep(until, stands); }
    // Stops it where it is; undo_dump lets it go on.
    void stand();
    // For the owner of the node: it stands until he says otherwise.
    void pause(bool on);
    // The bound of the CPUs of all guests is being set: off, this one has none of its own.
    void node_bound(bool on);
    // Looks whether the job, while it runs, can move.
    void look();
    // Asked each second: whether it looks out of its turn. A job opens most of its files as it
    // starts: seldomer and seldomer, but one that must be able to move is refused soon or never.
    bool look_is_due() {
        if (looks_ == 0) return true;
        if (seconds_ >= 64) return false;
        ++seconds_;
        return std::has_single_bit(seconds_) || (job_.spec.must_migrate && seconds_ < 12);
    }

    // After a restart of the daemon: what is there. The capsule, if it lives, is connected to
    // again.
    Guest::Found adopt();

    // stdio: what its home says (job_stdio.hpp).
    void ack(uint32_t stream, uint64_t offset, bool again) { stdio_.ack(stream, offset, again); }
    void resync() { stdio_.resync(); }
    void input(uint64_t offset, std::string_view bytes, bool eof) {
        stdio_.input(offset, bytes, eof);
    }
    void winch(uint16_t rows, uint16_t cols);
    // How far the streams of a job came that has exited, or of a checkpoint.
    const StreamEnds& stream_ends() const { return stdio_.ends(); }

    // Its image: made (a dump) or being received; the directory, and the end of it.
    Result<Fd> image() const { return image_.open(); }
    // So much is there of an image for the disk that is not whole yet; 0: none is being written.
    uint64_t bytes_written() const { return image_.on_disk() && image_ ? image_.bytes() : 0; }
    Manifest needs() const;
    // Source: how the memory of the job that stands frozen here goes, and it itself, unless it goes
    // with the image.
    MoveForm form() const { return dump_.form(); }
    Result<std::unique_ptr<PageSource>> pages(Epoch to) const;
    // Destination: memory ahead of the image, how the rest comes, and pages (page_intake.hpp).
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
    // As a frozen job's.
    Result<Fd> open_sealed() const { return image_.open_whole(); }
    std::string disk_secret() const { return site_.disk_secret ? site_.disk_secret(key_) : ""; }
    // What an image that comes is encrypted with; none: it is not.
    const DiskKey& image_key() const { return image_.key(); }
    // Its image is not what it should be: when it is dropped it is kept for the node's operator.
    void refuse_image(bool refused) { image_.refuse(refused); }
    const GuestJob& job() const { return job_; }
    const GuestKey& key() const { return key_; }
    // Of the job's first process, on this node; 0: no look has found it yet.
    pid_t pid() const { return root_.here(); }
    RunsAs runs_as() const {
        const LaunchSpec& l = job_.spec.launch;
        return {true, l.uid, l.gid, l.groups};
    }
    bool has_capsule() const { return capsule_.has_value() && life_ != Life::gone; }
    // What its capsule holds; where nobody counts that, what it may hold.
    uint64_t memory_bytes() const;
    // How far its memory is on the way to this node's disk.
    std::optional<FrozenSteps::Progress> writing(Nanos now) const { return steps_.progress(now); }
    // Of its capsule, "n1/jobs/c7"; empty: there is none.
    const std::string& cgroup_name() const { return cgroup_name_; }
    // Its directory in cgroup v2; empty: there is none.
    std::string group_directory() const;

  private:
    static constexpr const char* capsule_file = "capsule";  // what runs there
    // What CRIU is there for.
    //   asked     beside the job; the capsule has not said yet which process is its root
    //   coming    the capsule makes way for it
    //   dumping   from the plan of the dump to its end; the job may stand
    //   draining  the same, while souk-init puts what waits at the job's stdio into the image
    //   undoing   the job goes on, as soon as CRIU has let it go
    //   loading   a restore, while souk-init takes in what waits at the job's stdio
    enum class Plan : uint8_t {
        none,
        asked,
        coming,
        dumping,
        draining,
        undoing,
        restoring,
        loading
    };
    // What CRIU was told at its hold.
    enum class Decided : uint8_t { nothing, to_die, to_run };
    // Of the capsule. ending: told to; its last words may be a closed connection.
    enum class Life : uint8_t { lives, ending, removing, gone };
    // The control group of the job, once it is there.
    class Group final : public JobGroup {
      public:
        explicit Group(const std::optional<Cgroup>& group) : group_(group) {}
        bool there() const override { return group_.has_value(); }
        Status freeze(Nanos wait_max) const override { return group_->freeze(wait_max); }
        Status stop() const override { return group_->stop(); }
        Status thaw() const override { return group_->thaw(); }

      private:
        const std::optional<Cgroup>& group_;
    };

    // What the parts ask for.
    JobStdio::Hooks stdio_hooks();
    PageIntake::Hooks intake_hooks();
    PrecopyRounds::Hooks rounds_hooks();
    FrozenSteps::Hooks steps_hooks();
    void tell(guest::Event event) { site_.event(key_, std::move(event)); }

    // The capsule.
    void connect(Fd connection);
    void client_event(CapsuleClient::Event& e);
    void lost_client(const std::string& why);
    void welcomed(const CapsuleClient::Event& e);
    void helpers_ready(const CapsuleClient::Event& e);
    void tell_lease(Nanos until);
    void leased(const CapsuleClient::Event& e);
    void capsule_ended();
    void end_files();
    void begin_files();
    Result<bool> needs_server() const;
    void remove_files();
    void remove_directory();
    void find_capsule();

    // Its control groups.
    CgroupUse cgroup_use() const;
    Status take_groups();
    Result<bool> write_hosts() const;
    void use_groups(CapsuleGroup groups);
    bool set_limits();  // false: not all of them
    bool limits_cpus() const { return site_.limits.cpu && job_.cpus < site_.cpus; }
    void limit_cpus(bool on);
    void write_cpus_max(bool on);
    std::vector<int> v1_tasks() const;
    std::string what_killed() const;
    Result<std::vector<pid_t>> pids() const;
    CriuUser user() const {
        const LaunchSpec& l = job_.spec.launch;
        return {l.uid, l.gid, l.groups, false, l.uid != 0 && site_.filter};
    }
    // Whatever dies here, it stands. (On v1 the job is in no group of its own: CRIU alone holds
    // it.)
    bool group_holds() const { return lease_.stopped() && job_group_->entry().v2 >= 0; }

    // CRIU beside the job.
    void look_soon();
    Status can_be_dumped() const;
    void enter_capsule();
    void begin_criu();
    void start_criu();
    void expect_files();
    void criu_event(const CriuEvent& e);
    void criu_failed(const Trouble& why, bool of_job = false, bool image_refused = false);
    void criu_ended_badly(const CriuEvent& e);
    bool try_again(const CriuEvent& e);
    void helpers_leave();
    void close_criu();
    // For a small job's move: from CRIU's start to its stop, as long for that, and for the restore.
    void stay_awake() const {
        if (site_.awake) site_.awake->hold(Nanos::from_ms(60));
    }

    // A dump.
    Result<MoveFacts> move_facts(double link_bytes_per_s) const;
    Status plan_dump(double link_bytes_per_s);
    Status begin_image(bool for_restore);
    void tell_froze(bool now = false) { tell(guest::DumpFroze{dump_.forecast(), now}); }
    void begin_dump(size_t unaccepted);
    void held_after_dump();
    void files_are_flushed();
    void dump_is_read(const Result<ImageFacts>& facts);
    void note_files();
    std::vector<Fd> open_files_in_proc(const std::vector<pid_t>& pids, ProcessFile file) const;
    OpenProcessFiles opener() const;
    LookAt looker() const;          // of the capsule's processes
    LookAt looker_at_dump() const;  // likewise; opened_ has what it needs
    Status note_what_it_has(const ImageFacts& facts);
    void pages_are_shared();
    void drained(const CapsuleClient::Event& e);
    void write_image();
    void finish_image(const ImageFile* pages);
    void dump_is_complete(bool pages_stay, uint64_t bytes);
    void keep_frames(const std::optional<std::string>& frames);
    void try_to_thaw(uint64_t bytes);
    Status can_try() const;
    void fail_dump(Trouble why, bool of_job = false);
    void undone();
    void mend_connections();
    bool fits_memory() const;

    // A restore.
    bool restoring() const { return plan_ == Plan::restoring || plan_ == Plan::loading; }
    Status take_local(const Cell& source);
    bool local_image_refused(const Error& error);
    void find_ends(const Manifest& manifest, int image);
    void load_image();
    void image_is_read(const Result<ImageFacts>& facts);
    void begin_early();
    void loaded(const CapsuleClient::Event& e);
    void begin_restore();
    void restore_is_held();
    Status check_files() const;
    Status check_rights() const;
    void now_runs();
    void runs_without_criu();
    void memory_is_whole();
    // Runs without all of its memory, and is not the job yet.
    bool filling() const { return stdio_.silent(); }

    CellSite& site_;
    GuestJob job_;
    GuestKey key_;
    JobLog log_;
    std::string dir_;
    Fd dir_fd_;
    // the capsule; below it the job, which a dump freezes
    std::optional<Cgroup> cgroup_, job_group_;
    std::string cgroup_name_;
    Nanos cgroup_used_;  // by capsules before this one
    std::optional<Capsule> capsule_;
    bool served_ = false;  // its root comes from its home
    Watch exit_watch_;
    Life life_ = Life::lives;
    bool cpus_limited_ = false;  // by its own group, or it is to be
    bool has_job_ = false;       // started, restored or found running
    bool released_ = false;      // a component: its program was let run

    // The parts, each with its own state.
    Group group_{job_group_};
    CapsuleLink link_;
    JobStdio stdio_;
    JobRoot root_;
    LeaseWatch lease_;
    NetworkCut network_;
    int unaccepted_ = 0;  // saves and freezes that were given up for that, one after the other
    CellImage image_;
    PageIntake intake_;
    PrecopyRounds rounds_;
    CriuBeside criu_;
    DumpCourse dump_;
    FrozenSteps steps_;
    ThawTrial trial_;
    Epoch checkpoint_;
    std::shared_ptr<void> snapshot_;  // of its files, under way
    inspect::Inspection inspection_;  // of its image, made here or come
    RestoreTurn restore_;
    GuestKey local_source_;  // of the image that it is thawed from, if that lies here

    // The order of the steps.
    Plan plan_ = Plan::none;
    Decided decided_ = Decided::nothing;
    std::map<pid_t, pid_t> stopped_;  // by a dump, as of pids_inside
    // Of those, taken while CRIU dumps: what is needed of them when they are held is there then.
    struct Opened {
        std::vector<pid_t> pids;
        std::vector<Fd> page_maps, memories;
        std::vector<SeenProcess> look;
    } opened_;
    std::optional<std::string> frames_at_cut_;  // what had come when it was saved
    std::optional<OpenFiles> files_;            // of those
    std::string expected_;                      // of its home's files, before it was stopped
    std::optional<ImageFacts> facts_;           // of the image that is to be restored
    bool helpers_in_ = false;                   // the capsule has made way for CRIU
    Timer look_;                                // at a job that has just begun to run here
    int looks_ = 0;
    unsigned seconds_ = 0;  // since the first of them
};

}  // namespace souk
