// SPDX-License-Identifier: GPL-2.0-or-later
// Market: jobs that ask for named resources (srun --resource) of a node or of the market. A table
// of what the homes say counts what is in use, step by step.
#include "agentd/core/guest_devices.hpp"
#include "tests/unit/market_chaos.hpp"

using namespace souk;
using namespace souk::market;

namespace {

Nanos seconds(int64_t n) { return Nanos::from_s(n); }

MarketOptions with_licences(int64_t count, Money reserve = {}) {
    MarketOptions options;
    options.resources = {{"matlab", count, reserve, false}};
    return options;
}

void has(World& w, const NodeName& name, std::vector<ResourceOffer> resources) {
    ProviderReport p = w.providers[name];
    p.resources = std::move(resources);
    w.set_provider(p);
}

JobId submit_with(World& w, int64_t price, const char* resources, int32_t cpus = 1,
                  Nanos work = Nanos::never()) {
    const JobId id =
        w.submit("n1", price, work, cpus, 100, {}, 1'000 + static_cast<uint32_t>(w.jobs.size()));
    w.jobs[id].report.terms.resources = resources;
    w.tell(w.jobs[id]);
    return id;
}

void bids(World& w, const JobId& id, int64_t price) {
    w.jobs[id].report.terms.max_price = Money::units(price);
    w.tell(w.jobs[id]);
}

// n1 with 2 gpus, n2 with 1, n3 with none; four CPUs each.
World three_with_gpus(MarketOptions options = {}) {
    World w(std::move(options));
    for (const char* name : {"n1", "n2", "n3"}) w.add_node(name, 100, 1, 4);
    has(w, "n1", {{"gpu", 2, {}, false}});
    has(w, "n2", {{"gpu", 1, {}, false}});
    w.run_for(seconds(4));
    return w;
}

// So many of a resource are in use, by what the homes say.
std::map<std::pair<NodeName, std::string>, int64_t> in_use(const World& w) {
    std::map<std::pair<NodeName, std::string>, int64_t> used;
    for (const auto& [id, job] : w.jobs) {
        const JobReport& r = job.report;
        std::set<NodeName> at;
        const bool frozen_there = r.phase == JobPhase::frozen && r.in_place;
        if (r.phase == JobPhase::moving || r.phase == JobPhase::thawing) at.insert(r.to);
        if (r.phase == JobPhase::moving || r.phase == JobPhase::starting ||
            r.phase == JobPhase::running || r.phase == JobPhase::freezing || frozen_there)
            at.insert(r.where);
        const auto needs = parse_resources(*r.terms.resources);
        for (const ResourceNeed& need : *needs) {
            for (const NodeName& node : at) used[{node, need.name}] += need.count;
            if (!at.empty()) used[{"", need.name}] += need.count;
        }
    }
    return used;
}

void never_more_than_there_is(const World& w, int64_t licences) {
    for (const auto& [what, used] : in_use(w)) {
        const auto& [node, name] = what;
        int64_t most = name == "matlab" ? licences : INT64_MAX;
        if (name == "gpu" && !node.empty()) {
            most = 0;
            for (const ResourceOffer& one : w.providers.at(node).resources)
                if (one.name == name) most = one.count;
        }
        ck_assert_msg(used <= most, "%ld of %s are in use on '%s'", used, name.c_str(),
                      node.c_str());
    }
}

}  // namespace

START_TEST(no_random_market_gives_more_than_there_is_and_every_job_ends) {
    const char* const asks[] = {"",      "gpu=1", "gpu=2",          "matlab=1", "matlab=2",
                                "gpu=1", "",      "gpu=1,matlab=1", ""};
    int64_t used = 0;
    for (uint64_t seed = 1; seed <= 120; ++seed) {
        Chaos c(seed, World(with_licences(2)));
        std::set<JobId> known;
        for (auto& [name, p] : std::map(c.w.providers))
            has(c.w, name,
                {{"gpu", c.rng.between(0, 2), Money::units(c.rng.between(0, 3)), false}});
        const auto each = [&c, limits = c.w.after_step, &used] {
            c.check_prices();
            c.check_limits();
            never_more_than_there_is(c.w, 2);
            used += static_cast<int64_t>(in_use(c.w).size());
        };
        c.w.after_step = each;
        for (int i = 0; i < 150; ++i) {
            c.event();
            for (auto& [id, job] : c.w.jobs) {
                if (known.insert(id).second && job.report.phase == JobPhase::waiting) {
                    job.report.terms.resources = asks[c.rng.below(std::size(asks))];
                    c.w.tell(job);
                }
                const bool device = job.report.terms.resources->starts_with("gpu");
                if (device && job.report.phase == JobPhase::running && !job.doing &&
                    job.immovable.empty() && c.rng.chance(0.05))
                    c.w.becomes_immovable(id, "it has a device");
            }
            c.w.run_for(Nanos::from_ms(c.rng.between(0, 2'000)));
        }
        for (auto& [name, p] : c.w.providers) p.resources = {{"gpu", 2, {}, false}};
        c.w.add_node("gpus", 100, 0, 4, 8'000);  // the largest job fits
        has(c.w, "gpus", {{"gpu", 2, {}, false}});
        for (auto& [id, job] : c.w.jobs)
            if (job.report.phase == JobPhase::waiting)
                job.report.terms.max_price = std::max(job.report.terms.max_price, Money::units(9));
        c.heal();
        for (const auto& [id, job] : c.w.jobs)
            ck_assert_msg(job.report.phase == JobPhase::finished, "seed %lu: %s is %s: %s",
                          static_cast<unsigned long>(seed), id.text().c_str(),
                          to_string(job.report.phase), c.w.comment(id).c_str());
    }
    ck_assert_int_gt(used, 10'000);
}
END_TEST

START_TEST(jobs_get_what_they_ask_for_by_their_bids_and_others_hear_who_has_it) {
    World w = three_with_gpus();
    const JobId two = submit_with(w, 20, "gpu=2"), one = submit_with(w, 10, "gpu=1"),
                late = submit_with(w, 5, "gpu=1"), plain = submit_with(w, 4, "");
    w.run_for(seconds(5));
    ck_assert_text(w.where(two), "n1");
    ck_assert_text(w.where(one), "n2");
    ck_assert_text(w.where(plain), "n1");
    ck_assert(w.phase(late) == JobPhase::waiting);
    ck_assert(w.market->reason(*w.market->find(late)).code == ReasonCode::resource_taken);
    ck_assert_text(w.comment(late),
                   "waits for gpu=1 on n2, which job " + one.text() + " has at 5; 11 would win it");
    ck_assert_int_eq(w.market->resources().taken("n1", "gpu"), 2);
    // It pays what the other would.
    ck_assert_int_eq(w.market->find(one)->record.price.micro, Money::units(5).micro);
    bids(w, late, 11);
    w.run_for(seconds(5));
    ck_assert_text(w.where(late), "n2");
    ck_assert(w.phase(one) == JobPhase::frozen);
    // Nobody has so many.
    const JobId three = submit_with(w, 90, "gpu=3"), other = submit_with(w, 90, "tpu=1");
    w.run_for(seconds(5));
    ck_assert_text(w.comment(three), "no node of this market has gpu=3");
    ck_assert_text(w.comment(other), "no node of this market has tpu=1");
}
END_TEST

START_TEST(a_licence_is_of_the_whole_market_and_goes_along_in_a_move) {
    World w = three_with_gpus(with_licences(1, Money::units(6)));
    const JobId first = submit_with(w, 10, "matlab=1");
    w.run_for(seconds(5));
    ck_assert_text(w.where(first), "n1");
    // Its reserve is beside that of the node.
    ck_assert_int_eq(w.market->find(first)->record.price.micro, Money::units(7).micro);
    const JobId poor = submit_with(w, 6, "matlab=1"), rich = submit_with(w, 8, "matlab=1"),
                many = submit_with(w, 90, "matlab=2");
    w.run_for(seconds(5));
    for (const JobId& id : {poor, rich, many}) ck_assert(w.phase(id) == JobPhase::waiting);
    ck_assert_text(w.comment(many), "the market has 1 in all, and it asks for matlab=2");
    ck_assert_text(w.comment(rich),
                   "waits for matlab=1, which job " + first.text() + " has at 8; 11 would win it");
    ck_assert(w.market->move(first, "n3", false, 0).has_value());
    w.run_for(seconds(5));
    ck_assert_text(w.where(first), "n3");
    ck_assert_int_eq(w.market->resources().taken("matlab"), 1);
    bids(w, first, 7);
    w.run_for(seconds(5));
    ck_assert_text(w.where(rich), "n1");
    ck_assert(w.phase(first) == JobPhase::frozen);
}
END_TEST

START_TEST(who_cannot_move_keeps_what_it_has_whoever_bids_more_and_after_a_restart) {
    World w = three_with_gpus();
    const JobId fixed = submit_with(w, 10, "gpu=2", 4);
    w.run_for(seconds(5));
    ck_assert_text(w.where(fixed), "n1");
    w.becomes_immovable(fixed, "it has gpu 0 and 1 of this node, which cannot go along");
    const JobId rich = submit_with(w, 50, "gpu=2");
    w.run_for(seconds(5));
    ck_assert_text(w.where(fixed), "n1");
    ck_assert(w.phase(rich) == JobPhase::waiting);
    ck_assert_text(w.comment(rich),
                   "waits for gpu=2 on n1, which job " + fixed.text() + " has at 1");
    w.restart();
    for (const auto& [name, p] : w.providers) w.connect(name);
    w.run_for(seconds(20));
    ck_assert(w.phase(rich) == JobPhase::waiting);
    ck_assert_int_eq(w.market->resources().taken("n1", "gpu"), 2);
    // Stopped in memory, it has them still.
    const JobId cpus[] = {submit_with(w, 60, "", 4), submit_with(w, 60, "", 4),
                          submit_with(w, 60, "", 4)};
    w.run_for(seconds(20));
    ck_assert(w.phase(fixed) == JobPhase::frozen && w.jobs[fixed].report.in_place);
    ck_assert(w.phase(rich) == JobPhase::waiting);
    for (const JobId& id : cpus) (void)w.market->cancel(id, 0);
    w.run_for(seconds(20));
    ck_assert_text(w.where(fixed), "n1");
    w.end_by_itself(w.jobs.at(fixed));
    w.run_for(seconds(5));
    ck_assert_text(w.where(rich), "n1");
}
END_TEST

START_TEST(who_stands_in_memory_goes_to_disk_and_others_get_what_it_had) {
    World w = three_with_gpus();
    const JobId held = submit_with(w, 10, "gpu=2");
    w.run_for(seconds(5));
    ck_assert_text(w.where(held), "n1");
    const JobId rich = submit_with(w, 50, "gpu=2");
    // Its home has stopped it meanwhile, with its memory.
    World::HomeJob& job = w.jobs.at(held);
    World::stop_clock(job, w.now);
    job.report.phase = JobPhase::frozen;
    job.report.in_place = true;
    w.tell(job);
    w.run_for(seconds(10));
    ck_assert(!w.jobs.at(held).report.in_place);
    ck_assert_text(w.where(rich), "n1");
    const auto order = std::find_if(w.orders.begin(), w.orders.end(), [&](const Order& o) {
        return o.id == held && o.kind == Order::Kind::suspend;
    });
    ck_assert(order != w.orders.end());
    ck_assert_text(order->reason, "goes to disk, so that others on n1 get what it has");
}
END_TEST

namespace {

Result<GivenResources> give(const std::vector<ResourceNeed>& needs,
                            const std::vector<NodeResource>& all,
                            const std::vector<GuestHolds>& others, bool from_image = false) {
    return give_resources(needs, all, others, from_image);
}

std::string variable(const GivenResources& given, const std::string& name) {
    std::string all;
    for (const auto& [known, value] : given.variables)
        if (known == name) all += (all.empty() ? "" : " and again ") + value;
    return all;
}

}  // namespace

START_TEST(a_guest_gets_the_first_devices_that_no_other_has) {
    const std::vector<NodeResource> all = {{{"gpu", 2, {}, true}, {"/dev/nvidia0", "/dev/nvidia1"}},
                                           {{"slot", 3, {}, false}, {}}};
    const auto first = give({{"gpu", 1}, {"slot", 2}, {"matlab", 9}}, all, {});
    ck_assert(first && first->devices == std::vector<std::string>{"gpu:/dev/nvidia0"});
    ck_assert_text(variable(*first, "SOUK_RESOURCE_GPU"), "/dev/nvidia0");
    const GuestHolds has{"gpu=1,slot=2", first->devices};
    const auto second = give({{"gpu", 1}}, all, {has});
    ck_assert(second && second->devices == std::vector<std::string>{"gpu:/dev/nvidia1"});
    for (const ResourceNeed& need : {ResourceNeed{"gpu", 2}, ResourceNeed{"slot", 2}}) {
        const auto none = give({need}, all, {has});
        ck_assert(!none && none.error().cause == CauseCode::resource_short);
        ck_assert_text(none.error().message,
                       "not so much of " + need.name + " is free on this node");
    }
}
END_TEST

START_TEST(a_device_is_its_file_whatever_becomes_of_the_list) {
    const GuestHolds has{"gpu=1", {"gpu:/dev/nvidia0"}};
    // One is put before it, so its place in the list is another.
    const std::vector<NodeResource> more = {
        {{"gpu", 3, {}, true}, {"/dev/nvidia9", "/dev/nvidia0", "/dev/nvidia1"}}};
    const auto given = give({{"gpu", 2}}, more, {has});
    ck_assert(given &&
              given->devices == (std::vector<std::string>{"gpu:/dev/nvidia9", "gpu:/dev/nvidia1"}));
    // It is listed under another name now.
    const std::vector<NodeResource> renamed = {
        {{"a100", 2, {}, true}, {"/dev/nvidia0", "/dev/nvidia1"}}};
    const auto other = give({{"a100", 1}}, renamed, {has});
    ck_assert(other && other->devices == std::vector<std::string>{"a100:/dev/nvidia1"});
    ck_assert(!give({{"a100", 2}}, renamed, {has}));
    // An older version wrote the place in the list.
    const auto old = give({{"gpu", 1}}, more, {GuestHolds{"gpu=1", {"gpu:0"}}});
    ck_assert(old && old->devices == std::vector<std::string>{"gpu:/dev/nvidia0"});
}
END_TEST

START_TEST(a_guest_with_devices_of_two_names_is_told_all_of_them_in_one_variable) {
    const std::vector<NodeResource> all = {
        {{"a100", 1, {}, true}, {"/dev/nvidia2"}},
        {{"fpga", 1, {}, true}, {"/dev/fpga0"}},
        {{"v100", 2, {}, true}, {"/dev/nvidia0", "/dev/nvidia1"}}};
    const auto given = give({{"a100", 1}, {"fpga", 1}, {"v100", 2}}, all, {});
    ck_assert(given.has_value());
    ck_assert_text(variable(*given, "CUDA_VISIBLE_DEVICES"), "2,0,1");
    ck_assert_text(variable(*given, "SOUK_RESOURCE_V100"), "/dev/nvidia0,/dev/nvidia1");
    ck_assert_text(variable(*given, "SOUK_RESOURCE_FPGA"), "/dev/fpga0");
}
END_TEST

START_TEST(a_job_out_of_an_image_is_given_no_device_as_nothing_can_tell_it) {
    const std::vector<NodeResource> all = {{{"gpu", 2, {}, true}, {"/dev/nvidia0", "/dev/nvidia1"}},
                                           {{"slot", 3, {}, false}, {}}};
    const auto none = give({{"gpu", 1}}, all, {}, true);
    ck_assert(!none && none.error().cause == CauseCode::resource_untold);
    ck_assert(give({{"slot", 1}, {"matlab", 1}}, all, {}, true).has_value());
}
END_TEST

START_TEST(a_job_that_has_begun_never_goes_where_what_it_has_is_a_device) {
    World w;
    for (const char* name : {"n1", "n2"}) w.add_node(name, 100, 1, 4);
    has(w, "n1", {{"gpu", 1, {}, false}});
    has(w, "n2", {{"gpu", 1, {}, true}});
    w.run_for(seconds(4));
    const JobId counts = submit_with(w, 20, "gpu=1");
    w.run_for(seconds(5));
    if (w.where(counts) == "n2") return ck_abort_msg("n1 comes first");
    const auto moved = w.market->move(counts, "n2", false, 0);
    ck_assert(!moved.has_value());
    ck_assert_text(moved.error().message,
                   "node n2 has gpu as a device, which a job gets only when it begins");
    // Its node goes: it waits on disk, and says for what.
    ProviderReport off = w.providers["n1"];
    off.on_market = false;
    w.set_provider(off);
    w.run_for(seconds(60));
    ck_assert(w.phase(counts) == JobPhase::frozen);
    ck_assert_text(w.comment(counts),
                   "has begun, and gpu is a device wherever there is enough of it");
    // A new one begins there.
    const JobId fresh = submit_with(w, 5, "gpu=1");
    w.run_for(seconds(5));
    ck_assert_text(w.where(fresh), "n2");
    // The owner offers a count now.
    w.end_by_itself(w.jobs.at(fresh));
    has(w, "n2", {{"gpu", 1, {}, false}});
    w.run_for(seconds(30));
    ck_assert_text(w.where(counts), "n2");
}
END_TEST

START_TEST(a_name_of_the_market_is_not_counted_on_a_node_and_its_owner_is_told) {
    World w = three_with_gpus(with_licences(2));
    has(w, "n1", {{"gpu", 2, {}, false}, {"matlab", 1, Money::units(9), false}});
    w.run_for(seconds(4));
    ck_assert(w.provider_notes["n1"].of_market == std::vector<std::string>{"matlab"});
    ck_assert(w.provider_notes["n2"].of_market.empty());
    const JobId one = submit_with(w, 5, "matlab=1"), two = submit_with(w, 5, "matlab=1");
    w.run_for(seconds(5));
    ck_assert(w.phase(one) == JobPhase::running && w.phase(two) == JobPhase::running);
    ck_assert_int_eq(w.market->resources().taken("matlab"), 2);
    ck_assert_int_eq(w.market->resources().taken("n1", "matlab"), 0);
    // The node's reserve for it counts for nothing.
    ck_assert_int_eq(w.market->find(one)->record.price.micro, Money::units(1).micro);
    has(w, "n1", {{"gpu", 2, {}, false}});
    w.run_for(seconds(4));
    ck_assert(w.provider_notes["n1"].of_market.empty());
}
END_TEST

START_TEST(names_that_anybody_asks_for_are_not_kept_for_ever) {
    World w = three_with_gpus(with_licences(1));
    const JobId holder = submit_with(w, 20, "gpu=2"), waits = submit_with(w, 90, "tpu=7");
    w.run_for(seconds(5));
    const ResourceBook& book = w.market->resources();
    JobTerms terms;
    for (int i = 0; i < 20'000; ++i) {
        terms.resources = "x" + std::to_string(i) + "=1";
        (void)book.asked(terms);
        if (i % 500 == 0) w.run_for(seconds(1));
    }
    w.run_for(seconds(2));
    ck_assert_uint_le(book.names(), ResourceBook::names_few + 600);
    // A name that somebody has or asks for is the same thing still.
    ck_assert_int_eq(book.taken("n1", "gpu"), 2);
    ck_assert_text(w.comment(waits), "no node of this market has tpu=7");
    const JobId late = submit_with(w, 5, "gpu=2");
    w.run_for(seconds(5));
    ck_assert(w.phase(late) == JobPhase::waiting);
    w.end_by_itself(w.jobs.at(holder));
    has(w, "n2", {{"tpu", 7, {}, false}});
    w.run_for(seconds(5));
    ck_assert_text(w.where(late), "n1");
    ck_assert_text(w.where(waits), "n2");
}
END_TEST

START_TEST(texts_of_resources_are_read_or_refused) {
    const auto text = [](const char* t) {
        const auto all = parse_resources(t);
        return all ? resources_text(*all) : "! " + all.error().message;
    };
    ck_assert_text(text(" matlab = 5,gpu "), "gpu=1,matlab=5");
    ck_assert_text(text(""), "");
    ck_assert_text(text("gpu=0"), "! gpu: '0' is no count from 1 to 1000000");
    ck_assert_text(text("gpu=1,gpu=2"), "! gpu comes twice");
    ck_assert_text(text("gpu=1,GPU=2"),
                   "! GPU and gpu are one variable of a job, SOUK_RESOURCE_GPU: give one of them "
                   "another name");
    ck_assert_text(text("gpu=1,"),
                   "! '' is no name of a resource: a letter, then letters, digits, '-' and '_'");
    ck_assert_text(
        text("7gpu"),
        "! '7gpu' is no name of a resource: a letter, then letters, digits, '-' and '_'");
    const auto offers = resource_offers({{"gpu", "2"}}, {{"gpu", "1.50"}});
    ck_assert(offers && (*offers)[0] == (ResourceOffer{"gpu", 2, Money{1'500'000}, false}));
    const auto twice = resource_offers({{"gpu-a", "2"}, {"gpu_a", "1"}}, {});
    ck_assert(!twice);
    ck_assert_text(twice.error().message,
                   "gpu-a and gpu_a are one variable of a job, SOUK_RESOURCE_GPU_A: give one of "
                   "them another name");
    ck_assert(!resource_offers({{"gpu", "2"}}, {{"tpu", "1"}}));
    ck_assert(!resource_offers({{"gpu", "two"}}, {}));
}
END_TEST

UNIT_SUITE_LONG(market_resources, 180, no_random_market_gives_more_than_there_is_and_every_job_ends,
                jobs_get_what_they_ask_for_by_their_bids_and_others_hear_who_has_it,
                a_licence_is_of_the_whole_market_and_goes_along_in_a_move,
                who_cannot_move_keeps_what_it_has_whoever_bids_more_and_after_a_restart,
                who_stands_in_memory_goes_to_disk_and_others_get_what_it_had,
                a_guest_gets_the_first_devices_that_no_other_has,
                a_device_is_its_file_whatever_becomes_of_the_list,
                a_guest_with_devices_of_two_names_is_told_all_of_them_in_one_variable,
                a_job_out_of_an_image_is_given_no_device_as_nothing_can_tell_it,
                a_job_that_has_begun_never_goes_where_what_it_has_is_a_device,
                a_name_of_the_market_is_not_counted_on_a_node_and_its_owner_is_told,
                names_that_anybody_asks_for_are_not_kept_for_ever,
                texts_of_resources_are_read_or_refused);
