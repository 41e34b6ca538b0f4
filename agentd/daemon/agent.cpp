// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/agent.hpp"
#include "agentd/store/records.hpp"

#include <time.h>

#include "kernel/base/check.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/sys/host/zone.hpp"

namespace souk {

Agent::Agent(Loop& loop, Log& log, Config config, AsRoot as_root, root::Helper& root)
    : loop_(loop),
      log_(log),
      config_(std::move(config)),
      as_root_(std::move(as_root)),
      root_(root) {}

Agent::~Agent() = default;

}  // namespace souk
