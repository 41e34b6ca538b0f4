// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/home_files.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <set>

#include "kernel/sys/net/round_trip.hpp"

namespace souk {
namespace {

constexpr Nanos home_connect_limit = Nanos::from_s(3);
constexpr Nanos told_every = Nanos::from_s(5), away_after = Nanos::from_s(2);
constexpr Nanos home_pause_min = Nanos::from_ms(20), home_pause_max = Nanos::from_s(5);
// A way that has stood so long was not made in vain: its node may be tried at once.
constexpr Nanos stood_after = Nanos::from_s(2);

// A capsule may be there.
bool has_capsule(JobPhase phase) {
    return phase != JobPhase::waiting && phase != JobPhase::finished;
}

Result<Fd> unix_socket(const std::string& path, sockaddr_un& address, int flags = 0) {
    Fd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
    if (!fd) return fail_errno("socket", errno);
    address.sun_family = AF_UNIX;
    if (path.size() >= sizeof address.sun_path) return fail(path + " is too long for a socket");
    path.copy(address.sun_path, path.size());
    return fd;
}

}  // namespace

void HomeFiles::job(const HomeJob& record) {
    if (record.phase == JobPhase::finished) return forget(record.id);
    const auto [it, is_new] = jobs_.try_emplace(record.id);
    Job& job = it->second;
    if (is_new) job.use = record.files_use;
    if (job.epoch != record.epoch) waits({record.id, job.epoch}, {});
    job.epoch = record.epoch;
    job.uid = record.spec.launch.uid;
    job.gid = record.spec.launch.gid;
    job.groups = record.spec.launch.groups;
    std::set<Epoch> wanted;
    if (has_capsule(record.phase) && !record.at.node.empty()) {
        want(job, {record.id, record.epoch}, record.at);
        wanted.insert(record.epoch);
    }
    if (record.step != MoveStep::none && !record.to.node.empty()) {
        want(job, {record.id, record.to_epoch}, record.to);
        wanted.insert(record.to_epoch);
    }
    std::erase_if(job.links, [&](const auto& link) {
        if (wanted.contains(link.first)) return false;
        job.left.push_back(link.first);
        return true;
    });
    // The files that the job had open are open by now at the node where it went.
    if (record.step == MoveStep::none && !wanted.empty()) leave(record.id, job);
    if (job.links.empty())
        job.meter.end();
    else if (!job.measure.waiting())
        measure(record.id);
}

// Its server ends when the name of its socket is gone.
void HomeFiles::forget(const JobId& id) {
    if (jobs_.erase(id) > 0) ::unlink(path_of(id).c_str());
}

void HomeFiles::recovered(const std::map<uint64_t, HomeJob>& jobs) {
    for (const auto& [seq, record] : jobs)
        if (record.spec.files == FilesMode::home) job(record);
    const auto names = list_dir(AT_FDCWD, directory_);
    if (!names) return;
    for (const std::string& name : *names) {
        const auto of = [&](const auto& one) { return std::to_string(one.first.seq) == name; };
        if (std::ranges::none_of(jobs_, of)) ::unlink((directory_ + "/" + name).c_str());
    }
}

HomeFiles::Link* HomeFiles::find(const Key& key) {
    const auto job = jobs_.find(key.first);
    if (job == jobs_.end()) return nullptr;
    const auto link = job->second.links.find(key.second);
    return link == job->second.links.end() ? nullptr : &link->second;
}

void HomeFiles::want(Job& job, const Key& key, const Peer& peer) {
    if (peer.node == own_.node) return;  // its capsule has this node's tree itself
    const auto [it, is_new] = job.links.try_emplace(key.second);
    if (!is_new) return;
    it->second.peer = peer;
    connect(key);
}

void HomeFiles::connect(const Key& key) {
    Link* const link = find(key);
    if (!link) return;
    auto connecting =
        own_.ways->connect(link->peer, home_connect_limit,
                           [this, key](Result<Fd> socket) { connected(key, std::move(socket)); });
    if (!connecting) return lost(key, connecting.error().message);
    link->connecting = std::move(*connecting);
}

void HomeFiles::connected(const Key& key, Result<Fd> socket) {
    Link* const link = find(key);
    if (!link) return;
    link->by_gateway = link->connecting.is_by_gateway();
    link->connecting.close();
    if (!socket) return lost(key, socket.error().message);
    (void)set_no_delay(socket->get());
    wire::ChannelHandlers handlers;
    handlers.on_frame = [this, key](const wire::Frame& f) { heard(key, f); };
    handlers.on_closed = [this, key](const Error& e) { lost(key, e.message); };
    wire::ChannelOptions options;
    options.words = wire::agent_words;
    options.side = wire::Side::connector;
    auto channel =
        wire::Channel::open(loop_, std::move(*socket), std::move(handlers), options,
                            wire::connector(own_.tls, trust::node_roles, link->peer.node));
    if (!channel) return lost(key, channel.error().message);
    link->channel = std::move(*channel);
    wire::Hello hello;
    hello.role = wire::Role::image;
    hello.node = own_.node;
    hello.address = own_.address;
    (void)link->channel->send(wire::frame::hello, wire::pack(hello));
    (void)link->channel->send(wire::frame::files_begin,
                              wire::pack(wire::FilesBegin{key.first, key.second}));
}

void HomeFiles::heard(const Key& key, const wire::Frame& f) {
    Link* const link = find(key);
    if (!link) return;
    link->heard = true;
    if (f.type == wire::frame::welcome) return;
    if (f.type != wire::frame::image_result) return lost(key, BulkSender::refusal(f));
    if (const auto result = wire::unpack<wire::ImageResult>(f.body); result && !result->ok) {
        link->own = true;
        link->away.cancel();
        waits(key, {});
        Job& job = jobs_.at(key.first);
        if (job.epoch == key.second && job.meter.clear(job.use)) tell_soon(key.first, job, Nanos{});
        link->retry = loop_.after(Nanos{}, [this, key] {
            if (Link* const now = find(key)) now->channel.reset();
        });
        return;
    }
    if (const Status begun = begin(key, *link); !begun) lost(key, begun.error().message);
}

Status HomeFiles::begin(const Key& key, Link& link) {
    TRY_ASSIGN(Fd server, reach_server(key));
    const files::Head attach{0, files::Kind::attach, key.second.n, 0};
    if (::send(server.get(), &attach, sizeof attach, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof attach)
        return fail_errno("attach to the server of files", errno);
    link.begun = Loop::now();
    link.away.cancel();
    link.requests = {};
    waits(key, {});
    link.pump = std::make_unique<FilesPump>(
        loop_, *link.channel, std::move(server), &jobs_.at(key.first).count,
        [this, key](const std::string& why) { lost(key, why); });
    link.channel->receive_raw([this, key](ByteView bytes) {
        Link* const now = find(key);
        if (!now || !now->pump) return;
        Job& job = jobs_.at(key.first);
        const uint64_t known = now->requests.known();
        job.use.requests += now->requests.feed(bytes);
        job.use.known += now->requests.known() - known;
        tell_soon(key.first, job, told_every);
        now->pump->take(bytes);
    });
    measure(key.first);
    return {};
}

void HomeFiles::lost(const Key& key, const std::string& why) {
    Link* const link = find(key);
    if (!link || link->own || link->retry.waiting()) return;
    log_.limited("files " + key.first.text(), Loop::now(), Level::info,
                 "a job's files are not reached from its node",
                 {{"JOB", key.first.text()}, {"NODE", link->peer.node}, {"WHY", why}});
    if (link->channel && !std::exchange(link->heard, false) && !link->channel->peer())
        (void)own_.ways->failed(link->peer, link->by_gateway);
    if (!link->away.waiting())
        link->away = loop_.after(away_after, [this, key, why] { waits(key, why); });
    if (link->pump && Loop::now() - link->begun >= stood_after) link->pause = {};
    link->pause = std::clamp(Nanos{link->pause.ns * 2}, home_pause_min, home_pause_max);
    // Not at once: the caller may be the channel, or the pump.
    link->retry = loop_.after(link->pause, [this, key] {
        Link* const again = find(key);
        if (!again) return;
        again->pump.reset();
        again->channel.reset();
        connect(key);
    });
}

// ---- what is told

FilesUse HomeFiles::use_of(Job& job) {
    job.use.out_bytes += job.count.out_bytes - job.counted.out_bytes;
    job.use.in_bytes += job.count.in_bytes - job.counted.in_bytes;
    job.counted = job.count;
    return job.use;
}

// While its files go over the network: again and again. Of a job that lies frozen, or whose node is
// out of reach, nothing is counted, and that says nothing.
void HomeFiles::measure(const JobId& id) {
    const auto it = jobs_.find(id);
    if (it == jobs_.end()) return;
    Job& job = it->second;
    const auto link = job.links.find(job.epoch);
    if (link == job.links.end() || link->second.own) return;
    (void)use_of(job);
    const bool reached = link->second.pump != nullptr;
    if (reached)
        job.meter.begin(Loop::now(), job.use);
    else
        job.meter.end();
    const auto trip =
        reached ? round_trip(link->second.channel->fd()) : Result<Nanos>(job.use.round_trip);
    job.measure = loop_.after(FilesMeter::window, [this, id] { measure(id); });
    if (job.meter.measure(Loop::now(), trip.value_or(job.use.round_trip), job.use)) tell_now(id);
}

void HomeFiles::tell_now(const JobId& id) {
    if (const auto it = jobs_.find(id); it != jobs_.end()) used_(id, use_of(it->second));
}

void HomeFiles::tell_soon(const JobId& id, Job& job, Nanos pause) {
    if (job.tell.waiting() && pause > Nanos{}) return;
    job.tell = loop_.after(pause, [this, id] { tell_now(id); });
}

// Why its owner's capsule does not reach its files; nothing: it does.
void HomeFiles::waits(const Key& key, const std::string& why) {
    const auto it = jobs_.find(key.first);
    if (it == jobs_.end() || it->second.epoch != key.second || it->second.use.waits == why) return;
    it->second.use.waits = why;
    tell_soon(key.first, it->second, Nanos{});
}

// ---- servers

// Closes the files that its sessions at other nodes had open, because such a file may be large and
// have no name any more. A server that is not there has none open.
void HomeFiles::leave(const JobId& id, Job& job) const {
    for (const Epoch epoch : std::exchange(job.left, {})) {
        sockaddr_un address{};
        const auto socket = unix_socket(path_of(id), address, SOCK_NONBLOCK);
        if (!socket ||
            ::connect(socket->get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
            continue;
        const files::Head head{0, files::Kind::leave, epoch.n, 0};
        (void)::send(socket->get(), &head, sizeof head, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
}

// Waits for nobody: the server is a process of the job's user, who may have stopped it. One whose
// queue is full is there, so it gets no successor.
Result<Fd> HomeFiles::reach_server(const Key& key) {
    const std::string path = path_of(key.first);
    sockaddr_un address{};
    TRY_ASSIGN(Fd fd, unix_socket(path, address, SOCK_NONBLOCK));
    const auto reach = [&] {
        return ::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    };
    if (reach()) return fd;
    if (errno == EAGAIN) return fail("its server takes no connection");
    TRY(start_server(jobs_.at(key.first), path));
    if (!reach()) return fail_errno("connect to " + path, errno);
    return fd;
}

// It listens before it is there.
Status HomeFiles::start_server(const Job& job, const std::string& path) const {
    sockaddr_un address{};
    TRY_ASSIGN(const Fd listener, unix_socket(path, address));
    ::unlink(path.c_str());
    if (::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::chmod(path.c_str(), 0600) != 0 || ::listen(listener.get(), 16) != 0)
        return fail_errno("listen on " + path, errno);
    TRY_ASSIGN(const Fd name, open_at(AT_FDCWD, path, O_PATH));
    TRY_ASSIGN([[maybe_unused]] const Pidfd server,
               start_({"serve", "/", std::to_string(job.uid), std::to_string(job.gid),
                       group_words(job.groups), "/proc", "/sys", "/dev", "/run", "+/usr", "+/opt",
                       "+/lib", "+/lib64", "+/bin", "+/sbin"},
                      {listener.get(), name.get()}, true));
    return {};
}

}  // namespace souk
