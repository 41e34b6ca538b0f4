// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs that wait for others: one after the other, and some of an array at once.
#include "agentd/core/home_groups.hpp"

#include <algorithm>

#include "agentd/core/home.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {

struct Jobs {
    HomeGroups::Jobs all;
    HomeGroups groups;

    HomeJob& add(uint64_t seq, const JobTies& group, uint32_t uid = 7) {
        HomeJob job;
        job.id = {"n1", seq};
        job.spec.launch.uid = uid;
        job.group = group;
        ck_assert(HomeGroups::check(job, all).has_value());
        HomeJob& kept = all.emplace(seq, std::move(job)).first->second;
        groups.add(kept);
        return kept;
    }
    std::string refused(const JobTies& group, uint32_t uid = 7) {
        HomeJob job;
        job.id = {"n1", 99};
        job.spec.launch.uid = uid;
        job.group = group;
        const Status checked = HomeGroups::check(job, all);
        return checked ? "" : checked.error().message;
    }
    std::string end(uint64_t seq, int32_t status = 0) {
        HomeJob& job = all.at(seq);
        job.phase = JobPhase::finished;
        job.wait_status = status;
        std::string text;
        for (const uint64_t freed : groups.ended(job)) text += std::to_string(freed) + " ";
        return text;
    }
    std::string waiting() const {
        std::string text;
        for (const auto& [seq, job] : all)
            if (!groups.waits(job).empty()) text += std::to_string(seq) + " ";
        return text;
    }
};

JobTies after(uint64_t seq, bool ok = false) {
    JobTies g;
    g.after = seq;
    g.after_ok = ok;
    return g;
}

JobTies element(uint64_t array, uint32_t index, uint32_t at_once) {
    JobTies g;
    g.first = array == 0;
    g.array = array;
    g.index = index;
    g.at_once = at_once;
    return g;
}

bool has(const HomeJob& job, const char* variable) {
    const auto& env = job.spec.launch.env;
    return std::find(env.begin(), env.end(), variable) != env.end();
}

}  // namespace

START_TEST(a_job_begins_when_the_one_before_it_has_ended) {
    Jobs j;
    j.add(1, {});
    j.add(2, after(1));
    j.add(3, after(1, true));
    ck_assert_text(j.groups.waits(j.all.at(2)), "job n1.1 to end");
    ck_assert_text(j.groups.waits(j.all.at(3)), "job n1.1 to end well");
    ck_assert_text(j.end(1), "2 3 ");
    ck_assert_text(j.end(1), "");
    ck_assert_text(j.refused(after(9)), "--after: this node has no job n1.9 of yours");
    ck_assert_text(j.refused(after(2), 8), "--after: this node has no job n1.2 of yours");
    ck_assert_text(j.refused(after(1, true)), "");
    j.all.at(1).wait_status = 3 << 8;
    ck_assert_text(j.refused(after(1, true)), "--after: job n1.1 has not ended well");
    ck_assert_text(j.waiting(), "2 3 ");
    ck_assert(j.add(4, after(1)).group.afters.empty());  // it is over
}
END_TEST

namespace {

using How = JobAfter::How;

JobTies afters(std::vector<JobAfter> list, bool any = false) {
    JobTies g;
    g.afters = std::move(list);
    g.after_any = any;
    return g;
}

// Says what the end of one means for another: "=", "-" (less to wait for) or "!" (it never begins).
char settled(Jobs& j, uint64_t waiting, uint64_t ended) {
    using Wait = HomeGroups::Wait;
    const Wait wait = j.groups.settle(j.all.at(waiting), j.all.at(ended));
    return wait == Wait::same ? '=' : wait == Wait::changed ? '-' : '!';
}

}  // namespace

