// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/pricing_ranked.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "market/core/pricing_integral.hpp"
#include "market/core/ranked_users.hpp"

namespace souk::market {

namespace {
using Wide = __int128;
using SolverJob = Allocator::Job;
using Machine = Allocator::Machine;

// Machines of one class, and whom the greedy from nothing gives them to.
struct Class {
    ClassKey cls;
    int32_t speed;
    Money reserve;
    int64_t slots = 0;
    int64_t used = 0;
    Money last{};            // used: the bid that took a slot last
    bool contested = false;  // full, and the next job in line would have taken a slot
    Money threshold{};       // contested: that job's bid
    Money lost_at() const { return used == slots ? last : reserve; }
};

// The classes in order if the market is ranked: one-CPU jobs, no bars, memory never in the way.
std::optional<std::vector<Class>> ranked_classes(Allocator& market) {
    const auto [cpus_max, memory_max] = market.most_needed();
    if (cpus_max > 1 || market.competing_with_bars() > 0) return std::nullopt;
    std::vector<Class> classes;
    for (const EmptyMachine& p : empty_machines(market)) {
        if (p.cpus <= 0) continue;
        if (p.memory_mb / p.cpus < memory_max) return std::nullopt;
        const ClassKey cls = class_of(p.speed, p.reserve);
        if (classes.empty() || classes.back().cls != cls)
            classes.push_back({.cls = cls, .speed = p.speed, .reserve = p.reserve});
        classes.back().slots += p.cpus;
    }
    return classes;
}

struct Seated {
    uint32_t job;
    size_t cls;
};

// One walk down the ranks: who sits where, and what becomes of each class.
std::vector<Seated> seat_ranked(Allocator& market, std::vector<Class>& classes) {
    std::vector<Seated> seated;
    size_t c = 0;
    market.order().each_after(Rank::top(), [&](const JobOrder::Entry& e) {
        const Money value = market.jobs()[e.job].value;
        for (; c < classes.size() &&
               (classes[c].used == classes[c].slots || value < classes[c].reserve);
             ++c) {
            classes[c].contested =
                classes[c].used == classes[c].slots && value >= classes[c].reserve;
            classes[c].threshold = value;
        }
        if (c == classes.size()) return false;
        seated.push_back({e.job, c});
        ++classes[c].used;
        classes[c].last = value;
        return true;
    });
    return seated;
}

// The sum over all steps of speed x bid that a job has to beat for a slot of each class; the same
// for all its jobs.
//
// Who is taken away from a class leaves a slot. Where the class is contested the next job in line
// takes it, and leaves one in the next class that is in use; so a bid loses a contested class at
// that job's bid, and the free slot ends in the first class in use that is not contested, which a
// bid loses at its reserve alone. Below that reserve the slot is no use: there is what the others
// leave of the classes after it, each lost to the bid that filled it or at its reserve (lost_at). A
// class that is lost at no lower bid than one before it is never the best that is left.
std::vector<Wide> sums_of(const std::vector<Class>& classes) {
    const size_t n = classes.size();
    // `without`: of a bid that finds no slot but what the others leave
    std::vector<Wide> sums(n, 0), without(n, 0);
    // classes after this one, each lost at a lower bid than those before it
    std::vector<size_t> falling;
    size_t next_used = n;
    const auto speed = [&](size_t c) { return c < n ? classes[c].speed : 0; };
    const auto step = [&](size_t from, size_t to, Money bid) {
        return static_cast<Wide>(speed(from) - speed(to)) * bid.micro;
    };
    for (size_t c = n; c-- > 0;) {
        const Class& cls = classes[c];
        const auto first_below = [&](Money bid) {
            const auto at = std::partition_point(falling.begin(), falling.end(), [&](size_t k) {
                return classes[k].lost_at() < bid;
            });
            return at == falling.begin() ? n : *std::prev(at);
        };
        if (cls.contested) {
            sums[c] = step(c, next_used, cls.threshold) + (next_used < n ? sums[next_used] : 0);
        } else {
            const size_t next = first_below(cls.reserve);
            sums[c] = step(c, next, cls.reserve) + (next < n ? without[next] : 0);
        }
        const size_t next = first_below(cls.lost_at());
        without[c] = step(c, next, cls.lost_at()) + (next < n ? without[next] : 0);
        while (!falling.empty() && classes[falling.back()].lost_at() >= cls.lost_at())
            falling.pop_back();
        falling.push_back(c);
        if (cls.used > 0) next_used = c;
    }
    return sums;
}

// Prices of jobs whose users have lower ranked ones too: without these the others after a job all
// choose earlier, so each job has a walk of its own down the classes.
class ByUser {
  public:
    // `done`: who sits where ranks put it.
    ByUser(Allocator& market, const std::vector<Class>& classes, const std::vector<Seated>& seated,
           const std::vector<bool>& done)
        : market_(market),
          classes_(classes),
          seated_(seated),
          // one more: the room of a pinned job may be another place
          ranked_(rank_users(market, market.order(), seated.size() + 1)) {
        for (size_t t = 0; t < seated.size(); ++t)
            if (t == 0 || seated[t].cls != seated[t - 1].cls)
                begins_[seated[t].cls] = static_cast<int64_t>(t);
        least_after_.assign(classes.size() + 1, Money{INT64_MAX});
        for (size_t c = classes.size(); c-- > 0;) {
            least_after_[c] = std::min(least_after_[c + 1], classes[c].reserve);
            const auto end = std::partition_point(
                ranked_.values().begin(), ranked_.values().end(),
                [&](int64_t value) { return value >= classes[c].reserve.micro; });
            takers_[c] = end - ranked_.values().begin();
        }
        read_turns(done);
    }

