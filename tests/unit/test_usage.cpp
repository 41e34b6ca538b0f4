// SPDX-License-Identifier: GPL-2.0-or-later
// The sums for reports: what receipts and finished jobs add to, by day, user and node.
#include "kernel/base/json.hpp"
#include "market/store/receipts.hpp"
#include "market/store/usage_report.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr int64_t day_s = 86'400;

Receipt receipt(uint32_t uid, const NodeName& node, int64_t day, int64_t run_s, int64_t paid) {
    Receipt r;
    r.uid = uid;
    r.user = "u" + std::to_string(uid);
    r.job = {"n1", 1};
    r.node = node;
    r.from = Nanos::from_s(day * day_s + 10);
    r.to = r.from + Nanos::from_s(run_s);
    r.run = Nanos::from_s(run_s);
    r.cpu = Nanos::from_s(run_s);
    r.cpus = 2;
    r.paid = r.earned = Money::units(paid);
    return r;
}

JobRecord ended(uint32_t uid, int64_t day, int64_t waited_s, int64_t ran_s, int exit_status) {
    JobRecord job;
    job.report.id = {"n1", 1};
    job.report.uid = uid;
    job.report.user = "u" + std::to_string(uid);
    job.report.terms.memory_mb = 100;
    job.report.wait_status = exit_status << 8;
    job.report.stats.migrations = 2;
    job.report.stats.run_time = Nanos::from_s(ran_s);
    job.report.submitted = Nanos::from_s(day * day_s);
    job.ended = job.report.submitted + Nanos::from_s(waited_s + ran_s);
    return job;
}

std::string report(const UsageBook& book, std::vector<std::string> filters, uint32_t uid = 0) {
    const auto text = [&]() -> Result<std::string> {
        TRY_ASSIGN(UsageReport walk, UsageReport::begin(filters, uid));
        for (bool more = true; more;) {
            TRY_ASSIGN(more, walk.step(book));
        }
        return walk.text();
    }();
    return text ? *text : "error: " + text.error().message;
}

}  // namespace

START_TEST(use_is_summed_up_by_user_node_and_day_and_read_again) {
    const unit::TempDir dir;
    {
        auto db = StateDb::open(dir.path, market_schema_version);
        ck_assert(db.has_value());
        UsageBook book(*db, *db);
        for (const Receipt& r :
             {receipt(7, "n1", 20'000, 3'600, 3), receipt(7, "n2", 20'000, 60, 1),
              receipt(8, "n1", 20'001, 100, 2), receipt(7, "n1", 20'000, 400, 1)})
            ck_assert(book.add(r).has_value());
        ck_assert(book.add(ended(7, 20'000, 90, 30, 0)).has_value());
        ck_assert(book.add(ended(7, 20'000, 0, 100, 3)).has_value());
        ck_assert(db->commit().has_value());
    }
    auto db = StateDb::open(dir.path, market_schema_version);
    ck_assert(db.has_value());
    UsageBook book(*db, *db);
    ck_assert(book.add(receipt(8, "n1", 20'001, 100, 2)).has_value());
    ck_assert(db->commit().has_value());
    ck_assert_text(
        report(book, {"by=user"}),
        R"([{"user":"u7","cpu_asked_s":8120,"cpu_used_s":4060,"efficiency":0.5,"paid":5,)"
        R"("earned":5,)"
        R"("jobs":2,"failed":1,"moves":4,"freezes":0,"wait_mean_s":45,"slowdown_mean":2.5,)"
        R"("memory_asked_mean_mb":100},{"user":"u8","cpu_asked_s":400,"cpu_used_s":200,)"
        R"("efficiency":0.5,"paid":4,"earned":4,"jobs":0,"failed":0,"moves":0,"freezes":0}])");
    ck_assert_text(report(book, {"by=node", "until=" + std::to_string(20'000 * day_s)}),
                   R"([{"node":"n1","cpu_asked_s":8000,"cpu_used_s":4000,"efficiency":0.5,)"
                   R"("paid":4,"earned":4},{"node":"n2","cpu_asked_s":120,"cpu_used_s":60,)"
                   R"("efficiency":0.5,"paid":1,"earned":1}])");
    ck_assert_text(report(book, {"by=day", "since=" + std::to_string(20'001 * day_s)}),
                   R"([{"day":"1728086400","cpu_asked_s":400,"cpu_used_s":200,"efficiency":0.5,)"
                   R"("paid":4,"earned":4,"jobs":0,"failed":0,"moves":0,"freezes":0}])");
    ck_assert_text(report(book, {"by=node"}, 8),
                   R"([{"node":"n1","cpu_asked_s":400,"cpu_used_s":200,"efficiency":0.5,)"
                   R"("paid":4,"earned":4}])");
    ck_assert_text(report(book, {"by=hour"}),
                   "error: report: by is one of user, node and day, not 'hour'");
    ck_assert_text(report(book, {"since=noon"}), "error: since: 'noon' is not a time in seconds");
}
END_TEST

START_TEST(sums_that_are_too_old_are_erased_a_bounded_number_at_once) {
    const unit::TempDir dir;
    auto db = StateDb::open(dir.path, market_schema_version);
    ck_assert(db.has_value());
    UsageBook book(*db, *db);
    for (int64_t day = 100; day < 110; ++day)
        ck_assert(book.add(receipt(7, "n1", day, 60, 1)).has_value());
    ck_assert(db->commit().has_value());
    const int64_t today = 105 + UsageBook::kept_days;
    const auto left = [&] { return book.after("", 0, 100)->size(); };
    ck_assert(*book.trim(today, 3));
    ck_assert(db->commit().has_value());
    ck_assert_uint_eq(left(), 7);
    ck_assert(!*book.trim(today, 3));
    ck_assert(db->commit().has_value());
    ck_assert_uint_eq(left(), 5);
    ck_assert_int_eq(book.after("", 0, 1)->front().second.day, 105);
}
END_TEST

START_TEST(a_component_that_ended_with_a_job_that_ended_well_has_not_failed) {
    const unit::TempDir dir;
    auto db = StateDb::open(dir.path, market_schema_version);
    ck_assert(db.has_value());
    UsageBook book(*db, *db);
    JobRecord with = ended(7, 20'000, 1, 2, 0);
    with.report.cancelled = true;
    with.report.why =
        souk::Cause(CauseCode::component_ended, "component 0 of the job has ended: exit status 0");
    ck_assert(book.add(with).has_value());
    with.report.wait_status = 9;
    ck_assert(book.add(with).has_value());
    ck_assert(db->commit().has_value());
    const std::string said = report(book, {"by=user"});
    ck_assert_msg(said.find("\"jobs\":2,\"failed\":1,") != said.npos, "%s", said.c_str());
}
END_TEST

UNIT_SUITE(usage, use_is_summed_up_by_user_node_and_day_and_read_again,
           sums_that_are_too_old_are_erased_a_bounded_number_at_once,
           a_component_that_ended_with_a_job_that_ended_well_has_not_failed);
