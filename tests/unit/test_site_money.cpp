// SPDX-License-Identifier: GPL-2.0-or-later
// Money between sites: payments that both operators say (site_settlement.hpp), over words that are
// lost and come twice, and of a hostile side; the books of both compared (site_entries.hpp), with
// each kind of difference; and how far a peer may owe (site_credit.hpp).
#include "kernel/base/fields.hpp"
#include "kernel/base/rng.hpp"
#include "kernel/sys/store/sha256.hpp"
#include "market/core/site_entries.hpp"
#include "market/core/site_settlement.hpp"
#include "market/store/site_book.hpp"
#include "tests/unit/site_pair.hpp"
#include "tests/unit/temp_dir.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }

// The two sides of payments, whose levels may be lost or come again.
struct Payments {
    SiteSettlement lab, uni;
    Money lab_books, uni_books;  // what uni has got by each
    Nanos unix = s(1'000'000);

    SiteAccount level(bool of_lab) const {
        SiteAccount word;
        (of_lab ? lab : uni).say(word);
        return word;
    }
    void book(bool at_lab, const SiteSettlement::Booking& b) {
        if (at_lab)
            lab_books -= b.paid;
        else
            uni_books += b.paid;
    }
    void hear(bool at_lab, const SiteAccount& word) {
        if (const auto b = (at_lab ? lab : uni).heard(word)) book(at_lab, *b);
    }
    void exchange() {
        for (int i = 0; i < 3; ++i) {
            hear(false, level(true));
            hear(true, level(false));
        }
    }
};

// The entries of both books.
struct Books {
    std::vector<SiteEntry> of_lab, of_uni;

    SiteComparison::Summary compared(const std::string& open = "") const {
        SiteComparison c("uni", "lab");
        if (!open.empty()) c.leave_open(open);
        for (const SiteEntry& e : of_uni) c.add_own(e);
        for (const SiteEntry& e : of_lab) must(c.add_theirs(e));
        return c.summary();
    }
    std::string only_difference() const {
        const auto sum = compared();
        ck_assert_uint_eq(sum.differences.size(), 1);
        ck_assert(sum.differences[0].find('\n') == std::string::npos);
        return sum.differences[0];
    }
};

std::vector<SiteEntry> entries_of(const World& w, const char* own, const char* other) {
    std::vector<SiteEntry> all;
    for (const Receipt& r : w.receipts)
        if (auto e = site_entry(r, own, other, site_account(1))) {
            e->number = all.size() + 1;
            ck_assert(*parse_site_entry(site_entry_text(*e)) == *e);
            all.push_back(*e);
        }
    return all;
}

// Jobs of lab have run at uni.
Books stays() {
    SitePair p;
    p.terms.most_cpus = 8;
    p.lab.add_node("n1", 100, 1);
    p.uni.add_node("n1", 100, 2);
    p.uni.add_node("n2", 90, 3);
    p.set_link(true);
    p.run(s(4));
    p.lab.submit("n1", 100);
    p.run(s(1));
    for (int i = 0; i < 4; ++i) {
        const JobId id = p.lab.submit("n1", 20 + i, s(60 + 30 * i));
        p.run(s(1));
        must(p.lab.market->lend(id, "uni", p.lab.now));
        p.run(s(20));
    }
    p.run(s(600));
    return {entries_of(p.lab, "lab", "uni"), entries_of(p.uni, "uni", "lab")};
}

bool is_same_stay(const SiteEntry& a, const SiteEntry& b) {
    return a.job == b.job && a.node == b.node;
}

bool holds(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

}  // namespace

