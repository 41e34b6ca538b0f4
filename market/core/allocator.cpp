// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/allocator.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernel/base/check.hpp"

namespace souk::market {

namespace {
bool guest_before(const Allocator::Guest& g, const Rank& r) { return g.rank < r; }

// Quarter octaves: four steps for each doubling.
size_t octave_of(int64_t memory_mb) {
    const auto mb = static_cast<uint64_t>(memory_mb);
    const auto width = static_cast<size_t>(std::bit_width(mb));
    return width < 3 ? mb : 4 * (width - 2) + ((mb >> (width - 3)) & 3);
}
}  // namespace

int32_t Allocator::speed_top() const {
    const ClassKey c = machine_order_.fastest();
    return c == class_none ? 0 : speed_max - static_cast<int32_t>(c >> 50);
}

bool Allocator::barred(ProviderKey provider, uint32_t j) const {
    const JobDetails& d = details_[j];
    if (d.only.n != 0 && d.only != provider) return true;
    if (d.barred && std::binary_search(d.barred->begin(), d.barred->end(), provider)) return true;
    if (!d.named) return false;
    const uint32_t m = find_machine(provider);
    return m != none &&
           !(has_named(machines_[m], j) && reserve_at(machines_[m], j) <= jobs_[j].value);
}

std::pair<Rank, bool> Allocator::displaced(const Machine& m, int32_t cpus, int64_t memory_mb,
                                           const Rank& rank) const {
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

void Allocator::touch(uint32_t j) {
    touched_carried_ |= jobs_[j].state != JobState::waiting;
    if (jobs_[j].touched) return;
    jobs_[j].touched = true;
    touched_.push_back(j);
}

void Allocator::set_bound(uint32_t j, ClassKey bound) {
    Job& job = jobs_[j];
    if (job.bound == bound) return;
    job.bound = bound;
    if (job.competing && !job.staged && !in_pass_) order_.set_bound(job.rank, bound);
}

// It is on m: what it would leave for.
void Allocator::look_from(uint32_t j, const Machine& m) {
    if (required(j)) return;  // a matter of its gang: process_gang
    set_bound(j, bound_at(j, m));
    if (minds_files(j)) details_[j].files->bound = home_bound_at(j, m);
}

// `place`: where the machine order has the machine, if that is known.
void Allocator::refresh(uint32_t m, MachineOrder::Place place) {
    const Machine& mc = machines_[m];
    if (!mc.spec.accepting) return;
    if (!place) place = machine_order_.find({mc.cls, mc.key.n});
    const Rank weakest = mc.guests.empty() ? Rank::top() : mc.guests.back().rank;
    machine_order_.update(place, mc.free_cpus, mc.free_mb, weakest);
}

// Jobs after `cursor` may find more room on this machine than they knew of.
void Allocator::open(uint32_t m, const Rank& cursor) {
    Machine& mc = machines_[m];
    if (!mc.spec.accepting || in_pass_) return;
    if (!gang_keys_.empty()) reconsider_unlike(mc, cursor);
    if (mc.open && mc.wake <= cursor) return;
    mc.cursor = mc.open ? std::min(mc.cursor, cursor) : cursor;
    mc.open = true;
    mc.wake = cursor;
    open_.push({cursor, m});
}

void Allocator::unseat(uint32_t j) {
    Job& job = jobs_[j];
    Machine& mc = machines_[job.slot];
    const Rank rank = guest_rank(j);
    room_version_ += rank.is_top();
    auto g = std::lower_bound(mc.guests.begin(), mc.guests.end(), rank, guest_before);
    while (g->job != j) ++g;
    mc.free_cpus += g->cpus;
    mc.free_mb += g->memory_mb;
    mc.guests.erase(g);
    if (job.named) hold_licences(j, false);
    refresh(job.slot);
    const uint32_t machine = std::exchange(job.slot, none);
    if (!required(j)) {
        open(machine, rank);
    } else {
        gang_of(j).clean = false;
        note_waiting(gang_of(j), true);
        open(machine, rank.is_top() ? rank : last_required(gang_of(j)));
    }
    touch(j);
}

// Takes a displaceable guest off its machine; it is looked at again in its turn.
void Allocator::evict(uint32_t j, Cause cause, uint32_t by) {
    Job& job = jobs_[j];
    unseat(j);
    set_bound(j, class_none);
    job.cause = cause;
    details_[j].by = by == none ? JobKey{} : jobs_[by].key();
    details_[j].by_value = by == none ? Money{} : weighed(jobs_[by].value, weight_of(by));
    if (!in_pass_) queue_.push({job.rank, j});
}

// Puts a job on a machine, at the cost of the weakest guests there.
void Allocator::seat(uint32_t j, uint32_t m, MachineOrder::Place place) {
    Job& job = jobs_[j];
    Machine& mc = machines_[m];
    const Rank rank = guest_rank(j);
    room_version_ += rank.is_top();
    while ((mc.free_cpus < job.cpus || mc.free_mb < job.memory_mb) && !mc.guests.empty() &&
           mc.guests.back().rank > rank)
        evict(mc.guests.back().job, assigned_ ? Cause::share : Cause::displaced, j);
    if (job.named) make_named_room(j, m);
    if (mc.guests.empty()) mc.guests.reserve(static_cast<size_t>(std::min(mc.spec.cpus, 8)));
    auto g = std::upper_bound(mc.guests.begin(), mc.guests.end(), rank,
                              [](const Rank& r, const Guest& x) { return r < x.rank; });
    mc.guests.insert(g, {rank, job.memory_mb, j, job.cpus});
    mc.free_cpus -= job.cpus;
    mc.free_mb -= job.memory_mb;
    job.slot = m;
    if (job.named) hold_licences(j, true);
    refresh(m, place);
    look_from(j, mc);
    touch(j);
}

// Chooses the first machine of the class of `better`, in order, that the job fits on at all: the
// one with its checkpoint, else the first with free room, else the one whose strongest displaced
// guest is the weakest.
MachineOrder::Place Allocator::choose(uint32_t j, const MachineOrder::Place& better, size_t start) {
    const Job& job = jobs_[j];
    const ClassKey cls = machine_order_[better].cls;
    auto free_here = [&](const MachineOrder::Entry& e) { return is_free(e, j) && suits(e, j); };
    if (job.state == JobState::frozen) {
        const uint32_t m = find_machine(details_[j].place);
        if (m != none && machines_[m].cls == cls) {
            const auto place = machine_order_.find({cls, machines_[m].key.n});
            if (free_here(machine_order_[place])) return place;
        }
    }
    if (free_here(machine_order_[better])) return better;
    if (const auto place = machine_order_.first(cls, cls + 1, job.cpus, job.memory_mb, rank_last,
                                                start, free_here))
        return place;
    Rank bar = job.rank;
    uint32_t best = none;
    machine_order_.each_weaker(cls, cls + 1, bar, [&](const MachineOrder::Entry& x) {
        if (!suits(x, j)) return;
        const auto [strongest, fits] = displaced(machines_[x.machine], j, bar);
        if (!fits) return;
        bar = strongest;
        best = x.machine;
    });
    MUST(best != none);
    return machine_order_.find({cls, machines_[best].key.n});
}

size_t Allocator::position_to_start(int32_t cpus, int64_t memory_mb) const {
    constexpr size_t octaves_back = 8;  // what is known of much smaller needs is seldom the most
    const TooSmall* const row = &too_small_[static_cast<size_t>(cpus) * octaves];
    const size_t octave = octave_of(memory_mb);
    size_t start = 0;
    for (size_t i = octave > octaves_back ? octave - octaves_back : 0; i <= octave; ++i)
        if (row[i].memory_mb <= memory_mb) start = std::max(start, row[i].from);
    return start;
}

// Nothing before this position has that much.
void Allocator::start_later(int32_t cpus, int64_t memory_mb, size_t position) {
    TooSmall& known = too_small_[static_cast<size_t>(cpus) * octaves + octave_of(memory_mb)];
    if (position >= known.from) known = {memory_mb, position};
}

// Its home, if that is of a class before `below`, has a place for it, and is worth at least what
// `better` is.
MachineOrder::Place Allocator::better_home(uint32_t j, const MachineOrder::Place& better,
                                           ClassKey below) {
    const uint32_t m = find_machine(details_[j].files->traffic.home);
    if (m == none) return {};
    const Machine& home = machines_[m];
    if (!home.spec.accepting || home.cls >= below) return {};
    if (!limits_.empty() && !admits(home.cls, jobs_[j].rank)) return {};
    const MachineOrder::Place place = machine_order_.find({home.cls, home.key.n});
    if (!has_place(machine_order_[place], j)) return {};
    if (better) {
        const Machine& other = machines_[machine_order_[better].machine];
        const auto worth = [&](const Machine& at) {
            return costs_.stay(moved(j), at.key, speed_top()).at(at.spec.speed);
        };
        if (worth(other) > worth(home)) return {};
    }
    return place;
}

// Finds the first job after the machine's cursor that runs elsewhere, has its files here and would
// come. (Jobs that run nowhere come to any machine.)
uint32_t Allocator::next_native(const Machine& m) const {
    if (natives_.empty() || rules().horizon.ns == 0 || assigned_) return none;
    const auto natives = natives_.find(m.key.n);
    if (natives == natives_.end()) return none;
    for (auto n = natives->second.upper_bound({m.cursor, UINT32_MAX}); n != natives->second.end();
         ++n) {
        const auto [rank, j] = *n;
        const Job& job = jobs_[j];
        if (job.slot == none || job.staged || details_[j].files->bound <= m.cls) continue;
        if (!eligible(m, j) || (!limits_.empty() && !admits(m.cls, rank))) continue;
        if (has_licences(j) && displaced(m, j, rank).second) return j;
    }
    return none;
}

// One job's turn: everybody ranked above it has its place.
void Allocator::process(uint32_t j) {
    const Job& job = jobs_[j];
    if (required(j)) return process_gang(gang_of(j));
    if (job.component && without_gang(j)) return;
    if (!has_licences(j)) {
        if (job.slot != none) unseat(j);
        return;
    }
    const bool keeps = job.slot != none;
    const bool could_stay =
        keeps || (job.at != none && eligible(machines_[job.at], j) &&
                  (limits_.empty() || admits(machines_[job.at].cls, job.rank)) &&
                  displaced(machines_[job.at], j, job.rank).second);
    const ClassKey below = keeps        ? job.bound
                           : could_stay ? bound_at(j, machines_[job.at])
                                        : class_none;
    machine_order_.close_until(job.rank);
    const bool hints = in_pass_ && !assigned_ && job.cpus < 32;
    const size_t start = hints ? position_to_start(job.cpus, job.memory_mb) : 0;
    MachineOrder::Place better =
        limits_.empty()
            ? machine_order_.first(0, below, job.cpus, job.memory_mb, job.rank, start,
                                   [&](const MachineOrder::Entry& e) { return has_place(e, j); })
            : search_limited(j, below, start);
    // A later job may pay what this one cannot, if ranks do not say who bids more.
    const bool for_all = !job.bars && (ranks_by_value() || job.value >= dearest_);
    if (hints && for_all && (better || below == class_none))
        start_later(job.cpus, job.memory_mb,
                    better ? MachineOrder::position(better) : machine_order_.end());
    const MachineOrder::Place nearer =
        !minds_files(j) ? MachineOrder::Place{}
                        : better_home(j, better,
                                      keeps        ? details_[j].files->bound
                                      : could_stay ? home_bound_at(j, machines_[job.at])
                                                   : class_none);
    if (nearer) better = nearer;
    const bool voluntary = could_stay && job.at != none;
    if (better && voluntary && rules().moves_max > 0 && tokens_ <= 0) {
        suppressed_ = true;
        better = {};
    }
    if (!better && !could_stay && !limits_.empty() && !plain()) better = search_free(j);
    if (!better) {
        if (!keeps && could_stay) seat(j, job.at);
        return;
    }
    if (keeps) unseat(j);
    if (job.at != none && rules().moves_max > 0) --tokens_;
    jobs_[j].voluntary = voluntary;
    if (voluntary) jobs_[j].cause = Cause::faster;
    const MachineOrder::Place place = nearer ? better : choose(j, better, start);
    seat(j, machine_order_[place].machine, place);
}

// The first job after the machine's cursor that would come here if it knew of the room; none: there
// is none.
uint32_t Allocator::next_candidate(Machine& m) {
    const uint32_t native = next_native(m);
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
    if (cpus <= 0) return native;
    const JobOrder::Entry* const first =
        order_.find_after(m.cursor, m.cls, cpus, mb, [&](const JobOrder::Entry& e) {
            using V = JobOrder::Verdict;
            if (native != none && jobs_[native].rank < e.rank) return V::stop;
            pass_guests_before(e.rank);
            if (cpus <= 0) return V::stop;
            if (e.cpus > cpus || e.memory_mb > mb) return V::no;
            if (!limits_.empty() && !admits(m.cls, e.rank)) {
                if (plain()) return V::stop;
                if (jobs_[e.job].slot != none || !worth_reserve(m, e.job)) return V::no;
            }
            // and so for everyone after it
            const bool poorer = ranks_by_value() && !assigned_;
            if (poorer && m.spec.reserve > jobs_[e.job].value) return V::stop;
            if (!eligible(m, e.job)) return V::no;
            if (!jobs_[e.job].named) return V::yes;
            return has_licences(e.job) && displaced(m, e.job, e.rank).second ? V::yes : V::no;
        });
    return first ? first->job : native;
}

// Takes up dirty jobs and opened machines in rank order until none is left.
void Allocator::run() {
    while (!queue_.empty() || !open_.empty()) {
        if (!queue_.empty() && (open_.empty() || queue_.top().rank <= open_.top().rank)) {
            const Due due = queue_.top();
            queue_.pop();
            const bool had_its_turn = required(due.index) && gang_of(due.index).clean;
            if (jobs_[due.index].competing && jobs_[due.index].rank == due.rank && !had_its_turn)
                process(due.index);
            continue;
        }
        const Due due = open_.top();
        open_.pop();
        Machine& m = machines_[due.index];
        if (!m.open || m.wake != due.rank) continue;  // reopened, closed or gone since
        const uint32_t j = next_candidate(m);
        if (j == none) {
            m.open = false;
            continue;
        }
        const Rank rank = jobs_[j].rank;
        const bool others_first = (!queue_.empty() && queue_.top().rank < rank) ||
                                  (!open_.empty() && open_.top().rank < rank);
        if (!others_first) {
            process(j);
            m.cursor = required(j) ? last_required(gang_of(j)) : rank;
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
    dearest_ = Money{};
    if (!ranks_by_value())
        for (const Machine& m : machines_) dearest_ = std::max(dearest_, m.spec.reserve);
    Rank end = rank_last;
    order_.take_each(
        [&](JobOrder::Entry& e) {
            if (follows(e.job)) {
                e.bound = jobs_[e.job].bound;
                return true;
            }
            const bool alone = !jobs_[e.job].component;
            const Rank turn = alone ? e.rank : rank_before(gang_of(e.job));
            if (machine_order_.close_until(turn) || (last_admitted_ < e.rank && plain())) {
                end = e.rank;
                return false;
            }
            process(e.job);
            e.bound = jobs_[e.job].bound;
            return true;
        },
        [&](const JobOrder::Entry& e) { return &jobs_[e.job]; });
    in_pass_ = false;
    for (const uint32_t j : touched_)  // displaced, and their turn did not come
        if (jobs_[j].competing && jobs_[j].rank >= end)
            order_.set_bound(jobs_[j].rank, jobs_[j].bound);
    machine_order_.tighten();
    for (Machine& m : machines_) m.open = false;
    queue_ = {};
    open_ = {};
}

void Allocator::solve(Nanos now) {
    begin(now);
    if (all_dirty_ || (dirty_.size() > 64 && dirty_.size() * 4 > order_.size())) {
        pass();
    } else {
        for (const uint32_t j : dirty_) {
            uint32_t first = j;
            if (required(j)) {
                gang_of(j).clean = false;
                first = leader(gang_of(j));
                if (first == none) {  // all are pinned: the optional ones may have lost them
                    for (const uint32_t o : gang_of(j).optional)
                        if (jobs_[o].competing) queue_.push({jobs_[o].rank, o});
                    continue;
                }
            }
            if (jobs_[first].competing) queue_.push({jobs_[first].rank, first});
        }
        run();
    }
    make_room();
    settle();
    emit(now);
}

void Allocator::solve_all(Nanos now) {
    all_dirty_ = true;
    solve(now);
}

}  // namespace souk::market
