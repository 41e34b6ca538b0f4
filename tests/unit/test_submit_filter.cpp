// SPDX-License-Identifier: GPL-2.0-or-later
// SubmitFilter (market/core/submit_filter.hpp) in a Market on virtual time: a job is not considered
// before the operator's filter has let it pass, and what the filter adds stands beside its terms.
#include "market/core/submit_filter.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {

MarketOptions filtered() {
    MarketOptions options;
    options.submit_filter = true;
    return options;
}

FilterWord passed() {
    FilterWord word;
    word.state = FilterWord::State::passed;
    return word;
}

FilterWord refused(const char* why) {
    FilterWord word;
    word.state = FilterWord::State::refused;
    word.why = why;
    return word;
}

ReasonCode reason_of(const World& w, const JobId& id) {
    return w.market->reason(*w.market->find(id)).code;
}

bool runs(const World& w, const JobId& id) {
    return w.market->find(id)->phase() == JobPhase::running;
}

}  // namespace

START_TEST(a_job_runs_when_the_filter_has_let_it_pass_and_not_before) {
    World w(filtered());
    w.add_node("n1", 100, 1);
    w.run_for(Nanos::from_s(4));
    const JobId id = w.submit("n1", 50);
    ck_assert(w.market->take_unfiltered() == std::set<JobId>{id});
    w.run_for(Nanos::from_s(10));
    ck_assert(!runs(w, id) && reason_of(w, id) == ReasonCode::filter_asked);
    // It competes with nobody: one that came later and passed has the place.
    const JobId other = w.submit("n1", 10);
    w.market->filtered(other, passed());
    w.run_for(Nanos::from_s(2));
    ck_assert(runs(w, other));
    w.market->filtered(id, fail("it is silent"));
    w.run_for(Nanos::from_s(2));
    ck_assert(!runs(w, id) && reason_of(w, id) == ReasonCode::filter_silent);
    FilterWord word = passed();
    word.token = "class=deisa";
    word.bars = "far,uni";
    w.market->filtered(id, word);
    w.run_for(Nanos::from_s(2));
    ck_assert(runs(w, id) && !runs(w, other));
    // An answer that nobody has asked for changes nothing.
    w.market->filtered(id, refused("too late"));
    w.run_for(Nanos::from_s(2));
    ck_assert(runs(w, id));
    World::HomeJob& job = w.jobs.at(id);
    ck_assert(job.report.terms.sites->names.empty());
    ck_assert(SubmitFilter::is_barred(*w.market->find(id), "uni"));
    ck_assert(!SubmitFilter::is_barred(*w.market->find(id), "lab"));
    ck_assert_text(w.market->audit(), "");
}
END_TEST

START_TEST(one_that_is_refused_waits_until_its_terms_change_or_an_operator_says_so) {
    World w(filtered());
    w.add_node("n1", 100, 1, 4);
    w.run_for(Nanos::from_s(4));
    const JobId one = w.submit("n1", 50), two = w.submit("n1", 50);
    for (const JobId& id : w.market->take_unfiltered()) w.market->filtered(id, refused("too much"));
    w.run_for(Nanos::from_s(10));
    ck_assert(!runs(w, one) && reason_of(w, one) == ReasonCode::filter_refused);
    ck_assert(w.market->take_unfiltered().empty());
    ck_assert(!w.market->release(two, 1000));  // its own user may not
    ck_assert(w.market->release(two, root_uid).has_value());
    w.run_for(Nanos::from_s(2));
    ck_assert(runs(w, two));
    w.jobs.at(one).report.terms.max_price = Money::units(40);
    w.tell(w.jobs.at(one));
    ck_assert(w.market->take_unfiltered() == std::set<JobId>{one});
    ck_assert(reason_of(w, one) == ReasonCode::filter_asked);
    w.market->filtered(one, passed());
    // A job that has passed does not become another job while it waits.
    w.jobs.at(one).report.terms.cpus = 3;
    w.tell(w.jobs.at(one));
    ck_assert(w.market->take_unfiltered() == std::set<JobId>{one});
    w.market->filtered(one, passed());
    w.run_for(Nanos::from_s(2));
    ck_assert(runs(w, one));
    w.jobs.at(one).report.terms.max_price = Money::units(60);
    w.tell(w.jobs.at(one));
    ck_assert(w.market->take_unfiltered() == std::set<JobId>{one});
    w.run_for(Nanos::from_s(2));
    ck_assert(runs(w, one));
}
END_TEST

