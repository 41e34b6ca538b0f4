// SPDX-License-Identifier: GPL-2.0-or-later
// The story of a job's life: what its home writes into its record, and its bounds.
#include "agentd/core/story.hpp"
#include "agentd/store/records.hpp"
#include "kernel/base/json.hpp"
#include "tests/unit/home_bench.hpp"

using namespace souk;
using What = StoryStep::What;

namespace {

StoryStep step(What what, Nanos at = {}, const char* why = "") {
    StoryStep s;
    s.what = what;
    s.at = at;
    s.why = why;
    return s;
}

// The job as the disk gives it back. (A record that is read has to be whole.)
Result<HomeJob> again(HomeJob job) {
    job.spec.launch.path = job.spec.launch.cwd = "/";
    return wire::unpack<HomeJob>(wire::pack(job));
}

std::string names(const Story& story) {
    std::string text;
    for (const StoryStep& s : story.steps())
        text += std::string(text.empty() ? "" : " ") + to_string(s.what);
    return text;
}

}  // namespace

START_TEST(a_story_is_bounded_keeps_its_beginning_and_says_what_is_left_out) {
    Story story;
    for (int i = 0; i < 1000; ++i)
        story.add(step(i % 2 ? What::frozen : What::thawed, Nanos::from_s(i)));
    ck_assert_uint_eq(story.steps().size(), Story::steps_max);
    ck_assert_uint_eq(story.left_out(), 1000 - Story::steps_max);
    ck_assert_int_eq(story.steps()[Story::first_kept - 1].at.ns,
                     Nanos::from_s(Story::first_kept - 1).ns);
    ck_assert_int_eq(story.steps()[Story::first_kept].at.ns,
                     Nanos::from_s(1000 - (Story::steps_max - Story::first_kept)).ns);
    ck_assert_int_eq(story.steps().back().at.ns, Nanos::from_s(999).ns);
    story.add(step(What::failed, {}, std::string(10'000, 'x').c_str()));
    ck_assert_uint_eq(story.steps().back().why.size(), Story::why_max);
}
END_TEST

START_TEST(what_repeats_is_told_once_and_counted) {
    Story story;
    for (int i = 0; i < 3; ++i) story.add(step(What::priced, Nanos::from_s(i)));
    for (int i = 0; i < 2; ++i) story.add(step(What::failed, {}, "no room"));
    story.add(step(What::failed, {}, "another reason"));
    story.add(step(What::frozen));
    story.add(step(What::frozen));
    ck_assert_text(names(story), "priced failed failed frozen frozen");
    ck_assert_uint_eq(story.steps()[0].count, 3);
    ck_assert_int_eq(story.steps()[0].at.ns, Nanos::from_s(2).ns);
    ck_assert_uint_eq(story.steps()[1].count, 2);
}
END_TEST

START_TEST(a_copy_of_a_story_keeps_what_it_had_when_the_other_goes_on) {
    Story story;
    ck_assert(story.steps().empty() && story == Story{});
    story.add(step(What::submitted));
    story.add(step(What::priced, Nanos::from_s(1)));
    const Story before = story;
    ck_assert_ptr_eq(&before.steps(), &story.steps());
    story.add(step(What::priced, Nanos::from_s(2)));
    ck_assert(before != story);
    ck_assert_uint_eq(before.steps()[1].count, 1);
    ck_assert_uint_eq(story.steps()[1].count, 2);
    story.add(step(What::finished));
    ck_assert_text(names(before), "submitted priced");
    ck_assert_text(names(story), "submitted priced finished");
    // Two stories are equal if they tell the same.
    ck_assert(Story(story.steps(), story.left_out()) == story);
    ck_assert(Story(story.steps(), story.left_out() + 1) != story);
}
END_TEST

// Moved with its form, bytes and the parts of its pause; and all of it read back after a crash.
START_TEST(a_home_writes_a_jobs_story_into_its_record) {
    unit::Bench b;
    b.h.set_unix_time(Nanos::from_s(1'700'000'000));
    b.running();
    JobNote note;
    note.id = unit::id;
    note.price = Money::units(3);
    b.h.note(note, b.now, b.out);
    b.reason = "a faster machine";
    b.run_on("n3").event("n2", 1, GuestState::dump_ready).event("n3", 2, GuestState::prepared);
    GuestEvent froze;
    froze.id = unit::id;
    froze.epoch = {1};
    froze.state = GuestState::dumping;
    froze.forecast.form = MoveForm::post_copy;
    froze.forecast.precopy_bytes = 45 << 20;
    froze.forecast.precopy_time = Nanos::from_ms(100);
    froze.forecast.frozen_bytes = 1 << 20;
    b.now = Nanos::from_s(10);
    b.h.guest_event("n2", froze, b.now, b.out);
    b.now += Nanos::from_ms(5);
    b.event("n2", 1, GuestState::shipped);
    b.now += Nanos::from_ms(4);
    b.event("n3", 2, GuestState::held);
    b.now += Nanos::from_ms(1);
    b.event("n2", 1, GuestState::killed);
    b.now += Nanos::from_ms(2);
    b.event("n3", 2, GuestState::running);
    bool told = false;
    for (const auto& o : b.out)
        if (const auto* t = std::get_if<home::Tell>(&o); t && t->what == home::Tell::What::moved) {
            ck_assert_text(t->text,
                           "moved from n2 to n3, pause 12.0 ms (pre-copy, post-copy, 45.0 MB "
                           "ahead, 1.0 MB while it stood; "
                           "sent 5.0, restored 4.0, decided 1.0, running 2.0 ms)");
            told = true;
        }
    ck_assert(told);
    b.suspend().event("n3", 2, GuestState::frozen);
    const unit::Bench restarted = b.again();
    const Story& story = restarted.job().story;
    ck_assert_text(names(story), "submitted started priced moved frozen");
    ck_assert_int_eq(story.steps()[1].at.ns, Nanos::from_s(1'700'000'000).ns);
    ck_assert(story.steps()[2].price == Money::units(3));
    const StoryStep& moved = story.steps()[3];
    ck_assert(moved.from == "n2" && moved.node == "n3" && moved.form == MoveForm::post_copy);
    ck_assert_text(moved.why, "a faster machine");
    ck_assert_int_eq(moved.pause.ns, Nanos::from_ms(12).ns);
    ck_assert_int_eq(moved.total.ns, Nanos::from_ms(112).ns);

    const auto read = again(b.job());
    ck_assert_msg(read.has_value(), "%s", read ? "" : read.error().message.c_str());
    ck_assert(read->story == b.job().story);
    JsonWriter j;
    j.begin_object();
    write_story(j, story);
    const std::string json = j.end_object().take();
    const char* const step =
        R"("step":"moved","node":"n3","from":"n2","bytes":1048576,)"
        R"("form":"pre-copy, post-copy","ahead_bytes":47185920,"pause_ms":12,)"
        R"("sent_ms":5,"restored_ms":4,"decided_ms":1,"running_ms":2,"total_ms":112,)"
        R"("why":"a faster machine"})";
    ck_assert_msg(json.find(step) != json.npos, "%s", json.c_str());
}
END_TEST

START_TEST(what_goes_wrong_and_the_end_are_in_the_story) {
    unit::Bench b;
    b.submit().run_on("n2").event("n2", 1, GuestState::failed, "no capsule");
    b.run_on("n2").event("n2", 2, GuestState::running).event("n2", 2, GuestState::exited, "", 256);
    ck_assert_text(names(b.job().story), "submitted failed started finished");
    ck_assert_text(b.job().story.steps()[1].why, "no capsule");
    // The record of an older version has no story. The story then begins with the next step.
    HomeJob old = b.job();
    old.story = {};
    ck_assert(again(old)->story == Story{});
}
END_TEST

UNIT_SUITE(story, a_story_is_bounded_keeps_its_beginning_and_says_what_is_left_out,
           what_repeats_is_told_once_and_counted,
           a_copy_of_a_story_keeps_what_it_had_when_the_other_goes_on,
           a_home_writes_a_jobs_story_into_its_record,
           what_goes_wrong_and_the_end_are_in_the_story);
