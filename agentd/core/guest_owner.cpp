// SPDX-License-Identifier: GPL-2.0-or-later
// Guest, sixth part: jobs that cannot be dumped, and what the owner of the node wants of guests
// that are to leave. See guest.hpp.
#include <algorithm>
#include <utility>

#include "agentd/core/guest.hpp"

namespace souk {

using namespace guest;
using What = Do::What;

namespace {

constexpr Nanos look_again = Nanos::from_s(1);         // at what could not be done just now
constexpr Nanos dump_again_after = Nanos::from_s(10);  // of what stands, twice as long each time
constexpr Nanos doubt_after = Nanos::from_s(300), doubt_after_max = Nanos::from_s(3'600);
constexpr int doublings_max = 6;
constexpr Nanos held_max = Nanos::from_s(600);  // of a component whose home says nothing more

Nanos doubled(Nanos span, int times) {
    return Nanos{span.ns << std::clamp(times, 0, doublings_max)};
}

// The same reason names other processes, files and sizes each time.
std::string kind_of(const std::string& why) {
    std::string kind;
    for (const char c : why) {
        const bool digit = c >= '0' && c <= '9';
        if (!digit)
            kind += c;
        else if (kind.empty() || kind.back() != '#')
            kind += '#';
    }
    return kind;
}

// Of one that is evicted: from when it first stood, or should have. The market may let it go on in
// between.
Nanos stays_since(const Leaving& l, Nanos leave) {
    const Nanos due = l.evicted + leave;
    return std::max(l.evicted, l.stood_at.ns > 0 ? std::min(l.stood_at, due) : due);
}

}  // namespace

void Guest::note_trouble(Entry& e, const Trouble& why) const {
    Leaving::Troubles& t = e.leaving.troubles;
    std::string kind = kind_of(why + why.detail);
    if (t.kind != kind) t = {std::move(kind), {}, 0, {}};
    t.why = why;
    ++t.count;
    t.until = clock_ + std::min(doubled(doubt_after, t.count - troubles_enough), doubt_after_max);
    owner_due_ = {};
}

// For a while it counts as what cannot move. None of it is frozen to disk here any more: that would
// end what nothing may bring back.
void Guest::note_not_restored(Entry& e) const {
    e.leaving.not_restored = because(CauseCode::criu_cannot_restore);
    note_trouble(e, e.leaving.not_restored);
    e.leaving.troubles.count = std::max(e.leaving.troubles.count, troubles_enough);
}

bool Guest::in_place(const Entry& e) {
    const auto* held = e.moves<motion::Held>();
    return held && held->in_place();
}

// What stands in place has them pending in its kernel until it goes on; one that ends it does so at
// once. A word to go on that came before has not been carried out yet.
bool Guest::takes_signals(const Entry& e) {
    const auto* r = e.in<Running>();
    const bool goes_on = r && r->in<motion::Undoing>() && r->want == Want::run;
    return e.job.state == GuestState::running || e.job.state == GuestState::dump_ready ||
           in_place(e) || goes_on;
}

void Guest::on_freeze(Entry& e, const GuestCommand& c, Outputs& out) const {
    if (in_place(e) && (c.stand || (c.or_stand && !e.job.by_order))) return tell(e, out);
    if (auto* r = e.in<Running>()) {
        const bool stands = r->want == Want::cut && r->cut == c.cut;
        if (stands && c.cut != Cut::none && r->cut_number == c.new_epoch) return tell(e, out);
        r->or_stand = c.or_stand;
        r->stand_first = c.stand;
        r->cut = c.cut;
        r->cut_number = c.new_epoch;
    }
    want(e, Want::freeze, out);
}

// On disk first: a group that is found frozen is then known not to be a dump's.
void Guest::begin_stand(Entry& e, Running& r, Outputs& out) const {
    r.motion = motion::Standing{};
    r.want = Want::freeze;
    e.job.state = GuestState::running;
    e.job.in_place = true;
    e.job.by_order = r.stand_first && !immovable(e);
    out.push_back(Persist{e.job});
    effect(e, What::stand, out);
}

// As what is found held after a crash, but for no dump.
void Guest::stands_in_place(Entry& e, Running& r) const {
    using Held = motion::Held;
    Held held{r.in<Held>() ? Held::By::lease_in_place : Held::By::place, Held::Image::lost};
    if (!e.job.by_order)
        held.dump_again = clock_ + doubled(dump_again_after, e.leaving.stand_tries);
    r.motion = held;
    want_now(r, Want::keep);
    e.job.state = GuestState::dumping;
    owner_due_ = {};
    if (e.job.by_order) return e.why.clear();
    if (immovable(e)) e.why = why_immovable(e);
    if (e.why.empty()) e.why = {CauseCode::dump_failed, "it could not be dumped"};
    if (e.leaving.stood_at.ns == 0) e.leaving.stood_at = clock_;
}

void Guest::on(Entry& e, Stood x, Outputs& out) {
    auto* r = e.in<Running>();
    if (!r || !stops_in_place(*r)) return;
    const Want wanted = r->want;
    if (!x.why.empty()) {
        if (auto* held = r->in<motion::Held>())  // its lease was over meanwhile
            held->by = motion::Held::By::lease;
        else
            r->motion = motion::Steady{};
        const bool by_order = std::exchange(e.job.by_order, false);
        e.job.in_place = r->stand_first = false;
        out.push_back(Persist{e.job, Durable::now});
        if (wanted != Want::freeze || by_order) return drive(e, out);  // frozen to disk, then
        r->want = Want::run;
        e.why = std::move(x.why);
        now_running(e, *r, out);
        return e.why.clear();
    }
    stands_in_place(e, *r);
    // An order to ship it that came meanwhile cannot be carried out: its home hears that it stands.
    if (wanted == Want::freeze || wanted == Want::ship) {
        if (!e.job.by_order) r->want = Want::freeze;
        return tell(e, out);
    }
    r->want = wanted;
    e.why.clear();
    drive(e, out);
}

// It stood, and is let go on. That is durable before it goes on: an old record that says that it
// stands would let a source go on whose home has decided for the destination.
void Guest::go_off_stand(Entry& e, const Running& r, Outputs& out) {
    e.job.in_place = e.job.by_order = false;
    GuestJob running = e.job;
    running.state = GuestState::running;
    out.push_back(Persist{std::move(running), Durable::now});
    if (r.want == Want::freeze) return;  // one more try
    e.leaving.stood_at = {};
    e.leaving.stand_tries = 0;
}

// Who stands by the market's word is moved by nobody: when his memory is wanted, he need not wait.
Nanos Guest::leave_at(const Entry& e) const {
    const bool at_once = is_wanted(e) && in_place(e) && e.job.by_order && e.leaving.tries == 0;
    return off_since(e) + (at_once ? Nanos{} : doubled(policy_.leave, e.leaving.tries));
}

void Guest::kill_for_owner(Entry& e, Outputs& out) const {
    e.why =
        because(CauseCode::owner_killed,
                {{"seconds", std::to_string(policy_.stand.ns / 1'000'000'000)}, {"text", e.why}});
    end_capsule(e, Ending::to_killed,
                e.moves<motion::Held>() ? What::finish_dump : What::kill_capsule, out);
    std::get<Do>(out.back()).by_owner = true;
}

void Guest::freeze_for_owner(Entry& e, Running& r, Outputs& out) const {
    e.why.clear();
    r.want = Want::freeze;
    r.cut = Cut::none;
    r.or_stand = true;
    r.stand_first = false;
    drive(e, out);
}

// What the owner's bounds make due. What cannot be done in the middle of something else is looked
// at again.
void Guest::owner_tick(Nanos now, Outputs& out) {
    owner_due_ = Nanos::never();
    Nanos due = Nanos::never();
    for (auto& [key, e] : jobs_) {
        if (auto* r = e.in<Running>(); r && !r->retained) owner_looks(e, *r, now, due, out);
        const auto* s = e.in<state::Starting>();
        if (!s || s->step != state::Starting::Step::held) continue;
        if (now >= s->held_at + held_max)
            not_started(e,
                        because(CauseCode::components_late,
                                {{"seconds", std::to_string(held_max.ns / 1'000'000'000)}}),
                        {}, out);
        else
            due = std::min(due, s->held_at + held_max);
    }
    owner_due_ = std::min(owner_due_, due);
}

void Guest::owner_looks(Entry& e, Running& r, Nanos now, Nanos& due, Outputs& out) const {
    const auto reached = [&](Nanos at, bool possible) {
        if (at == Nanos::never()) return false;
        if (now >= at && possible) return true;
        due = std::min(due, std::max(at, now + look_again));
        return false;
    };
    Leaving& l = e.leaving;
    // What stood when its lease ended goes nowhere but away.
    const bool steady = !r.in<motion::Undoing>() && !stops_in_place(r) && r.want != Want::kill &&
                        (!e.lease.over() || (in_place(e) && evicted(e)));
    const bool goes_on = steady && (r.want == Want::run || r.want == Want::save);
    const bool by_order = in_place(e) && e.job.by_order;
    if (must_go(e) && (!in_place(e) || by_order) &&
        reached(leave_at(e), by_order ? steady : goes_on)) {
        ++l.tries;
        freeze_for_owner(e, r, out);
        due = std::min(due, leave_at(e));
    }
    // One of a gang stands for the others' sake: another try would let it go on for a moment.
    if (in_place(e) && !immovable(e) && r.cut != Cut::freeze &&
        reached(r.in<motion::Held>()->dump_again, steady)) {
        ++l.stand_tries;
        freeze_for_owner(e, r, out);
    }
    // Not for trouble of the node's own, such as a full disk: that job may move when it is over.
    // Where nothing can be stopped in place, its time counts from when the owner left the market.
    const bool stands = in_place(e);
    const bool waits = evicted(e) ? l.tries > 0 : !can_stop_ && must_go(e) && l.stood_at.ns > 0;
    const bool stays = stands ? (immovable(e) && !by_order) || evicted(e) : waits && immovable(e);
    const Nanos since = evicted(e) ? stays_since(l, policy_.leave)
                        : stands   ? l.stood_at
                                   : std::max(l.stood_at, off_since(e));
    if ((policy_.kill || evicted(e)) && stays &&
        reached(since + policy_.stand, stands ? steady : goes_on))
        return kill_for_owner(e, out);
    if (l.troubles.count >= troubles_enough && !stands && reached(l.troubles.until, steady)) {
        const bool was = immovable(e);
        l.troubles.count = troubles_enough - 1;
        if (was && !immovable(e) && e.job.state == GuestState::running) tell(e, out);
    }
}

bool Guest::evict(const JobId& id, Trouble why, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::leave, {id, {}}, why); });
    bool any = false;
    for (auto& [key, e] : jobs_) {
        if (key.id != id) continue;
        const auto* r = e.in<Running>();
        any |= r && !r->retained;
        if (!evicted(e)) e.leaving.evicted = clock_;
        e.leaving.tries = 0;
        expel(e, out);
        if (image_must_leave(e)) tell(e, out);
    }
    owner_due_ = {};
    return any;
}

// -------------------------------------------------------------------------------------------------
// paused

void Guest::set_paused(Cause why, Outputs& out) {
    const Scene scene(*this, &out,
                      [&] { return trace_in(why.empty() ? Input::go_on : Input::pause, {}, why); });
    pause_ = std::move(why);
    for (auto& [key, e] : jobs_)
        if (e.in<Running>()) settle_pause(e, out);
}

void Guest::settle_pause(Entry& e, Outputs& out) const {
    const bool pause = can_stop_ && !pause_.empty();
    if (e.pause_asked == pause) return;
    e.pause_asked = pause;
    effect(e, What::pause, out);
    std::get<Do>(out.back()).on = pause;
}

void Guest::on(Entry& e, const Paused& x, Outputs& out) const {
    if (!e.in<Running>() || x.on != e.pause_asked) return;  // a newer word is on its way
    e.paused = x.on && x.why.empty() ? pause_ : Cause();
    if (e.job.state == GuestState::running || e.job.state == GuestState::dump_ready) tell(e, out);
}

bool Guest::any_paused() const {
    return std::any_of(jobs_.begin(), jobs_.end(),
                       [](const auto& job) { return job.second.pause_asked; });
}

bool Guest::any_leaves() const {
    return std::any_of(jobs_.begin(), jobs_.end(), [](const auto& job) {
        const Entry& e = job.second;
        const auto* r = e.template in<Running>();
        if (r == nullptr) return e.template in<state::Closing>() != nullptr;
        const bool works = r->template in<motion::CriuComing>() ||
                           r->template in<motion::CriuReady>() ||
                           r->template in<motion::Making>() || r->template in<motion::Undoing>();
        // After a checkpoint it goes on.
        const bool saves =
            r->want == Want::save ||
            (r->cut == Cut::checkpoint && (r->want == Want::ready || r->want == Want::cut));
        return r->template in<motion::Precopy>() || (works && r->want != Want::run && !saves);
    });
}

std::vector<Guest::Left> Guest::left() const {
    std::vector<Left> all;
    for (const auto& [key, e] : jobs_)
        if (const auto* r = e.in<Running>(); r && !r->retained)
            all.push_back({key, in_place(e), in_place(e) && !e.job.by_order, e.job.memory_mb,
                           in_place(e) && !e.job.by_order ? e.why
                           : immovable(e)                 ? why_immovable(e)
                                                          : Trouble(),
                           e.paused});
    return all;
}

// Dumped, stopped by its lease, or being ended after that: it uses no CPU until it is let go on.
bool Guest::stands(const Entry& e) {
    const auto* making = e.moves<motion::Making>();
    const auto* closing = e.in<state::Closing>();
    return (making && making->all_stand) || e.moves<motion::Held>() || (closing && closing->stood);
}

bool Guest::runs(const Entry& e) {
    const auto* s = e.in<state::Starting>();
    const auto* h = e.in<state::Held>();
    const auto* r = e.in<Running>();
    // Told to go on, it may do so before that is known.
    const bool paused = e.pause_asked && !e.paused.empty();
    return (r && !r->retained && !stands(e) && !paused) || e.in<state::Filling>() ||
           (e.in<state::Closing>() && !stands(e)) ||  // until it is gone
           (s && s->step == state::Starting::Step::job) ||
           (h && h->release == state::Held::Release::under_way);
}

bool Guest::in_memory(const Entry& e) {
    using Step = state::Starting::Step;
    const auto* s = e.in<state::Starting>();  // of a component: its process waits
    const bool waits = s && (s->step == Step::holding || s->step == Step::held);
    return runs(e) || waits || e.in<Running>() || e.in<state::Closing>() ||
           e.in<state::Restoring>() || e.in<state::Held>();
}

Guest::Here Guest::here(const NodeName& self) const {
    Here here;
    bool said = false;  // who has a reason
    std::string image;
    for (const auto& [key, e] : jobs_) {
        const bool at_home = e.job.kept || (e.in<state::Frozen>() && key.id.home == self);
        if (at_home || e.in<state::Failed>()) continue;
        ++here.all;
        here.running += runs(e);
        const auto* r = e.in<Running>();
        here.going += (r && r->retained) || e.in<state::Closing>();
        here.going +=
            image_must_leave(e) && homes_up_.contains(key.id.home) && e.leaving.not_sent.empty();
        if (image.empty() && image_must_leave(e)) image = key.id.text() + " " + image_text(e);
        if (!in_memory(e)) continue;
        ++here.in_memory;
        here.memory_mb += e.job.memory_mb;
        const Trouble& why = in_place(e) ? e.why : r ? why_immovable(e) : e.leaving.looked;
        if (said || (!here.who.empty() && why.empty() && !runs(e))) continue;
        said = !why.empty();
        here.who = key.id.text() + ": " +
                   (said                     ? static_cast<const std::string&>(why)
                    : e.in<state::Closing>() ? "it is being ended"
                    : r && r->retained       ? "a copy elsewhere needs its memory"
                    : runs(e)                ? "it runs"
                                             : "it stands in memory");
    }
    here.going += static_cast<uint32_t>(leaving_.size());
    here.all += static_cast<uint32_t>(leaving_.size());
    if (here.in_memory == 0 && here.all > 0) {
        here.who = "images are on its disk";
        if (!image.empty()) here.who += ": " + image;
    }
    return here;
}

}  // namespace souk
