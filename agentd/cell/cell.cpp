// SPDX-License-Identifier: GPL-2.0-or-later
// Cell, first part: the capsule, its job and its stdio. See cell.hpp; CRIU is in cell_criu.cpp.
#include "agentd/cell/cell.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "agentd/wire/types.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {
namespace {

constexpr Nanos exit_output_limit = Nanos::from_s(5);

LaunchSpec launch_spec(const JobSpec& s) {
    LaunchSpec l;
    l.path = s.path;
    l.argv = s.argv;
    l.env = s.env;
    l.cwd = s.cwd;
    l.umask = s.umask;
    l.uid = s.uid;
    l.gid = s.gid;
    l.groups = s.groups;
    for (const ResourceLimit& r : s.rlimits) l.rlimits.push_back({r.resource, r.soft, r.hard});
    l.tty = s.tty;
    l.rows = s.rows;
    l.cols = s.cols;
    return l;
}

}  // namespace

Cell::Cell(CellSite& site, GuestJob job) : site_(site), job_(std::move(job)), key_(job_.key) {
    dir_ = site_.guests + "/" + key_.text();
    to_disk_ = ::faccessat(site_.images.get(), key_.text().c_str(), F_OK, 0) == 0;
}

Cell::~Cell() = default;

Status Cell::make_cgroup() {
    if (!site_.cgroups || cgroup_) return {};
    const CgroupUse use{.cpu = limits_cpus(),
                        .memory = site_.limits.memory && job_.memory_mb > 0,
                        .pids = site_.limits.pids && site_.pids_max > 0};
    TRY_ASSIGN(Cgroup group, site_.cgroups->create(site_.cgroup_parent + "/" + key_.text(), use));
    TRY_ASSIGN(Cgroup job_group, site_.cgroups->create(group.name() + "/job"));
    cgroup_ = std::move(group);
    job_group_ = std::move(job_group);
    site_.cgroup_changed(cgroup_->name(), true);
    return {};
}

// Every v1 hierarchy that a process of the capsule must enter.
std::vector<int> Cell::v1_tasks() const {
    // A group of its own in that hierarchy lies below the node's share.
    std::vector<int> all = cgroup_ && cgroup_->has("cpu") ? std::vector<int>{} : site_.v1_tasks;
    if (!cgroup_) return all;
    const CgroupEntry entry = cgroup_->entry();
    std::copy_if(entry.v1_tasks.begin(), entry.v1_tasks.end(), std::back_inserter(all),
                 [](int fd) { return fd >= 0; });
    return all;
}

// -------------------------------------------------------------------------------------------------
// the capsule

void Cell::create_capsule() {
    const auto make = [&]() -> Status {
        TRY(check_network());
        if (::mkdir(dir_.c_str(), 0700) != 0 && errno != EEXIST)
            return fail_errno("create " + dir_, errno);
        TRY_ASSIGN(dir_fd_, open_at(AT_FDCWD, dir_, O_RDONLY | O_DIRECTORY));
        TRY(make_cgroup());
        CapsuleOptions options;
        options.init_path = site_.init_path;
        options.dir = dir_fd_.get();
        if (cgroup_) options.cgroup = cgroup_->entry().v2;
        options.cgroup_v1 = v1_tasks();
        options.own_net = job_.spec.net == NetMode::own;
        TRY_ASSIGN(Capsule capsule, Capsule::spawn(options));
        capsule_ = std::move(capsule);
        TRY(make_port());
        port_shut_ = port_ && job_.from_image;
        // Names the process for a restarted daemon. Not synced: after a crash of the machine there
        // is no such process.
        const ProcessId id = capsule_->id();
        return create_file(dir_fd_.get(), capsule_file,
                           std::to_string(id.pid) + " " + std::to_string(id.start_ticks) + "\n");
    };
    if (auto made = make(); !made) {
        if (capsule_) (void)capsule_->kill();
        return tell(guest::CapsuleFailed{made.error().message});
    }
    connect(capsule_->take_connection());
    tell(guest::CapsuleReady{});
}

void Cell::connect(Fd connection) {
    client_watch_.close();
    client_ = CapsuleClient(std::move(connection));
    welcomed_ = false;
    auto watch = site_.loop->watch(client_.fd(), POLLIN, [this](short) { client_readable(); });
    if (!watch) return lost_client(watch.error().message);
    client_watch_ = std::move(*watch);
    if (!exit_watch_) {
        auto exit = site_.loop->on_exit(capsule_->pidfd().get(), [this] { capsule_ended(); });
        if (exit) exit_watch_ = std::move(*exit);
    }
    acks_.asked();
    (void)client_.hello(acks_.safe_to(0), acks_.safe_to(1));
    tell_lease();
    update_watch();
}

