// SPDX-License-Identifier: GPL-2.0-or-later
// souk-ask: asks a program of the operator one question, and leaves nothing of it behind. marketd
// starts it for each question (market/daemon/asked_program.hpp), with the question as fd 3 and an
// empty file for the answer as fd 4, and waits for its end alone.
//
// The program gets the question as its standard input, no other descriptor, no arguments and an
// environment without anything of marketd's. It has a limit of time, of memory and of processes.
// Whatever it has started is ended with it: souk-ask is the reaper of all that comes of it, and
// ends when none of that is left. If marketd ends first, so does all of this.
//
// The answer file begins with two lines: why there is no answer (empty: there is one), and the
// first line that the program has written to its standard error. The rest is its standard output.
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kernel/base/number.hpp"
#include "kernel/base/version.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::ask {
namespace {

constexpr int question_fd = 3, answer_fd = 4;
constexpr size_t said_max = 4'096;                     // of the standard error
constexpr Nanos sweep_limit = Nanos::from_s(3);        // until what is left behind has ended
constexpr rlim_t memory_max = rlim_t{1} << 30;         // data of one process
constexpr rlim_t processes_max = 256, files_max = 64;  // of its user; open ones of a process

struct Words {
    uint32_t uid = 0, gid = 0;  // 0: as this process
    Nanos limit;
    size_t answer_max = 0;
    const char* program = nullptr;
};

struct Asked {
    pid_t pid = 0;
    Fd out, err;
    std::string answer, said;
    bool is_long = false;
};

Result<Words> words_of(int argc, char** argv) {
    const auto uid = argc == 6 ? whole_number<uint32_t>(argv[1]) : std::nullopt;
    const auto gid = argc == 6 ? whole_number<uint32_t>(argv[2]) : std::nullopt;
    const auto limit = argc == 6 ? whole_number<uint32_t>(argv[3]) : std::nullopt;
    const auto most = argc == 6 ? whole_number<uint32_t>(argv[4]) : std::nullopt;
    if (!uid || !gid || !limit || !most) return fail("marketd starts it");
    return Words{*uid, *gid, Nanos::from_ms(*limit), *most, argv[5]};
}

void bound(__rlimit_resource what, rlim_t most) {
    rlimit now{};
    if (::getrlimit(what, &now) != 0) return;
    now.rlim_cur = std::min(now.rlim_max, most);
    now.rlim_max = now.rlim_cur;
    // A sandbox may forbid it, and then has bounds of its own.
    (void)::setrlimit(what, &now);
}

// In the child. Returns what could not be done.
const char* become_program(const Words& w, int out, int err) {
    ::setpgid(0, 0);
    if (::dup2(question_fd, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0) return "dup2";
    ::close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
    if (::chdir("/") != 0) return "chdir";
    if (w.uid != 0) {
        if (::setgroups(0, nullptr) != 0) return "setgroups";
        if (::setresgid(w.gid, w.gid, w.gid) != 0) return "setresgid";
        if (::setresuid(w.uid, w.uid, w.uid) != 0) return "setresuid";
    }
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return "no_new_privs";
    bound(RLIMIT_CORE, 0);
    bound(RLIMIT_DATA, memory_max);
    bound(RLIMIT_NOFILE, files_max);
    bound(RLIMIT_NPROC, processes_max);
    bound(RLIMIT_CPU, static_cast<rlim_t>(w.limit.ns / 1'000'000'000) + 1);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    std::string program = w.program;
    char path[] = "PATH=/usr/local/bin:/usr/bin:/bin", language[] = "LANG=C.UTF-8";
    char* const argv[] = {program.data(), nullptr};
    char* const environment[] = {path, language, nullptr};
    ::execve(argv[0], argv, environment);
    return "run";
}

Result<Asked> begin(const Words& w) {
    TRY_ASSIGN(Pipe out, make_pipe());
    TRY_ASSIGN(Pipe err, make_pipe());
    const pid_t pid = ::fork();
    if (pid < 0) return fail_errno("fork", errno);
    if (pid == 0) {
        const char* const what = become_program(w, out.write_end.get(), err.write_end.get());
        std::fprintf(stderr, "%s: %s\n", what, std::strerror(errno));
        ::_exit(127);
    }
    ::setpgid(pid, pid);
    Asked asked;
    asked.pid = pid;
    asked.out = std::move(out.read_end);
    asked.err = std::move(err.read_end);
    for (const Fd* fd : {&asked.out, &asked.err})
        if (::fcntl(fd->get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno("fcntl", errno);
    return asked;
}

// Reads what is there, and keeps so much of it. Returns false at its end.
bool drain(Fd& fd, std::string& into, size_t most, bool* is_long) {
    char bytes[16 << 10];
    // A writer that never rests gets no more than its share of this process's time.
    for (int n = 0; n < 64; ++n) {
        const ssize_t got = ::read(fd.get(), bytes, sizeof bytes);
        if (got < 0) return errno == EAGAIN || errno == EINTR;
        if (got == 0) return false;
        const size_t room = most - into.size(), some = std::min(room, static_cast<size_t>(got));
        into.append(bytes, some);
        if (is_long && some < static_cast<size_t>(got)) *is_long = true;
    }
    return true;
}

void take(Asked& a, size_t most) {
    if (a.out && !drain(a.out, a.answer, most, &a.is_long)) a.out.reset();
    if (a.err && !drain(a.err, a.said, said_max, nullptr)) a.err.reset();
}

std::string how_it_ended(int status) {
    if (WIFSIGNALED(status)) return "it was killed by signal " + std::to_string(WTERMSIG(status));
    const int code = WEXITSTATUS(status);
    return code == 0 ? "" : "it ended with status " + std::to_string(code);
}

// Waits for the program, and reads what it says meanwhile. Returns why there is no answer.
std::string listen(Asked& a, const Words& w, int signals) {
    const Nanos until = monotonic_now() + w.limit;
    for (;;) {
        int status = 0;
        if (::waitpid(a.pid, &status, WNOHANG) == a.pid) {
            take(a, w.answer_max);
            if (a.is_long)
                return "its answer is longer than " + std::to_string(w.answer_max) + " bytes";
            return how_it_ended(status);
        }
        const Nanos left = until - monotonic_now();
        if (left.ns <= 0)
            return "no answer within " + std::to_string(w.limit.ns / 1'000'000) + " ms";
        pollfd on[] = {{signals, POLLIN, 0}, {a.out.get(), POLLIN, 0}, {a.err.get(), POLLIN, 0}};
        (void)::poll(on, 3, static_cast<int>(left.ns / 1'000'000) + 1);
        signalfd_siginfo info{};
        while (::read(signals, &info, sizeof info) == sizeof info)
            if (info.ssi_signo == SIGTERM) return "marketd asks no more";
        take(a, w.answer_max);
        if (a.is_long)
            return "its answer is longer than " + std::to_string(w.answer_max) + " bytes";
    }
}

// Kills what it has left behind, which becomes this process's when its parent ends.
bool kill_children() {
    const std::string self = std::to_string(::getpid());
    const auto text = read_file(AT_FDCWD, "/proc/self/task/" + self + "/children");
    if (!text) return false;
    const char* at = text->c_str();
    for (char* end = nullptr;; at = end) {
        const long pid = std::strtol(at, &end, 10);
        if (end == at || pid <= 0) break;
        const pid_t group = ::getpgid(static_cast<pid_t>(pid));
        if (group > 0 && group != ::getpgrp()) ::kill(-group, SIGKILL);
        ::kill(static_cast<pid_t>(pid), SIGKILL);
    }
    return true;
}

// Ends all that is left. False: something is still there.
bool sweep(pid_t program) {
    const Nanos until = monotonic_now() + sweep_limit;
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    ::kill(-program, SIGKILL);
    while (monotonic_now() < until) {
        (void)kill_children();
        for (;;) {
            const pid_t ended = ::waitpid(-1, nullptr, WNOHANG);
            if (ended < 0) return errno == ECHILD;
            if (ended == 0) break;
        }
        const timespec pause{0, 2'000'000};
        (void)::sigtimedwait(&child, nullptr, &pause);
    }
    return false;
}

// The first line with something in it.
std::string first_line(const std::string& said) {
    const size_t begin = said.find_first_not_of("\r\n");
    return begin == said.npos ? "" : said.substr(begin, said.find_first_of("\r\n", begin) - begin);
}

Status answer(const std::string& why, const Asked& a) {
    const std::string text = why + "\n" + first_line(a.said) + "\n" + (why.empty() ? a.answer : "");
    return write_all(answer_fd, text, "the answer");
}

Result<int> watch_signals() {
    sigset_t some;
    sigemptyset(&some);
    sigaddset(&some, SIGCHLD);
    sigaddset(&some, SIGTERM);
    if (::sigprocmask(SIG_SETMASK, &some, nullptr) != 0) return fail_errno("sigprocmask", errno);
    const int fd = ::signalfd(-1, &some, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) return fail_errno("signalfd", errno);
    return fd;
}

Status ask(const Words& w) {
    if (::prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0) return fail_errno("subreaper", errno);
    TRY_ASSIGN(const int signals, watch_signals());
    TRY_ASSIGN(Asked a, begin(w));
    std::string why = listen(a, w, signals);
    if (!sweep(a.pid) && why.empty()) why = "processes that it has started do not end";
    return answer(why, a);
}

int run(int argc, char** argv) {
    if (version_asked("souk-ask", argc, argv)) return 0;
    const pid_t parent = ::getppid();
    const auto words = words_of(argc, argv);
    if (!words) {
        std::fprintf(stderr, "souk-ask: %s; it takes no words of people\n",
                     words.error().message.c_str());
        return 2;
    }
    if (::prctl(PR_SET_PDEATHSIG, SIGTERM, 0, 0, 0) != 0 || ::getppid() != parent) return 1;
    for (const int fd : {question_fd, answer_fd})
        if (::fcntl(fd, F_SETFD, FD_CLOEXEC) != 0) return 1;
    if (const Status asked = ask(*words); !asked) {
        (void)write_all(answer_fd, asked.error().message + "\n\n", "the answer");
        return 1;
    }
    return 0;
}

}  // namespace
}  // namespace souk::ask

int main(int argc, char** argv) { return souk::ask::run(argc, argv); }
