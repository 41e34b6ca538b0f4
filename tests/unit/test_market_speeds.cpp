// SPDX-License-Identifier: GPL-2.0-or-later
// The speed that programs find of the nodes of a market (market/core/speed_check.hpp).
#include "tests/unit/market_world.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {
using namespace market;
}  // namespace

// Its operator hears of it once, and the solver goes on by what owners say.
START_TEST(the_operator_hears_that_a_node_gives_less_than_its_owner_says) {
    World w;
    const std::map<NodeName, int64_t> speeds = {{"n1", 100}, {"n2", 100}, {"n3", 100}};
    for (const auto& [name, speed] : speeds) w.add_node(name, name == "n3" ? 200 : speed, 1);
    const auto spec = [&] { return w.market->solver().provider(w.market->find_node("n3")->key); };
    w.run_for(Nanos::from_s(4));
    ck_assert_int_eq(spec()->speed, 200);
    for (int round = 0; round < 8; ++round) {
        for (const auto& [name, speed] : speeds) {
            const JobId id{"n1", ++w.next_id["n1"]};
            World::HomeJob& job = w.jobs[id];
            job.report.id = id;
            job.report.uid = 1001 + static_cast<uint32_t>(round % 2);
            job.report.command = "solve";
            job.report.terms.max_price = Money::units(50);
            job.report.terms.memory_mb = 100;
            job.report.submitted = w.now;
            job.report.only_node = name;
            job.report.stats.cpu_time = Nanos::from_s(60);
            job.work = Nanos::from_s(60);
            w.tell(job);
        }
        w.run_for(Nanos::from_s(120));
    }
    for (const auto& [id, job] : w.jobs) ck_assert(job.report.phase == JobPhase::finished);
    ck_assert_int_eq(w.market->speed_found(*w.market->find_node("n3")), 100);
    ck_assert_int_eq(spec()->speed, 200);
    ck_assert_int_eq(w.market->speed_found(*w.market->find_node("n1")), 100);
    const auto marks = w.market->take_speed_marks();
    ck_assert_int_eq(std::ssize(marks), 1);
    ck_assert(marks[0].node == "n3" && marks[0].claimed == 200 && marks[0].found == 100);
}
END_TEST

UNIT_SUITE(market_speeds, the_operator_hears_that_a_node_gives_less_than_its_owner_says);

}  // namespace souk::unit
