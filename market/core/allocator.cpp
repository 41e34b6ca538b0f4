// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/allocator.hpp"

#include <algorithm>
#include <bit>

#include "kernel/base/check.hpp"

namespace souk::market {

namespace {
using Wide = __int128;
constexpr Rank rank_last{INT64_MAX, INT64_MAX, UINT64_MAX};

bool guest_before(const Allocator::Guest& g, const Rank& r) { return g.rank < r; }

// Quarter octaves: four steps for each doubling.
size_t octave_of(int64_t memory_mb) {
    const auto mb = static_cast<uint64_t>(memory_mb);
    const auto width = static_cast<size_t>(std::bit_width(mb));
    return width < 3 ? mb : 4 * (width - 2) + ((mb >> (width - 3)) & 3);
}

Wide ceil_div(Wide a, Wide b) { return (a + b - 1) / b; }
}  // namespace

MoveCost move_cost(int64_t bytes, int64_t dirty_bytes_per_s, int64_t link_bytes_per_s) {
    int64_t in_pause = bytes;
    int64_t carried = bytes;
    if (dirty_bytes_per_s >= 0) {
        const Wide dirtied = static_cast<Wide>(bytes) * dirty_bytes_per_s / link_bytes_per_s;
        in_pause = static_cast<int64_t>(std::min<Wide>(bytes, dirtied));
        carried = bytes + in_pause;
    }
    const Wide pause = static_cast<Wide>(in_pause) * 1'000'000'000 / link_bytes_per_s;
    return {carried, Nanos{static_cast<int64_t>(std::min<Wide>(pause, INT64_MAX))}};
}

int32_t Allocator::speed_top() const {
    const ClassKey c = machine_order_.fastest();
    return c == class_none ? 0 : speed_max - static_cast<int32_t>(c >> 50);
}

bool Allocator::eligible(const Machine& m, const Job& j) const {
    if (!m.spec.accepting || m.spec.reserve > j.value) return false;
    return !j.barred || std::find(j.barred->begin(), j.barred->end(), m.key) == j.barred->end();
}

std::pair<Rank, bool> Allocator::displaced(const Machine& m, int32_t cpus, int64_t memory_mb, const Rank& rank) const {
    int32_t c = m.free_cpus;
    int64_t mb = m.free_mb;
    Rank strongest = Rank::top();
    for (size_t i = m.guests.size(); c < cpus || mb < memory_mb; --i) {
        if (i == 0 || m.guests[i - 1].rank <= rank) return {strongest, false};
        c += m.guests[i - 1].cpus;
        mb += m.guests[i - 1].memory_mb;
        strongest = m.guests[i - 1].rank;
    }
    return {strongest, true};
}

// The least class bound that makes a move worth its cost, from value x cpus x (s' - s)/s_1 x H >= cost. Spans in
// milliseconds, so that all products stay below 2^120.
ClassKey Allocator::bound_at(const Job& j, const Machine& m) const {
    if (assigned_) return 0;
    if (rules_.horizon.ns == 0) return m.cls;
    const MoveCost cost = move_cost(bytes_of(j), j.dirty_bytes_per_s, rules_.link_bytes_per_s);
    const Wide per_ms = static_cast<Wide>(j.value.micro) * j.cpus;
    const Wide pause_ms = std::min<Wide>(ceil_div(cost.pause.ns, 1'000'000), 1LL << 36);  // two years
    const Wide money = ceil_div(static_cast<Wide>(cost.bytes) * rules_.byte_cost_per_gb.micro, 1'000'000'000);
    const Wide lost = per_ms * m.spec.speed * pause_ms + money * speed_top() * 3'600'000;
    if (lost == 0) return m.cls;
    const Wide gained = per_ms * std::max<int64_t>(1, rules_.horizon.ns / 1'000'000);
    if (gained == 0) return 0;
    const Wide step = ceil_div(lost, gained);
    return step > speed_max ? 0 : bound_of_speed(m.spec.speed + static_cast<int64_t>(step));
}

void Allocator::touch(uint32_t j) {
    if (jobs_[j].touched) return;
    jobs_[j].touched = true;
    touched_.push_back(j);
}

void Allocator::set_bound(Job& j, ClassKey bound) {
    if (j.bound == bound) return;
    j.bound = bound;
    if (j.competing && !j.staged && !in_pass_)
        order_.set_bound(static_cast<uint32_t>(&j - jobs_.data()), j.rank, bound);
}

void Allocator::refresh(uint32_t m) {
    const Machine& mc = machines_[m];
    if (!mc.spec.accepting) return;
    const Rank weakest = mc.guests.empty() ? Rank::top() : mc.guests.back().rank;
    machine_order_.update(m, mc.free_cpus, mc.free_mb, weakest);
}

// Jobs after `cursor` may find more room on this machine than they knew of.
void Allocator::open(uint32_t m, const Rank& cursor) {
    Machine& mc = machines_[m];
    if (!mc.spec.accepting || in_pass_) return;
    if (mc.open && mc.wake <= cursor) return;
    mc.cursor = mc.open ? std::min(mc.cursor, cursor) : cursor;
    mc.open = true;
    mc.wake = cursor;
    open_.push({cursor, m});
}

void Allocator::unseat(uint32_t j) {
    Job& job = jobs_[j];
    Machine& mc = machines_[job.slot];
    const Rank rank = job.held || job.pin == Pin::stay ? Rank::top() : job.rank;
    auto g = std::lower_bound(mc.guests.begin(), mc.guests.end(), rank, guest_before);
    while (g->job != j) ++g;
    mc.free_cpus += g->cpus;
    mc.free_mb += g->memory_mb;
    mc.guests.erase(g);
    refresh(job.slot);
    open(job.slot, rank);
    job.slot = none;
    touch(j);
}

// Takes a displaceable guest off its machine; it is looked at again in its turn.
void Allocator::evict(uint32_t j, Cause cause, uint32_t by) {
    Job& job = jobs_[j];
    unseat(j);
    set_bound(job, class_none);
    job.cause = cause;
    job.by = by == none ? JobKey{} : jobs_[by].key;
    job.by_value = by == none ? Money{} : jobs_[by].value;
    if (!in_pass_) queue_.push({job.rank, j});
}

// Puts a job on a machine, at the cost of the weakest guests there.
void Allocator::seat(uint32_t j, uint32_t m) {
    Job& job = jobs_[j];
    Machine& mc = machines_[m];
    const Rank rank = job.held || job.pin == Pin::stay ? Rank::top() : job.rank;
    while ((mc.free_cpus < job.cpus || mc.free_mb < job.memory_mb) && !mc.guests.empty() &&
           mc.guests.back().rank > rank)
        evict(mc.guests.back().job, assigned_ ? Cause::share : Cause::displaced, j);
    auto g = std::upper_bound(mc.guests.begin(), mc.guests.end(), rank,
                              [](const Rank& r, const Guest& x) { return r < x.rank; });
    mc.guests.insert(g, {rank, job.memory_mb, j, job.cpus});
    mc.free_cpus -= job.cpus;
    mc.free_mb -= job.memory_mb;
    job.slot = m;
    refresh(m);
    set_bound(job, bound_at(job, mc));
    touch(j);
}

// A machine of this class for a job that is known to fit on one: where its checkpoint is, else the first with free
// room, else the one whose strongest displaced guest is the weakest.
uint32_t Allocator::choose(const Job& j, ClassKey cls, size_t start) {
    auto free_here = [&](const Machine& m) {
        return m.free_cpus >= j.cpus && m.free_mb >= j.memory_mb && eligible(m, j);
    };
    if (j.state == JobState::frozen) {
        const uint32_t m = find_machine(j.place);
        if (m != none && machines_[m].cls == cls && free_here(machines_[m])) return m;
    }
    if (const auto* e =
            machine_order_.find(cls, cls + 1, j.cpus, j.memory_mb, rank_last, start,
                                [&](const MachineOrder::Entry& x) { return free_here(machines_[x.machine]); }))
        return e->machine;
    Rank bar = j.rank;
    uint32_t best = none;
    machine_order_.each_weaker(cls, cls + 1, bar, [&](const MachineOrder::Entry& x) {
        const Machine& m = machines_[x.machine];
        if (!eligible(m, j)) return;
        const auto [strongest, fits] = displaced(m, j.cpus, j.memory_mb, bar);
        if (!fits) return;
        bar = strongest;
        best = x.machine;
    });
    MUST(best != none);
    return best;
}

size_t Allocator::block_to_start(const Job& j, size_t row) const {
    size_t start = 0;
    const size_t octave = octave_of(j.memory_mb);
    for (size_t i = octave > 8 ? octave - 8 : 0; i <= octave; ++i)
        if (too_small_[row + i].memory_mb <= j.memory_mb) start = std::max(start, too_small_[row + i].block);
    return start;
}

// One job's turn: everybody ranked above it has its place.
void Allocator::process(uint32_t j) {
    Job& job = jobs_[j];
    const bool keeps = job.slot != none;
    const bool could_stay = keeps || (job.at != none && eligible(machines_[job.at], job) &&
                                      displaced(machines_[job.at], job.cpus, job.memory_mb, job.rank).second);
    const ClassKey below = keeps ? job.bound : could_stay ? bound_at(job, machines_[job.at]) : class_none;
    machine_order_.close_until(job.rank);
    const bool hints = in_pass_ && !assigned_ && job.cpus < 32;
    const size_t row = static_cast<size_t>(job.cpus) * octaves;
    const size_t start = hints ? block_to_start(job, row) : 0;
    const auto* better =
        machine_order_.find(0, below, job.cpus, job.memory_mb, job.rank, start, [&](const MachineOrder::Entry& e) {
            if (e.free_cpus >= job.cpus && e.free_mb >= job.memory_mb) return eligible(machines_[e.machine], job);
            const Machine& m = machines_[e.machine];
            return eligible(m, job) && displaced(m, job.cpus, job.memory_mb, job.rank).second;
        });
    if (hints && !job.barred && (better || below == class_none)) {
        TooSmall& known = too_small_[row + octave_of(job.memory_mb)];
        const size_t block = better ? machine_order_.block_of(*better) : machine_order_.blocks();
        if (block >= known.block) known = {job.memory_mb, block};
    }
    const bool voluntary = could_stay && job.at != none;
    if (better && voluntary && rules_.moves_max > 0 && tokens_ <= 0) {
        suppressed_ = true;
        better = nullptr;
    }
    if (!better) {
        if (!keeps && could_stay) seat(j, job.at);
        return;
    }
    const ClassKey cls = better->cls;
    if (keeps) unseat(j);
    if (job.at != none && rules_.moves_max > 0) --tokens_;
    job.voluntary = voluntary;
    if (voluntary) job.cause = Cause::faster;
    seat(j, choose(job, cls, start));
}

// The first job after the machine's cursor that would come here if it knew of the room.
const JobOrder::Entry* Allocator::next_candidate(Machine& m) {
    auto g = m.guests.begin();
    int32_t cpus = m.spec.cpus;
    int64_t mb = m.spec.memory_mb;
    auto pass_guests_before = [&](const Rank& rank) {
        for (; g != m.guests.end() && g->rank <= rank; ++g) {
            cpus -= g->cpus;
            mb -= g->memory_mb;
        }
    };
    pass_guests_before(m.cursor);
    if (cpus <= 0) return nullptr;
    return order_.find_after(m.cursor, m.cls, cpus, mb, [&](const JobOrder::Entry& e) {
        using V = JobOrder::Verdict;
        pass_guests_before(e.rank);
        if (cpus <= 0) return V::stop;
        if (e.cpus > cpus || e.memory_mb > mb) return V::no;
        const Job& j = jobs_[e.job];
        if (m.spec.reserve > j.value && !assigned_) return V::stop;  // and so for everyone after it
        return eligible(m, j) ? V::yes : V::no;
    });
}

// Takes up dirty jobs and opened machines in rank order until none is left.
void Allocator::run() {
    while (!queue_.empty() || !open_.empty()) {
        if (!queue_.empty() && (open_.empty() || queue_.top().rank <= open_.top().rank)) {
            const Due due = queue_.top();
            queue_.pop();
            if (jobs_[due.index].competing && jobs_[due.index].rank == due.rank) process(due.index);
            continue;
        }
        const Due due = open_.top();
        open_.pop();
        Machine& m = machines_[due.index];
        if (!m.open || m.wake != due.rank) continue;  // reopened, closed or gone since
        const JobOrder::Entry* e = next_candidate(m);
        if (!e) {
            m.open = false;
            continue;
        }
        const Rank rank = e->rank;
        const bool others_first =
            (!queue_.empty() && queue_.top().rank < rank) || (!open_.empty() && open_.top().rank < rank);
        if (!others_first) {
            process(e->job);
            m.cursor = rank;
        }
        if (m.open) {
            m.wake = rank;
            open_.push({rank, due.index});
        }
    }
}

// The definition: every job in rank order.
void Allocator::pass() {
    in_pass_ = true;
    too_small_.assign(32 * octaves, {});
    order_.each([&](JobOrder::Entry& e) {
        if (machine_order_.close_until(e.rank)) return false;
        process(e.job);
        return true;
    });
    in_pass_ = false;
    order_.each([&](JobOrder::Entry& e) {
        e.bound = jobs_[e.job].bound;
        return true;
    });
    order_.tighten();
    for (Machine& m : machines_) m.open = false;
    queue_ = {};
    open_ = {};
}

void Allocator::swap_places(uint32_t x, uint32_t y) {
    const uint32_t of_x = jobs_[x].slot, of_y = jobs_[y].slot;
    in_pass_ = true;  // equal classes: no bound changes, and the room that opens is looked at by the caller
    unseat(x);
    unseat(y);
    seat(x, of_y);
    seat(y, of_x);
    in_pass_ = false;
}

// A job that moved inside its class goes back in exchange for the guest there whose staying saves the fewest bytes (and
// fewer than its own), if both fit and nobody else could use the room that this makes.
void Allocator::take_back(uint32_t d) {
    const Job& job = jobs_[d];
    if (job.slot == job.at) return;
    Machine& old = machines_[job.at];
    Machine& now = machines_[job.slot];
    if (!eligible(old, job)) return;
    uint32_t best = none;
    int64_t least = bytes_of(job);
    for (const Guest& g : old.guests) {
        const Job& x = jobs_[g.job];
        const int64_t saves = x.at == job.at ? bytes_of(x) : 0;
        if (g.rank.is_top() || saves > least || saves >= bytes_of(job) || !eligible(now, x)) continue;
        if (old.free_cpus + x.cpus < job.cpus || old.free_mb + x.memory_mb < job.memory_mb) continue;
        if (now.free_cpus + job.cpus < x.cpus || now.free_mb + job.memory_mb < x.memory_mb) continue;
        least = saves;
        best = g.job;
    }
    if (best == none) return;
    swap_places(d, best);
    for (Machine* m : {&old, &now}) {
        m->cursor = Rank::top();
        if (!next_candidate(*m)) continue;
        swap_places(d, best);
        return;
    }
    Job& x = jobs_[best];
    if (x.at != job.at) return;
    x.cause = job.cause;
    x.by = job.by;
    x.by_value = job.by_value;
}

void Allocator::settle() {
    std::vector<uint32_t> movers;
    for (const uint32_t j : touched_) {
        const Job& job = jobs_[j];
        if (job.key.n == 0 || job.at == none || job.slot == none || job.at == job.slot || !job.competing) continue;
        if (machines_[job.at].cls == machines_[job.slot].cls) movers.push_back(j);
    }
    std::sort(movers.begin(), movers.end(), [&](uint32_t a, uint32_t b) {
        const int64_t x = bytes_of(jobs_[a]), y = bytes_of(jobs_[b]);
        return x != y ? x > y : jobs_[a].rank < jobs_[b].rank;
    });
    for (const uint32_t j : movers) take_back(j);
}

void Allocator::solve(Nanos now) {
    begin(now);
    if (all_dirty_ || (dirty_.size() > 64 && dirty_.size() * 4 > order_.size())) {
        pass();
    } else {
        for (const uint32_t j : dirty_)
            if (jobs_[j].competing) queue_.push({jobs_[j].rank, j});
        run();
    }
    settle();
    emit(now);
}

void Allocator::solve_all(Nanos now) {
    all_dirty_ = true;
    solve(now);
}

}  // namespace souk::market
