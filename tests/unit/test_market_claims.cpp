// SPDX-License-Identifier: GPL-2.0-or-later
// Market: what a home says of the places of its jobs, held against what was ordered and what nodes
// say (claims.hpp); and how many jobs of one home and user there may be.
#include "market/core/open_hours.hpp"
#include "market/core/refusals.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {
constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }

// Three nodes that say their version, as those do that tell how long their guests run.
void telling_nodes(World& w) {
    three_nodes(w);
    for (const auto& [name, p] : std::map(w.providers)) {
        ProviderReport telling = p;
        telling.version = "1";
        w.set_provider(telling);
    }
}

void connect_liar(World& w, const char* name = "evil") {
    ck_assert(w.market->agent_connected(name, "10.0.0.9:1", w.now).has_value());
    w.connected.insert(name);
}

JobReport ghost(uint64_t seq, const NodeName& where, JobPhase phase = JobPhase::frozen) {
    JobReport r;
    r.id = {"evil", seq};
    r.uid = 4444;
    r.terms.max_price = Money::units(90);
    r.terms.memory_mb = 1'000;
    r.submitted = s(1);
    r.phase = phase;
    r.where = where;
    r.epoch = Epoch{1};
    r.in_place = phase == JobPhase::frozen;
    r.cannot_move = "cannot be dumped";
    return r;
}

void says(World& w, const JobReport& r) {
    ck_assert(w.market->report(r.id.home, r, w.now).has_value());
}

void node_says(World& w, const NodeName& node, const JobId& id, Epoch epoch, bool ended = false) {
    UseReport use;
    use.jobs.push_back({id, epoch, s(1), s(1), ended});
    w.market->use_report(node, use, w.now);
}

ReasonCode why(const World& w, const JobId& id) {
    return w.market->reason(*w.market->find(id)).code;
}
}  // namespace

START_TEST(jobs_that_stand_where_nobody_ordered_them_take_no_room) {
    World w;
    three_nodes(w);
    connect_liar(w);
    uint64_t seq = 0;
    for (const char* where : {"n1", "n2", "n3"}) {
        for (const JobPhase phase : {JobPhase::frozen, JobPhase::running, JobPhase::starting,
                                     JobPhase::freezing, JobPhase::moving, JobPhase::thawing}) {
            JobReport r = ghost(++seq, where, phase);
            if (phase == JobPhase::moving || phase == JobPhase::thawing) r.to = "n1";
            says(w, r);
        }
        ck_assert_int_eq(w.market->find_node(where)->used_mb, 0);
    }
    const JobId a = w.submit("n1", 10), b = w.submit("n2", 10), c = w.submit("n3", 10);
    w.run_for(s(3));
    for (const JobId& id : {a, b, c}) ck_assert(w.phase(id) == JobPhase::running);
    ck_assert(why(w, {"evil", 1}) == ReasonCode::place_unbacked);
    ck_assert_text(w.comment({"evil", 1}),
                   "its home says that it is on n1, where this market has not ordered it and n1 "
                   "does not say that it has it");
    for (const auto& [id, job] : w.market->jobs())
        if (id.home == "evil") ck_assert(w.market->cost(job, w.now).micro == 0);
    ck_assert(w.market->find_node("nowhere") == nullptr);
    says(w, ghost(99, "nowhere", JobPhase::running));
    w.run_for(s(1));
    ck_assert(w.market->find_node("nowhere") == nullptr);
}
END_TEST

