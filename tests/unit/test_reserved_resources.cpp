// SPDX-License-Identifier: GPL-2.0-or-later
// Market: named resources that are sold ahead with the places of jobs (srun --for --resource).
#include <random>

#include "tests/unit/reservation_world.hpp"

using namespace souk;
using namespace souk::market;
using namespace souk::market::reserving;

namespace {

void has(World& w, const NodeName& name, std::vector<ResourceOffer> resources) {
    ProviderReport p = w.providers[name];
    p.resources = std::move(resources);
    w.set_provider(p);
}

JobId submit_with(World& w, int64_t price, const std::string& resources,
                  Nanos work = Nanos::never()) {
    JobId id = w.submit("n1", price, work, 1, 100);
    JobTerms& terms = w.jobs[id].report.terms;
    terms.resources = resources;
    if (work != Nanos::never()) terms.limits.edit().run = work;
    w.tell(w.jobs[id]);
    return id;
}

MarketOptions one_matlab(int64_t count = 1) {
    MarketOptions options;
    options.resources = {{"matlab", count, Money::units(3), false}};
    return options;
}

}  // namespace

START_TEST(a_device_that_is_sold_is_kept_from_those_who_might_have_it_still) {
    World w = world();
    w.add_node("n1", 100, 1, 4);
    has(w, "n1", {{"gpu", 1, Money::units(2), true}});
    w.run_for(s(2));
    const JobId id =
        book(w, "n1", 40, {.start_s = 200, .span_s = 100, .cpus = 2, .resources = "gpu=1"});
    w.run_for(s(5));
    ck_assert(contract(w, id).is_sold());
    // The owner's reserve for it is part of the price of each of its CPUs.
    ck_assert_int_eq(contract(w, id).price.micro, Money::units(2).micro);
    ck_assert_text(*contract(w, id).resources, "gpu=1");
    const JobId endless = submit_with(w, 90, "gpu=1"), brief = submit_with(w, 5, "gpu=1", s(60)),
                plain = submit_with(w, 5, "");
    w.run_for(s(5));
    ck_assert_text(where(w, brief), "n1");
    ck_assert_text(where(w, plain), "n1");
    ck_assert(w.phase(endless) == JobPhase::waiting);
    ck_assert(!w.market->move(endless, "n1", false, 0));
    w.becomes_immovable(brief, "it has gpu /dev/nvidia0 of this node, which cannot go along");
    w.run_until(s(100));
    ck_assert(w.phase(brief) == JobPhase::finished);
    // It would end when the time has begun.
    const JobId late = submit_with(w, 95, "gpu=1", s(90));
    w.run_until(s(190));
    ck_assert(w.phase(late) == JobPhase::waiting && w.phase(endless) == JobPhase::waiting);
    w.run_until(s(202));
    ck_assert_text(where(w, id), "n1");
    // A job that waits gets it when the time is over.
    w.run_until(s(299));
    ck_assert_text(where(w, id), "n1");
    w.end_by_itself(w.jobs.at(id));
    w.run_for(s(15));
    ck_assert_text(where(w, late), "n1");
}
END_TEST

