// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/owner_use.hpp"

#include <utility>

#include "kernel/base/check.hpp"

namespace souk {

using Return = OwnerUsePolicy::Return;

void OwnerUse::used(Nanos now, std::string why) {
    if (policy_.on_return == Return::nothing) return;
    tick(now);
    last_ = now;
    if (!here()) {
        since_ = now;
        why_ = std::move(why);
        rung_ = Rung::lowered;
    }
    if (policy_.on_return == Return::leave && now >= since_ + policy_.leave) rung_ = Rung::leaving;
}

Nanos OwnerUse::next() const { return here() ? last_ + policy_.away : Nanos::never(); }

void OwnerUse::tick(Nanos now) {
    if (now < next()) return;
    since_ = Nanos::never();
    why_.clear();
    rung_ = Rung::none;
}

const char* to_string(OwnerUse::Rung rung) {
    switch (rung) {
        case OwnerUse::Rung::none: return "none";
        case OwnerUse::Rung::lowered: return "lowered";
        case OwnerUse::Rung::leaving: return "leaving";
    }
    MUST(false);
}

}  // namespace souk
