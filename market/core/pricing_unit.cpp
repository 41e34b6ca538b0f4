// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/pricing_unit.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <span>
#include <tuple>

#include "kernel/base/check.hpp"
#include "market/core/pricing_integral.hpp"

namespace souk::market {
namespace {

using Wide = __int128;
using SolverJob = Allocator::Job;
using Machine = Allocator::Machine;
constexpr uint32_t no_place = UINT32_MAX;  // no place, no bid
constexpr uint32_t never = UINT32_MAX;     // of times, which count the bids that have chosen

// The competing jobs in rank order, and where the greedy from nothing puts them.
class Base {
  public:
    struct Bid {
        uint32_t job;
        bool bars;
        Money value;
        Rank rank;
        uint32_t place = no_place;
        // the first bid after it that takes its place when that is the hole
        uint32_t taker = no_place;
        // that takes the hole from there, on its way, out of places of that speed
        uint32_t slower = no_place;
        uint32_t rest =
            no_place;  // slower is no_place: the place of that speed where the hole stays
    };
    struct Class {            // machines of one speed and reserve
        uint32_t begin, end;  // of places
        int32_t speed;
        Money reserve;
        uint32_t full = 0;  // when its last place was taken
        // a bid that falls finds no room there any more at this: the bid that filled it, or its
        // reserve
        Money lost_at{};
        Money lowest{};  // of those of this class and all before it
    };

    explicit Base(Allocator& market) : market_(market), places_(empty_machines(market)) {}

    // Lets everybody choose: until no place is left and the hole of a payer of rank `last` and all
    // before is gone, as who comes then changes nothing. False: the market is not of that kind.
    bool seat(const Rank& last) {
        std::vector<int32_t> room;
        for (const EmptyMachine& m : places_) room.push_back(std::max(m.cpus, 0));
        for (const int32_t cpus : room) filled_.push_back(cpus > 0 ? never : 0);
        open_.resize(places_.size() + 1);
        std::iota(open_.begin(), open_.end(), 0U);
        bool fits = true;
        market_.order().each_after(Rank::top(), [&](const JobOrder::Entry& e) {
            const SolverJob& job = market_.jobs()[e.job];
            fits = e.cpus == 1 && (bids_.empty() || job.value <= bids_.back().value);
            if (!fits) return false;
            memory_max_ = std::max(memory_max_, e.memory_mb);
            bids_.push_back({e.job, job.bars, job.value, e.rank});
            choose(bids_.back(), room);
            return first_open(0) < places_.size() || job.bars || bids_.back().place != no_place ||
                   e.rank <= last;
        });
        const auto suits = [&](const EmptyMachine& m) { return has_memory(m.cpus, m.memory_mb); };
        return fits && std::all_of(places_.begin(), places_.end(), suits);
    }
    // Whether every job that may come to such a machine finds its memory there.
    bool has_memory(int32_t cpus, int64_t memory_mb) const {
        return cpus <= 0 || memory_mb / cpus >= memory_max_;
    }

