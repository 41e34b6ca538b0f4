// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/owner_use.hpp"

#include <algorithm>
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
    Rung rung = Rung::lowered;
    if (now >= since_ + policy_.stop) rung = Rung::stopped;
    if (now >= since_ + policy_.leave && policy_.on_return == Return::leave) rung = Rung::leaving;
    rung_ = std::max(rung_, std::min(rung, highest()));
}

OwnerUse::Rung OwnerUse::highest() const {
    switch (policy_.on_return) {
        case Return::nothing: return Rung::none;
        case Return::lower: return Rung::lowered;
        case Return::stop: return Rung::stopped;
        case Return::leave: return Rung::leaving;
    }
    MUST(false);
}

void OwnerUse::configured(OwnerUsePolicy policy) {
    policy_ = policy;
    rung_ = std::min(rung_, highest());
    if (rung_ != Rung::none) return;
    since_ = Nanos::never();
    why_.clear();
}

void OwnerUse::found_stopped(Nanos now, std::string why) {
    used(now, std::move(why));
    if (here()) rung_ = std::max(rung_, std::min(Rung::stopped, highest()));
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
        case OwnerUse::Rung::stopped: return "stopped";
        case OwnerUse::Rung::leaving: return "leaving";
    }
    MUST(false);
}

}  // namespace souk
