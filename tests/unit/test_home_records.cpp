// SPDX-License-Identifier: GPL-2.0-or-later
// HomeRecords and HomeOrders by themselves.
#include "agentd/core/home_orders.hpp"
#include "agentd/core/home_records.hpp"
#include "tests/unit/home_rig.hpp"

using namespace souk;
using namespace souk::unit;

namespace {

HomeRecords records(size_t jobs_max, size_t finished_max) {
    return {"n1", {jobs_max, finished_max, Ipv4Range{{0x0a000000}, 29}}};
}

HomeJob settled(uint64_t seq) {
    HomeJob job = HomeRig::waiting();
    job.id.seq = seq;
    job.phase = JobPhase::finished;
    job.settled = true;
    return job;
}

std::string ids(const HomeRecords& r) {
    std::string s;
    for (const auto& [seq, job] : r.all()) s += (s.empty() ? "" : " ") + std::to_string(seq);
    return s;
}

}  // namespace

START_TEST(ids_grow_past_all_that_was_read_back) {
    HomeRecords r = records(10, 10);
    ck_assert_text(r.next_id().text(), "n1.1");
    (void)r.load(settled(7));
    (void)r.load(settled(3));
    ck_assert_text(r.next_id().text(), "n1.8");
    ck_assert_text((*r.add(HomeRig::waiting()))->id.text(), "n1.8");
    ck_assert_text(r.next_id().text(), "n1.9");
    ck_assert(!r.find({"n2", 8}) && !r.find({"n1", 9}) && r.find({"n1", 8}));
}
END_TEST

START_TEST(the_number_of_a_job_that_is_forgotten_is_not_given_again) {
    HomeRig rig;
    HomeRecords r = records(10, 1);
    (void)r.load(settled(7));
    (void)r.load(settled(9));  // the newest
    (void)r.load(settled(8));
    r.trim(rig.turn());
    ck_assert_text(ids(r), "9");
    HomeRecords again = records(10, 1);
    for (const auto& [seq, job] : r.all()) (void)again.load(job);
    ck_assert_text(again.next_id().text(), "n1.10");
}
END_TEST

START_TEST(more_jobs_than_the_most_are_refused_and_change_nothing) {
    HomeRecords r = records(2, 10);
    ck_assert(r.add(HomeRig::waiting()).has_value());
    ck_assert(r.add(HomeRig::waiting()).has_value());
    ck_assert(!r.add(HomeRig::waiting()));
    ck_assert_text(ids(r), "1 2");
    ck_assert_text(r.next_id().text(), "n1.3");
}
END_TEST

START_TEST(one_user_takes_a_share_of_the_places_and_gets_it_back) {
    const HomeRecords::Limits limits{
        .jobs_max = 100, .addresses = {}, .user_jobs_max = 2, .user_bytes_max = 1 << 20};
    HomeRecords r("n1", limits);
    HomeJob own = HomeRig::waiting(), others = own, roots = own;
    own.spec.launch.uid = 1000;
    others.spec.launch.uid = 1001;
    roots.spec.launch.uid = 0;
    HomeJob wide = own;
    wide.spec.launch.env.assign(600, std::string(1024, 'x'));
    ck_assert(r.add(wide).has_value());
    const auto longer = r.add(wide);
    ck_assert(!longer && longer.error().message.find("than 1 MB") != std::string::npos);
    ck_assert(r.add(own).has_value());
    const auto third = r.add(own);
    ck_assert(!third && third.error().message.find("2 jobs of yours") != std::string::npos);
    ck_assert(r.add(others).has_value());
    for (int i = 0; i < 5; ++i) ck_assert(r.add(roots).has_value());
    // A job that is forgotten gives its place back; a job that is read back after a restart takes
    // one.
    HomeRig rig;
    HomeJob ended = r.at(1);
    ended.phase = JobPhase::finished;
    ended.settled = true;
    (void)r.load(ended);
    r.trim(rig.turn());
    ck_assert(!r.find({"n1", 1}) && r.add(wide).has_value() && !r.add(own));
    HomeRecords again("n1", limits);
    for (const auto& [seq, job] : r.all()) (void)again.load(job);
    ck_assert(!again.add(own) && again.add(others).has_value());
}
END_TEST