START_TEST(a_payment_is_in_both_books_exactly_if_both_operators_say_so) {
    Payments p;
    must(p.lab.state(Money::units(10), "invoice 7", p.unix));
    ck_assert(!p.lab.state(Money::units(1), "", p.unix));  // one at a time
    ck_assert(!p.uni.confirm(Money::units(10)));           // it has not heard of it
    p.exchange();
    ck_assert(!p.uni.confirm(Money::units(11)));
    ck_assert_int_eq(p.uni_books.micro + p.lab_books.micro, 0);
    const auto got = p.uni.confirm(Money::units(10));
    ck_assert(got && got->note == "invoice 7");
    p.book(false, *got);
    ck_assert(!p.uni.confirm(Money::units(10)));  // once
    p.exchange();
    ck_assert_int_eq(p.uni_books.micro, 10'000'000);
    ck_assert_int_eq(p.lab_books.micro, 10'000'000);
    // refused, and taken back
    must(p.lab.state(Money::units(3), "", p.unix));
    p.exchange();
    must(p.uni.refuse());
    p.exchange();
    ck_assert(p.lab.ours.id == 0 && p.uni.theirs.id == 0);
    must(p.lab.state(Money::units(4), "", p.unix));
    p.exchange();
    must(p.lab.withdraw());
    p.exchange();
    ck_assert(p.lab.ours.id == 0 && p.uni.theirs.id == 0 && !p.uni.refuse());
    ck_assert_int_eq(p.uni_books.micro, 10'000'000);
    ck_assert_int_eq(p.lab_books.micro, 10'000'000);
    ck_assert(!p.lab.state(Money{}, "", p.unix) && !p.lab.state(Money::units(-1), "", p.unix));
    ck_assert(!p.lab.withdraw());
}
END_TEST

START_TEST(words_that_are_lost_or_come_twice_book_nothing_twice) {
    size_t booked = 0;
    for (uint64_t seed = 1; seed <= 300; ++seed) {
        Rng rng(seed);
        Payments p;
        std::vector<SiteAccount> to_lab, to_uni;  // in order, as on a connection
        SiteSettlement kept = p.lab;
        for (int i = 0; i < 200; ++i) {
            p.unix += s(1);
            switch (rng.below(9)) {
                case 0: (void)p.lab.state(Money::units(rng.between(1, 9)), "", p.unix); break;
                case 1:
                    if (rng.chance(0.3)) (void)p.lab.withdraw();
                    break;
                case 2:
                    if (const auto got = p.uni.confirm(p.uni.theirs.amount)) {
                        p.book(false, *got);
                        ++booked;
                    }
                    break;
                case 3:
                    if (rng.chance(0.3)) (void)p.uni.refuse();
                    break;
                case 4: to_uni.push_back(p.level(true)); break;
                case 5: to_lab.push_back(p.level(false)); break;
                case 6:
                    if (!to_uni.empty())
                        p.hear(false, to_uni.front()), to_uni.erase(to_uni.begin());
                    break;
                case 7:
                    if (!to_lab.empty()) p.hear(true, to_lab.front()), to_lab.erase(to_lab.begin());
                    break;
                default:  // the connection ends, and what was on its way is lost
                    to_lab.clear();
                    to_uni.clear();
            }
            ck_assert(p.lab_books <= p.uni_books);  // the payee is the first to book
        }
        p.exchange();
        ck_assert_int_eq(p.lab_books.micro, p.uni_books.micro);
    }
    ck_assert_uint_gt(booked, 300);
}
END_TEST