    // Reckons what becomes of holes.
    void reckon() {
        for (uint32_t p = 0; p < places_.size(); ++p) {
            const EmptyMachine& m = places_[p];
            if (classes_.empty() || classes_.back().speed != m.speed ||
                classes_.back().reserve != m.reserve)
                classes_.push_back({p, p, m.speed, m.reserve});
            classes_.back().end = p + 1;
        }
        for (Class& c : classes_) {
            for (uint32_t p = c.begin; p < c.end; ++p) c.full = std::max(c.full, filled_[p]);
            c.lost_at = lost_at(c, c.full);
            c.lowest = &c == &classes_.front() ? c.lost_at : std::min(c.lost_at, (&c)[-1].lowest);
        }
        highest_.assign(bids_.size() / width + 1, 0);
        for (size_t b = 0; b < bids_.size(); ++b)
            highest_[b / width] = std::max(highest_[b / width], bids_[b].place);
        for (uint32_t b = static_cast<uint32_t>(bids_.size()); b-- > 0;) {
            Bid& bid = bids_[b];
            if (bid.place == no_place) continue;
            bid.taker = first_taker(bid.place, b + 1);
            const auto [slower, rest] = leaves(bid.place, bid.taker);
            bid.slower = slower;
            bid.rest = rest;
        }
    }
    // `taker` takes a hole at `place` first. Says who takes the hole out of places of that speed
    // (or none), and, if none, where it stays.
    std::pair<uint32_t, uint32_t> leaves(uint32_t place, uint32_t taker) const {
        if (taker == no_place) return {no_place, place};
        const Bid& next = bids_[taker];
        if (next.place == no_place || places_[next.place].speed != places_[place].speed)
            return {taker, no_place};
        return {next.slower, next.rest};
    }
    // At which bid a class is lost of which the last place was taken at `full`.
    Money lost_at(const Class& c, uint32_t full) const {
        if (full == 0) return Money{INT64_MAX};
        return full == never ? c.reserve : std::max(c.reserve, bids_[full - 1].value);
    }

    // The first bid from `from` on that would take a hole at `place`.
    uint32_t first_taker(uint32_t place, uint32_t from) const {
        for (uint32_t b = from; b < bids_.size(); ++b) {
            if (b % width == 0 && highest_[b / width] <= place) {
                b += width - 1;
                continue;
            }
            const Bid& bid = bids_[b];
            if (bid.value < places_[place].reserve) return no_place;
            if (bid.place != no_place && bid.place <= place) continue;
            if (!bid.bars || !barred(place, bid.job)) return b;
        }
        return no_place;
    }
    bool barred(uint32_t place, uint32_t job) const {
        return market_.barred(market_.machines()[places_[place].machine].key, job);
    }

    const std::vector<Bid>& bids() const { return bids_; }
    const std::vector<EmptyMachine>& places() const { return places_; }
    const std::vector<Class>& classes() const { return classes_; }
    uint32_t filled(uint32_t place) const { return filled_[place]; }
    int64_t memory_max() const { return memory_max_; }

  private:
    static constexpr uint32_t width = 64;

    // The first place from `p` on that has not left. They leave for good when they are full, and
    // when their reserve is above a bid, as the next ones are not higher.
    uint32_t first_open(uint32_t p) {
        while (open_[p] != p) p = open_[p] = open_[open_[p]];
        return p;
    }
    void choose(Bid& bid, std::vector<int32_t>& room) {
        for (uint32_t p = first_open(0); p < places_.size(); p = first_open(p + 1)) {
            if (room[p] == 0 || places_[p].reserve > bid.value) {
                open_[p] = p + 1;
                continue;
            }
            if (bid.bars && barred(p, bid.job)) continue;
            bid.place = p;
            if (--room[p] == 0) filled_[p] = static_cast<uint32_t>(bids_.size());
            return;
        }
    }

    Allocator& market_;
    std::vector<EmptyMachine> places_;
    std::vector<Bid> bids_;
    std::vector<Class> classes_;  // in the order of choice
    // by place: how many bids had chosen when it was full; 0: from the start
    std::vector<uint32_t> filled_;
    std::vector<uint32_t> highest_;  // the last place in each stretch of bids
    std::vector<uint32_t> open_;
    int64_t memory_max_ = 0;
};

// Finds what one job pays. Its bars are places that are none for it.
class Payer {
  public:
    Payer(const Base& base, const SolverJob& q, std::vector<uint32_t> barred)
        : base_(base), q_(q), barred_(std::move(barred)) {
        for (const uint32_t p : barred_) {  // when a class is full for it
            const auto& classes = base_.classes();
            const auto c = std::upper_bound(
                classes.begin(), classes.end(), p,
                [](uint32_t place, const Base::Class& x) { return place < x.end; });
            if (!full_.empty() && full_.back().first == c - classes.begin()) continue;
            uint32_t full = 0;
            for (uint32_t i = c->begin; i < c->end; ++i)
                if (!is_barred(i)) full = std::max(full, base_.filled(i));
            full_.emplace_back(c - classes.begin(), full);
        }
    }