START_TEST(each_job_with_a_network_of_its_own_gets_another_address) {
    HomeRecords r = records(100, 10);
    HomeJob own = HomeRig::waiting();
    own.spec.net = NetMode::own;
    own.spec.launch.uid = 0;  // root has no share
    std::set<Ipv4> given;
    for (int i = 0; i < 6; ++i) given.insert((*r.add(own))->spec.address);
    ck_assert_uint_eq(given.size(), 6);  // of eight, all but the first and the last
    ck_assert(!given.contains({0x0a000000}) && !given.contains({0x0a000007}));
    ck_assert(!r.add(own));
    const Ipv4 freed = r.find({"n1", 2})->spec.address;
    r.find({"n1", 2})->phase = JobPhase::finished;
    ck_assert((*r.add(own))->spec.address == freed);
    // A submission cannot choose its address, so the one that it names is dropped.
    HomeJob shared = HomeRig::waiting();
    shared.spec.address = {1};
    ck_assert(!(*r.add(shared))->spec.address);
}
END_TEST

START_TEST(a_users_jobs_that_do_not_run_leave_as_many_addresses_as_they_have) {
    HomeRecords r = records(100, 10);  // six addresses
    const auto add = [&](uint32_t uid) {
        HomeJob job = HomeRig::waiting();
        job.spec.net = NetMode::own;
        job.spec.launch.uid = uid;
        return r.add(job).has_value();
    };
    ck_assert(add(1000) && add(1000) && add(1000) && !add(1000));
    ck_assert(add(1001) && add(1001) && !add(1001));
    ck_assert(add(1002) && !add(1003) && !add(0));
    // A job that runs is paid for, and one that is frozen is not.
    r.find({"n1", 4})->phase = JobPhase::finished;
    r.find({"n1", 5})->phase = JobPhase::finished;
    ck_assert(!add(1000));
    r.find({"n1", 1})->phase = JobPhase::running;
    r.find({"n1", 2})->phase = JobPhase::running;
    ck_assert(add(1000));
    r.find({"n1", 6})->phase = JobPhase::finished;
    r.find({"n1", 1})->phase = JobPhase::frozen;
    r.find({"n1", 2})->phase = JobPhase::frozen;
    ck_assert(!add(1000) && add(1001));
}
END_TEST

START_TEST(a_request_that_is_sent_again_finds_its_newest_job_of_that_user) {
    HomeRecords r = records(10, 10);
    HomeJob job = HomeRig::waiting();
    job.token = 5;
    job.spec.launch.uid = 1000;
    (void)r.add(job);
    (void)r.add(job);
    ck_assert_uint_eq(r.find_token(1000, 5)->id.seq, 2);
    ck_assert(!r.find_token(1001, 5) && !r.find_token(1000, 6));
    job.token = 0;
    (void)r.add(job);
    ck_assert(!r.find_token(1000, 0));
}
END_TEST

START_TEST(the_guests_needed_are_those_that_records_name) {
    HomeRig rig;
    HomeRecords r = records(10, 10);
    HomeJob& job = r.load(rig.running());
    job.checkpoint = {{"n5", "a"}, {2}, {}, 0, {}, 0};
    job.saving = {{"n6", "a"}, {3}};
    HomeRecords::add_orphan(job, {"n4", "n4:1"}, {9});
    HomeRecords::add_orphan(job, {"n4", "n4:1"}, {9});
    ck_assert_uint_eq(job.orphans.size(), 1);
    r.look_at(1, Nanos{5});
    ck_assert(r.guests_needed() == std::vector<NodeName>({"n2", "n4", "n5", "n6"}));
    ck_assert_text(r.peer_of("n4")->address, "n4:1");
    ck_assert(r.due(Nanos{4}).empty() && r.next_due() == Nanos{5} && r.due(Nanos{5}).size() == 1);
    job.phase = JobPhase::finished;
    job.checkpoint = {};
    job.saving = {};
    r.look_at(1, Nanos::never());
    ck_assert(r.guests_needed() == std::vector<NodeName>({"n4"}));
    ck_assert(r.next_due() == Nanos::never());
}
END_TEST

