// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs that the owner of their node has paused: the Guest and the home's HomeRuns by hand.
#include "agentd/core/guest.hpp"
#include "agentd/core/home_clock.hpp"
#include "agentd/core/home_runs.hpp"
#include "agentd/core/owner_returns.hpp"

#include "tests/unit/guest_bench.hpp"
#include "tests/unit/home_rig.hpp"

namespace souk::unit {
namespace {

constexpr Nanos s(int64_t n) { return Nanos::from_s(n); }

struct Host : guests::Bench {
    explicit Host(bool can_stop = true) { g = Guest(16, can_stop); }
    const GuestEvent& told() const {
        const GuestEvent* last = nullptr;
        for (const auto& o : out)
            if (const auto* t = std::get_if<guest::ToHome>(&o))
                if (const auto* e = std::get_if<GuestEvent>(&t->message)) last = e;
        ck_assert(last != nullptr);
        return *last;
    }
};

// A job at its owner n2.
struct Run : HomeRig {
    HomeRuns runs{{s(60), s(900)}};
    HomeCheckpoints checkpoints{{{}, s(50), "a:1"}};
    HomeLeases leases;
    HomeExpels expels{s(4)};
    HomeJob job;

    Run() { job = running(); }
    void hears(const GuestEvent& e) {
        (void)runs.hears(job, e, turn(), {checkpoints, leases, expels});
    }
};

}  // namespace

START_TEST(what_comes_ends_or_stays_behind_is_here_until_nothing_of_it_is) {
    // Shows how many guests may run, how many are in memory, and how many are here in any form.
    const auto here = [](const Host& h) {
        const Guest::Here now = h.g.here("n2");
        return std::to_string(now.running) + std::to_string(now.in_memory) +
               std::to_string(now.all);
    };
    Host h;
    h.command(GuestVerb::start);
    ck_assert_text(here(h), "001");
    h.ended(guest::CapsuleReady{});  // it is told to start, and may run by now
    ck_assert_text(here(h), "111");
    h.ended(guest::JobStarted{});
    ck_assert_text(here(h), "111");
    h.command(GuestVerb::kill);
    ck_assert_text(here(h), "111");
    ck_assert_text(h.g.here("n2").who, "n1.1: it is being ended");
    h.gone();
    ck_assert_text(here(h), "001");
    h.command(GuestVerb::drop);
    ck_assert_text(here(h), "001");
    ck_assert_text(h.g.here("n2").who, "images are on its disk");
    ck_assert_uint_eq(h.g.here("n2").going, 1);
    h.ended(guest::Removed{});
    ck_assert_text(here(h), "000");
    ck_assert_uint_eq(h.g.here("n2").going, 0);
    // A destination: its memory comes before it runs.
    Host there;
    there.held();
    ck_assert_text(here(there), "011");
    there.command(GuestVerb::release);
    ck_assert_text(here(there), "111");
    // This source has memory that a copy elsewhere still needs.
    Host source;
    source.running();
    source.command(GuestVerb::prepare_dump);
    source.criu_ready();
    source.command(GuestVerb::ship);
    source.sent_precopy();
    source.ended(guest::DumpFroze{});
    source.ended(guest::DumpHeld{100, true, true});
    source.ended(guest::Shipped{});
    source.command(GuestVerb::commit);
    ck_assert(source.told().state == GuestState::retained);
    ck_assert_text(here(source), "011");
    ck_assert_uint_eq(source.g.here("n2").going, 1);
    ck_assert_text(source.g.here("n2").who, "n1.1: a copy elsewhere needs its memory");
    // An image lies here for another home. A home keeps its own images for itself.
    Host disk;
    disk.recovered(GuestState::frozen, false, {.image_complete = true});
    ck_assert_text(here(disk), "001");
    ck_assert_uint_eq(disk.g.here("n2").going, 0);  // it stays
    ck_assert_uint_eq(disk.g.here("n1").all, 0);
}
END_TEST

// The owner of a node that is left at once is told when its guests stopped, not when they were
// gone.
START_TEST(a_guest_that_moves_away_has_stopped_when_its_last_freeze_holds_it) {
    Host h;
    OwnerReturns returns;
    Nanos now = s(100);
    const auto guests = [&] {
        const Guest::Here here = h.g.here("n2");
        OwnerReturns::Guests g;
        g.running = here.running;
        g.in_memory = here.in_memory;
        g.here = here.all;
        return g;
    };
    const auto stopped = [&](int64_t after_s) {
        now = s(100 + after_s);
        (void)returns.see(now, guests());
        return returns.all().back().stopped;
    };
    h.running();
    (void)returns.began(now, now, "load", "", guests());
    h.command(GuestVerb::prepare_dump);
    h.criu_ready();
    h.command(GuestVerb::ship);
    ck_assert(stopped(1) < Nanos{});  // its memory is sent while it runs
    h.sent_precopy();
    h.ended(guest::DumpFroze{});
    ck_assert(stopped(2) < Nanos{});
    h.ended(guest::DumpFroze{{}, true});
    ck_assert(stopped(3) == s(3));
    h.ended(guest::DumpFailed{"no", false});  // and it goes on
    ck_assert(stopped(4) < Nanos{});
    h.command(GuestVerb::prepare_dump);
    h.criu_ready();
    h.command(GuestVerb::ship);
    h.sent_precopy();
    h.ended(guest::DumpFroze{{}, true});
    ck_assert(stopped(10) == s(10));
    h.dump_held();
    ck_assert(stopped(11) == s(10));
    h.ended(guest::Shipped{});
    h.command(GuestVerb::commit);  // it is being ended, and does not run once more
    ck_assert(stopped(20) == s(10));
    ck_assert(returns.all().back().free_memory < Nanos{});
    h.gone();
    ck_assert(stopped(21) == s(10));
    ck_assert(returns.all().back().free_memory == s(21));
    // A running guest that is killed may run until it is gone. A guest that is to go on does so at
    // once.
    Host killed;
    killed.running();
    killed.command(GuestVerb::kill);
    ck_assert_uint_eq(killed.g.here("n2").running, 1);
    Host undone;
    undone.running();
    undone.command(GuestVerb::freeze);
    undone.criu_ready();
    undone.ended(guest::DumpFroze{{}, true});
    ck_assert_uint_eq(undone.g.here("n2").running, 0);
    undone.command(GuestVerb::resume);
    undone.dump_held();
    ck_assert_uint_eq(undone.g.here("n2").running, 1);
}
END_TEST

START_TEST(an_owner_pauses_what_runs_and_what_comes_and_its_home_hears_why) {
    const Cause why(CauseCode::owner_uses, "its owner uses node n2");
    Host h;
    h.running();
    const auto pauses = [&](const Cause& cause) -> Host& {
        h.end([&](Guest& m, guest::Outputs& o) { m.set_paused(cause, o); });
        return h;
    };
    ck_assert_text(pauses(why).text(), "pause");
    ck_assert_text(pauses(why).text(), "");
    ck_assert(h.g.any_paused());
    ck_assert_text(h.ended(guest::Paused{true}).text(), ">running");
    ck_assert(h.told().paused == why);
    // An order is carried out as for a running job. A job that stands for a dump is not reported as
    // paused.
    h.command(GuestVerb::prepare_dump);
    ck_assert_text(h.criu_ready().text(), ">dump_ready");
    ck_assert(h.told().paused == why);
    ck_assert_text(h.command(GuestVerb::ship).text(), "send_precopy");
    h.sent_precopy();
    h.ended(guest::DumpFroze{});
    ck_assert(h.told().paused.empty());
    h.ended(guest::DumpFailed{"no", false});
    ck_assert(h.told().state == GuestState::running && h.told().paused == why);
    ck_assert_text(pauses({}).text(), "pause");
    ck_assert(!h.g.any_paused());
    h.ended(guest::Paused{true});  // of before
    h.ended(guest::Paused{false});
    ck_assert(h.told().paused.empty());
    // A guest that arrives is stopped as soon as it runs. A guest that could not be stopped is not
    // reported as stopped.
    Host late;
    late.end([&](Guest& m, guest::Outputs& o) { m.set_paused(why, o); });
    ck_assert_text(late.running().text(), ">running pause");
    late.ended(guest::Paused{true, "no"});
    ck_assert(late.told().paused.empty());
    // Without cgroup v2 nothing is stopped.
    Host plain(false);
    plain.running();
    plain.end([&](Guest& m, guest::Outputs& o) { m.set_paused(why, o); });
    ck_assert_text(plain.text(), "");
}
END_TEST

START_TEST(whom_the_owner_of_its_node_has_paused_does_not_pay_and_is_told_why) {
    const Cause why(CauseCode::owner_uses, "its owner uses node n2");
    Run m;
    m.hears(HomeRig::event(GuestState::running));
    m.now += s(10);
    GuestEvent paused = HomeRig::event(GuestState::running);
    paused.paused = why;
    m.hears(paused);
    ck_assert(m.job.phase == JobPhase::running && !HomeClock::runs(m.job));
    ck_assert(m.runs.paused(m.job) == why && m.job.stats.run_time == s(10));
    ck_assert_text(m.said(), "is stopped on n2 for now, and costs nothing: " + why + "\n");
    ck_assert(m.job.story.steps().back().what == StoryStep::What::stopped);
    ck_assert(m.job.story.steps().back().why.code == CauseCode::owner_uses);
    ck_assert_int_eq(m.reports(), 1);
    m.now += s(100);
    m.hears(paused);
    ck_assert_text(m.said(), "");
    ck_assert_int_eq(m.reports(), 0);
    m.hears(HomeRig::event(GuestState::running));
    ck_assert_text(m.said(), "goes on, on n2\n");
    ck_assert(m.job.story.steps().back().what == StoryStep::What::resumed);
    m.now += s(5);
    ck_assert(HomeClock::run_time(m.job, m.now) == s(15) && m.runs.paused(m.job).empty());
    // A daemon that comes back and finds it so does not take the time between for run time.
    HomeClock clock;
    HomeJob again = m.job;
    clock.loaded(again, again.boot);
    clock.prove(again, paused, m.now + s(100));
    ck_assert(!HomeClock::runs(again) && HomeClock::run_time(again, m.now + s(100)) == s(10));
}
END_TEST

UNIT_SUITE(paused, what_comes_ends_or_stays_behind_is_here_until_nothing_of_it_is,
           a_guest_that_moves_away_has_stopped_when_its_last_freeze_holds_it,
           an_owner_pauses_what_runs_and_what_comes_and_its_home_hears_why,
           whom_the_owner_of_its_node_has_paused_does_not_pay_and_is_told_why);

}  // namespace souk::unit
