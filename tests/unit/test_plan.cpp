// SPDX-License-Identifier: GPL-2.0-or-later
// MarketPlan: what is to run where and until when, beside a planner that does the same second by
// second, and shares nothing with it.
#include <random>

#include "kernel/base/json.hpp"
#include "market/wire/plan_reply.hpp"
#include "tests/unit/market_world.hpp"

using namespace souk;
using namespace souk::market;

namespace {

Nanos s(int64_t n) { return Nanos::from_s(n); }

constexpr Nanos epoch = Nanos::from_s(1'700'000'000);

struct Piece {
    JobId id;
    int64_t bid = 0, left = 0;  // seconds
    int32_t cpus = 0;
    int64_t start = -1, end = -1;  // of what is sold
    NodeName node;
};
struct Begun {
    Piece piece;
    int64_t from = 0;
};
struct Seen {
    NodeName node;
    int64_t from = 0, to = 0;
    auto operator<=>(const Seen&) const = default;
};
// A node is off the market from the one second until the other.
using Gaps = std::map<NodeName, std::vector<std::pair<int64_t, int64_t>>>;
using Story = std::map<JobId, std::vector<Seen>>;

// At each second, on one node after the other: what is over ends, what is sold begins, and those
// who wait are tried in their order.
// Long: the rules of one second belong together.
Story second_by_second(const std::map<NodeName, int32_t>& nodes, std::vector<Piece> waiting,
                       std::vector<Piece> sold, int64_t until, const Gaps& gaps) {
    Story story;
    const auto is_off = [&](const NodeName& name, int64_t t) {
        const auto of = gaps.find(name);
        return of != gaps.end() &&
               std::ranges::any_of(of->second, [t](const std::pair<int64_t, int64_t>& gap) {
                   return gap.first <= t && t < gap.second;
               });
    };
    std::map<NodeName, std::vector<Begun>> run;
    for (int64_t t = 0; t < until; ++t) {
        const auto free_on = [&](const NodeName& name) {
            int64_t free = is_off(name, t) ? 0 : nodes.at(name);
            for (const Begun& b : run[name]) free -= b.piece.cpus;
            return free;
        };
        const auto leave = [&](const NodeName& name, size_t i, bool again) {
            Begun b = run[name][i];
            run[name].erase(run[name].begin() + static_cast<ptrdiff_t>(i));
            if (t > b.from) story[b.piece.id].push_back({name, b.from, t});
            if (!again) return;
            b.piece.left -= t - b.from;
            size_t at = 0;
            while (at < waiting.size() && waiting[at].bid >= b.piece.bid) ++at;
            waiting.insert(waiting.begin() + static_cast<ptrdiff_t>(at), b.piece);
        };
        for (auto node = nodes.begin(); node != nodes.end();) {
            const NodeName& name = node->first;
            bool again = false;
            auto& here = run[name];
            for (size_t i = here.size(); i-- > 0;) {
                const Begun& b = here[i];
                const int64_t end = b.piece.end >= 0 ? b.piece.end : b.from + b.piece.left;
                if (end <= t) leave(name, i, false);
            }
            if (is_off(name, t)) {
                while (!here.empty()) {
                    const bool waits = here[0].piece.end < 0;
                    leave(name, 0, waits);
                    again |= waits;
                }
            } else {
                for (size_t i = sold.size(); i-- > 0;) {
                    if (sold[i].node != name || sold[i].start > t) continue;
                    while (free_on(name) < sold[i].cpus) {
                        size_t least = here.size();
                        for (size_t k = 0; k < here.size(); ++k)
                            if (here[k].piece.end < 0 &&
                                (least == here.size() || here[k].piece.bid < here[least].piece.bid))
                                least = k;
                        ck_assert(least < here.size());
                        leave(name, least, true);
                        again = true;
                    }
                    here.push_back({sold[i], t});
                    sold.erase(sold.begin() + static_cast<ptrdiff_t>(i));
                }
                for (size_t i = 0; i < waiting.size();) {
                    if (waiting[i].cpus > free_on(name)) {
                        ++i;
                        continue;
                    }
                    here.push_back({waiting[i], t});
                    waiting.erase(waiting.begin() + static_cast<ptrdiff_t>(i));
                }
            }
            node = again ? nodes.begin() : std::next(node);
        }
    }
    for (const auto& [name, here] : run)
        for (const Begun& b : here)
            story[b.piece.id].push_back(
                {name, b.from,
                 std::min(until, b.piece.end >= 0 ? b.piece.end : b.from + b.piece.left)});
    return story;
}

}  // namespace

// Long: the market, the planner beside it and what both say are one experiment.
START_TEST(a_plan_is_that_of_a_planner_that_tries_each_second) {
    for (uint32_t seed = 1; seed <= 1'000; ++seed) {
        std::mt19937 random(seed);
        const auto upto = [&](int64_t n) {
            return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
        };
        World w;
        w.calendar = epoch;
        w.market->set_calendar(epoch);
        std::map<NodeName, int32_t> nodes;
        for (int64_t i = 1 + upto(3); i > 0; --i) {
            const NodeName name = "n" + std::to_string(i);
            nodes[name] = static_cast<int32_t>(1 + upto(4));
            w.add_node(name, 100, 1, nodes[name], 1'000'000);
        }
        w.run_for(s(1));
        std::vector<Piece> waiting, sold;
        NodeName gapped;
        const int64_t begins = w.now.ns / 1'000'000'000 + 1;
        for (int64_t i = upto(4); i > 0; --i) {
            Piece p;
            p.cpus = static_cast<int32_t>(1 + upto(3));
            p.start = 5 + upto(30);
            p.end = p.start + 1 + upto(30);
            p.id = w.submit("n1", 1'000, Nanos::never(), p.cpus);
            JobReport& r = w.jobs[p.id].report;
            r.terms.booking =
                Booking{epoch + s(begins + p.start), s(p.end - p.start), false, false, {}};
            w.tell(w.jobs[p.id]);
            sold.push_back(p);
        }
        w.run_for(s(1));
        std::erase_if(sold, [&](Piece& p) {
            const Contract& c = *w.market->find(p.id)->record.contract;
            p.node = c.node;
            if (!c.is_sold()) w.end(w.jobs[p.id]);
            return !c.is_sold();
        });
        std::ranges::sort(sold, {}, [](const Piece& p) { return p.id; });
        for (int64_t i = upto(12); i > 0; --i) {
            Piece p;
            p.cpus = static_cast<int32_t>(1 + upto(3));
            p.bid = 2 + upto(500);
            p.left = 1 + upto(40);
            p.id = w.submit("n1", p.bid, Nanos::never(), p.cpus);
            w.jobs[p.id].report.terms.limits.edit().run = s(p.left);
            w.tell(w.jobs[p.id]);
            waiting.push_back(p);
        }
        std::ranges::stable_sort(waiting, std::greater{}, [](const Piece& p) { return p.bid; });
        // The owner of one has frames, and it may be off now.
        const NodeName framed = upto(2) == 0 ? nodes.begin()->first : "";
        const bool off_now = upto(2) == 0;
        const int64_t gap_from = off_now ? 0 : 1 + upto(30), gap_to = gap_from + 1 + upto(30);
        if (!framed.empty() &&
            std::ranges::none_of(sold, [&](const Piece& p) { return p.node == framed; })) {
            const auto in_week = [&](int64_t at_s) {
                return static_cast<int32_t>((epoch + w.now + s(at_s)).ns / 1'000'000'000 %
                                            OpenHours::week_s);
            };
            ProviderReport p = w.providers[framed];
            const int32_t from = in_week(gap_to), closes = in_week(gap_from);
            const int32_t length = (closes - from + OpenHours::week_s) % OpenHours::week_s;
            p.hours = {{from, from + length, Money::units(1)}};
            p.on_market = !off_now;
            p.opens = off_now ? epoch + w.now + s(gap_to) : Nanos{};
            gapped = framed;
            (void)w.market->report(framed, p, w.now);
        }
        const int64_t until = 20 + upto(80), off_at = 1 + upto(40);
        const NodeName off = upto(3) == 0 ? nodes.rbegin()->first : "";
        NodesOff gone;
        if (!off.empty()) gone[off] = epoch + w.now + s(off_at);
        Gaps gaps;
        if (!gapped.empty()) gaps[gapped].push_back({gap_from, gap_to});
        if (!off.empty()) gaps[off].push_back({off_at, INT64_MAX});
        Story drawn;
        const MarketPlan plan = w.market->plan(w.now, epoch + w.now + s(until), gone);
        for (const PlanSpan& p : plan.spans)
            drawn[p.job].push_back({p.node, (p.from - epoch - w.now).ns / 1'000'000'000,
                                    (p.to - epoch - w.now).ns / 1'000'000'000});
        Story wanted = second_by_second(nodes, waiting, sold, until, gaps);
        for (Story* const story : {&drawn, &wanted})
            for (auto& [id, spans] : *story) std::ranges::sort(spans);
        for (const Piece& p : waiting)
            ck_assert_msg(drawn[p.id] == wanted[p.id], "seed %u: %s of %d CPUs: %zu and %zu spans",
                          seed, p.id.text().c_str(), p.cpus, drawn[p.id].size(),
                          wanted[p.id].size());
        for (const Piece& p : sold)
            ck_assert_msg(drawn[p.id] == wanted[p.id], "seed %u: %s, sold, of %d CPUs", seed,
                          p.id.text().c_str(), p.cpus);
    }
}
END_TEST

START_TEST(one_plan_serves_all_who_ask_for_a_moment_and_its_parts_and_nobody_has_many) {
    World w;
    w.add_node("n1", 100, 1, 4, 1'000'000);
    w.run_for(s(1));
    for (int i = 0; i < 6'000; ++i) (void)w.submit("n1", 1 + i % 50);
    w.run_for(s(2));
    PlanDesk desk;
    wire::CtlRequest request{1, 1'000, "plan", {}, ""};
    const auto ask = [&](const std::string& after, uint32_t uid, const std::string& from = "n1") {
        request.after = after;
        request.uid = uid;
        return desk.answer(*w.market, request, from, w.now);
    };
    size_t parts = 0;
    std::string all;
    for (std::string after; parts == 0 || !after.empty(); ++parts) {
        const wire::CtlReply reply = ask(after, 1'000);
        ck_assert_msg(reply.ok, "%s", reply.error.c_str());
        all += reply.json;
        after = reply.next;
        w.now += Nanos::from_s(5);  // whoever reads it takes his time
    }
    ck_assert_uint_gt(parts, 1);
    ck_assert_uint_eq(desk.reckoned(), 1);
    size_t jobs = 0;
    for (size_t at = all.find("\"job\""); at != std::string::npos; at = all.find("\"job\"", at + 1))
        ++jobs;
    ck_assert_uint_eq(jobs, 6'000);
    // In one moment it is the same for others.
    const auto first = ask("", 1'001), second = ask("", 1'002);
    ck_assert_text(first.json, second.json);
    ck_assert_uint_eq(desk.reckoned(), 2);
    // One user, with other words each time.
    size_t had = 0;
    for (int i = 0; i < 20; ++i) {
        request.args = {"until=" + std::to_string(2'000'000'000 + i)};
        had += ask("", 1'003).ok;
    }
    ck_assert_uint_eq(had, PlanDesk::asks_most);
    const wire::CtlReply refused = ask("", 1'003);
    ck_assert(!refused.ok && !refused.error.empty());
    ck_assert(ask("", 1'003, "n2").ok);  // is somebody else
    request.args = {"until=2000000900"};
    ck_assert(ask("", 0).ok && ask("", 1'004).ok);
    // A node that names other users each time.
    const uint64_t before = desk.reckoned();
    for (uint32_t i = 0; i < 100; ++i) {
        request.args = {"until=" + std::to_string(2'000'001'000 + i)};
        (void)ask("", 5'000 + i, "n3");
    }
    ck_assert_uint_eq(desk.reckoned() - before, PlanDesk::asks_node_most);
    ck_assert(ask("", 1'003, "n4").ok);
    w.now += PlanDesk::asks_span + s(1);
    request.args = {"until=2000000901"};
    ck_assert(ask("", 1'003).ok);
    // A part of a plan that is long forgotten.
    ck_assert(!ask("1.5", 1'001).ok);
}
END_TEST

UNIT_SUITE(plan, one_plan_serves_all_who_ask_for_a_moment_and_its_parts_and_nobody_has_many,
           a_plan_is_that_of_a_planner_that_tries_each_second);
