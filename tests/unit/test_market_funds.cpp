// SPDX-License-Identifier: GPL-2.0-or-later
// Users get their money by deposits, transfers, payouts, allowances and credit, each a receipt with
// two sides. A metered market stops a user's jobs when the money ends.
#include "market/store/records.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {

using Kind = Receipt::Kind;

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }
constexpr uint32_t ann = 1000, bob = 1001;
constexpr int64_t some_friday = 20'000;  // 2024-10-04

struct Books : World {
    explicit Books(bool metered = true) : World(with(metered)) {
        calendar = Nanos{some_friday * day_ns};
        market->set_calendar(calendar);
        add_node("n1", 100, 36, 8);  // 0.01 a second
        run_for(s(4));
    }
    static MarketOptions with(bool metered) {
        MarketOptions o;
        o.metered = metered;
        return o;
    }
    Result<Money> moves(MoneyOrder o, uint32_t by = root_uid) {
        auto rest = market->move_money(o, by, now);
        decide();
        return rest;
    }
    Result<Money> gives(Kind kind, uint32_t uid, int64_t units, uint32_t by = root_uid) {
        MoneyOrder o;
        o.kind = kind;
        o.uid = uid;
        o.user = uid == ann ? "ann" : "bob";
        o.other = uid == ann ? bob : ann;
        o.other_user = uid == ann ? "bob" : "ann";
        o.amount = Money::units(units);
        return moves(o, by);
    }
    void limit(const UserLimits& l) {
        ck_assert(market->set_limits(ann, "ann", l, root_uid, now).has_value());
    }
    Money has(const Holder& holder) const { return market->ledger().balance(holder); }
    int64_t units(const Holder& holder) const { return has(holder).micro / 1'000'000; }
    std::string why(const JobId& id) const {
        return std::string(to_string(market->reason(*market->find(id)).code));
    }
    size_t count(Kind kind) const {
        size_t n = 0;
        for (const Receipt& r : receipts) n += r.kind == kind;
        return n;
    }
};

const Holder of_ann = Holder::user(ann), of_bob = Holder::user(bob);

}  // namespace

START_TEST(each_movement_of_money_has_two_sides_and_reads_as_it_was_written) {
    for (int k = static_cast<int>(Kind::deposit); k <= static_cast<int>(Kind::settlement); ++k) {
        Receipt r;
        r.seq = 7;
        r.kind = static_cast<Kind>(k);
        r.uid = ann;
        r.user = "ann";
        r.paid = Money::units(-3);
        if (r.kind == Kind::payout) r.node = "n1", r.earned = Money::units(-3);
        if (r.kind == Kind::refund) {
            r.node = "n1";
            r.job = {"n2", 7};
            r.paid = r.earned = Money::units(3);
        }
        r.other = bob;
        r.other_user = "bob";
        r.note = "for two months";
        const auto read = parse_receipt(receipt_text(r));
        ck_assert_msg(read && *read == r, "%s", receipt_text(r).c_str());
        Money sum;
        for (const Posting& p : postings(r)) sum += p.amount;
        ck_assert_int_eq(sum.micro, 0);
        ck_assert_uint_eq(postings(r).size(), 2);
    }
    ck_assert(!parse_receipt("1\tgift\t-\t1\ta\t-\t0\t0\t0\t0\t0\t0\t0\t0\t0\tb\t0\tc"));
    ck_assert(!parse_receipt("1\tdeposit\t-\t1\ta\t-\t0\t0\t0\t0\t0\t0\t0\t0"));
}
END_TEST