START_TEST(a_device_or_a_licence_is_sold_once_for_each_moment) {
    World w = world(one_matlab());
    w.add_node("n1", 100, 1, 8);
    w.add_node("n2", 100, 1, 8);
    has(w, "n1", {{"gpu", 1, {}, true}});
    w.run_for(s(2));
    const auto ask = [&](int64_t from, int64_t span, const char* what) {
        JobId id = book(w, "n1", 40, {.start_s = from, .span_s = span, .resources = what});
        w.run_for(s(3));
        return id;
    };
    const JobId first = ask(1'000, 100, "gpu=1"), same = ask(1'050, 100, "gpu=1"),
                after = ask(1'110, 100, "gpu=1"), later = ask(1'130, 100, "gpu=1"),
                two = ask(5'000, 100, "gpu=2");
    ck_assert(contract(w, first).is_sold() && contract(w, later).is_sold());
    ck_assert_text(contract(w, first).node, "n1");
    ck_assert(!contract(w, same).is_sold() && !contract(w, two).is_sold());
    // Whoever has the device before needs a moment to go.
    ck_assert(!contract(w, after).is_sold());
    ck_assert(code(w, same) == ReasonCode::place_not_sold);
    ck_assert(code(w, two) == ReasonCode::resource_nowhere);
    const JobId licence = ask(1'000, 100, "matlab=1"), other = ask(1'099, 100, "matlab=1"),
                next = ask(1'100, 100, "matlab=1");
    ck_assert(contract(w, licence).is_sold() && contract(w, next).is_sold());
    ck_assert(!contract(w, other).is_sold());
    ck_assert_int_eq(contract(w, licence).price.micro, Money::units(4).micro);
    // Restarted, the market knows it still.
    w.restart();
    for (const auto& [name, p] : w.providers) w.connect(name);
    w.run_for(s(20));
    ck_assert(contract(w, first).is_sold() && !contract(w, same).is_sold());
    w.end(w.jobs[first]);
    w.end(w.jobs[later]);
    w.run_for(s(30));
    ck_assert(contract(w, same).is_sold());
}
END_TEST

START_TEST(who_has_a_licence_now_makes_room_for_the_one_to_whom_it_was_sold) {
    World w = world(one_matlab());
    w.add_node("n1", 100, 1, 8);
    w.run_for(s(2));
    const JobId id = book(w, "n1", 40, {.start_s = 60, .span_s = 60, .resources = "matlab=1"});
    w.run_for(s(3));
    const JobId rich = submit_with(w, 90, "matlab=1");
    w.run_for(s(5));
    ck_assert_text(where(w, rich), "n1");
    w.run_until(s(62));
    ck_assert_text(where(w, id), "n1");
    ck_assert(w.phase(rich) == JobPhase::frozen);
    ck_assert_int_eq(w.market->resources().taken("matlab"), 1);
    w.run_until(s(140));
    ck_assert_text(where(w, rich), "n1");
}
END_TEST

namespace {

// So many of what was sold, and of what is in use, by tables of this test alone.
int64_t amount(const std::string& resources, const std::string& name) {
    const size_t at = (resources + ",").find(name + "=");
    return at == std::string::npos ? 0 : std::stoll(resources.substr(at + name.size() + 1));
}

void sold_and_used_within(World& w, uint32_t seed, int64_t licences) {
    std::map<NodeName, std::vector<const Contract*>> sold;
    std::vector<const Contract*> all;
    std::map<NodeName, int64_t> gpus;
    int64_t matlabs = 0;
    for (const auto& [id, job] : w.market->jobs()) {
        const JobReport& r = w.jobs.at(id).report;
        const std::string& asks = *r.terms.resources;
        std::set<NodeName> at;
        if (r.phase == JobPhase::moving || r.phase == JobPhase::thawing) at.insert(r.to);
        if (r.phase == JobPhase::moving || r.phase == JobPhase::starting ||
            r.phase == JobPhase::running || r.phase == JobPhase::freezing ||
            (r.phase == JobPhase::frozen && r.in_place))
            at.insert(r.where);
        for (const NodeName& node : at) gpus[node] += amount(asks, "gpu");
        if (!at.empty()) matlabs += amount(asks, "matlab");
        const Contract& c = *job.record.contract;
        if (!c.is_sold() || c.over || c.node.empty() || job.phase() == JobPhase::finished) continue;
        all.push_back(&c);
        sold[c.node].push_back(&c);
    }
    const auto at_once = [](const std::vector<const Contract*>& some, Nanos at, const char* name) {
        int64_t sum = 0;
        for (const Contract* const c : some)
            if (c->start <= at && at < c->end) sum += amount(*c->resources, name);
        return sum;
    };
    for (const Contract* const at : all) {
        const int64_t sum = at_once(all, at->start, "matlab");
        ck_assert_msg(sum <= licences, "seed %u: %ld licences are sold at once", seed, sum);
        const auto& here = w.providers[at->node].resources;
        const int64_t most = here.empty() ? 0 : here[0].count;
        const int64_t gpu = at_once(sold[at->node], at->start, "gpu");
        ck_assert_msg(gpu <= most, "seed %u: %ld of %ld gpus of %s are sold at once", seed, gpu,
                      most, at->node.c_str());
    }
    ck_assert_msg(matlabs <= licences, "seed %u: %ld licences are in use", seed, matlabs);
    for (const auto& [node, used] : gpus) {
        const auto& here = w.providers[node].resources;
        ck_assert_msg(used <= (here.empty() ? 0 : here[0].count), "seed %u: %ld gpus of %s", seed,
                      used, node.c_str());
    }
}

}  // namespace

// Devices on n1, of which those that have one never leave, counts on n2 and n3, licences. Jobs with
// named resources that were sold end with their time, as their homes see to.
START_TEST(random_reservations_of_named_resources_are_kept) {
    int64_t kept = 0;
    for (uint32_t seed = 1; seed <= 12; ++seed) {
        std::mt19937 random(seed);
        const auto upto = [&](int64_t n) {
            return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
        };
        const char* const asks[] = {"", "gpu=1", "gpu=2", "matlab=1", "gpu=1,matlab=1"};
        World w = world(one_matlab(2));
        for (const char* name : {"n1", "n2", "n3"}) {
            w.add_node(name, 80 + upto(40), 1 + upto(3), static_cast<int32_t>(2 + upto(6)),
                       100'000);
            has(w, name, {{"gpu", 1 + upto(3), Money::units(upto(3)), name[1] == '1'}});
        }
        std::vector<JobId> booked;
        for (int step = 0; step < 150; ++step) {
            const int64_t now_s = w.now.ns / 1'000'000'000;
            const char* const what = asks[upto(5)];
            switch (upto(6)) {
                case 0:
                case 1:
                    booked.push_back(book(w, "n1", 10 + upto(30),
                                          {.start_s = now_s + upto(90),
                                           .span_s = 5 + upto(60),
                                           .cpus = static_cast<int32_t>(1 + upto(2)),
                                           .early = upto(3) == 0,
                                           .resources = what}));
                    break;
                case 2: (void)submit_with(w, 1 + upto(90), what, s(1 + upto(40))); break;
                case 3:
                    if (upto(4) == 0) (void)submit_with(w, 1 + upto(90), what);
                    break;
                case 4:
                    for (auto& [id, job] : w.jobs)  // one without an end of its own
                        if (!job.report.terms.booking->asks() && job.work == Nanos::never() &&
                            job.report.phase == JobPhase::running && !job.doing && upto(3) == 0)
                            w.end(job);
                    break;
                default: break;
            }
            for (int part = 0; part < 8; ++part) {
                w.run_for(Nanos::from_ms(50 + upto(500)));
                for (auto& [id, job] : w.jobs) {
                    JobReport& r = job.report;
                    const Contract& c = *w.market->find(id)->record.contract;
                    const bool over = c.is_sold() && w.now + monday >= c.end;
                    const bool steady = r.phase == JobPhase::running || r.phase == JobPhase::frozen;
                    if (steady && !job.doing && over && !r.terms.resources.empty()) w.end(job);
                    if (r.phase == JobPhase::running && !job.doing && r.where == "n1" &&
                        job.immovable.empty() && amount(*r.terms.resources, "gpu") > 0)
                        w.becomes_immovable(id, "it has a device");
                }
            }
            sold_and_used_within(w, seed, 2);
            for (const JobId& id : booked) {
                const Contract& c = contract(w, id);
                const Nanos unix = w.now + monday;
                if (w.phase(id) == JobPhase::finished || !c.is_sold() || c.over) continue;
                ck_assert_msg(c.places_lost == 0, "seed %u: %s lost its place on %s", seed,
                              id.text().c_str(), c.node.c_str());
                // Two who have some of it are written down one after the other.
                if (unix <= c.start + s(4) || unix >= c.end || unix <= c.sold + s(6)) continue;
                ck_assert_msg(where(w, id) == c.node, "seed %u: %s is not on %s: %s", seed,
                              id.text().c_str(), c.node.c_str(), w.comment(id).c_str());
                kept += !c.resources.empty();
            }
        }
    }
    ck_assert_int_gt(kept, 60);
}
END_TEST

UNIT_SUITE(reserved_resources, a_device_that_is_sold_is_kept_from_those_who_might_have_it_still,
           a_device_or_a_licence_is_sold_once_for_each_moment,
           who_has_a_licence_now_makes_room_for_the_one_to_whom_it_was_sold,
           random_reservations_of_named_resources_are_kept);
