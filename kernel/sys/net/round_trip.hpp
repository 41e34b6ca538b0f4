// SPDX-License-Identifier: GPL-2.0-or-later
// The round trip of a TCP connection, as the kernel has measured it.
#pragma once

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"

namespace souk {

// The least of the last minutes: of the way, without queues and late acknowledgements. Fails on a
// socket that is none of TCP.
Result<Nanos> round_trip(int socket);

}  // namespace souk