// It goes on where it is, and to no site before the filter has let it.
START_TEST(a_change_of_a_job_that_runs_is_asked_about_before_it_counts_elsewhere) {
    World w(filtered());
    w.add_node("n1", 100, 1, 4);
    w.run_for(Nanos::from_s(4));
    const JobId id = w.submit("n1", 50);
    FilterWord word = passed();
    word.token = "t";
    word.needs = "node = n1";
    w.market->filtered(id, word);
    w.run_for(Nanos::from_s(2));
    ck_assert(runs(w, id));
    (void)w.market->take_unfiltered();
    const auto change = [&](const char* sites) {
        w.jobs.at(id).report.terms.sites.edit().names = sites;
        w.tell(w.jobs.at(id));
        ck_assert(w.market->take_unfiltered() == std::set<JobId>{id});
    };
    change("any");
    ck_assert(SubmitFilter::is_barred(*w.market->find(id), "far"));
    ck_assert_text(w.market->find(id)->record.filter->token, "t");
    w.market->filtered(id, fail("it is silent"));
    w.run_for(Nanos::from_s(10));
    ck_assert(runs(w, id) && SubmitFilter::is_barred(*w.market->find(id), "far"));
    w.market->filtered(id, refused("no"));
    w.run_for(Nanos::from_s(10));
    ck_assert(runs(w, id) && SubmitFilter::is_barred(*w.market->find(id), "far"));
    const FilterWord& kept = *w.market->find(id)->record.filter;
    ck_assert(kept.state == FilterWord::State::refused);
    change("far");
    w.market->filtered(id, passed());
    ck_assert(!SubmitFilter::is_barred(*w.market->find(id), "far"));
    // Memory that it is found to have is no wish of its user's.
    w.jobs.at(id).report.terms.memory_mb += 5;
    w.tell(w.jobs.at(id));
    ck_assert(w.market->take_unfiltered().empty());
}
END_TEST

START_TEST(the_hold_of_the_filter_goes_before_that_of_its_user) {
    World w(filtered());
    w.add_node("n1", 100, 1, 4);
    w.run_for(Nanos::from_s(4));
    const JobId id = w.submit("n1", 50);
    const uint32_t user = w.market->find(id)->record.report.uid;
    ck_assert(w.market->freeze(id, true, user).has_value());
    // An operator's release of the hold does not let it pass.
    ck_assert(w.market->release(id, root_uid).has_value());
    ck_assert(reason_of(w, id) == ReasonCode::filter_asked);
    ck_assert(w.market->freeze(id, true, user).has_value());
    FilterWord word = passed();
    word.hold = true;
    w.market->filtered(id, word);
    ck_assert(w.market->find(id)->record.hold == Hold::frozen);
    ck_assert(!w.market->release(id, user));
    ck_assert(w.market->release(id, root_uid).has_value());
    w.run_for(Nanos::from_s(2));
    ck_assert(runs(w, id));
}
END_TEST

START_TEST(a_hold_of_the_filter_ends_with_an_answer_without_one_and_an_operators_does_not) {
    World w(filtered());
    w.add_node("n1", 100, 1, 4);
    w.run_for(Nanos::from_s(4));
    const JobId id = w.submit("n1", 50);
    Money price = Money::units(50);
    const auto answered = [&](bool hold) {
        price = price + Money::units(1);
        w.jobs.at(id).report.terms.max_price = price;  // so the filter is asked once more
        w.tell(w.jobs.at(id));
        FilterWord word = passed();
        word.hold = hold;
        w.market->filtered(id, word);
        return w.market->find(id)->record.hold;
    };
    ck_assert(answered(true) == Hold::frozen);
    ck_assert(answered(true) == Hold::frozen);
    ck_assert(answered(false) == Hold::none);
    // Since an operator has said the same, it is his.
    ck_assert(answered(true) == Hold::frozen);
    ck_assert(w.market->freeze(id, true, root_uid).has_value());
    ck_assert(answered(false) == Hold::frozen);
    ck_assert(answered(true) == Hold::frozen);
    ck_assert(answered(false) == Hold::frozen);
    ck_assert(w.market->release(id, root_uid).has_value());
    ck_assert(answered(false) == Hold::none);
    w.run_for(Nanos::from_s(2));
    ck_assert(runs(w, id));
}
END_TEST

