// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/thaw_trial.hpp"

#include <deque>
#include <utility>

#include "agentd/cell/cell.hpp"

namespace souk {
namespace {

// The owner of the node may wait for the job to be gone. A trial takes 20 ms, whatever memory the
// job has, and 4 ms more for each process; one that takes so long would be no thaw that anybody
// waits for.
constexpr Nanos trial_limit = Nanos::from_s(30);
constexpr Nanos end_limit = Nanos::from_s(10);       // until nothing of it is left
constexpr Nanos leave_limit = Nanos::from_s(1);      // CRIU ends by itself, if it can
constexpr uint64_t trial_epoch = uint64_t{1} << 62;  // and more

// The same node, and nobody hears of it. The group of the frozen capsule is hidden: a job that
// could be given no view of groups of its own has files open there, which a thaw will not find
// either.
CellSite unheard(const CellSite& site, const Cell& of) {
    CellSite s = site;
    if (of.key().id.home == site.node) s.hidden.clear();
    if (std::string group = of.group_directory(); !group.empty())
        s.hidden.push_back(std::move(group));
    s.trial = true;
    s.awake = nullptr;
    s.make_capsule = [&site, frozen = of.key()](const GuestKey&, const CapsuleOptions& how) {
        return site.make_capsule(frozen, how);
    };
    s.disk_secret = nullptr;
    s.image_refused = [](const GuestKey&, const std::string&) {};
    s.files_begin = nullptr;
    s.files_end = s.files_own = nullptr;
    s.files_expected = nullptr;
    s.output = [](const GuestKey&, uint32_t, uint64_t, std::string_view) { return true; };
    s.input_taken = [](const GuestKey&, uint64_t) {};
    s.cgroup_changed = [](const Cgroup&, Nanos, bool) {};
    s.want_pages = [](const GuestKey&, bool, uint64_t, const std::vector<PageRange>&) {};
    s.precopy_dropped = s.pages_whole = [](const GuestKey&) {};
    s.pages_refused = [](const GuestKey&, const std::string&) {};
    return s;
}

GuestJob to_try(const GuestJob& frozen) {
    GuestJob job = frozen;
    job.key.epoch.n |= trial_epoch;
    job.state = GuestState::starting;
    job.from_image = true;
    return job;
}

}  // namespace

struct ThawTrial::Beside {
    Beside(const CellSite& site, const Cell& of)
        : unheard_of(unheard(site, of)), frozen(of), cell(unheard_of, to_try(of.job())) {}
    CellSite unheard_of;
    const Cell& frozen;
    Cell cell;
    std::deque<guest::Event> events;
};

ThawTrial::ThawTrial(const CellSite& site) : site_(site) {}

ThawTrial::~ThawTrial() {
    if (!beside_) return;
    beside_->unheard_of.event = [](const GuestKey&, const guest::Event&) {};
    beside_->cell.kill_capsule();
}

void ThawTrial::begin(const Cell& frozen, Told told) {
    told_ = std::move(told);
    if (is_there()) {  // of one that was given up; if it does not go, this is not known
        limit_ = site_.loop->after(end_limit, [this] { tell(); });
        return when_gone([this, &frozen] {
            if (auto waits = std::exchange(told_, nullptr)) begin(frozen, std::move(waits));
        });
    }
    ending_ = false;
    beside_ = std::make_unique<Beside>(site_, frozen);
    // Not at once: the cell may be in the middle of what it tells.
    beside_->unheard_of.event = [this](const GuestKey&, guest::Event e) {
        beside_->events.push_back(std::move(e));
        next_ = site_.loop->after(Nanos{}, [this] { take_events(); });
    };
    limit_ = site_.loop->after(trial_limit, [this] {
        give_up(Outcome::fails,
                because(CauseCode::restore_failed,
                        {{"text", "it was not restored within " +
                                      std::to_string(trial_limit.ns / 1'000'000'000) + " s"}}));
    });
    beside_->cell.create_capsule();
}

void ThawTrial::take_events() {
    while (beside_ && !beside_->events.empty()) {
        const guest::Event e = std::move(beside_->events.front());
        beside_->events.pop_front();
        // Whoever hears that it is gone may drop this.
        if (guest::input_of(e) == guest::Input::removed) return gone();
        event(e);
    }
}

void ThawTrial::event(const guest::Event& e) {
    using Kind = guest::Input;
    Cell& cell = beside_->cell;
    const Kind kind = guest::input_of(e);
    if (kind == Kind::capsule_gone) {
        if (!ending_) end(Outcome::not_known, because(CauseCode::capsule_ended));
        return cell.remove();
    }
    if (ending_) return;
    switch (kind) {
        case Kind::capsule_ready: return cell.ready_criu(false, false);
        case Kind::criu_ready: return cell.restore_local(&beside_->frozen);
        case Kind::restore_held: return end(Outcome::thaws);
        case Kind::restore_failed:
        case Kind::pages_lost: return end(Outcome::fails, guest::why_of(e));
        case Kind::capsule_failed:
        case Kind::criu_failed: return end(Outcome::not_known, guest::why_of(e));
        default: return;
    }
}

// Its end is told when it is gone, so that who ends the job next leaves nothing behind.
void ThawTrial::end(Outcome outcome, Trouble why) {
    if (std::exchange(ending_, true)) return;
    outcome_ = outcome;
    why_ = std::move(why);
    kill();
}

void ThawTrial::kill() {
    limit_ = site_.loop->after(end_limit, [this] { tell(); });
    beside_->cell.kill_capsule();
}

// CRIU gives files that were taken away a name for a moment, and takes it away again only if it
// ends by itself: such a name would keep the next restore from making its own.
void ThawTrial::give_up(Outcome outcome, Trouble why) {
    if (std::exchange(ending_, true)) return;
    outcome_ = outcome;
    why_ = std::move(why);
    limit_ = site_.loop->after(leave_limit, [this] { kill(); });
    beside_->cell.leave_criu([this] { kill(); });
}

void ThawTrial::stop() {
    told_ = nullptr;
    if (beside_) give_up(Outcome::not_known);
}

void ThawTrial::gone() {
    limit_.cancel();
    beside_.reset();
    if (const auto then = std::exchange(then_, nullptr)) return then();
    tell();
}

void ThawTrial::tell() {
    if (const auto told = std::exchange(told_, nullptr)) told(outcome_, why_);
}

}  // namespace souk
