// SPDX-License-Identifier: GPL-2.0-or-later
// The decision log: what random markets (market_chaos.hpp) write into it, souk-audit confirms, a
// program that shares no code with the market. And its files: segments, bounds, a torn end.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "kernel/base/json.hpp"
#include "market/store/decision_files.hpp"
#include "tests/unit/market_chaos.hpp"
#include "tests/unit/market_rig.hpp"
#include "tests/unit/temp_dir.hpp"

using namespace souk;
using namespace souk::market;
using souk::unit::TempDir;

namespace {

// Exit status and output of souk-audit.
std::pair<int, std::string> audit(const std::string& arguments) {
    const std::string marketd = unit::marketd_path();
    const std::string program = marketd.substr(0, marketd.rfind('/')) + "/souk-audit";
    FILE* const pipe = ::popen((program + " " + arguments + " 2>&1").c_str(), "r");
    ck_assert(pipe != nullptr);
    std::string said;
    char bytes[4096];
    for (size_t n; (n = ::fread(bytes, 1, sizeof bytes, pipe)) > 0;) said.append(bytes, n);
    const int status = ::pclose(pipe);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, said};
}

std::string whole(const DecisionFiles& files, const DecisionFiles::Ask& ask = {}) {
    std::string text, after;
    do {
        std::string next;
        const auto part = files.read(ask, after, next);
        ck_assert(part.has_value());
        text += *part;
        after = next;
    } while (!after.empty());
    return text;
}

// Keeps the log of a World as marketd does.
struct Logged {
    DecisionFiles files;
    std::unique_ptr<DecisionText> text;
    World& w;
    bool begins = true;

    Logged(World& world, const std::string& dir, DecisionFiles::Bounds bounds)
        : files(value(DecisionFiles::open(dir, bounds))), w(world) {
        begin();
        w.restarted = [this] { begin(); };
        w.after_step = [this, before = w.after_step] {
            if (before) before();
            step();
        };
    }
    static DecisionFiles value(Result<DecisionFiles> opened) {
        ck_assert_msg(opened.has_value(), "%s", opened ? "" : opened.error().message.c_str());
        return std::move(*opened);
    }
    void begin() {
        const Pseudonymizer& by = files.pseudonyms();
        text = std::make_unique<DecisionText>(
            DecisionText::Pseudonyms{
                [&by](const JobId& id) { return by.job(id.text()).text; },
                [&by](uint32_t uid, Nanos since) { return by.user(uid, since).text; }},
            std::max(files.number(), w.market->decisions()));
        begins = true;
        w.market->log_to(text.get());
    }
    void put(const std::string& block, bool first) {
        const Status written =
            files.append(block, text->number(), text->take_named(), first, w.now + w.calendar);
        ck_assert_msg(written.has_value(), "%s", written ? "" : written.error().message.c_str());
    }
    void step() {
        if (std::string block = text->take(); !block.empty())
            put(block, std::exchange(begins, false));
        if (!begins && files.wants_segment(w.now + w.calendar))
            put(text->restate(*w.market, w.now + w.calendar), true);
    }
    void save(const std::string& file) const {
        std::ofstream(file + ".log") << whole(files);
        JsonWriter j;
        j.begin_array();
        for (const Receipt& r : w.receipts) {
            j.begin_object().field("receipt", r.seq).field("kind", to_string(r.kind));
            j.field("job", r.job.text()).field("node", r.node).field("run_s", r.run.seconds());
            j.field("paid", r.paid).field("decided_from", r.decided_from);
            j.field("decided_to", r.decided_to).end_object();
        }
        j.end_array();
        std::ofstream(file + ".json") << j.take();
    }
};

