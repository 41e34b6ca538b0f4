// SPDX-License-Identifier: GPL-2.0-or-later
// The operator's programs (docs/filters.md): what counts as an answer, whose turn it is, and what a
// real marketd makes of a submit filter that is silent, dies or speaks nonsense.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>  // before Check, whose macro fail() would break it

#include "kernel/base/turn_queue.hpp"
#include "kernel/sys/process/program.hpp"
#include "market/core/submit_turns.hpp"
#include "market/wire/program_words.hpp"
#include "tests/unit/market_rig.hpp"

using namespace souk;
using souk::unit::MarketPeer;
using souk::unit::MarketRig;

namespace {

const char* impossible() {
    if (::geteuid() != 0) return "a test of programs of another user needs root";
    if (std::filesystem::exists(souk::unit::marketd_path())) return nullptr;
    return "a test of marketd needs its program: make bins";
}

// A directory whose programs another user may run.
struct Programs {
    unit::TempDir dir;
    Programs() { ::chmod(dir.path.c_str(), 0755); }
    std::string put(const std::string& name, const std::string& text) const {
        const std::string path = dir.path + "/" + name, next = path + ".new";
        std::ofstream(next) << text;
        ::chmod(next.c_str(), 0755);
        std::filesystem::rename(next, path);
        return path;
    }
};

ProviderReport offer(const std::string& node) {
    ProviderReport p;
    p.node = node;
    p.on_market = true;
    p.reserve = Money::units(1);
    p.memory_mb = p.free_mb = 1000;
    return p;
}

JobReport job(const std::string& home, uint64_t seq, int32_t cpus = 1) {
    JobReport r;
    r.id = {home, seq};
    r.terms.max_price = Money::units(50);
    r.terms.cpus = cpus;
    r.uid = 1000;
    r.user = "alice";
    r.command = "sleep 1";
    r.submitted = Nanos::from_s(1'700'000'000);
    return r;
}

constexpr const char* accepts = "#!/bin/sh\necho '{\"accept\": true}'\n";

std::string settings(const std::string& path) {
    return "submit_filter = \"" + path + "\"\nprograms_limit_ms = 500\n";
}

// A process whose command line has this text.
bool somebody_has(const std::string& text) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        std::ifstream file(entry.path() / "cmdline");
        const std::string line((std::istreambuf_iterator<char>(file)), {});
        if (line.find(text) != std::string::npos) return true;
    }
    return false;
}

}  // namespace

START_TEST(owners_take_turns_and_a_full_queue_takes_no_more) {
    TurnQueue<int> queue(5, 3);
    ck_assert(!queue.next());
    for (const int n : {1, 2, 3}) ck_assert(queue.add("a", n));
    ck_assert(!queue.add("a", 4));
    ck_assert(queue.add("b", 11) && queue.add("b", 12));
    ck_assert(!queue.add("c", 21));
    std::vector<int> order;
    while (const auto n = queue.next()) order.push_back(*n);
    ck_assert(order == std::vector<int>({1, 11, 2, 12, 3}));
    ck_assert(queue.add("c", 21) && queue.size() == 1);
}
END_TEST

