// SPDX-License-Identifier: GPL-2.0-or-later
// The machines tell their steps to a listener. Here a listener collects the lines of machines that
// are driven by hand.
#include <algorithm>

#include "agentd/core/provider.hpp"
#include "market/core/market.hpp"
#include "tests/unit/guest_bench.hpp"
#include "tests/unit/home_bench.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {

struct Lines final : TraceListener {
    std::vector<std::string> all;
    void tell(const TraceLine& line) override { all.push_back(text(line)); }
    // Returns the lines since the last call.
    std::string take() {
        std::string s;
        for (const std::string& line : all) s += line + "\n";
        all.clear();
        return s;
    }
    bool has(const std::string& part) const {
        return std::any_of(all.begin(), all.end(),
                           [&](const std::string& line) { return line.find(part) != line.npos; });
    }
};

}  // namespace

// Input, then the states that it changed, then the outputs; the same words at both ends.
START_TEST(a_home_tells_a_move_step_by_step) {
    Lines lines;
    unit::Bench b;
    b.running();
    b.h.tell_to(&lines);
    b.run_on("n3");
    ck_assert_text(lines.take(),
                   "home input order.run JOB=n1.1 NODE=n3\n"
                   "home state moving.prepare JOB=n1.1 EPOCH=1 NODE=n2 TO=n3.2\n"
                   "home output persist.moving.prepare.now JOB=n1.1 EPOCH=1 NODE=n2 TO=n3.2\n"
                   "home output report.moving JOB=n1.1 EPOCH=1\n"
                   "home output command.prepare JOB=n1.1 EPOCH=2 NODE=n3\n"
                   "home output command.prepare_dump JOB=n1.1 EPOCH=1 NODE=n2\n");
    b.event("n2", 1, GuestState::dump_ready);
    ck_assert_text(lines.take(),
                   // nothing of it has changed yet
                   "home input event.dump_ready JOB=n1.1 EPOCH=1 NODE=n2\n");
    b.event("n3", 2, GuestState::prepared);
    ck_assert_text(lines.take(),
                   "home input event.prepared JOB=n1.1 EPOCH=2 NODE=n3\n"
                   "home state moving.transfer JOB=n1.1 EPOCH=1 NODE=n2 TO=n3.2\n"
                   "home output command.ship JOB=n1.1 EPOCH=1 NODE=n2 TO=n3.2\n");
    b.event("n2", 1, GuestState::running, "no room");
    ck_assert(lines.has("home input event.running JOB=n1.1 EPOCH=1 NODE=n2 WHY=\"no room\""));
    ck_assert(lines.has("home state running JOB=n1.1 EPOCH=1 NODE=n2"));
    ck_assert(lines.has("home output order_failed JOB=n1.1 NODE=n2 WHY=\"no room\""));
    ck_assert(lines.has("home output command.resume JOB=n1.1 EPOCH=1 NODE=n2"));
    lines.take();
    b.wait(Nanos::from_ms(1));
    ck_assert_text(lines.take(), "");  // a tick of which nothing comes is not told
    b.h.tell_to(nullptr);
    b.suspend();
    ck_assert_text(lines.take(), "");
}
END_TEST

START_TEST(a_guest_tells_what_is_wanted_of_a_job_and_how_far_it_is) {
    using namespace unit::guests;
    Lines lines;
    Bench b;
    b.running();
    b.g.tell_to(&lines);
    b.command(GuestVerb::prepare_dump);
    ck_assert_text(lines.take(),
                   "guest input command.prepare_dump JOB=n1.1 EPOCH=1 NODE=n1 TO=n2.2\n"
                   "guest state running.ready JOB=n1.1 EPOCH=1\n"
                   "guest output do.ready_criu JOB=n1.1 EPOCH=1\n");
    b.criu_ready();
    ck_assert(lines.has("guest output event.dump_ready JOB=n1.1 EPOCH=1 NODE=n1"));
    b.command(GuestVerb::ship);
    b.sent_precopy();
    lines.take();
    b.dump_held(true);
    ck_assert_text(lines.take(),
                   "guest input dump_held JOB=n1.1 EPOCH=1 WHY=\"fenced\"\n"
                   "guest state dumping.ship.held JOB=n1.1 EPOCH=1\n"
                   "guest output do.ship JOB=n1.1 EPOCH=1 TO=n2.2\n"
                   "guest output event.dumping JOB=n1.1 EPOCH=1 NODE=n1\n");
    b.ended(guest::ShipFailed{"cut"});
    ck_assert(lines.has("guest input ship_failed JOB=n1.1 EPOCH=1 WHY=\"cut\""));
    b.command(GuestVerb::kill).gone();
    b.command(GuestVerb::drop);
    ck_assert(lines.has("guest state gone JOB=n1.1 EPOCH=1"));
    ck_assert(lines.has("guest output erase JOB=n1.1 EPOCH=1"));
}
END_TEST

START_TEST(a_provider_and_a_market_tell_theirs) {
    Lines lines;
    auto made = Provider::create("n1", Hardware{4, 8000, {"x86_64", "6.18", "4.2", 4096, "fpu"}},
                                 ProviderRecord{});
    ck_assert(made.has_value());
    made->tell_to(&lines);
    provider::Outputs out;
    made->market(false, {}, out);
    ck_assert_text(lines.take(),
                   "provider input market_off NODE=n1\nprovider state off_market NODE=n1\nprovider "
                   "output persist NODE=n1\n"
                   "provider output report NODE=n1\nprovider output leave NODE=n1 WHY=\"node n1 is "
                   "off the market\"\n");
    ck_assert(!made->set_speed(0, out));
    ck_assert_text(lines.take(), "provider input set_speed NODE=n1\n");

    market::Market m({});
    m.tell_to(&lines);
    m.started({});
    ck_assert(m.agent_connected("n1", "n1:1", {}).has_value());
    ProviderReport provider;
    provider.node = "n1";
    provider.on_market = true;
    provider.memory_mb = provider.free_mb = 1000;
    ck_assert(m.report("n1", provider, {}).has_value());
    JobReport job;
    job.id = {"n1", 1};
    job.terms.max_price = Money::units(1);
    ck_assert(m.report("n1", job, {}).has_value());
    lines.take();
    market::Outputs decided;
    m.solve(Nanos::from_s(60), decided);
    ck_assert(lines.has("market state waiting.ordered_run JOB=n1.1 TO=n1"));
    ck_assert(lines.has("market output store.job JOB=n1.1"));
    ck_assert(lines.has("market output order.run JOB=n1.1 NODE=n1 TO=n1"));
    lines.take();
    ck_assert(!m.cancel({"n1", 2}, 0));
    ck_assert_text(lines.take(), "market input cancel JOB=n1.2\n");
}
END_TEST

UNIT_SUITE(trace, a_home_tells_a_move_step_by_step,
           a_guest_tells_what_is_wanted_of_a_job_and_how_far_it_is,
           a_provider_and_a_market_tell_theirs);