// Random markets of one kind; the audit's arguments that look at all of them.
std::string random_markets(const TempDir& dir, uint64_t from, uint64_t seeds, int events,
                           const std::function<void(uint64_t seed, SolverOptions&)>& options,
                           const std::function<void(Chaos&)>& beside = nullptr) {
    std::string arguments = "--quiet";
    for (uint64_t seed = from; seed < from + seeds; ++seed) {
        MarketOptions of_market;
        options(seed, of_market.solver);
        Chaos c(seed, World(of_market));
        if (seed % 2 == 0) c.cpus_most = 1, c.memory_steps = 0;
        const std::string at = dir.path + "/" + std::to_string(seed);
        Logged log(c.w, at, {seed % 3 == 0 ? 600 << 10 : 64 << 20, {}});
        for (int i = 0; i < events; ++i) {
            c.event();
            if (beside) beside(c);
            c.w.run_for(Nanos::from_ms(c.rng.between(0, 2'000)));
        }
        log.save(at);
        arguments += " --receipts " + at + ".json " + at + ".log";
    }
    return arguments;
}

void confirm(const std::string& arguments) {
    const auto [status, said] = audit(arguments);
    ck_assert_msg(status == 0, "%d: %s", status, said.substr(0, 2'000).c_str());
}

uint64_t markets() {
    const char* const set = ::getenv("SOUK_AUDIT_MARKETS");
    return set ? std::strtoull(set, nullptr, 10) : 30;
}

}  // namespace

START_TEST(the_audit_confirms_random_markets_of_the_greedy_algorithm) {
    const TempDir dir;
    confirm(random_markets(dir, 1, markets(), 40, [](uint64_t, SolverOptions&) {}));
}
END_TEST

START_TEST(the_audit_confirms_random_markets_of_the_welfare_algorithm) {
    const TempDir dir;
    confirm(random_markets(dir, 1'001, markets(), 40,
                           [](uint64_t, SolverOptions& o) { o.algorithm = "welfare"; }));
}
END_TEST

START_TEST(the_audit_confirms_other_algorithms_and_pricings) {
    const TempDir dir;
    confirm(random_markets(dir, 2'001, markets(), 40, [](uint64_t seed, SolverOptions& o) {
        const char* const names[] = {"balance", "proportional_share", "greedy_migration", "welfare",
                                     "easy",    "conservative"};
        const size_t which = seed % std::size(names);
        o.algorithm = names[which];
        if (which == 2 || which == 3)
            o.pricing = seed % (2 * std::size(names)) == which ? "first" : "uniform";
    }));
}
END_TEST

START_TEST(the_audit_confirms_markets_with_a_horizon_a_least_stay_and_a_cap_of_moves) {
    const TempDir dir;
    confirm(random_markets(dir, 3'001, markets(), 40, [](uint64_t seed, SolverOptions& o) {
        if (seed % 2 == 0) o.algorithm = "welfare";
        if (seed % 3 == 0) o.horizon = Nanos::from_s(600);
        if (seed % 3 == 1) o.min_stay = Nanos::from_s(20);
        if (seed % 3 == 2) o.moves_max = 2;
    }));
}
END_TEST

// With a horizon, the time that a job's files take over the network counts in decisions. The audit
// computes places with code of its own (places.py).
START_TEST(the_audit_confirms_markets_of_jobs_whose_files_are_at_home) {
    const TempDir dir;
    confirm(random_markets(
        dir, 4'001, markets(), 40,
        [](uint64_t seed, SolverOptions& o) {
            if (seed % 4 == 1) o.algorithm = "welfare";
            o.horizon = Nanos::from_s(seed % 5 == 0 ? 0 : 600);
            if (seed % 3 == 0) o.byte_cost_per_gb = Money::units(1);
            if (seed % 7 == 0) o.min_stay = Nanos::from_s(20);
        },
        [](Chaos& c) {
            auto* const job = c.any_job();
            if (!job) return;
            job->report.files = {true,
                                 1,
                                 1,
                                 1,
                                 {},
                                 static_cast<uint64_t>(c.rng.between(0, 4)) * 10'000'000,
                                 static_cast<uint64_t>(c.rng.between(0, 400)),
                                 Nanos::from_ms(c.rng.between(0, 3))};
            c.w.tell(*job);
        }));
}
END_TEST

// A limit is raised, so several held jobs are let in for a round, displace somebody and are held
// again; by then the cap of moves was spent, and he stayed on the slower machine.
START_TEST(who_was_let_in_for_one_round_alone_has_moved_nobody) {
    const TempDir dir;
    confirm(random_markets(dir, 3'053, 1, 40, [](uint64_t, SolverOptions& o) { o.moves_max = 2; }));
}
END_TEST

// Three nodes, and six jobs whose bids change again and again.
struct Busy {
    World w;
    std::vector<JobId> jobs;
    int64_t bid = 0;
    Busy() { three_nodes(w); }
    void go_on(int times, const std::function<void()>& each = nullptr) {
        while (jobs.size() < 6) jobs.push_back(w.submit("n1", 5));
        for (; times > 0; --times) {
            auto& job = w.jobs.at(jobs[static_cast<size_t>(++bid) % jobs.size()]);
            job.report.terms.max_price = Money::units(2 + bid * 7 % 40);
            w.tell(job);
            w.run_for(Nanos::from_ms(700));
            if (each) each();
        }
    }
};

// Old segments go as the bounds say, and what is left needs nothing of them.
START_TEST(the_oldest_segments_go_and_the_rest_is_confirmed) {
    const TempDir dir;
    Busy busy;
    const std::string at = dir.path + "/log";
    constexpr int64_t bytes_max = 100 << 10;
    Logged log(busy.w, at, {bytes_max, {}});
    busy.go_on(3'000, [&] { ck_assert_int_le(log.files.bytes(), bytes_max + (34 << 10)); });
    log.save(at);
    const std::string text = whole(log.files);
    ck_assert_msg(text.starts_with("S 4 ") && !text.starts_with("S 4 1 "), "nothing went");
    ck_assert_uint_gt(text.size(), bytes_max / 2);
    confirm("--quiet --receipts " + at + ".json " + at + ".log");
    // Segments also go by age: all but the one that is being written.
    busy.w.after_step = nullptr;
    Logged again(busy.w, at, {bytes_max, Nanos::from_s(1)});
    busy.go_on(1);
    busy.w.run_for(Nanos::from_s(100));
    busy.go_on(1);
    ck_assert_uint_eq(whole(again.files).find("\nS "), std::string::npos);
}
END_TEST

START_TEST(half_a_block_at_the_end_is_cut_off_and_the_log_goes_on) {
    const TempDir dir;
    const std::string at = dir.path + "/log";
    Busy busy;
    auto log = std::make_unique<Logged>(busy.w, at, DecisionFiles::Bounds{64 << 20, {}});
    busy.go_on(20);
    const uint64_t number = log->files.number();
    busy.w.after_step = nullptr;
    log.reset();
    const std::string file = at + "/00000001.log";
    struct stat st {};
    ck_assert_int_eq(::stat(file.c_str(), &st), 0);
    ck_assert_int_eq(::truncate(file.c_str(), st.st_size - 5), 0);
    log = std::make_unique<Logged>(busy.w, at, DecisionFiles::Bounds{64 << 20, {}});
    ck_assert_uint_le(log->files.number(), number);
    struct stat cut {};
    ck_assert_int_eq(::stat(file.c_str(), &cut), 0);
    ck_assert_int_lt(cut.st_size, st.st_size - 5);
    ck_assert_uint_gt(log->files.number(), 0);
    busy.go_on(20);
    log->save(at);
    const auto [status, said] = audit(at + ".log");
    const bool told = said.find("was started again") != std::string::npos ||
                      said.find("gap: ") != std::string::npos;
    ck_assert_msg(status == 0 && told, "%s", said.substr(0, 2'000).c_str());
}
END_TEST

// A user's own jobs are named to him and to nobody else, by a hash that he can reckon.
START_TEST(an_export_names_to_a_user_his_own_jobs) {
    const TempDir dir;
    World w;
    Logged log(w, dir.path + "/log", {64 << 20, {}});
    w.add_node("n1", 100, 1, 2);
    w.run_for(Nanos::from_s(4));
    w.submit("n1", 10, Nanos::never(), 1, 0, {}, 1001);
    w.submit("n1", 20, Nanos::never(), 1, 0, {}, 1002);
    w.run_for(Nanos::from_s(4));
    const std::string all = whole(log.files), his = whole(log.files, {.uid = 1001});
    ck_assert(all.find(" n1.1\n") != std::string::npos && all.find(" n1.2\n") != std::string::npos);
    ck_assert(his.find(" n1.1\n") != std::string::npos && his.find("n1.2") == std::string::npos);
    ck_assert_uint_eq(his.find("u1002"), std::string::npos);
    ck_assert_text(all.substr(0, all.find("\nN ")), his.substr(0, his.find("\nN ")));
    const auto job = log.files.pseudonyms().job("n1.1");
    ck_assert(his.find("N j " + job.text + " " + job.salt + " n1.1\n") != std::string::npos);
}
END_TEST

// The pseudonyms and salts of a user in an export of all: each once, in the order of the names.
std::vector<std::string> names_of_user(const std::string& text, const std::string& uid) {
    std::vector<std::string> found;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        std::string n, kind, name, salt, id;
        words >> n >> kind >> name >> salt >> id;
        if (n == "N" && kind == "u" && id == uid &&
            std::ranges::find(found, name + " " + salt) == found.end())
            found.push_back(name + " " + salt);
    }
    return found;
}

// A reader who learns a user's pseudonym, or is told its salt, follows him to the end of that day's
// segments.
START_TEST(a_user_has_another_pseudonym_on_another_day_and_the_audit_confirms_all_of_them) {
    const TempDir dir;
    World w;
    Logged log(w, dir.path + "/log", {64 << 20, {}});
    w.add_node("n1", 100, 1, 2);
    const auto day = [&](double bid) {
        for (const uint32_t uid : {1001U, 1002U})
            for (int k = 0; k < 2; ++k) w.submit("n1", bid + k, Nanos::from_s(60), 1, 0, {}, uid);
        w.run_for(Nanos::from_s(600));
    };
    w.run_for(Nanos::from_s(4));
    w.submit("n1", 10, Nanos::never(), 1, 0, {}, 1001);
    w.submit("n1", 12, Nanos::never(), 1, 0, {}, 1002);
    for (int i = 0; i < 3; ++i) {
        day(20);
        w.calendar = w.calendar + Nanos::from_s(90'000);
        w.market->set_calendar(w.calendar);
        w.run_for(Nanos::from_s(30));
    }
    const std::string at = dir.path + "/whole";
    log.save(at);
    confirm("--quiet --receipts " + at + ".json " + at + ".log");
    const std::string all = whole(log.files);
    const auto his = names_of_user(all, "1001"), hers = names_of_user(all, "1002");
    ck_assert_msg(his.size() == 4 && hers.size() == 4, "%zu %zu", his.size(), hers.size());
    for (const std::string& name : his) ck_assert(std::ranges::find(hers, name) == hers.end());
    // A segment repeats whose each job is. A change of that line is found.
    const std::string mine = " u=" + his.back().substr(0, 12),
                      theirs = " u=" + hers.back().substr(0, 12);
    std::string changed = all;
    changed.replace(changed.rfind(mine), mine.size(), theirs);
    std::ofstream(at + ".changed") << changed;
    const auto [status, said] = audit(at + ".changed");
    ck_assert_msg(status == 1 && said.find("another user") != std::string::npos, "%s",
                  said.substr(0, 2'000).c_str());
}
END_TEST

UNIT_SUITE_LONG(decision_log, 300, the_audit_confirms_random_markets_of_the_greedy_algorithm,
                the_audit_confirms_random_markets_of_the_welfare_algorithm,
                the_audit_confirms_other_algorithms_and_pricings,
                the_audit_confirms_markets_with_a_horizon_a_least_stay_and_a_cap_of_moves,
                the_audit_confirms_markets_of_jobs_whose_files_are_at_home,
                who_was_let_in_for_one_round_alone_has_moved_nobody,
                the_oldest_segments_go_and_the_rest_is_confirmed,
                half_a_block_at_the_end_is_cut_off_and_the_log_goes_on,
                an_export_names_to_a_user_his_own_jobs,
                a_user_has_another_pseudonym_on_another_day_and_the_audit_confirms_all_of_them);
