// SPDX-License-Identifier: GPL-2.0-or-later
// This program measures the cost of a market's records. First it sends job events to a real marketd
// on one core: how many a second, how many of them share one commit and one fdatasync call
// (count_sync.c), the time in these calls and the CPU time of each event, beside this disk's
// fdatasync. Then it starts a market with many live and many finished jobs in its database, and
// measures the time, the memory, and how long it takes to find a finished job. JSON on stdout.
// Usage: bench_store [JOBS of each kind [SECONDS of events [DIRECTORY to fill with such a database,
// and no more]]]
#include <cstdio>

#include "kernel/base/json.hpp"
#include "kernel/sys/store/statedb.hpp"
#include "market/store/finished.hpp"
#include "market/store/receipts.hpp"
#include "market/store/records.hpp"
#include "tests/bench/fleet.hpp"
#include "tests/bench/market_process.hpp"

using namespace souk;
using namespace souk::bench;

namespace {

double seconds_since(Nanos from) { return static_cast<double>((Loop::now() - from).ns) / 1e9; }
void check(Status status) {
    if (!status) fatal(status.error().message);
}

market::JobRecord record(size_t i, JobPhase phase) {
    market::JobRecord r;
    r.report.id = {"n" + std::to_string(i % 500 + 1), i / 500 + 1};
    r.report.terms.max_price = Money{static_cast<int64_t>(10'000'000 + i * 7919 % 900'000'000)};
    r.report.terms.memory_mb = 100;
    r.report.uid = 1'000 + static_cast<uint32_t>(i % 40);
    r.report.user = "user" + std::to_string(r.report.uid);
    r.report.name = "simulate";
    r.report.command = "./simulate --input data/run-" + std::to_string(i) + ".dat --output out/";
    r.report.submitted = Nanos::from_s(1'700'000'000) + Nanos{static_cast<int64_t>(i)};
    r.report.phase = phase;
    r.report.where = "n" + std::to_string(i * 31 % 500 + 1);
    r.report.epoch = {2};
    r.report.order_seq = i + 1;
    r.report.stats.run_time = r.billed = Nanos::from_s(60);
    r.report.places = {r.report.where};
    r.price = Money::units(5);
    r.payee = r.report.where;
    return r;
}

// 500 nodes, and so many jobs of each kind.
void fill(const std::string& dir, size_t jobs) {
    std::filesystem::create_directories(dir);
    StateDb db = value(StateDb::open(dir, market_schema_version, market_schema_oldest));
    for (int i = 1; i <= 500; ++i) {
        market::NodeRecord n;
        n.node = "n" + std::to_string(i);
        n.address = "127.0.0.1:7071";
        n.has_report = n.report.on_market = true;
        n.report.node = n.node;
        n.report.reserve = Money::units(1);
        n.report.cpus = 64;
        n.report.memory_mb = 256'000;
        db.put(kind_node, n.node, wire::pack(n));
    }
    FinishedJobs finished = value(FinishedJobs::open(db));
    for (size_t i = 0; i < 2 * jobs; ++i) {
        const JobPhase live = i % 4 == 0 ? JobPhase::running : JobPhase::frozen;
        market::JobRecord r = record(i, i < jobs ? JobPhase::finished : live);
        if (i < jobs) {
            r.finish_seq = i + 1;
            r.ended = r.report.submitted + Nanos::from_s(100);
            finished.append(r);
        } else {
            db.put(kind_job, r.report.id.text(), wire::pack(r));
        }
        if (i % 10'000 == 9'999) check(db.commit());
    }
    market::MetaRecord meta;
    meta.seq_limit = 4 * jobs;
    meta.finish_seq = jobs;
    meta.ledger = meta.finished_retired = true;
    db.put(kind_meta, "market", wire::pack(meta));
    check(db.commit());
}

void job_events(JsonWriter& w, double seconds) {
    Loop loop = value(Loop::open(LoopOptions::for_many_peers()));
    MarketProcess market;
    market.start();
    FleetOptions options;
    options.agents = 100;
    options.cpus = 64;
    options.jobs = 4'000;
    options.carry_out = Nanos{};
    options.port = static_cast<uint16_t>(market.port);
    Fleet fleet(loop, options);
    fleet.connect_all();
    if (!value(
            loop.run_until([&] { return fleet.welcomed() == options.agents; }, Nanos::from_s(60))))
        fatal("no connections");
    fleet.start();
    fleet.churn();
    const auto wait = [&](double s) {
        value(loop.run_until([] { return false; }, Nanos{static_cast<int64_t>(s * 1e9)}));
    };
    wait(2);
    const MarketProcess::Syncs before = market.syncs();
    const double cpu = market.cpu_s(), commits = market.number("commits");
    const uint64_t sent = fleet.sent(), ended = fleet.settled();
    const Nanos from = Loop::now();
    wait(seconds);
    const double span = seconds_since(from),
                 events = static_cast<double>(fleet.sent() - sent) - 100 * span;
    w.field("events_per_s", events / span)
        .field("jobs_per_s", static_cast<double>(fleet.settled() - ended) / span);
    w.field("event_cpu_us", (market.cpu_s() - cpu) / events * 1e6);
    w.field("events_cpu_share", (market.cpu_s() - cpu) / span);
    w.field("events_per_commit", events / (market.number("commits") - commits));
    const MarketProcess::Syncs after = market.syncs();
    const auto calls = static_cast<double>(after.calls - before.calls),
               sync_us = static_cast<double>(after.ns - before.ns) / 1e3;
    w.field("events_per_fdatasync", events / calls).field("fdatasyncs_per_s", calls / span);
    w.field("event_fdatasync_us", sync_us / events).field("fdatasync_us", sync_us / calls);
    w.field("write_fdatasync_ms", market.sync_ms());
}

}  // namespace

int main(int argc, char** argv) {
    const size_t jobs = argc > 1 ? static_cast<size_t>(std::atol(argv[1])) : 100'000;
    const double seconds = argc > 2 ? std::atof(argv[2]) : 10;
    if (argc > 3) {
        fill(argv[3], jobs);
        return 0;
    }
    (void)raise_descriptors();
    stay_on(false);
    JsonWriter w;
    w.begin_object().field("jobs", jobs);
    job_events(w, seconds);

    MarketProcess finished;
    fill(finished.dir + "/state", jobs);
    // Finished jobs alone: the live ones are taken out of a copy.
    {
        MarketProcess alone("finished_max = 1000000\n");
        std::filesystem::copy(finished.dir + "/state", alone.dir + "/state");
        std::filesystem::remove(alone.dir + "/state/lock");
        {
            StateDb db = value(StateDb::open(alone.dir + "/state", market_schema_version));
            for (const auto& row : value(db.load(kind_job))) db.erase(kind_job, row.key);
            check(db.commit());
        }
        w.field("restart_finished_s", alone.start());
        const std::string id = record(jobs / 2, JobPhase::finished).report.id.text();
        const Nanos from = Loop::now();
        if (alone.ask("job", {id}).find(id) == std::string::npos)
            fatal("job " + id + " is not found");
        w.field("find_ms", seconds_since(from) * 1e3);
        if (alone.ask("list-jobs", {"state=finish"}).size() < jobs * 100)
            fatal("the list is too short");
        w.field("finished_resident_mib", static_cast<double>(alone.kib("VmRSS")) / 1024);
    }
    const double start = finished.start();
    w.field("restart_s", start).field("start_cpu_s", finished.cpu_s());
    w.field("resident_mib", static_cast<double>(finished.kib("VmRSS")) / 1024);
    w.end_object();
    std::printf("%s\n", w.take().c_str());
    return 0;
}