START_TEST(jobs_take_turns_by_home_and_user_and_none_that_waits_pauses) {
    SubmitTurns turns;
    const auto at = Nanos::from_s;
    // All come due at once, and each is asked about once.
    constexpr uint64_t many = 50'000;
    for (uint64_t n = 1; n <= many; ++n) {
        turns.later({"a", n}, static_cast<uint32_t>(n % 16), at(1));
        turns.add({"a", n}, static_cast<uint32_t>(n % 16));
    }
    turns.tick(turns.wakes());
    turns.tick(at(20));
    ck_assert(turns.wakes() == Nanos::never());
    // Many users of one home are before nobody of another.
    turns.add({"b", 1}, 1);
    turns.add({"b", 2}, 1);
    turns.add({"b", 3}, 2);
    std::vector<JobId> first;
    for (int n = 0; n < 6; ++n) first.push_back(*turns.next());
    const std::vector<JobId> wanted = {{"a", 1}, {"b", 1}, {"a", 2}, {"b", 3}, {"a", 3}, {"b", 2}};
    ck_assert(first == wanted);
    uint64_t rest = 3;
    while (turns.next()) ++rest;
    ck_assert_uint_eq(rest, many);
    // Pauses grow until there is an answer.
    const JobId silent{"b", 9};
    for (const int64_t pause : {10, 20, 40, 80, 160, 300, 300}) {
        // It paused 5 s first, with the others' like.
        if (pause == 10) turns.later(silent, 1, {});
        turns.tick(turns.wakes());
        ck_assert(turns.next() == silent);
        turns.later(silent, 1, at(1'000));
        ck_assert(turns.wakes() == at(1'000 + pause));
    }
    turns.settled(silent);
    turns.tick(at(2'000));
    ck_assert(turns.next() == silent);
    turns.later(silent, 1, at(3'000));
    ck_assert(turns.wakes() == at(3'005));
}
END_TEST

START_TEST(an_answer_of_the_submit_filter_is_taken_whole_or_not_at_all) {
    using namespace program_words;
    using State = market::FilterWord::State;
    auto word = submit_answer(
        R"({"accept": true, "token": "t=1", "bar": ["far", "uni"], "needs": "gpu", "hold": true})");
    ck_assert(word && word->state == State::passed && word->hold);
    ck_assert_text(word->token + "|" + word->bars + "|" + word->needs, "t=1|far,uni|gpu");
    word = submit_answer(R"({"accept": false, "reason": "too\u0007 big"})");
    ck_assert(word && word->state == State::refused);
    ck_assert_text(word->why, "too  big");
    const std::string long_token(1'025, 'x');
    for (const std::string& text : {
             std::string(),
             std::string("yes"),
             std::string("[]"),
             std::string("{}"),
             std::string(R"({"accept": 1})"),
             std::string(R"({"accept": true} {"accept": true})"),
             std::string(R"({"accept": true, "priority": 5})"),
             std::string(R"({"accept": true, "token": 7})"),
             std::string(R"({"accept": true, "token": "a\u0000b"})"),
             std::string(R"({"accept": true, "token": "a\nb"})"),
             R"({"accept": true, "token": ")" + long_token + "\"}",
             std::string(R"({"accept": true, "bar": [1]})"),
             std::string(R"({"accept": true, "bar": "no site!"})"),
             std::string(R"({"accept": true, "needs": "and and"})"),
             std::string(R"({"accept": true, "hold": "no"})"),
             std::string("{\"accept\": true, \"token\": \"\xff\"}"),
             std::string(10'000, '['),
         }) {
        const auto none = submit_answer(text);
        ck_assert_msg(!none, "%s", text.substr(0, 60).c_str());
        ck_assert(none.error().message.find('\n') == std::string::npos);
    }
}
END_TEST

START_TEST(answers_of_the_other_programs_are_taken_whole_or_not_at_all) {
    using namespace program_words;
    auto arrival = arrival_answer(R"({"accept": true, "least": 2.5})");
    ck_assert(arrival && arrival->no.empty());
    ck_assert_text(format_money(arrival->least), "2.5");
    arrival = arrival_answer(R"({"accept": false})");
    ck_assert(arrival && !arrival->no.empty());
    for (const char* text :
         {R"({"accept": true, "least": -1})", R"({"accept": true, "least": true})",
          R"({"accept": true, "least": 1e300})", R"({"least": 3})"})
        ck_assert_msg(!arrival_answer(text), "%s", text);
    ck_assert_text(user_answer(R"({"user": "deisa7"})").value_or("?"), "deisa7");
    ck_assert_text(user_answer(R"({"user": null})").value_or("?"), "");
    for (const char* text : {R"({"user": "root"})", R"({"user": ""})", R"({"user": 1000})", "{}",
                             R"({"user": "a b"})", R"({"user": "-x"})", R"({"user": "a/b"})"})
        ck_assert_msg(!user_answer(text), "%s", text);
    const std::vector<std::string> sites = {"", "far", "uni"};
    const auto at = [&](const Result<Choice>& c) {
        return !c ? -2 : c->at ? static_cast<int>(*c->at) : -1;
    };
    ck_assert_int_eq(at(least_of(R"({"metric": {"own": 3, "uni": -1.5, "far": null}})", sites)), 2);
    ck_assert_int_eq(at(least_of(R"({"metric": {"uni": 1, "far": 1}})", sites)), 1);
    ck_assert_int_eq(at(least_of(R"({"metric": {}})", sites)), -1);
    ck_assert_int_eq(at(least_of(R"({"metric": {"else": 1}})", sites)), -2);
    ck_assert_int_eq(at(least_of(R"({"metric": {"uni": "1"}})", sites)), -2);
    ck_assert_int_eq(at(least_of(R"({"metric": [1]})", sites)), -2);
    ck_assert_int_eq(at(rerouted(R"({"move": "far"})", sites)), 1);
    ck_assert_int_eq(at(rerouted(R"({"move": "own"})", sites)), 0);
    ck_assert_int_eq(at(rerouted(R"({"move": null, "reason": "good here"})", sites)), -1);
    ck_assert_int_eq(at(rerouted(R"({"move": "else"})", sites)), -2);
    ck_assert_int_eq(at(rerouted(R"({"move": 1})", sites)), -2);
    ck_assert_int_eq(at(rerouted("{}", sites)), -2);
}
END_TEST

START_TEST(a_program_that_others_may_change_is_not_run) {
    UNIT_SKIP_IF(impossible());
    const Programs programs;
    const std::string path = programs.put("filter", accepts);
    ck_assert(check_program(path, 0));
    ck_assert(!check_program("filter", 0) && !check_program(path + ".none", 0));
    const auto refused = [&](const char* word) {
        const auto good = check_program(path, 0);
        ck_assert(!good && good.error().message.find(word) != std::string::npos);
    };
    ::chmod(path.c_str(), 0775);
    refused("others than root may change it");
    ::chmod(path.c_str(), 0644);
    refused("not an executable");
    ::chmod(path.c_str(), 0755);
    ck_assert_int_eq(::chown(path.c_str(), 65'534, 65'534), 0);
    refused("others than root may change it");
    ck_assert(check_program(path, 65'534));
    ck_assert_int_eq(::chown(path.c_str(), 0, 0), 0);
    ::chmod(programs.dir.path.c_str(), 0777);
    refused("may change its directory");
    ::chmod(programs.dir.path.c_str(), 0755);
    // The program that a link names is run, if nobody else can turn the link.
    const std::string shared = programs.dir.path + "/shared", mine = programs.dir.path + "/mine";
    std::filesystem::create_symlink(path, mine);
    ck_assert_text(check_program(mine, 0).value_or("?"), path);
    std::filesystem::create_directory(shared);
    std::filesystem::create_symlink(path, shared + "/filter");
    ck_assert(check_program(shared + "/filter", 0));
    ::chmod(shared.c_str(), 0777);
    const auto turned = check_program(shared + "/filter", 0);
    ck_assert(!turned &&
              turned.error().message.find("change its directory " + shared) != std::string::npos);
    ::chmod(shared.c_str(), 01777);
    ck_assert(check_program(shared + "/filter", 0));
    ck_assert_int_eq(::lchown((shared + "/filter").c_str(), 65'534, 65'534), 0);
    ck_assert(!check_program(shared + "/filter", 0));
    const MarketRig m;
    std::string said;
    const std::string other = m.config("127.0.0.1:0", m.dir + "/other", m.dir + "/other.sock");
    ::chmod(path.c_str(), 0777);
    ck_assert_int_ne(m.run_other(other + settings(path), said), 0);
    ck_assert_msg(said.find("submit_filter: " + path + ": others than root") != std::string::npos,
                  "%s", said.c_str());
}
END_TEST

// The filter sees the job, and lets none through that asks for much. It runs as somebody else, with
// nothing of marketd's.
START_TEST(a_submit_filter_lets_a_job_pass_or_refuses_it_with_its_words) {
    UNIT_SKIP_IF(impossible());
    const Programs programs;
    const std::string path = programs.put(
        "submit",
        "#!/usr/bin/python3\n"
        "import json, os, sys\n"
        "job = json.load(sys.stdin)\n"
        "alone = os.getuid() == 65534 and not os.getgroups() and set(os.environ) <= "
        "{'PATH', 'LANG', 'LC_CTYPE'} and len(os.listdir('/proc/self/fd')) == 4\n"
        "good = alone and job['user'] == 'alice' and job['cpus'] < 4\n"
        "print(json.dumps({'accept': True, 'token': 'of ' + job['command'], 'bar': ['far']} if good"
        " else {'accept': False, 'reason': 'at most 3 CPUs'}))\n");
    MarketRig m("submit_filter = \"" + path + "\"\nprograms_limit_ms = 20000\n");
    MarketPeer n1 = m.agent("n1");
    n1.send(offer("n1"));
    n1.send(job("n1", 1, 4));
    const std::string why = m.ask_until("job", {"n1.1"}, R"("code":"filter_refused")");
    ck_assert(why.find("the submit filter refuses it: at most 3 CPUs") != std::string::npos);
    n1.send(job("n1", 2));
    ck_assert_text(n1.expect<Order>().id.text(), "n1.2");
    const std::string shown =
        m.ask_until("job", {"n1.2"}, R"("filter":{"state":"passed","token":"of sleep 1")");
    ck_assert(shown.find(R"("bars":"far")") != std::string::npos);
    // The filter's word outlives the market, and it is not asked again.
    m.kill();
    programs.put("submit", "#!/bin/sh\nexit 1\n");
    m.start();
    m.ask_until("job", {"n1.2"}, R"("token":"of sleep 1")");
    (void)m.ask_until("job", {"n1.1"}, R"("state":"refused")");
    n1 = m.agent("n1");
    n1.send(offer("n1"));
    n1.send(job("n1", 1, 4));
    // An operator lets it pass. (Its home gives n1.2 the first place.)
    m.ask_until("job", {"n1.1"}, R"("code":"filter_refused")");
    ck_assert(m.ask("release", {"n1.1"}).ok);
    m.ask_until("job", {"n1.1"}, R"("filter":{"state":"passed")");
}
END_TEST

// Each of them leaves the job waiting, with the reason, and it is asked about again.
START_TEST(a_submit_filter_that_gives_no_answer_keeps_the_job_and_is_asked_again) {
    UNIT_SKIP_IF(impossible());
    const Programs programs;
    const std::string path = programs.put("submit", accepts);
    MarketRig m(settings(path));
    MarketPeer n1 = m.agent("n1");
    n1.send(offer("n1"));
    const struct {
        const char* program;
        const char* said;
    } cases[] = {
        {"#!/bin/sh\nsleep 1000\n", "no answer within 500 ms"},
        {"#!/bin/sh\nkill -SEGV $$\n", "it was killed by signal 11"},
        {"#!/bin/sh\nprintf 'no \\033[31mway\\n' >&2\nexit 1\n", "it ended with status 1\""},
        {"#!/bin/sh\necho yes\n", "its answer is no JSON"},
        {"#!/bin/sh\nyes\n", "its answer is longer than 65536 bytes"},
        {"#!/bin/sh\necho '{\"accept\": \"yes\"}'\n", "its answer needs true or false"},
        {"#!/bin/sh\necho '{\"accept\": true, \"sudo\": 1}'\n", "has the key 'sudo'"},
        {"no program\n", "it ended with status 127"},
    };
    uint64_t seq = 0;
    for (const auto& one : cases) {
        programs.put("submit", one.program);
        const std::string id = "n1." + std::to_string(++seq);
        n1.send(job("n1", seq));
        const std::string shown = m.ask_until("job", {id}, R"("code":"filter_silent")");
        ck_assert_msg(shown.find(one.said) != std::string::npos, "%s\n%s", one.said, shown.c_str());
        ck_assert(shown.find(R"("status":"wait")") != std::string::npos);
        ck_assert(shown.find("[31mway") == std::string::npos);  // it is in the log alone
    }
    programs.put("submit", accepts);
    ck_assert(n1.expect<Order>().id.text().starts_with("n1."));
    ck_assert_int_eq(m.stop(), 0);
}
END_TEST

// It forks without end, and what it leaves in sessions of their own ends as well.
START_TEST(nothing_that_a_program_has_started_is_left) {
    UNIT_SKIP_IF(impossible());
    const Programs programs;
    const std::string mark = programs.dir.path + "/left";
    programs.put("left", "#!/bin/sh\nsleep 1000\n");
    const std::string path =
        programs.put("submit", "#!/bin/bash\nfor i in 1 2 3; do\n  (setsid " + mark +
                                   " </dev/null >/dev/null 2>&1 &)\n"
                                   "done\n" +
                                   mark + " &\necho '{\"accept\": true}'\n");
    MarketRig m("submit_filter = \"" + path + "\"\nprograms_limit_ms = 20000\n");
    MarketPeer n1 = m.agent("n1");
    n1.send(offer("n1"));
    n1.send(job("n1", 1));
    ck_assert_text(n1.expect<Order>().id.text(), "n1.1");
    ck_assert(!somebody_has(mark));
    programs.put("submit", "#!/bin/bash\nbomb() { " + mark + " & bomb | bomb & }; bomb\nwait\n");
    n1.send(job("n1", 2));
    m.ask_until("job", {"n1.2"}, R"("code":"filter_asked")");
    while (!somebody_has(mark)) continue;
    ck_assert_int_eq(m.stop(), 0);  // while it still runs
    ck_assert(!somebody_has(mark));
}
END_TEST

UNIT_SUITE_LONG(filters, 120, owners_take_turns_and_a_full_queue_takes_no_more,
                jobs_take_turns_by_home_and_user_and_none_that_waits_pauses,
                an_answer_of_the_submit_filter_is_taken_whole_or_not_at_all,
                answers_of_the_other_programs_are_taken_whole_or_not_at_all,
                a_program_that_others_may_change_is_not_run,
                a_submit_filter_lets_a_job_pass_or_refuses_it_with_its_words,
                a_submit_filter_that_gives_no_answer_keeps_the_job_and_is_asked_again,
                nothing_that_a_program_has_started_is_left);
