// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/guest_entry.hpp"

#include <utility>

namespace souk::guest {

using What = Do::What;
using state::Running;

bool Entry::in_place() const {
    const auto* held = moves<motion::Held>();
    return held && held->in_place();
}

// A job that is stopped in place has signals pending in its kernel until it goes on; a signal that
// ends it ends it at once.
bool Entry::takes_signals() const {
    return job.state == GuestState::running || job.state == GuestState::dump_ready || in_place();
}

bool Entry::stands() const {
    const auto* making = moves<motion::Making>();
    const auto* closing = in<state::Closing>();
    return (making && making->all_stand) || moves<motion::Held>() || (closing && closing->stood);
}

bool Entry::runs() const {
    const auto* s = in<state::Starting>();
    const auto* h = in<state::Held>();
    const auto* r = in<Running>();
    // A paused job that was told to go on counts as running before its going on is known.
    return (r && !r->retained && !stands() && !is_paused()) || in<state::Filling>() ||
           (in<state::Closing>() && !stands()) ||  // until it is gone
           (s && s->step == state::Starting::Step::job) ||
           (h && h->release == state::Held::Release::under_way);
}

bool Entry::in_memory() const {
    using Step = state::Starting::Step;
    const auto* s = in<state::Starting>();  // the process of a component waits in memory
    const bool waits = s && (s->step == Step::holding || s->step == Step::held);
    return runs() || waits || in<Running>() || in<state::Closing>() || in<state::Restoring>() ||
           in<state::Held>();
}

bool Entry::may_run() const {
    if (const auto* closing = in<state::Closing>()) return closing->ending != Ending::to_frozen;
    return !in<state::Frozen>() && !in<state::Ended>() && !in<state::Failed>();
}

// So it is for a job that is frozen, or is to be, or stood for the owner of the node before it was
// dumped. A job that ran until its dump hurries, because it goes on elsewhere afterwards. So does
// one whose gang waits for it, and one whose deadline is near.
bool Entry::no_hurry() const {
    const auto* r = in<Running>();
    if (!r) return in<state::Frozen>();
    const bool rests = r->want == Want::freeze || is_paused();
    return rests && r->cut == Cut::none && lease.stage == Lease::Stage::good;
}

Early* Entry::early() {
    if (auto* s = in<state::Starting>())
        return s->step == state::Starting::Step::job ? &s->early : nullptr;
    if (auto* h = in<state::Held>())
        return h->release == state::Held::Release::under_way ? &h->early : nullptr;
    auto* f = in<state::Filling>();
    return f ? &f->early : nullptr;
}

void Entry::effect(What what, Outputs& out) const {
    out.push_back(Do{what, job.key, {}, {}, 0, false});
}

void Entry::signal(const state::Signal& signal, Outputs& out) const {
    Do sent{What::signal, job.key, {}, {}, signal.number};
    sent.to_all = signal.to_all;
    out.push_back(std::move(sent));
}

// If the candidate is the job already, a transfer that fails later says nothing.
void Entry::end_as(GuestState how) {
    if (const auto* r = in<Running>()) {
        if (r->retained) shipment.way = Shipment::Way::none;
        job.went_on = !r->retained && !r->in<motion::Held>() && !r->in<motion::Standing>();
    }
    become(state::Ended{}, how);
}

void Entry::close(Ending ending, What how, Outputs& out) {
    if (in<state::Closing>()) return;
    state::Closing closing;
    closing.ending = ending;
    if (const auto* r = in<Running>()) {
        closing.ran = true;
        closing.stood = r->in<motion::Held>();
        job.went_on = !r->retained && !closing.stood && !r->in<motion::Standing>();
        closing.asked_to_leave = ending != Ending::to_frozen && !r->retained && !in_place();
        if (r->retained) shipment.way = Shipment::Way::none;
    }
    if (const Early* heard = early()) {
        closing.ran = in<state::Starting>();
        if (heard->what == Early::What::exited) closing.exited = heard->wait_status;
    }
    effect(how, out);
    state = closing;
}

void Entry::stand_for_lease(Running& r) {
    using Held = motion::Held;
    r.motion = Held{r.in<motion::Standing>() ? Held::By::lease_midway : Held::By::lease,
                    Held::Image::lost};
    r.want_now(Want::keep);
    job.state = GuestState::dumping;
    why = {CauseCode::lease_over, stands_still};
}

void Entry::roll_back_shipped(Running& r, Outputs& out) {
    if (!std::exchange(r.shipped_kept, false)) return;
    GuestJob running = job;
    running.state = GuestState::running;
    out.push_back(Persist{std::move(running)});
}

void Entry::drop_checkpoint(Outputs& out) {
    if (std::exchange(checkpoint.save, Save::none) != Save::none)
        effect(What::drop_checkpoint, out);
}

void Entry::ship(Outputs& out) {
    const auto* held = moves<motion::Held>();
    shipment.way = Shipment::Way::under_way;
    shipment.live = held && held->image == motion::Held::Image::live;
    out.push_back(Do{What::ship, job.key, shipment.epoch, shipment.dest, 0, false});
    std::get<Do>(out.back()).no_hurry = no_hurry();
}

}  // namespace souk::guest
