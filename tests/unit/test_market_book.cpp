// SPDX-License-Identifier: GPL-2.0-or-later
// Book, Notes and Admission by themselves: who is let in and what of the records is to be stored,
// what homes and owners hear, and which jobs of a user with limits compete.
#include <set>

#include "kernel/base/rng.hpp"
#include "market/core/admission.hpp"
#include "market/core/book.hpp"
#include "market/core/notes.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }

JobReport report(uint64_t seq, JobPhase phase = JobPhase::running, uint32_t uid = 7) {
    JobReport r;
    r.id = {"n1", seq};
    r.uid = uid;
    r.phase = phase;
    r.submitted = s(100 - static_cast<int64_t>(seq));
    r.terms.max_price = Money::units(5);
    return r;
}

// "job n1.1 node n2 meta user 7", as it leaves.
std::string text(const std::vector<StoreOp>& ops) {
    std::string all;
    for (const StoreOp& op : ops) {
        all += (all.empty() ? "" : " ") + std::string(to_string(op));
        if (const auto* job = std::get_if<JobRecord>(&op)) all += " " + job->report.id.text();
        if (const auto* node = std::get_if<NodeRecord>(&op)) all += " " + node->node;
        if (const auto* user = std::get_if<UserRecord>(&op)) all += " " + std::to_string(user->uid);
        if (const auto* gone = std::get_if<EraseNode>(&op)) all += " " + gone->node;
        if (const auto* gone = std::get_if<EraseUser>(&op)) all += " " + std::to_string(gone->uid);
    }
    return all;
}
std::string stored(Book& book, uint64_t next_seq = 1) {
    Outputs out;
    book.store(out);
    book.store_meta(next_seq, out);
    return text(out.store);
}

Job& admitted(Book& book, const JobReport& r) {
    const auto job = book.admit(r);
    ck_assert(job.has_value());
    (*job)->record.report = r;
    return **job;
}

}  // namespace

// -------------------------------------------------------------------------------------------------
// Book

START_TEST(one_more_job_or_node_than_there_may_be_is_refused_and_a_known_one_is_not) {
    Book book({2, 1, 9});
    admitted(book, report(1));
    Job& second = admitted(book, report(2));
    const auto third = book.admit(report(3));
    ck_assert(!third);
    ck_assert_text(third.error().message, "the market has 2 jobs already");
    ck_assert(book.find({"n1", 3}) == nullptr && book.jobs().size() == 2);
    ck_assert(*book.admit(report(2)) == &second);
    ck_assert(book.admits_node("n1").has_value());
    book.node("n1");
    ck_assert(book.admits_node("n1").has_value());
    ck_assert_text(book.admits_node("n2").error().message, "the market has 1 nodes already");
}
END_TEST

START_TEST(a_new_job_has_run_before_the_market_knew_it_and_has_a_user_and_a_key) {
    Book book({9, 9, 9});
    JobReport r = report(1);
    r.stats.run_time = s(50);
    r.stats.cpu_time = s(40);
    const Job& job = admitted(book, r);
    ck_assert(job.record.billed == s(50) && job.run_base == s(50) && job.record.tab.cpu == s(40));
    ck_assert(job.user == &book.users().at(7) && job.user->record.ended_day == -1);
    const Node& node = book.node("n2");
    ck_assert(book.job_of(job.key) == &job && book.node_of(node.key) == &node);
    ck_assert(job.key.n == 1 && node.key.n == 2 && book.free_key() == 3);
    ck_assert(!book.job_of({2}) && !book.node_of({1}));
    book.forget_key(job);
    ck_assert(!book.job_of(job.key) && book.find(job.id()) == &job);
}
END_TEST

START_TEST(what_changed_is_stored_once_and_a_job_that_waits_as_well) {
    Book book({9, 9, 9});
    Job& waits = admitted(book, report(3, JobPhase::waiting));
    Job& runs = admitted(book, report(2));
    book.save(waits);
    book.save(runs);
    book.save(runs);
    book.save(book.node("n2"));
    book.save(book.node("n1"));
    book.save_user(8);
    book.user(8).record.limits.jobs = 1;
    book.user(9);
    book.save_user(9);
    Outputs out;
    ck_assert_uint_eq(book.store(out).size(), 2);
    ck_assert_text(text(out.store), "job n1.2 job n1.3 node n1 node n2 user 8 erase_user 9");
    ck_assert_text(stored(book), "");
}
END_TEST