START_TEST(the_oldest_settled_jobs_go_first_and_those_with_orphans_stay_a_while) {
    HomeRig rig;
    HomeRecords r = records(100, 2);
    for (uint64_t seq = 1; seq <= 4; ++seq) (void)r.load(settled(seq));
    HomeRecords::add_orphan(r.at(1), {"n9", "a"}, {1});
    r.trim(rig.turn());
    ck_assert_text(rig.text(), "E E");
    ck_assert_text(ids(r), "1 4");
    // Finished jobs with orphans are kept beyond the usual number, up to three times that many.
    // After that they are forgotten too.
    for (uint64_t seq = 5; seq <= 9; ++seq)
        HomeRecords::add_orphan(r.load(settled(seq)), {"n9", "a"}, {1});
    r.trim(rig.turn());
    ck_assert_text(rig.text(), "E");  // 4, which has none
    HomeRecords::add_orphan(r.load(settled(10)), {"n9", "a"}, {1});
    HomeRecords::add_orphan(r.load(settled(11)), {"n9", "a"}, {1});
    HomeRecords::add_orphan(r.load(settled(12)), {"n9", "a"}, {1});
    r.trim(rig.turn());
    ck_assert_text(rig.text(), "E");
    ck_assert_text(ids(r), "5 6 7 8 9 10 11 12");
}
END_TEST

