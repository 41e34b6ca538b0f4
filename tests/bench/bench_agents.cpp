// SPDX-License-Identifier: GPL-2.0-or-later
// This program measures what many agents cost one market. Thousands of agents in this process
// (fleet.hpp) connect by TLS over loopback to a real marketd on one core. Their half of each
// handshake is computed on another core. Every agent reports each second, while jobs come, end and
// change their bids. Then marketd is killed, and all agents come back at once. JSON on stdout.
// Usage: bench_agents [AGENTS [JOBS [EVENTS_PER_S [SECONDS [plain]]]]]
#include <algorithm>
#include <cstdio>

#include "kernel/base/json.hpp"
#include "tests/bench/bench_market_ca.hpp"
#include "tests/bench/fleet.hpp"
#include "tests/bench/market_process.hpp"

using namespace souk;
using namespace souk::bench;

namespace {

double ms(int64_t ns) { return static_cast<double>(ns) / 1e6; }
double seconds_since(Nanos from) { return static_cast<double>((Loop::now() - from).ns) / 1e9; }

void spend(Loop& loop, double seconds) {
    value(loop.run_until([] { return false; }, Nanos{static_cast<int64_t>(seconds * 1e9)}));
}

void until(Loop& loop, const char* what, const std::function<bool()>& done, int seconds = 120) {
    if (!value(loop.run_until(done, Nanos::from_s(seconds))))
        fatal(std::string(what) + ": not within " + std::to_string(seconds) + " s");
}

struct Spread {
    double median = 0, p99 = 0, max = 0;
    size_t n = 0;
};
Spread spread_of(std::vector<int64_t> ns) {
    std::sort(ns.begin(), ns.end());
    if (ns.empty()) return {};
    return {ms(ns[ns.size() / 2]), ms(ns[ns.size() * 99 / 100]), ms(ns.back()), ns.size()};
}

double load_average() {
    double load = 0;
    return ::getloadavg(&load, 1) == 1 ? load : 0;
}

double argument(int argc, char** argv, int at, double otherwise) {
    return argc > at ? std::atof(argv[at]) : otherwise;
}

}  // namespace

// Long: one run in its order; each figure is of the step that it stands in.
int main(int argc, char** argv) {
    FleetOptions options;
    options.agents = static_cast<size_t>(argument(argc, argv, 1, 5'000));
    options.jobs = static_cast<size_t>(argument(argc, argv, 2, 8'000));
    const int events = static_cast<int>(argument(argc, argv, 3, 50));
    const double seconds = argument(argc, argv, 4, 20);
    const size_t descriptors = raise_descriptors();
    if (descriptors < options.agents + 100)
        fatal(std::to_string(options.agents) +
              " connections need as many file descriptors; the limit here is " +
              std::to_string(descriptors) + " (ulimit -Hn)");
    stay_on(false);
    Loop loop = value(Loop::open(LoopOptions::for_many_peers()));
    const bool tls = argc <= 5 || std::string(argv[5]) != "plain";
    const BenchMarketCa ca;
    MarketProcess market({}, tls);
    if (tls) {
        ca.make_market(market.dir + "/identity");
        options.tls = [&ca](const std::string& name) { return ca.agent(name); };
    }
    market.start();
    options.port = static_cast<uint16_t>(market.port);
    const long empty_kib = market.kib("VmRSS");

    Fleet fleet(loop, options);
    const Nanos began = Loop::now();
    fleet.connect_all();
    until(loop, "connections", [&] { return fleet.welcomed() == options.agents; });
    const double connect_s = seconds_since(began);
    spend(loop, 3);
    const long idle_kib = market.kib("VmRSS");
    std::fprintf(stderr, "bench: %zu agents after %.2f s, %.1f KiB each\n", options.agents,
                 connect_s,
                 static_cast<double>(idle_kib - empty_kib) / static_cast<double>(options.agents));

    fleet.start();
    spend(loop, 2);
    const double quiet_cpu = market.cpu_s();
    const Nanos quiet_from = Loop::now();
    spend(loop, std::min(5.0, seconds));
    const double quiet_share = (market.cpu_s() - quiet_cpu) / seconds_since(quiet_from);
    const Nanos submitted = Loop::now();
    fleet.submit(options.jobs);
    until(loop, "first placement",
          [&] { return fleet.running() >= std::min(options.jobs, options.agents) * 99 / 100; });
    const double placed_s = seconds_since(submitted);
    std::fprintf(stderr, "bench: reports alone %.1f %% of a core; %zu jobs placed after %.2f s\n",
                 quiet_share * 100, fleet.running(), placed_s);
    spend(loop, 3);

    fleet.set_events(events);
    spend(loop, 2);
    fleet.take_latencies_ns();
    const double cpu_before = market.cpu_s();
    const uint64_t frames_before = fleet.sent(), orders_before = fleet.orders();
    const Nanos from = Loop::now();
    spend(loop, seconds);
    const double span = seconds_since(from);
    const Spread latency = spread_of(fleet.take_latencies_ns());
    const double share = (market.cpu_s() - cpu_before) / span;
    const long busy_kib = market.kib("VmRSS"), peak_kib = market.kib("VmHWM");
    const double decision_p99 = market.number("decision_p99_ms");
    fleet.set_events(0);

    // marketd is killed, and all agents come back at once.
    market.end(SIGKILL);
    until(loop, "connections lost", [&] { return fleet.welcomed() == 0; });
    const Nanos restart = Loop::now();
    const uint64_t attempts = fleet.attempts();
    const double restart_s = market.start();
    until(loop, "return of all", [&] { return fleet.welcomed() == options.agents; });
    const double back_s = seconds_since(restart);
    const uint64_t orders_at = fleet.orders();
    fleet.take_latencies_ns();
    fleet.forget_awaited();
    fleet.set_events(events);
    until(loop, "a decision after the restart", [&] { return fleet.orders() > orders_at; });
    const double decided_s = seconds_since(restart);
    spend(loop, 2);

    JsonWriter w;
    w.begin_object()
        .field("agents", options.agents)
        .field("tls", tls)
        .field("jobs", options.jobs)
        .field("events_per_s", 3 * events);
    const auto per_agent = [&](long kib) {
        return static_cast<double>(kib - empty_kib) / static_cast<double>(options.agents);
    };
    w.field("connect_s", connect_s).field("kib_per_idle_connection", per_agent(idle_kib));
    w.field("kib_per_connection", per_agent(peak_kib));
    w.field("write_fdatasync_ms", market.sync_ms()).field("load_average", load_average());
    w.field("resident_mib", static_cast<double>(busy_kib) / 1024)
        .field("peak_mib", static_cast<double>(peak_kib) / 1024);
    w.field("reports_cpu_share", quiet_share)
        .field("first_placement_s", placed_s)
        .field("cpu_share", share);
    w.field("frames_per_s", static_cast<double>(fleet.sent() - frames_before) / span);
    w.field("orders_per_s", static_cast<double>(orders_at - orders_before) / span);
    w.field("decision_ms_median", latency.median).field("decision_ms_p99", latency.p99);
    w.field("decision_ms_max", latency.max)
        .field("decisions", latency.n)
        .field("marketd_decision_ms_p99", decision_p99);
    w.field("restart_s", restart_s).field("all_back_s", back_s).field("decides_again_s", decided_s);
    w.field("attempts_per_agent",
            static_cast<double>(fleet.attempts() - attempts) / static_cast<double>(options.agents));
    w.field("last_refusal", fleet.last_refusal()).end_object();
    std::printf("%s\n", w.take().c_str());
    return 0;
}
