// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/guest_site.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>

#include "checkpoint/core_image.hpp"
#include "kernel/base/version.hpp"
#include "kernel/sys/host/disks.hpp"
#include "kernel/sys/host/installation.hpp"
#include "kernel/sys/host/probe.hpp"
#include "kernel/sys/process/syscall_filter.hpp"

namespace souk {
namespace {

int64_t memory_total_mb() {
    struct sysinfo info {};
    ::sysinfo(&info);
    return static_cast<int64_t>(info.totalram) * info.mem_unit >> 20;
}

}  // namespace

GuestSite::GuestSite(Loop& loop, Log& log, root::Helper& root, const AsRoot& as_root,
                     const Config& config, NodeShare* share)
    : log_(log),
      root_(root),
      as_root_(as_root),
      config_(config),
      share_(share),
      inspectors_(
          [&root](Fd socket) {
              return root.program(root::Program::inspect, {}, {socket.get()}, false);
          },
          root.end()),
      awake_(loop, root.devices()) {}

Status GuestSite::open() {
    TRY(open_directories());
    TRY(open_criu());
    examine_node();
    return {};
}

Status GuestSite::open_directories() {
    site_.guests = config_.state + "/guests";
    const std::string images = config_.state + "/images", ram = config_.state + "/ram";
    TRY_ASSIGN(site_.images, open_at(AT_FDCWD, images, O_RDONLY | O_DIRECTORY));
    TRY_ASSIGN(site_.refused,
               open_at(AT_FDCWD, config_.state + "/refused", O_RDONLY | O_DIRECTORY));
    TRY_ASSIGN(site_.ram, open_at(AT_FDCWD, ram, O_RDONLY | O_DIRECTORY));
    return {};
}

Status GuestSite::open_criu() {
    auto criu = config_.criu.empty() ? find_criu() : find_criu(config_.criu);
    if (!criu) return tl::unexpected(criu.error());
    criu->deleted_bytes_max = static_cast<uint32_t>(config_.deleted_mb << 20);
    criu->launch = [this](const CriuLaunch& how) { return root_.criu(how); };
    criu->learn = root_.learn();
    const Reach reach = root_.reach();
    criu->loaded = root_.criu_loaded();
    criu->end = reach.end;
    criu->give = reach.give;
    criu_ = std::move(*criu);
    site_.criu = &criu_;
    site_.reach = reach;
    site_.inspectors = &inspectors_;
    site_.leave_rate = &leave_rate_;
    TRY_ASSIGN(site_.machine, this_machine(as_root_.criu_version));
    return inspectors_.begin();
}

void GuestSite::configured() {
    site_.awake = config_.awake_for_moves ? &awake_ : nullptr;
    site_.pids_max = config_.pids_max;
    site_.swap_mb = config_.swap_mb;
    site_.disk_mb_per_s = config_.disk_mb_per_s;
    site_.disks = whole_disks();
    site_.check_precopy = config_.check_precopy;
    site_.local_paths = config_.local_paths;
}

void GuestSite::examine_node() {
    if (!as_root_.dumps_all) {
        site_.restriction =
            "agentd lacks CAP_SYS_RESOURCE: jobs of other users than root cannot be moved, frozen "
            "or checkpointed on this node";
        log_.warning("some jobs cannot move", {{"WHY", site_.restriction}});
    }
    site_.init_path = program_path("souk-init");
    site_.node = config_.node;
    configured();
    site_.limits_max = {
        {RLIMIT_RTPRIO, config_.rtprio_max},
        {RLIMIT_NICE, config_.nice_max},
        {RLIMIT_NOFILE, config_.nofile_max},
        {RLIMIT_MEMLOCK, config_.memlock_mb_max << 20},
        {RLIMIT_CORE, config_.core_mb_max > 0 ? config_.core_mb_max << 20 : no_core_bytes}};
    site_.filter_root = config_.filter == Config::Filter::all;
    if (config_.filter != Config::Filter::none) {
        auto filter = make_syscall_filter({config_.job_io_uring});
        if (!filter)
            log_.warning("jobs may make every system call", {{"WHY", filter.error()}});
        else
            site_.filter = std::move(*filter);
    }
    site_.private_tmp = config_.private_tmp;
    site_.run_keep = config_.run_keep;
    site_.hidden = config_.hidden;
    site_.network = config_.network;
    if (share_ != nullptr) {
        site_.groups = &share_->capsules();
        site_.limits = share_->limits();
        site_.v1_tasks = share_->v1_tasks();
        site_.v1_io_tasks = share_->v1_io_tasks();
    }
    site_.cpus = hardware().cpus;
    site_.pages_possible = as_root_.pages_possible.has_value();
    if (!site_.pages_possible)
        log_.warning("jobs move with all their memory in the image",
                     {{"WHY", as_root_.pages_possible.error()}});
    const Need& marks = as_root_.write_marks;
    site_.precopy_possible = marks.met;
    log_.info(marks.met ? "memory is sent ahead of moves" : "memory is not sent ahead of moves",
              {{"WHY", marks.found}});
}

Hardware GuestSite::hardware() const {
    Hardware m;
    m.cpus = static_cast<int32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
    m.memory_mb = std::max<int64_t>(1, memory_total_mb());
    m.machine = site_.machine;
    m.restriction = site_.restriction;
    m.version = version();
    return m;
}

}  // namespace souk
