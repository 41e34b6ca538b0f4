// SPDX-License-Identifier: GPL-2.0-or-later
// This program measures what it costs that nothing is believed: the time of a message that is
// accepted, and beside it the time of the look at it alone, so that the difference is the same
// message without that look.
//   report  a home's report of a job that runs where the market has ordered it: read by the codec,
//           taken by the Market; of that the look at whose it is and whether its place is backed
//   event   a node's word on a job that it has: read by the codec, taken by the Home; of that
//           bringing its numbers within what can be
//   sums    a million numbers added up, with a limit and without one
//   image   what an image says of 100 threads, judged before CRIU reads it
// CPU time, one thread, medians of ROUNDS; JSON on stdout. Usage: bench_bounds [ROUNDS]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "agentd/core/home.hpp"
#include "agentd/core/home_claims.hpp"
#include "agentd/wire/codec.hpp"
#include "checkpoint/core_image.hpp"
#include "checkpoint/launch.hpp"
#include "kernel/base/json.hpp"
#include "kernel/base/saturating.hpp"
#include "kernel/sys/host/clock.hpp"
#include "market/core/claims.hpp"
#include "market/core/market.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr int jobs = 1'000, nodes = 100;
constexpr Nanos begun = Nanos::from_s(10);

void must(const Status& status) {
    if (status) return;
    std::fprintf(stderr, "bench_bounds: %s\n", status.error().message.c_str());
    std::exit(1);
}

// Median nanoseconds of CPU time of one of `count` calls in a row.
template <class F>
double ns_each(int rounds, int count, F call) {
    std::vector<double> all;
    for (int i = 0; i < rounds; ++i) {
        const Nanos from = process_cpu_time();
        for (int n = 0; n < count; ++n) call(n);
        all.push_back(static_cast<double>((process_cpu_time() - from).ns) / count);
    }
    std::ranges::nth_element(all, all.begin() + rounds / 2);
    return all[static_cast<size_t>(rounds / 2)];
}

std::string name(int i) { return "n" + std::to_string(i + 1); }

// Writes the nanoseconds of a message: read, taken, and the looks at it within that.
void say(JsonWriter& w, const char* what, double read, double taken, double look) {
    w.key(what).begin_object().field("read_ns", read).field("taken_ns", taken);
    w.field("look_ns", look).field("look_percent", 100 * look / (read + taken)).end_object();
}

// -------------------------------------------------------------------------------------------------
// the market

struct Running {
    Market market{MarketOptions{}};
    Book book{{2 * jobs, 2 * nodes, 0}};
    std::vector<JobReport> reports;

