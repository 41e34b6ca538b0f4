// SPDX-License-Identifier: GPL-2.0-or-later
// Home finds jobs by indices in place of a walk over all its jobs. These tests compare the indices
// with that walk, on random steps.
#include <algorithm>
#include <set>
#include <vector>

#include "agentd/core/home.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {

struct Known {
    Nanos due = Nanos::never();
    std::vector<NodeName> guests;
};

void check_index(const HomeIndex& index, const std::vector<Known>& jobs, Nanos now) {
    Nanos next = Nanos::never();
    std::map<NodeName, HomeIndex::Jobs> guests;
    std::vector<std::pair<Nanos, uint64_t>> due;
    for (uint64_t j = 0; j < jobs.size(); ++j) {
        next = std::min(next, jobs[j].due);
        if (jobs[j].due <= now) due.emplace_back(jobs[j].due, j);
        for (const NodeName& node : jobs[j].guests) guests[node].insert(j);
    }
    std::sort(due.begin(), due.end());
    ck_assert(index.next_due() == next);
    const std::vector<uint64_t> found = index.due(now);
    ck_assert_uint_eq(found.size(), due.size());
    for (size_t i = 0; i < due.size(); ++i) ck_assert_uint_eq(found[i], due[i].second);
    ck_assert(index.guests() == guests);
}

NodeName node(uint64_t n) { return "n" + std::to_string(n); }

// A walk over all jobs, as the index replaces it.
std::set<NodeName> needed_by_any(const Home& home) {
    std::set<NodeName> nodes;
    for (const auto& [seq, job] : home.jobs()) {
        if (job.phase != JobPhase::finished && !job.at.node.empty()) nodes.insert(job.at.node);
        if (job.step != MoveStep::none) nodes.insert(job.to.node);
        for (const Orphan& r : job.orphans) nodes.insert(r.peer.node);
    }
    return nodes;
}

void submit(Home& home, home::Outputs& out) {
    Submission s;
    s.spec.launch.argv = {"/bin/job"};
    s.terms.max_price = Money::units(1);
    ck_assert(home.submit(std::move(s), Nanos{}, out).has_value());
}

}  // namespace

START_TEST(the_index_holds_what_was_put_last) {
    for (uint64_t seed = 1; seed <= 20; ++seed) {
        Rng rng(seed);
        HomeIndex index;
        std::vector<Known> jobs(12);
        for (int step = 0; step < 300; ++step) {
            const uint64_t j = rng.below(jobs.size());
            jobs[j] = {};
            if (rng.below(3) > 0) jobs[j].due = Nanos{static_cast<int64_t>(rng.below(20))};
            for (uint64_t n = 0; n < 4; ++n)
                if (rng.below(3) == 0) jobs[j].guests.push_back(node(n));
            index.put(j, jobs[j].due, jobs[j].guests);
            check_index(index, jobs, Nanos{static_cast<int64_t>(rng.below(20))});
        }
    }
}
END_TEST

// Guests and market may say anything in any order. The guests that Home needs are those that a walk
// over all jobs finds, and each of them is known.
START_TEST(a_home_needs_the_guests_that_its_jobs_name) {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
        Rng rng(seed);
        Home::Limits limits;
        limits.finished_max = 2;
        Home home("n0", limits);
        home::Outputs out;
        Nanos now;
        uint64_t orders = 0;
        for (int step = 0; step < 400; ++step) {
            out.clear();
            now += Nanos::from_ms(static_cast<int64_t>(rng.below(5'000)));
            const JobId id{"n0", 1 + rng.below(6)};
            const NodeName where = node(rng.below(4));
            switch (rng.below(10)) {
                case 0: submit(home, out); break;
                case 1: (void)home.cancel(id, now, out); break;
                case 2: home.guest_up(where, now, out); break;
                case 3: home.expel(where, {id, {1 + rng.below(6)}}, now, out); break;
                case 4: {
                    JobNote note;
                    note.id = id;
                    note.settled = true;
                    home.note(note, now, out);
                    break;
                }
                case 5:
                case 6: {
                    Order order;
                    order.id = id;
                    order.seq = ++orders;
                    order.kind = rng.below(4) ? Order::Kind::run : Order::Kind::suspend;
                    order.node = where;
                    order.address = where + ":1";
                    home.order(order, now, out);
                    break;
                }
                default: {
                    GuestEvent event;
                    event.id = id;
                    event.epoch = {1 + rng.below(6)};
                    event.state = static_cast<GuestState>(1 + rng.below(12));
                    if (rng.below(4) == 0) event.why = "why";
                    home.guest_event(where, event, now, out);
                }
            }
            const Nanos next = home.tick(now, out);
            ck_assert(next > now);
            const auto needed = home.guests_needed();
            ck_assert(std::set<NodeName>(needed.begin(), needed.end()) == needed_by_any(home));
            for (const NodeName& guest : needed)
                ck_assert(home.peer_of(guest).has_value() && home.needs_guest(guest));
        }
    }
}
END_TEST

// A walk at each tick would not end within the suite's limit.
START_TEST(a_tick_costs_nothing_however_many_jobs_there_are) {
    Home home("n0", {});
    home::Outputs out;
    for (int i = 0; i < 100'000; ++i) {
        submit(home, out);
        out.clear();
    }
    Order order;
    order.id = {"n0", 50'000};
    order.seq = 1;
    order.node = "n1";
    order.address = "n1:1";
    home.order(order, Nanos{}, out);
    out.clear();
    const Nanos limit = Home::Limits{}.step_patience;
    for (int64_t t = 1; t < 1'000'000; ++t) {
        ck_assert(home.tick(Nanos{t}, out) == limit);
        ck_assert(home.needs_guest("n1"));
    }
    ck_assert(out.empty());
    ck_assert(home.tick(limit, out) == limit + limit);
    ck_assert(std::get<home::ToGuest>(out.at(0)).command.verb == GuestVerb::query);
}
END_TEST

UNIT_SUITE(home_index, the_index_holds_what_was_put_last,
           a_home_needs_the_guests_that_its_jobs_name,
           a_tick_costs_nothing_however_many_jobs_there_are);
