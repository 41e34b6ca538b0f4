// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/guest_files.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include <cerrno>

#include "agentd/files/client.hpp"
#include "agentd/files/slots.hpp"
#include "kernel/sys/process/init_protocol.h"

namespace souk {
namespace {
constexpr Nanos server_start_pause = Nanos::from_ms(50);
constexpr size_t connections_max = 8192;
}  // namespace

Result<std::pair<Fd, Fd>> GuestFiles::make(const OpenDevice& open) {
    auto fuse = open(Device::fuse);
    if (!fuse) {
        const int code = fuse.error().code;
        tl::unexpected<Error> why = wrap("this node cannot show the files of a home", fuse.error());
        // Its kernel has no FUSE, or its container may not use it: other nodes may.
        const bool never = code == ENOENT || code == ENODEV || code == ENXIO || code == EPERM;
        if (!never) return why;
        return fail_because(CauseCode::not_carried_out, {{"text", why.value().message}});
    }
    TRY_ASSIGN(Fd slots, files::Slots::make());
    return std::pair(std::move(*fuse), std::move(slots));
}

void GuestFiles::begin(const GuestJob& job, const Capsule& capsule) {
    Client& client = clients_[job.key];
    client.uid = job.spec.launch.uid;
    client.gid = job.spec.launch.gid;
    auto init = Pidfd::open(capsule.id().pid);
    if (!init) return;  // it has ended; its end follows
    client.init = std::move(*init);
    start(job.key);
}

void GuestFiles::own(const GuestKey& key) {
    own_.insert(key);
    refuse(key);
}

// The home asks no more for this capsule.
void GuestFiles::refuse(const GuestKey& key) {
    const auto it = connections_.find(key);
    if (it == connections_.end() || !own_.contains(key)) return;
    if (wire::Channel* const channel = peers_.channel(it->second))
        (void)channel->send(wire::frame::image_result,
                            wire::pack(wire::ImageResult{key.id, key.epoch, false,
                                                         "this node has its home's files itself"}));
}

// A client that does not hear of a file in time gets it all the same: its kernel asks for one file
// after the other.
void GuestFiles::expect(const GuestKey& key, const std::string& list, bool opens) {
    const auto it = clients_.find(key);
    if (it == clients_.end() || !it->second.control || list.empty()) return;
    if (const auto file = memory_file("souk-expected", list))
        (void)files::give_expected(it->second.control.get(), file->get(), opens);
}

std::shared_ptr<void> GuestFiles::ask_home(const GuestKey& key,
                                           std::function<void(const Result<AtHome>&)> done) {
    if (!clients_.contains(key)) return nullptr;
    const auto q = std::make_shared<Question>();
    q->key = key;
    q->done = std::move(done);
    ask(*q);
    return q;
}

void GuestFiles::ask(Question& q) {
    const auto it = clients_.find(q.key);
    int pair[2];
    if (it != clients_.end() && it->second.control &&
        ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0) {
        q.answer = Fd(pair[0]);
        const Fd theirs(pair[1]);
        if (files::ask_home(it->second.control.get(), theirs.get())) {
            auto watch = loop_.watch(q.answer.get(), POLLIN, [this, &q](short) { answered(q); });
            if (watch) {
                q.watch = std::move(*watch);
                return;
            }
        }
    }
    q.again = loop_.after(server_start_pause, [this, &q] { ask(q); });
}

void GuestFiles::answered(Question& q) {
    char word = 0;
    const ssize_t n = ::recv(q.answer.get(), &word, 1, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    q.watch.close();
    if (n == 1) {
        const auto done = std::move(q.done);  // which drops the question
        if (word == 's' || word == 'd') return done(word == 's' ? AtHome::synced : AtHome::written);
        return done(fail("its home has refused what it wrote, and it has not heard"));
    }
    q.again = loop_.after(server_start_pause, [this, &q] { ask(q); });
}

void GuestFiles::end(const GuestKey& key) {
    if (own_.erase(key) > 0) drop_connection(key);
    const auto it = clients_.find(key);
    if (it == clients_.end()) return;
    if (it->second.process) start_.end(it->second.process);
    clients_.erase(it);
    drop_connection(key);
}

void GuestFiles::start(const GuestKey& key) {
    const auto it = clients_.find(key);
    if (it == clients_.end()) return;
    const Status started = start_now(key, it->second);
    if (started) return connect(key);
    log_.limited("files " + key.text(), Loop::now(), Level::warning,
                 "a job's files are not to be had",
                 {{"JOB", key.id.text()}, {"WHY", started.error()}});
    it->second.again = loop_.after(server_start_pause, [this, key] { start(key); });
}

Status GuestFiles::start_now(const GuestKey& key, Client& client) {
    // As souk-init keeps them.
    TRY_ASSIGN(const Fd fuse, take_(client.init, SOUK_FILES_FD));
    TRY_ASSIGN(const Fd slots, take_(client.init, SOUK_FILES_FD + 1));
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return fail_errno("socketpair", errno);
    Fd ours(pair[0]);
    const Fd theirs(pair[1]);
    TRY_ASSIGN(client.process,
               start_({"client", std::to_string(client.uid), std::to_string(client.gid)},
                      {fuse.get(), slots.get(), theirs.get()}, false));
    client.watch.close();
    client.control = std::move(ours);
    give_contents(client);
    TRY_ASSIGN(client.watch,
               loop_.watch(client.control.get(), POLLIN, [this, key](short) { heard(key); }));
    return {};
}

void GuestFiles::give_contents() {
    for (auto& [key, client] : clients_)
        if (client.control) give_contents(client);
}

// A client that gets none reads all from its home.
void GuestFiles::give_contents(Client& client) {
    if (const Fd store = contents_.socket())
        (void)files::give_store(client.control.get(), store.get());
}

// A stream has ended, or the client has.
void GuestFiles::heard(const GuestKey& key) {
    Client& client = clients_.at(key);
    char word;
    const ssize_t n = ::recv(client.control.get(), &word, 1, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    drop_connection(key);  // the home makes another
    if (n > 0) return;
    client.watch.close();
    client.control.reset();
    client.process = Pidfd();
    client.again = loop_.after(server_start_pause, [this, key] { start(key); });
}

void GuestFiles::drop_connection(const GuestKey& key) {
    const auto it = connections_.find(key);
    if (it == connections_.end()) return;
    const uint64_t connection = it->second;
    connections_.erase(it);
    if (const auto client = clients_.find(key); client != clients_.end())
        client->second.pump.reset();
    loop_.defer([this, connection] { peers_.close(connection); });
}

Status GuestFiles::frame(uint64_t connection, const NodeName& home, const wire::Frame& f) {
    TRY_ASSIGN(const wire::FilesBegin begin, wire::unpack<wire::FilesBegin>(f.body));
    const GuestKey key{begin.id, begin.epoch};
    if (key.id.home != home) return fail("files of a job of another home");
    if (connections_.size() >= connections_max) return fail("too many connections of files");
    drop_connection(key);
    connections_[key] = connection;
    refuse(key);
    connect(key);
    return {};
}

void GuestFiles::connect(const GuestKey& key) {
    const auto client = clients_.find(key);
    const auto connection = connections_.find(key);
    if (client == clients_.end() || connection == connections_.end() || !client->second.control)
        return;
    if (const Status done = connect_now(key, client->second, connection->second); !done) {
        log_.limited("files " + key.text(), Loop::now(), Level::warning,
                     "a job's files are not to be had",
                     {{"JOB", key.id.text()}, {"WHY", done.error()}});
        drop_connection(key);
    }
}

Status GuestFiles::connect_now(const GuestKey& key, Client& client, uint64_t connection) {
    wire::Channel* const channel = peers_.channel(connection);
    if (!channel) return fail("the connection is gone");
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return fail_errno("socketpair", errno);
    Fd ours(pair[0]);
    const Fd theirs(pair[1]);
    TRY(channel->send(wire::frame::image_result,
                      wire::pack(wire::ImageResult{key.id, key.epoch, true, {}})));
    TRY(files::give_stream(client.control.get(), theirs.get()));
    client.pump =
        std::make_unique<FilesPump>(loop_, *channel, std::move(ours), nullptr,
                                    [this, key](const std::string&) { drop_connection(key); });
    peers_.receive_raw(connection, [this, key, connection](ByteView bytes) {
        const auto now = connections_.find(key);
        const auto c = clients_.find(key);
        if (now != connections_.end() && now->second == connection && c != clients_.end() &&
            c->second.pump)
            c->second.pump->take(bytes);
    });
    return {};
}

void GuestFiles::closed(uint64_t connection) {
    for (auto it = connections_.begin(); it != connections_.end(); ++it) {
        if (it->second != connection) continue;
        if (const auto client = clients_.find(it->first); client != clients_.end())
            client->second.pump.reset();
        connections_.erase(it);
        return;
    }
}

}  // namespace souk
