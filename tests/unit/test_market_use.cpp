// SPDX-License-Identifier: GPL-2.0-or-later
// The market charges for what a home says and the place has measured: the lesser. The books hold
// at every step (World::check), whoever lies.
#include "kernel/base/rng.hpp"
#include "market/core/claims.hpp"
#include "tests/unit/market_world.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }

// How long each job has really run in each of its stays.
struct Truth {
    struct Stay {
        NodeName node;
        Nanos run;
        bool ended = true;
    };
    World& w;
    std::map<std::pair<JobId, Epoch>, Stay> stays;
    std::map<JobId, Epoch> running;
    Nanos at;

    explicit Truth(World& world) : w(world), at(world.now) {
        w.after_step = [this] { look(); };
    }
    void look() {
        for (const auto& [id, epoch] : running) stays.at({id, epoch}).run += w.now - at;
        at = w.now;
        running.clear();
        for (auto& [key, stay] : stays) stay.ended = true;
        for (const auto& [id, job] : w.jobs) {
            if (job.run_since == Nanos::never()) continue;
            running[id] = job.report.epoch;
            Stay& stay = stays[{id, job.report.epoch}];
            stay.node = job.report.where;
            stay.ended = false;
        }
    }
    // The places of a node say so, times `factor` in thousandths.
    void tell(const NodeName& node, int64_t factor = 1000) {
        look();
        UseReport report;
        for (const auto& [key, stay] : stays)
            if (stay.node == node)
                report.jobs.push_back(
                    {key.first, key.second, Nanos{stay.run.ns / 1000 * factor}, {}, stay.ended});
        if (w.connected.contains(node)) w.market->use_report(node, report, w.now);
    }
    Nanos run(const JobId& id) const {
        Nanos sum;
        for (const auto& [key, stay] : stays)
            if (key.first == id) sum += stay.run;
        return sum;
    }
    size_t count(const JobId& id) const {
        size_t n = 0;
        for (const auto& [key, stay] : stays) n += key.first == id;
        return n;
    }
};

int64_t per_second(const World& w, const JobId& id) {
    return w.market->find(id)->record.price.micro / 3600;
}

}  // namespace

START_TEST(two_who_tell_the_truth_change_nothing) {
    World w;
    Truth truth(w);
    w.add_node("n1", 100, 36);
    w.add_node("n2", 90, 18);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 100, s(500));
    for (int i = 0; i < 30; ++i) {
        w.run_for(s(10));
        for (const char* node : {"n1", "n2"}) truth.tell(node);
        if (i == 10) ck_assert(w.market->move(a, "n2", true, 0).has_value());
    }
    w.run_for(s(400));
    for (const char* node : {"n1", "n2"}) truth.tell(node);
    w.run_for(s(10));
    ck_assert(w.phase(a) == JobPhase::finished && w.market->take_differences().empty());
    for (const Receipt& r : w.receipts) ck_assert(r.paid.micro >= 0);
    for (const auto& [name, node] : w.market->nodes()) ck_assert(node.record.differences == 0);
}
END_TEST

START_TEST(what_the_place_has_not_measured_is_given_back_and_the_books_hold) {
    World w;
    Truth truth(w);
    w.add_node("n1", 100, 36);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 100, s(1000));
    w.run_for(s(500));
    const Money before = w.cost(a);
    truth.tell("n1", 200);
    w.run_for(s(1));
    ck_assert(w.cost(a).micro < before.micro / 4);
    w.restart();  // what was settled is settled for the next market too
    w.connect("n1");
    w.run_for(s(600));
    truth.tell("n1", 200);
    w.run_for(s(1));
    ck_assert(w.phase(a) == JobPhase::finished);
    const Money cost = w.market->find(a)->record.account.amount;
    ck_assert(cost.micro <= 210 * per_second(w, a) && cost.micro >= 190 * per_second(w, a));
    ck_assert(w.receipts.back().paid.micro < 0 || w.receipts[w.receipts.size() - 2].paid.micro < 0);
    const Node& node = w.market->nodes().at("n1");
    ck_assert(node.record.differences >= 2 && node.record.different >= s(700));
    ck_assert(node.record.earned == cost);
}
END_TEST