START_TEST(a_job_waits_for_all_of_several_or_for_one_of_them) {
    Jobs j;
    for (uint64_t n = 1; n <= 3; ++n) j.add(n, {});
    j.add(4, afters({{1, How::well}, {2, How::ended}, {3, How::badly}}));
    j.add(5, afters({{1, How::well}, {2, How::well}}, true));
    ck_assert_text(j.groups.waits(j.all.at(4)), "job n1.1 and 2 others to end well");
    ck_assert_text(j.groups.waits(j.all.at(5)), "job n1.1 or one of 1 others to end well");
    ck_assert_text(j.end(1, 1 << 8), "4 5 ");
    ck_assert(settled(j, 4, 1) == '!' && settled(j, 5, 1) == '-');
    ck_assert_text(j.end(2), "4 5 ");
    ck_assert(settled(j, 5, 2) == '-' && j.groups.waits(j.all.at(5)).empty());
    ck_assert_text(j.end(3), "4 ");
    ck_assert(settled(j, 4, 3) == '!');  // it ended well
    // The same of jobs that have ended before.
    ck_assert_text(j.refused(afters({{1, How::well}})), "--after: job n1.1 has not ended well");
    ck_assert_text(j.refused(afters({{2, How::badly}})), "--after: job n1.2 has ended well");
    ck_assert_text(j.refused(afters({{1, How::well}, {2, How::well}}, true)), "");
    ck_assert_text(j.refused(afters({{1, How::well}, {2, How::badly}}, true)),
                   "--after: none of these jobs has ended so");
}
END_TEST

START_TEST(an_array_is_waited_for_as_a_whole) {
    Jobs j;
    for (uint64_t n = 1; n <= 3; ++n) j.add(n, element(n == 1 ? 0 : 1, 10 + n, 0));
    const HomeJob& waits = j.add(4, afters({{1, How::well}}));
    ck_assert(waits.group.afters.size() == 1 && waits.group.afters[0].whole);
    const HomeJob& one = j.add(5, afters({{2, How::well}}));
    ck_assert(one.group.afters.size() == 1 && !one.group.afters[0].whole);
    const HomeJob &notok = j.add(6, afters({{1, How::badly}})),
                  &any = j.add(7, afters({{1, How::ended}, {5, How::ended}}, true));
    ck_assert_text(j.end(3), "");
    ck_assert(!j.groups.waits(waits).empty());
    ck_assert_text(j.end(1, 1 << 8), "4 6 7 ");  // one has failed
    ck_assert(settled(j, 4, 1) == '!');
    ck_assert(settled(j, 6, 1) == '-' && !j.groups.waits(notok).empty());
    ck_assert(settled(j, 7, 1) == '-' && !j.groups.waits(any).empty());
    ck_assert_text(j.end(2), "5 6 7 ");
    ck_assert(settled(j, 6, 2) == '-' && j.groups.waits(notok).empty());
    ck_assert(settled(j, 7, 2) == '-' && j.groups.waits(any).empty());
    // Afterwards as well.
    ck_assert_text(j.refused(afters({{1, How::well}})), "--after: job n1.1 has not ended well");
    ck_assert_text(j.refused(afters({{1, How::badly}})), "");
}
END_TEST

START_TEST(who_names_a_job_twice_waits_for_it_once) {
    Jobs j;
    for (uint64_t n = 1; n <= 2; ++n) j.add(n, element(n == 1 ? 0 : 1, n, 0));
    const HomeJob& waits = j.add(3, afters({{2, How::ended}, {2, How::ended}, {1, How::ended}}));
    ck_assert_uint_eq(waits.group.afters.size(), 2);
    const HomeJob& both = j.add(4, afters({{2, How::ended}, {2, How::well}}));
    (void)j.end(2, 1 << 8);
    ck_assert(settled(j, 3, 2) == '-' && settled(j, 4, 2) == '!' && both.group.afters.empty());
    (void)j.end(1);
    ck_assert(settled(j, 3, 1) == '-' && j.groups.waits(waits).empty());
}
END_TEST

START_TEST(of_jobs_of_one_name_one_begins_at_a_time) {
    Jobs j;
    const auto named = [&](uint64_t seq, const char* name, uint32_t uid, bool singleton) {
        HomeJob job;
        job.id = {"n1", seq};
        job.name = name;
        job.spec.launch.uid = uid;
        job.group.singleton = singleton;
        j.groups.add(j.all.emplace(seq, std::move(job)).first->second);
    };
    named(1, "sync", 7, false);
    named(2, "sync", 7, true);
    named(3, "sync", 8, true);
    named(4, "sync", 7, true);
    named(5, "sync", 7, false);
    named(6, "other", 7, true);
    ck_assert_text(j.waiting(), "2 4 ");
    ck_assert_text(j.groups.waits(j.all.at(2)), "an earlier job of the name sync to end");
    ck_assert_text(j.end(1), "2 ");
    ck_assert_text(j.waiting(), "4 ");
    ck_assert_text(j.end(2), "4 ");
    ck_assert_text(j.waiting(), "");
}
END_TEST

