// SPDX-License-Identifier: GPL-2.0-or-later
// Reasons: each code has words, a bid that is named is the one from which a job starts, and what is
// stored reads as it was.
#include <algorithm>
#include <set>

#include "kernel/base/json.hpp"
#include "market/store/records.hpp"
#include "tests/unit/market_chaos.hpp"

using namespace souk;
using namespace souk::market;

namespace {

std::optional<Money> bid_of(const Reason& reason) {
    const auto bid = reason.amount(Figure::bid);
    return bid ? bid : reason.amount(Figure::least);
}

void bids(World& w, const JobId& id, Money bid) {
    World::HomeJob& job = w.jobs.at(id);
    job.report.terms.max_price = bid;
    w.tell(job);
    w.decide();
}

bool has_place(const World& w, const JobId& id) {
    const Job* job = w.market->find(id);
    return w.market->solver().place(job->key).n != 0;
}

MarketOptions options_of(uint64_t seed) {
    MarketOptions o;
    if (seed % 4 == 1) o.solver.horizon = Nanos::from_s(60);
    if (seed % 4 == 2) o.solver.min_stay = Nanos::from_s(5);
    return o;
}

}  // namespace

START_TEST(every_code_has_a_name_of_its_own_words_and_a_meaning) {
    std::set<std::string_view> names;
    for (const ReasonWords& r : reason_table()) {
        const std::string name(r.name);
        ck_assert_msg(names.insert(r.name).second, "%s twice", name.c_str());
        ck_assert(!r.means.empty() && to_string(r.code) == r.name);
        for (size_t at = 0; (at = r.text.find('{', at)) != std::string_view::npos; ++at) {
            const std::string_view figure = r.text.substr(at + 1, r.text.find('}', at) - at - 1);
            const auto known = figure_table();
            ck_assert_msg(std::any_of(known.begin(), known.end(),
                                      [&](const FigureWords& f) { return f.name == figure; }),
                          "%s has an unknown figure", name.c_str());
        }
    }
    ck_assert_text(std::string(to_string(static_cast<ReasonCode>(60'000))), "unknown");
    ck_assert_text(Reason(static_cast<ReasonCode>(60'000)).text(), "");
}
END_TEST

START_TEST(what_is_not_known_is_left_out_with_the_words_around_it) {
    Reason r = Reason(ReasonCode::displaced)
                   .with(Figure::job, "n2.14")
                   .with(Figure::price, Money::units(31));
    ck_assert_text(r.text(), "displaced by job n2.14 at 31");
    r = std::move(r).with(Figure::bid, Money{32'500'000});
    ck_assert_text(r.text(), "displaced by job n2.14 at 31; 32.5 would win it back");
    JsonWriter w;
    w.begin_object();
    write_reason(w, r);
    ck_assert_text(w.end_object().take(),
                   "{\"code\":\"displaced\",\"text\":\"displaced by job n2.14 at 31; 32.5 would "
                   "win it back\",\"job\":\"n2.14\",\"price\":31,\"bid\":32.5}");
    ck_assert_text(Reason(ReasonCode::node_off).with(Figure::opens, int64_t{1'795'456'800}).text(),
                   "is not on the market until 2026-11-23 18:00 UTC");
    ck_assert_text(Reason(ReasonCode::node_off).with(Figure::opens, int64_t{951'782'400}).text(),
                   "is not on the market until 2000-02-29 00:00 UTC");
}
END_TEST

START_TEST(the_bid_that_a_reason_names_starts_the_job_and_one_step_below_does_not) {
    size_t started = 0, of_reserve = 0, displaced = 0;
    for (uint64_t seed = 1; seed <= 120; ++seed) {
        Chaos c(seed, World(options_of(seed)));
        c.refusal = 0;
        for (int i = 0; i < 40; ++i) {
            c.event();
            c.w.run_for(Nanos::from_ms(c.rng.between(0, 6'000)));
            auto* job = c.any_job();
            if (!job || c.w.market->settling()) continue;
            const JobId id = job->report.id;
            const Job* seen = c.w.market->find(id);
            if (!seen || Orders::in_transit(*seen)) continue;  // it is told why it goes there
            const Reason why = c.w.market->reason(*seen);
            const auto bid = bid_of(why);
            if (!bid || has_place(c.w, id)) continue;
            const Money before = job->report.terms.max_price;
            const bool limited = seen->user->record.limits.any();
            const Money below = *bid - std::min(*bid, Money::units(1));
            if (below > before && !limited) {
                bids(c.w, id, below);
                ck_assert_msg(!has_place(c.w, id), "seed %d: %s starts at %s; said: %s",
                              static_cast<int>(seed), id.text().c_str(),
                              format_money(below).c_str(), why.text().c_str());
            }
            bids(c.w, id, *bid);
            ck_assert_msg(has_place(c.w, id), "seed %d: %s does not start at %s; said: %s; now: %s",
                          static_cast<int>(seed), id.text().c_str(), format_money(*bid).c_str(),
                          why.text().c_str(), c.w.comment(id).c_str());
            ++started;
            of_reserve += why.code == ReasonCode::below_every_reserve;
            displaced += why.code == ReasonCode::displaced;
        }
    }
    ck_assert_msg(started > 200 && of_reserve > 5 && displaced > 10, "%zu %zu %zu", started,
                  of_reserve, displaced);
}
END_TEST

START_TEST(an_equal_bid_is_enough_for_who_came_first) {
    World w;
    w.add_node("n1", 100, 0);
    w.run_for(Nanos::from_s(4));
    const JobId first = w.submit_as(1'001, "n1", 30);
    w.run_for(Nanos::from_s(1));
    const JobId second = w.submit_as(1'002, "n1", 40);
    w.run_for(Nanos::from_s(60));
    ck_assert_text(w.comment(first), "displaced by job n1.2 at 40; 40 would win it back");
    bids(w, first, Money::units(40));
    w.run_for(Nanos::from_s(60));
    ck_assert_text(w.where(first), "n1");
    ck_assert_text(w.comment(second), "displaced by job n1.1 at 40; 41 would win it back");
}
END_TEST

START_TEST(an_equal_bid_is_not_enough_where_a_job_of_the_same_user_bids_it_and_runs) {
    World w;
    w.add_node("n1", 100, 0);
    w.run_for(Nanos::from_s(4));
    const JobId first = w.submit("n1", 30);
    w.run_for(Nanos::from_s(1));
    w.submit("n1", 40);
    w.run_for(Nanos::from_s(60));
    ck_assert_text(w.comment(first), "displaced by job n1.2 at 40; 41 would win it back");
    bids(w, first, Money::units(40));
    w.run_for(Nanos::from_s(60));
    ck_assert_text(w.where(first), "frozen");
    bids(w, first, Money::units(41));
    w.run_for(Nanos::from_s(60));
    ck_assert_text(w.where(first), "n1");
}
END_TEST

START_TEST(who_has_what_a_job_needs_and_does_not_offer_it_is_named) {
    World w;
    w.add_node("n1", 100, 0);
    w.add_node("n7", 100, 0, 2, 64'000);
    w.run_for(Nanos::from_s(4));
    ProviderReport p = w.providers["n7"];
    p.on_market = false;
    p.opens = Nanos::from_s(1'795'456'800);
    w.set_provider(p);
    const JobId big = w.submit("n1", 30, Nanos::never(), 1, 60'000);
    w.run_for(Nanos::from_s(4));
    ck_assert_text(w.comment(big),
                   "needs 60000 MB; no provider offers more than 1000; n7 has them and is off "
                   "until 2026-11-23 18:00 UTC");
    ck_assert_text(w.jobs[big].note.code, "too_much_memory");
    ck_assert_text(w.market->reason(*w.market->find_node("n7"), w.now).text(),
                   "is not on the market until 2026-11-23 18:00 UTC");
    w.disconnect("n7");
    w.run_for(Nanos::from_s(4));
    ck_assert_text(w.comment(big),
                   "needs 60000 MB; no provider offers more than 1000; n7 has them and is not "
                   "connected");
}
END_TEST

START_TEST(a_stored_reason_is_read_again_and_one_of_a_later_version_keeps_its_words) {
    World w;
    w.add_node("n1", 100, 0);
    w.run_for(Nanos::from_s(4));
    const JobId low = w.submit("n1", 30);
    w.run_for(Nanos::from_s(1));
    w.submit("n1", 40);
    w.run_for(Nanos::from_s(60));
    JobRecord record = w.stored_jobs.at(low);
    ck_assert(record.reason->code == ReasonCode::displaced);
    const auto kept = wire::unpack<JobRecord>(wire::pack(record));
    ck_assert(kept && kept->reason == record.reason);
    Book book({9, 9, 9});
    ck_assert(book.load(*kept).reason.code == ReasonCode::displaced);
    record.reason.edit().code = static_cast<ReasonCode>(999);
    const auto later = wire::unpack<JobRecord>(wire::pack(record));
    Book other({9, 9, 9});
    const Job& job = other.load(*later);
    ck_assert(job.reason.code == ReasonCode::said);
    ck_assert_text(job.reason.text(), record.comment);
}
END_TEST

START_TEST(a_job_that_its_home_lets_not_begin_yet_is_not_placed_and_says_for_what_it_waits) {
    World w;
    w.add_node("n1", 100, 0, 2);
    w.run_for(Nanos::from_s(4));
    const JobId id = w.submit("n1", 30);
    w.jobs.at(id).report.waits_for = "job n1.7 to end";
    w.tell(w.jobs.at(id));
    w.run_for(Nanos::from_s(60));
    ck_assert_text(w.where(id), "waiting");
    ck_assert_text(w.comment(id), "waits for job n1.7 to end");
    ck_assert_text(w.jobs.at(id).note.code, "waits_for_job");
    w.jobs.at(id).report.waits_for.clear();
    w.tell(w.jobs.at(id));
    w.run_for(Nanos::from_s(60));
    ck_assert_text(w.where(id), "n1");
}
END_TEST

UNIT_SUITE(reasons, a_job_that_its_home_lets_not_begin_yet_is_not_placed_and_says_for_what_it_waits,
           every_code_has_a_name_of_its_own_words_and_a_meaning,
           what_is_not_known_is_left_out_with_the_words_around_it,
           the_bid_that_a_reason_names_starts_the_job_and_one_step_below_does_not,
           an_equal_bid_is_enough_for_who_came_first,
           an_equal_bid_is_not_enough_where_a_job_of_the_same_user_bids_it_and_runs,
           who_has_what_a_job_needs_and_does_not_offer_it_is_named,
           a_stored_reason_is_read_again_and_one_of_a_later_version_keeps_its_words);
