// SPDX-License-Identifier: GPL-2.0-or-later
// Handshakes: agentd's end of souk-handshake, which does the TLS handshakes of a node without any
// right on it. A connection is lent to it, and comes back as the peer that proved itself and the
// keys of the session (kernel/wire/records.hpp). agentd itself reads nothing of who has not: no
// certificate, no handshake.
//
// A souk-handshake that somebody has taken over could say that a peer is another one
// (docs/security.md says what that is worth). It is started anew when it ends, with a pause that
// grows; connections that stand do not notice. Owned by the Agent; outlives its transports.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "agentd/handshake/handover.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/process/program.hpp"
#include "kernel/wire/tls.hpp"

namespace souk::handshake {

class Handshakes final : public wire::TlsElsewhere {
  public:
    // Starts the process with its end of the socket; a test may start another one.
    using Start = std::function<Result<Pidfd>(Fd socket)>;
    Handshakes(Loop& loop, Log& log, Start start = start_souk_handshake,
               EndProgram end = kill_program);
    ~Handshakes() override;

    std::unique_ptr<wire::Transport> connector(trust::Roles roles, std::string name) override;
    std::unique_ptr<wire::Transport> acceptor() override;
    // Starts the process at the first call, and waits until that has taken the identity.
    Status renewed(const trust::Identity& identity) override;
    void know_sites(const std::map<std::string, std::string>& sites) override;
    // Asks whose certificates these are, if they are good. Calls `done` once, not from within.
    void examine(const std::string& chain, std::function<void(Result<trust::Peer>)> done);

    // Tells by the newest list that agentd has, which the process may not have read yet.
    bool is_revoked(const std::string& key) const { return revoked_.has(key); }

    // Does a handshake for a transport. Calls `done` once, not from within, unless it is forgotten.
    using Done = std::function<void(Result<wire::SessionKeys>)>;
    uint64_t shake(int socket, const Shake& how, Done done);
    void forget(uint64_t number);

    pid_t pid() const { return process_.pid(); }  // 0: it is not there

  private:
    static Result<Pidfd> start_souk_handshake(Fd socket);
    struct Waiting {
        Done shaken;
        std::function<void(Result<trust::Peer>)> examined;
    };
    Status start();
    Status tell_identity();
    void tell_if_there();
    Status wait_until_taken() const;
    uint64_t ask(const Asked& asked, int descriptor, Waiting waiting);
    void hear();
    Status hear_some();
    void told(const Told& told);
    void lost(const std::string& why);
    void fail_soon(uint64_t number, const Error& why);

    Loop& loop_;
    Log& log_;
    const Start start_;
    const EndProgram end_;
    Pidfd process_;
    Fd socket_;
    Watch watch_;
    Timer again_;
    Nanos pause_;
    IdentityText text_;  // which is handed over
    trust::Revocations revoked_;
    std::map<uint64_t, Waiting> waiting_;
    uint64_t next_ = 1;
};

}  // namespace souk::handshake
