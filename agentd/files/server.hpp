// SPDX-License-Identifier: GPL-2.0-or-later
// Server: the files of one job at its home, in a process of its own with the credentials of the
// job's user. Each capsule of the job (of a move there are two for a moment) has a session: what
// its kernel knows and has open. A session outlives its connection: what was asked and not heard
// of is asked again by the same number, and answered, not done, again. It outlives agentd, too, and
// ends when its socket's name is removed.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>

#include "agentd/files/outgoing.hpp"
#include "agentd/files/session.hpp"
#include "agentd/files/talk.hpp"
#include "kernel/base/result.hpp"

namespace souk::files {

// Keeps the answers of a session, so that a request that is sent again is done once. Pure but for
// the session.
class Answers {
  public:
    Answers(const Export& tree, const SessionLimits& limits, Watches* watches = nullptr,
            uint64_t number = 0, Locks* locks = nullptr)
        : session_(tree, limits, watches, number, locks), number_(number), locks_(locks) {}
    Session& session() { return session_; }
    // The answer to a request as one message behind what `out` holds. False: the request breaks
    // the rules of the talk.
    bool answer(const Head& head, ByteView request, Bytes& out);
    // The answer to a request that has waited for a lock.
    static void answer_late(const Locks::Ended& ended, Bytes& out);
    // Puts out what is known by now of contents.
    void put_contents(Bytes& out);
    bool begun() const { return last_ > 0; }
    uint64_t turn = 0;  // of its server, at its last request

  private:
    Session session_;
    const uint64_t number_;
    const Locks* const locks_;
    std::map<uint64_t, Bytes> kept_;
    uint64_t last_ = 0;  // the highest number so far
};

class Server {
  public:
    // `watches` tell also when the name of the socket's file changes. If they cannot (`told`), the
    // server looks at it each second.
    Server(Export tree, const SessionLimits& limits, Watches watches, bool told)
        : tree_(std::move(tree)),
          limits_(limits),
          watches_(std::move(watches)),
          told_(told),
          locks_(tree_.uid) {}
    // Serves who connects to `listener` until the name of `socket_file` is gone.
    Status run(int listener, int socket_file);

  private:
    static constexpr size_t sessions_max = 4, connections_max = 16;
    static constexpr size_t queue_bytes_max = 8 << 20;
    struct Connection {
        Fd socket;
        Talk talk;
        Outgoing out;
        uint64_t session = 0;
        bool attached = false, greeted = false, recalls = false, broken = false;
    };
    void accept(int listener);
    void receive(Connection& c);
    static constexpr size_t told_bytes_max = 1 << 20;
    void tell_open(Connection& c, Answers& own);
    Answers* left_by(uint64_t session);
    void recall(const Watches::Change& change);
    void recall_changed();
    bool work();
    bool answer(Connection& c, const Talk::Message& message);
    void answer_late();
    bool take(Connection& c, const Talk::Message& message);
    void attach(Connection& c, uint64_t number);
    void leave(uint64_t number);
    static void send(Connection& c);
    bool holds_much() const;

    const Export tree_;
    const SessionLimits limits_;
    Watches watches_;
    const bool told_;
    bool some_changed_ = false;  // since the loop has looked: it may be the socket's name
    Locks locks_;                // of all sessions
    std::map<uint64_t, std::unique_ptr<Answers>> sessions_;
    uint64_t turn_ = 0;  // requests so far
    std::list<Connection> connections_;
};

}  // namespace souk::files
