// SPDX-License-Identifier: GPL-2.0-or-later
// The Market machine alone, when 100,000 jobs come at once to 5,000 nodes: the step that decides
// them all, what it says of each that waits, and once more after one bid has changed, which is what
// a list of all jobs costs then. Three kinds of jobs: one CPU each and alike; up to 8 CPUs and as
// many megabytes as they like; so big that no node holds them. CPU time, one thread, JSON on
// stdout. Usage: bench_market [JOBS [NODES]]
#include <cstdio>
#include <cstdlib>
#include <string>

#include "kernel/base/json.hpp"
#include "kernel/base/rng.hpp"
#include "kernel/sys/host/clock.hpp"
#include "market/core/market.hpp"

using namespace souk;
using namespace souk::market;

namespace {

double cpu_ms() { return process_cpu_time().ms(); }

struct Shape {
    const char* name;
    int32_t cpus;       // 1 to so many
    int64_t memory_mb;  // 1 to so much; 0: not said
    int32_t more_cpus;  // and so many more
};

void must(const Status& status) {
    if (status) return;
    std::fprintf(stderr, "bench_market: %s\n", status.error().message.c_str());
    std::exit(1);
}

void run(JsonWriter& w, const Shape& shape, size_t jobs, size_t nodes) {
    Rng rng(2028);
    Market market{MarketOptions{}};
    market.started({});
    const Nanos now = Nanos::from_s(10);
    const auto name = [](size_t i) { return "n" + std::to_string(i + 1); };
    for (size_t i = 0; i < nodes; ++i) {
        must(market.agent_connected(name(i), "10.0.0.1:1", now));
        ProviderReport p;
        p.node = name(i);
        p.on_market = true;
        p.reserve = Money::units(rng.between(1, 5));
        p.speed = rng.between(80, 100);
        p.cpus = 16;
        p.memory_mb = p.free_mb = rng.between(30'000, 64'000);
        must(market.report(p.node, p, now));
    }
    Outputs out;
    market.solve(now, out);
    JobReport r;
    for (size_t i = 0; i < jobs; ++i) {
        r.id = {name(i % nodes), i / nodes + 1};
        r.uid = 1'000 + static_cast<uint32_t>(i % 40);
        r.terms.max_price = Money{rng.between(5'000'000, 1'000'000'000)};
        r.terms.cpus = shape.more_cpus + static_cast<int32_t>(rng.between(1, shape.cpus));
        r.terms.memory_mb = shape.memory_mb > 0 ? rng.between(1, shape.memory_mb) : 100;
        r.submitted = Nanos::from_s(1'700'000'000) + Nanos{static_cast<int64_t>(i)};
        must(market.report(r.id.home, r, now));
    }
    out = {};
    const double begin = cpu_ms();
    market.solve(now, out);
    const double solved = cpu_ms();
    size_t orders = 0, words = 0;
    for (const Send& s : out.send) orders += std::holds_alternative<Order>(s.message);
    r.terms.max_price += Money::units(1);  // a waiting job's, or one that nobody holds
    must(market.report(r.id.home, r, now + Nanos::from_ms(1)));
    out = {};
    const double changing = cpu_ms();
    market.solve(now + Nanos::from_ms(1), out);
    const double changed = cpu_ms();
    for (const auto& [id, job] : market.jobs()) words += market.comment(job).size();
    const double listed = cpu_ms();
    w.begin_object()
        .field("name", shape.name)
        .field("jobs", jobs)
        .field("nodes", nodes)
        .field("orders", orders);
    w.field("solve_ms", solved - begin)
        .field("event_ms", changed - changing)
        .field("comments_ms", listed - changed);
    w.field("comments_mb", static_cast<double>(words) / 1e6).end_object();
}

}  // namespace

int main(int argc, char** argv) {
    const size_t jobs = argc > 1 ? static_cast<size_t>(std::atol(argv[1])) : 100'000;
    const size_t nodes = argc > 2 ? static_cast<size_t>(std::atol(argv[2])) : 5'000;
    if (jobs < 1 || nodes < 1 || nodes > 10'000) {
        std::fprintf(stderr, "usage: bench_market [JOBS [NODES, at most 10000]]\n");
        return 2;
    }
    JsonWriter w;
    w.begin_object().key("results").begin_array();
    for (const Shape& shape : {Shape{"alike", 1, 0, 0}, Shape{"mixed needs", 8, 16'000, 0},
                               Shape{"too big", 8, 16'000, 16}})
        run(w, shape, jobs, nodes);
    w.end_array().end_object();
    std::printf("%s\n", w.take().c_str());
    return 0;
}
