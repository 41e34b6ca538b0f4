// SPDX-License-Identifier: GPL-2.0-or-later
// A real marketd, spoken to over its sockets (market_rig.hpp).
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>  // before Check, whose macro fail() would break it
#include <nlohmann/json.hpp>

#include "kernel/sys/host/config_text.hpp"
#include "tests/unit/market_rig.hpp"

using namespace souk;
using souk::unit::MarketPeer;
using souk::unit::MarketRig;

namespace {

const char* impossible() {
    if (std::filesystem::exists(souk::unit::marketd_path())) return nullptr;
    return "a test of marketd needs its program: make bins";
}

ProviderReport offer(const std::string& node, int64_t reserve = 36) {
    ProviderReport p;
    p.node = node;
    p.on_market = true;
    p.reserve = Money::units(reserve);
    p.memory_mb = p.free_mb = 1000;
    return p;
}

JobReport job(const std::string& home, uint64_t seq, int64_t price) {
    JobReport r;
    r.id = {home, seq};
    r.terms.max_price = Money::units(price);
    r.uid = 1000;
    r.user = "u\"ser";
    r.command = "sleep 1";
    r.submitted = Nanos::from_s(1'700'000'000);
    return r;
}

void run_it(JobReport& r, const Order& order) {
    r.phase = JobPhase::running;
    r.where = order.node;
    r.order_seq = order.seq;
    r.epoch = r.epoch.next();
}

}  // namespace

START_TEST(a_job_is_ordered_run_shown_and_settled) {
    UNIT_SKIP_IF(impossible());
    MarketRig m;
    MarketPeer n1 = m.agent("n1");
    n1.send(offer("n1"));
    JobReport r = job("n1", 1, 100);
    n1.send(r);
    const Order order = n1.expect<Order>();
    ck_assert_text(order.id.text() + " " + order.node + " " + order.address,
                   "n1.1 n1 127.0.0.1:7071");
    ck_assert_text(format_money(order.price), "36");
    run_it(r, order);
    n1.send(r);
    const std::string shown = m.ask_until("job", {"n1.1"}, R"("status":"run")");
    ck_assert(shown.find(R"("id":"n1.1","user":"u\"ser","uid":1000)") != std::string::npos);
    ck_assert(shown.find(R"("price":36)") != std::string::npos);
    ck_assert(m.ask("list-providers").json.find(R"("status":"busy")") != std::string::npos);
    ck_assert(m.ask("status").json.find(R"("jobs":{"total":1,"wait":0,"run":1)") !=
              std::string::npos);
    r.phase = JobPhase::finished;
    r.stats.run_time = Nanos::from_s(100);
    n1.send(r);
    JobNote note = n1.expect<JobNote>();
    while (!note.settled) note = n1.expect<JobNote>();
    // The home reports a hundred seconds, which would cost 1. The market does not believe that,
    // because less time has passed.
    ck_assert(note.cost.micro > 0 && note.cost < Money::units(1));
    ck_assert(m.ask("job", {"n1.1"}).json.find(R"("exit":0)") != std::string::npos);
    ck_assert_int_eq(m.stop(), 0);
}
END_TEST

// The report that ends a job and the question come in one packet: the receipt is counted, and is
// not in the book yet.
START_TEST(what_a_node_is_told_of_the_ledger_is_what_stands_there_later) {
    UNIT_SKIP_IF(impossible());
    MarketRig m;
    MarketPeer n1 = m.agent("n1");
    n1.send(offer("n1"));
    for (uint64_t seq = 1; seq <= 3; ++seq) {
        JobReport r = job("n1", seq, 100);
        n1.send(r);
        Order order = n1.expect<Order>();
        while (order.id != r.id) order = n1.expect<Order>();
        run_it(r, order);
        n1.send(r);
        m.ask_until("job", {r.id.text()}, R"("status":"run")");
        r.phase = JobPhase::finished;
        r.stats.run_time = Nanos::from_s(100);
        wire::CtlRequest seen;
        seen.verb = "ledger-seen";
        n1.send_together(r, seen);
        seen.args = {n1.expect<wire::CtlReply>().json};
        seen.args[0] = seen.args[0].substr(1, seen.args[0].size() - 2);
        m.ask_until("job", {r.id.text()}, R"("status":"finish")");
        if (seen.args[0].starts_with("0:")) continue;  // none yet: an agent keeps no such mark
        n1.send(seen);
        (void)n1.expect<wire::CtlReply>();
        const std::string status = m.ask("status").json;
        ck_assert_msg(status.find("has seen") == std::string::npos, "%s", status.c_str());
    }
    ck_assert_int_eq(m.stop(), 0);
}
END_TEST

START_TEST(a_market_that_was_killed_goes_on_where_it_was) {
    UNIT_SKIP_IF(impossible());
    MarketRig m;
    JobReport r = job("n1", 1, 100);
    uint64_t seq = 0;
    {
        MarketPeer n1 = m.agent("n1");
        n1.send(offer("n1"));
        n1.send(r);
        const Order order = n1.expect<Order>();
        seq = order.seq;
        run_it(r, order);
        n1.send(r);
        m.ask_until("job", {"n1.1"}, R"("status":"run")");
        ck_assert(m.ask("move", {"n1.1", "n1", "hold"}).ok);
        m.kill();
    }
    m.start();
    m.ask_until("job", {"n1.1"}, "its home node n1 is not connected");
    MarketPeer n1 = m.agent("n1");
    n1.send(offer("n1"));
    n1.send(r);
    m.ask_until("job", {"n1.1"}, "held on n1 by the operator");
    ck_assert(m.ask("status").json.find(R"("settling":false)") != std::string::npos);
    ck_assert(m.ask("release", {"n1.1"}).ok);
    // The first order after that is for a better bid, not for a job that runs.
    n1.send(job("n1", 2, 200));
    const Order order = n1.expect<Order>();
    ck_assert(order.kind == Order::Kind::suspend && order.seq > seq);
    r.phase = JobPhase::finished;
    r.stats.run_time = Nanos::from_s(100);
    n1.send(r);
    JobNote note = n1.expect<JobNote>();
    while (!note.settled) note = n1.expect<JobNote>();
    // The home reports a hundred seconds, which would cost 1. The market does not believe that,
    // because less time has passed.
    ck_assert(note.cost.micro > 0 && note.cost < Money::units(1));
}
END_TEST

START_TEST(a_second_market_on_the_same_port_or_directory_says_so_and_ends) {
    UNIT_SKIP_IF(impossible());
    MarketRig m;
    std::string said;
    const std::string listen = "127.0.0.1:" + std::to_string(m.port);
    ck_assert_int_eq(
        m.run_other(m.config("127.0.0.1:0", m.dir + "/state", m.dir + "/o.sock"), said), 1);
    ck_assert_msg(said.find("is in use by another process (pid " + std::to_string(m.pid)) !=
                      std::string::npos,
                  "%s", said.c_str());
    ck_assert_int_eq(m.run_other(m.config(listen, m.dir + "/other", m.dir + "/o.sock"), said), 1);
    ck_assert_text(said, "marketd: listen on " + listen + ": Address already in use\n");
    ck_assert_int_eq(
        m.run_other(m.config("127.0.0.1:0", m.dir + "/other", m.dir + "/m.sock"), said), 1);
    ck_assert_msg(said.find("m.sock") != std::string::npos, "%s", said.c_str());
    ck_assert(m.ask("status").ok);
}
END_TEST

START_TEST(an_unknown_key_or_a_bad_value_is_refused_with_its_line) {
    UNIT_SKIP_IF(impossible());
    MarketRig m;
    std::string said;
    ck_assert_int_eq(m.run_other("name = \"x\"\nlisten_on = 3\n", said), 2);
    ck_assert_text(said, "marketd: " + m.dir + "/other.toml:2: listen_on: unknown key\n");
    ck_assert_int_eq(m.run_other("pricing = \"free\"\n", said), 2);
    ck_assert_text(said, "marketd: " + m.dir +
                             "/other.toml:1: pricing: needs one of: critical, first, uniform\n");
}
END_TEST

START_TEST(garbage_ends_its_own_connection_and_nothing_else) {
    UNIT_SKIP_IF(impossible());
    MarketRig m;
    MarketPeer n1 = m.agent("n1");
    n1.send(offer("n1"));
    for (const bool local : {false, true}) {
        MarketPeer peer = local ? m.connect_unix() : m.connect_tcp();
        peer.send_raw("GET / HTTP/1.0\r\n\r\n");
        ck_assert_text(peer.refusal(), "this is not souk's protocol");
    }
    MarketPeer liar = m.agent("n2");
    liar.send(job("n1", 9, 5));
    ck_assert_text(liar.refusal(), "node n2 reports job n1.9 of another home");
    MarketPeer tool = m.tool();
    tool.send(offer("n1"));
    ck_assert_text(tool.refusal(), "a frame of unknown type 17");  // not a tool's word
    MarketPeer old = m.connect_tcp();
    wire::Hello hello;
    hello.role = wire::Role::agent;
    hello.node = "n3";
    hello.address = "127.0.0.1:1";
    hello.version = 99;
    old.send(hello);
    ck_assert(old.refusal().find("version 99") != std::string::npos);
    const wire::CtlReply reply = m.ask("dance");
    ck_assert(!reply.ok);
    ck_assert_text(reply.error, "the market does not know the verb 'dance'");
    ck_assert_text(m.ask("job", {"n1.9"}).error, "no such job: n1.9");
    ck_assert_text(m.ask("move", {"n1.9"}).error, "move takes 3 arguments, not 1");
    n1.send(job("n1", 1, 100));  // all the while n1 is served
    ck_assert_text(n1.expect<Order>().id.text(), "n1.1");
}
END_TEST

namespace {
int64_t most_memory_kb(pid_t pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("VmHWM:")) return std::atoll(line.c_str() + 6);
    return -1;
}
}  // namespace

// A hundred agents that do what they should, and one with a small window that asks and asks and
// never reads.
START_TEST(a_peer_that_never_reads_is_ended_at_its_bound_and_delays_nobody) {
    UNIT_SKIP_IF(impossible());
    MarketRig m("agent_queue_mb = 2\n");
    std::vector<MarketPeer> good;
    good.reserve(100);
    for (int i = 0; i < 100; ++i) good.push_back(m.agent("g" + std::to_string(i)));
    for (uint64_t seq = 1; seq <= 3'000; ++seq) good[0].send(job("g0", seq, 10));
    (void)m.ask_until("status", {}, "\"wait\":3000");
    const int64_t before = most_memory_kb(m.pid);
    MarketPeer deaf = m.connect_tcp(4'096);
    wire::Hello hello;
    hello.role = wire::Role::agent;
    hello.node = "deaf";
    hello.address = "0.0.0.0:7071";
    deaf.send(hello);
    for (uint64_t i = 1; i <= 300; ++i) {  // more than 100 MB of answers
        deaf.send_if_open(wire::CtlRequest{i, 0, "list-jobs", {}, {}});
        if (i % 10 != 0) continue;
        MarketPeer& other = good[i / 10];
        other.send(wire::CtlRequest{i, 0, "status", {}, {}});
        ck_assert(other.expect<wire::CtlReply>().request == i);
    }
    std::ifstream file(m.dir + "/log");
    const std::string log{std::istreambuf_iterator<char>(file), {}};
    const size_t at = log.find("agent lost");
    ck_assert_msg(at != std::string::npos, "%s", log.c_str());
    ck_assert(log.find("NODE=deaf", at) != std::string::npos &&
              log.find("the send queue of 2097152 bytes is full", at) != std::string::npos);
    ck_assert_msg(most_memory_kb(m.pid) - before < 24'000, "marketd grew from %ld to %ld kB",
                  before, most_memory_kb(m.pid));
    MarketPeer again = m.agent("deaf");  // and gets everything anew
    again.send(wire::CtlRequest{7, 0, "status", {}, {}});
    ck_assert(again.expect<wire::CtlReply>().request == 7);
    for (MarketPeer& g : good) {
        g.send(wire::CtlRequest{7, 0, "status", {}, {}});
        ck_assert(g.expect<wire::CtlReply>().request == 7);
    }
}
END_TEST

START_TEST(a_list_of_any_length_comes_in_bounded_parts) {
    UNIT_SKIP_IF(impossible());
    constexpr uint64_t count = 30'000;
    MarketRig m;
    MarketPeer n1 = m.agent("n1");
    JobReport r = job("n1", 0, 100);
    r.name = r.command = std::string(200, 'x');
    for (r.id.seq = 1; r.id.seq <= count; ++r.id.seq) n1.send(r);
    n1.send(wire::CtlRequest{1, 0, "status", {}, {}});  // after all of them
    ck_assert(n1.expect<wire::CtlReply>().json.find(R"("total":30000)") != std::string::npos);
    uint64_t listed = 0;
    size_t bytes = 0;
    wire::CtlReply part;
    do {
        part = m.ask("list-jobs", {}, part.next);
        ck_assert_text(part.error, "");
        ck_assert(part.json.size() < wire::json_part_bytes + 4096);
        bytes += part.json.size();
        const std::string key = R"({"id":"n1.)";
        for (size_t at = part.json.find(key); at != std::string::npos;
             at = part.json.find(key, at + 1))
            ck_assert_uint_eq(std::strtoull(part.json.c_str() + at + key.size(), nullptr, 10),
                              ++listed);
        ck_assert_text(part.next, listed < count ? "n1." + std::to_string(listed) : "");
    } while (!part.next.empty());
    ck_assert_uint_eq(listed, count);
    ck_assert(bytes > 16 * wire::json_bytes_max);
    ck_assert_text(m.ask("list-jobs", {}, "n1.30000").json, "[]");
    ck_assert_text(m.ask("list-jobs", {}, "n1").error,
                   "'n1' is not a job id: use HOME.NUMBER, such as n1.7");
    MarketPeer n2 = m.agent("n2");
    n1.send(offer("n1"));
    n2.send(offer("n2"));
    m.ask_until("list-providers", {}, R"("node":"n2")");
    ck_assert(m.ask("list-providers", {}, "n1").json.starts_with(R"([{"node":"n2")"));
    ck_assert_text(m.ask("list-providers", {}, "n2").json, "[]");
}
END_TEST

// A list that is read by pages has each thing once, the newest jobs first, whatever the size of a
// page is.
START_TEST(a_list_by_pages_has_everything_once) {
    UNIT_SKIP_IF(impossible());
    MarketRig m;
    MarketPeer n1 = m.agent("n1"), n2 = m.agent("n2"), n3 = m.agent("other");
    JobReport r = job("n1", 0, 100);
    for (r.id.seq = 1; r.id.seq <= 7; ++r.id.seq) {
        r.submitted = Nanos::from_s(1'000 + static_cast<int64_t>(r.id.seq));
        n1.send(r);
    }
    n1.send(wire::CtlRequest{1, 0, "status", {}, {}});
    ck_assert(n1.expect<wire::CtlReply>().ok);
    const auto all = [&m](const std::string& verb, const std::vector<std::string>& args) {
        std::string lists;
        wire::CtlReply part;
        do {
            part = m.ask(verb, args, part.next);
            ck_assert_text(part.error, "");
            std::string ids;
            for (const char* key : {R"({"id":")", R"({"node":")"})
                for (size_t at = part.json.find(key); at != std::string::npos;
                     at = part.json.find(key, at + 1)) {
                    const size_t from = at + std::strlen(key);
                    ids += part.json.substr(from, part.json.find('"', from) - from) + " ";
                }
            lists += ids + "/ ";
        } while (!part.next.empty());
        return lists;
    };
    ck_assert_text(all("list-jobs", {"state=live", "page=3"}),
                   "n1.7 n1.6 n1.5 / n1.4 n1.3 n1.2 / n1.1 / ");
    ck_assert_text(all("list-jobs", {"state=live", "page=3", "limit=4"}),
                   "n1.7 n1.6 n1.5 / n1.4 / ");
    n1.send(offer("n1"));
    n2.send(offer("n2"));
    n3.send(offer("other"));
    for (const char* node : {"n1", "n2", "other"})
        m.ask_until("list-providers", {}, std::string(R"("node":")") + node);
    ck_assert_text(all("list-providers", {"page=1"}), "n1 / n2 / other / ");
    ck_assert_text(all("list-providers", {"page=2", "match=n"}), "n1 n2 / / ");
    ck_assert_text(all("list-providers", {"node=n2"}), "n2 / ");
    ck_assert_text(all("list-providers", {"node=n4"}), "/ ");
    ck_assert_text(m.ask("list-providers", {"page=0"}).error,
                   "list-providers: 'page=0' is none of node=NAME, match=TEXT, needs=EXPRESSION "
                   "and page=NUMBER");
    ck_assert_text(m.ask("list-jobs", {"page=0"}).error, "page: a part has one job at least");
}
END_TEST

START_TEST(an_array_is_one_entry_of_a_folded_list_and_who_runs_comes_first) {
    UNIT_SKIP_IF(impossible());
    MarketRig m;
    MarketPeer n1 = m.agent("n1");
    JobReport r = job("n1", 0, 100);
    for (r.id.seq = 1; r.id.seq <= 6; ++r.id.seq) {
        r.submitted = Nanos::from_s(1'000 + static_cast<int64_t>(r.id.seq));
        r.array = r.id.seq >= 2 && r.id.seq <= 4 ? "n1.2" : "";
        r.array_index = static_cast<uint32_t>(r.id.seq);
        r.gang = r.id.seq == 5 ? "n1.5" : "";  // a group of one is no group
        r.uid = r.id.seq == 6 ? 77 : 0;
        n1.send(r);
    }
    // n1.3 runs here.
    r = job("n1", 3, 100);
    r.submitted = Nanos::from_s(1'003);
    r.array = "n1.2";
    r.array_index = 3;
    r.phase = JobPhase::running;
    r.where = "n1";
    n1.send(r);
    m.ask_until("status", {}, R"("run":1)");
    const auto ids = [&m](const std::vector<std::string>& args) {
        std::string all;
        wire::CtlReply part;
        do {
            part = m.ask("list-jobs", args, part.next);
            ck_assert_text(part.error, "");
            for (const auto& one : nlohmann::json::parse(part.json))
                all += one.contains("group")
                           ? one["group"].get<std::string>() + "*" +
                                 std::to_string(one["jobs"].get<int>()) + one["states"].dump() +
                                 one["where"].dump() + one["first"]["id"].get<std::string>() + " "
                           : one["id"].get<std::string>() + " ";
            all += "/ ";
        } while (!part.next.empty());
        return all;
    };
    const std::string group = R"(n1.2*3{"run":1,"wait":2}["n1"]n1.2 )";
    ck_assert_text(ids({"state=live", "fold=yes"}), group + "n1.6 n1.5 n1.1 / ");
    ck_assert_text(ids({"state=live", "fold=yes", "page=1"}), group + "/ n1.6 / n1.5 / n1.1 / ");
    ck_assert_text(ids({"state=wait", "fold=yes"}),
                   "n1.6 n1.5 " + std::string(R"(n1.2*2{"wait":2}[]n1.2 )") + "n1.1 / ");
    ck_assert_text(ids({"state=live", "group=n1.2", "page=9"}), "n1.4 n1.3 n1.2 / ");
    ck_assert_text(ids({"state=live", "group=n1.5", "page=9"}), "n1.5 / ");
    ck_assert_text(m.ask("list-jobs", {"state=finish", "fold=yes"}).error,
                   "list-jobs: fold=yes is for live jobs, without a limit");
    ck_assert_text(m.ask("list-jobs", {"fold=yes"}, "fold 0 x n1.1").error,
                   "'fold 0 x n1.1' is not where a list of jobs goes on");
}
END_TEST

START_TEST(a_newer_connection_of_a_node_replaces_the_older) {
    UNIT_SKIP_IF(impossible());
    MarketRig m;
    MarketPeer first = m.agent("n1"), second = m.agent("n1");
    ck_assert_text(first.refusal(), "replaced by a newer connection");
    second.send(offer("n1"));
    second.send(job("n1", 1, 100));
    ck_assert_text(second.expect<Order>().id.text(), "n1.1");
}
END_TEST

START_TEST(who_asks_is_the_kernels_word_locally_and_the_agents_for_its_own_users) {
    UNIT_SKIP_IF(impossible());
    MarketRig m;
    MarketPeer n1 = m.agent("n1");
    n1.send(offer("n1"));
    n1.send(job("n1", 1, 100));
    n1.expect<Order>();
    n1.send(wire::CtlRequest{1, 1001, "cancel", {"n1.1"}, {}});
    ck_assert_text(n1.expect<wire::CtlReply>().error, "job n1.1 belongs to another user");
    // The rig's own questions claim uid 12345; the kernel says who really asks.
    const wire::CtlReply hold = m.ask("freeze", {"n1.1", "hold"});
    if (::geteuid() == 0)
        ck_assert(hold.ok);
    else
        ck_assert(!hold.ok);
    n1.send(wire::CtlRequest{2, 1000, "cancel", {"n1.1"}, {}});
    ck_assert(n1.expect<Order>().kind == Order::Kind::abort);
}
END_TEST

// A program of a few lines of shell: every job to the first provider that was named.
START_TEST(a_program_that_speaks_the_text_protocol_can_be_the_solver) {
    UNIT_SKIP_IF(impossible());
    const unit::TempDir dir;
    const std::string path = dir.write(
        "solver",
        "while read c i rest; do case $c in reset) p=; j=;; ap) : ${p:=$i};; aj) j=\"$j $i\";;\n"
        "alloc) for k in $j; do echo $k $p; done;; info) echo mine;; esac; done\n");
    MarketRig m("solver_program = [\"/bin/sh\", \"" + path + "\"]\nsolver_patience_ms = 60000\n");
    MarketPeer n1 = m.agent("n1"), n2 = m.agent("n2");
    ProviderReport slow = offer("n1"), fast = offer("n2");
    fast.speed = 400;
    n1.send(slow);
    m.ask_until("list-providers", {}, R"("node":"n1")");
    n2.send(fast);
    m.ask_until("list-providers", {}, R"("node":"n2")");
    n2.send(job("n2", 1, 100));
    ck_assert_text(n2.expect<Order>().node, "n1");  // the own solver would take the faster one
    ck_assert(m.ask("status").json.find(R"("solver":"/bin/sh")") != std::string::npos);
}
END_TEST

// The program names only new jobs, each for the last provider. A job that it was told of as running
// stays.
START_TEST(a_program_that_is_told_places_need_not_name_who_stays) {
    UNIT_SKIP_IF(impossible());
    const unit::TempDir dir;
    const std::string path = dir.write(
        "solver",
        "while read c i rest; do case $c in reset) p=; j=; r=;; ap) p=$i;; aj) j=\"$j $i\";;\n"
        "rj) echo $rest >>" +
            dir.path +
            "/told; r=\"$r $i \";;\n"
            "alloc) for k in $j; do case \"$r\" in *\" $k \"*) ;; *) echo $k $p;; esac; done;;\n"
            "info) echo mine;; esac; done\n");
    MarketRig m("solver_program = [\"/bin/sh\", \"" + path +
                "\"]\nsolver_places = true\nsolver_patience_ms = 60000\n");
    MarketPeer n1 = m.agent("n1"), n2 = m.agent("n2");
    n1.send(offer("n1"));
    m.ask_until("list-providers", {}, R"("node":"n1")");
    n2.send(offer("n2"));
    m.ask_until("status", {}, R"("providers":2)");
    JobReport first = job("n1", 1, 100);
    n1.send(first);
    const Order order = n1.expect<Order>();
    ck_assert_text(order.node, "n2");
    run_it(first, order);
    n1.send(first);
    m.ask_until("job", {"n1.1"}, R"("status":"run")");
    ProviderReport third = offer("n3");
    MarketPeer n3 = m.agent("n3");
    n3.send(third);
    m.ask_until("status", {}, R"("providers":3)");
    n1.send(job("n1", 2, 200));
    const Order second = n1.expect<Order>();
    ck_assert_text(second.id.text() + " to " + second.node, "n1.2 to n3");
    m.ask_until("job", {"n1.1"}, R"("status":"run")");
    std::ifstream told(dir.path + "/told");
    ck_assert(told.good());
    std::ifstream log(m.dir + "/log");
    const std::string said((std::istreambuf_iterator<char>(log)), {});
    ck_assert_msg(said.find("decides by itself") == std::string::npos, "%s", said.c_str());
}
END_TEST

START_TEST(souks_own_solver_program_decides_as_the_market_would) {
    UNIT_SKIP_IF(impossible());
    const std::string program =
        std::filesystem::path(souk::unit::marketd_path()).replace_filename("solver").string();
    UNIT_SKIP_IF(std::filesystem::exists(program)
                     ? nullptr
                     : "a test of the solver program needs it: make bins");
    MarketRig m("solver_program = [\"" + program + "\"]\nsolver_patience_ms = 60000\n");
    MarketPeer n1 = m.agent("n1"), n2 = m.agent("n2");
    ProviderReport fast = offer("n2");
    fast.speed = 400;
    n1.send(offer("n1"));
    n2.send(fast);
    m.ask_until("list-providers", {}, R"("node":"n1")");
    m.ask_until("list-providers", {}, R"("node":"n2")");
    JobReport low = job("n1", 1, 100);
    n1.send(low);
    Order order = n1.expect<Order>();
    ck_assert_text(order.node, "n2");
    run_it(low, order);
    n1.send(low);
    m.ask_until("job", {"n1.1"}, R"("status":"run")");
    n1.send(job("n1", 2, 200));
    order = n1.expect<Order>();
    ck_assert_text(order.id.text() + " to " + order.node, "n1.1 to n1");
    std::ifstream log(m.dir + "/log");
    const std::string said((std::istreambuf_iterator<char>(log)), {});
    ck_assert_msg(said.find("decides by itself") == std::string::npos, "%s", said.c_str());
}
END_TEST

START_TEST(a_solver_program_that_dies_or_is_late_is_replaced_by_the_own_one) {
    UNIT_SKIP_IF(impossible());
    for (const char* program :
         {R"(["/bin/false"])", R"(["/bin/sleep", "1000"])", R"(["/no/such/program"])",
          R"(["/bin/sh", "-c", "echo error: no; cat"])"}) {
        MarketRig m("solver_program = " + std::string(program) + "\nsolver_patience_ms = 200\n");
        MarketPeer n1 = m.agent("n1");
        n1.send(offer("n1"));
        n1.send(job("n1", 1, 100));
        ck_assert_text(n1.expect<Order>().node, "n1");
        std::ifstream log(m.dir + "/log");
        const std::string said((std::istreambuf_iterator<char>(log)), {});
        ck_assert_msg(said.find("the market decides by itself") != std::string::npos, "%s",
                      said.c_str());
        ck_assert_int_eq(m.stop(), 0);
    }
}
END_TEST

// Long: one story, over two lives of a daemon.
START_TEST(finished_jobs_leave_memory_and_are_found_in_the_records) {
    UNIT_SKIP_IF(impossible());
    constexpr uint64_t jobs = 700;  // more than the machine keeps, and than one look takes
    MarketRig m("finished_max = 600\n");
    MarketPeer n1 = m.agent("n1");
    ProviderReport p = offer("n1");
    p.cpus = 1'000;
    n1.send(p);
    for (uint64_t seq = 1; seq <= jobs; ++seq) {
        JobReport r = job("n1", seq, 100);
        r.uid = seq % 2 ? 1'000 : 1'001;
        r.user = seq % 2 ? "odd" : "even";
        r.phase = JobPhase::finished;
        r.stats.run_time = Nanos::from_s(1);
        r.why = "ended " + std::to_string(seq);
        n1.send(r);
    }
    for (uint64_t settled = 0; settled < jobs; settled += n1.expect<JobNote>().settled) {
    }
    n1.send(job("n1", jobs + 1, 1));
    const std::string count = R"("finish":600)";
    m.ask_until("status", {}, count);
    const auto list = [&](const std::vector<std::string>& filters) {
        std::vector<std::string> ids;
        std::string after;
        do {
            const wire::CtlReply part = m.ask("list-jobs", filters, after);
            ck_assert_msg(part.ok, "%s", part.error.c_str());
            for (size_t at = 0; (at = part.json.find(R"("id":")", at)) != std::string::npos; ++at)
                ids.push_back(part.json.substr(at + 6, part.json.find('"', at + 6) - at - 6));
            after = part.next;
        } while (!after.empty());
        return ids;
    };
    const auto look = [&] {
        // the oldest are erased
        ck_assert_text(m.ask("job", {"n1.100"}).error, "no such job: n1.100");
        const std::string shown = m.ask("job", {"n1.150"}).json;
        ck_assert(shown.find(R"("why":"ended 150","ended_unix_s":)") != std::string::npos);
        ck_assert_text(m.ask("cancel", {"n1.150"}).error, "job n1.150 is finished");
        ck_assert_text(m.ask("cancel", {"n1.100"}).error, "no such job: n1.100");
        const auto all = list({});
        ck_assert_uint_eq(all.size(), 601);
        for (size_t i = 0; i < all.size(); ++i)
            ck_assert_text(all[i], "n1." + std::to_string(101 + i));
        ck_assert_uint_eq(list({"state=live"}).size(), 1);
        const auto newest = list({"state=finish", "user=even", "limit=270"});
        ck_assert_uint_eq(newest.size(), 270);
        for (size_t i = 0; i < newest.size(); ++i)
            ck_assert_text(newest[i], "n1." + std::to_string(700 - 2 * i));
        // the live one, then as they ended
        const auto all_newest = list({"state=all", "limit=300"});
        ck_assert_uint_eq(all_newest.size(), 300);
        for (size_t i = 0; i < all_newest.size(); ++i)
            ck_assert_text(all_newest[i], "n1." + std::to_string(701 - i));
        ck_assert_uint_eq(list({"limit=2000"}).size(), 601);
        ck_assert_uint_eq(list({"state=live", "limit=1"}).size(), 1);
        ck_assert_text(m.ask("list-jobs", {"state=gone"}).error,
                       "'gone' is no state: it is one of live, wait, run, suspend, finish and all");
    };
    look();
    m.kill();
    m.start();
    MarketPeer again = m.agent("n1");
    again.send(job("n1", jobs + 1, 1));
    m.ask_until("status", {}, R"("jobs":{"total":601)");
    look();
    // A home missed the last message about a job that the machine does not know any more. It gets
    // that message again once the job is settled.
    JobReport r = job("n1", 150, 100);
    r.uid = 1'001;
    r.phase = JobPhase::finished;
    again.send(r);
    JobNote note = again.expect<JobNote>();
    while (note.id.seq != 150) note = again.expect<JobNote>();
    ck_assert(note.settled);
    m.ask_until("status", {}, count);
    ck_assert_int_eq(m.stop(), 0);
}
END_TEST

struct SampleConfig {
    int price = 1, port = 1;
    struct {
        int least = 1;
    } limits;
};

// The method: two readings that differ in four keys, one of them of a member of a member; the list
// has two of these and one that is the same in both.
START_TEST(a_running_daemon_takes_the_keys_of_its_list_and_names_those_that_wait) {
    using Limits = decltype(SampleConfig::limits);
    constexpr ReloadedKey<SampleConfig> keys[] = {
        {"least", take_member<&SampleConfig::limits, &Limits::least>},
        {"name", [](SampleConfig&, const SampleConfig&) {}},
        {"price", take_member<&SampleConfig::price>},
    };
    SampleConfig config;
    SampleConfig now;
    now.price = now.port = now.limits.least = 2;
    ConfigText text, read;
    text.values = {{"least", "1"}, {"name", "a"}, {"port", "1"}, {"price", "1"}};
    read.values = {{"least", "2"}, {"name", "a"}, {"new", "1"}, {"port", "2"}, {"price", "2"}};
    const ConfigChange change =
        take_keys(std::span<const ReloadedKey<SampleConfig>>(keys), config, now, text, read);
    ck_assert_text(change.taken, "least, price");
    ck_assert_text(change.not_taken, "new, port");
    ck_assert_int_eq(config.price, 2);
    ck_assert_int_eq(config.limits.least, 2);
    ck_assert_int_eq(config.port, 1);
    ck_assert_text(text.values["price"], "2");
    ck_assert_text(text.values["port"], "1");
    ck_assert(!text.values.contains("new"));
}
END_TEST

UNIT_SUITE(market_daemon, finished_jobs_leave_memory_and_are_found_in_the_records,
           a_job_is_ordered_run_shown_and_settled,
           what_a_node_is_told_of_the_ledger_is_what_stands_there_later,
           a_market_that_was_killed_goes_on_where_it_was,
           a_second_market_on_the_same_port_or_directory_says_so_and_ends,
           an_unknown_key_or_a_bad_value_is_refused_with_its_line,
           garbage_ends_its_own_connection_and_nothing_else,
           a_peer_that_never_reads_is_ended_at_its_bound_and_delays_nobody,
           a_list_of_any_length_comes_in_bounded_parts, a_list_by_pages_has_everything_once,
           an_array_is_one_entry_of_a_folded_list_and_who_runs_comes_first,
           a_newer_connection_of_a_node_replaces_the_older,
           who_asks_is_the_kernels_word_locally_and_the_agents_for_its_own_users,
           a_program_that_speaks_the_text_protocol_can_be_the_solver,
           a_program_that_is_told_places_need_not_name_who_stays,
           souks_own_solver_program_decides_as_the_market_would,
           a_solver_program_that_dies_or_is_late_is_replaced_by_the_own_one,
           a_running_daemon_takes_the_keys_of_its_list_and_names_those_that_wait);
