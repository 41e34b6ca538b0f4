// SPDX-License-Identifier: GPL-2.0-or-later
// GuestOwner: the wishes of this node's owner about guests: whether new ones may come, which ones
// must go, whether all stand for him; and what is known of guests that cannot move. Part of Guest
// (guest.hpp). GuestDeadlines carries out the wishes that guests do not fulfil by themselves.
#pragma once

#include <algorithm>

#include "agentd/core/guest_entry.hpp"

namespace souk {

class GuestOwner {
  public:
    // can_stop: jobs here can be stopped whole. The clock belongs to the Guest.
    GuestOwner(bool can_stop, const Nanos& clock) : can_stop_(can_stop), clock_(clock) {}

    bool can_stop() const { return can_stop_; }
    bool accepting() const { return accepting_; }
    Trouble why_not() const { return why_not_.or_code(CauseCode::off_market); }
    // The owner's word on the market. True: it differs from his last one.
    bool set_accepting(bool accepting, Trouble why);
    void set_pause(Cause why) { pause_ = std::move(why); }
    const Cause& pause() const { return pause_; }

    bool must_go(const guest::Entry& e) const {
        return !accepting_ || e.evicted() || e.is_wanted();
    }
    // The moment since which the guest must go.
    Nanos off_since(const guest::Entry& e) const {
        return std::min({off_since_, e.leaving.evicted, e.leaving.wanted});
    }
    // The job is an image that is to go to its home.
    bool image_must_leave(const guest::Entry& e) const {
        return e.in<guest::state::Frozen>() && !e.job.kept && (!accepting_ || e.evicted());
    }
    // Pauses the job, or lets it go on, as the owner last said.
    void settle_pause(guest::Entry& e, guest::Outputs& out) const;

    // A dump of it failed for a reason of its own. When that repeats, it counts as immovable.
    void note_trouble(guest::Entry& e, const Trouble& why);
    // An image of it came up nowhere. For a while it counts as immovable, and it is not frozen to
    // disk here any more: that would end a job that nothing may bring back.
    void note_not_restored(guest::Entry& e);

    // The deadlines of the owner are looked at again: at once, or at that moment.
    void look_now() { due_ = {}; }
    void look_at(Nanos at) { due_ = at; }
    Nanos due() const { return due_; }

  private:
    bool can_stop_;
    const Nanos& clock_;
    bool accepting_ = true;
    Trouble why_not_;
    Nanos off_since_ = Nanos::never();
    Cause pause_;  // empty: guests may run
    Nanos due_ = Nanos::never();
};

}  // namespace souk