void Cell::update_watch() {
    if (client_watch_)
        client_watch_.set_events(
            static_cast<short>(client_.wants_write() ? POLLIN | POLLOUT : POLLIN));
}

void Cell::client_readable() {
    if (client_.wants_write()) (void)client_.on_writable();
    auto events = client_.on_readable();
    if (!events) return lost_client(events.error().message);
    for (CapsuleClient::Event& e : *events) {
        if (!client_ || gone_) return;
        client_event(e);
    }
    maybe_exited();
    if (client_) update_watch();
}

// souk-init is gone (then its pidfd says so), or took another connection, or broke the protocol.
void Cell::lost_client(const std::string& why) {
    client_watch_.close();
    client_ = CapsuleClient();
    welcomed_ = false;
    if (gone_ || !capsule_) return;
    if (const auto over = capsule_->pidfd().exited_within(Nanos{}); over && *over) return;
    if (why == "closed" && capsule_ending_) return;
    site_.log->limited("cell", Loop::now(), Level::warning, "connection to a capsule lost",
                       {{"JOB", key_.id.text()}, {"EPOCH", key_.epoch.n}, {"WHY", why}});
    auto again = Capsule::connect(dir_fd_.get());
    if (again) connect(std::move(*again));
    // What was asked over the old connection gets no answer.
    if (plan_ == Plan::coming && !criu_ && again)
        plan_ = Plan::asked;  // again, with the welcome
    else if (plan_ == Plan::coming && !criu_)
        criu_failed("its capsule does not answer");
    else if (awaited_ && plan_ == Plan::restoring)
        criu_failed("the connection to its capsule broke");
    else if (awaited_ && plan_ == Plan::dumping) {
        dump_trouble_ = "the connection to its capsule broke";
        undo_dump();
    }
}

void Cell::welcomed(const CapsuleClient::Event& e) {
    welcomed_ = true;
    root_ = e.welcome.root_pid;
    terminal_ = e.welcome.tty ? tty_key(e.welcome.tty_rdev, e.welcome.tty_dev) : "";
    input_taken_ = e.welcome.input_taken;
    input_limit_ = e.welcome.input_limit;
    if (!filling_) site_.input_taken(key_, input_taken_);
    feed_input();
    // Of a daemon that ended when all memory had just come.
    if (!sink_ && has_job_ && job_.state != GuestState::filling) (void)client_.let_go();
    if (plan_ <= Plan::asked) {
        if (has_job_) (void)client_.helpers_leave();  // of a daemon that is gone
        // A daemon that ended between the drain and the freeze: CRIU has let the job go on.
        if (e.welcome.state == SOUK_DRAINED_STATE && !group_frozen_) (void)client_.undrain();
    }
    if (plan_ == Plan::asked) enter_capsule();
}

void Cell::leased(const CapsuleClient::Event& e) {
    if (e.value != 0) return stopped_by_init();
    if (lease_until_ != Nanos::never()) return;
    lease_until_ = Nanos{static_cast<int64_t>(e.offset)};
    watch_lease();
    tell(guest::LeaseFound{lease_until_});
}