START_TEST(a_job_goes_from_an_ordered_place_to_no_other_by_its_homes_word) {
    World w;
    three_nodes(w);
    const JobId a = w.submit("n3", 100);
    w.run_for(s(10));
    const std::string at = w.where(a);
    ck_assert_text(at, "n1");
    const Money paid = w.cost(a);
    ck_assert(paid.micro > 0);
    JobReport lie = w.jobs[a].report;
    lie.where = "n2";
    says(w, lie);
    ck_assert(why(w, a) == ReasonCode::place_unbacked);
    w.run_for(s(20));
    ck_assert_int_eq(w.market->find_node("n1")->used_cpus, 0);
    ck_assert_int_eq(w.market->find_node("n2")->used_cpus, 0);
    ck_assert(w.cost(a) == paid && w.market->find_node("n2")->record.earned.micro == 0);
    w.tell(w.jobs[a]);  // where it was ordered
    ck_assert_int_eq(w.market->find_node("n1")->used_cpus, 1);
    w.run_for(s(1));
    ck_assert(w.cost(a) > paid);
}
END_TEST

START_TEST(an_order_that_came_to_nothing_backs_no_claim) {
    World w;
    three_nodes(w);
    w.refuse = [](const Order& o) -> std::optional<OrderFailed> {
        if (o.node != "n1") return std::nullopt;
        return OrderFailed{o.id, o.seq, "n1", "no"};
    };
    const JobId a = w.submit("n3", 100);
    w.run_for(s(0));
    ck_assert_text(w.orders.back().node, "n1");
    w.run_for(Nanos::from_ms(500));
    JobReport lie = w.jobs[a].report;
    lie.phase = JobPhase::frozen;
    lie.where = "n1";
    lie.in_place = true;
    says(w, lie);
    ck_assert_int_eq(w.market->find_node("n1")->used_mb, 0);
    ck_assert(w.market->find(a)->record.unbacked);
}
END_TEST

// The guest there has the limits of its ticket.
START_TEST(a_home_cannot_shrink_a_job_that_has_a_place) {
    World w;
    w.add_node("n1", 100, 1, 8);
    w.connect("evil");
    w.connect("good");
    const JobId a = w.submit("evil", 20, Nanos::never(), 8, 400);
    w.run_for(s(5));
    ck_assert_text(w.where(a), "n1");
    JobTerms& said = w.jobs[a].report.terms;
    said.cpus = 1;
    said.memory_mb = 1;
    w.tell(w.jobs[a]);
    w.run_for(s(5));
    const Node& n1 = *w.market->find_node("n1");
    ck_assert_int_eq(n1.used_cpus, 8);
    ck_assert_int_eq(n1.used_mb, 400);
    const JobId b = w.submit("good", 5, Nanos::never(), 7, 100);
    w.run_for(s(5));
    ck_assert(w.phase(b) == JobPhase::waiting);
    // It may want more at its next place.
    said.memory_mb = 500;
    w.tell(w.jobs[a]);
    ck_assert_int_eq(n1.used_mb, 500);
    // When it has none, it is what its home says.
    w.jobs[a].report.phase = JobPhase::frozen;
    said.memory_mb = 10;
    w.tell(w.jobs[a]);
    ck_assert_int_eq(w.market->find(a)->record.report.terms.memory_mb, 10);
}
END_TEST

// Its records are gone: homes and nodes know what runs where.
static World market_without_records(JobId& a, JobId& b) {
    World w;
    telling_nodes(w);
    a = w.submit("n3", 100);
    b = w.submit("n3", 90);
    w.run_for(s(10));
    ck_assert_text(w.where(a) + w.where(b), "n1n2");
    w.stored_jobs.clear();
    w.stored_nodes.clear();
    w.stored_accounts.clear();
    w.receipts.clear();
    w.paid.clear();
    w.stored_meta = {};
    w.restart();
    return w;
}

