// SPDX-License-Identifier: GPL-2.0-or-later
// No user, node or peer takes the market from the others (docs/security.md): each of these tests
// does what a hostile one could do, and looks whether the others have what is theirs.
#include <algorithm>

#include "kernel/base/fields.hpp"
#include "market/core/claims.hpp"
#include "market/store/records.hpp"
#include "tests/unit/reservation_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {

using reserving::s;

JobId submit_at(World& w, const NodeName& home, uint32_t uid, int64_t price, Nanos submitted) {
    const JobId id{home, ++w.next_id[home]};
    World::HomeJob& job = w.jobs[id];
    job.report.id = id;
    job.report.uid = uid;
    job.report.user = "u" + std::to_string(uid);
    job.report.terms.max_price = Money::units(price);
    job.report.terms.cpus = 1;
    job.report.terms.memory_mb = 100;
    job.report.submitted = submitted;
    w.tell(job);
    return id;
}

std::string why(const World& w, const JobId& id) {
    return std::string(to_string(w.market->reason(*w.market->find(id)).code));
}

}  // namespace

START_TEST(a_home_that_says_its_job_came_long_ago_gains_nothing) {
    for (const bool restarts : {false, true}) {
        World w;
        w.calendar = s(1'700'000'000);
        w.market->set_calendar(w.calendar);
        w.add_node("n1", 100, 1);
        w.add_node("n2", 100, 50);
        const JobId first = w.submit("n1", 20, s(600));
        w.run_for(s(1));
        const JobId honest = submit_at(w, "n2", 1'000, 10, w.now + w.calendar);
        w.run_for(s(60));
        const JobId late = submit_at(w, "n1", 2'000, 10, s(1));
        w.run_for(s(60));
        ck_assert_text(w.where(honest), "waiting");
        if (restarts) {
            w.restart();
            w.connect("n1");  // the liar's home is there first
            w.connect("n2");
        }
        w.end(w.jobs.at(first));
        w.run_for(s(60));
        ck_assert_text(w.where(honest), "n1");
        ck_assert_text(w.where(late), "waiting");
        ck_assert(w.market->find(late)->record.report.submitted == s(1));  // what its home says
    }
}
END_TEST

// A user and a node that ask and bid the most for what no machine has.
START_TEST(one_user_cannot_use_up_the_books_of_all) {
    World w;
    int64_t least = 0, most = 0;
    w.after_step = [&] {
        for (const auto& [holder, account] : w.stored_accounts) {
            ck_assert(wire::unpack<AccountRecord>(wire::pack(account)).has_value());
            least = std::min(least, account.balance.micro);
            most = std::max(most, account.balance.micro);
        }
        ck_assert(wire::unpack<MetaRecord>(wire::pack(w.stored_meta)).has_value());
    };
    w.add_node("evil", 100, 1'000'000'000, 60'000, 1'000'000);
    w.add_node("evil2", 100, 1'000'000'000, 60'000, 1'000'000);
    w.add_node("n1", 100, 1);
    const auto burn = [&](uint32_t uid) {
        std::vector<JobId> ids;
        for (int n = 0; n < 120; ++n)
            ids.push_back(w.submit("evil", 1'000'000'000, Nanos::never(), 1'000, 1, {}, uid));
        w.run_for(s(20));
        for (const JobId& id : ids) w.end(w.jobs.at(id));
        w.run_for(s(1));
        return ids;
    };
    // One who has paid some millions goes on, whatever comes.
    const JobId large = w.submit("evil", 1'000'000'000, Nanos::from_ms(100), 1'000, 1, {}, 3'000);
    w.run_for(s(5));
    ck_assert(Money{} - w.market->ledger().balance(Holder::user(3'000)) > Money::units(2'000'000));
    ck_assert(w.phase(large) == JobPhase::finished);
    for (int round = 0; round < 12; ++round) burn(2'000);
    const Money of_one = Money{} - w.market->ledger().balance(Holder::user(2'000));
    ck_assert(of_one > Money::units(100'000'000'000));
    ck_assert(of_one <= Money::units(250'000'000'000));
    const JobId held = w.submit("evil", 1'000'000'000, Nanos::never(), 1'000, 1, {}, 2'000);
    w.run_for(s(5));
    ck_assert_text(w.where(held), "waiting");
    ck_assert_text(why(w, held), "account_full");
    // Others of the same mind leave the small ones their part, after a restart as well.
    for (uint32_t uid = 2'001; uid < 2'022; ++uid)
        for (int round = 0; round < 3; ++round) burn(uid);
    w.restart();
    for (const char* name : {"evil", "evil2", "n1"}) w.connect(name);
    w.run_for(s(60));
    ck_assert_text(why(w, held), "account_full");
    for (const uint32_t uid : {1'000, 3'000}) {
        const JobId other = w.submit("n1", 36, s(100), 1, 100, {}, uid);
        w.run_for(s(200));
        // for 100 s at the price that its owner asks
        ck_assert_int_eq(w.market->find(other)->record.account.amount.micro,
                         100 * 1'000'000 / 3'600);
    }
    ck_assert(least >= -rule::amount_micro_max / 2 && most <= rule::amount_micro_max / 2);
    ck_assert_text(w.market->audit(), "");
}
END_TEST

START_TEST(a_ledger_of_before_that_holds_more_is_read_and_goes_down) {
    AccountRecord rich;
    rich.holder = Holder::user(4);
    rich.balance = rich.moved = Money::units(900'000'000'000);
    ck_assert(wire::unpack<AccountRecord>(wire::pack(rich)).has_value());
    Market old{MarketOptions{}};
    old.load(rich);
    rich.holder = Holder::outside();
    rich.balance = rich.moved = Money{} - rich.balance;
    old.load(rich);
    old.started(s(1));
    MoneyOrder back;
    back.kind = Receipt::Kind::withdrawal;
    back.uid = 4;
    back.user = "bob";
    back.amount = money_max;
    ck_assert(old.move_money(back, 0, s(1)).has_value());
    back.kind = Receipt::Kind::deposit;
    ck_assert(!old.move_money(back, 0, s(1)));
}
END_TEST

// A home may name any user and say any words of each of its jobs.
START_TEST(a_home_fills_no_memory_with_words_and_users) {
    Book::Limits limits{1'000, 9, 9};
    limits.bytes_home_least = 100'000;
    limits.jobs_home_max = 100;
    limits.users_home_max = 20;
    Book book(limits);
    JobReport r;
    const auto say = [&](uint64_t seq) -> Status {
        r.id = {"evil", seq};
        TRY_ASSIGN(Job* const job, book.admit(r));
        const JobReport before = std::exchange(job->record.report, r);
        book.replaced(*job, before);
        return {};
    };
    const auto held = [&] {
        size_t bytes = 0;
        for (const auto& [id, job] : book.jobs()) bytes += claims::bytes_of(job.record.report);
        return bytes;
    };
    r.terms.max_price = Money::units(1);
    for (uint64_t n = 1; n <= 50; ++n) ck_assert(say(n));
    // The reports grow no further than there is room, and say what decides all the same.
    r.command = r.comment = std::string(1'000, 'x');
    r.cannot_move = souk::Cause(CauseCode::holds_io_uring, std::string(1'000, 'x'));
    r.places = std::vector<NodeName>(900, NodeName(60, 'n'));
    r.terms.needs = std::string(1'000, 'x');
    for (uint64_t n = 1; n <= 50; ++n) ck_assert(say(n));
    ck_assert_msg(held() <= 120'000, "%zu", held());
    const JobReport& last = book.find({"evil", 50})->record.report;
    ck_assert(last.command == std::string(64, 'x') && last.places.size() == 4);
    ck_assert(last.cannot_move->code == CauseCode::holds_io_uring && last.terms.needs->empty());
    const Status more = say(51);
    ck_assert(!more && more.error().message == "the reports of node evil take 0 MB");
    // Another home has its own room, and this one has its again when its jobs have ended.
    r.id = {"n1", 1};
    ck_assert(book.admit(r));
    for (uint64_t n = 1; n <= 50; ++n) book.finish(*book.find({"evil", n}), s(1));
    ck_assert(say(51));
    r = {};
    for (uint32_t uid = 1; uid < 20; ++uid) {
        r.uid = uid;
        ck_assert(say(100 + uid));
    }
    r.uid = 999;
    const Status users = say(200);
    ck_assert(!users && users.error().message == "node evil has had jobs of 20 users");
    r.uid = 7;
    ck_assert(say(200));
}
END_TEST

// The most work for a quote: nothing is cheap enough, on no node and at no moment.
START_TEST(a_search_for_the_earliest_promise_has_an_end) {
    World w = reserving::world();
    for (int n = 1; n <= 400; ++n) w.add_node("n" + std::to_string(n), 100, 10, 64);
    for (int n = 1; n <= 70; ++n)
        reserving::book(w, "n1", 50, {.start_s = 3'600, .span_s = 90'000 + n * 1'000});
    w.run_for(s(10));
    QuoteRequest q;
    q.home = "n1";
    q.uid = 5;
    q.terms.max_price = Money::units(1);
    q.terms.runtime = s(8 * 86'400);
    q.terms.finish = s(30 * 86'400);
    Booking b;
    b.promise = true;
    q.terms.booking = b;
    const size_t before = w.market->reservations().looked_at();
    const auto quote = w.market->quote(q, w.now);
    ck_assert(quote.has_value() && quote->promise && !quote->promise->can);
    ck_assert_text(quote->promise->code, "place_dear");
    const size_t looked_at = w.market->reservations().looked_at() - before;
    ck_assert_msg(looked_at > 60'000 && looked_at < 130'000, "%zu", looked_at);
}
END_TEST

UNIT_SUITE(market_walls, a_home_fills_no_memory_with_words_and_users,
           a_search_for_the_earliest_promise_has_an_end,
           a_home_that_says_its_job_came_long_ago_gains_nothing,
           one_user_cannot_use_up_the_books_of_all,
           a_ledger_of_before_that_holds_more_is_read_and_goes_down);