    Running() {
        market.started({});
        for (int i = 0; i < nodes; ++i) {
            must(market.agent_connected(name(i), "10.0.0.1:1", begun));
            ProviderReport p;
            p.node = name(i);
            p.on_market = true;
            p.reserve = Money::units(1);
            p.cpus = 16;
            p.memory_mb = p.free_mb = 64'000;
            p.version = "1";
            must(market.report(p.node, p, begun));
            Node& node = book.node(name(i));
            node.connected = node.record.has_report = true;
            node.record.report = p;
        }
        for (int i = 0; i < jobs; ++i) {
            JobReport r;
            r.id = {name(i % nodes), static_cast<uint64_t>(i / nodes) + 1};
            r.uid = 1'000;
            r.user = "alice";
            r.terms.max_price = Money::units(50);
            r.terms.memory_mb = 100;
            r.submitted = Nanos::from_s(1'700'000'000);
            must(market.report(r.id.home, r, begun));
            reports.push_back(r);
        }
        Outputs out;
        market.solve(begun, out);
        for (const Send& s : out.send)
            if (const auto* order = std::get_if<Order>(&s.message)) run(*order);
    }

    void run(const Order& order) {
        const auto it = std::ranges::find(reports, order.id, &JobReport::id);
        if (it == reports.end()) return;
        it->phase = JobPhase::running;
        it->where = order.node;
        it->epoch = {1};
        it->order_seq = order.seq;
        JobRecord record;
        record.report = *it;
        Job& job = book.load(record);
        claims::ordered(job, book.node(order.node));
    }
};

void reports(JsonWriter& w, int rounds) {
    Running r;
    std::vector<std::string> sent;
    std::vector<Job*> known;
    for (const JobReport& report : r.reports) {
        sent.push_back(wire::pack(report));
        if (report.phase != JobPhase::running) must(fail("a job does not run"));
        known.push_back(r.book.find(report.id));
    }
    const double read = ns_each(rounds, jobs, [&](int i) {
        must(wire::unpack<JobReport>(sent[static_cast<size_t>(i)]).has_value()
                 ? Status{}
                 : fail("a report cannot be read"));
    });
    Nanos now = begun;
    const double taken = ns_each(rounds, jobs, [&](int i) {
        JobReport& report = r.reports[static_cast<size_t>(i)];
        now += Nanos::from_us(10);
        report.stats.run_time = now - begun;
        must(r.market.report(report.id.home, report, now));
    });
    const double look = ns_each(rounds, jobs, [&](int i) {
        Job& job = *known[static_cast<size_t>(i)];
        must(claims::sound(job.record.report.id.home, job.record.report));
        if (!claims::back(job, r.book)) must(fail("a place is not backed"));
    });
    say(w, "report", read, taken, look);
}

// -------------------------------------------------------------------------------------------------
// a home

struct NoReport final : JobReporter {
    JobReport report_of(const HomeJob&, Nanos) const override { return {}; }
    bool is_superseded(const HomeJob&) const override { return false; }
};

void events(JsonWriter& w, int rounds) {
    Home home("n1", {});
    home::Outputs out;
    Submission s;
    s.spec.launch.argv = {"/bin/true"};
    s.spec.launch.path = "/bin/true";
    s.spec.launch.cwd = "/";
    s.terms.max_price = Money::units(50);
    s.terms.memory_mb = 100;
    home.market_up(begun, out);
    const auto id = home.submit(s, begun, out);
    if (!id) must(tl::unexpected(id.error()));
    Order order;
    order.id = *id;
    order.seq = 1;
    order.node = "n2";
    order.address = "n2:1";
    order.price = Money::units(1);
    home.order(order, begun, out);
    home.guest_up("n2", begun, out);
    GuestEvent e;
    e.id = *id;
    e.epoch = home.find(*id)->last_epoch;
    e.state = GuestState::running;
    e.pid = 2;
    e.cpu_time = Nanos::from_ms(1);
    const std::string sent = wire::pack(e);
    const double read = ns_each(rounds, jobs, [&](int) {
        must(wire::unpack<GuestEvent>(sent).has_value() ? Status{} : fail("it cannot be read"));
    });
    Nanos now = begun;
    const auto next = [&] {
        now += Nanos::from_ms(10);
        e.cpu_time += Nanos::from_ms(1);
        out.clear();
    };
    const double taken = ns_each(rounds, jobs, [&](int) {
        next();
        home.guest_event("n2", e, now, out);
    });
    if (home.find(*id)->phase != JobPhase::running) must(fail("the job does not run"));
    const HomeJob job = *home.find(*id);
    const NoReport none;
    const NodeName self = "n1";
    HomeClaims claims;
    claims.starts(job, begun);
    const double look = ns_each(rounds, jobs, [&](int) {
        next();
        const HomeTurn turn{now, now, self, 0, none, out};
        e = claims.checked(job, "n2", std::move(e), turn);
    });
    say(w, "event", read, taken, look);
}

// -------------------------------------------------------------------------------------------------
// sums and images

void sums(JsonWriter& w, int rounds) {
    std::vector<int64_t> numbers(1'000'000);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int64_t>(i * 7919 % 1009);
    volatile int64_t kept = 0;
    const auto of = [&](auto add) {
        return ns_each(rounds, 1, [&](int) {
            int64_t sum = 0;
            for (const int64_t n : numbers) sum = add(sum, n);
            kept = sum;
        });
    };
    const double plain = of([](int64_t a, int64_t b) { return a + b; });
    const double limited = of([](int64_t a, int64_t b) { return saturating_add(a, b); });
    w.key("sums").begin_object().field("plain_ns", plain / 1e6).field("limited_ns", limited / 1e6);
    w.end_object();
}

void images(JsonWriter& w, int rounds) {
    constexpr uint32_t uid = 1'000;
    ImageFacts facts;
    CoreImage core;
    core.alive = core.has_credentials = true;
    core.credentials.uids = core.credentials.gids = {uid, uid, uid, uid};
    core.credentials.no_new_privs = true;
    for (pid_t i = 2; i < 102; ++i) facts.cores[i] = core;
    const CriuUser user{uid, uid, {}};
    const double judged =
        ns_each(rounds, jobs, [&](int) { must(check_credentials(facts, user, 1 << 20, {})); });
    w.key("image").begin_object().field("threads", 100).field("judged_ns", judged).end_object();
}

}  // namespace

int main(int argc, char** argv) {
    const int rounds = argc > 1 ? std::atoi(argv[1]) : 101;
    if (rounds < 1 || rounds > 100'000) {
        std::fprintf(stderr, "usage: bench_bounds [ROUNDS, at most 100000]\n");
        return 2;
    }
    JsonWriter w;
    w.begin_object().field("rounds", rounds);
    reports(w, rounds);
    events(w, rounds);
    sums(w, rounds);
    images(w, rounds);
    w.end_object();
    std::printf("%s\n", w.take().c_str());
    return 0;
}
