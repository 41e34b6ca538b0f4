// SPDX-License-Identifier: GPL-2.0-or-later
// Allocator: rules and rank orders, what time alone changes, and the changes that a solve made.
#include <algorithm>
#include <utility>

#include "market/core/allocator.hpp"

namespace souk::market {

void Allocator::rebound_all() {
    for (uint32_t j = 0; j < jobs_.size(); ++j) {
        const Job& job = jobs_[j];
        if (job.key().n != 0 && job.slot != none && job.competing)
            look_from(j, machines_[job.slot]);
    }
}

void Allocator::set_rules(const Rules& rules) {
    flush();
    costs_ = MoveCosts(rules);
    rebound_all();
    all_dirty_ = true;
    ++version_;
}

// Takes up what time alone has changed: stays that are over, moves that have left the window.
void Allocator::begin(Nanos now) {
    now_ = now;
    changes_.clear();
    changed_.clear();
    machine_order_.begin_pass();
    while (!stays_.empty() && stays_.front().at <= now) {
        const uint32_t j = find_job(stays_.front().job);
        stays_.pop_front();
        if (j == none || !jobs_[j].held || details_[j].stay_until > now) continue;
        const uint32_t m = jobs_[j].slot;
        unhold(j);
        trim(m);  // somebody may have been pinned there who found no room
        ++version_;
    }
    flush();
    while (!moves_.empty() && moves_.front() + rules().moves_window <= now) moves_.pop_front();
    tokens_ = rules().moves_max - static_cast<int32_t>(std::min<size_t>(moves_.size(), INT32_MAX));
    if (suppressed_ && tokens_ > 0) {
        suppressed_ = false;
        all_dirty_ = true;
    }
    if (fastest_ != machine_order_.fastest()) {
        fastest_ = machine_order_.fastest();
        if (rules().horizon.ns > 0) {  // gains are shares of the fastest speed
            rebound_all();
            all_dirty_ = true;
        }
    }
}

// Freezes, moves, thaws and starts; each in rank order, which is how a pass finds them.
struct Allocator::Turn {
    int group = 0;
    Rank rank;
    uint32_t change = 0;
    auto operator<=>(const Turn&) const = default;
};

Allocator::Turn Allocator::turn_of(uint32_t change) const {
    const ChangeKind kind = changes_[change].kind;
    const int group = kind == ChangeKind::freeze ? 0 : kind == ChangeKind::move ? 1 : 2;
    return {group, jobs_[changed_[change]].rank, change};
}

void Allocator::sort_changes() {
    std::vector<Turn> turns;
    turns.reserve(changes_.size());
    for (uint32_t i = 0; i < changes_.size(); ++i) turns.push_back(turn_of(i));
    std::sort(turns.begin(), turns.end());
    std::vector<Change> changes;
    std::vector<uint32_t> changed;
    changes.reserve(turns.size());
    changed.reserve(turns.size());
    for (const Turn& t : turns) {
        changes.push_back(changes_[t.change]);
        changed.push_back(changed_[t.change]);
    }
    changes_.swap(changes);
    changed_.swap(changed);
}

// Says what became of a job, which makes its new state. False: nothing did.
bool Allocator::change_of(uint32_t j, Change& c) {
    Job& job = jobs_[j];
    const bool voluntary = job.voluntary;
    const bool running = job.state == JobState::running;
    job.touched = job.voluntary = false;
    if (job.key().n == 0 || (job.slot == none && (!running || job.pin == Pin::stay))) return false;
    if (running && job.slot == job.at && job.slot != none) return false;
    c = {job.key(), ChangeKind::move,
         {},        job.slot == none ? ProviderKey{} : machines_[job.slot].key,
         job.cause, {},
         {}};
    if (job.state != JobState::waiting) c.from = place_of(j);
    if (job.slot == none) {
        c.kind = ChangeKind::freeze;
        details_[j].place = c.from;
    } else if (!running) {
        c.kind = job.state == JobState::frozen ? ChangeKind::thaw : ChangeKind::start;
        c.cause = job.pin == Pin::stay                                          ? Cause::pinned
                  : job.cause == Cause::adopted || job.cause == Cause::balanced ? job.cause
                                                                                : Cause::placed;
    }
    if (c.kind == ChangeKind::move && voluntary)
        c.cause =
            minds_files(j) && is_home(j, machines_[job.slot]) ? Cause::near_files : Cause::faster;
    if (c.cause == Cause::displaced || c.cause == Cause::share) {
        c.other = details_[j].by;
        c.other_value = details_[j].by_value;
    }
    job.at = job.slot;
    job.state = job.slot == none ? JobState::frozen : JobState::running;
    return true;
}

// From the plan to changes; the plan becomes the state.
void Allocator::emit(Nanos now) {
    constexpr size_t ahead = 12;
    bool sorted = true;
    Turn last;
    changes_.reserve(touched_.size());
    changed_.reserve(touched_.size());
    for (size_t i = 0; i < touched_.size(); ++i) {
        if (i + ahead < touched_.size()) __builtin_prefetch(&jobs_[touched_[i + ahead]], 1);
        Change c;
        if (!change_of(touched_[i], c)) continue;
        if (c.kind == ChangeKind::move && rules().moves_max > 0) moves_.push_back(now);
        changes_.push_back(c);
        changed_.push_back(touched_[i]);
        const Turn turn = turn_of(static_cast<uint32_t>(changes_.size() - 1));
        sorted = sorted && (changes_.size() == 1 || last < turn);
        last = turn;
    }
    touched_.clear();
    touched_carried_ = false;
    dirty_.clear();
    all_dirty_ = false;
    if (assigned_ || !changes_.empty()) ++version_;  // a turn has an order of its own
    std::erase_if(orphans_, [&](uint32_t j) { return !orphan(j); });
    if (!sorted) sort_changes();
    if (rules().min_stay.ns > 0) hold_placed(now);
}

// Whoever was placed stays for a while.
void Allocator::hold_placed(Nanos now) {
    for (size_t i = 0; i < changes_.size(); ++i) {
        const Job& job = jobs_[changed_[i]];
        if (changes_[i].kind == ChangeKind::freeze || job.pin != Pin::free || job.held ||
            job.component)
            continue;
        details_[changed_[i]].stay_until = now + rules().min_stay;
        stays_.push_back({now + rules().min_stay, job.key()});
        hold(changed_[i]);
    }
    for (const uint32_t j : touched_) jobs_[j].touched = false;
    touched_.clear();
}

Nanos Allocator::next_wake() const {
    Nanos wake = Nanos::never();
    for (const Expiry& e : stays_) {
        const uint32_t j = find_job(e.job);
        if (j == none || !jobs_[j].held) continue;
        wake = e.at;
        break;
    }
    if (suppressed_ && !moves_.empty())
        wake = std::min(wake, moves_.front() + rules().moves_window);
    return wake;
}

// The competing jobs have new ranks, in which they are listed: wherever the old ones were kept.
void Allocator::rerank(const std::vector<uint32_t>& jobs) {
    for (uint32_t m = 0; m < machines_.size(); ++m) {
        Machine& mc = machines_[m];
        if (mc.key.n == 0) continue;
        for (Guest& g : mc.guests)
            if (!g.rank.is_top()) g.rank = guest_rank(g.job);
        std::sort(mc.guests.begin(), mc.guests.end(),
                  [](const Guest& a, const Guest& b) { return a.rank < b.rank; });
        refresh(m);
    }
    order_ = {};
    natives_.clear();
    licences_.forget_ranks();
    for (uint32_t j = 0; named_jobs_ > 0 && j < jobs_.size(); ++j)
        if (jobs_[j].named && jobs_[j].slot != none) hold_licences(j, true);
    for (const uint32_t j : jobs) {
        if (jobs_[j].named) want_licences(j, true);
        order_.append(entry_of(j));
        if (jobs_[j].files) natives_[details_[j].files->traffic.home.n].insert({jobs_[j].rank, j});
    }
    rebound_all();
}

void Allocator::solve_in_order(const std::vector<uint32_t>& jobs, Nanos now) {
    flush();
    assigned_ = true;
    last_turn_ = INT64_MAX;
    int64_t turn = 0;
    for (const uint32_t j : jobs) jobs_[j].rank.first = turn++;
    rerank(jobs);
    solve_all(now);
}

void Allocator::rank_by_value(bool weights) {
    const bool weighs_anew = weights != weights_ && weighed_ > 0;
    weights_ = weights;
    if (!assigned_ && !weighs_anew) return;
    flush();
    assigned_ = false;
    std::vector<uint32_t> competing;
    order_.each([&](const JobOrder::Entry& e) {
        competing.push_back(e.job);
        return true;
    });
    for (uint32_t j = 0; j < jobs_.size(); ++j)
        if (jobs_[j].key().n != 0) jobs_[j].rank = rank_of(j);
    std::sort(competing.begin(), competing.end(),
              [&](uint32_t a, uint32_t b) { return jobs_[a].rank < jobs_[b].rank; });
    rerank(competing);
    all_dirty_ = true;
    ++version_;
}

void Allocator::adopt(const std::vector<uint32_t>& slots, Nanos now, Cause cause) {
    begin(now);
    std::vector<uint32_t> moving;
    for (uint32_t j = 0; j < jobs_.size(); ++j) {
        Job& job = jobs_[j];
        if (job.key().n == 0 || job.pin != Pin::free || job.slot == slots[j]) continue;
        if (job.held) unhold(j);
        moving.push_back(j);
    }
    flush();
    in_pass_ = true;  // nothing is to be taken up
    for (const uint32_t j : moving)
        if (jobs_[j].slot != none) unseat(j);
    in_pass_ = false;
    for (const uint32_t j : moving) {
        Job& job = jobs_[j];
        job.cause = cause;
        touch(j);
        set_bound(j, class_none);
        if (slots[j] != none) seat(j, slots[j]);
    }
    for (Machine& m : machines_) m.open = false;
    queue_ = {};
    open_ = {};
    emit(now);
    all_dirty_ = true;
}

// Jobs that run go back to the machine where they are, if another of its class has been given to
// them.

void Allocator::swap_places(uint32_t x, uint32_t y) {
    const uint32_t of_x = jobs_[x].slot, of_y = jobs_[y].slot;
    // equal classes: no bound changes, and the room that opens is looked at by the caller
    in_pass_ = true;
    unseat(x);
    unseat(y);
    seat(x, of_y);
    seat(y, of_x);
    in_pass_ = false;
}

// The machine where the data of the job lie that a move must carry: the job runs or its checkpoint
// is there.
uint32_t Allocator::home_of(uint32_t j) const {
    const Job& job = jobs_[j];
    return job.state == JobState::frozen ? find_machine(details_[j].place) : job.at;
}

// A job that was placed inside the class of its home, but elsewhere, goes back in exchange for the
// guest there whose staying saves the fewest bytes (and fewer than its own), if both fit and nobody
// else could use the room that this makes. Nobody who runs makes place for one who is thawed.
void Allocator::take_back(uint32_t d) {
    const Job& job = jobs_[d];
    const uint32_t home = home_of(d);
    const bool frozen = job.state == JobState::frozen;
    if (job.slot == home || minds_files(d) || lies_apart(d) || job.named) return;
    Machine& old = machines_[home];
    Machine& now = machines_[job.slot];
    if (!eligible(old, d)) return;
    uint32_t best = none;
    int64_t least = bytes_of(d);
    for (const Guest& g : old.guests) {
        const Job& x = jobs_[g.job];
        const bool runs_here = x.state == JobState::running && x.at == home;
        const int64_t saves = runs_here || (frozen && home_of(g.job) == home) ? bytes_of(g.job) : 0;
        if ((frozen && runs_here) || g.rank.is_top() || saves > least || saves >= bytes_of(d) ||
            !eligible(now, g.job) || minds_files(g.job) || lies_apart(g.job) || x.named)
            continue;
        if (old.free_cpus + x.cpus < job.cpus || old.free_mb + x.memory_mb < job.memory_mb)
            continue;
        if (now.free_cpus + job.cpus < x.cpus || now.free_mb + job.memory_mb < x.memory_mb)
            continue;
        least = saves;
        best = g.job;
    }
    if (best == none) return;
    swap_places(d, best);
    const auto [first, last] = std::minmax({guest_rank(d), guest_rank(best)});
    for (Machine* m : {&old, &now}) {
        m->cursor = Rank::top();
        if (next_candidate(*m) == none && !unlike_want(*m, first, last)) continue;
        swap_places(d, best);
        return;
    }
    Job& x = jobs_[best];
    if (frozen || x.at != home) return;
    x.cause = job.cause;
    details_[best].by = details_[d].by;
    details_[best].by_value = details_[d].by_value;
}

void Allocator::settle() {
    if (!touched_carried_) return;
    std::vector<uint32_t> movers;
    for (const uint32_t j : touched_) {
        const Job& job = jobs_[j];
        if (job.key().n == 0 || job.slot == none || !job.competing) continue;
        const uint32_t home = home_of(j);
        if (home != none && home != job.slot && machines_[home].cls == machines_[job.slot].cls)
            movers.push_back(j);
    }
    std::sort(movers.begin(), movers.end(), [&](uint32_t a, uint32_t b) {
        const bool runs_a = jobs_[a].state == JobState::running,
                   runs_b = jobs_[b].state == JobState::running;
        if (runs_a != runs_b) return runs_a;
        const int64_t x = bytes_of(a), y = bytes_of(b);
        return x != y ? x > y : jobs_[a].rank < jobs_[b].rank;
    });
    for (const uint32_t j : movers) take_back(j);
}

}  // namespace souk::market
