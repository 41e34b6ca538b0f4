// SPDX-License-Identifier: GPL-2.0-or-later
// Wire: a connection between two components of a job: TLS 1.3 with the job's secret as a key that
// both ends have (RFC 8446, 2.2), and no certificate. Who does not know the secret gets no byte of
// what is said, neither as the one that listens nor as the one that connects, and the handshake
// fails. The keys of each connection come from a new exchange (psk_dhe_ke), so that the secret does
// not open what was recorded before.
//
// A Wire is plain memory and a socket, so it goes along when its process is moved. Two copies of
// one process (a checkpoint to which its job goes back) use the same keys once more, from there on.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/store/sha256.hpp"
#include "tools/souk-exec/talk.hpp"

struct ssl_st;

namespace souk::tools {

class Wire {
  public:
    // The handshake, which waits for the peer for that long. The socket does not block from then
    // on. Errors: not_allowed, as the peer has not proven that it knows the secret; the connection
    // broke.
    static Result<Wire> connect(int fd, const ExecSecret& secret, Nanos limit);
    static Result<Wire> accept(int fd, const ExecSecret& secret, Nanos limit);

    // Keeps them to be sent, and sends what can go. What is left goes by flush(), when the socket
    // can be written to. So two ends that both have much to say still read. Errors: the connection
    // broke.
    Status send(std::string_view bytes);
    Status flush();
    bool has_unsent() const { return !unsent_.empty(); }
    // Sends the rest, and waits for the peer to read.
    Status drain();
    // Adds what is there to `bytes`; waits for nothing. False: the peer has ended the connection.
    // Errors: it broke, or somebody has changed a byte.
    Result<bool> read(std::string& bytes);
    int fd() const { return fd_; }
    // Returns what poll(2) must wait for. It waits for the peer to speak if `reads`.
    short events(bool reads) const;

  private:
    struct Free {
        void operator()(ssl_st* ssl) const;
    };
    explicit Wire(int fd) : fd_(fd) {}
    static Result<Wire> shake(int fd, const ExecSecret& secret, Nanos limit, bool accepts);

    int fd_;                               // the caller's
    std::unique_ptr<Sha256::Digest> key_;  // where the callbacks of the handshake find it
    std::unique_ptr<ssl_st, Free> ssl_;
    std::string unsent_;
};

}  // namespace souk::tools