START_TEST(what_was_charged_beyond_a_stay_is_taken_back_from_the_node_that_it_was_charged_for) {
    for (const int64_t stay_ms : {10'000, 300}) {
        World w;
        w.add_node("n1", 100, 36);
        w.add_node("n2", 100, 36);
        w.run_for(s(4));
        const JobId a = w.submit("n1", 100);
        w.run_for(Nanos::from_ms(stay_ms) + w.transit);
        ck_assert_text(w.where(a), "n1");
        // It stands, and goes on elsewhere; the word of both comes in one, and late.
        World::HomeJob& job = w.jobs[a];
        const Nanos ran = w.run_time(job);
        World::stop_clock(job, w.now);
        w.run_for(Nanos::from_ms(1'500));
        JobReport& r = job.report;
        // The market has ordered it there, too.
        claims::ordered(const_cast<Job&>(*w.market->find(a)), *w.market->find_node("n2"));
        r.where = "n2";
        r.epoch = r.epoch.next();
        r.stay_run = ran;
        ++r.stats.migrations;
        job.run_since = w.now;
        w.tell(job);
        const auto earned = [&](const char* node) {
            return w.market->nodes().at(node).record.earned.micro;
        };
        const int64_t first = w.market->find(a)->record.price.micro * ran.ns / s(3'600).ns;
        ck_assert_int_ge(earned("n1"), first);
        ck_assert_int_le(earned("n1"), first + 1);
        ck_assert_int_eq(earned("n2"), 0);
        w.run_for(s(20));
        w.tell(job);
        ck_assert_int_le(earned("n1"), first + 1);
        for (const auto& [holder, account] : w.stored_accounts)
            if (holder.kind == Holder::Kind::node) ck_assert_int_ge(account.balance.micro, 0);
        ck_assert_int_gt(earned("n2"), 0);
    }
}
END_TEST

START_TEST(a_place_that_says_nothing_or_too_much_earns_what_the_home_says) {
    for (const bool says : {false, true}) {
        World w;
        Truth truth(w);
        w.add_node("n1", 100, 36);
        w.run_for(s(4));
        const JobId a = w.submit("n1", 100, s(300));
        w.run_for(s(400));
        if (says) truth.tell("n1", 10'000);
        w.run_for(s(10));
        ck_assert_int_eq(w.market->find(a)->record.account.amount.micro, Money::units(3).micro);
        ck_assert_int_eq(w.market->nodes().at("n1").record.differences, says ? 1 : 0);
    }
}
END_TEST

// Homes that invent run time, or places that invent or deny it; moves, ends, and markets that are
// killed. A job costs no more than its price for what it has truly run, nor than its home says.
START_TEST(no_liar_makes_a_job_dearer_than_it_ran) {
    for (uint64_t seed = 1; seed <= 60; ++seed) {
        Rng rng(seed);
        const bool homes_lie = seed % 2 == 0;  // or places do
        World w;
        Truth truth(w);
        const NodeName nodes[] = {"n1", "n2", "n3"};
        for (const NodeName& n : nodes)
            w.add_node(n, 100, 10 + static_cast<int64_t>(rng.below(20)), 4);
        w.run_for(s(4));
        std::vector<JobId> jobs;
        for (int step = 0; step < 40; ++step) {
            const uint64_t dice = rng.below(10);
            const NodeName& node = nodes[rng.below(3)];
            if (dice < 2 && jobs.size() < 6) {
                jobs.push_back(w.submit(node, 50 + static_cast<int64_t>(rng.below(50)),
                                        s(rng.between(50, 2000))));
            } else if (dice < 4 && homes_lie && !jobs.empty()) {
                World::HomeJob& job = w.jobs.at(jobs[rng.below(jobs.size())]);
                if (job.report.phase == JobPhase::running) {
                    job.report.stats.run_time += s(rng.between(100, 100'000));  // a lie
                    job.work = Nanos::never();
                    w.tell(job);
                }
            } else if (dice == 4 && !jobs.empty()) {
                (void)w.market->move(jobs[rng.below(jobs.size())], node, false, 0);
            } else if (dice == 5) {
                w.restart();
                for (const NodeName& n : nodes) w.connect(n);
            } else {
                truth.tell(node, homes_lie || rng.chance(0.5) ? 1000 : rng.between(0, 5000));
            }
            w.run_for(s(rng.between(1, 120)));
        }
        for (const JobId& id : jobs) (void)w.market->cancel(id, 0);
        w.run_for(s(60));
        for (const NodeName& n : nodes) truth.tell(n);
        w.run_for(s(10));
        for (const JobId& id : jobs) {
            const Job* const job = w.market->find(id);
            ck_assert(job != nullptr && job->phase() == JobPhase::finished);
            const int64_t stays = static_cast<int64_t>(truth.count(id));
            const Nanos ran = truth.run(id),
                        most = ran + Nanos{stays * s(5).ns} + Nanos{ran.ns / 100} + s(60);
            const __int128 bound =
                static_cast<__int128>(job->record.report.terms.max_price.micro) * most.ns / hour_ns;
            ck_assert_msg(job->record.account.amount.micro <= static_cast<int64_t>(bound) + 1,
                          "seed %lu: %s cost %ld, its bid for %ld s is %ld", seed,
                          id.text().c_str(), job->record.account.amount.micro,
                          most.ns / 1'000'000'000, static_cast<int64_t>(bound));
        }
    }
}
END_TEST

START_TEST(how_far_a_source_is_with_a_move_is_kept_until_that_is_over_and_from_nobody_else) {
    World w;
    w.add_node("n1", 100, 36);
    w.add_node("n2", 90, 18);
    w.run_for(s(4));
    const JobId a = w.submit("n1", 100);
    w.run_for(s(10));
    World::HomeJob& job = w.jobs.at(a);
    const NodeName from = w.where(a), to = from == "n1" ? "n2" : "n1";
    const auto hears = [&](const NodeName& node, Epoch epoch) {
        UseReport report;
        report.sends = {{a, epoch, to, 10, 100, s(1)}};
        w.market->use_report(node, report, w.now);
        return w.market->find(a)->sending.has_value();
    };
    const Epoch epoch = job.report.epoch;
    ck_assert(!hears(from, epoch));  // it runs
    job.report.phase = JobPhase::moving;
    job.report.to = to;
    w.tell(job);
    ck_assert(!hears(to, epoch) && !hears(from, epoch.next()) && hears(from, epoch));
    ck_assert_uint_eq(w.market->find(a)->sending->sent_bytes, 10);
    job.report.phase = JobPhase::running;
    w.tell(job);
    ck_assert(!w.market->find(a)->sending);
}
END_TEST

START_TEST(a_node_that_takes_no_jobs_any_more_counts_who_has_left) {
    World w;
    w.add_node("n1", 100, 1, 3);
    w.run_for(s(4));
    for (int i = 0; i < 3; ++i) w.submit("n1", 100);
    w.run_for(s(10));
    const Node& node = *w.market->find_node("n1");
    ck_assert_int_eq(node.leaving_of, 0);
    ProviderReport off = w.providers["n1"];
    off.on_market = false;
    w.set_provider(off);
    ck_assert_int_eq(node.leaving_of, 3);
    ck_assert_int_eq(Places::guests_left(node), 3);
    w.run_for(s(60));
    w.set_provider(off);
    ck_assert_int_eq(node.leaving_of, 3);
    ck_assert_int_eq(Places::guests_left(node), 0);
    off.on_market = true;
    w.set_provider(off);
    ck_assert_int_eq(node.leaving_of, 0);
}
END_TEST

UNIT_SUITE(market_use, two_who_tell_the_truth_change_nothing,
           what_the_place_has_not_measured_is_given_back_and_the_books_hold,
           what_was_charged_beyond_a_stay_is_taken_back_from_the_node_that_it_was_charged_for,
           a_place_that_says_nothing_or_too_much_earns_what_the_home_says,
           no_liar_makes_a_job_dearer_than_it_ran,
           how_far_a_source_is_with_a_move_is_kept_until_that_is_over_and_from_nobody_else,
           a_node_that_takes_no_jobs_any_more_counts_who_has_left);
