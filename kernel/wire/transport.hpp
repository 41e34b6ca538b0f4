// SPDX-License-Identifier: GPL-2.0-or-later
// Transport: what lies between a channel's frames and its socket. Plain passes bytes through: on
// unix sockets, and between daemons that are configured as insecure. TLS (tls.hpp) encrypts: until
// its handshake is done seal() keeps clear bytes inside and gives out handshake records, and open()
// returns in `reply` the next records and, at the end, what was kept. A handshake may be done by
// another process (agentd/handshake), which has the socket until then. One transport per channel,
// owned by it.
#pragma once

#include <functional>
#include <memory>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/bytes.hpp"

namespace souk::trust {
struct Peer;
}

namespace souk::wire {

class Transport {
  public:
    virtual ~Transport() = default;
    // Bytes from the socket to clear bytes (a view valid until the next call, empty if there are
    // none yet), and what must be sent back at once, also when an error ends the connection.
    virtual Result<ByteView> open(ByteView wire, Bytes& reply) = 0;
    // Clear bytes to what goes to the socket now (perhaps nothing yet).
    virtual Result<Bytes> seal(Bytes&& clear) = 0;
    // Tells that seal() and open() change nothing, now and later, so bulk data may go past them.
    virtual bool passes_through() const { return false; }
    // Returns how many bytes more than the clear ones seal() may make, at most.
    virtual size_t overhead(size_t clear_bytes) const {
        (void)clear_bytes;
        return 0;
    }
    // True: somebody else does the handshake, and reads and writes that socket meanwhile; the
    // channel does not, until `ready` is called, once. Then seal() of nothing gives what was kept.
    virtual bool begin(int socket, const std::function<void(const Status&)>& ready) {
        (void)socket, (void)ready;
        return false;
    }
    // Returns the identity that the other end has proven; null: none, or not yet.
    virtual const trust::Peer* peer() const { return nullptr; }
    // Says what a silent peer was expected to say, for a line to people.
    virtual const char* awaits() const { return "the peer connected and said nothing"; }
};

std::unique_ptr<Transport> plain_transport();

}  // namespace souk::wire