    // The sum over all steps of speed x bid that it had to beat. `own`: the speed that it has;
    // `hole` as it begins, `taker` of that. Its bid falls from its value: at each level the others'
    // bids above it have chosen.
    Wide sum(int32_t own, uint32_t hole, uint32_t taker) {
        own_ = own;
        hole_ = hole;
        taker_ = taker;
        if (hole_ != no_place && barred_.empty())
            std::tie(taker_, rest_) = base_.leaves(hole, taker);
        Money level = q_.value;
        int32_t within = speed_below(level);
        Wide sum = static_cast<Wide>(own - within) * level.micro;
        while (within > 0) {
            Money next = base_lost_at(within);
            if (hole_speed(level) >= within) next = std::min(next, hole_lost_at());
            MUST(next < level);
            level = next;
            const int32_t left = speed_below(level);
            sum += static_cast<Wide>(within - left) * level.micro;
            within = left;
        }
        return sum;
    }

  private:
    bool is_barred(uint32_t place) const {
        return std::binary_search(barred_.begin(), barred_.end(), place);
    }

    // A bid just below `level` would get this speed; levels never step up.
    int32_t speed_below(Money level) {
        while (taker_ != no_place && base_.bids()[taker_].value >= level) {
            const Base::Bid& b = base_.bids()[taker_];
            hole_ = b.place;
            taker_ = barred_.empty() ? b.slower : b.taker;
            rest_ = b.rest;
        }
        return std::max(hole_speed(level), base_speed(level));
    }
    int32_t hole_speed(Money level) const {
        if (hole_ == no_place || hole_lost_at() >= level || is_barred(hole_)) return 0;
        return std::min(own_, base_.places()[hole_].speed);
    }
    Money hole_lost_at() const {
        if (taker_ != no_place) return base_.bids()[taker_].value;
        return base_.places()[barred_.empty() ? rest_ : hole_].reserve;
    }

    // Without bars, by bisection of what is the same for all; with bars, in a walk down the
    // classes.
    int32_t base_speed(Money level) {
        const auto& classes = base_.classes();
        if (barred_.empty()) {
            const auto at =
                std::partition_point(classes.begin(), classes.end(),
                                     [&](const Base::Class& c) { return c.lowest >= level; });
            return at == classes.end() ? 0 : std::min(own_, at->speed);
        }
        while (open_ < classes.size() && lost_at(open_) >= level) ++open_;
        return open_ < classes.size() ? std::min(own_, classes[open_].speed) : 0;
    }
    // At which bid the base has no room at that speed any more, nor above; speeds never step up.
    Money base_lost_at(int32_t speed) {
        const auto& classes = base_.classes();
        if (barred_.empty()) {
            const auto end =
                std::partition_point(classes.begin(), classes.end(),
                                     [&](const Base::Class& c) { return c.speed >= speed; });
            return end == classes.begin() ? Money{INT64_MAX} : std::prev(end)->lowest;
        }
        for (; above_ < classes.size() && classes[above_].speed >= speed; ++above_)
            lowest_above_ = std::min(lowest_above_, lost_at(above_));
        return lowest_above_;
    }
    Money lost_at(size_t c) const {
        const Base::Class& cls = base_.classes()[c];
        const auto known = std::lower_bound(full_.begin(), full_.end(),
                                            std::pair(static_cast<std::ptrdiff_t>(c), 0U));
        const bool other = known != full_.end() && known->first == static_cast<std::ptrdiff_t>(c);
        return other ? base_.lost_at(cls, known->second) : cls.lost_at;
    }

