// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/guest_deadlines.hpp"

#include <algorithm>

namespace souk {

using namespace guest;
using What = Do::What;
using state::Running;
using state::Starting;

namespace {

constexpr Nanos look_again = Nanos::from_s(1);  // at an operation that was impossible just now
constexpr Nanos held_max = Nanos::from_s(600);  // for a component whose home says nothing more

// The moment since which an evicted guest stands, or should have. The market may let it go on in
// between.
Nanos stays_since(const Leaving& l, Nanos leave) {
    const Nanos due = l.evicted + leave;
    return std::max(l.evicted, l.stood_at.ns > 0 ? std::min(l.stood_at, due) : due);
}

std::string seconds(Nanos span) { return std::to_string(span.ns / 1'000'000'000); }

}  // namespace

bool GuestDeadlines::Look::reached(Nanos at, bool possible) {
    if (at == Nanos::never()) return false;
    if (now >= at && possible) return true;
    due = std::min(due, std::max(at, now + look_again));
    return false;
}

void GuestDeadlines::tick(Nanos now, Outputs& out) {
    owner_.look_at(Nanos::never());
    Look look{now};
    for (auto& [key, e] : jobs_.all()) {
        if (auto* r = e.in<Running>(); r && !r->retained) look_at(e, *r, look, out);
        look_at_component(e, look, out);
    }
    owner_.look_at(std::min(owner_.due(), look.due));
}

void GuestDeadlines::look_at_component(Entry& e, Look& look, Outputs& out) {
    const auto* s = e.in<Starting>();
    if (!s || s->step != Starting::Step::held) return;
    if (look.now < s->held_at + held_max) {
        look.due = std::min(look.due, s->held_at + held_max);
        return;
    }
    starts_.not_started(e, because(CauseCode::components_late, {{"seconds", seconds(held_max)}}),
                        {}, out);
}

// A guest that stands by the market's word is moved by nobody. When the owner wants its memory, it
// need not wait.
Nanos GuestDeadlines::leave_at(const Entry& e) const {
    const bool at_once = e.is_wanted() && e.in_place_by_order() && e.leaving.tries == 0;
    return owner_.off_since(e) + (at_once ? Nanos{} : doubled(policy_.leave, e.leaving.tries));
}

void GuestDeadlines::look_at(Entry& e, Running& r, Look& look, Outputs& out) {
    Leaving& l = e.leaving;
    // A guest that stood when its lease ended goes nowhere but away.
    const bool steady = !r.in<motion::Undoing>() && !r.stops_in_place() && r.want != Want::kill &&
                        (!e.lease.over() || (e.in_place() && e.evicted()));
    const bool goes_on = steady && (r.want == Want::run || r.want == Want::save);
    const bool by_order = e.in_place_by_order();
    if (owner_.must_go(e) && (!e.in_place() || by_order) &&
        look.reached(leave_at(e), by_order ? steady : goes_on)) {
        ++l.tries;
        dumps_.freeze_for_owner(e, r, out);
        look.due = std::min(look.due, leave_at(e));
    }
    // A component of a gang stands for the others' sake: another try would let it go on for a
    // moment.
    if (e.in_place() && !e.immovable() && r.cut != Cut::freeze &&
        look.reached(r.in<motion::Held>()->dump_again, steady)) {
        ++l.stand_tries;
        dumps_.freeze_for_owner(e, r, out);
    }
    const bool stands = e.in_place();
    if (must_be_killed(e, steady, goes_on, look)) return kill(e, out);
    if (l.troubles.count >= Leaving::troubles_enough && !stands &&
        look.reached(l.troubles.until, steady)) {
        const bool was = e.immovable();
        l.troubles.count = Leaving::troubles_enough - 1;
        if (was && !e.immovable() && e.job.state == GuestState::running) reports_.tell(e, out);
    }
}

// Trouble of the node's own, such as a full disk, is no reason: that job may move when it is over.
// If no job can be stopped in place here, the time counts from when the owner left the market.
bool GuestDeadlines::must_be_killed(const Entry& e, bool steady, bool goes_on, Look& look) const {
    const Leaving& l = e.leaving;
    const bool stands = e.in_place();
    const bool waits =
        e.evicted() ? l.tries > 0 : !owner_.can_stop() && owner_.must_go(e) && l.stood_at.ns > 0;
    const bool stays =
        stands ? (e.immovable() && !e.in_place_by_order()) || e.evicted() : waits && e.immovable();
    const Nanos since = e.evicted() ? stays_since(l, policy_.leave)
                        : stands    ? l.stood_at
                                    : std::max(l.stood_at, owner_.off_since(e));
    return (policy_.kill || e.evicted()) && stays &&
           look.reached(since + policy_.stand, stands ? steady : goes_on);
}

void GuestDeadlines::kill(Entry& e, Outputs& out) const {
    e.why =
        because(CauseCode::owner_killed, {{"seconds", seconds(policy_.stand)}, {"text", e.why}});
    e.close(Ending::to_killed, e.moves<motion::Held>() ? What::finish_dump : What::kill_capsule,
            out);
    std::get<Do>(out.back()).by_owner = true;
}

}  // namespace souk
