// SPDX-License-Identifier: GPL-2.0-or-later
// The records of finished jobs in a database of their own: found, listed, and erased from the
// oldest on, of whoever has most.
#include "market/store/finished.hpp"

#include "market/store/receipts.hpp"
#include "market/store/records.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using market::JobRecord;

namespace {

struct Book {
    unit::TempDir dir;
    std::optional<StateDb> db;
    std::optional<FinishedJobs> jobs;

    Book() { open(); }
    void open() {
        jobs.reset();
        db.reset();
        auto opened = StateDb::open(dir.path, market_schema_version);
        ck_assert(opened.has_value());
        db.emplace(std::move(*opened));
        auto found = FinishedJobs::open(*db);
        ck_assert(found.has_value());
        jobs.emplace(*found);
    }
    void end(const char* home, uint64_t id, uint64_t seq, int64_t ended_s, uint32_t uid = 0) {
        JobRecord r;
        r.report.id = {home, id};
        r.report.uid = uid;
        r.report.terms.max_price = Money::units(1);
        r.report.phase = JobPhase::finished;
        r.report.why = std::to_string(seq);
        r.finish_seq = seq;
        r.ended = Nanos::from_s(ended_s);
        jobs->append(r);
    }
    void commit() { ck_assert(db->commit().has_value()); }
    std::string found(const char* home, uint64_t id) {
        const auto record = jobs->find({home, id});
        ck_assert(record.has_value());
        return *record ? (*record)->report.why : "none";
    }
    std::string in_order() {
        std::string text;
        JobId at;
        for (;;) {
            const auto some = jobs->after(at, 2);
            ck_assert(some.has_value());
            if (some->empty()) return text;
            for (const auto& [id, seq] : *some) text += id.text() + ":" + std::to_string(seq) + " ";
            at = some->back().first;
        }
    }
};

}  // namespace

START_TEST(a_finished_job_is_found_at_once_and_after_reopening_and_is_no_live_one_any_more) {
    Book b;
    JobRecord live;
    live.report.id = {"n1", 10};
    live.report.terms.max_price = Money::units(1);
    b.db->put(kind_job, "n1.10", wire::pack(live));
    b.commit();
    b.end("n1", 10, 1, 5);
    ck_assert_text(b.found("n1", 10), "1");  // not committed yet
    b.end("n1", 9, 2, 6);
    b.end("n1-a", 1, 3, 7);
    b.end("n0", 70, 4, 8);
    b.commit();
    b.open();
    ck_assert_uint_eq(b.jobs->count(), 4);
    ck_assert_uint_eq(b.jobs->newest(), 4);
    ck_assert_text(b.found("n1", 9) + b.found("n1", 10) + b.found("n1", 1), "21none");
    ck_assert_text(b.in_order(), "n0.70:4 n1.9:2 n1.10:1 n1-a.1:3 ");  // as JobId orders them
    ck_assert(b.db->load(kind_job)->empty());
    const auto newest = b.jobs->before(4, 2);
    ck_assert(newest.has_value() && newest->size() == 2 && (*newest)[0].finish_seq == 3 &&
              (*newest)[1].finish_seq == 2);
}
END_TEST

