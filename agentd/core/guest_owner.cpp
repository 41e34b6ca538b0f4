// SPDX-License-Identifier: GPL-2.0-or-later
// Guest, fourth part: jobs that cannot be dumped, and what the owner of the node wants of guests
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

}  // namespace

void Guest::note_trouble(Entry& e, const std::string& why) const {
    Entry::Troubles& t = e.troubles;
    std::string kind = kind_of(why);
    if (t.kind != kind) t = {std::move(kind), {}, 0, {}};
    t.why = why;
    ++t.count;
    t.until = clock_ + std::min(doubled(doubt_after, t.count - troubles_enough), doubt_after_max);
    owner_due_ = {};
}

void Guest::on_freeze(Entry& e, const GuestCommand& c, Outputs& out) const {
    if (c.or_stand && e.in_place && runs(e)) return tell(e, out);
    e.or_stand = c.or_stand;
    want(e, Want::freeze, out);
}

// On disk first: a group that is found frozen is then known not to be a dump's.
void Guest::begin_stand(Entry& e, Outputs& out) const {
    e.standing = true;
    e.want = Want::freeze;
    e.job.state = GuestState::running;
    e.job.in_place = true;
    out.push_back(Persist{e.job});
    effect(e, What::stand, out);
}

// As what is found held after a crash, but for no dump.
void Guest::stands_in_place(Entry& e) const {
    e.dump = Entry::Dump::held;
    e.want = Want::keep;
    e.criu = Entry::Criu::none;
    e.to_disk = e.to_keep = e.live = e.firm = false;
    e.in_place = e.image_lost = true;
    e.job.state = GuestState::dumping;
    if (immovable(e)) e.why = why_immovable(e);
    if (e.why.empty()) e.why = "it could not be dumped";
    if (e.stood_at.ns == 0) e.stood_at = clock_;
    e.dump_again = clock_ + doubled(dump_again_after, e.stand_tries);
    owner_due_ = {};
}

void Guest::on(Entry& e, Stood x, Outputs& out) {
    if (!std::exchange(e.standing, false) || e.ending != Ending::none || !runs(e)) return;
    const Want wanted = e.want;
    if (!x.why.empty()) {
        e.job.in_place = false;
        out.push_back(Persist{e.job, Durable::later});
        if (wanted != Want::freeze || e.kill_asked) return drive(e, out);
        e.want = Want::run;
        e.why = std::move(x.why);
        now_running(e, out);
        return e.why.clear();
    }
    stands_in_place(e);
    // An order to ship it that came meanwhile cannot be carried out: its home hears that it stands.
    if ((wanted == Want::freeze || wanted == Want::ship) && !e.kill_asked)
        return e.want = Want::freeze, tell(e, out);
    e.want = wanted;
    e.why.clear();
    drive(e, out);
}

void Guest::go_off_stand(Entry& e, Outputs& out) const {
    if (!std::exchange(e.in_place, false)) return;
    e.job.in_place = false;
    GuestJob running = e.job;
    running.state = GuestState::running;
    out.push_back(Persist{std::move(running), Durable::later});
    e.dump_again = Nanos::never();
    if (e.want == Want::freeze) return;  // one more try
    e.stood_at = {};
    e.stand_tries = 0;
}

Nanos Guest::leave_at(const Entry& e) const {
    return off_since_ + doubled(policy_.leave, e.leave_tries);
}

void Guest::kill_for_owner(Entry& e, Outputs& out) const {
    e.why = "it could not leave, and the owner of this node has such jobs killed after " +
            std::to_string(policy_.stand.ns / 1'000'000'000) + " s (" + e.why + ")";
    end_capsule(e, Ending::to_killed,
                e.dump == Entry::Dump::held ? What::finish_dump : What::kill_capsule, out);
    std::get<Do>(out.back()).by_owner = true;
}

// What the owner's bounds make due. What cannot be done in the middle of something else is looked
// at again.
void Guest::owner_tick(Nanos now, Outputs& out) {
    owner_due_ = Nanos::never();
    Nanos due = Nanos::never();
    const auto reached = [&](Nanos at, bool possible) {
        if (at == Nanos::never()) return false;
        if (now >= at && possible) return true;
        due = std::min(due, std::max(at, now + look_again));
        return false;
    };
    for (auto& [key, e] : jobs_) {
        if (!runs(e) || e.ending != Ending::none || e.retained) continue;
        const bool steady = !e.undoing && !e.standing && !e.over && !e.kill_asked;
        const bool goes_on = steady && (e.want == Want::run || e.want == Want::save);
        if (!accepting_ && !e.in_place && reached(leave_at(e), goes_on)) {
            ++e.leave_tries;
            e.why.clear();
            e.want = Want::freeze;
            e.or_stand = true;
            drive(e, out);
            due = std::min(due, leave_at(e));
        }
        if (e.in_place && !immovable(e) && reached(e.dump_again, steady)) {
            ++e.stand_tries;
            e.why.clear();
            e.want = Want::freeze;
            e.or_stand = true;
            drive(e, out);
        }
        // Not for trouble of the node's own, such as a full disk: that job may move when it is
        // over. Where nothing can be stopped in place, its time counts from when the owner left the
        // market.
        const bool stays = e.in_place
                               ? immovable(e)
                               : !can_stop_ && !accepting_ && e.stood_at.ns > 0 && immovable(e);
        const Nanos since = e.in_place ? e.stood_at : std::max(e.stood_at, off_since_);
        if (policy_.kill && stays && reached(since + policy_.stand, e.in_place ? steady : goes_on))
            kill_for_owner(e, out);
        if (e.troubles.count >= troubles_enough && !e.in_place &&
            reached(e.troubles.until, steady)) {
            const bool was = immovable(e);
            e.troubles.count = troubles_enough - 1;
            if (was && !immovable(e) && e.job.state == GuestState::running) tell(e, out);
        }
    }
    owner_due_ = std::min(owner_due_, due);
}

std::vector<Guest::Left> Guest::left() const {
    std::vector<Left> all;
    for (const auto& [key, e] : jobs_)
        if (runs(e) && !e.retained && e.ending == Ending::none)
            all.push_back({key, e.in_place, e.job.memory_mb,
                           e.in_place     ? e.why
                           : immovable(e) ? why_immovable(e)
                                          : std::string()});
    return all;
}

}  // namespace souk