START_TEST(in_a_metered_market_a_job_runs_for_what_its_users_account_holds_and_no_longer) {
    Books w;
    const JobId a = w.submit("n1", 100);
    w.run_for(s(60));
    ck_assert_text(w.where(a), "waiting");
    ck_assert_text(w.comment(a), "the account of user 1000 is empty");
    ck_assert_text(w.why(a), "account_empty");
    ck_assert(w.gives(Kind::deposit, ann, 1).has_value());  // for 100 s
    w.run_for(s(50));
    ck_assert_text(w.where(a), "n1");
    const JobNote& note = w.jobs.at(a).note;
    ck_assert_int_eq(note.day_limit.micro, 1'000'000);  // its home knows where it ends, and warns
    ck_assert(note.day_cost.micro > 900'000 && note.day_cost.micro <= 1'000'000);
    w.run_for(s(100));
    ck_assert_text(w.where(a), "frozen");
    ck_assert_text(w.why(a), "account_empty");
    ck_assert_int_eq(w.has(of_ann).micro, 0);
    ck_assert_int_eq(w.has(Holder::provider("n1")).micro, 1'000'000);
    ck_assert_int_eq(w.has(Holder::outside()).micro, -1'000'000);
    w.restart();
    w.connect("n1");
    w.run_for(s(60));
    ck_assert_text(w.where(a), "frozen");
    ck_assert(w.gives(Kind::deposit, ann, 5).has_value());
    w.run_for(s(60));
    ck_assert_text(w.where(a), "n1");
    LedgerCheck check;
    for (const Receipt& r : w.receipts) ck_assert(check.add(r, true).has_value());
    ck_assert(check.same_balances(w.market->ledger().accounts()).has_value());
}
END_TEST

START_TEST(in_a_market_that_is_not_metered_nothing_ends_at_an_account) {
    Books w(false);
    const JobId a = w.submit("n1", 100);
    ck_assert(w.gives(Kind::deposit, ann, 1).has_value());
    w.run_for(s(1'000));
    ck_assert_text(w.where(a), "n1");
    w.end(w.jobs.at(a));
    w.run_for(s(10));
    ck_assert(w.has(of_ann).micro < -8'000'000);
}
END_TEST

START_TEST(credit_lets_an_account_fall_so_far_below_nothing_and_cannot_be_given_away) {
    Books w;
    UserLimits l;
    l.credit = Money::units(2);
    w.limit(l);
    const JobId a = w.submit("n1", 100);
    w.run_for(s(100));
    ck_assert_text(w.where(a), "n1");
    ck_assert(!w.gives(Kind::transfer, ann, 1) && !w.gives(Kind::withdrawal, ann, 1));
    w.run_for(s(200));
    ck_assert_text(w.where(a), "frozen");
    ck_assert_int_eq(w.has(of_ann).micro, -2'000'000);
    l.credit = Money::units(3);
    w.limit(l);
    w.run_for(s(20));
    ck_assert_text(w.where(a), "n1");
    ck_assert(w.stored_users.at(ann).limits == l);
    const auto read = wire::unpack<UserRecord>(wire::pack(w.stored_users.at(ann)));
    ck_assert(read && read->limits == l);
}
END_TEST

START_TEST(money_moves_by_the_word_of_whose_it_is_or_of_root_and_never_more_than_there_is) {
    Books w;
    ck_assert(w.gives(Kind::deposit, ann, 10).has_value());
    for (const Kind kind : {Kind::deposit, Kind::withdrawal, Kind::payout})
        ck_assert(!w.gives(kind, ann, 1, ann));
    ck_assert(!w.gives(Kind::transfer, ann, 1, bob));
    ck_assert(!w.gives(Kind::transfer, ann, 11, ann) && !w.gives(Kind::transfer, ann, 0, ann));
    ck_assert_int_eq(w.gives(Kind::transfer, ann, 4, ann)->micro, 6'000'000);
    ck_assert_int_eq(w.units(of_bob), 4);
    ck_assert(w.gives(Kind::withdrawal, ann, 6).has_value());
    ck_assert_int_eq(w.units(of_ann), 0);
    ck_assert_int_eq(w.units(Holder::outside()), -4);
    MoneyOrder self;
    self.kind = Kind::transfer;
    self.uid = self.other = bob;
    self.amount = Money::units(1);
    ck_assert(!w.moves(self));
    ck_assert_int_eq(w.market->ledger().sum().micro, 0);
}
END_TEST

START_TEST(no_account_comes_near_to_what_a_number_holds) {
    Books w;
    MoneyOrder o;
    o.uid = ann;
    o.user = "ann";
    o.amount = money_max;
    for (int i = 0; i < 250; ++i) ck_assert(w.market->move_money(o, root_uid, w.now).has_value());
    const auto refused = w.moves(o);
    ck_assert_text(refused.error().message, "the account of user 1000 would pass 250000000000");
    ck_assert_int_eq(w.has(of_ann).micro, 250 * money_max.micro);
    o.uid = bob;
    for (int i = 0; i < 250; ++i) ck_assert(w.market->move_money(o, root_uid, w.now).has_value());
    o.uid = 1'002;
    ck_assert_text(w.moves(o).error().message, "the account of outside would pass 500000000000");
    o.uid = ann;
    o.kind = Kind::withdrawal;
    ck_assert(w.moves(o).has_value());
    ck_assert_int_eq(w.market->ledger().sum().micro, 0);
}
END_TEST

START_TEST(what_a_provider_has_earned_is_paid_out_once_to_spend_or_out_of_the_market) {
    Books w;
    ck_assert(w.gives(Kind::deposit, ann, 10).has_value());
    const JobId a = w.submit("n1", 100);
    w.run_for(s(600));
    w.end(w.jobs.at(a));
    w.run_for(s(10));
    const Holder n1 = Holder::provider("n1");
    const Money earned = w.has(n1);
    ck_assert_int_gt(earned.micro, 5'000'000);
    MoneyOrder o;
    o.kind = Kind::payout;
    o.node = "n1";
    o.uid = bob;
    o.user = "bob";
    o.amount = earned + Money{1};
    ck_assert(!w.moves(o));
    o.amount = Money::units(2);
    ck_assert(w.moves(o).has_value());
    ck_assert_int_eq(w.units(of_bob), 2);
    o.outside = true;
    o.amount = earned - Money::units(2);
    ck_assert_int_eq(w.moves(o)->micro, 0);
    ck_assert(!w.moves(o));
    // The node's total earnings stay known, and the books agree with them (World::check).
    ck_assert_int_eq(w.market->nodes().at("n1").record.earned.micro, earned.micro);
    w.restart();
    w.connect("n1");
    w.run_for(s(10));
    ck_assert_int_eq(w.market->nodes().at("n1").record.earned.micro, earned.micro);
}
END_TEST

START_TEST(an_allowance_comes_once_in_its_time_and_what_is_left_of_it_goes_back_if_it_expires) {
    Books w;
    ck_assert(w.gives(Kind::deposit, ann, 5).has_value());
    UserLimits l;
    l.allowance = Money::units(3);
    l.every = Every::day;
    l.expires = true;
    w.limit(l);
    w.limit(l);
    w.run_for(s(10));
    ck_assert_int_eq(w.units(of_ann), 8);
    const JobId a = w.submit("n1", 100, s(100));  // costs 1
    w.run_for(s(200));
    ck_assert_int_eq(w.units(of_ann), 7);
    ck_assert_text(w.where(a), "finished");
    w.run_for(Nanos{day_ns});
    ck_assert_int_eq(w.units(of_ann), 8);  // 2 went back, 3 came
    ck_assert_uint_eq(w.count(Kind::allowance), 2);
    ck_assert_uint_eq(w.count(Kind::expiry), 1);
    w.restart();
    w.connect("n1");
    w.run_for(s(100));
    ck_assert_uint_eq(w.count(Kind::allowance), 2);
    l.expires = false;
    w.limit(l);
    w.run_for(Nanos{3 * day_ns});
    // that of the day on which it was said still expires
    ck_assert_int_eq(w.units(of_ann), 8 + 2 * 3);
    l.allowance.reset();
    w.limit(l);
    w.run_for(Nanos{3 * day_ns});
    ck_assert_int_eq(w.units(of_ann), 14);
}
END_TEST

START_TEST(what_is_left_of_an_allowance_that_expires_goes_to_nobody_else) {
    Books w;
    ck_assert(w.gives(Kind::deposit, ann, 5).has_value());
    UserLimits l;
    l.allowance = Money::units(3);
    l.every = Every::day;
    l.expires = true;
    w.limit(l);
    w.run_for(s(10));
    ck_assert_int_eq(w.units(of_ann), 8);
    ck_assert(!w.gives(Kind::transfer, ann, 6));
    ck_assert(w.gives(Kind::transfer, ann, 5).has_value());
    ck_assert(!w.gives(Kind::transfer, ann, 1));
    // One that stays is its user's own.
    l.expires = false;
    w.limit(l);
    w.run_for(Nanos{day_ns});
    ck_assert(w.gives(Kind::transfer, ann, 3).has_value());
}
END_TEST

START_TEST(who_waits_for_an_allowance_goes_on_when_it_comes) {
    Books w;
    UserLimits l;
    l.allowance = Money::units(1);
    l.every = Every::day;
    w.limit(l);
    const JobId a = w.submit("n1", 100);
    w.run_for(s(300));
    ck_assert_text(w.where(a), "frozen");
    w.run_for(Nanos{day_ns} - s(280));
    ck_assert_text(w.where(a), "n1");
}
END_TEST

START_TEST(weeks_begin_on_monday_and_months_on_their_first_day) {
    const auto same = [](Every every, int64_t a, int64_t b) {
        return period_of(every, a) == period_of(every, b);
    };
    constexpr int64_t monday = some_friday - 4, october = some_friday - 3, november = october + 31;
    ck_assert(same(Every::week, monday, monday + 6) && !same(Every::week, monday, monday - 1));
    ck_assert(!same(Every::week, monday, monday + 7) && !same(Every::day, monday, monday + 1));
    ck_assert(same(Every::month, october, november - 1));
    ck_assert(!same(Every::month, october, october - 1) && !same(Every::month, october, november));
    int64_t changes = 0;
    for (int64_t day = 1; day < 20'000; ++day) {
        const int64_t step = period_of(Every::month, day) - period_of(Every::month, day - 1);
        ck_assert(step == 0 || step == 1);
        changes += step;
    }
    ck_assert_int_eq(changes, 12 * 54 + 9);  // from January 1970 to October 2024
}
END_TEST

START_TEST(
    an_owner_whose_promise_was_missed_gets_a_part_of_the_guests_price_once_if_the_market_says_so) {
    for (const int32_t permille : {0, 100}) {
        MarketOptions o = Books::with(true);
        o.refund_permille = permille;
        World w(o);
        w.calendar = Nanos{some_friday * day_ns};
        w.market->set_calendar(w.calendar);
        w.add_node("n1", 100, 36, 8);  // 0.01 a second
        w.run_for(s(4));
        MoneyOrder d;
        d.uid = ann;
        d.user = "ann";
        d.amount = Money::units(5);
        ck_assert(w.market->move_money(d, root_uid, w.now).has_value());
        w.decide();
        const JobId a = w.submit("n1", 100);
        w.run_for(s(100));
        const auto missed = [&](const NodeName& node, const JobId& id) {
            const Money refund = *w.market->promise_missed(node, id, "free_memory", w.now);
            w.decide();
            return refund;
        };
        ck_assert_int_eq(missed("n2", a).micro, 0);           // it has not run there
        ck_assert_int_eq(missed("n1", {"n1", 77}).micro, 0);  // nor has this one
        const Money cost = w.market->cost(*w.market->find(a), w.now);
        ck_assert(cost.micro > 900'000);
        const Money refund = missed("n1", a);
        ck_assert_int_eq(refund.micro, cost.micro * permille / 1'000);
        ck_assert_int_eq(missed("n1", a).micro, 0);  // once for a stay
        ck_assert_int_eq(w.market->cost(*w.market->find(a), w.now).micro, cost.micro);
        w.run_for(s(600));  // its account ends: what was refunded is gone from it
        const Ledger& books = w.market->ledger();
        ck_assert_int_eq(books.balance(of_ann).micro, 0);
        ck_assert_int_eq(books.balance(Holder::provider("n1")).micro, 5'000'000);
        ck_assert_int_eq(books.sum().micro, 0);
        ck_assert_text(w.market->audit(), "");
        LedgerCheck check;
        for (const Receipt& r : w.receipts) ck_assert(check.add(r, true));
        ck_assert(check.same_balances(books.accounts()));
        const JobRecord& record = w.market->find(a)->record;
        ck_assert(check.same_cost(a, record.account.amount, record.tab));
    }
}
END_TEST

UNIT_SUITE(
    market_funds,
    an_owner_whose_promise_was_missed_gets_a_part_of_the_guests_price_once_if_the_market_says_so,
    each_movement_of_money_has_two_sides_and_reads_as_it_was_written,
    in_a_metered_market_a_job_runs_for_what_its_users_account_holds_and_no_longer,
    in_a_market_that_is_not_metered_nothing_ends_at_an_account,
    credit_lets_an_account_fall_so_far_below_nothing_and_cannot_be_given_away,
    money_moves_by_the_word_of_whose_it_is_or_of_root_and_never_more_than_there_is,
    no_account_comes_near_to_what_a_number_holds,
    what_a_provider_has_earned_is_paid_out_once_to_spend_or_out_of_the_market,
    an_allowance_comes_once_in_its_time_and_what_is_left_of_it_goes_back_if_it_expires,
    what_is_left_of_an_allowance_that_expires_goes_to_nobody_else,
    who_waits_for_an_allowance_goes_on_when_it_comes,
    weeks_begin_on_monday_and_months_on_their_first_day);