START_TEST(needs_that_are_too_long_together_are_no_answer) {
    World w(filtered());
    w.add_node("n1", 100, 1, 4);
    const JobId id = w.submit("n1", 50);
    w.jobs.at(id).report.terms.needs = "node = " + std::string(60, 'n');
    w.tell(w.jobs.at(id));
    const Job& job = *w.market->find(id);
    FilterWord word = passed();
    word.needs = "cpu.avx512f";
    ck_assert(SubmitFilter::can_join(job, word).has_value());
    word.needs = "node = " + std::string(Needs::text_max - 70, 'n');
    const Status joins = SubmitFilter::can_join(job, word);
    ck_assert(!joins && joins.error().message.find("1000") != std::string::npos);
    word.needs.clear();
    ck_assert(SubmitFilter::can_join(job, word).has_value());
}
END_TEST

START_TEST(what_the_filter_says_outlives_the_market_and_ends_with_the_filter) {
    World w(filtered());
    w.add_node("n1", 100, 1, 4);
    w.run_for(Nanos::from_s(4));
    const JobId asked = w.submit("n1", 50), no = w.submit("n1", 50), held = w.submit("n1", 50);
    (void)w.market->take_unfiltered();
    w.market->filtered(no, refused("no"));
    FilterWord word = passed();
    word.hold = true;
    word.token = "t";
    w.market->filtered(held, word);
    w.run_for(Nanos::from_s(2));
    ck_assert(w.market->find(held)->record.hold == Hold::frozen && !runs(w, held));
    w.restart();
    w.connect("n1");
    w.run_for(Nanos::from_s(10));
    ck_assert(w.market->take_unfiltered() == std::set<JobId>{asked});
    ck_assert(reason_of(w, no) == ReasonCode::filter_refused);
    ck_assert_text(w.market->find(held)->record.filter->token, "t");
    w.options.submit_filter = false;
    w.restart();
    w.connect("n1");
    w.run_for(Nanos::from_s(10));
    ck_assert(runs(w, asked) && runs(w, no) && !runs(w, held));
    ck_assert(w.market->take_unfiltered().empty());
}
END_TEST

START_TEST(needs_of_the_filter_count_beside_those_of_the_user) {
    World w(filtered());
    for (const char* node : {"n1", "n2", "n3"}) w.add_node(node, 100, 1);
    w.run_for(Nanos::from_s(4));
    const JobId id = w.submit("n1", 50);
    w.jobs.at(id).report.terms.needs = "node != n1";
    w.tell(w.jobs.at(id));
    FilterWord word = passed();
    word.needs = "node != n2";
    w.market->filtered(id, word);
    w.run_for(Nanos::from_s(2));
    ck_assert(runs(w, id));
    ck_assert_text(w.market->find(id)->record.report.where, "n3");
    ck_assert_text(*w.market->find(id)->record.report.terms.needs, "node != n1");
}
END_TEST

UNIT_SUITE(submit_filter, a_job_runs_when_the_filter_has_let_it_pass_and_not_before,
           one_that_is_refused_waits_until_its_terms_change_or_an_operator_says_so,
           a_change_of_a_job_that_runs_is_asked_about_before_it_counts_elsewhere,
           the_hold_of_the_filter_goes_before_that_of_its_user,
           a_hold_of_the_filter_ends_with_an_answer_without_one_and_an_operators_does_not,
           needs_that_are_too_long_together_are_no_answer,
           what_the_filter_says_outlives_the_market_and_ends_with_the_filter,
           needs_of_the_filter_count_beside_those_of_the_user);
