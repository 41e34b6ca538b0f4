// SPDX-License-Identifier: GPL-2.0-or-later
// Checkpoints of a whole gang, made at one cut, and how it goes back to one.
#include "agentd/core/gang_checkpoints.hpp"

#include "tests/unit/gang_rig.hpp"

using namespace souk;
using namespace souk::unit;

namespace {

// The components run, and are saved each 10 s.
struct Sets : Apart<Sets> {
    Epoch cut_of(uint64_t seq) const { return job(seq).saving.epoch; }
    Sets& begin(uint32_t components, bool saved = true, bool restart = false,
                uint32_t required = UINT32_MAX) {
        for (uint32_t i = 0; i < components; ++i) {
            Submission s = component(i, components);
            if (i >= required) s.group.role = ComponentClass::optional;
            if (saved) s.spec.checkpoint_every = Nanos::from_s(10);
            s.spec.restart = restart;
            ck_assert_text(refused(std::move(s)), "");
        }
        return start(components);
    }
    // This node reports the state of the place for the component's image.
    Sets& place(uint64_t seq, GuestState state) {
        said(seq, "n1", job(seq).saving.epoch.n, state);
        return *this;
    }
    Sets& after_s(int64_t s) { return after_ms(s * 1'000); }
    Sets& ready() {
        for (uint32_t i = 1; i <= of; ++i) place(i, GuestState::prepared);
        for (uint32_t i = 1; i <= of; ++i) says(i, GuestState::dump_ready);
        return *this;
    }
    Sets& whole() {
        after_s(10).ready();
        for (uint32_t i = 1; i <= of; ++i) says(i, GuestState::shipped);
        for (uint32_t i = 1; i <= of; ++i) says(i, GuestState::running);
        for (uint32_t i = 1; i <= of; ++i) place(i, GuestState::frozen);
        return *this;
    }
    std::string checkpoints() const {
        std::string s;
        for (uint32_t i = 1; i <= of; ++i)
            s += (i > 1 ? " " : "") + std::to_string(job(i).checkpoint.epoch.n);
        return s;
    }
};

}  // namespace

START_TEST(all_stand_together_before_one_goes_on_and_one_write_makes_them_a_checkpoint) {
    Sets g;
    g.begin(3).after_s(10);
    ck_assert_text(g.words(GuestVerb::keep), "n1 n1 n1");
    ck_assert_text(g.words(GuestVerb::prepare_dump), "n2* n3* n4*");
    for (uint32_t i = 1; i <= 3; ++i) g.place(i, GuestState::prepared);
    ck_assert_text(g.text(), "");
    g.says(1, GuestState::dump_ready).says(3, GuestState::dump_ready);
    ck_assert_text(g.text(), "");
    g.says(2, GuestState::dump_ready);
    ck_assert_text(g.words(GuestVerb::checkpoint), "n2* n3* n4*");
    g.says(3, GuestState::dumping);
    g.now += Nanos::from_ms(4);
    g.says(1, GuestState::dumping).says(2, GuestState::dumping);
    g.says(1, GuestState::shipped).says(2, GuestState::shipped);
    ck_assert_text(g.words(GuestVerb::checkpoint), "");
    g.says(3, GuestState::shipped);
    ck_assert_text(g.words(GuestVerb::checkpoint), "n2 n3 n4");
    ck_assert_text(g.says(2, GuestState::shipped).words(GuestVerb::checkpoint), "n3");  // was lost
    g.all(GuestState::running);
    g.place(1, GuestState::frozen).place(2, GuestState::frozen);
    ck_assert_text(g.checkpoints(), "0 0 0");
    g.place(3, GuestState::frozen);
    ck_assert_text(g.checkpoints(), "2 2 2");
    const StoryStep& last = g.job(2).story.steps().back();
    ck_assert(last.what == StoryStep::What::checkpoint);
    ck_assert_uint_eq(last.components, 3);
    ck_assert_int_eq(last.skew.ns, Nanos::from_ms(4).ns);
    ck_assert_text(g.whole().checkpoints(), "3 3 3");  // and the ones before are dropped
    ck_assert_text(g.phases(3), "running running running");
}
END_TEST

START_TEST(one_that_cannot_be_saved_lets_all_go_on_with_the_checkpoint_of_before) {
    Sets g;
    g.begin(3).whole().after_s(10).ready();
    g.says(1, GuestState::shipped).says(2, GuestState::shipped);
    g.says(3, GuestState::running, "the dump failed");
    ck_assert_text(g.words(GuestVerb::resume), "n2 n3 n4");
    for (uint32_t i = 1; i <= 3; ++i) ck_assert_uint_eq(g.job(i).saving.epoch.n, 0);
    ck_assert_text(g.checkpoints(), "2 2 2");
    g.all(GuestState::running);
    ck_assert_text(g.after_s(10).words(GuestVerb::prepare_dump), "n2* n3* n4*");
    // An order of one goes first.
    Order o;
    o.id = {"n1", 2};
    o.seq = ++g.order_seq;
    o.node = "n9";
    o.address = "n9:1";
    g.out.clear();
    g.h.order(o, g.now, g.out);
    ck_assert_text(g.words(GuestVerb::resume), "n2 n3 n4");
    ck_assert_text(g.words(GuestVerb::prepare_dump), "n3");
    // No set is saved while a component is on its way.
    ck_assert_text(g.after_s(12).words(GuestVerb::keep), "");
    Gang back = g.again(3);
    for (uint32_t i = 1; i <= 3; ++i) ck_assert_uint_eq(back.job(i).checkpoint.epoch.n, 2);
    Sets late;
    late.begin(2).after_s(10).says(1, GuestState::dump_ready).after_s(61);
    ck_assert_text(late.words(GuestVerb::resume), "n2 n3");
}
END_TEST

START_TEST(a_home_that_comes_back_gives_up_what_is_not_whole) {
    Sets g;
    g.begin(2).after_s(10).ready();
    g.says(1, GuestState::shipped);
    Gang back = g.again(2);
    for (uint32_t i = 1; i <= 2; ++i) {
        ck_assert_uint_eq(back.job(i).saving.epoch.n, 0);
        ck_assert(back.job(i).phase == JobPhase::running);
    }
    ck_assert(back.text().find("resume n2.1") != std::string::npos);
}
END_TEST

START_TEST(a_lost_component_takes_all_back_and_nobody_runs_before_all_are_back) {
    Sets g;
    g.begin(3).whole();
    g.says(2, GuestState::killed, "its node has it no more");
    ck_assert_text(g.phases(3), "running frozen running");
    ck_assert_text(g.words(GuestVerb::kill), "n3 n2 n4");
    ck_assert(g.job(1).going_back && !g.job(2).going_back && g.job(3).going_back);
    ck_assert_uint_eq(g.job(2).epoch.n, 2);
    // A component that has not heard of the return is told again. Its order waits.
    ck_assert_text(g.says(1, GuestState::running).words(GuestVerb::kill), "n2");
    ck_assert_text(g.run(3, "n9").text(), "");
    // A home that starts anew reads the return from its disk and goes on with it.
    Gang restarted = g.again(3);
    ck_assert(restarted.text().find("kill n2.1") != std::string::npos);
    g.says(1, GuestState::killed);
    ck_assert_text(g.phases(3), "frozen frozen running");
    g.says(3, GuestState::exited);  // that end is after what it goes back to
    ck_assert(g.job(3).phase != JobPhase::finished && !g.job(3).going_back);
    ck_assert_text(g.checkpoints(), "2 2 2");
    ck_assert_uint_eq(g.job(3).last_epoch.n > 2, true);  // its order has waited, and it thaws
}
END_TEST

// A component that ran at its destination may have sent messages from there. The others may have
// heard them and would be newer than it, so all go back. If it cannot have run there, it goes on
// alone.
START_TEST(who_may_have_run_where_it_was_to_go_takes_all_back_and_who_has_not_goes_on_alone) {
    for (const bool ran : {true, false}) {
        Sets g;
        g.begin(3).whole();
        g.run(2, "n9");
        const uint64_t to = g.job(2).to_epoch.n;
        g.says(2, GuestState::dump_ready).said(2, "n9", to, GuestState::prepared);
        g.says(2, GuestState::dumping).says(2, GuestState::shipped);
        g.said(2, "n9", to, GuestState::held);
        g.says(2, GuestState::frozen);
        ck_assert(g.job(2).step == MoveStep::release);
        g.said(2, "n9", to, ran ? GuestState::unknown : GuestState::failed);
        ck_assert(g.job(2).step == MoveStep::none && g.job(2).to.node.empty());
        ck_assert(g.job(1).going_back == ran && g.job(3).going_back == ran);
        ck_assert_text(g.words(GuestVerb::kill), ran ? "n9 n2 n4 n3" : "n9");
        if (!ran) continue;
        g.says(1, GuestState::killed).says(3, GuestState::killed);
        ck_assert_text(g.phases(3), "frozen frozen frozen");
        for (uint64_t i = 1; i <= 3; ++i)
            ck_assert(!g.job(i).going_back && g.job(i).epoch == g.job(i).checkpoint.epoch);
    }
}
END_TEST

START_TEST(a_thaw_waits_for_who_still_goes_back) {
    Sets g;
    g.begin(2).whole();
    g.says(2, GuestState::killed);
    const uint64_t spliced[2] = {0, 0};
    g.h.spliced({"n1", 2}, spliced, 0, "", g.now, g.out);
    g.run(2, "n5");
    g.said(2, "n5", g.job(2).to_epoch.n, GuestState::prepared);
    g.said(2, "n5", g.job(2).to_epoch.n, GuestState::held);
    ck_assert(g.job(2).phase == JobPhase::thawing && g.job(2).cut == CutStep::held);
    ck_assert_text(g.words(GuestVerb::release), "");
    g.says(1, GuestState::killed);
    ck_assert_text(g.phases(2), "frozen frozen");  // the thaw of one alone is taken back
}
END_TEST

START_TEST(without_a_checkpoint_all_begin_anew_or_all_end) {
    Sets g;
    g.begin(2, false);
    g.says(2, GuestState::killed, "lost");
    ck_assert(g.job(2).phase == JobPhase::finished && g.job(1).cancelled);
    Sets anew;
    anew.begin(2, false, true);
    anew.says(2, GuestState::killed, "lost");
    ck_assert_text(anew.phases(2), "running waiting");
    anew.says(1, GuestState::killed);
    ck_assert_text(anew.phases(2), "waiting waiting");
    ck_assert(anew.job(1).spec.hold && anew.job(2).spec.hold);  // held until all are ready again
    const uint64_t none[2] = {0, 0};
    for (uint32_t i = 1; i <= 2; ++i) anew.h.spliced({"n1", i}, none, 0, "", anew.now, anew.out);
    anew.start(2);
    ck_assert_text(anew.phases(2), "running running");
    // One component has ended, and a set without it would lack its work.
    Sets ended;
    ended.begin(3).whole();
    ended.says(3, GuestState::exited);
    ck_assert_text(ended.checkpoints(), "0 0 0");
    ended.says(2, GuestState::killed, "lost");
    ck_assert(ended.job(2).phase == JobPhase::finished);
}
END_TEST

START_TEST(an_optional_component_is_not_saved_and_begins_anew_when_the_others_go_back) {
    Sets g;
    g.begin(3, true, false, 2).after_s(10);
    ck_assert_text(g.words(GuestVerb::prepare_dump), "n2* n3*");
    for (uint32_t i = 1; i <= 2; ++i) g.place(i, GuestState::prepared);
    for (uint32_t i = 1; i <= 2; ++i) g.says(i, GuestState::dump_ready);
    for (uint32_t i = 1; i <= 2; ++i) g.says(i, GuestState::shipped);
    for (uint32_t i = 1; i <= 2; ++i) g.place(i, GuestState::frozen);
    ck_assert_text(g.checkpoints(), "2 2 0");
    g.says(1, GuestState::killed);
    ck_assert_text(g.words(GuestVerb::kill), "n2 n3 n4");
    g.says(2, GuestState::killed);
    // The component still runs, and is newer than the checkpoint to which the others go back.
    ck_assert(g.job(3).going_back);
    g.says(3, GuestState::killed);
    ck_assert_text(g.phases(3), "frozen frozen waiting");
    ck_assert(g.job(3).spec.hold);
    // Lost alone it ends, and the others go on.
    Sets alone;
    alone.begin(3, true, false, 2).says(3, GuestState::killed, "lost");
    ck_assert_text(alone.phases(3), "running running finished");
    ck_assert(!alone.job(1).going_back && !alone.job(1).cancelled);
}
END_TEST

START_TEST(one_that_fails_because_another_is_lost_goes_back_whichever_is_heard_of_first) {
    Sets g;
    g.wait_status = 1 << 8;
    g.begin(3).whole().says(1, GuestState::exited);
    ck_assert_text(g.phases(3), "running running running");
    ck_assert(!HomeClock::runs(g.job(1)));  // nor is it paid for
    const uint64_t before = g.job(1).epoch.n;
    ck_assert_text(g.run(1, "n9").words(GuestVerb::prepare_dump), "");  // it has nowhere to go
    ck_assert_text(g.after_s(1).words(GuestVerb::query), "");
    g.says(1, GuestState::exited).says(3, GuestState::killed, "its node has it no more");
    ck_assert_text(g.words(GuestVerb::kill), "n4 n2 n3");
    g.says(1, GuestState::exited).says(2, GuestState::exited);  // so has this one
    ck_assert_text(g.phases(3), "frozen frozen frozen");
    ck_assert_text(g.checkpoints(), "2 2 2");
    ck_assert(g.job(1).epoch.n != before);
    ck_assert_text(g.after_s(100).phases(3), "frozen frozen frozen");
}
END_TEST

START_TEST(that_one_fails_counts_when_the_others_are_known_to_run) {
    Sets g;
    g.wait_status = 3 << 8;
    g.begin(3).whole().says(1, GuestState::exited);
    ck_assert_text(g.after_s(2).words(GuestVerb::query), "n3 n4");
    g.says(3, GuestState::running);
    ck_assert(g.job(1).phase == JobPhase::running);
    g.says(2, GuestState::running);
    ck_assert(g.job(1).phase == JobPhase::finished && g.job(1).wait_status == 3 << 8);
    ck_assert(g.job(2).cancelled && g.job(3).cancelled);
    // A component that does not answer is lost when its lease is over, not before.
    Sets leased;
    leased.leased = true;
    leased.wait_status = 1 << 8;
    leased.begin(2).whole().says(1, GuestState::exited);
    ck_assert_text(leased.after_s(2).words(GuestVerb::query), "n3");
    ck_assert_text(leased.after_s(60).words(GuestVerb::query), "n3");
    ck_assert_text(leased.after_s(60).words(GuestVerb::query), "n3");
    for (int64_t s = 0; s < 600; s += 30) {
        leased.h.heartbeat("n2", {}, leased.now, leased.out);
        leased.after_s(30);
    }
    ck_assert(leased.job(1).going_back && leased.job(2).phase == JobPhase::frozen);
    // Without a lease nobody would ever know that the component is lost.
    Sets free;
    free.wait_status = 1 << 8;
    free.begin(2).whole().says(1, GuestState::exited).after_s(2).after_s(60);
    ck_assert(free.job(1).phase == JobPhase::finished);
    // A set that is being made is given up: nobody stands for one that has ended.
    Sets making;
    making.wait_status = 1 << 8;
    making.begin(2).whole().after_s(10).ready().says(2, GuestState::shipped);
    ck_assert_text(making.says(1, GuestState::exited).words(GuestVerb::resume), "n2 n3");
    ck_assert_text(making.checkpoints(), "2 2");
    // Two fail, one of them for the other's sake: the first one's end is the job's.
    Sets both;
    both.wait_status = 1 << 8;
    both.begin(2).whole().says(1, GuestState::exited).says(2, GuestState::exited).after_s(2);
    ck_assert_text(both.phases(2), "finished finished");
}
END_TEST

START_TEST(who_has_failed_and_waits_for_that_is_not_paid_for_nor_drawn_into_a_cut) {
    // The component that failed first in time says why the job has ended, not the one with the
    // lowest number.
    Sets cascade;
    cascade.wait_status = 7 << 8;
    cascade.begin(3).whole().says(2, GuestState::exited);
    cascade.wait_status = 1 << 8;
    cascade.says(1, GuestState::exited).after_s(2);
    ck_assert_text(cascade.phases(3), "running running running");
    cascade.says(3, GuestState::running);
    ck_assert(cascade.job(2).phase == JobPhase::finished && cascade.job(2).wait_status == 7 << 8);
    ck_assert(cascade.job(1).cancelled && cascade.job(3).cancelled);
    // The node of the component was started again, and reports it as running until it knows better.
    Sets again;
    again.leased = true;
    again.wait_status = 1 << 8;
    again.begin(2).whole().says(1, GuestState::exited).says(1, GuestState::running);
    again.says(1, GuestState::exited);
    ck_assert(again.job(1).phase == JobPhase::running && !HomeClock::runs(again.job(1)));
    // The others are frozen without the component, but it goes back with them all the same.
    Sets cut;
    cut.wait_status = 1 << 8;
    cut.begin(3).whole().says(1, GuestState::exited).suspend(2);
    ck_assert_text(cut.words(GuestVerb::prepare_dump), "n3* n4*");
    cut.says(1, GuestState::exited).says(2, GuestState::dump_ready);
    ck_assert_text(cut.words(GuestVerb::freeze), "");
    cut.says(3, GuestState::killed, "its node has it no more");
    ck_assert(cut.job(1).going_back && cut.job(3).phase == JobPhase::frozen);
    ck_assert_text(cut.says(1, GuestState::exited).checkpoints(), "2 2 2");
    // A user who cancels the job does not wait for that.
    Sets cancelled;
    cancelled.wait_status = 1 << 8;
    cancelled.begin(2).whole().says(1, GuestState::exited);
    ck_assert(cancelled.h.cancel({"n1", 1}, cancelled.now, cancelled.out).has_value());
    ck_assert(cancelled.says(1, GuestState::exited).job(1).phase == JobPhase::finished);
}
END_TEST

START_TEST(components_agree_on_how_they_go_back) {
    Gang g;
    ck_assert_text(g.refused(Gang::component(0, 2)), "");
    Submission s = Gang::component(1, 2);
    s.spec.restart = true;
    ck_assert_text(g.refused(s),
                   "the components of job n1.1 do not agree on their checkpoints, or on whether "
                   "they begin anew");
}
END_TEST

UNIT_SUITE(home_sets, all_stand_together_before_one_goes_on_and_one_write_makes_them_a_checkpoint,
           one_that_cannot_be_saved_lets_all_go_on_with_the_checkpoint_of_before,
           a_home_that_comes_back_gives_up_what_is_not_whole,
           who_may_have_run_where_it_was_to_go_takes_all_back_and_who_has_not_goes_on_alone,
           a_lost_component_takes_all_back_and_nobody_runs_before_all_are_back,
           a_thaw_waits_for_who_still_goes_back, without_a_checkpoint_all_begin_anew_or_all_end,
           an_optional_component_is_not_saved_and_begins_anew_when_the_others_go_back,
           one_that_fails_because_another_is_lost_goes_back_whichever_is_heard_of_first,
           that_one_fails_counts_when_the_others_are_known_to_run,
           who_has_failed_and_waits_for_that_is_not_paid_for_nor_drawn_into_a_cut,
           components_agree_on_how_they_go_back);
