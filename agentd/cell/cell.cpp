// SPDX-License-Identifier: GPL-2.0-or-later
// Cell, first part: the capsule and its job. See cell.hpp; CRIU is in cell_criu.cpp.
#include "agentd/cell/cell.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "agentd/core/files_choice.hpp"
#include "agentd/core/gang_hosts.hpp"
#include "checkpoint/core_image.hpp"

namespace souk {
namespace {

// Of a job, between rounds of pre-copy. This daemon waits for it to stand: not for long where the
// job may wait for an answer about its files that comes by way of this daemon.
constexpr Nanos still_limit = Nanos::from_ms(500), still_limit_served = Nanos::from_ms(20);

// Its home took its word for them; what this node allows is its owner's. A limit that the home does
// not tell would be this daemon's. Root's own jobs may have all.
LaunchSpec allowed(const CellSite& site, LaunchSpec launch) {
    if (launch.uid == 0) return launch;
    for (const auto& [resource, most] : site.limits_max) {
        bool told = false;
        for (ResourceLimit& r : launch.rlimits) {
            if (r.resource != resource) continue;
            const rlimit may = bounded(resource, {r.soft, r.hard}, most);
            r = {resource, may.rlim_cur, may.rlim_max};
            told = true;
        }
        if (told) continue;
        rlimit own{};
        ::getrlimit(static_cast<__rlimit_resource>(resource), &own);
        const rlimit may = bounded(resource, own, most);
        launch.rlimits.push_back({resource, may.rlim_cur, may.rlim_max});
    }
    return launch;
}

}  // namespace

Cell::Cell(CellSite& site, GuestJob job)
    : site_(site),
      job_(std::move(job)),
      key_(job_.key),
      log_(*site.log, key_.id, key_.epoch),
      dir_(site.guests + "/" + key_.text()),
      link_(*site.loop, {.event = [this](CapsuleClient::Event& e) { client_event(e); },
                         .read = [this] { stdio_.look_for_end(); },
                         .lost = [this](const std::string& why) { lost_client(why); }}),
      stdio_(*site.loop, link_, job_.spec.launch.tty, stdio_hooks()),
      lease_(*site.loop, log_, group_, dir_fd_,
             {.tell_init = [this](Nanos until) { tell_lease(until); },
              .lapsed = [this] { tell(guest::Lapsed{}); }}),
      network_(*site.loop, log_, site.network,
               {key_.text(), job_.spec.net == NetMode::own && !site.trial, job_.spec.address,
                job_.spec.checkpoint_every.ns > 0 || job_.spec.restart},
               site.reach),
      image_(*site.loop, {site.images.get(), site.ram.get(), site.refused.get(), site.reach.settle},
             key_),
      intake_(*site.loop, site.pages_possible, intake_hooks()),
      rounds_(log_, site.check_precopy, rounds_hooks()),
      criu_(*site.loop, [this](const CriuEvent& e) { criu_event(e); }),
      steps_(*site.loop, steps_hooks()),
      trial_(site),
      inspection_(*site.loop) {
    released_ = job_.spec.hold && job_.state == GuestState::running;  // by a daemon that is gone
}

Cell::~Cell() = default;

JobStdio::Hooks Cell::stdio_hooks() {
    return {
        .output = [this](uint32_t stream, uint64_t at,
                         std::string_view b) { return site_.output(key_, stream, at, b); },
        .input_taken = [this](uint64_t offset) { site_.input_taken(key_, offset); },
        // Before CRIU's word that it runs nobody knows whether an exit is the job's own
        // (runs_without_criu).
        .end_counts = [this] { return decided_ != Decided::to_run; },
        .ended =
            [this](int32_t status) {
                tell(guest::Exited{status, what_killed()});
            },
    };
}

PageIntake::Hooks Cell::intake_hooks() {
    return {
        .place = listen_for_faults,
        .keep = [this](int uffd) { return link_.tell(&CapsuleClient::keep, uffd); },
        .let_go = [this] { (void)link_.tell(&CapsuleClient::let_go); },
        .want =
            [this](bool any, uint64_t put, const std::vector<PageRange>& wishes) {
                site_.want_pages(key_, any, put, wishes);
            },
        .may_run = [this] { tell(guest::RestoreHeld{}); },
        .whole = [this] { memory_is_whole(); },
        .failed =
            [this](const Error& why) {
                site_.pages_refused(key_, why.message);
                tell(guest::PagesLost{why, local_image_refused(why)});
            },
    };
}

PrecopyRounds::Hooks Cell::rounds_hooks() {
    return {.pause = [this] { return lease_.pause(served_ ? still_limit_served : still_limit); },
            .resume = [this] { return lease_.resume(); },
            .pids = [this] { return pids(); },
            .dropped = [this] { site_.precopy_dropped(key_); },
            .open = opener(),
            .look = looker_at_dump()};
}

FrozenSteps::Hooks Cell::steps_hooks() {
    return {
        .pids = [this] { return pids(); },
        .shared = [this] { pages_are_shared(); },
        .flushed =
            [this] {
                if (dump_.for_checkpoint()) return files_are_flushed();
                if (image_.on_disk()) return write_image();
                dump_is_complete(dump_.live(), image_.bytes());
            },
        .written = [this](const ImageFile& pages) { finish_image(&pages); },
        .failed = [this](const Trouble& why) { fail_dump(why); },
        .syncer = [this] { return site_.syncer(capsule_->pidfd()); },
        .home =
            [this](const std::function<void(const Result<AtHome>&)>& done) {
                return site_.files_home(key_, done);
            },
        .open = opener(),
    };
}

Result<std::vector<pid_t>> Cell::pids() const {
    if (!job_group_) return fail("no control group");
    return job_group_->pids();
}

CgroupUse Cell::cgroup_use() const {
    return {.cpu = limits_cpus(),
            .memory = site_.limits.memory && job_.memory_mb > 0,
            .pids = site_.limits.pids && site_.pids_max > 0,
            .io = site_.limits.io && site_.disk_mb_per_s > 0};
}

Status Cell::take_groups() {
    if (!site_.groups || cgroup_) return {};
    // CRIU is not limited while it restores there: groups that were used may be.
    const int64_t memory = job_.from_image       ? 0
                           : job_.memory_mb == 0 ? INT64_MAX
                                                 : job_.memory_mb << 20;
    TRY_ASSIGN(CapsuleGroup groups, site_.groups->take(cgroup_use(), memory));
    use_groups(std::move(groups));
    return {};
}

void Cell::use_groups(CapsuleGroup groups) {
    cgroup_ = std::move(groups.capsule);
    job_group_ = std::move(groups.job);
    cgroup_name_ = cgroup_->name();
    cgroup_used_ = groups.used;
    site_.cgroup_changed(*cgroup_, cgroup_used_, true);
}

std::string Cell::group_directory() const {
    if (!cgroup_ || cgroup_->entry().v2 < 0) return "";
    std::error_code none;
    const auto link = "/proc/self/fd/" + std::to_string(cgroup_->entry().v2);
    return std::filesystem::read_symlink(link, none).string();
}

// Every v1 hierarchy that a process of the capsule must enter.
std::vector<int> Cell::v1_tasks() const {
    // A group of its own in that hierarchy lies below the node's share.
    std::vector<int> all = site_.v1_io_tasks;
    if (!cgroup_ || !cgroup_->has("cpu"))
        all.insert(all.end(), site_.v1_tasks.begin(), site_.v1_tasks.end());
    if (!cgroup_) return all;
    const CgroupEntry entry = cgroup_->entry();
    std::copy_if(entry.v1_tasks.begin(), entry.v1_tasks.end(), std::back_inserter(all),
                 [](int fd) { return fd >= 0; });
    return all;
}

// -------------------------------------------------------------------------------------------------
// the capsule

// The names of its siblings behind those of this node. False: it has none.
Result<bool> Cell::write_hosts() const {
    const std::string names = hosts_of_gang(job_.spec);
    if (names.empty()) return false;
    std::string text = read_file(AT_FDCWD, "/etc/hosts").value_or("");
    if (!text.empty() && !text.ends_with('\n')) text += '\n';
    TRY(create_file(dir_fd_.get(), "hosts", text + names));
    return true;
}

void Cell::create_capsule() {
    if (!job_.from_image) image_.has_none();
    const auto make = [&]() -> Status {
        TRY(network_.check());
        if (::mkdir(dir_.c_str(), 0700) != 0 && errno != EEXIST)
            return fail_errno("create " + dir_, errno);
        TRY_ASSIGN(dir_fd_, open_at(AT_FDCWD, dir_, O_RDONLY | O_DIRECTORY));
        TRY(take_groups());
        CapsuleOptions options;
        options.init_path = site_.init_path;
        options.dir = dir_fd_.get();
        if (cgroup_) options.cgroup = cgroup_->entry().v2;
        options.cgroup_v1 = v1_tasks();
        options.own_net = job_.spec.net == NetMode::own || site_.trial;
        options.private_tmp = site_.private_tmp || job_.spec.tmp == FilesTmp::own;
        options.laid_over = laid_over(job_.spec);
        options.run_keep = site_.run_keep;
        TRY_ASSIGN(options.hosts, write_hosts());
        if (key_.id.home != site_.node || site_.trial) options.hidden = site_.hidden;
        std::pair<Fd, Fd> files;
        TRY_ASSIGN(served_, needs_server());
        options.home_tree = job_.spec.files == FilesMode::home && !served_;
        if (served_) {
            TRY_ASSIGN(files, site_.files_made());
            options.fuse = files.first.get();
            options.slots = files.second.get();
            options.check_access = job_.spec.launch.uid == 0;
        }
        const LaunchSpec& launch = job_.spec.launch;
        options.user = {true, launch.uid, launch.gid, launch.groups};
        TRY_ASSIGN(Capsule capsule, site_.make_capsule(key_, options));
        capsule.reached_by(site_.reach.inside, site_.reach.end);
        capsule_ = std::move(capsule);
        begin_files();
        TRY(network_.make(*capsule_, job_.from_image));
        // Names the process for a restarted daemon. Not synced: after a crash of the machine there
        // is no such process.
        const ProcessId id = capsule_->id();
        std::string text = std::to_string(id.pid) + " " + std::to_string(id.start_ticks) + " " +
                           (cgroup_name_.empty() ? "-" : cgroup_name_) + " " +
                           std::to_string(cgroup_used_.ns);
        if (job_.spec.files == FilesMode::home) text += served_ ? " served" : " own";
        return create_file(dir_fd_.get(), capsule_file, text + "\n");
    };
    if (auto made = make(); !made) {
        if (capsule_) capsule_->kill();
        return tell(guest::CapsuleFailed{made.error()});
    }
    connect(capsule_->take_connection());
    tell(guest::CapsuleReady{});
}

void Cell::connect(Fd connection) {
    if (auto opened = link_.open(std::move(connection)); !opened) {
        link_.close();
        return lost_client(opened.error().message);
    }
    if (!exit_watch_) {
        auto exit = site_.loop->on_exit(capsule_->pidfd().get(), [this] { capsule_ended(); });
        if (exit) exit_watch_ = std::move(*exit);
    }
    stdio_.resync();
    lease_.connected();
}

// souk-init is gone (then its pidfd says so), or took another connection, or broke the protocol.
void Cell::lost_client(const std::string& why) {
    if (life_ == Life::gone || !capsule_) return;
    if (const auto over = capsule_->pidfd().exited_within(Nanos{}); over && *over) return;
    if (why == "closed" && life_ != Life::lives) return;
    log_.limited("cell", "connection to a capsule lost", Error{0, why});
    auto again = site_.reach.connect(capsule_->pidfd(), dir_fd_.get());
    if (again) connect(std::move(*again));
    // What was asked over the old connection gets no answer.
    const bool coming = plan_ == Plan::coming && !criu_;
    if (coming && again)
        plan_ = Plan::asked;  // again, with the welcome
    else if (coming || plan_ == Plan::loading)
        criu_failed(because(CauseCode::capsule_silent));
    else if (plan_ == Plan::draining)
        fail_dump(because(CauseCode::capsule_silent));
}

void Cell::welcomed(const CapsuleClient::Event& e) {
    root_.is(e.welcome.root_pid);
    root_.set_terminal(e.welcome.tty ? tty_key(e.welcome.tty_rdev, e.welcome.tty_dev) : "");
    stdio_.welcomed(e.welcome.input_taken, e.welcome.input_limit);
    // Of a daemon that ended when all memory had just come.
    if (!intake_.listening() && has_job_ && job_.state != GuestState::filling)
        (void)link_.tell(&CapsuleClient::let_go);
    if (plan_ <= Plan::asked) {
        // of a daemon that is gone
        if (has_job_) (void)link_.tell(&CapsuleClient::helpers_leave);
        // A daemon that ended between the drain and the freeze: CRIU has let the job go on.
        if (e.welcome.state == SOUK_DRAINED_STATE && !lease_.stopped())
            (void)link_.tell(&CapsuleClient::undrain);
    }
    if (plan_ == Plan::asked) enter_capsule();
}

void Cell::tell_lease(Nanos until) {
    network_.until(until);
    if (!link_ || !job_group_) return;
    const auto freezer = job_group_->open_freezer();
    const Status told = freezer ? link_.tell(&CapsuleClient::lease, static_cast<uint64_t>(until.ns),
                                             freezer->get(), job_group_->freezer_word())
                                : Status(tl::unexpected(freezer.error()));
    if (!told) log_.warning("PID 1 of a capsule does not know its lease", told.error());
}

void Cell::leased(const CapsuleClient::Event& e) {
    if (e.value != 0) return lease_.stopped_by_init();
    const Nanos until{static_cast<int64_t>(e.offset)};
    if (!lease_.found(until)) return;
    network_.until(until);
    tell(guest::LeaseFound{until});
}

void Cell::helpers_ready(const CapsuleClient::Event& e) {
    // souk-init has found what cannot move
    if (e.value == EOPNOTSUPP) return criu_failed(e.bytes);
    if (e.value != 0) return criu_failed("make way for CRIU in its capsule: " + e.trouble());
    helpers_in_ = true;
    begin_criu();
}

void Cell::client_event(CapsuleClient::Event& e) {
    switch (e.kind) {
        case InitEventKind::welcome: return welcomed(e);
        case InitEventKind::started: {
            root_.is(e.value);
            has_job_ = true;
            if (e.stream == 1) root_.set_terminal(tty_key(e.offset, e.limit));
            tell(guest::JobStarted{});
            return look_soon();
        }
        case InitEventKind::held: {
            root_.is(e.value);
            if (released_) return release_job();  // it was lost on the way
            return tell(guest::JobHeld{});
        }
        case InitEventKind::exec_failed:
            return tell(guest::JobNotStarted{e.value, e.stream == 1, e.trouble()});
        case InitEventKind::output: return stdio_.output(e.stream, e.offset, e.bytes);
        case InitEventKind::output_eof: return stdio_.output_eof(e.stream, e.offset);
        case InitEventKind::input_taken: return stdio_.input_taken(e.offset, e.limit);
        case InitEventKind::exited: return stdio_.exited(e.exit.wait_status);
        case InitEventKind::stopped: return tell(guest::Stopped{e.value != 0});
        case InitEventKind::leased: return leased(e);
        case InitEventKind::helpers_ready: return helpers_ready(e);
        case InitEventKind::prepared:
            if (e.value != 0) return criu_failed("stdio for the restore: " + e.trouble());
            return restore_.prepared(std::move(e.fds));  // helpers_ready follows
        case InitEventKind::drained: return drained(e);
        case InitEventKind::loaded: return loaded(e);
        case InitEventKind::failed: {
            // souk-init ends by itself; its exit follows.
            if (!has_job_) tell(guest::CapsuleFailed{"its capsule: " + e.trouble()});
            return;
        }
        case InitEventKind::closed: return lost_client("closed");
    }
}

// A component, up to its program.
void Cell::hold_job() { start_job(true); }

void Cell::release_job() {
    released_ = true;
    (void)link_.tell(&CapsuleClient::release);
}

void Cell::start_job(bool hold) {
    if (set_limits()) site_.groups->job_begins(cgroup_name_);
    const bool filtered = job_.spec.launch.uid != 0 || site_.filter_root;
    if (auto sent = link_.tell(&CapsuleClient::start, allowed(site_, job_.spec.launch),
                               job_group_ ? job_group_->entry().v2 : -1,
                               filtered ? site_.filter.get() : -1, hold);
        !sent)
        tell(guest::JobNotStarted{0, false, sent.error()});
}

void Cell::signal(int number, bool to_all) {
    (void)link_.tell(&CapsuleClient::signal, number, to_all ? SOUK_TO_ALL : SOUK_TO_FOREGROUND);
}

void Cell::winch(uint16_t rows, uint16_t cols) {
    (void)link_.tell(&CapsuleClient::window_size, rows, cols);
}

}  // namespace souk