START_TEST(the_oldest_are_erased_by_number_and_by_age_a_bounded_number_at_once) {
    Book b;
    for (uint64_t i = 1; i <= 10; ++i) b.end("n1", i, i, static_cast<int64_t>(100 * i));
    b.commit();
    ck_assert(*b.jobs->trim(7, {}, 2));  // two of three
    b.commit();
    ck_assert_uint_eq(b.jobs->count(), 8);
    ck_assert(!*b.jobs->trim(7, {}, 2));
    b.commit();
    ck_assert_text(b.found("n1", 3) + b.found("n1", 4), "none4");
    ck_assert(!*b.jobs->trim(7, Nanos::from_s(600), 100));  // 4 and 5 are older
    b.commit();
    b.open();
    ck_assert_uint_eq(b.jobs->count(), 5);
    ck_assert_text(b.found("n1", 5) + b.found("n1", 6), "none6");
    // An id that came back is found under its newer number, also when the older goes.
    b.end("n1", 6, 11, 1'100);
    b.commit();
    ck_assert(!*b.jobs->trim(5, {}, 100));
    b.commit();
    ck_assert_text(b.found("n1", 6), "11");
    ck_assert(!*b.jobs->trim(0, {}, 100));
    b.commit();
    b.open();
    ck_assert_uint_eq(b.jobs->count(), 0);
    b.end("n2", 1, 12, 1'200);
    ck_assert_uint_eq(b.jobs->count(), 1);
}
END_TEST

// n1 has ten users, one of whom has ended very many, as have a node without users and another site
// by its many nodes. n2 has few.
START_TEST(a_home_or_a_user_with_very_many_pushes_out_none_of_those_of_others) {
    for (const bool is_old : {false, true}) {
        Book b;
        uint64_t seq = 0;
        for (uint64_t i = 1; i <= 3; ++i) b.end("n2", i, ++seq, 1);
        for (uint32_t uid = 1; uid <= 9; ++uid) b.end("n1", uid, ++seq, 1, uid);
        for (uint64_t i = 1; i <= 200; ++i) {
            b.end("n1", 100 + i, ++seq, 1, 10);
            b.end("evil", i, ++seq, 1, static_cast<uint32_t>(i));
            b.end(("lab:n" + std::to_string(i)).c_str(), 1, ++seq, 1, 77);
        }
        b.commit();
        if (is_old) {  // a version before this wrote no shares
            const auto rows = b.db->load(kind_finished_of);
            for (const auto& row : *rows) b.db->erase(kind_finished_of, row.key);
            b.commit();
        }
        b.open();
        b.commit();
        ck_assert_uint_eq(b.jobs->count(), 612);
        while (*b.jobs->trim(120, {}, 50)) b.commit();
        b.commit();
        b.open();
        ck_assert_uint_eq(b.jobs->count(), 120);
        ck_assert_uint_eq(b.db->load(kind_finished)->size(), 120);
        ck_assert_uint_eq(b.db->load(kind_finished_id)->size(), 120);
        for (uint64_t i = 1; i <= 3; ++i) ck_assert_text(b.found("n2", i), std::to_string(i));
        for (uint64_t i = 1; i <= 9; ++i) ck_assert_text(b.found("n1", i), std::to_string(3 + i));
        // They have the rest in equal parts, each its newest.
        ck_assert_text(b.found("n1", 270), "none");
        ck_assert(b.found("n1", 271) != "none" && b.found("lab:n162", 1) != "none");
        ck_assert_text(b.found("lab:n161", 1), "none");
    }
}
END_TEST

START_TEST(a_record_that_is_written_once_more_counts_once) {
    Book b;
    b.end("n1", 1, 1, 10, 7);
    b.end("n1", 1, 1, 10, 7);
    b.end("n2", 1, 2, 10, 8);
    ck_assert_uint_eq(b.jobs->count(), 2);
    b.commit();
    b.end("n1", 1, 1, 10, 7);
    b.commit();
    ck_assert_uint_eq(b.jobs->count(), 2);
    b.open();
    ck_assert_uint_eq(b.jobs->count(), 2);
    ck_assert(!*b.jobs->trim(2, {}, 10));
    ck_assert_text(b.in_order(), "n1.1:1 n2.1:2 ");
}
END_TEST

START_TEST(one_that_cannot_be_read_holds_none_behind_it) {
    Book b;
    for (uint64_t i = 1; i <= 4; ++i) b.end("n1", i, i, static_cast<int64_t>(100 * i));
    b.commit();
    const auto rows = b.db->load(kind_finished);
    ck_assert(rows.has_value() && rows->size() == 4);
    for (size_t i = 0; i < 4; ++i) b.db->put(kind_finished, (*rows)[i].key, "no record");
    b.commit();
    ck_assert(!*b.jobs->trim(100, Nanos::from_s(1'000), 100));
    b.commit();
    ck_assert_uint_eq(b.db->load(kind_finished)->size(), 4);  // nothing says how old they are
    for (const size_t whole : {1U, 3U})
        b.db->put(kind_finished, (*rows)[whole].key, (*rows)[whole].value);
    b.commit();
    ck_assert(!*b.jobs->trim(100, Nanos::from_s(250), 100));
    b.commit();
    ck_assert_text(b.found("n1", 2) + b.found("n1", 4), "none4");
    ck_assert(!*b.jobs->trim(100, Nanos::from_s(401), 100));
    b.commit();
    b.open();
    ck_assert_uint_eq(b.jobs->count(), 0);
}
END_TEST

UNIT_SUITE(finished, a_record_that_is_written_once_more_counts_once,
           one_that_cannot_be_read_holds_none_behind_it,
           a_finished_job_is_found_at_once_and_after_reopening_and_is_no_live_one_any_more,
           the_oldest_are_erased_by_number_and_by_age_a_bounded_number_at_once,
           a_home_or_a_user_with_very_many_pushes_out_none_of_those_of_others);
