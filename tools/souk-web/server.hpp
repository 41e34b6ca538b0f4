// SPDX-License-Identifier: GPL-2.0-or-later
// Server: the pages over HTTP, by cpp-httplib. Every connection has a thread of a fixed number; one
// more is told so and closed. A request has a bound in bytes and in time.
#pragma once

#include <memory>

#include "kernel/base/result.hpp"
#include "tools/souk-web/feed.hpp"
#include "tools/souk-web/options.hpp"

namespace souk::tools::web {

class Server {
  public:
    // Listens. `options` and `feed` outlive it. Errors: the address is taken, or none of this
    // machine.
    static Result<std::unique_ptr<Server>> listen(const Options& options, Feed& feed);
    virtual ~Server() = default;
    virtual uint16_t port() const = 0;
    virtual void run() = 0;   // until stop()
    virtual void stop() = 0;  // from any thread
};

}  // namespace souk::tools::web