START_TEST(a_user_who_ends_very_many_jobs_pushes_out_none_of_those_of_others) {
    HomeRig rig;
    HomeRecords r = records(100, 10);
    const auto end = [&](uint64_t seq, uint32_t uid) {
        HomeJob job = settled(seq);
        job.spec.launch.uid = uid;
        (void)r.load(job);
        r.trim(rig.turn());
    };
    end(1, 1'000);
    end(2, 1'001);
    end(3, 1'001);
    for (uint64_t seq = 4; seq <= 60; ++seq) end(seq, 1'002);
    ck_assert_text(ids(r), "1 2 3 54 55 56 57 58 59 60");
    // Then those who have as many lose as many.
    for (uint64_t seq = 61; seq <= 80; ++seq) end(seq, 1'003);
    ck_assert_text(ids(r), "1 2 3 58 59 60 77 78 79 80");
}
END_TEST

START_TEST(a_stale_copy_is_ended_and_asked_after_until_it_is_gone) {
    HomeRig rig;
    HomeRecords r = records(10, 10);
    HomeJob& job = r.load(rig.running());
    r.stale_copy("n3", HomeRig::event(GuestState::running, 5), rig.turn());
    ck_assert_text(rig.text(), "kill n3.5");
    ck_assert_uint_eq(job.orphans.size(), 1);
    r.stale_copy("n3", HomeRig::event(GuestState::killed, 5), rig.turn());
    ck_assert_text(rig.text(), "drop n3.5");
    ck_assert_uint_eq(job.orphans.size(), 1);
    r.stale_copy("n3", HomeRig::event(GuestState::unknown, 5), rig.turn());
    ck_assert_text(rig.text(), "");
    ck_assert(job.orphans.empty());
    // Copies that a node invents do not push out what others have.
    HomeRecords::add_orphan(job, {"n4", "a"}, {2});
    for (uint64_t epoch = 1; epoch <= 100; ++epoch)
        r.stale_copy("n3", HomeRig::event(GuestState::running, epoch), rig.turn());
    ck_assert_text(rig.text(), "kill n3.100");
    ck_assert(job.orphans.front() == (Orphan{{"n4", "a"}, {2}}));
    ck_assert_uint_eq(job.orphans.size(), 5);
    // A copy of a job that this home does not know is ended too, and no record of it is kept.
    GuestEvent e = HomeRig::event(GuestState::frozen, 1);
    e.id.seq = 99;
    r.stale_copy("n3", e, rig.turn());
    ck_assert_text(rig.text(), "drop n3.1");
}
END_TEST

// -------------------------------------------------------------------------------------------------
// orders

START_TEST(an_order_that_is_not_newer_does_nothing) {
    HomeRig rig;
    HomeOrders orders;
    HomeJob job = HomeRig::waiting();
    using Deed = HomeOrders::Deed;
    ck_assert(orders.came(job, HomeRig::to("n2", 4), rig.turn()) == Deed::take);
    ck_assert_uint_eq(job.order_seq, 4);
    ck_assert(orders.came(job, HomeRig::to("n3", 4), rig.turn()) == Deed::nothing);
    ck_assert(orders.came(job, HomeRig::to("n3", 3), rig.turn()) == Deed::nothing);
    job.phase = JobPhase::finished;
    ck_assert(orders.came(job, HomeRig::to("n3", 9), rig.turn()) == Deed::report);
    ck_assert_uint_eq(job.order_seq, 4);
}
END_TEST

START_TEST(in_a_step_only_the_newest_order_waits_and_is_taken_once) {
    HomeRig rig;
    HomeOrders orders;
    HomeJob job = rig.running();
    job.phase = JobPhase::moving;
    using Deed = HomeOrders::Deed;
    ck_assert(orders.came(job, HomeRig::to("n3", 1), rig.turn()) == Deed::nothing);
    ck_assert(orders.came(job, HomeRig::to("n4", 2), rig.turn()) == Deed::nothing);
    ck_assert_text(orders.pending(job)->node, "n4");
    Order stop = HomeRig::to("", 3);
    stop.kind = Order::Kind::abort;
    ck_assert(orders.came(job, stop, rig.turn()) == Deed::cancel);
    ck_assert_text(orders.take_pending(job)->node, "n4");
    ck_assert(!orders.take_pending(job) && !orders.pending(job));
}
END_TEST

START_TEST(how_an_order_is_carried_out_depends_on_where_the_job_is) {
    using How = HomeOrders::How;
    HomeRig rig;
    HomeJob job = HomeRig::waiting();
    const auto how = [&](const Order& o, bool silent = false, bool by_order = false) {
        return HomeOrders::how(job, o, silent, by_order);
    };
    Order suspend, stop;
    suspend.kind = stop.kind = Order::Kind::suspend;
    stop.stand = true;
    ck_assert(how(HomeRig::to("n2")) == How::start);
    ck_assert(how(HomeRig::to("n2"), true) == How::refuse);
    ck_assert(how(suspend) == How::as_it_is);
    job = rig.running();
    ck_assert(how(HomeRig::to("n2")) == How::as_it_is);
    ck_assert(how(HomeRig::to("n2"), true) == How::as_it_is);
    ck_assert(how(HomeRig::to("n3")) == How::move);
    ck_assert(how(HomeRig::to("n3"), true) == How::refuse);
    ck_assert(how(suspend) == How::freeze);
    ck_assert(how(suspend, true) == How::freeze);
    ck_assert(how(stop) == How::stand);
    Order ask = stop;
    ask.asks = true;
    ck_assert(how(ask) == How::as_it_is);
    job.phase = JobPhase::frozen;
    ck_assert(how(HomeRig::to("n2")) == How::move);
    job.in_place = true;
    ck_assert(how(HomeRig::to("n2")) == How::go_on);
    ck_assert(how(HomeRig::to("n3")) == How::move);
    ck_assert(how(suspend) == How::as_it_is);  // it cannot be dumped
    ck_assert(how(suspend, false, true) == How::freeze);
    ck_assert(how(stop, false, true) == How::as_it_is);
}
END_TEST

START_TEST(a_new_price_has_to_last_only_where_a_budget_hangs_on_it) {
    HomeRig rig;
    HomeJob job = rig.running();
    JobNote note;
    note.id = id;
    note.price = Money::units(2);
    note.cost = Money::units(1);
    rig.now += Nanos::from_s(10);
    ck_assert(!HomeOrders::note_price(job, note, rig.turn()));
    ck_assert(job.price == Money::units(2) && job.cost == Money::units(1));
    ck_assert(job.cost_run == Nanos::from_s(10));
    job.terms.budget = Money::units(9);
    ck_assert(!HomeOrders::note_price(job, note, rig.turn()));
    note.price = Money::units(3);
    ck_assert(HomeOrders::note_price(job, note, rig.turn()));
}
END_TEST

UNIT_SUITE(home_records, ids_grow_past_all_that_was_read_back,
           the_number_of_a_job_that_is_forgotten_is_not_given_again,
           more_jobs_than_the_most_are_refused_and_change_nothing,
           one_user_takes_a_share_of_the_places_and_gets_it_back,
           each_job_with_a_network_of_its_own_gets_another_address,
           a_users_jobs_that_do_not_run_leave_as_many_addresses_as_they_have,
           a_request_that_is_sent_again_finds_its_newest_job_of_that_user,
           the_guests_needed_are_those_that_records_name,
           the_oldest_settled_jobs_go_first_and_those_with_orphans_stay_a_while,
           a_user_who_ends_very_many_jobs_pushes_out_none_of_those_of_others,
           a_stale_copy_is_ended_and_asked_after_until_it_is_gone);
UNIT_SUITE(home_orders, an_order_that_is_not_newer_does_nothing,
           in_a_step_only_the_newest_order_waits_and_is_taken_once,
           how_an_order_is_carried_out_depends_on_where_the_job_is,
           a_new_price_has_to_last_only_where_a_budget_hangs_on_it);