    void price(std::vector<Money>& prices, std::vector<bool>& done) {
        std::vector<std::pair<size_t, User>> payers;  // by turn
        for (size_t t = 0; t < seated_.size(); ++t) {
            const User user = ranked_.user_of(static_cast<int64_t>(t));
            if (user.at.back() > static_cast<int64_t>(t) && done[seated_[t].job])
                payers.emplace_back(t, user);
        }
        const auto all = payers.size() + unseated_.size();
        if (static_cast<int64_t>(all * classes_.size()) > pivot_steps_max) return;
        for (const auto& [t, user] : payers) {
            const Seated& s = seated_[t];
            set(s.job, sum_of(s.job, static_cast<int64_t>(t), user, s.cls, 0), prices);
        }
        for (const Unseated& u : unseated_) {
            set(u.job, sum_of(u.job, u.turn, u.user, 0, u.cls), prices);
            done[u.job] = true;
        }
    }

  private:
    using User = RankedUsers::User;
    // It runs where ranks would not put it; if it does not compete (pinned, protected), its room is
    // one more place of its class.
    struct Unseated {
        uint32_t job;
        int64_t turn;
        User user;
        size_t cls;  // of that room, from 1; 0: there is none
    };

    void set(uint32_t j, Wide sum, std::vector<Money>& prices) const {
        const SolverJob& q = market_.jobs()[j];
        prices[j] = bounded_price(sum, market_.speed_top(), market_.machines()[q.slot], q);
    }

    // Which of the user's jobs is the first from that turn on.
    static size_t later_of(const User& user, int64_t turn) {
        return static_cast<size_t>(std::lower_bound(user.at.begin(), user.at.end(), turn) -
                                   user.at.begin());
    }

    // The sum over all steps of speed x bid that the job has to beat: those who rank before `turn`
    // sit where ranks put them, and the user's later jobs are not there. It looks at classes from
    // `from` on; the one of `extra` (from 1; 0: none) has one place more when its turn comes.
    Wide sum_of(uint32_t j, int64_t turn, const User& user, size_t from, size_t extra) const {
        const SolverJob& q = market_.jobs()[j];
        const int32_t own = std::min(market_.machines()[q.slot].spec.speed, market_.speed_top());
        const size_t later = later_of(user, turn);
        Money level = q.value;
        int32_t speed = own;
        Wide sum = 0;
        int64_t others = turn;  // so many have chosen as its bid falls
        for (size_t c = from; c < classes_.size() && level > least_after_[c]; ++c) {
            const Class& cls = classes_[c];
            const int64_t before = std::clamp<int64_t>(turn - begins_[c], 0, cls.used);
            const int64_t room = cls.slots - before + (extra == c + 1);
            if (room == 0) continue;
            const int64_t takers = takers_[c] - user.before(takers_[c], later);
            const int64_t seats = std::clamp<int64_t>(takers - others, 0, room);
            others += seats;
            const Money lost_at =
                seats < room
                    ? cls.reserve
                    : Money{ranked_.values()[static_cast<size_t>(user.other(others - 1, later))]};
            if (lost_at >= level) continue;
            const int32_t within = std::min(own, cls.speed);
            sum += static_cast<Wide>(speed - within) * level.micro;
            speed = within;
            level = lost_at;
        }
        return sum + static_cast<Wide>(speed) * level.micro;
    }

