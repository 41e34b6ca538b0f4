// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/criu.hpp"

#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "checkpoint/rpc.pb-c.h"
#include "kernel/base/check.hpp"
#include "kernel/base/text.hpp"

namespace souk {
namespace {
// inside CRIU
constexpr int images_fd = criu_fds::images, first_end_fd = criu_fds::first_end;
constexpr size_t record_max = 64 * 1024;
// Even a lazy dump that was refused would serve its pages before it lets the job go on, to whoever
// connects over TCP (CRIU criu/cr-dump.c, cr_dump_finish); told to serve a socket whose other end
// is closed, it is done at once. Only a file can tell it so (criu_lazy_config).

template <class T>
void set(protobuf_c_boolean& has, T& field, T value) {
    has = 1;
    field = value;
}

Status send_request(int socket, const CriuReq& request) {
    std::string packed(criu_req__get_packed_size(&request), '\0');
    criu_req__pack(&request, reinterpret_cast<uint8_t*>(packed.data()));
    if (::send(socket, packed.data(), packed.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
        // CRIU has been killed, or its capsule with it. We learn of its end only later.
        return errno == EPIPE || errno == ECONNRESET ? fail_because(CauseCode::criu_ended)
                                                     : fail_errno("ask CRIU", errno);
    return {};
}

// Sets the options that a dump and a restore share. The strings must outlive the packing.
void common_options(CriuOpts& o, const CriuTool& tool, char* images, char* log, TcpPolicy tcp) {
    o.images_dir_fd = -1;
    o.images_dir = images;
    o.log_file = log;
    set<int32_t>(o.has_log_level, o.log_level, 2);  // errors and warnings
    set<protobuf_c_boolean>(o.has_notify_scripts, o.notify_scripts, 1);
    set<protobuf_c_boolean>(o.has_file_locks, o.file_locks, 1);
    set<protobuf_c_boolean>(o.has_link_remap, o.link_remap, 1);
    set<uint32_t>(o.has_ghost_limit, o.ghost_limit, tool.deleted_bytes_max);
    set(o.has_manage_cgroups_mode, o.manage_cgroups_mode, CRIU_CG_MODE__IGNORE);
    set(o.has_network_lock, o.network_lock, CRIU_NETWORK_LOCK_METHOD__SKIP);
    set<protobuf_c_boolean>(o.has_tcp_skip_in_flight, o.tcp_skip_in_flight, 1);
    if (tcp == TcpPolicy::keep)
        set<protobuf_c_boolean>(o.has_tcp_established, o.tcp_established, 1);
    if (tcp == TcpPolicy::close) set<protobuf_c_boolean>(o.has_tcp_close, o.tcp_close, 1);
}
}  // namespace

Result<CriuSession> CriuSession::start(CriuTool& tool, const CriuStart& how) {
    MUST(how.job_ends.size() <= criu_ends_max);
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return fail_errno("socketpair", errno);
    CriuSession s;
    s.tool_ = &tool;
    s.socket_ = Fd(pair[0]);
    const Fd theirs(pair[1]);
    const bool restores = !how.job_ends.empty();
    Fd ended;  // for a dump, which may become a lazy one
    if (!restores) {
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
            return fail_errno("socketpair", errno);
        ended = Fd(pair[0]);
        ::close(pair[1]);
    }
    TRY_ASSIGN(s.images_, duplicate(how.images));
    TRY_ASSIGN(Fd init, duplicate(how.capsule->pidfd().get()));
    s.init_ = Pidfd(std::move(init), how.capsule->pidfd().pid());
    CriuLaunch launch;
    launch.capsule = how.capsule->pidfd().get();
    launch.socket = theirs.get();
    launch.images = how.images;
    launch.ended = ended.get();
    launch.cgroup = how.cgroup;
    launch.cgroup_v1 = how.cgroup_v1;
    launch.job_ends = how.job_ends;
    launch.user = how.user;
    if (!tool.launch) TRY(lay_out_run(s.init_, restores, tool.kernel_facts));
    TRY_ASSIGN(s.pidfd_, tool.launch ? tool.launch(launch)
                                     : launch_criu(tool.command, tool.preload.get(), launch));
    // CRIU's own end is watched too: if it is killed, what it was about to restore may hold its
    // socket open for ever.
    s.epoll_ = Fd(::epoll_create1(EPOLL_CLOEXEC));
    if (!s.epoll_) return fail_errno("epoll", errno);
    for (const int fd : {s.socket_.get(), s.pidfd_.get()}) {
        epoll_event e{};
        e.events = EPOLLIN;
        if (::epoll_ctl(s.epoll_.get(), EPOLL_CTL_ADD, fd, &e) != 0)
            return fail_errno("epoll", errno);
    }
    s.ends_ = how.job_ends.size();
    s.needs_preload_ = restores && how.user.uid != 0;
    s.phase_ = CriuPhase::starting;
    TRY(s.ask(CRIU_REQ_TYPE__VERSION, true));
    return s;
}

Status CriuSession::ask(int type, bool keep_open) {
    CriuReq request = CRIU_REQ__INIT;
    CriuFeatures features = CRIU_FEATURES__INIT;
    request.type = static_cast<CriuReqType>(type);
    request.has_keep_open = request.keep_open = keep_open;
    request.features = &features;
    return send_request(socket_.get(), request);
}

Status CriuSession::learn() {
    if (tool_->learn) return tool_->learn(init_);
    TRY_ASSIGN(tool_->kernel_facts, read_criu_facts(init_));
    return {};
}

Status CriuSession::dump(const DumpOptions& options) {
    MUST(phase_ == CriuPhase::ready);
    log_name_ = "dump.log";
    std::string images = "/proc/self/fd/" + std::to_string(images_fd), terminal = options.terminal;
    char* external[] = {terminal.data()};
    CriuOpts o = CRIU_OPTS__INIT;
    common_options(o, *tool_, images.data(), log_name_.data(), options.tcp);
    set<int32_t>(o.has_pid, o.pid, options.root);
    std::string config = criu_lazy_config;
    if (options.lazy) {
        set<protobuf_c_boolean>(o.has_lazy_pages, o.lazy_pages, 1);
        o.config_file = config.data();
    }
    if (!terminal.empty()) {
        o.n_external = 1;
        o.external = external;
    }
    CriuReq request = CRIU_REQ__INIT;
    request.type = CRIU_REQ_TYPE__DUMP;
    request.opts = &o;
    phase_ = CriuPhase::dumping;
    stopped_ = options.stopped;
    return send_request(socket_.get(), request);
}

Status CriuSession::restore(const RestoreOptions& options) {
    MUST(phase_ == CriuPhase::ready && options.keys.size() == ends_);
    // The dynamic loader leaves out a library that it cannot load, without a word. CRIU would then
    // use the job's paths with the rights of root, so we refuse.
    if (needs_preload_ && !tool_->loaded(pidfd_))
        return fail("CRIU runs without what lets it act as the job's user (criu_preload.so)");
    log_name_ = "restore.log";
    std::string images = "/proc/self/fd/" + std::to_string(images_fd);
    std::vector<std::string> keys = options.keys;
    std::vector<InheritFd> inherit(keys.size());
    std::vector<InheritFd*> pointers;
    for (size_t i = 0; i < keys.size(); ++i) {
        inherit[i] = INHERIT_FD__INIT;
        inherit[i].key = keys[i].data();
        inherit[i].fd = first_end_fd + static_cast<int>(i);
        pointers.push_back(&inherit[i]);
    }
    CriuOpts o = CRIU_OPTS__INIT;
    common_options(o, *tool_, images.data(), log_name_.data(), options.tcp);
    if (options.lazy) set<protobuf_c_boolean>(o.has_lazy_pages, o.lazy_pages, 1);
    std::string config = criu_served_config;
    if (options.files_are_served) o.config_file = config.data();
    o.n_inherit_fd = pointers.size();
    o.inherit_fd = pointers.data();
    CriuReq request = CRIU_REQ__INIT;
    request.type = CRIU_REQ_TYPE__RESTORE;
    request.opts = &o;
    phase_ = CriuPhase::restoring;
    made_ = options.made;
    return send_request(socket_.get(), request);
}

Status CriuSession::answer_notify(bool ok) {
    CriuReq request = CRIU_REQ__INIT;
    request.type = CRIU_REQ_TYPE__NOTIFY;
    request.has_notify_success = 1;
    request.notify_success = ok;
    return send_request(socket_.get(), request);
}

Status CriuSession::answer(bool go_on) {
    MUST(phase_ == CriuPhase::dump_held || phase_ == CriuPhase::restore_held);
    refusing_ = !go_on;
    phase_ = phase_ == CriuPhase::dump_held ? CriuPhase::dump_ending : CriuPhase::restore_ending;
    return answer_notify(go_on);
}

std::vector<CriuEvent> CriuSession::on_readable() {
    std::vector<CriuEvent> events;
    std::string record(record_max, '\0');
    // asked first: then its last words lie in the socket
    const auto exited = pidfd_.exited_within(Nanos{});
    while (socket_) {
        const ssize_t n = ::recv(socket_.get(), record.data(), record.size(), MSG_DONTWAIT);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n > 0)
            on_record(record.data(), static_cast<size_t>(n), events);
        else
            end(CriuEventKind::lost, why_failed(CauseCode::criu_ended, ""), events);
    }
    if (socket_ && exited && *exited)
        end(CriuEventKind::lost, why_failed(CauseCode::criu_ended, ""), events);
    return events;
}

void CriuSession::end(CriuEventKind kind, Trouble message, std::vector<CriuEvent>& events) {
    phase_ = CriuPhase::over;
    events.push_back({kind, std::move(message), root_});
    epoll_.reset();
    socket_.reset();  // CRIU exits, and what it restored becomes a child of souk-init
}

void CriuSession::on_record(const char* data, size_t n, std::vector<CriuEvent>& events) {
    CriuResp* r = criu_resp__unpack(nullptr, n, reinterpret_cast<const uint8_t*>(data));
    if (!r) return end(CriuEventKind::lost, because(CauseCode::criu_ended), events);
    const std::string first_error = r->cr_errmsg ? r->cr_errmsg : "";
    const bool success = r->success;
    if (r->type == CRIU_REQ_TYPE__NOTIFY && r->notify) {
        on_notify(r->notify->script ? r->notify->script : "",
                  r->notify->has_pid ? r->notify->pid : 0, events);
    } else if (r->type == CRIU_REQ_TYPE__VERSION && r->version && phase_ == CriuPhase::starting) {
        version_ = std::to_string(r->version->major_number) + "." +
                   std::to_string(r->version->minor_number);
        if (r->version->has_sublevel) version_ += "." + std::to_string(r->version->sublevel);
        // Any question about features makes CRIU probe the kernel and write down what it finds:
        // asked once in a daemon's life.
        if (tool_->knows_kernel) {
            phase_ = CriuPhase::ready;
            events.push_back({CriuEventKind::ready, version_, 0});
        } else if (const Status s = ask(CRIU_REQ_TYPE__FEATURE_CHECK, true); !s) {
            end(CriuEventKind::lost, s.error(), events);
        }
    } else if (r->type == CRIU_REQ_TYPE__FEATURE_CHECK && phase_ == CriuPhase::starting) {
        phase_ = CriuPhase::ready;
        if (!tool_->knows_kernel) tool_->knows_kernel = learn().has_value();
        events.push_back({CriuEventKind::ready, version_, 0});
    } else {
        on_final(success, first_error, r->restore ? r->restore->pid : 0, events);
    }
    criu_resp__free_unpacked(r, nullptr);
}

void CriuSession::on_notify(const std::string& script, pid_t pid, std::vector<CriuEvent>& events) {
    if (pid > 0) root_ = pid;
    if (script == "post-dump" && phase_ == CriuPhase::dumping) {
        phase_ = CriuPhase::dump_held;
        events.push_back({CriuEventKind::dump_held, {}, 0});
        return;
    }
    if (script == "post-restore" && phase_ == CriuPhase::restoring) {
        phase_ = CriuPhase::restore_held;
        events.push_back({CriuEventKind::restore_held, {}, root_});
        return;
    }
    // CRIU goes on whatever it is answered here (criu/cr-restore.c, restore_root_task).
    if (script == "pre-resume" && made_)
        if (const Status fit = made_(); !fit)
            return end(CriuEventKind::failed,
                       because(CauseCode::image_refused, {{"text", fit.error().message}}), events);
    if (script == "post-resume" && phase_ == CriuPhase::restore_ending && !refusing_)
        events.push_back({CriuEventKind::resumed, {}, root_});
    if (script == "pre-dump") events.push_back({CriuEventKind::pre_dump, {}, 0});
    // Asked for what is to be left to others, between the stop and the first look (CRIU
    // criu/cr-dump.c).
    const bool fit = script != "query-ext-files" || !stopped_ || stopped_().has_value();
    if (const Status s = answer_notify(fit); !s) {
        const bool ended = s.error().cause == CauseCode::criu_ended;
        return end(CriuEventKind::lost,
                   ended ? why_failed(CauseCode::criu_ended, "") : Trouble(s.error()), events);
    }
    if (fit && script == "query-ext-files") events.push_back({CriuEventKind::stopped, {}, 0});
}

void CriuSession::on_final(bool success, const std::string& first_error, pid_t root,
                           std::vector<CriuEvent>& events) {
    if (success && root > 0) root_ = root;
    if (success && phase_ == CriuPhase::dump_ending && !refusing_)
        return end(CriuEventKind::dumped, {}, events);
    if (success && phase_ == CriuPhase::restore_ending && !refusing_)
        return end(CriuEventKind::restored, {}, events);
    if (!success && refusing_) return end(CriuEventKind::refused, {}, events);
    const bool restores = phase_ == CriuPhase::restoring || phase_ == CriuPhase::restore_ending;
    end(CriuEventKind::failed,
        why_failed(restores ? CauseCode::criu_cannot_restore : CauseCode::criu_cannot_dump,
                   first_error),
        events);
}

// Makes a cause from what CRIU itself has said, and quotes CRIU in it.
Trouble CriuSession::why_failed(CauseCode otherwise, const std::string& first_error) const {
    std::string lines;
    if (tool_->give) (void)tool_->give(images_.get());
    std::string refusal;
    if (const auto log = read_file(images_.get(), log_name_)) {
        lines = criu_error_lines(*log);
        refusal = blank_controls(criu_refusal(*log));
    }
    if (lines.empty()) lines = criu_error_lines(first_error.empty() ? "" : "Error " + first_error);
    CauseCode code = otherwise;
    if (const CauseCode known = criu_cause(lines);
        otherwise == CauseCode::criu_cannot_dump && known != CauseCode::none)
        code = known;
    struct statvfs fs;
    if (::fstatvfs(images_.get(), &fs) == 0 &&
        (fs.f_bavail == 0 || (fs.f_files > 0 && fs.f_favail == 0)))
        code = CauseCode::image_disk_full;
    if (!refusal.empty())
        return {otherwise == CauseCode::criu_cannot_restore
                    ? because(CauseCode::restore_failed, {{"text", refusal}})
                    : because(CauseCode::dump_refused, {{"text", "cannot move: " + refusal}}),
                std::move(lines)};
    if (code == CauseCode::criu_cannot_restore) {
        if (std::string file = criu_unopened_file(lines); !file.empty())
            return {because(CauseCode::file_not_opened, {{"text", std::move(file)}}),
                    std::move(lines)};
        if (std::string file = criu_other_file(lines); !file.empty())
            return {because(CauseCode::file_changed, {{"text", std::move(file)}}),
                    std::move(lines)};
    }
    return {because(code), std::move(lines)};
}

}  // namespace souk