START_TEST(a_stored_job_says_what_people_see_and_the_limit_of_orders_stays_above_the_next_one) {
    Book book({9, 9, 9});
    Job& job = admitted(book, report(1));
    job.reason = Reason::said("why");
    book.save(job);
    Outputs out;
    book.store(out);
    ck_assert_text(std::get<JobRecord>(out.store.at(0)).comment, "why");
    for (const uint64_t next : {1, 2, 1'025, 1'026, 9'000}) {
        out = {};
        book.save_meta();
        book.store_meta(next, out);
        const uint64_t limit = std::get<MetaRecord>(out.store.at(0)).seq_limit;
        ck_assert(limit >= next && limit < next + 1'024 && limit % 1'024 == 1);
    }
    out = {};
    book.store_meta(99'999, out);  // nothing of it changed
    ck_assert(out.store.empty());
}
END_TEST

START_TEST(who_has_finished_is_counted_once_and_the_oldest_is_forgotten_first) {
    Book book({9, 9, 2});
    for (uint64_t n = 1; n <= 4; ++n) {
        Job& job = admitted(book, report(n, JobPhase::finished));
        job.record.account.amount = Money::units(1);
    }
    for (const uint64_t n : {3, 1, 4, 2}) book.finish(*book.find({"n1", n}), s(1'000));
    ck_assert(book.meta().retired == Money::units(4) && book.meta().finish_seq == 4);
    ck_assert(book.find({"n1", 4})->record.finish_seq == 3);
    ck_assert(book.find({"n1", 4})->record.ended == s(1'000));
    ck_assert_text(stored(book), "job n1.1 job n1.2 job n1.3 job n1.4 meta");
    std::string gone;
    JobRecord first;
    while (const Job* const job = book.one_too_many()) {
        if (gone.empty()) first = job->record;
        gone += job->id().text() + " ";
        book.forget(*job);
    }
    ck_assert_text(gone, "n1.3 n1.1 ");
    ck_assert(!book.find({"n1", 3}) && book.find({"n1", 4}) && book.jobs().size() == 2);
    // Its home asks once more: it is the oldest again.
    ck_assert(book.recall(first) && !book.recall(first));
    ck_assert(!book.recall(JobRecord{}));
    ck_assert_text(book.one_too_many()->id().text(), "n1.3");
}
END_TEST

START_TEST(what_was_stored_is_there_again_and_the_unfinished_come_by_their_submission) {
    Book book({9, 9, 9});
    MetaRecord meta;
    meta.finish_seq = 5;
    book.load(meta);
    for (const uint64_t n : {1, 2, 3}) {
        JobRecord record;
        record.report = report(n, n == 3 ? JobPhase::finished : JobPhase::running);
        record.billed = s(9);
        record.comment = "of before";
        record.account.amount = Money::units(3);
        record.finish_seq = n == 3 ? 7 : 0;
        book.load(record);
    }
    NodeRecord node;
    node.node = "n2";
    node.earned = Money::units(2);
    ck_assert(book.load(node).record.earned == Money::units(2));
    const std::vector<Job*> order = book.begin();
    ck_assert_uint_eq(order.size(), 2);
    ck_assert(order[0]->id().seq == 2 && order[1]->id().seq == 1);  // submitted before
    ck_assert(order[0]->run_base == s(9));
    ck_assert_text(order[0]->reason.text(), "of before");
    // A market of before counted only those that it had forgotten: once it counts all.
    ck_assert(book.meta().finish_seq == 7 && book.meta().retired == Money::units(3));
    ck_assert_text(stored(book), "job n1.3 meta");
    Book again({9, 9, 9});
    again.load(book.meta());
    again.load(book.find({"n1", 3})->record);
    again.begin();
    ck_assert(again.meta().retired == Money::units(3));
    ck_assert_text(stored(again), "");
}
END_TEST

UNIT_SUITE(market_book, one_more_job_or_node_than_there_may_be_is_refused_and_a_known_one_is_not,
           a_new_job_has_run_before_the_market_knew_it_and_has_a_user_and_a_key,
           what_changed_is_stored_once_and_a_job_that_waits_as_well,
           a_stored_job_says_what_people_see_and_the_limit_of_orders_stays_above_the_next_one,
           who_has_finished_is_counted_once_and_the_oldest_is_forgotten_first,
           what_was_stored_is_there_again_and_the_unfinished_come_by_their_submission);

// -------------------------------------------------------------------------------------------------
// Notes

namespace {

struct Said final : Notes::Texts {
    Book book{{9, 9, 9}};
    Notes notes;
    std::string why = "outbid";
    ProviderNote prices_now;
    const Node* home_of(const Job& job) const override { return book.find_node(job.id().home); }
    Reason reason(const Job&) const override { return Reason::said(why); }
    ProviderNote prices(const Node&) const override { return prices_now; }

    Said() {
        for (const char* const name : {"n1", "n2"}) {
            book.node(name).connected = true;
            book.node(name).record.has_report = true;
        }
    }
    // "n1:n1.1 outbid", "n2:prices" of all that leaves.
    std::string send(Nanos now) {
        Outputs out;
        notes.send(*this, book.nodes(), now, out);
        std::string all;
        for (const Send& sent : out.send) {
            all += (all.empty() ? "" : " ") + sent.node + ":";
            if (const auto* note = std::get_if<JobNote>(&sent.message))
                all += note->id.text() + (note->settled ? " settled" : " " + note->comment);
            else if (const auto* gone = std::get_if<NodeLost>(&sent.message))
                all += "lost " + gone->node;
            else
                all += "prices";
        }
        return all;
    }
};

}  // namespace

START_TEST(a_home_hears_of_a_job_when_there_is_something_else_to_say) {
    Said w;
    Job& job = admitted(w.book, report(1));
    w.notes.of(job);
    w.notes.of(job);
    ck_assert_text(w.send(s(1)), "n1:n1.1 outbid");
    ck_assert_text(w.send(s(2)), "");
    w.notes.of(job);
    ck_assert_text(w.send(s(2)), "");  // the same
    w.why = "waits";
    ck_assert_text(w.send(s(2)), "");  // nobody said so
    w.notes.of(job);
    ck_assert_text(w.send(s(2)), "n1:n1.1 waits");
    job.record.price = Money::units(2);
    w.notes.of(job);
    ck_assert_text(w.send(s(2)), "n1:n1.1 waits");
    job.note_due = true;  // what was on its way may be lost
    w.notes.of(job);
    ck_assert_text(w.send(s(2)), "n1:n1.1 waits");
    ck_assert(!job.note_due);
    job.record.report.phase = JobPhase::finished;
    w.notes.of(job);
    ck_assert_text(w.send(s(2)), "n1:n1.1 settled");
    w.book.node("n1").connected = false;
    w.notes.of(job);
    ck_assert_text(w.send(s(2)), "");
}
END_TEST

START_TEST(a_home_hears_how_far_the_day_of_its_user_lets_a_job_run) {
    Said w;
    Job& job = admitted(w.book, report(1));
    const auto note = [&] {
        Outputs out;
        job.note_due = true;
        w.notes.of(job);
        w.notes.send(w, w.book.nodes(), s(1), out);
        return std::get<JobNote>(out.send.at(0).message);
    };
    job.noted_day = Money::units(2);
    ck_assert(note().day_limit == Money{});  // no limit
    job.user->record.limits.spend_per_day = Money::units(5);
    job.user->spent = Money::units(1);
    ck_assert(note().day_limit == Money::units(5) && note().day_left == Money::units(4));
    ck_assert(note().day_cost == Money::units(2));
    job.noted_day = {-1};
    ck_assert(note().day_limit == Money{});
}
END_TEST

START_TEST(an_owner_hears_of_prices_at_most_once_a_second_and_when_they_are_others) {
    Said w;
    ck_assert(w.notes.next() == Nanos::never());
    Node& node = w.book.node("n2");
    w.prices_now.guests = 1;
    w.notes.of(node);
    ck_assert(w.notes.next() == Nanos{0});
    ck_assert_text(w.send(s(10)), "n2:prices");
    ck_assert(w.notes.next() == Nanos::never());
    w.prices_now.guests = 2;
    w.notes.of(node);
    ck_assert_text(w.send(s(10) + Nanos::from_ms(200)), "");
    ck_assert(w.notes.next() == s(11));
    ck_assert_text(w.send(s(11)), "n2:prices");
    w.notes.of(node);
    ck_assert_text(w.send(s(20)), "");  // the same
    ck_assert_text(w.send(s(30)), "");
    w.prices_now.guests = 3;
    node.connected = false;
    w.notes.of(node);
    ck_assert_text(w.send(s(40)), "");
    ck_assert(w.notes.next() == Nanos::never());
    w.notes.lost("n1", "n2");
    ck_assert_text(w.send(s(41)), "n1:lost n2");
    ck_assert_text(w.send(s(42)), "");
}
END_TEST

UNIT_SUITE(market_notes, a_home_hears_of_a_job_when_there_is_something_else_to_say,
           a_home_hears_how_far_the_day_of_its_user_lets_a_job_run,
           an_owner_hears_of_prices_at_most_once_a_second_and_when_they_are_others);