    // Reads the jobs that are not done, run, and have lower ranked jobs of their users that
    // compete, and for which nothing but ranks matters.
    void read_turns(const std::vector<bool>& done) {
        std::vector<std::pair<uint32_t, User>> found;
        for (const Machine& m : market_.machines())
            for (const auto& guest : m.guests) {
                const SolverJob& job = market_.jobs()[guest.job];
                const auto user = ranked_.find(market_.details(guest.job).user);
                if (!done[guest.job] && job.cpus == 1 && !job.bars && user)
                    found.emplace_back(guest.job, ranked_.user(*user));
            }
        if (found.empty()) return;
        std::vector<Rank> ranks;
        market_.order().each_after(Rank::top(), [&](const JobOrder::Entry& e) {
            if (ranks.size() == ranked_.values().size()) return false;
            ranks.push_back(e.rank);
            return true;
        });
        const int64_t memory_max = market_.most_needed().second;
        const size_t all = market_.order().size();
        for (const EmptyMachine& m : empty_machines(market_)) rooms_[m.machine] = m;
        for (const auto& [j, user] : found) {
            const SolverJob& q = market_.jobs()[j];
            const int64_t turn =
                std::lower_bound(ranks.begin(), ranks.end(), q.rank) - ranks.begin();
            if (user.at.back() < turn || q.memory_mb > memory_max) continue;
            // After those who have a place nobody else takes one but its own: the first of the
            // others after it.
            if (turn > static_cast<int64_t>(seated_.size()) && ranks.size() < all &&
                user.other(turn, later_of(user, turn)) >= static_cast<int64_t>(ranks.size()))
                continue;
            const auto cls = q.competing ? std::optional<size_t>(0) : class_with(q, memory_max);
            // one that ranks before it may want that room
            if (cls && *cls > 0 && turn > begins_[*cls - 1] + classes_[*cls - 1].used) continue;
            if (cls) unseated_.push_back({j, turn, user, *cls});
        }
    }
    // The class in which its room is one more place; nullopt: it is not like the others there.
    std::optional<size_t> class_with(const SolverJob& q, int64_t memory_max) const {
        const auto m = rooms_.find(q.slot);
        if (m == rooms_.end() || m->second.cpus < 0) return 0;
        const EmptyMachine& room = m->second;
        if ((room.memory_mb + q.memory_mb) / (room.cpus + 1) < memory_max) return std::nullopt;
        const ClassKey key = class_of(room.speed, room.reserve);
        const auto c = std::lower_bound(classes_.begin(), classes_.end(), key,
                                        [](const Class& x, ClassKey k) { return x.cls < k; });
        if (c == classes_.end() || c->cls != key) return std::nullopt;
        return static_cast<size_t>(c - classes_.begin()) + 1;
    }

    Allocator& market_;
    const std::vector<Class>& classes_;
    const std::vector<Seated>& seated_;
    const RankedUsers ranked_;
    // by class: the turn of the first who sits there
    std::vector<int64_t> begins_ = std::vector<int64_t>(classes_.size());
    std::vector<int64_t> takers_ = std::vector<int64_t>(classes_.size());
    std::vector<Money> least_after_;  // the lowest reserve of a class and all after it
    std::map<uint32_t, EmptyMachine> rooms_;
    std::vector<Unseated> unseated_;
};

}  // namespace

std::vector<Money> ranked_prices(Allocator& market, std::vector<bool>& done, bool by_user) {
    std::vector<Money> prices(market.jobs().size());
    done.assign(market.jobs().size(), false);
    auto classes = ranked_classes(market);
    if (!classes) return prices;
    const std::vector<Seated> seated = seat_ranked(market, *classes);
    const std::vector<Wide> sums = sums_of(*classes);
    for (const Seated& s : seated) {
        const SolverJob& q = market.jobs()[s.job];
        if (q.slot == Allocator::none || market.machines()[q.slot].cls != (*classes)[s.cls].cls)
            continue;
        prices[s.job] =
            bounded_price(sums[s.cls], market.speed_top(), market.machines()[q.slot], q);
        done[s.job] = true;
    }
    if (by_user) ByUser(market, *classes, seated, done).price(prices, done);
    return prices;
}

}  // namespace souk::market
