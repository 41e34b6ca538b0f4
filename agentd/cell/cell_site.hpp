// SPDX-License-Identifier: GPL-2.0-or-later
// CellSite: what all cells of a node share: directories, the abilities of this machine, and the
// functions that a cell calls to tell of something. The agent fills it once, and owns it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agentd/core/guest_event.hpp"
#include "agentd/core/guest_io.hpp"
#include "agentd/inspect/inspector.hpp"
#include "checkpoint/criu.hpp"
#include "checkpoint/images.hpp"
#include "checkpoint/pages.hpp"
#include "checkpoint/reach.hpp"
#include "kernel/base/rate_limit.hpp"
#include "kernel/sys/host/cpu_awake.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/net/job_port.hpp"
#include "kernel/sys/process/capsule.hpp"
#include "kernel/sys/process/capsule_groups.hpp"
#include "kernel/sys/store/network_files.hpp"

namespace souk {

// A descriptor that is open as long as one of the copies of a site has it.
class SiteFd {
  public:
    SiteFd& operator=(Fd fd) {
        fd_ = std::make_shared<Fd>(std::move(fd));
        return *this;
    }
    int get() const { return fd_ ? fd_->get() : -1; }
    explicit operator bool() const { return get() >= 0; }

  private:
    std::shared_ptr<const Fd> fd_;
};

// The things that all cells of a node share.
struct CellSite {
    Loop* loop = nullptr;
    Log* log = nullptr;
    CapsuleGroups* groups = nullptr;  // null: this machine has none
    std::vector<int> v1_tasks;        // of the node's share, where v1 has the CPU controller
    std::vector<int> v1_io_tasks;     // likewise of disks
    CgroupUse limits;                 // of a capsule that this machine has controllers for
    // of this machine: a job that may use all of them is not limited
    int32_t cpus = 1;
    int64_t pids_max = 0;            // 0: no limit
    int64_t swap_mb = -1;            // that a job may have; below 0: any
    int64_t disk_mb_per_s = 0;       // that it may read, and write, of each disk; 0: no limit
    std::vector<std::string> disks;  // "254:0"
    // RLIMIT_... of jobs that are not root's: no more than that; others as they asked
    std::map<int, uint64_t> limits_max;
    SiteFd filter;                    // of jobs' system calls (syscall_filter.hpp); none: no limit
    bool filter_root = false;         // of root's jobs, too
    bool private_tmp = false;         // of all capsules
    std::string run_keep;             // names below /run that jobs see
    std::vector<std::string> hidden;  // directories that are empty for jobs of other homes
    std::vector<std::string> local_paths;  // that may lie over the tree of a home
    std::string guests;                    // directory of the capsules' directories
    SiteFd images, ram;                    // parents of images: on disk, in memory
    SiteFd refused;                        // of those that were refused, on that disk
    std::string init_path;
    std::function<Result<Capsule>(const GuestKey&, const CapsuleOptions&)> make_capsule =
        [](const GuestKey&, const CapsuleOptions& options) { return Capsule::spawn(options); };
    Reach reach;  // into the processes of jobs
    // Tells which processes of this machine have shut themselves in with Landlock; none: only a
    // dump finds that (bpf/shut_in.hpp).
    std::function<Result<std::set<pid_t>>()> shut_in;
    CriuTool* criu = nullptr;
    inspect::Inspectors* inspectors = nullptr;  // who read images
    CpuAwake* awake = nullptr;                  // null: its owner wants processors to sleep
    RateLimit* leave_rate = nullptr;            // of images that leave for the owner of the node
    Machine machine;                            // this one, for manifests
    std::optional<JobNetwork>
        network;  // for jobs with a network of their own; none: they are refused
    bool (*is_network)(std::string_view) = is_network_filesystem;
    bool pages_possible = false;    // memory may be sent past the image
    bool precopy_possible = false;  // the kernel tells which pages are written to
    bool trial = false;             // its cells restore for trial (thaw_trial.hpp)
    // why CRIU cannot dump jobs of other users than root; empty: it can
    std::string restriction;
    NodeName node;  // this one
    // memory that was sent ahead is compared with the frozen job's before it is used
    bool check_precopy = false;
    // The secret that encrypts images of that job and epoch on the disk; empty: none does.
    std::function<std::string(const GuestKey&)> disk_secret;
    // The frozen job's image is not what it should be; without a reason: it is after all.
    std::function<void(const GuestKey&, const std::string& why)> image_refused;
    // The root of a capsule is served by its home: these give /dev/fuse and the requests
    // (agentd/files/slots.hpp), and hear that it is there, or was found again, and that it is gone.
    std::function<Result<std::pair<Fd, Fd>>()> files_made;
    std::function<void(const GuestJob&, const Capsule&)> files_begin;
    std::function<void(const GuestKey&)> files_end;
    // CRIU is about to look at these files of the home, and to open them (`opens`).
    std::function<void(const GuestKey&, const std::string& list, bool opens)> files_expected;
    // A capsule shows this node's own tree in their place: its home need not serve it.
    std::function<void(const GuestKey&)> files_own;
    // Asks, while the job stands, whether all that it has written is at its home
    // (FrozenSteps::Hooks::home); an error: the job has not heard yet why its home refuses.
    std::function<std::shared_ptr<void>(const GuestKey&,
                                        std::function<void(const Result<AtHome>&)> done)>
        files_home = [](const GuestKey&, const std::function<void(const Result<AtHome>&)>&) {
            return std::shared_ptr<void>();
        };
    // Starts the process that syncs the files of that capsule's job: a stream to it
    // (agentd/files/program/sync.hpp).
    std::function<Result<Fd>(const Pidfd& init)> syncer = [](const Pidfd&) {
        return Result<Fd>(fail("nobody syncs here"));
    };
    // Takes a snapshot of the job's working directory, found below `root`, for a checkpoint of that
    // epoch that is being dumped. A caller that drops the returned object hears nothing of it.
    std::function<Result<std::shared_ptr<void>>(const GuestJob&, Epoch to, int root,
                                                std::function<void(const Status&)> done)>
        files_snapshot;
    // Says whether this node has the file systems that a home names (JobSpec::file_systems).
    std::function<bool(const std::string&)> has_file_systems;
    std::function<void(const GuestKey&, guest::Event)> event;
    std::function<bool(const GuestKey&, uint32_t stream, uint64_t offset, std::string_view bytes)>
        output;
    std::function<void(const GuestKey&, uint64_t offset)> input_taken;
    // for the load reader
    std::function<void(const Cgroup& capsule, Nanos used, bool added)> cgroup_changed;
    // Asks for pages of a job that come beside the image. restored: any page may come; else these.
    std::function<void(const GuestKey&, bool restored, uint64_t bytes_put,
                       const std::vector<PageRange>& wishes)>
        want_pages;
    std::function<void(const GuestKey&)> precopy_dropped;  // nothing of it is read any more
    std::function<void(const GuestKey&)> pages_whole;
    std::function<void(const GuestKey&, const std::string& why)> pages_refused;
};

}  // namespace souk