START_TEST(so_many_of_an_array_are_let_begin_and_the_next_follow) {
    Jobs j;
    for (uint64_t n = 1; n <= 5; ++n) j.add(n, element(n == 1 ? 0 : 1, 10 + n, 2));
    ck_assert_text(j.waiting(), "3 4 5 ");
    ck_assert_text(j.groups.waits(j.all.at(3)), "others of its array to end: 2 at once");
    ck_assert_text(j.end(2), "3 ");
    ck_assert_text(j.waiting(), "4 5 ");
    ck_assert_text(j.end(1), "4 ");
    ck_assert_text(j.end(4), "5 ");
    ck_assert_text(j.waiting(), "");
    ck_assert_text(j.end(5), "");
    ck_assert_text(j.end(3), "");
    ck_assert(has(j.all.at(3), "SOUK_ARRAY_ID=n1.1") && has(j.all.at(3), "SOUK_ARRAY_INDEX=13") &&
              has(j.all.at(3), "SOUK_JOB_ID=n1.3"));
    ck_assert_text(j.refused(element(2, 1, 0)), "there is no array n1.2 of yours here");
    ck_assert_text(j.refused(element(1, 1, 0), 8), "there is no array n1.1 of yours here");
}
END_TEST

START_TEST(an_array_without_a_bound_waits_for_nobody) {
    Jobs j;
    for (uint64_t n = 1; n <= 5; ++n) j.add(n, element(n == 1 ? 0 : 1, 1, 0));
    ck_assert_text(j.waiting(), "");
    ck_assert_text(j.end(1), "");
    const HomeJob& last = j.all.at(5);
    ck_assert(has(last, "SOUK_CPUS=1") && has(last, "SOUK_MEMORY_MB=0") &&
              has(last, "SOUK_JOB_NAME=") && has(last, "OMP_NUM_THREADS=1"));
}
END_TEST

START_TEST(who_says_how_many_threads_a_job_has_is_believed) {
    HomeJob job;
    job.id = {"n1", 1};
    job.spec.launch.env = {"OMP_NUM_THREADS=7", "HOME=/"};
    HomeGroups groups;
    groups.add(job);
    ck_assert(has(job, "OMP_NUM_THREADS=7") && !has(job, "OMP_NUM_THREADS=1"));
}
END_TEST

START_TEST(who_waits_for_a_job_to_end_well_ends_with_it_and_so_does_who_waits_for_that) {
    home::Outputs out;
    Home h("n1", {});
    const auto submit = [&](const JobTies& group) {
        Submission s;
        s.spec.launch.argv = {"/bin/job"};
        s.terms.max_price = Money::units(1);
        s.group = group;
        const auto id = h.submit(std::move(s), Nanos{1}, out);
        ck_assert(id.has_value());
        return *id;
    };
    const JobId first = submit({});
    const JobId second = submit(after(first.seq, true)), third = submit(after(second.seq, true));
    const JobId any = submit(after(first.seq));
    const auto told = [&](const JobId& id) {
        std::string text = "nothing";
        for (const auto& o : out)
            if (const auto* m = std::get_if<home::ToMarketMsg>(&o))
                if (const auto* r = std::get_if<JobReport>(&m->message); r && r->id == id)
                    text = std::string(to_string(r->phase)) + " " + *r->waits_for + *r->why;
        return text;
    };
    ck_assert_text(told(first), "waiting ");
    ck_assert_text(told(second), "waiting job n1.1 to end well");
    out.clear();
    ck_assert(h.cancel(first, Nanos{2}, out).has_value());
    ck_assert_text(told(second), "finished job n1.1 has not ended as it should");
    ck_assert_text(told(third), "finished job n1.2 has not ended as it should");
    ck_assert_text(told(any), "waiting ");
    ck_assert(h.find(any)->group.afters.empty());
}
END_TEST

UNIT_SUITE(home_groups, who_waits_for_a_job_to_end_well_ends_with_it_and_so_does_who_waits_for_that,
           a_job_begins_when_the_one_before_it_has_ended,
           a_job_waits_for_all_of_several_or_for_one_of_them, an_array_is_waited_for_as_a_whole,
           who_names_a_job_twice_waits_for_it_once, of_jobs_of_one_name_one_begins_at_a_time,
           so_many_of_an_array_are_let_begin_and_the_next_follow,
           an_array_without_a_bound_waits_for_nobody,
           who_says_how_many_threads_a_job_has_is_believed);