    const Base& base_;
    const SolverJob& q_;
    const std::vector<uint32_t> barred_;                     // places, in order
    std::vector<std::pair<std::ptrdiff_t, uint32_t>> full_;  // of classes with such places
    int32_t own_ = 0;
    uint32_t hole_ = no_place, taker_ = no_place, rest_ = no_place;
    size_t open_ = 0, above_ = 0;
    Money lowest_above_{INT64_MAX};
};

// Whether the hole that `taker` takes first goes to a job of q's user that ranks before q.
bool own_takes(const Allocator& market, std::span<const Base::Bid> bids, uint32_t taker,
               uint32_t turn, uint32_t q) {
    for (; taker != no_place && taker < turn; taker = bids[taker].taker)
        if (market.details(bids[taker].job).user == market.details(q).user) return true;
    return false;
}

// Whose user has bids that rank after it.
class OwnLater {
  public:
    OwnLater(const Allocator& market, std::span<const Base::Bid> bids) : market_(market) {
        for (const Base::Bid& b : bids) last_[market.details(b.job).user] = b.rank;
    }
    bool has(uint32_t job) const {
        const auto last = last_.find(market_.details(job).user);
        return last != last_.end() && last->second > market_.jobs()[job].rank;
    }

  private:
    const Allocator& market_;
    std::map<uint32_t, Rank> last_;
};

}  // namespace

void unit_prices(Allocator& market, std::vector<Money>& prices, std::vector<bool>& done,
                 bool by_user) {
    std::vector<uint32_t> payers;
    Rank last = Rank::top();  // of those whose hole does not begin with a bid
    for (const Machine& m : market.machines())
        for (const auto& guest : m.guests) {
            const SolverJob& job = market.jobs()[guest.job];
            if (done[guest.job] || job.cpus != 1) continue;
            payers.push_back(guest.job);
            if (!job.competing) last = std::max(last, job.rank);
        }
    if (payers.empty()) return;
    Base base(market);
    if (!base.seat(last)) return;
    base.reckon();
    const auto& bids = base.bids();
    const auto& places = base.places();
    std::vector<uint32_t> place_of(market.machines().size(), no_place);
    for (uint32_t p = 0; p < places.size(); ++p) place_of[places[p].machine] = p;
    const int32_t top = market.speed_top();
    const auto turn_of = [&](uint32_t j) {
        const Rank& rank = market.jobs()[j].rank;
        return std::partition_point(bids.begin(), bids.end(),
                                    [&](const Base::Bid& b) { return b.rank < rank; });
    };
    const OwnLater own_later(market, by_user ? std::span(bids) : std::span<const Base::Bid>{});
    int64_t own_later_steps = 0;
    if (by_user)
        for (const uint32_t j : payers)
            if (own_later.has(j)) own_later_steps += bids.end() - turn_of(j);
    for (const uint32_t j : payers) {
        const SolverJob& q = market.jobs()[j];
        if (own_later_steps <= own_later_steps_max && own_later.has(j)) continue;
        const auto at = turn_of(j);
        const auto t = static_cast<uint32_t>(at - bids.begin());
        uint32_t hole = no_place, taker = no_place;
        if (q.competing) {
            if (at != bids.end()) hole = at->place, taker = at->taker;
        } else if (const uint32_t p = place_of[q.slot];
                   p != no_place) {  // the room that it holds is what it would compete for
            const int32_t cpus = places[p].cpus + 1;
            if (!base.has_memory(cpus, places[p].memory_mb + q.memory_mb)) continue;
            if (cpus > 0) hole = p, taker = base.first_taker(p, 0);
            if (by_user && own_takes(market, bids, taker, t, j)) continue;
        }
        if (!q.competing && q.memory_mb > base.memory_max()) continue;
        std::vector<uint32_t> barred;
        if (q.bars)
            for (const ProviderKey key : *market.details(j).barred)
                if (const uint32_t m = market.find_machine(key);
                    m != Allocator::none && place_of[m] != no_place)
                    barred.push_back(place_of[m]);
        std::sort(barred.begin(), barred.end());
        const Machine& own = market.machines()[q.slot];
        Payer payer(base, q, std::move(barred));
        prices[j] =
            bounded_price(payer.sum(std::min(own.spec.speed, top), hole, taker), top, own, q);
        done[j] = true;
    }
}

}  // namespace souk::market
