// SPDX-License-Identifier: GPL-2.0-or-later
// Cell: the effects of one (job, epoch) on this node: its capsule, its control group, CRIU beside
// or inside it, its directory and image. It decides nothing: the Guest machine says what to do
// (guest::Do), the Cell does it and says how it ended (guest::Event). Owned by the Agent; a Cell
// dropped while its capsule lives ends nothing: adopt() finds it again.
//
// Directories: GUESTS/KEY holds the capsule's control socket and exit record; an image lies in
// RAM/KEY (on its way) or IMAGES/KEY (frozen to disk), whole only once its manifest is there.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agentd/cell/capsule_link.hpp"
#include "agentd/cell/cell_site.hpp"
#include "agentd/cell/job_log.hpp"
#include "agentd/cell/job_stdio.hpp"
#include "agentd/cell/lease_watch.hpp"
#include "agentd/cell/network_cut.hpp"
#include "agentd/core/guest.hpp"
#include "checkpoint/criu.hpp"
#include "checkpoint/images.hpp"
#include "checkpoint/page_file.hpp"
#include "checkpoint/page_sink.hpp"
#include "checkpoint/page_source.hpp"
#include "checkpoint/plan.hpp"
#include "checkpoint/precopy_source.hpp"
#include "checkpoint/precopy_store.hpp"
#include "checkpoint/shared_image.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/process/capsule.hpp"
#include "kernel/sys/process/cgroup.hpp"

namespace souk {

class Cell {
  public:
    Cell(CellSite& site, GuestJob job);
    ~Cell();

    // guest::Do, one by one.
    void create_capsule();
    void start_job();
    void ready_criu(bool to_disk, bool to_keep);
    // For the image of a checkpoint, and when it is here.
    void make_place();
    // `done` once: when all of it is on the disk under its name, or why it is not. The loop goes on
    // meanwhile; a cell that is removed before that says nothing.
    void keep(const Manifest& manifest, std::function<void(const Status&)> done);
    // As undo_dump, and the image stays.
    void go_on();
    void drop_image();
    // Memory ahead of a dump, to that destination. worth_ahead: how much the job has, if some of it
    // is to go before it is stopped; else 0. ahead_round: what to send next, the job running; null
    // when it is time to stop it. Without success, or after drop_ahead(), all goes after the stop.
    uint64_t worth_precopy(double link_bytes_per_s, Epoch to);
    Result<PrecopySource*> precopy_round();
    void drop_precopy();
    bool sending_precopy() const { return precopy_ && !precopy_->over; }
    bool dumping() const { return plan_ == Plan::dumping; }
    // What the last transfers to its destination made; 0: not known, or no move.
    void dump(double link_bytes_per_s);
    void finish_dump();
    void undo_dump();
    void restore();
    void restore_local(const Cell* source);
    void finish_restore();
    void kill_capsule();
    void remove();
    void signal(int number);
    // Until then, by the loop's clock, it may run; PID 1 of its capsule keeps that too. stands:
    // what the last deadline stopped stays so.
    void keep_lease(Nanos until, bool stands);
    // Stops it where it is; undo_dump lets it go on.
    void stand();
    // Looks whether the job, while it runs, can move.
    void look();
    bool looked() const { return looked_; }
    // One that must be able to move: what it opens as it starts is to be found.
    bool looks_often() const { return job_.spec.must_migrate && looks_ < 12; }

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
    Result<Fd> image() const { return image_fd_ ? duplicate(image_fd_.get()) : open_sealed(); }
    Manifest needs() const;
    // Source: how the memory of the job that stands frozen here goes, and it itself, unless it goes
    // with the image.
    MoveForm form() const { return form_; }
    Result<std::unique_ptr<PageSource>> pages(Epoch to) const;
    // Destination: memory ahead of the image. lost: its source is gone, or wants none of it.
    Status expect_precopy(uint64_t bytes);
    Status take_precopy(const PageRange& range, std::string_view bytes);
    void precopy_lost();
    // Destination: how it comes, told before restore(); and pages.
    void expect_pages(MoveForm form) { form_ = form; }
    Status put_pages(const PageRange& range, std::string_view bytes);
    Status seal(const Manifest& manifest);
    // As a frozen job's.
    Result<Fd> open_sealed() const { return open_image(image_parent(), key_.text()); }
    const GuestJob& job() const { return job_; }
    const GuestKey& key() const { return key_; }
    // Of the job's first process, on this node; 0: no look has found it yet.
    pid_t pid() const { return pid_of_ == root_ ? pid_ : 0; }
    bool has_capsule() const { return capsule_.has_value() && !gone_; }

