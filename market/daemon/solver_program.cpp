// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/solver_program.hpp"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>

#include "kernel/sys/net/socket.hpp"
#include "market/core/solver_protocol.hpp"

extern char** environ;

namespace souk {
namespace {

constexpr Nanos pause_min = Nanos::from_s(1), pause_max = Nanos::from_s(60);
constexpr size_t line_bytes_max = 4'096, question_bytes_max = 64 << 20;

// On a machine that the program hears of. What must leave its machine runs nowhere, for it.
bool runs_where_told(const market::Market::Problem& problem, const market::JobDemand& job) {
    const auto is_there = [&](const auto& p) { return p.key == job.place; };
    return job.state == market::JobState::running &&
           std::any_of(problem.providers.begin(), problem.providers.end(), is_there);
}

}  // namespace

std::string solver_question(const market::Market::Problem& problem, bool tell_places) {
    namespace command = market::command;
    std::string q;
    const auto say = [&q](const market::Command& c) { q += market::format_command(c) + "\n"; };
    say(command::Reset{});
    for (const auto& [key, p] : problem.providers)
        say(command::AddProvider{key, p.reserve, p.memory_mb, p.cpus, 0, p.speed});
    Nanos first{INT64_MAX}, last{INT64_MIN};
    for (const auto& [key, j] : problem.jobs) {
        first = std::min(first, j.arrival);
        last = std::max(last, j.arrival);
    }
    const auto since = [first](Nanos t) { return (t - first).ns / 1'000'000'000; };
    for (const auto& [key, j] : problem.jobs)
        say(command::AddJob{key, j.value, j.memory_mb, j.cpus, since(j.arrival), -1, j.user});
    if (tell_places)
        for (const auto& [key, j] : problem.jobs) {
            if (j.state == market::JobState::frozen) say(command::PlaceJob{key, j.place, true});
            if (runs_where_told(problem, j)) say(command::PlaceJob{key, j.place, false});
        }
    if (!problem.jobs.empty()) say(command::Time{since(last)});
    say(command::Go{});
    say(command::Alloc{});
    say(command::Info{});
    return q;
}

SolverProgram::SolverProgram(Loop& loop, Log& log, std::vector<std::string> argv, bool tell_places,
                             Nanos patience, std::function<void(Result<Allocation>)> answer)
    : loop_(loop),
      log_(log),
      argv_(std::move(argv)),
      tell_places_(tell_places),
      patience_(patience),
      answer_(std::move(answer)) {}

SolverProgram::~SolverProgram() { stop(); }

Status SolverProgram::start() {
    TRY_ASSIGN(auto ends, socket_pair());
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, ends.second.get(), 0);
    posix_spawn_file_actions_adddup2(&files, ends.second.get(), 1);
    posix_spawnattr_init(&attributes);
    sigset_t none, standard;
    sigemptyset(&none);
    sigfillset(&standard);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &standard);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    std::vector<char*> argv;
    for (std::string& word : argv_) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t pid = 0;
    const int error = posix_spawnp(&pid, argv[0], &files, &attributes, argv.data(), environ);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
    if (error != 0) return fail_errno(argv_[0], error);
    auto child = Pidfd::open(pid);
    if (!child) {
        ::kill(pid, SIGKILL);
        ::waitpid(pid, nullptr, 0);
        return tl::unexpected(child.error());
    }
    child_ = std::move(*child);
    StreamHandlers handlers;
    handlers.on_data = [this](ByteView bytes) { received(text_of(bytes)); };
    handlers.on_error = [this](const Error& e) { failed("its connection broke: " + e.message); };
    handlers.on_eof = [this] { failed("it ended"); };
    const StreamOptions options{.send_queue_bytes_max = question_bytes_max};
    TRY_ASSIGN(stream_, loop_.stream(std::move(ends.first), std::move(handlers), options));
    log_.info("solver program started", {{"program", argv_[0]}, {"pid", static_cast<int>(pid)}});
    return {};
}

void SolverProgram::stop() {
    late_.cancel();
    stream_.close();
    partial_.clear();
    ended_ = true;
    if (!child_) return;
    (void)child_.signal(SIGKILL);
    (void)child_.exited_within(Nanos::from_s(2));
    (void)child_.reap();
    child_ = {};
}

void SolverProgram::ask(const market::Market::Problem& problem) {
    answering_.emplace();
    ended_ = false;
    lines_max_ = problem.jobs.size();
    runs_.clear();
    for (const auto& [key, j] : problem.jobs)
        if (tell_places_ && runs_where_told(problem, j)) runs_.emplace(key, j.place);
    if (!child_) {
        if (Loop::now() < start_again_)
            return loop_.defer(
                [this] { deliver(fail(argv_[0] + " is not running; it is started again later")); });
        if (const Status started = start(); !started)
            return loop_.defer([this, why = started.error().message] { failed(why); });
    }
    if (const Status sent = stream_.send(bytes_of(solver_question(problem, tell_places_))); !sent)
        return loop_.defer([this, why = sent.error().message] { failed(why); });
    late_ = loop_.after(patience_, [this] {
        failed("no answer within " + std::to_string(patience_.ns / 1'000'000) + " ms");
    });
}

void SolverProgram::received(std::string_view text) {
    partial_ += text;
    size_t at = 0;
    for (size_t end; (end = partial_.find('\n', at)) != std::string::npos; at = end + 1) {
        std::string one = partial_.substr(at, end - at);
        if (!one.empty() && one.back() == '\r') one.pop_back();
        line(one);
        if (!child_) return;
    }
    partial_.erase(0, at);
    if (partial_.size() > line_bytes_max) failed("a line without end");
}

void SolverProgram::line(std::string_view text) {
    if (ended_) return;  // the rest of its `info`
    if (text.empty()) return;
    if (const std::string_view error = market::error_of(text); !error.empty())
        return failed("it says: " + std::string(error.substr(0, 200)));
    if (const auto one = market::parse_alloc_line(text)) {
        if (answering_->size() >= lines_max_) return failed("more lines than jobs");
        answering_->push_back({one->job, one->provider});
        runs_.erase(one->job);
        return;
    }
    pause_ = {};
    for (const auto& [job, place] : runs_) answering_->push_back({job, place});  // they stay
    deliver(std::move(*answering_));
}

void SolverProgram::failed(const std::string& why) {
    stop();
    pause_ = std::clamp(Nanos{pause_.ns * 2}, pause_min, pause_max);
    start_again_ = Loop::now() + pause_;
    if (answering_)
        deliver(fail(argv_[0] + ": " + why));
    else
        log_.limited("program", Loop::now(), Level::warning, "solver program",
                     {{"program", argv_[0]}, {"WHY", why}});
}

void SolverProgram::deliver(Result<Allocation> allocation) {
    answering_.reset();
    ended_ = true;
    late_.cancel();
    answer_(std::move(allocation));
}

}  // namespace souk