START_TEST(a_hostile_peer_books_nothing_here_and_confirms_only_what_was_stated) {
    Payments p;
    SiteAccount lie;
    // it confirms what was never stated, and states what is no amount
    lie.answered = 77;
    lie.confirmed = true;
    lie.states = {UINT64_MAX, Money{}, "", false};
    ck_assert(!p.lab.heard(lie));
    ck_assert(p.lab.theirs.id == 0);
    lie.states.amount = Money{account_most.micro + 1};
    ck_assert(!p.lab.heard(lie));
    ck_assert(p.lab.theirs.id == 0);
    // whatever it states stands there until this operator has confirmed that amount
    for (uint64_t id = 1; id < 1'000; ++id) {
        lie.states = {id, Money::units(static_cast<int64_t>(id)), "x", false};
        ck_assert(!p.lab.heard(lie));
        ck_assert(p.lab.theirs == lie.states);
    }
    ck_assert(!p.lab.confirm(Money::units(1)));
    ck_assert(p.lab.confirm(Money::units(999)).has_value());
    ck_assert(!p.lab.heard(lie));
    ck_assert(p.lab.theirs.id == 0);  // it is answered
    // an answer to an older statement is none to a new one, also after a restored backup
    must(p.uni.state(Money::units(5), "", p.unix));
    SiteAccount answer;
    answer.answered = p.uni.ours.id;
    answer.confirmed = true;
    ck_assert(p.uni.heard(answer).has_value());
    SiteSettlement restored;
    must(restored.state(Money::units(6), "", p.unix + s(1)));
    ck_assert(!restored.heard(answer));
    // its book goes on from what it has told, or is none
    SiteAccount book;
    book.entries = 5;
    for (const char* bad : {"", "a", "\t", "- -"}) {
        book.head = bad;
        ck_assert(!p.lab.takes_mark(book));
    }
    book.head = std::string(64, 'a');
    ck_assert(p.lab.takes_mark(book));
    ck_assert(p.lab.takes_mark(book));
    book.head = std::string(64, 'b');
    ck_assert(!p.lab.takes_mark(book));
    book.entries = 4;
    ck_assert(!p.lab.takes_mark(book));
    ck_assert_uint_eq(p.lab.entries, 5);
}
END_TEST

START_TEST(a_statement_that_is_never_answered_any_more_is_dropped_and_none_is_taken_twice) {
    Payments p;
    must(p.lab.state(Money::units(1), "", p.unix));
    SiteAccount word;
    word.answered = p.lab.ours.id + 1;  // lab is an older state, or uni a newer one
    word.confirmed = true;
    ck_assert(p.lab.is_passed(word) && !p.lab.heard(word));
    ck_assert_uint_eq(p.lab.ours.id, 0);
    word.answered = 0;
    must(p.lab.state(Money::units(1), "", p.unix));
    ck_assert(!p.lab.is_passed(word) && !p.lab.heard(word));
    ck_assert_uint_ne(p.lab.ours.id, 0);
    // The payee begins anew, so that it hears nothing of what was stated to its account of before.
    SiteSettlement again;
    again.answered = SiteSettlement::number_at(p.unix + s(1));
    SiteAccount old;
    p.lab.say(old);
    ck_assert(!again.heard(old) && again.theirs.id == 0 && !again.confirm(Money::units(1)));
    again.say(word);
    ck_assert(!p.lab.heard(word));
    ck_assert_uint_eq(p.lab.ours.id, 0);
    // The payer's clock is behind, and its next statement is heard all the same.
    must(p.lab.state(Money::units(1), "", p.unix, word.answered));
    p.lab.say(old);
    ck_assert(!again.heard(old) && again.confirm(Money::units(1)).has_value());
    // A number of a hostile peer that is no moment takes none from the payer.
    SiteSettlement other;
    must(other.state(Money::units(1), "", p.unix, UINT64_MAX));
    ck_assert_uint_eq(other.ours.id, SiteSettlement::number_at(p.unix));
}
END_TEST