  private:
    static constexpr const char* capsule_file = "capsule";  // what runs there
    // asked: CRIU is wanted beside the job, and the capsule has not said yet which process is its
    // root.
    enum class Plan : uint8_t { none, asked, coming, dumping, restoring };
    // What CRIU was told at its hold.
    enum class Decided : uint8_t { nothing, to_die, to_run };

    JobStdio::Hooks stdio_hooks();
    void connect(Fd connection);
    void client_event(CapsuleClient::Event& e);
    void lost_client(const std::string& why);
    void enter_capsule();
    void begin_criu();
    void criu_readable();
    void criu_event(const CriuEvent& e);
    void criu_failed(const std::string& why, bool of_job = false);
    void criu_ended_badly(const CriuEvent& e);
    bool try_again(const CriuEvent& e);
    void runs_without_criu();
    void close_criu();
    void now_runs();
    void leave_criu();
    void held_after_dump();
    void dump_is_complete(bool pages_stay, uint64_t bytes);
    void write_pages();
    void finish_image(const ImageFile* pages);
    void read_pages();
    void read_ends(int image);
    bool fits_memory() const;
    void load_image();
    Status find_page_file();
    Status find_page_file(int directory, const Manifest& manifest);
    Status put_file_pages(const PageRange& range, std::string_view bytes);
    void welcomed(const CapsuleClient::Event& e);
    void leased(const CapsuleClient::Event& e);
    void drained(const CapsuleClient::Event& e);
    void look_at_mounts();
    void flush_files();
    void files_are_flushed();
    void loaded(const CapsuleClient::Event& e);
    void begin_restore();
    void begin_early();
    void restore_is_held();
    void undone();
    void capsule_ended();
    void tell(guest::Event event) { site_.event(key_, std::move(event)); }
    void remove_files();
    Status make_cgroup();
    void set_limits();
    bool limits_cpus() const { return site_.limits.cpu && job_.cpus < site_.cpus; }
    void limit_cpus(bool on);
    std::vector<int> v1_tasks() const;
    std::string what_killed() const;
    void look_soon();
    void find_pid();
    void tell_lease(Nanos until);
    Result<MoveFacts> move_facts(double link_bytes_per_s) const;
    void count_shared(MoveFacts& facts) const;
    Status plan_dump(double link_bytes_per_s);
    void share_pages();
    void share_more();
    void pages_are_shared();
    void end_sharing();
    std::optional<PrecopyFacts> precopy_facts() const;
    Status list_precopy();
    void tell_froze();
    void save_dirty() const;
    void load_dirty();
    std::optional<DirtyFacts> dirty() const;
    Result<std::vector<PageRange>> ranges_for(Epoch to) const;
    Status use_store();
    void place_store();
    Result<std::vector<PageRange>> serve_from_store(const std::vector<PageRange>& wishes);
    Status room_for_image(uint64_t bytes) const;

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
    // Runs without all of its memory, and is not the job yet.
    bool filling() const { return stdio_.silent(); }
    Result<std::vector<pid_t>> pids() const;

    CellSite& site_;
    GuestJob job_;
    GuestKey key_;
    JobLog log_;
    std::string dir_;
    struct Keeping {
        Manifest manifest;
        std::function<void(const Status&)> done;
        Sync sync;
        size_t next = 0;  // file
    };
    void keep_next();
    void end_keeping(const Status& kept);
    std::unique_ptr<Keeping> keeping_;  // a checkpoint that came, until it is on the disk
    Fd dir_fd_, image_fd_;
    // the capsule; below it the job, which a dump freezes
    std::optional<Cgroup> cgroup_, job_group_;
    std::optional<Capsule> capsule_;
    Group group_{job_group_};
    CapsuleLink link_;
    JobStdio stdio_;
    LeaseWatch lease_;
    NetworkCut network_;
    CriuSession criu_;
    CriuSession last_criu_;  // of a restore whose job runs already: until it has ended
    Watch exit_watch_, criu_watch_, last_criu_watch_;
    Timer limit_, last_criu_limit_;
    // of an image that is of no more use; at a job that has just begun to run here
    Timer drop_, look_;
    std::vector<Fd> job_ends_;
    // CRIU's names of them, once the image is here and loaded
    std::optional<std::vector<std::string>> stdio_keys_;

