// SPDX-License-Identifier: GPL-2.0-or-later
// Transport: what lies between a channel's frames and its socket. Plain passes bytes through. An
// encrypting session takes this place: until its handshake is done seal() keeps clear bytes inside
// and gives out handshake records, and open() returns in `reply` the next records and, at the end,
// what was kept. One transport per channel, owned by it.
#pragma once

#include <memory>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/bytes.hpp"

namespace souk::wire {

class Transport {
  public:
    virtual ~Transport() = default;
    // Bytes from the socket to clear bytes (a view valid until the next call, empty if there are
    // none yet), and what must be sent back at once. An error ends the connection.
    virtual Result<ByteView> open(ByteView wire, Bytes& reply) = 0;
    // Clear bytes to what goes to the socket now (perhaps nothing yet).
    virtual Result<Bytes> seal(Bytes&& clear) = 0;
    // Both change nothing, now and later: bulk data may go past them.
    virtual bool passes_through() const { return false; }
};

std::unique_ptr<Transport> plain_transport();

}  // namespace souk::wire