START_TEST(a_market_without_records_believes_a_home_and_a_node_together) {
    JobId a, b;
    World w = market_without_records(a, b);
    for (const char* name : {"n3", "n1", "n2"}) w.connect(name);
    w.run_for(s(1));
    ck_assert(w.market->find(a)->record.unbacked && w.market->find(b)->record.unbacked);
    ck_assert_int_eq(w.market->find_node("n1")->used_cpus, 0);
    const size_t given = w.orders.size();
    node_says(w, "n2", a, w.jobs[a].report.epoch);         // it is not there
    node_says(w, "n1", a, w.jobs[a].report.epoch.next());  // another copy
    ck_assert(w.market->find(a)->record.unbacked);
    node_says(w, "n1", a, w.jobs[a].report.epoch);
    node_says(w, "n2", b, w.jobs[b].report.epoch);
    ck_assert(!w.market->find(a)->record.unbacked && !w.market->find(b)->record.unbacked);
    w.run_for(s(100));
    ck_assert_text(w.where(a) + w.where(b), "n1n2");
    ck_assert_int_eq(w.orders.size(), given);
    ck_assert_int_eq(w.market->find_node("n1")->used_cpus, 1);
    ck_assert(w.cost(a).micro > 0);
    w.tell(w.jobs[b]);
    ck_assert(w.market->find_node("n2")->record.earned.micro > 0);
}
END_TEST

START_TEST(what_a_node_said_first_backs_what_its_home_says_later) {
    JobId a, b;
    World w = market_without_records(a, b);
    w.connect("n1");
    node_says(w, "n1", a, w.jobs[a].report.epoch);
    node_says(w, "n1", b, w.jobs[b].report.epoch);
    node_says(w, "n1", b, w.jobs[b].report.epoch, true);
    w.connect("n2");
    w.connect("n3");
    ck_assert(!w.market->find(a)->record.unbacked);
    ck_assert(w.market->find(b)->record.unbacked);
    ck_assert_int_eq(w.market->find_node("n1")->used_cpus, 1);
}
END_TEST

START_TEST(a_job_that_no_node_confirms_is_frozen_and_placed_anew) {
    JobId a, b;
    World w = market_without_records(a, b);
    for (const char* name : {"n3", "n1", "n2"}) w.connect(name);
    w.run_for(s(59));
    ck_assert(w.orders.back().kind == Order::Kind::run);
    ck_assert_text(w.where(a) + w.where(b), "n1n2");
    w.run_for(s(10));
    const auto frozen = [&](const JobId& id) { return w.jobs[id].report.stats.freezes == 1; };
    ck_assert(frozen(a) && frozen(b));
    ck_assert_text(w.where(a) + w.where(b), "n1n2");  // by order, this time
    ck_assert(!w.market->find(a)->record.unbacked);
    ck_assert_int_eq(w.market->find_node("n1")->used_cpus, 1);
}
END_TEST

START_TEST(an_order_alone_backs_a_place_for_a_minute_where_nodes_tell) {
    World w;
    telling_nodes(w);
    const JobId a = w.submit("n3", 100), b = w.submit("n3", 90);
    w.run_for(s(20));
    ck_assert_text(w.where(a) + w.where(b), "n1n2");
    node_says(w, "n1", a, w.jobs[a].report.epoch);
    w.run_for(s(50));
    ck_assert(!w.market->find(a)->record.unbacked && w.market->find(b)->record.unbacked);
    ck_assert_int_eq(w.market->find_node("n1")->used_cpus, 1);
    ck_assert_int_eq(w.market->find_node("n2")->used_cpus, 0);
    const Money paid = w.cost(b);
    w.run_for(s(10));
    ck_assert(w.cost(b) == paid);
    node_says(w, "n2", b, w.jobs[b].report.epoch);
    ck_assert_int_eq(w.market->find_node("n2")->used_cpus, 1);
    w.run_for(s(100));
    ck_assert(w.cost(b) > paid && w.where(b) == "n2");
}
END_TEST

START_TEST(a_place_where_the_node_says_that_the_job_has_ended_is_free_after_a_minute) {
    World w;
    telling_nodes(w);
    const JobId a = w.submit("n3", 100);
    w.run_for(s(20));
    node_says(w, "n1", a, w.jobs[a].report.epoch);
    w.run_for(s(200));
    ck_assert_int_eq(w.market->find_node("n1")->used_cpus, 1);
    node_says(w, "n1", a, w.jobs[a].report.epoch, true);  // and its home says nothing
    w.run_for(s(59));
    ck_assert_int_eq(w.market->find_node("n1")->used_cpus, 1);
    w.run_for(s(2));
    ck_assert_int_eq(w.market->find_node("n1")->used_cpus, 0);
}
END_TEST

