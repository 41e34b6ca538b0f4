// SPDX-License-Identifier: GPL-2.0-or-later
// Promises: deadlines that the market promises (srun -f TIME --promise).
//
// A promised job has a place that is sold ahead (reservations.hpp): from the latest safe start to
// its deadline. How long that is goes by what the job needs yet at most (job_rest.hpp: its time
// limit, its stated run time, or what the program took before, with a band), on the node of that
// place, with the time to bring it there and a slack. The price is fixed when the place is sold,
// and is paid only while the job holds the place.
//
// Before that the job runs by its bid wherever that has a place. What it does so is measured, and
// the start of its place moves later; when the job has ended the place is anybody's. When the job
// needs more than before (it went back to a checkpoint) the start moves earlier where there is
// room. If the node of the place is gone, another place is found at once, at the same price.
//
// A job of several components is promised as one: places for all that are required, all or none, at
// one price, which is that of the dearest. They begin together, early enough for the one that needs
// longest on the slowest of their nodes. Each component has a contract and a promise of its own, so
// that each owner gives back what he has got; all these promises end as one, with one cause, when
// the last component has ended or the deadline has passed.
//
// Each promise has one end: kept, or missed with its cause, or withdrawn. Of a missed one there is
// a receipt. If an owner's leaving was the cause, the user gets back what the job has paid him for
// the place that it held.
//
// Pure; part of Reservations, which sells the places.
#pragma once

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "market/core/bill.hpp"
#include "market/core/book.hpp"
#include "market/core/gang_list.hpp"
#include "market/core/job_rest.hpp"
#include "market/core/market_context.hpp"

namespace souk::market {

struct BookedSpan {
    Nanos start, end;  // Unix time
};

// One place of those that are sold together.
struct PlacePick {
    const Job* job = nullptr;
    const Node* node = nullptr;
    Money price;
};
using PlacePicks = std::vector<PlacePick>;

// The part of the sale of places that a promise looks at. Its answers are of the moment of a
// look().
class PlacesAhead {
  public:
    virtual ~PlacesAhead() = default;
    // The price of a place for this job there, at any bid. `beside`: what the others of its gang
    // have. nullopt: there is no room for it in all of that time, or the node is not on the market.
    virtual std::optional<Money> price_at(const Job& job, const Node& node, BookedSpan span,
                                          const PlacePicks& beside) const = 0;
    // The cheapest places for all of them together, at any bid, on nodes of that speed at least.
    // Empty: one of them finds none.
    virtual PlacePicks places_for(const std::vector<const Job*>& all, BookedSpan span,
                                  int64_t speed_least) const = 0;
    // The place that was sold to the job is there from now on; null: nowhere.
    virtual void place_at(Job& job, const Node* node) = 0;
    // The most that the node's owner asks for such a job meanwhile, as far as he has said.
    virtual Money asked_at(const Job& job, const Node& node, BookedSpan span) const = 0;
    // When room may come, after `from`, in order.
    virtual std::vector<Nanos> moments_after(Nanos from) const = 0;
    // A search for the earliest place begins; it may go on as long as search_goes_on(), since the
    // market stands meanwhile.
    virtual void search_begins() const = 0;
    virtual bool search_goes_on() const = 0;
};

// All that a job needs yet at most until its end.
struct PromiseNeed {
    JobRest rest;
    Nanos carry;  // to bring it to its place
    Nanos on(int64_t speed) const;
};

// The market's answer to somebody who wants a promise.
struct PromiseOffer {
    const Node* node = nullptr;  // of its place, or the first of them; null: it is refused
    PlacePicks picks;            // of a job of several components one for each
    BookedSpan span{};           // from the latest safe start on
    Money price;                 // per CPU-hour, of all places
    Money cost_most;             // of all of them
    bool learned = false;        // how long it takes is learned from runs before
    // refused: why, and what would be possible: a price for that deadline, a deadline for its price
    Reason why;
    std::optional<Money> price_for_it;
    std::optional<Nanos> earliest;  // Unix time
};

class Promises {
  public:
    Promises(const MarketContext& context, Book& book, const RunTimes& learned, PlacesAhead& ahead)
        : context_(context), book_(book), learned_(learned), ahead_(ahead) {}

    // The deadline that its user wants promised, Unix time; 0: none. The others of a gang do not
    // wait for an optional component, so that it is promised none.
    static Nanos wanted(const Job& job);
    // It has a promise that is neither kept nor missed yet.
    static bool is_open(const Job& job);

    // So long after its deadline a report may say that the job ended in time.
    static constexpr Nanos heard_within = Nanos::from_s(1);
    // So long before the start of its place it is looked at again.
    static Nanos looked_after(Nanos until_start) {
        return std::clamp(Nanos{until_start.ns / 20}, Nanos::from_s(10), Nanos::from_s(600));
    }

    // Says what could be promised now to a job, or to all components of one.
    // `link_bytes_per_s`: for the way to their places.
    PromiseOffer offer(const std::vector<const Job*>& all, int64_t link_bytes_per_s,
                       Nanos now) const;
    // Places were sold to them by that offer.
    void sold(const std::vector<Job*>& all, const PromiseOffer& offer, Nanos now);
    // A component was loaded: its promise may be open when it has ended.
    void list(const Job& job);

    // Sees, before its place begins, what the job has done and where its place is; or the same of
    // all components of one whose promises are open.
    void follow(const std::vector<Job*>& all, int64_t link_bytes_per_s, Nanos now);
    // It is to hold its place now.
    void holds(Job& job, Nanos now);
    // Its place cannot be on that node any more: for `owner_left` by what its owner has done, who
    // gives back what it has cost; for `held_back` by what its user asks for since; for
    // `cannot_move` because the job cannot go there.
    void lost(Job& job, PromiseEnd why, Nanos now);
    // Its deadline has passed, or it has ended, or its user wants no promise any more. A component
    // that has ended in time waits for the others.
    void ends(Job& job, Nanos now);

    // The jobs whose promises were missed since this was last asked.
    std::vector<JobId> take_missed() { return std::exchange(missed_, {}); }

  private:
    // One way to have a promise: on that node, or of several components on nodes of that speed.
    struct Way {
        const Node* node = nullptr;
        int64_t speed = 0;
    };
    std::optional<PromiseNeed> need_of(const Job& job, int64_t link_bytes_per_s, Nanos now) const;
    std::vector<Way> ways(const std::vector<const Job*>& all) const;
    PlacePicks picks_by(const Way& way, const std::vector<const Job*>& all, BookedSpan span) const;
    std::optional<Nanos> earliest(const std::vector<const Job*>& all,
                                  const std::vector<PromiseNeed>& needs, Nanos unix) const;
    const Node* other_place(const Job& job, const PromiseNeed& need, Nanos from,
                            const PlacePicks& beside) const;
    // False: its place is nowhere. `moved`: it is on another node now, for a good reason.
    bool see_place(Job& job, const PromiseNeed& need, PlacePick& pick, const PlacePicks& beside,
                   Nanos unix, bool& moved);
    bool is_held_back(const Job& job) const;
    PromiseEnd what_keeps(const Job& job) const;
    PromiseEnd end_of(const Job& job, Nanos now) const;
    PromiseEnd end_of_all(const std::vector<Job*>& all, Nanos now) const;
    std::vector<Job*> together(Job& job) const;

    const MarketContext& context_;
    Book& book_;
    const RunTimes& learned_;
    PlacesAhead& ahead_;
    std::map<std::string, std::set<JobId>> gangs_;  // components whose promises are open
    std::vector<JobId> missed_;
};

}  // namespace souk::market