    Plan plan_ = Plan::none;
    Decided decided_ = Decided::nothing;
    // a checkpoint is made; it is, and the job goes on
    bool to_keep_ = false, image_stays_ = false;
    bool to_disk_ = false, helpers_in_ = false, undoing_ = false, removing_ = false, gone_ = false;
    bool capsule_ending_ = false;  // told to; its last words may be a closed connection
    bool awaited_ = false;         // an answer of souk-init while the job is dumped or restored
    Status can_be_dumped() const;
    void mend_connections();
    Status expect_faults();
    void page_faults();
    void want_pages(const std::vector<PageRange>& wishes);
    void pages_may_come();
    void pages_are_whole();
    void pages_failed(const std::string& why);
    // For a small job's move: from CRIU's start to its stop, as long for that, and for the restore.
    void stay_awake() const {
        if (site_.awake) site_.awake->hold(Nanos::from_ms(60));
    }
    // Whatever dies here, it stands. (On v1 the job is in no group of its own: CRIU alone holds
    // it.)
    bool group_holds() const { return lease_.stopped() && job_group_->entry().v2 >= 0; }
    int image_parent() const { return to_disk_ ? site_.images.get() : site_.ram.get(); }

    struct Precopy {
        Epoch to;  // for whom
        PrecopySource source;
        RoundFacts round;
        Nanos began, longest_stop;
        bool over = false;            // there will be no more rounds
        bool listed = false;          // the image says what of it is true
        std::vector<PageRange> rest;  // what it does not have
    };
    std::unique_ptr<Precopy> precopy_;     // source: from the first round to the end of the move
    std::unique_ptr<PrecopyStore> store_;  // destination: until all is in place
    Timer place_timer_;
    uint64_t store_put_ = 0;
    struct Dirty {
        DirtyFacts facts;
        Nanos at = Nanos::never();  // when it was measured; never: it was not
    } dirty_;
    uint64_t dirty_expected_ = 0;  // what of it the plan of this move knew
    MoveForecast forecast_;
    MoveForm form_ = MoveForm::stop_and_copy;  // of the dump or restore that is under way
    std::optional<PageSink> sink_;
    std::unique_ptr<SharedImage> sharing_;  // of a dump, before anything reads its lazy ranges
    Timer share_timer_;
    std::unique_ptr<PageFileWrite> page_write_;  // of a freeze to disk
    // where this job's files may be seen by other machines
    std::set<dev_t> network_devices_;
    struct Flush {
        std::vector<Fd> files;
        Sync sync;
        Timer limit;
    };
    std::unique_ptr<Flush> flush_;             // of what it has written there, while it stands
    std::unique_ptr<PageFileRead> page_read_;  // of a thaw
    Watch sink_watch_;
    bool pages_restored_ = false, pages_here_ = false;
    uint64_t pages_acknowledged_ = 0;
    bool looked_ = false;
    int looks_ = 0;
    bool restore_late_ = false;  // when it is told to run
    bool early_ = false;         // CRIU was begun before souk-init was ready
    // A dump that is begun once more.
    enum class Again : uint8_t {
        no,
        with_all_memory,  // in the image
        as_before,        // what kept the one before was of a moment
    } again_ = Again::no;
    int dump_tries_ = 0;
    double link_bytes_per_s_ = 0;

    bool has_job_ = false;        // started, restored or found running
    pid_t root_ = 0;              // its first process, inside
    pid_t pid_ = 0, pid_of_ = 0;  // on this node, as a look found out for that root
    std::string dump_trouble_;    // why the image could not be completed
    std::string terminal_;        // CRIU's name of it
};

}  // namespace souk