START_TEST(an_order_that_a_home_takes_and_never_ends_holds_its_place_for_so_long) {
    World w;
    telling_nodes(w);
    connect_liar(w);
    says(w, [] {
        JobReport r = ghost(1, "", JobPhase::waiting);
        r.in_place = false;
        r.terms.cpus = 1;
        return r;
    }());
    Outputs out;
    w.market->solve(w.now, out);
    NodeName to;
    uint64_t seq = 0;
    for (const Send& send : out.send)
        if (const auto* o = std::get_if<Order>(&send.message)) to = o->node, seq = o->seq;
    ck_assert_text(to, "n1");
    for (const StoreOp& op : out.store)
        if (const auto* meta = std::get_if<MetaRecord>(&op)) w.stored_meta = *meta;
    JobReport r = ghost(1, to, JobPhase::starting);
    r.order_seq = seq;
    says(w, r);
    // It is on its way, and its node, which comes back meanwhile, does not tell of it yet.
    w.market->agent_lost("n1", w.now);
    w.connect("n1");
    w.run_for(s(1'100));
    ck_assert_int_eq(w.market->find_node("n1")->used_cpus, 1);
    w.run_for(s(300));
    ck_assert_int_eq(w.market->find_node("n1")->used_cpus, 0);
    r.phase = JobPhase::running;
    says(w, r);
    ck_assert_int_eq(w.market->find_node("n1")->used_cpus, 0);
}
END_TEST

// -------------------------------------------------------------------------------------------------
// the bounds of the book

static MarketOptions bounded(size_t jobs, size_t home, size_t user) {
    MarketOptions o;
    o.jobs_max = jobs;
    o.jobs_home_max = home;
    o.jobs_user_max = user;
    o.finished_recent = 0;
    return o;
}

START_TEST(a_home_has_so_many_jobs_in_the_book_and_is_asked_for_the_others_when_some_end) {
    World w(bounded(20, 3, 0));
    w.add_node("n1", 100, 1);
    w.add_node("n2", 100, 1);
    w.run_for(s(4));
    std::vector<JobId> ids(5);
    for (JobId& id : ids) id = w.submit("n1", 10, s(30));
    w.run_for(s(1));
    ck_assert_uint_eq(w.market->jobs_of_home("n1"), 3);
    ck_assert_uint_eq(w.market->refused_of_home("n1"), 2);
    ck_assert(w.market->find(ids[3]) == nullptr);
    ck_assert_text(w.jobs[ids[3]].note.comment,
                   "the market does not take it yet: it has 3 jobs of node n1 (jobs_home_max, "
                   "jobs_max); its home is asked again");
    ck_assert_text(w.jobs[ids[3]].note.code, "book_full");
    ck_assert(!w.jobs[ids[3]].note.settled);
    const JobId other = w.submit("n2", 20);  // is not touched by that
    w.run_for(s(1));
    ck_assert(w.phase(other) == JobPhase::running);
    w.run_for(s(600));
    for (const JobId& id : ids) ck_assert(w.phase(id) == JobPhase::finished);
    ck_assert_uint_eq(w.market->jobs_of_home("n1"), 0);
}
END_TEST

START_TEST(an_address_is_one_jobs_for_as_long_as_that_lives) {
    World w;
    three_nodes(w);
    w.run_for(s(4));
    connect_liar(w, "evil");
    connect_liar(w, "evil2");
    const auto job = [](const char* home, uint64_t seq, uint32_t address,
                        JobPhase phase = JobPhase::waiting) {
        JobReport r = ghost(seq, "", phase);
        r.id.home = home;
        r.cannot_move = {};
        r.address = {address};
        return r;
    };
    const auto address_of = [&](const JobId& id) {
        return w.market->find(id)->record.report.address.n;
    };
    says(w, job("evil", 1, 7));
    for (int again = 0; again < 2; ++again) {
        says(w, job("evil2", 1, 7));
        ck_assert(w.market->find({"evil2", 1}) == nullptr);
    }
    says(w, job("evil2", 2, 8));
    says(w, job("evil2", 2, 7));
    ck_assert_uint_eq(address_of({"evil2", 2}), 8);
    says(w, job("evil2", 3, 0));
    says(w, job("evil2", 4, 0));
    ck_assert(w.market->find({"evil2", 3}) != nullptr && w.market->find({"evil2", 4}) != nullptr);
    says(w, job("evil", 1, 7, JobPhase::finished));
    says(w, job("evil2", 1, 7));
    ck_assert_uint_eq(address_of({"evil2", 1}), 7);
}
END_TEST

START_TEST(a_user_has_so_many_jobs_in_the_book_whatever_home_they_are_of) {
    World w(bounded(20, 0, 2));
    w.add_node("n1", 100, 1);
    w.add_node("n2", 100, 1);
    w.run_for(s(4));
    w.submit_as(7, "n1", 10);
    w.submit_as(7, "n2", 10);
    const JobId third = w.submit_as(7, "n2", 10), other = w.submit_as(8, "n2", 10);
    w.run_for(s(1));
    ck_assert(w.market->find(third) == nullptr && w.market->find(other) != nullptr);
    ck_assert_text(w.jobs[third].note.comment,
                   "the market does not take it yet: it has 2 jobs of user 7 (jobs_user_max, "
                   "jobs_max); its home is asked again");
    w.restart();
    w.connect("n1");
    w.connect("n2");
    w.run_for(s(1));
    ck_assert(w.market->find(third) == nullptr);
}
END_TEST

START_TEST(the_last_of_the_book_is_for_those_who_have_few) {
    World w(bounded(100, 0, 0));
    w.add_node("n1", 100, 1);
    w.add_node("n2", 100, 1);
    w.run_for(s(4));
    for (uint32_t i = 0; i < 200; ++i) w.submit_as(1'000 + i, "n1", 10);
    w.run_for(s(1));
    ck_assert_uint_eq(w.market->jobs_of_home("n1"), 90);
    const JobId first = w.submit_as(5, "n2", 20), second = w.submit_as(6, "n2", 20);
    w.run_for(s(1));
    ck_assert(w.phase(first) == JobPhase::running);
    ck_assert(w.market->find(second) == nullptr);  // has one of these already
}
END_TEST

START_TEST(a_home_is_asked_in_pauses_that_grow_until_a_job_of_it_is_taken) {
    Refusals all;
    const auto yes = [](const NodeName&) { return true; };
    const auto no = [](const NodeName&) { return false; };
    const auto none = [](const JobId&) { return false; };
    ck_assert(all.next() == Nanos::never());
    for (const uint64_t seq : {7, 5, 6}) all.refused({"n1", seq}, true, s(0));
    all.refused({"n2", 1}, false, s(0));
    ck_assert(all.next() == s(1) && all.count("n1") == 3 && all.count("n2") == 1);
    ck_assert(all.due(Nanos::from_ms(999), yes, none).empty());
    ck_assert(all.due(s(1), no, none).empty() && all.next() == s(3));
    ck_assert(all.due(s(3), no, none).empty() && all.next() == s(7));
    const auto knows_5 = [](const JobId& id) { return id.seq == 5; };
    const std::vector<JobId> asked = all.due(s(7), yes, knows_5);
    ck_assert(asked == (std::vector<JobId>{{"n1", 6}, {"n1", 7}}));
    ck_assert(all.next() == Nanos::never());
    all.refused({"n1", 7}, true, s(8));
    ck_assert(all.next() == s(16));  // after 8 s
    (void)all.due(s(16), yes, none);
    // A job that was asked for is refused again: its home is asked for the rest more slowly.
    for (const uint64_t seq : {1, 1'000}) all.refused({"n3", seq}, true, s(17));
    ck_assert_uint_eq(all.due(s(18), yes, none).size(), 256);
    ck_assert(all.next() == s(19));
    all.refused({"n3", 2}, true, s(18));
    ck_assert_uint_eq(all.due(s(19), yes, none).size(), 256);
    ck_assert(all.next() == s(21));
    all.gone("n3");
    all.taken("n1");
    all.refused({"n1", 9}, true, s(20));
    ck_assert(all.next() == s(21));
    all.gone("n1");
    ck_assert(all.next() == Nanos::never() && all.count("n1") == 5);
    all.refused({"n1", UINT64_MAX / 2}, true, s(30));
    all.refused({"n1", 1}, true, s(30));
    ck_assert_uint_eq(all.due(s(31), yes, none).size(), 256);  // of as many as it says
    ck_assert(all.next() == s(32));
}
END_TEST

START_TEST(a_component_that_asks_for_named_resources_is_refused_and_the_market_goes_on) {
    World w;
    three_nodes(w);
    connect_liar(w);
    for (uint64_t seq = 1; seq <= 2; ++seq) {
        JobReport r = ghost(seq, "", JobPhase::waiting);
        r.gang = "evil.1";
        r.components = 2;
        r.component = static_cast<uint32_t>(seq);
        says(w, r);
    }
    w.elsewhere = [](const Send&) { return true; };
    w.decide();
    JobReport r = w.market->find({"evil", 2})->record.report;
    r.terms.resources = "gpu=1";
    ck_assert(!w.market->report("evil", r, w.now).has_value());
    w.decide();
}
END_TEST

START_TEST(hours_that_end_before_they_begin_are_refused_and_those_of_a_record_are_none) {
    World w;
    three_nodes(w);
    ProviderReport r = w.providers.begin()->second;
    const auto opens = [&](int32_t from, int32_t to) {
        r.hours = {{from, to, Money::units(1)}};
        return w.market->report(r.node, r, w.now).has_value();
    };
    ck_assert(opens(OpenHours::week_s - 1, OpenHours::week_s) && opens(0, OpenHours::week_s));
    for (const auto& [from, to] : {std::pair(100, 50), {100, 100}, {0, OpenHours::week_s + 1}}) {
        ck_assert(!opens(from, to));
        // A market of before may have written them down: what it plans comes to an end.
        r.on_market = false;
        const auto closed = closed_in(r, s(1), s(1'000'000));
        ck_assert(closed.size() == 1 && closed[0].to == Nanos::never());
        r.on_market = true;
        ck_assert(closed_in(r, s(1), s(1'000'000)).empty());
    }
}
END_TEST

UNIT_SUITE(market_claims, jobs_that_stand_where_nobody_ordered_them_take_no_room,
           a_home_cannot_shrink_a_job_that_has_a_place,
           a_job_goes_from_an_ordered_place_to_no_other_by_its_homes_word,
           an_order_that_came_to_nothing_backs_no_claim,
           a_market_without_records_believes_a_home_and_a_node_together,
           what_a_node_said_first_backs_what_its_home_says_later,
           a_job_that_no_node_confirms_is_frozen_and_placed_anew,
           an_order_alone_backs_a_place_for_a_minute_where_nodes_tell,
           a_place_where_the_node_says_that_the_job_has_ended_is_free_after_a_minute,
           an_order_that_a_home_takes_and_never_ends_holds_its_place_for_so_long,
           a_home_has_so_many_jobs_in_the_book_and_is_asked_for_the_others_when_some_end,
           an_address_is_one_jobs_for_as_long_as_that_lives,
           a_user_has_so_many_jobs_in_the_book_whatever_home_they_are_of,
           the_last_of_the_book_is_for_those_who_have_few,
           a_home_is_asked_in_pauses_that_grow_until_a_job_of_it_is_taken,
           a_component_that_asks_for_named_resources_is_refused_and_the_market_goes_on,
           hours_that_end_before_they_begin_are_refused_and_those_of_a_record_are_none);