void Cell::client_event(CapsuleClient::Event& e) {
    switch (e.kind) {
        case InitEventKind::welcome: return welcomed(e);
        case InitEventKind::started: {
            root_ = e.value;
            has_job_ = true;
            if (e.stream == 1) terminal_ = tty_key(e.offset, e.limit);
            tell(guest::JobStarted{});
            return look_soon();
        }
        case InitEventKind::exec_failed:
            return tell(guest::JobNotStarted{e.value, e.stream == 1, e.trouble()});
        case InitEventKind::output:
            if (e.stream >= 1 && e.stream <= 2)
                received_[e.stream - 1] =
                    std::max(received_[e.stream - 1], e.offset + e.bytes.size());
            // Not passed on (no home now, or its queue is full): it stays in souk-init until the
            // home asks again.
            if (filling_ || !site_.output(key_, e.stream, e.offset, e.bytes)) acks_.not_sent();
            return;
        case InitEventKind::output_eof:
            if (e.stream >= 1 && e.stream <= 2) {
                eof_[e.stream - 1] = true;
                output_end_[e.stream - 1] = e.offset;
            }
            return;
        case InitEventKind::input_taken:
            input_taken_ = e.offset;
            input_limit_ = e.limit;
            if (!filling_) site_.input_taken(key_, input_taken_);
            return feed_input();
        case InitEventKind::exited: exited_ = e.exit.wait_status; return wait_for_output();
        case InitEventKind::stopped: return tell(guest::Stopped{e.value != 0});
        case InitEventKind::leased: return leased(e);
        case InitEventKind::helpers_ready:
            // souk-init has found what cannot move
            if (e.value == EOPNOTSUPP) return criu_failed(e.bytes);
            if (e.value != 0)
                return criu_failed("make way for CRIU in its capsule: " + e.trouble());
            helpers_in_ = true;
            return begin_criu();
        case InitEventKind::prepared:
            if (e.value != 0) return criu_failed("stdio for the restore: " + e.trouble());
            job_ends_ = std::move(e.fds);  // helpers_ready follows
            return;
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

// The output of a job that has exited ends by itself, unless something outside of the capsule holds
// its pipe: then what has come is all. While the home takes none of it (it is away, or its disk is
// full) there may be more to come.
void Cell::wait_for_output() {
    exit_limit_ = site_.loop->after(
        exit_output_limit, [this, before = std::array{received_[0], received_[1]}] {
            for (int i = 0; i < 2; ++i)
                if (!eof_[i] && (received_[i] > acks_.safe_to(i) || received_[i] > before[i]))
                    return wait_for_output();
            for (int i = 0; i < 2; ++i) {
                output_end_[i] = std::max(output_end_[i], received_[i]);
                eof_[i] = true;
            }
            maybe_exited();
        });
}

// The end is told when the whole output has been: its lengths go with it. Before CRIU's word that
// it runs nobody knows whether it was the job's own (runs_without_criu).
void Cell::maybe_exited() {
    if (!exited_ || exit_told_ || filling_ || decided_ == Decided::to_run || !eof_[0] ||
        (!eof_[1] && !job_.spec.tty))
        return;
    exit_told_ = true;
    exit_limit_.cancel();
    tell(guest::Exited{*exited_, what_killed()});
}

void Cell::start_job() {
    set_limits();
    if (auto sent = client_.start(launch_spec(job_.spec), job_group_ ? job_group_->entry().v2 : -1);
        !sent)
        return tell(guest::JobNotStarted{0, false, sent.error().message});
    update_watch();
}

void Cell::signal(int number) {
    (void)client_.signal(number, SOUK_TO_FOREGROUND);
    update_watch();
}

void Cell::find_pid() {
    if (pid() != 0 || root_ == 0 || !job_group_) return;
    const auto pids = job_group_->pids();
    if (!pids) return;
    const auto inside = pids_inside(*pids);
    const auto root = inside.find(root_);
    pid_of_ = root_;
    pid_ = root == inside.end() ? 0 : root->second;
}

// -------------------------------------------------------------------------------------------------
// stdio

void Cell::ack(uint32_t stream, uint64_t offset, bool again) {
    const OutputAcks::Tell tell = acks_.ack(stream, offset, again);
    if (tell == OutputAcks::Tell::all_again) return resync();
    if (tell == OutputAcks::Tell::nothing || !client_) return;
    (void)client_.ack(stream, acks_.safe_to(static_cast<int>(stream) - 1));
    update_watch();
}

void Cell::resync() {
    acks_.asked();
    if (!client_) return;
    (void)client_.hello(acks_.safe_to(0), acks_.safe_to(1));
    update_watch();
}

void Cell::input(uint64_t offset, std::string_view bytes, bool eof) {
    const uint64_t have = std::max(input_at_ + input_.size(), input_taken_);
    // a gap: the home sends again from what was taken
    if (offset > have && !input_.empty()) return;
    // After a move the home may know sooner than we do what the capsule has taken: it came with the
    // image.
    if (input_.empty()) input_at_ = std::max(have, offset);
    const uint64_t known = input_at_ + input_.size() - offset;
    if (known < bytes.size() && input_.size() < wire::input_room_bytes)
        input_.append(bytes.substr(known));
    if (eof && offset + bytes.size() <= input_at_ + input_.size()) input_eof_ = true;
    feed_input();
}

void Cell::feed_input() {
    if (!client_ || !welcomed_) return;
    if (input_taken_ > input_at_) {
        input_.erase(0, std::min<uint64_t>(input_taken_ - input_at_, input_.size()));
        input_at_ = input_taken_;
    }
    while (!input_.empty() && input_at_ < input_limit_) {
        const size_t n =
            std::min<uint64_t>({input_.size(), input_limit_ - input_at_, SOUK_DATA_MAX});
        if (!client_.input(input_at_, std::string_view(input_).substr(0, n))) return;
        input_.erase(0, n);
        input_at_ += n;
    }
    if (input_.empty() && input_eof_ && !input_eof_sent_)
        input_eof_sent_ = client_.input_eof(input_at_).has_value();
    update_watch();
}

void Cell::winch(uint16_t rows, uint16_t cols) {
    if (client_) (void)client_.window_size(rows, cols);
    update_watch();
}

}  // namespace souk
