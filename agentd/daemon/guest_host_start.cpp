// SPDX-License-Identifier: GPL-2.0-or-later
// GuestHost: start, and finding again what the daemon before left. What this machine can, and where
// images lie; what nobody knows is removed.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string_view>

#include "agentd/daemon/guest_host.hpp"
#include "agentd/store/records.hpp"
#include "checkpoint/core_image.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/version.hpp"
#include "kernel/sys/host/disks.hpp"
#include "kernel/sys/host/installation.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/host/probe.hpp"
#include "kernel/sys/process/syscall_filter.hpp"

namespace souk {
namespace {

constexpr Nanos group_limit = Nanos::from_s(2);

int64_t memory_total_mb() {
    struct sysinfo info {};
    ::sysinfo(&info);
    return static_cast<int64_t>(info.totalram) * info.mem_unit >> 20;
}

}  // namespace

GuestHost::GuestHost(const GuestHostParts& parts)
    : loop_(parts.loop),
      log_(parts.log),
      root_(parts.root),
      as_root_(parts.as_root),
      config_(parts.config),
      tls_(parts.tls),
      tickets_(parts.tickets),
      node_(parts.config.node),
      commits_(parts.commits),
      peers_(parts.peers),
      load_(parts.load),
      share_(parts.share),
      own_(parts.own),
      listener_(parts.listener),
      accounts_(parts.accounts),
      guest_(guests_max, share_ != nullptr && !share_->cgroups().layout().v2.empty(),
             parts.config.policy,
             {parts.config.node, parts.tls ? parts.config.tickets : TicketRule::none}) {
    guest_.tell_to(parts.trace.listener());
}

Status GuestHost::open() {
    TRY(reload_users(config_));
    TRY(open_directories());
    TRY(open_criu());
    examine_node();
    wire_cells();
    wire_transfers();
    wire_precopy();
    wire_files();
    return {};
}

Status GuestHost::open_directories() {
    site_.guests = config_.state + "/guests";
    const std::string images = config_.state + "/images", ram = config_.state + "/ram";
    TRY_ASSIGN(site_.images, open_at(AT_FDCWD, images, O_RDONLY | O_DIRECTORY));
    TRY_ASSIGN(site_.refused,
               open_at(AT_FDCWD, config_.state + "/refused", O_RDONLY | O_DIRECTORY));
    TRY_ASSIGN(site_.ram, open_at(AT_FDCWD, ram, O_RDONLY | O_DIRECTORY));
    TRY_ASSIGN(secrets_, DiskSecrets::open(site_.ram.get()));
    return {};
}

Status GuestHost::open_criu() {
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
    TRY_ASSIGN(site_.machine, this_machine(as_root_.criu_version));
    return inspectors_.begin();
}

void GuestHost::configured() {
    site_.awake = config_.awake_for_moves ? &awake_ : nullptr;
    site_.pids_max = config_.pids_max;
    site_.swap_mb = config_.swap_mb;
    site_.disk_mb_per_s = config_.disk_mb_per_s;
    site_.disks = whole_disks();
    site_.check_precopy = config_.check_precopy;
    site_.local_paths = config_.local_paths;
}

// What jobs may do here and what they cannot: each lack is said once.
void GuestHost::examine_node() {
    if (!as_root_.dumps_all) {
        site_.restriction =
            "agentd lacks CAP_SYS_RESOURCE: jobs of other users than root cannot be moved, frozen "
            "or checkpointed on this node";
        log_.warning("some jobs cannot move", {{"WHY", site_.restriction}});
    }
    site_.init_path = program_path("souk-init");
    site_.node = node_;
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

Hardware GuestHost::hardware() const {
    Hardware m;
    m.cpus = static_cast<int32_t>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
    m.memory_mb = std::max<int64_t>(1, memory_total_mb());
    m.machine = site_.machine;
    m.restriction = site_.restriction;
    m.version = version();
    return m;
}

Status GuestHost::recover() {
    recovering_ = true;
    TRY_ASSIGN(const auto mark, commits_.db().get("ticket", "mark"));
    if (mark) guest_.restore_mark(whole_number<uint64_t>(*mark).value_or(0));
    std::set<std::string> known;
    TRY(commits_.read_all("guest", [&](const StateDb::Row& row) -> Status {
        TRY_ASSIGN(const GuestJob job, wire::unpack<GuestJob>(row.value));
        if (job.key.text() != row.key) return fail("it is of guest " + job.key.text());
        known.insert(row.key);
        recover(job);
        return {};
    }));
    std::set<std::string> secret_of = known;
    for (const JournalDb::SetAside& a : commits_.db().set_aside())
        if (a.kind == "guest") secret_of.insert(a.key);
    secrets_.forget_but(secret_of);
    TRY(remove_strays(std::move(known)));
    remove_old_groups();
    recovering_ = false;
    return {};
}

void GuestHost::recover(const GuestJob& job) {
    auto& c = cells_[job.key] = std::make_unique<Cell>(site_, job);
    const Guest::Found found = c->adopt();
    log_.info("found", {{"JOB", job.key.id.text()},
                        {"EPOCH", job.key.epoch.n},
                        {"capsule", found.capsule_alive ? "alive" : "gone"},
                        {"job", found.exited           ? "exited"
                                : found.job_alive      ? "alive"
                                : found.image_complete ? "frozen"
                                                       : "gone"}});
    step([&](Guest& g, guest::Outputs& out) { g.recovered(job, found, out); });
}

// What was made before its record was, or removed after it: nobody knows it. A whole image whose
// record cannot be read stays, as it may be all that there is of its job.
Status GuestHost::remove_strays(std::set<std::string> known) {
    for (const char* base : {"/guests", "/images", "/ram"}) {
        TRY_ASSIGN(const auto names, list_dir(AT_FDCWD, config_.state + base));
        for (std::string name : names) {
            if (name.ends_with(".part")) name.resize(name.size() - 5);
            if (known.contains(name) || name == DiskSecrets::directory_name) continue;
            const size_t dot = name.rfind('.');
            const auto id = dot == std::string::npos ? Result<JobId>(fail(""))
                                                     : parse_job_id(name.substr(0, dot));
            if (!id) {
                std::error_code ignored;
                std::filesystem::remove_all(config_.state + base + "/" + name, ignored);
                continue;
            }
            GuestJob stray;
            const auto epoch = leading_number<uint64_t>(std::string_view(name).substr(dot + 1));
            stray.key = {*id, Epoch{epoch.value_or(0)}};
            // what it may have is not known: it is looked for in every hierarchy of a limit
            stray.memory_mb = 1;
            auto& c = cells_[stray.key] = std::make_unique<Cell>(site_, stray);
            const Guest::Found found = c->adopt();
            known.insert(name);
            if (found.image_complete && !found.capsule_alive &&
                commits_.db().is_aside("guest", name)) {
                guest_.set_aside(stray.key);
                continue;
            }
            guest_.stray(stray.key);
            c->remove();
        }
    }
    return {};
}

// Groups of capsules that ended while nobody looked.
void GuestHost::remove_old_groups() {
    if (!share_) return;
    std::vector<std::string> in_use;
    for (const auto& [key, c] : cells_)
        if (c->has_capsule()) in_use.push_back(c->cgroup_name());
    if (auto removed = share_->capsules().remove_others(in_use, group_limit); !removed)
        log_.warning("cannot remove a control group", {{"WHY", removed.error()}});
}

}  // namespace souk
