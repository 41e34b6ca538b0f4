// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

namespace souk::files {
namespace {

constexpr size_t kept_max = slots * 2;  // answers
constexpr int messages_at_once = 32;    // of one connection
constexpr int look_every_ms = 1000;     // at the name of the socket; memory is given back then
constexpr int end_again_ms = 2;         // a thread that waits for a lock and is to end

// To lock what its holder has locked gives the same result, and so does each question about it. A
// request that waits may wait for very long: the client does not count it (Slots::acked), so that
// it may be older than what has all answers.
bool takes_lock(uint32_t opcode) {
    return opcode == FUSE_GETLK || opcode == FUSE_SETLK || opcode == FUSE_SETLKW;
}

uint32_t opcode_of(ByteView request) {
    fuse_in_header head{};
    if (request.size() >= sizeof head) std::memcpy(&head, request.data(), sizeof head);
    return head.opcode;
}

// Doing such a request a second time gives the same result, so its answer need not be kept.
bool may_repeat(ByteView request) {
    fuse_in_header head{};
    if (request.size() < sizeof head) return true;
    std::memcpy(&head, request.data(), sizeof head);
    return head.opcode == FUSE_READ || head.opcode == FUSE_GETATTR ||
           head.opcode == FUSE_GETXATTR || head.opcode == FUSE_STATFS || takes_lock(head.opcode);
}

void put_head(Bytes& out, size_t at, Kind kind, uint64_t seq, uint64_t says = 0) {
    const Head head{static_cast<uint32_t>(out.size() - at - sizeof head), kind, seq, says};
    std::memcpy(out.data() + at, &head, sizeof head);
}

bool has_name(int file) {
    struct stat st {};
    return ::fstat(file, &st) == 0 && st.st_nlink > 0;
}

}  // namespace

bool Answers::answer(const Head& head, ByteView request, Bytes& out) {
    kept_.erase(kept_.begin(), kept_.lower_bound(head.acked));
    // A request that is older than all kept answers is answered even if no more may be kept: the
    // client acknowledges none of the others before it has this answer.
    const bool is_full = kept_.size() >= kept_max && head.seq > kept_.begin()->first;
    const bool is_lock = takes_lock(opcode_of(request));
    if ((head.seq < head.acked || is_full) && !is_lock) return false;
    if (locks_ && is_lock && locks_->waits(number_, head.seq)) return true;  // it was sent again
    if (const auto again = kept_.find(head.seq); again != kept_.end()) {
        const size_t at = out.size();
        out.insert(out.end(), again->second.begin(), again->second.end());
        put_head(out, at, Kind::answer, head.seq);  // what was recalled since, nobody was told
        return true;
    }
    size_t at = out.size();
    out.resize(at + sizeof(Head));
    session_.handle(request, out, head.seq);
    if (session_.waits_for_lock()) return out.resize(at), true;
    put_head(out, at, Kind::answer, head.seq,
             static_cast<uint64_t>(session_.leased()) |
                 (session_.file_has_changed() ? file_has_changed : 0));
    if (Bytes contents; put_contents(contents), !contents.empty()) {
        out.insert(out.begin() + static_cast<ptrdiff_t>(at), contents.begin(), contents.end());
        at += contents.size();  // before the answer, after which the file is read
    }
    last_ = std::max(last_, head.seq);
    if (!may_repeat(request))
        kept_.emplace(head.seq, Bytes(out.begin() + static_cast<ptrdiff_t>(at), out.end()));
    return true;
}

void Answers::answer_late(const Locks::Ended& ended, Bytes& out) {
    const size_t at = out.size();
    out.resize(at + sizeof(Head));
    put(out, fuse_out_header{sizeof(fuse_out_header), ended.error, ended.unique});
    put_head(out, at, Kind::answer, ended.seq, ended.error == 0 ? file_has_changed : 0);
}

void Answers::put_contents(Bytes& out) {
    for (const Content& content : session_.contents().take_ready()) {
        const size_t at = out.size();
        out.resize(at + sizeof(Head));
        put(out, content);
        put_head(out, at, Kind::content, 0);
    }
}

void Server::accept(int listener) {
    Fd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (!socket || connections_.size() >= connections_max) return;
    connections_.emplace_back().socket = std::move(socket);
}

void Server::leave(uint64_t number) {
    for (Connection& c : connections_)
        if (c.attached && c.session == number) c.broken = true;
    locks_.left(number);
    sessions_.erase(number);
}

// The newest connection of a session counts. Of too many sessions the oldest goes that nobody is
// connected to.
void Server::attach(Connection& c, uint64_t number) {
    for (Connection& other : connections_)
        if (other.attached && other.session == number) other.broken = true;
    c.attached = true;
    c.session = number;
    auto& session = sessions_[number];
    if (!session) session = std::make_unique<Answers>(tree_, limits_, &watches_, number, &locks_);
    for (auto it = sessions_.begin(); sessions_.size() > sessions_max && it != sessions_.end();) {
        const bool in_use = std::ranges::any_of(connections_, [&](const Connection& other) {
            return other.attached && !other.broken && other.session == it->first;
        });
        if (!in_use) locks_.left(it->first);
        it = in_use ? std::next(it) : sessions_.erase(it);
    }
}

bool Server::take(Connection& c, const Talk::Message& m) {
    const auto session = sessions_.find(c.session);
    switch (m.head.kind) {
        case Kind::attach:
            if (c.attached) return false;
            attach(c, m.head.seq);
            return true;
        case Kind::leave:
            if (c.attached) return false;
            leave(m.head.seq);
            return true;
        case Kind::hello: {
            Hello hello;
            std::memcpy(&hello, m.body.data(), sizeof hello);
            if (!c.attached || c.greeted || session == sessions_.end()) return false;
            c.greeted = true;
            c.recalls = (hello.can & 1) != 0;
            session->second->session().shown_as(hello.uid, hello.gid);
            const Welcome welcome{talk_version, (session->second->begun() ? 1U : 0U) | 14U};
            Bytes& out = c.out.messages();
            const size_t at = out.size();
            out.resize(at + sizeof(Head));
            put(out, welcome);
            put_head(out, at, Kind::welcome, 0);
            if ((hello.can & 2) != 0 && !session->second->begun()) tell_open(c, *session->second);
            return hello.version == talk_version;
        }
        case Kind::prove: {
            Prove prove;
            std::memcpy(&prove, m.body.data(), sizeof prove);
            if (!c.greeted || session == sessions_.end()) return false;
            Session& own = session->second->session();
            own.contents().begin(prove);
            own.expect_contents_of(own);  // first: a file that both have open is told to this one
            if (Answers* const there = left_by(c.session)) own.expect_contents_of(there->session());
            return true;
        }
        case Kind::known: return c.greeted;
        case Kind::request:
            if (!c.greeted || session == sessions_.end()) return false;
            session->second->turn = ++turn_;
            return answer(c, m);
        default: return false;
    }
}

// Whoever gets a lock knows of all names that others have changed before it: these recalls go
// ahead of the answer.
bool Server::answer(Connection& c, const Talk::Message& m) {
    Answers& session = *sessions_.at(c.session);
    if (!takes_lock(opcode_of(m.body))) return session.answer(m.head, m.body, c.out.messages());
    Bytes answer;
    if (!session.answer(m.head, m.body, answer)) return false;
    recall_changed();
    Bytes& out = c.out.messages();
    out.insert(out.end(), answer.begin(), answer.end());
    return true;
}

// Answers requests that have waited for a lock.
void Server::answer_late() {
    const std::vector<Locks::Ended> all = locks_.take_ended();
    if (all.empty()) return;
    recall_changed();
    for (const Locks::Ended& ended : all) {
        for (Connection& c : connections_) {
            if (!c.greeted || c.broken || c.session != ended.session) continue;
            Answers::answer_late(ended, c.out.messages());
            send(c);
        }
    }
}

// Returns the session at the node where the job still is, if the job is on its way to the node of
// `session`. It is the other session that has asked last; any further ones belong to nodes where
// the job was before. Null: there is none.
Answers* Server::left_by(uint64_t session) {
    Answers* last = nullptr;
    for (const auto& [number, other] : sessions_)
        if (number != session && other->begun() && (!last || other->turn > last->turn))
            last = other.get();
    return last;
}

// A session begins, and its job may be on its way here. Tell its client what the job has open. The
// bound is far below the bytes that may wait.
void Server::tell_open(Connection& c, Answers& own) {
    const auto tell = [&](ByteView request, ByteView answer, Lease lease) {
        Bytes& out = c.out.messages();
        const size_t at = out.size();
        out.resize(at + sizeof(Head));
        out.insert(out.end(), request.begin(), request.end());
        out.insert(out.end(), answer.begin(), answer.end());
        put_head(out, at, Kind::told, 0, static_cast<uint64_t>(lease));
        return c.out.size() < told_bytes_max;
    };
    if (Answers* const there = left_by(c.session)) own.session().open_as(there->session(), tell);
}

void Server::recall(const Watches::Change& change) {
    for (Connection& c : connections_) {
        if (!c.greeted || !c.recalls || c.broken || c.session != change.session) continue;
        if (c.out.size() >= 2 * queue_bytes_max) {
            c.broken = true;  // the next stream begins with nothing leased
            continue;
        }
        Bytes& out = c.out.messages();
        const size_t at = out.size();
        out.resize(at + sizeof(Head));
        put(out, Recall{change.directory});
        out.insert(out.end(), change.name.begin(), change.name.end());
        put_head(out, at, Kind::recall, 0, change.stays ? 1 : 0);
    }
}

// Goes on with what takes long. True: there is more.
bool Server::work() {
    bool more = false;
    for (Connection& c : connections_) {
        const auto session = sessions_.find(c.session);
        if (!c.greeted || c.broken || session == sessions_.end()) continue;
        more = session->second->session().contents().work() || more;
        session->second->put_contents(c.out.messages());
        send(c);
    }
    return more;
}

// Sends the recalls behind all answers so far.
void Server::recall_changed() {
    Watches::Change last;  // a program writes many times
    const bool some = watches_.read([&](const Watches::Change& change) {
        if (change == last) return;
        recall(change);
        last = change;
    });
    for (Connection& c : connections_)
        if (!c.broken) send(c);
    some_changed_ = some_changed_ || some;
}

void Server::receive(Connection& c) {
    for (int turn = 0; turn < messages_at_once && c.out.size() < queue_bytes_max;) {
        uint8_t* room = c.talk.room();
        const ssize_t got = ::recv(c.socket.get(), room, c.talk.room_bytes(), MSG_DONTWAIT);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (got <= 0) {
            c.broken = true;
            return;
        }
        c.talk.took(static_cast<size_t>(got));
        const auto message = c.talk.next();
        if (!message || (*message && !take(c, **message))) {
            c.broken = true;
            return;
        }
        if (*message) ++turn;
    }
}

void Server::send(Connection& c) {
    while (!c.out.empty()) {
        const ByteView left = c.out.next();
        const ssize_t n =
            ::send(c.socket.get(), left.data(), left.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n < 0) {
            c.broken = true;
            return;
        }
        c.out.sent(static_cast<size_t>(n));
    }
}

bool Server::holds_much() const {
    return std::ranges::any_of(connections_,
                               [](const Connection& c) { return c.out.holds_much(); });
}

Status Server::run(int listener, int socket_file) {
    ::umask(0);  // each request has its own (umask.hpp)
    for (bool more = false;;) {
        std::vector<pollfd> ready = {{listener, POLLIN, 0},
                                     {watches_.fd(), POLLIN, 0},
                                     {locks_.fd(), POLLIN, 0},
                                     {locks_.door(), POLLIN, 0}};
        for (const Connection& c : connections_) {
            const bool full = c.out.size() >= queue_bytes_max;
            ready.push_back(
                {c.socket.get(),
                 static_cast<short>((full ? 0 : POLLIN) | (c.out.empty() ? 0 : POLLOUT)), 0});
        }
        const int wait_ms = more                     ? 0
                            : locks_.is_ending()     ? end_again_ms
                            : told_ && !holds_much() ? -1
                                                     : look_every_ms;
        const int some = ::poll(ready.data(), ready.size(), wait_ms);
        if (some < 0 && errno != EINTR) return fail_errno("poll", errno);
        if (some == 0)
            for (Connection& c : connections_) c.out.give_back();
        if (ready[2].revents != 0 || locks_.is_ending()) answer_late();
        if (ready[3].revents != 0) locks_.answer_at_door();
        size_t n = 4;
        for (Connection& c : connections_) {
            if (ready[n++].revents == 0) continue;
            receive(c);
            if (!c.broken) send(c);
        }
        recall_changed();
        if ((std::exchange(some_changed_, false) || !told_) && !has_name(socket_file)) return {};
        connections_.remove_if([](const Connection& c) { return c.broken; });
        if (ready[0].revents != 0) accept(listener);
        more = work();
    }
}

}  // namespace souk::files
