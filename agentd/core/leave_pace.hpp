// SPDX-License-Identifier: GPL-2.0-or-later
// LeavePace: how fast what leaves this node for its owner's sake may go while he uses it. That is
// the rate that he has configured, so that his disk and his link stay his; and more as soon as by
// that rate a promise to him would be missed, or what leaves would take too long: it is to be gone
// when three quarters of the promised time are over, and within `longest` in any case. When that
// has come nothing holds it back.
//
// Pure: the time, what he was promised and what is still to leave come in. Owned by the Agent.
#pragma once

#include <cstdint>
#include <optional>

#include "agentd/core/owner_returns.hpp"
#include "kernel/base/time.hpp"

namespace souk {

class LeavePace {
  public:
    // From when something first was to leave. Homes give up one image after 15 minutes
    // (Home::Limits::transfer_patience).
    static constexpr Nanos longest = Nanos::from_s(300);

    // Bytes that are to leave: memory of guests, and with it images that lie here.
    struct Left {
        uint64_t memory = 0, images = 0;
        bool none() const { return memory == 0 && images == 0; }
    };
    // The owner, while he uses the node: since when, and what he was promised then.
    struct Owner {
        Nanos since;
        OwnerPromise promise = {};
    };

    // Bytes a second for all together; 0: as fast as it goes. No owner, or a `configured` rate of
    // 0: nothing is held back. To be asked once a second or so, as it follows what is left.
    uint64_t rate(Nanos now, uint64_t configured, const std::optional<Owner>& owner,
                  const Left& left);

  private:
    Nanos begun_ = Nanos::never();  // something is to leave since then
};

}  // namespace souk
