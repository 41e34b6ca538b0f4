// SPDX-License-Identifier: GPL-2.0-or-later
// Addresses of jobs with a network of their own, as the market leases them.
#include "tests/unit/market_world.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

using market::World;

JobId submit_with(World& w, Ipv4 address) {
    const JobId id{"n1", ++w.next_id["n1"]};
    World::HomeJob& job = w.jobs[id];
    job.report.id = id;
    job.report.uid = 1000;
    job.report.terms.max_price = Money::units(50);
    job.report.terms.memory_mb = 100;
    job.report.submitted = w.now;
    job.report.address = address;
    w.tell(job);
    w.run_for(Nanos::from_s(60));
    return id;
}

}  // namespace

// A version before leased no addresses: its records may have one twice, in any order of the ids.
START_TEST(of_two_jobs_of_an_old_state_with_one_address_the_later_one_has_none) {
    World w;
    w.add_node("n1", 100, 1, 4);
    const Ipv4 one{0x0a4f4040}, other{0x0a4f4041};
    const JobId later = submit_with(w, one), earlier = submit_with(w, other);
    w.stored_jobs.at(earlier).report.submitted = w.stored_jobs.at(earlier).arrived = Nanos{0};
    w.stored_jobs.at(earlier).report.address = one;
    w.restart();
    const auto lost = w.market->lost_addresses();
    ck_assert(std::ssize(lost) == 1 && lost[0].first == later && lost[0].second == one);
    ck_assert(w.market->find(earlier)->record.report.address == one);
    // Its home says the address again, and it does not come back; not in the records either.
    w.jobs.at(earlier).report.address = one;
    w.connect("n1");
    w.run_for(Nanos::from_s(60));
    ck_assert(!w.market->find(later)->record.report.address);
    ck_assert(!w.stored_jobs.at(later).report.address);
    ck_assert(w.stored_jobs.at(earlier).report.address == one);
    w.restart();
    ck_assert(w.market->lost_addresses().empty());
}
END_TEST

UNIT_SUITE(market_addresses, of_two_jobs_of_an_old_state_with_one_address_the_later_one_has_none);

}  // namespace souk::unit
