// SPDX-License-Identifier: GPL-2.0-or-later
// OwnerUse: whether the owner of this node uses it, and what that means for guests. Pure: signs of
// use come in with the time, a Rung comes out. Each sign says that the owner is here; he is away
// once there was none for `away`. While he is here, guests are lowered at once (they get the
// least share of the CPUs), stopped in memory by a sign that comes `stop` after the first one or
// later, and made to leave by one that comes `leave` after it: one short burst sends nobody away.
// When he is away they are as before. Between the rungs there is no way down but that: a job is not
// sent away and called back by an owner who comes and goes within `away`. How far up it goes at
// most is `on_return`.
#pragma once

#include <cstdint>
#include <string>

#include "kernel/base/time.hpp"

namespace souk {

struct OwnerUsePolicy {
    // The most that his return does to guests.
    enum class Return : uint8_t { nothing, lower, stop, leave } on_return = Return::nothing;
    Nanos away = Nanos::from_s(300);
    Nanos leave = Nanos::from_s(60);
    Nanos stop = Nanos::from_s(10);
};

class OwnerUse {
  public:
    enum class Rung : uint8_t { none, lowered, stopped, leaving };

    explicit OwnerUse(OwnerUsePolicy policy) : policy_(policy) {}
    // Another policy from now on. Guests stay on the rung that they are on, or go down to the
    // highest that it knows.
    void configured(OwnerUsePolicy policy);
    // Found at the start: guests stand, since the daemon before has stopped them for that.
    void found_stopped(Nanos now, std::string why);

    // A sign that he uses the machine, and which. `now` never goes back.
    void used(Nanos now, std::string why);
    // When tick() has something to do next; never: not before the next sign.
    Nanos next() const;
    void tick(Nanos now);

    bool here() const { return since_ != Nanos::never(); }
    Rung rung() const { return rung_; }
    // Since when he is here, and the sign that said so.
    Nanos since() const { return since_; }
    const std::string& why() const { return why_; }

  private:
    Rung highest() const;

    OwnerUsePolicy policy_;
    Rung rung_ = Rung::none;
    Nanos since_ = Nanos::never(), last_;
    std::string why_;
};
const char* to_string(OwnerUse::Rung rung);  // none, lowered, stopped, leaving

}  // namespace souk
