// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/turns.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "kernel/base/check.hpp"

namespace souk::market {

namespace {
// Quarter octaves: four steps for each doubling.
size_t octave_of(int64_t memory_mb) {
    const auto mb = static_cast<uint64_t>(memory_mb);
    const auto width = static_cast<size_t>(std::bit_width(mb));
    return width < 3 ? mb : 4 * (width - 2) + ((mb >> (width - 3)) & 3);
}
}  // namespace

// Chooses the first machine of the class of `better`, in order, that the job fits on at all: the
// one with its checkpoint, else the first with free room, else the one whose strongest displaced
// guest is the weakest.
MachineOrder::Place Turns::choose(uint32_t j, const MachineOrder::Place& better, size_t start) {
    const Job& job = jobs_[j];
    const ClassKey cls = order_[better].cls;
    auto free_here = [&](const MachineOrder::Entry& e) {
        return all_.is_free(e, j) && all_.suits(e, j);
    };
    if (job.state == JobState::frozen) {
        const uint32_t m = all_.find_machine(all_.details(j).place);
        if (m != none && machines_[m].cls == cls) {
            const auto place = order_.find({cls, machines_[m].key.n});
            if (free_here(order_[place])) return place;
        }
    }
    if (free_here(order_[better])) return better;
    if (const auto place =
            order_.first(cls, cls + 1, job.cpus, job.memory_mb, rank_last, start, free_here))
        return place;
    Rank bar = job.rank;
    uint32_t best = none;
    order_.each_weaker(cls, cls + 1, bar, [&](const MachineOrder::Entry& x) {
        if (!all_.suits(x, j)) return;
        const auto [strongest, fits] = all_.displaced(machines_[x.machine], j, bar);
        if (!fits) return;
        bar = strongest;
        best = x.machine;
    });
    MUST(best != none);
    return order_.find({cls, machines_[best].key.n});
}

size_t Turns::position_to_start(int32_t cpus, int64_t memory_mb) const {
    constexpr size_t octaves_back = 8;  // what is known of much smaller needs is seldom the most
    const TooSmall* const row = &too_small_[static_cast<size_t>(cpus) * octaves];
    const size_t octave = octave_of(memory_mb);
    size_t start = 0;
    for (size_t i = octave > octaves_back ? octave - octaves_back : 0; i <= octave; ++i)
        if (row[i].memory_mb <= memory_mb) start = std::max(start, row[i].from);
    return start;
}

// Nothing before this position has that much.
void Turns::start_later(int32_t cpus, int64_t memory_mb, size_t position) {
    TooSmall& known = too_small_[static_cast<size_t>(cpus) * octaves + octave_of(memory_mb)];
    if (position >= known.from) known = {memory_mb, position};
}

// The first machine of a class before `below` that admits the job and has a place for it.
MachineOrder::Place Turns::find_place(uint32_t j, ClassKey below, size_t start) {
    const Job& job = jobs_[j];
    const auto first = [&](ClassKey from, ClassKey to) {
        return order_.first(from, to, job.cpus, job.memory_mb, job.rank, start,
                            [&](const MachineOrder::Entry& e) { return all_.has_place(e, j); });
    };
    if (limits_.none()) return first(0, below);
    MachineOrder::Place found;
    limits_.each_range(job.rank, below, [&](ClassKey from, ClassKey to) {
        return static_cast<bool>(found = first(from, to));
    });
    return found;
}

// With migration-aware rules some stay where they are although others would be there by the limits.
// A job that has no place because of that takes one that is free and worth its reserve to it.
MachineOrder::Place Turns::find_free(uint32_t j) {
    const Job& job = jobs_[j];
    return order_.first(
        0, class_none, job.cpus, job.memory_mb, rank_last, 0, [&](const MachineOrder::Entry& e) {
            return all_.is_free(e, j) && all_.suits(e, j) && worth_reserve(machines_[e.machine], j);
        });
}

bool Turns::worth_reserve(const Machine& m, uint32_t j) const {
    return static_cast<__int128>(jobs_[j].value.micro) * m.spec.speed >=
           static_cast<__int128>(m.spec.reserve.micro) * all_.speed_top();
}

// Its home, if that is of a class before `below`, has a place for it, and is worth at least what
// `better` is.
MachineOrder::Place Turns::better_home(uint32_t j, const MachineOrder::Place& better,
                                       ClassKey below) {
    const uint32_t m = all_.find_machine(all_.details(j).files->traffic.home);
    if (m == none) return {};
    const Machine& home = machines_[m];
    if (!home.spec.accepting || home.cls >= below) return {};
    if (!limits_.admits(home.cls, jobs_[j].rank)) return {};
    const MachineOrder::Place place = order_.find({home.cls, home.key.n});
    if (!all_.has_place(order_[place], j)) return {};
    if (better) {
        const Machine& other = machines_[order_[better].machine];
        const auto worth = [&](const Machine& at) {
            return seats_.costs().stay(seats_.moved(j), at.key, all_.speed_top()).at(at.spec.speed);
        };
        if (worth(other) > worth(home)) return {};
    }
    return place;
}

// Finds the first job after the cursor that runs elsewhere, has its files here and would come.
// (Jobs that run nowhere come to any machine.)
uint32_t Turns::next_native(const Machine& m, const Rank& cursor) const {
    if (seats_.rules().horizon.ns == 0 || seats_.ranks().assigned()) return none;
    const auto* const natives = seats_.ranks().natives_of(m.key);
    if (!natives) return none;
    for (auto n = natives->upper_bound({cursor, UINT32_MAX}); n != natives->end(); ++n) {
        const auto [rank, j] = *n;
        const Job& job = jobs_[j];
        if (job.slot == none || job.staged || all_.details(j).files->bound <= m.cls) continue;
        if (!all_.eligible(m, j) || !limits_.admits(m.cls, rank)) continue;
        if (all_.has_licences(j) && all_.displaced(m, j, rank).second) return j;
    }
    return none;
}

bool Turns::can_stay_at(uint32_t j, const Machine& m) const {
    return all_.eligible(m, j) && limits_.admits(m.cls, jobs_[j].rank) &&
           all_.displaced(m, j, jobs_[j].rank).second;
}

// One job's turn: everybody ranked above it has its place.
void Turns::process(uint32_t j) {
    const Job& job = jobs_[j];
    if (all_.required(j)) return gangs_.process(all_.gang_of(j));
    if (job.component && gangs_.without_gang(j)) return;
    if (!all_.has_licences(j)) {
        if (job.slot != none) seats_.unseat(j);
        return;
    }
    const bool keeps = job.slot != none;
    const bool could_stay = keeps || (job.at != none && can_stay_at(j, machines_[job.at]));
    const ClassKey below = keeps        ? job.bound
                           : could_stay ? seats_.bound_at(j, machines_[job.at])
                                        : class_none;
    order_.close_until(job.rank);
    const bool hints = passing_ && !seats_.ranks().assigned() && job.cpus < 32;
    const size_t start = hints ? position_to_start(job.cpus, job.memory_mb) : 0;
    MachineOrder::Place better = find_place(j, below, start);
    // A later job may pay what this one cannot, if ranks do not say who bids more.
    const bool for_all = !job.bars && (seats_.ranks().by_value() || job.value >= dearest_);
    if (hints && for_all && (better || below == class_none))
        start_later(job.cpus, job.memory_mb,
                    better ? MachineOrder::position(better) : order_.end());
    const MachineOrder::Place nearer =
        !seats_.minds_files(j)
            ? MachineOrder::Place{}
            : better_home(j, better,
                          keeps        ? all_.details(j).files->bound
                          : could_stay ? seats_.home_bound_at(j, machines_[job.at])
                                       : class_none);
    if (nearer) better = nearer;
    const bool voluntary = could_stay && job.at != none;
    if (better && voluntary && !budget_.allows()) better = {};
    if (!better && !could_stay && !limits_.none() && !seats_.plain()) better = find_free(j);
    if (!better) {
        if (!keeps && could_stay) seats_.seat(j, job.at);
        return;
    }
    if (keeps) seats_.unseat(j);
    if (job.at != none) budget_.spend(1);
    seats_.set_voluntary(j, voluntary);
    if (voluntary) seats_.explain(j, Cause::faster);
    const MachineOrder::Place place = nearer ? better : choose(j, better, start);
    seats_.seat(j, order_[place].machine, place);
}

uint32_t Turns::next_candidate(const Machine& m, const Rank& cursor) const {
    const uint32_t native = next_native(m, cursor);
    auto g = m.guests.begin();
    int32_t cpus = m.spec.cpus;
    int64_t mb = m.spec.memory_mb;
    auto pass_guests_before = [&](const Rank& rank) {
        for (; g != m.guests.end() && g->rank <= rank; ++g) {
            cpus -= g->cpus;
            mb -= g->memory_mb;
        }
    };
    pass_guests_before(cursor);
    if (cpus <= 0) return native;
    const JobOrder::Entry* const first =
        seats_.order().find_after(cursor, m.cls, cpus, mb, [&](const JobOrder::Entry& e) {
            using V = JobOrder::Verdict;
            if (native != none && jobs_[native].rank < e.rank) return V::stop;
            pass_guests_before(e.rank);
            if (cpus <= 0) return V::stop;
            if (e.cpus > cpus || e.memory_mb > mb) return V::no;
            if (!limits_.admits(m.cls, e.rank)) {
                if (seats_.plain()) return V::stop;
                if (jobs_[e.job].slot != none || !worth_reserve(m, e.job)) return V::no;
            }
            // and so for everyone after it
            const bool poorer = seats_.ranks().by_value() && !seats_.ranks().assigned();
            if (poorer && m.spec.reserve > jobs_[e.job].value) return V::stop;
            if (!all_.eligible(m, e.job)) return V::no;
            if (!jobs_[e.job].named) return V::yes;
            return all_.has_licences(e.job) && all_.displaced(m, e.job, e.rank).second ? V::yes
                                                                                       : V::no;
        });
    return first ? first->job : native;
}

void Turns::run() {
    Agenda& agenda = seats_.agenda();
    while (!agenda.empty()) {
        if (agenda.job_is_next()) {
            const Agenda::Due due = agenda.take_job();
            const uint32_t j = due.index;
            const bool had_its_turn = all_.required(j) && all_.gang_of(j).clean;
            if (jobs_[j].competing && jobs_[j].rank == due.rank && !had_its_turn) process(j);
            continue;
        }
        const uint32_t m = agenda.take_machine();
        if (m == none) continue;
        const uint32_t j = next_candidate(machines_[m], agenda.cursor(m));
        if (j == none) {
            agenda.close(m);
            continue;
        }
        const Rank rank = jobs_[j].rank;
        if (!agenda.has_before(rank)) {
            process(j);
            agenda.set_cursor(m, all_.required(j) ? all_.last_required(all_.gang_of(j)) : rank);
        }
        agenda.look_again(m, rank);
    }
}

void Turns::repair() {
    Agenda& agenda = seats_.agenda();
    for (const uint32_t j : agenda.dirty()) {
        uint32_t first = j;
        if (all_.required(j)) {
            const Occupancy::Gang& g = all_.gang_of(j);
            seats_.note_turn(g, false);
            first = all_.leader(g);
            if (first == none) {  // all are pinned: the optional ones may have lost them
                for (const uint32_t o : g.optional)
                    if (jobs_[o].competing) agenda.queue(jobs_[o].rank, o);
                continue;
            }
        }
        if (jobs_[first].competing) agenda.queue(jobs_[first].rank, first);
    }
    run();
}

void Turns::pass() {
    seats_.agenda().pause(true);
    passing_ = true;
    too_small_.assign(32 * octaves, {});
    dearest_ = Money{};
    if (!seats_.ranks().by_value())
        for (const Machine& m : machines_) dearest_ = std::max(dearest_, m.spec.reserve);
    Rank end = rank_last;
    JobOrder& order = seats_.order();
    order.take_each(
        [&](JobOrder::Entry& e) {
            if (all_.follows(e.job)) {
                e.bound = jobs_[e.job].bound;
                return true;
            }
            const bool alone = !jobs_[e.job].component;
            const Rank turn = alone ? e.rank : all_.rank_before(all_.gang_of(e.job));
            if (order_.close_until(turn) || (limits_.last() < e.rank && seats_.plain())) {
                end = e.rank;
                return false;
            }
            process(e.job);
            e.bound = jobs_[e.job].bound;
            return true;
        },
        [&](const JobOrder::Entry& e) { return &jobs_[e.job]; });
    passing_ = false;
    for (const uint32_t j : seats_.touched())  // displaced, and their turn did not come
        if (jobs_[j].competing && jobs_[j].rank >= end)
            order.set_bound(jobs_[j].rank, jobs_[j].bound);
    order_.tighten();
    seats_.agenda().pause(false);
    seats_.agenda().clear();
}

// The classes are equal, so no bound changes, and the room that opens is looked at by the caller.
void Turns::swap_places(uint32_t x, uint32_t y) {
    const uint32_t of_x = jobs_[x].slot, of_y = jobs_[y].slot;
    seats_.agenda().pause(true);
    seats_.unseat(x);
    seats_.unseat(y);
    seats_.seat(x, of_y);
    seats_.seat(y, of_x);
    seats_.agenda().pause(false);
}

// The guest on the machine with the job's data whose staying there saves the fewest bytes, and
// fewer than the job's own, if both fit where the other is; none: there is none. Nobody who runs
// makes place for one who is thawed.
uint32_t Turns::exchange_for(uint32_t d) const {
    const Job& job = jobs_[d];
    const uint32_t home = all_.data_of(d);
    const bool frozen = job.state == JobState::frozen;
    const Machine &old = machines_[home], &now = machines_[job.slot];
    uint32_t best = none;
    int64_t least = all_.bytes_of(d);
    for (const Occupancy::Guest& g : old.guests) {
        const Job& x = jobs_[g.job];
        const bool runs_here = x.state == JobState::running && x.at == home;
        const int64_t saves =
            runs_here || (frozen && all_.data_of(g.job) == home) ? all_.bytes_of(g.job) : 0;
        if ((frozen && runs_here) || g.rank.is_top() || saves > least ||
            saves >= all_.bytes_of(d) || !all_.eligible(now, g.job) || seats_.minds_files(g.job) ||
            all_.lies_apart(g.job) || x.named)
            continue;
        if (old.free_cpus + x.cpus < job.cpus || old.free_mb + x.memory_mb < job.memory_mb)
            continue;
        if (now.free_cpus + job.cpus < x.cpus || now.free_mb + job.memory_mb < x.memory_mb)
            continue;
        least = saves;
        best = g.job;
    }
    return best;
}

// A job that was placed inside the class of the machine with its data, but elsewhere, goes back in
// exchange for a guest there, if nobody else could use the room that this makes.
void Turns::take_back(uint32_t d) {
    const Job& job = jobs_[d];
    const uint32_t home = all_.data_of(d);
    if (job.slot == home || seats_.minds_files(d) || all_.lies_apart(d) || job.named) return;
    const Machine &old = machines_[home], &now = machines_[job.slot];
    if (!all_.eligible(old, d)) return;
    const uint32_t best = exchange_for(d);
    if (best == none) return;
    swap_places(d, best);
    const auto [first, last] = std::minmax({all_.guest_rank(d), all_.guest_rank(best)});
    for (const Machine* m : {&old, &now}) {
        if (next_candidate(*m, Rank::top()) == none && !gangs_.unlike_want(*m, first, last))
            continue;
        swap_places(d, best);
        return;
    }
    if (job.state == JobState::frozen || jobs_[best].at != home) return;
    seats_.explain(best, job.cause, all_.details(d).by, all_.details(d).by_value);
}

void Turns::settle() {
    if (!seats_.carried()) return;
    std::vector<uint32_t> movers;
    for (const uint32_t j : seats_.touched()) {
        const Job& job = jobs_[j];
        if (job.key().n == 0 || job.slot == none || !job.competing) continue;
        const uint32_t home = all_.data_of(j);
        if (home != none && home != job.slot && machines_[home].cls == machines_[job.slot].cls)
            movers.push_back(j);
    }
    std::sort(movers.begin(), movers.end(), [&](uint32_t a, uint32_t b) {
        const bool runs_a = jobs_[a].state == JobState::running,
                   runs_b = jobs_[b].state == JobState::running;
        if (runs_a != runs_b) return runs_a;
        const int64_t x = all_.bytes_of(a), y = all_.bytes_of(b);
        return x != y ? x > y : jobs_[a].rank < jobs_[b].rank;
    });
    for (const uint32_t j : movers) take_back(j);
}

}  // namespace souk::market