START_TEST(both_books_agree_on_what_has_run_and_each_difference_is_named) {
    const Books p = stays();
    const auto same = p.compared();
    ck_assert_uint_ge(same.stays, 4);
    ck_assert_msg(same.differences.empty(), "%s", same.differences[0].c_str());
    ck_assert_int_gt(same.here.micro, 0);  // lab owes
    // A price is heard at the two markets at different moments.
    ck_assert_int_le(std::abs(same.here.micro - same.there.micro), same.here.micro / 1'000);
    {
        Books other = p;
        const SiteEntry gone = other.of_lab.front();
        std::erase_if(other.of_lab, [&](const SiteEntry& e) { return is_same_stay(e, gone); });
        ck_assert(holds(other.only_difference(), "job " + gone.job + " at " + gone.node));
        ck_assert(holds(other.only_difference(), "missing there"));
    }
    {
        Books other = p;
        other.of_lab.push_back(other.of_lab.front());
        other.of_lab.back().job = "lab:n1.99";
        ck_assert(holds(other.only_difference(), "job lab:n1.99 at uni:"));
        ck_assert(holds(other.only_difference(), "missing here"));
    }
    {  // a sum, by more than what messages take
        Books other = p;
        other.of_lab.front().amount += same.here;
        ck_assert(holds(other.only_difference(), " there"));
    }
    {  // a span: it says that less has run
        Books other = p;
        for (SiteEntry& e : other.of_lab)
            if (is_same_stay(e, other.of_lab.front())) e.run = Nanos{e.run.ns / 2};
        ck_assert(holds(other.only_difference(), " here, "));
    }
    {  // who owes is another
        Books other = p;
        other.of_lab.front().owes = "uni";
        ck_assert_uint_eq(other.compared().differences.size(), 2);
    }
    {  // what runs yet is not compared
        Books other = p;
        const SiteEntry open = other.of_lab.front();
        std::erase_if(other.of_lab, [&](const SiteEntry& e) { return is_same_stay(e, open); });
        const auto sum = other.compared(open.job);
        ck_assert(sum.differences.empty() && sum.open >= 1);
    }
    {  // a payment that one has
        Books other = p;
        Receipt r;
        r.kind = Receipt::Kind::settlement;
        r.uid = site_account(1);
        r.paid = Money::units(-2);
        SiteEntry got = *site_entry(r, "uni", "lab", site_account(1));
        ck_assert_text(got.owes, "uni");  // it has got it
        ck_assert_int_eq(got.amount.micro, 2'000'000);
        got.id = 9;
        r.paid = Money::units(2);
        SiteEntry paid = *site_entry(r, "lab", "uni", site_account(1));
        ck_assert(paid.owes == got.owes && paid.amount == got.amount);
        paid.id = 9;
        other.of_uni.push_back(got);
        ck_assert(holds(other.only_difference(), "settlement, owed by site uni: 2 here, missing"));
        other.of_lab.push_back(paid);
        ck_assert(other.compared().differences.empty());
        other.of_lab.back().amount = Money::units(3);
        ck_assert(holds(other.only_difference(), "2 here, 3 there"));
    }
}
END_TEST

START_TEST(a_claim_of_a_later_moment_leaves_no_difference_open) {
    SiteEntry own;
    own.kind = "use";
    own.job = "lab:n1.1";
    own.node = "uni:n1";
    own.to = s(1'000);
    own.run = s(100);
    own.amount = Money{1'000};
    own.owes = "lab";
    const auto compared = [&](const std::optional<SiteEntry>& here, const SiteEntry& there) {
        SiteComparison c("lab", "uni");
        c.leave_open_from(s(2'000));
        c.expect_until(s(2'600));
        if (here) c.add_own(*here);
        must(c.add_theirs(there));
        return c.summary();
    };
    SiteEntry claim = own;
    claim.amount = Money{9'000};
    for (const int64_t to : {0, 1'000, 2'000, 2'500, 1'000'000}) {
        claim.to = s(to);
        ck_assert_uint_eq(compared(own, claim).differences.size(), 1);
        // Only one that may have come while the books were read is left to the next time.
        const auto unknown = compared(std::nullopt, claim);
        ck_assert_uint_eq(unknown.open, to == 2'000 || to == 2'500);
        ck_assert_uint_eq(unknown.differences.size() + unknown.open, 1);
        if (to > 2'600) ck_assert(holds(unknown.differences[0], "yet to come"));
    }
    own.to = s(2'100);
    claim.to = s(1);
    ck_assert_uint_eq(compared(own, claim).open, 1);
}
END_TEST

START_TEST(many_short_stays_that_all_differ_to_one_side_are_a_difference) {
    const auto compared = [](size_t stays, int64_t claimed) {
        SiteComparison c("lab", "uni");
        for (size_t i = 0; i < stays; ++i) {
            SiteEntry own;
            own.kind = "use";
            own.job = "lab:n1." + std::to_string(i + 1);
            own.node = "uni:n1";
            own.run = s(2);
            own.amount = Money{1'000};
            own.owes = "lab";
            c.add_own(own);
            own.amount = Money{claimed};
            must(c.add_theirs(own));
        }
        return c.summary().differences;
    };
    ck_assert(compared(1, 2'000).empty());  // as for one stay
    ck_assert(compared(100, 1'005).empty());
    const auto lines = compared(100, 2'000);
    ck_assert_uint_eq(lines.size(), 1);
    ck_assert(holds(lines[0], "all stays that site lab owes: 0.1 here, 0.2 there"));
}
END_TEST

START_TEST(a_short_stay_does_not_let_a_claim_of_any_sum_pass) {
    SiteEntry own;
    own.kind = "use";
    own.job = "lab:n1.1";
    own.node = "uni:n1";
    own.run = s(1);
    own.amount = Money{1'000};
    own.owes = "lab";
    for (const auto& [amount, run, same] :
         std::vector<std::tuple<int64_t, Nanos, bool>>{{1'000, s(1), true},
                                                       {4'000, s(4), true},
                                                       {1'000'000'000, s(1), false},
                                                       {rule::amount_micro_max, s(1), false},
                                                       {1'000, s(100), false},
                                                       {-1'000'000, s(1), false}}) {
        SiteEntry claim = own;
        claim.amount = Money{amount};
        claim.run = run;
        SiteComparison c("lab", "uni");
        c.add_own(own);
        must(c.add_theirs(claim));
        ck_assert_msg(c.summary().differences.empty() == same, "%ld", static_cast<long>(amount));
    }
}
END_TEST

START_TEST(a_book_that_was_changed_cut_or_is_none_is_found_out) {
    const Books p = stays();
    std::vector<std::string> texts;
    for (const SiteEntry& e : p.of_lab) texts.push_back(site_entry_text(e));
    ck_assert_uint_ge(texts.size(), 4);
    const auto lacks = [&](const std::vector<std::string>& book, const ReceiptMark& told) {
        SiteBookReader reader("lab", sha256_hex);
        reader.expect(told);
        for (const std::string& text : book) ck_assert(reader.read(text).has_value());
        return reader.lacks();
    };
    SiteBookReader reader("lab", sha256_hex);
    for (size_t i = 0; i < 3; ++i) ck_assert(reader.read(texts[i]).has_value());
    const ReceiptMark told = reader.newest();
    ck_assert_uint_eq(told.seq, 3);
    ck_assert(!lacks(texts, told));
    auto changed = texts;
    SiteEntry lie = p.of_lab[1];
    lie.amount = Money{1};
    changed[1] = site_entry_text(lie);
    ck_assert_uint_eq(*lacks(changed, told), 3);
    ck_assert_uint_eq(*lacks({texts.begin(), texts.begin() + 2}, told), 3);
    // one that leaves an entry out, or begins elsewhere
    SiteBookReader other("lab", sha256_hex);
    ck_assert(other.read(texts[0]).has_value());
    ck_assert(!other.read(texts[0]) && !other.read(texts[2]));
    // no entries
    const std::string good = texts[0];
    for (size_t i = 0; i < good.size(); ++i) (void)parse_site_entry(good.substr(0, i));
    for (const char* bad : {"", "1", "\t\t\t\t\t\t\t\t\t\t", "1\tuse\tx\ty\t1\t1\t1\t1\tlab\t0\t-",
                            "1\tuse\tlab:n1.1\tuni:n1\t1\t1\t1\t99999999999999999999\tlab\t0\t-",
                            "1\tu\x1b[2J\tlab:n1.1\tuni:n1\t1\t1\t1\t1\tlab\t0\t-",
                            "1\tuse\tlab:n1.1\tuni:n1\t1\t1\t1\t1\tl ab\t0\t-",
                            "1\tuse\tlab:n1.1\tuni:n1\t1\t1\t1\t1\tlab\t0\t\x1b",
                            "1\tuse\tlab:n1.1\tuni:n1\t1\t1\t1\t1\tlab\t0\t-\t-"})
        ck_assert_msg(!parse_site_entry(bad), "%s", bad);
    // debts of a third site, and a list without an end
    SiteComparison c("uni", "lab");
    SiteEntry third = p.of_lab[0];
    third.owes = "far";
    ck_assert(!c.add_theirs(third));
    SiteEntry more = p.of_lab[0];
    size_t n = 0;
    for (Status taken; taken; ++n) {
        more.job = "lab:n1." + std::to_string(n + 1'000);
        taken = c.add_theirs(more);
        ck_assert_uint_le(n, SiteComparison::unknown_max);
    }
    const auto sum = c.summary();
    ck_assert_uint_eq(sum.differences.size(), SiteComparison::lines_max);
    ck_assert_uint_ge(sum.more, SiteComparison::unknown_max - SiteComparison::lines_max);
}
END_TEST

START_TEST(a_peer_that_owes_its_limit_sends_no_more_and_its_jobs_go_home) {
    SitePair p;
    p.lab.add_node("n1", 100, 1);
    p.uni.add_node("n1", 100, 36);  // a hundredth a second
    p.set_link(true);
    p.run(s(4));
    const JobId job = p.crowd_out(40);
    SiteCredit& credit = p.uni.market->credit();
    credit.know("lab", site_account(1), Money{300'000}, {});  // for half a minute
    const SiteGuests::Site lab{"lab", site_account(1), &p.terms, 12 * 60};
    const auto asks = [&] {
        SiteAsk ask;
        ask.number = 1;
        ask.job = {"n1", 77};
        ask.user = "ann";
        ask.terms.max_price = Money::units(40);
        ask.terms.cpus = 1;
        ask.terms.memory_mb = 100;
        return p.uni.market->offer(lab, ask, p.uni.now);
    };
    ck_assert(asks().why.empty());
    must(p.lab.market->lend(job, "uni", p.lab.now));
    p.run(s(25));
    ck_assert_text(p.at_uni(job), "running");
    p.run(s(20));
    ck_assert_text(p.at_uni(job), "finished");  // it went home
    ck_assert_text(p.lab.jobs.at(job).report.where, "n1");
    const Money owed = credit.owed("lab", p.uni.now);
    ck_assert(owed >= Money{300'000} && owed <= Money{380'000});
    // nothing was cut: both books have the same sum, and each site's view is the other's
    ck_assert_int_eq(SitePair::charged(p.lab, job, true).micro, owed.micro);
    p.lab.market->credit().know("uni", site_account(1), std::nullopt, {});
    ck_assert_int_eq(p.lab.market->credit().owed("uni", p.lab.now).micro, -owed.micro);
    const SiteOffer no = asks();
    ck_assert(no.why.code == CauseCode::not_allowed && holds(no.why, "as much as it may") &&
              !holds(no.why, "0.3"));
    SiteJob word;
    word.report.id = {"lab:n1", 78};
    word.report.phase = JobPhase::waiting;
    word.report.user = "ann";
    word.report.terms.max_price = Money::units(40);
    word.report.terms.cpus = 1;
    const Status refused = p.uni.market->site_job(lab, word, p.uni.now);
    ck_assert(!refused && holds(refused.error().message, "owes"));
    // it pays, and may come again; by its own word alone it may not
    must(p.uni.market->settle_site(site_account(1), "lab", owed, "", 0, p.uni.now));
    ck_assert_int_eq(credit.owed("lab", p.uni.now).micro, 0);
    ck_assert(asks().why.empty());
    ck_assert(p.uni.market->site_job(lab, word, p.uni.now).has_value());
    ck_assert_text(p.uni.market->audit(), "");
}
END_TEST

START_TEST(a_peer_that_was_removed_begins_anew_with_nothing_owed) {
    SitePair p;
    p.terms.most_cpus = 8;
    p.open(36);
    const JobId job = p.crowd_out(40, s(30));
    must(p.lab.market->lend(job, "uni", p.lab.now));
    p.run(s(100));
    SiteCredit& credit = p.lab.market->credit();
    credit.know("uni", site_account(1), std::nullopt, {});
    const Money held = credit.held_by_nodes("uni");
    ck_assert_int_gt(held.micro, 0);
    ck_assert_int_eq(credit.posted("uni").micro, -held.micro);
    credit.forget("uni");
    credit.know("uni", site_account(2), Money{}, credit.held_by_nodes("uni"));
    ck_assert_int_eq(credit.posted("uni").micro, 0);
    ck_assert_int_eq(credit.owed("uni", p.lab.now).micro, 0);
    ck_assert(!credit.why_not("uni", p.lab.now).empty());  // what it earned is no credit
}
END_TEST

START_TEST(a_peer_that_keeps_its_jobs_here_beyond_its_limit_is_found_out) {
    SitePair p;
    p.open(36);
    const JobId job = p.crowd_out(40);
    SiteCredit& credit = p.uni.market->credit();
    must(p.lab.market->lend(job, "uni", p.lab.now));
    p.run(s(20));
    ck_assert_text(p.at_uni(job), "running");
    p.set_link(false);  // so that no order reaches its home
    credit.know("lab", site_account(1), Money{1}, {});
    p.run(s(30));
    ck_assert(!credit.overstays("lab", p.uni.now));
    p.run(s(60));
    ck_assert(credit.overstays("lab", p.uni.now));
    p.set_link(true);
    p.run(s(60));
    ck_assert_text(p.at_uni(job), "finished");
    ck_assert(!credit.overstays("lab", p.uni.now));
}
END_TEST

START_TEST(a_job_that_waits_at_a_peer_which_owes_says_so_and_no_limit_is_as_it_was) {
    SitePair p;
    p.open(36);
    const JobId job = p.crowd_out(40);
    p.uni.market->credit().know("lab", site_account(1), std::nullopt, {});
    must(p.lab.market->lend(job, "uni", p.lab.now));
    p.run(s(100));
    ck_assert_text(p.at_uni(job), "running");
    p.uni.market->credit().know("lab", site_account(1), Money{}, {});  // pays before
    std::string said;
    for (int i = 0; i < 50 && said.empty(); ++i) {
        p.step();
        if (const Job* const guest = p.uni.market->find({"lab:n1", job.seq}))
            if (const Reason why = p.uni.market->reason(*guest); why.code == ReasonCode::site_owes)
                said = why.text();
    }
    ck_assert_text(said, "site lab owes as much as it may");
    p.uni.market->credit().forget("lab");
    p.run(s(5));
    ck_assert(p.uni.market->credit().why_not("lab", p.uni.now).empty());
}
END_TEST

START_TEST(a_peer_is_shown_its_own_entries_and_a_book_goes_on_after_a_restart) {
    const unit::TempDir dir;
    const uint32_t of_lab = site_account(1), of_far = site_account(2);
    Receipt r;
    r.kind = Receipt::Kind::use;
    r.run = s(10);
    r.paid = r.earned = Money{500};
    const auto post = [&](SiteBook& book, const JobId& job, uint32_t uid, const NodeName& node) {
        ++r.seq;
        r.job = job;
        r.uid = uid;
        r.node = node;
        book.append(r);
    };
    const auto texts = [](const SiteBook& book, const char* site, uint64_t after, size_t most) {
        auto all = book.after(site, after, most);
        ck_assert(all.has_value());
        return *std::move(all);
    };
    ReceiptMark last;
    for (int life = 0; life < 2; ++life) {
        auto opened = StateDb::open(dir.path, market_schema_version);
        ck_assert(opened.has_value());
        StateDb& db = *opened;
        SiteBook book(db, db);
        book.set_own("uni");
        must(book.know("lab", of_lab));
        must(book.know("far", of_far));
        ck_assert(book.newest("lab") == last);
        ck_assert_text(book.newest("far").head, "");
        book.heard("lab", "3:" + std::string(64, 'c'));
        post(book, {"lab:n1", 1}, of_lab, "n1");        // a job of lab here
        post(book, {"n1", 2}, 1000, "lab:n3");          // one of ours there
        post(book, {"n1", 3}, 1000, "n1");              // nobody's but ours
        post(book, {"labor:n1", 4}, 1000, "labor:n1");  // another site's
        ck_assert(book.take_changed() == std::set<std::string>{"lab"});
        ck_assert(db.commit().has_value());
        last = book.newest("lab");
        ck_assert_uint_eq(last.seq, 2 + 2 * static_cast<uint64_t>(life));
        const auto all = texts(book, "lab", 0, 100);
        ck_assert_uint_eq(all.size(), last.seq);
        ck_assert(texts(book, "lab", 1, 1) == std::vector<std::string>{all[1]});
        ck_assert(texts(book, "far", 0, 100).empty() && texts(book, "nobody", 0, 100).empty());
        SiteBookReader reader("uni", sha256_hex);
        for (const std::string& text : all) {
            const auto entry = reader.read(text);
            ck_assert(entry && entry->mark == "3:" + std::string(64, 'c'));
            ck_assert_text(entry->owes, entry->job.starts_with("lab:") ? "lab" : "uni");
        }
        ck_assert(reader.newest() == last);
        ck_assert(*book.has_book(of_lab) && !*book.has_book(of_far));
        if (life == 0) continue;
        // The number of a payment that could not be entered is not that of the next.
        book.settles("near", 7);
        book.settles("far", 8);
        book.forget("far");
        Receipt paid;
        paid.kind = Receipt::Kind::settlement;
        paid.paid = Money{-5};
        for (const char* site : {"near", "far"}) {
            must(book.know(site, site_account(site[0] == 'n' ? 3 : 2)));
            paid.uid = site_account(site[0] == 'n' ? 3 : 2);
            book.append(paid);
        }
        ck_assert(db.commit().has_value());
        for (const char* site : {"near", "far"})
            ck_assert_uint_eq(parse_site_entry(texts(book, site, 0, 1).at(0))->id, 0);
    }
}
END_TEST

UNIT_SUITE_LONG(site_money, 120, a_payment_is_in_both_books_exactly_if_both_operators_say_so,
                words_that_are_lost_or_come_twice_book_nothing_twice,
                a_hostile_peer_books_nothing_here_and_confirms_only_what_was_stated,
                a_statement_that_is_never_answered_any_more_is_dropped_and_none_is_taken_twice,
                a_claim_of_a_later_moment_leaves_no_difference_open,
                many_short_stays_that_all_differ_to_one_side_are_a_difference,
                a_peer_that_was_removed_begins_anew_with_nothing_owed,
                a_peer_that_keeps_its_jobs_here_beyond_its_limit_is_found_out,
                both_books_agree_on_what_has_run_and_each_difference_is_named,
                a_short_stay_does_not_let_a_claim_of_any_sum_pass,
                a_book_that_was_changed_cut_or_is_none_is_found_out,
                a_peer_is_shown_its_own_entries_and_a_book_goes_on_after_a_restart,
                a_peer_that_owes_its_limit_sends_no_more_and_its_jobs_go_home,
                a_job_that_waits_at_a_peer_which_owes_says_so_and_no_limit_is_as_it_was);
