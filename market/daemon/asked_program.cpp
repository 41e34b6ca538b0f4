// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/asked_program.hpp"

#include <signal.h>
#include <unistd.h>

#include <cerrno>

#include "kernel/base/text.hpp"
#include "kernel/sys/process/program.hpp"

namespace souk {
namespace {

constexpr size_t said_shown = 200;  // bytes of a line of the program's in the log
// souk-ask ends by itself when the program is late. Until then it has this long more.
constexpr Nanos late_most = Nanos::from_s(5);

std::string shown(std::string_view text) { return blank_controls(text.substr(0, said_shown)); }

}  // namespace

AskedProgram::AskedProgram(Loop& loop, Log& log, std::string key, Options options)
    : loop_(loop),
      log_(log),
      key_(std::move(key)),
      options_(std::move(options)),
      waits_(options_.waits_most, options_.waits_of_one) {}

Result<std::string> AskedProgram::check() const {
    if (::geteuid() == 0 && options_.uid == 0)
        return fail(key_ + ": no account for it (programs_user; root runs none of them)");
    Result<std::string> path = check_program(options_.path, ::geteuid());
    return path ? path : wrap(key_, path.error());
}

void AskedProgram::close() {
    life_.reset();
    while (waits_.next()) continue;
    for (const auto& one : running_) (void)one->child.signal(SIGTERM);
    for (const auto& one : running_) {
        if (!one->child.exited_within(late_most).value_or(false)) kill_program(one->child);
        (void)one->child.exited_within(Nanos::from_s(1));
        (void)one->child.reap();
    }
    running_.clear();
}

bool AskedProgram::ask(const std::string& owner, Question question, Answer answer) {
    if (!is_set() || !life_ || !waits_.add(owner, {std::move(question), std::move(answer)}))
        return false;
    if (!std::exchange(starts_, true))
        loop_.defer([this, life = std::weak_ptr(life_)] {
            if (life.expired()) return;
            starts_ = false;
            start_more();
        });
    return true;
}

void AskedProgram::start_more() {
    while (life_ && running_.size() < options_.at_once) {
        auto next = waits_.next();
        if (!next) return;
        const std::string question = next->question();
        if (question.empty()) continue;
        auto started = start(question);
        if (!started) {
            deliver(next->answer, tl::unexpected(started.error()));
            continue;
        }
        running_.push_back(std::move(*started));
        const auto at = std::prev(running_.end());
        Running& running = **at;
        running.answer = std::move(next->answer);
        auto ends = loop_.on_exit(running.child.get(), [this, at] { ended(at); });
        if (!ends) {
            kill_program(running.child);
            (void)running.child.exited_within(Nanos::from_s(1));
            (void)running.child.reap();
            const Answer answer = std::move(running.answer);
            running_.erase(at);
            deliver(answer, tl::unexpected(ends.error()));
            continue;
        }
        running.ends = std::move(*ends);
        running.late =
            loop_.after(options_.limit + late_most, [&running] { kill_program(running.child); });
    }
}

Result<std::unique_ptr<AskedProgram::Running>> AskedProgram::start(const std::string& question) {
    TRY_ASSIGN(const std::string path, check());
    TRY_ASSIGN(Fd asks, memory_file("souk-question", question));
    if (::lseek(asks.get(), 0, SEEK_SET) != 0) return fail_errno("lseek", errno);
    auto running = std::make_unique<Running>();
    TRY_ASSIGN(running->file, memory_file("souk-answer", ""));
    const auto word = [](uint64_t n) { return std::to_string(n); };
    const std::vector<std::string> words = {
        word(options_.uid), word(options_.gid),
        word(static_cast<uint64_t>(options_.limit.ns / 1'000'000)), word(answer_bytes_max), path};
    TRY_ASSIGN(running->child,
               start_program("souk-ask", words, {asks.get(), running->file.get()}, true));
    return running;
}

void AskedProgram::ended(std::list<std::unique_ptr<Running>>::iterator at) {
    const std::unique_ptr<Running> running = std::move(*at);
    running_.erase(at);
    (void)running->child.reap();
    deliver(running->answer, answer_of(*running));
    if (life_) start_more();
}

Result<std::string> AskedProgram::answer_of(const Running& running) {
    constexpr size_t lines = 8 << 10;
    std::string text(answer_bytes_max + lines, '\0');
    const ssize_t got = ::pread(running.file.get(), text.data(), text.size(), 0);
    if (got < 0) return fail_errno("its answer", errno);
    text.resize(static_cast<size_t>(got));
    const size_t why = text.find('\n'), said = why == text.npos ? why : text.find('\n', why + 1);
    if (said == text.npos) return fail("souk-ask has ended without a word");
    const std::string line = shown(std::string_view(text).substr(why + 1, said - why - 1));
    if (!line.empty())
        log_.limited("said " + key_, Loop::now(), Level::info, "a program of the operator says",
                     {{"key", key_}, {"program", options_.path}, {"WHY", line}});
    if (why > 0) return fail(shown(text.substr(0, why)));
    return text.substr(said + 1);
}

void AskedProgram::deliver(const Answer& to, Result<std::string> answer) {
    if (!answer) failed(answer.error());
    to(std::move(answer));
}

void AskedProgram::failed(const Error& why) {
    log_.limited("asked " + key_, Loop::now(), Level::warning,
                 "a program of the operator gives no answer",
                 {{"key", key_}, {"program", options_.path}, {"WHY", why}});
}

}  // namespace souk
