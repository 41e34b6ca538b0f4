// SPDX-License-Identifier: GPL-2.0-or-later
// Projects: an allowance and limits of their own, and the jobs of members that name them.
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }
constexpr uint32_t ann = 1000, bob = 1001;
constexpr int64_t some_friday = 20'000;  // 2024-10-04

struct Projects : World {
    explicit Projects(bool metered = true) : World(with(metered)) {
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
    Result<uint32_t> member(std::optional<uint32_t> uid, bool comes = true,
                            const char* project = "physics") {
        auto number = market->set_member(project, uid, comes, root_uid, now);
        decide();
        return number;
    }
    void limit(uint32_t number, const UserLimits& l) {
        ck_assert(market->set_limits(number, "physics", l, root_uid, now).has_value());
        decide();
    }
    JobId submit_for(const char* project, uint32_t uid) {
        const JobId id{"n1", ++next_id["n1"]};
        HomeJob& job = jobs[id];
        job.report.id = id;
        job.report.uid = uid;
        job.report.user = "u" + std::to_string(uid);
        job.report.terms.max_price = Money::units(100);
        job.report.terms.memory_mb = 100;
        job.report.terms.project = project;
        job.report.submitted = now;
        job.work = Nanos::never();
        tell(job);
        decide();
        return id;
    }
    Money has(uint32_t uid) const { return market->ledger().balance(Holder::user(uid)); }
    std::string why(const JobId& id) const {
        return std::string(to_string(market->reason(*market->find(id)).code));
    }
};

UserLimits weekly(int64_t units) {
    UserLimits l;
    l.allowance = Money::units(units);
    l.every = Every::week;
    l.expires = true;
    return l;
}

}  // namespace

START_TEST(a_projects_allowance_pays_for_its_members_jobs_until_it_is_used_up) {
    Projects w;
    const uint32_t physics = *w.member(ann);
    w.limit(physics, weekly(1));  // for 100 s
    const JobId a = w.submit_for("physics", ann);
    w.run_for(s(50));
    ck_assert_text(w.where(a), "n1");
    w.run_for(s(100));
    ck_assert_text(w.where(a), "frozen");
    ck_assert_text(w.why(a), "account_empty");
    ck_assert_text(w.comment(a), "the account of project physics is empty");
    ck_assert_int_eq(w.has(physics).micro, 0);
    ck_assert_int_eq(w.has(ann).micro, 0);  // nothing of it was hers
    ck_assert_int_eq(w.market->ledger().balance(Holder::provider("n1")).micro, 1'000'000);
    for (const Receipt& r : w.receipts)
        if (r.kind == Receipt::Kind::use)
            ck_assert(r.uid == physics && r.user == "physics" && r.job == a);
    ck_assert_text(w.market->audit(), "");
    ck_assert_int_eq(w.market->ledger().sum().micro, 0);
    w.run_for(s(4 * 86'400));  // the next week
    ck_assert(w.has(physics).micro < 1'000'000);
    ck_assert_text(w.market->audit(), "");
}
END_TEST

START_TEST(a_job_whose_user_is_no_member_waits_and_is_frozen_when_he_leaves) {
    Projects w(false);
    const JobId none = w.submit_for("chemistry", ann);
    const uint32_t physics = *w.member({});
    const JobId b = w.submit_for("physics", bob);
    w.run_for(s(30));
    ck_assert_text(w.why(none), "no_project");
    ck_assert_text(w.comment(b), "may not spend for project physics");
    ck_assert_text(w.where(b), "waiting");
    ck_assert(w.member(bob).has_value());
    w.run_for(s(30));
    ck_assert_text(w.where(b), "n1");
    w.restart();  // what is stored says who pays
    w.connect("n1");
    w.run_for(s(30));
    ck_assert_text(w.where(b), "n1");
    ck_assert_int_eq(w.has(bob).micro, 0);
    ck_assert(w.member(bob, false).has_value());
    w.run_for(s(30));
    ck_assert_text(w.where(b), "frozen");
    ck_assert_text(w.why(b), "no_project");
    ck_assert(w.has(physics).micro < 0);
    ck_assert(w.market->may_look_at(physics, root_uid) && !w.market->may_look_at(physics, bob));
    ck_assert_text(w.market->audit(), "");
}
END_TEST

START_TEST(a_projects_limits_are_of_all_its_members_jobs_together) {
    Projects w(false);
    const uint32_t physics = *w.member(ann);
    ck_assert_uint_eq(*w.member(bob), physics);
    UserLimits l;
    l.jobs = 1;
    w.limit(physics, l);
    const JobId a = w.submit_for("physics", ann), b = w.submit_for("physics", bob),
                own = w.submit_as(bob, "n1", 50);
    w.run_for(s(30));
    ck_assert_text(w.where(a), "n1");
    ck_assert_text(w.why(b), "user_jobs");
    ck_assert_text(w.where(own), "n1");
    ck_assert_text(w.market->audit(), "");
}
END_TEST

START_TEST(what_a_project_cannot_be_is_refused) {
    Projects w;
    ck_assert_text(w.member({}, true, "9lives").error().message,
                   "'9lives' is no name of a project: a letter, then letters, digits, '-' and '_', "
                   "32 at most");
    ck_assert(!w.member({}, true, ""));
    ck_assert_text(w.member(ann, false).error().message, "there is no project physics");
    const uint32_t physics = *w.member({});
    ck_assert_text(w.member(ann, false).error().message,
                   "user 1000 is no member of project physics");
    ck_assert_text(w.member(physics, true, "other").error().message,
                   "a project is no member of another");
    ck_assert(!w.market->set_member("physics", ann, true, ann, w.now));
    // No home speaks for a project, nor does anybody with its number.
    JobReport report;
    report.id = {"n1", 99};
    report.uid = physics;
    report.terms.max_price = Money::units(1);
    ck_assert(!w.market->report("n1", report, w.now));
    MoneyOrder o;
    o.kind = Receipt::Kind::transfer;
    o.uid = physics;
    o.other = ann;
    o.amount = Money::units(1);
    ck_assert(!w.market->move_money(o, physics, w.now));
}
END_TEST

UNIT_SUITE(market_projects, a_projects_allowance_pays_for_its_members_jobs_until_it_is_used_up,
           a_job_whose_user_is_no_member_waits_and_is_frozen_when_he_leaves,
           a_projects_limits_are_of_all_its_members_jobs_together,
           what_a_project_cannot_be_is_refused);
