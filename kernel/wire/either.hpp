// SPDX-License-Identifier: GPL-2.0-or-later
// Either: what accepts a connection of a market that is being given certificates (insecure_until of
// its configuration): over TLS if that is how the peer begins, else plain. The first three bytes
// tell: a TLS handshake begins with 22, 3 and a number that is not 0; a plain frame that begins so
// would be longer than a greeting may be.
#pragma once

#include <memory>

#include "kernel/wire/transport.hpp"

namespace souk::wire {

std::unique_ptr<Transport> either_transport(std::unique_ptr<Transport> tls);

}  // namespace souk::wire
