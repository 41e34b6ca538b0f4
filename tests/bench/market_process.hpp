// SPDX-License-Identifier: GPL-2.0-or-later
// MarketProcess: a real marketd of a benchmark's own, on one core, in a temporary directory. It
// ends with the benchmark. What it costs is read from /proc. Whatever fails ends the benchmark with
// one line.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "kernel/sys/loop/loop.hpp"
#include "tools/common/ask.hpp"

namespace souk::bench {

// The directories of this run's processes: they go also when the run fails.
inline std::set<std::string>& directories() {
    static std::set<std::string> all;
    return all;
}

inline void remove_directory(const std::string& path) {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
    directories().erase(path);
}

[[noreturn]] inline void fatal(const std::string& why) {
    std::fprintf(stderr, "bench: %s\n", why.c_str());
    while (!directories().empty()) remove_directory(std::string(*directories().begin()));
    std::exit(1);
}

template <class T>
T value(Result<T> result) {
    if (!result) fatal(result.error().message);
    return std::move(*result);
}

inline std::string file_text(const std::string& path) {
    std::ifstream file(path);
    std::stringstream all;
    all << file.rdbuf();
    return all.str();
}

// Keeps this process on these processors from now on. Nothing happens on a machine with one
// processor.
inline void stay_on(bool first) {
    const long n = ::sysconf(_SC_NPROCESSORS_ONLN);
    if (n < 2) return;
    cpu_set_t set;
    CPU_ZERO(&set);
    if (first) CPU_SET(0, &set);
    for (long i = 1; !first && i < n; ++i) CPU_SET(static_cast<size_t>(i), &set);
    (void)::sched_setaffinity(0, sizeof set, &set);
}

// Raises the number of files that this process may have open as far as the kernel allows.
inline size_t raise_descriptors() {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max;
    (void)::setrlimit(RLIMIT_NOFILE, &limit);
    return static_cast<size_t>(limit.rlim_cur);
}

class MarketProcess {
  public:
    // The market runs without TLS, unless `tls` is set: then its certificates lie in
    // `dir`/identity. SOUK_BENCH_MARKETD holds more lines of its configuration, to compare
    // settings.
    explicit MarketProcess(std::string more_config = {}, bool tls = false)
        : more_(std::move(more_config)) {
        if (const char* lines = std::getenv("SOUK_BENCH_MARKETD")) more_ += lines;
        const char* base = std::getenv("SOUK_BENCH_DIR");
        std::string name = std::string(base ? base : "/var/tmp") + "/souk-bench-XXXXXX";
        if (!::mkdtemp(name.data())) fatal("no directory " + name);
        dir = name;
        directories().insert(dir);
        more_ += tls ? "identity = \"" + dir + "/identity\"\n" : std::string("insecure = true\n");
    }
    ~MarketProcess() {
        end(SIGKILL);
        remove_directory(dir);
    }

    // Starts marketd and waits until it answers `status`. Returns the time from exec to that, in
    // seconds. The first start chooses a port and keeps it.
    double start() {
        {
            std::ofstream file(dir + "/m.toml");
            file << "name = \"m\"\nlisten = \"127.0.0.1:" << port << "\"\nstate = \"" << dir
                 << "/state\"\nsocket = \"" << dir << "/m.sock\"\n"
                 << more_;
        }
        std::error_code ignored;
        std::filesystem::remove(dir + "/log", ignored);
        const std::string program =
            (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() /
             "bin/marketd")
                .string();
        const Nanos began = Loop::now();
        pid = ::fork();
        if (pid < 0) fatal("fork");
        if (pid == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            stay_on(true);
            const int log = ::open((dir + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
            ::dup2(log, 2);
            const std::string counter =
                std::filesystem::read_symlink("/proc/self/exe").parent_path() / "count_sync.so";
            ::setenv("LD_PRELOAD", counter.c_str(), 1);
            ::setenv("SOUK_SYNC_COUNT", (dir + "/syncs").c_str(), 1);
            ::execl(program.c_str(), "marketd", "--config", (dir + "/m.toml").c_str(), nullptr);
            ::_exit(127);
        }
        constexpr Nanos limit = Nanos::from_s(300);
        while (!answer_to("status", {}, Nanos{})) {
            if (::waitpid(pid, nullptr, WNOHANG) != 0)
                fatal("marketd ended: " + file_text(dir + "/log"));
            if (Loop::now() - began > limit) fatal("marketd does not answer within 300 s");
            ::poll(nullptr, 0, 1);
        }
        const double s = static_cast<double>((Loop::now() - began).ns) / 1e9;
        const std::string log = file_text(dir + "/log");
        if (const size_t at = log.find(" port="); at != std::string::npos)
            port = std::atoi(log.c_str() + at + 6);
        return s;
    }
    void end(int signal) {
        if (pid <= 0) return;
        ::kill(pid, signal);
        ::waitpid(pid, nullptr, 0);
        pid = 0;
    }
    Result<tools::Answer> answer_to(const std::string& verb, const std::vector<std::string>& args,
                                    Nanos patience) const {
        return tools::ask([this] { return Result<std::string>(dir + "/m.sock"); }, verb, args,
                          patience);
    }
    std::string ask(const std::string& verb, std::vector<std::string> args = {}) const {
        auto answer = answer_to(verb, args, Nanos::from_s(10));
        if (!answer) fatal(verb + ": " + answer.error().message);
        return value(tools::joined(std::move(*answer)));
    }
    // A number of `status`, wherever it stands in it.
    double number(const std::string& key) const {
        const std::string json = ask("status");
        const size_t at = json.find("\"" + key + "\":");
        return at == std::string::npos ? -1 : std::atof(json.c_str() + at + key.size() + 3);
    }
    // KiB of a line of /proc/PID/status.
    long kib(const std::string& key) const {
        const std::string text = file_text("/proc/" + std::to_string(pid) + "/status");
        const size_t at = text.find(key + ":");
        return at == std::string::npos ? 0 : std::atol(text.c_str() + at + key.size() + 1);
    }
    // CPU time that it has used, in seconds.
    double cpu_s() const {
        return std::atof(file_text("/proc/" + std::to_string(pid) + "/schedstat").c_str()) / 1e9;
    }

    // marketd's fdatasync and fsync calls until now, and the time in them (count_sync.c).
    struct Syncs {
        uint64_t calls = 0, ns = 0;
    };
    Syncs syncs() const {
        Syncs s;
        std::ifstream file(dir + "/syncs", std::ios::binary);
        if (!file.read(reinterpret_cast<char*>(&s), sizeof s))
            fatal("nobody counts the syncs of marketd");
        return s;
    }

    // The median of writing a page and fdatasync, where its records are: what no commit can be
    // faster than.
    double sync_ms() const {
        const int file = ::open((dir + "/sync").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        std::vector<int64_t> spans;
        const std::string page(4096, 'x');
        for (int i = 0; i < 200; ++i) {
            if (::write(file, page.data(), page.size()) < 0) fatal("write in " + dir);
            const Nanos from = Loop::now();
            ::fdatasync(file);
            spans.push_back((Loop::now() - from).ns);
        }
        ::close(file);
        std::nth_element(spans.begin(), spans.begin() + 100, spans.end());
        return static_cast<double>(spans[100]) / 1e6;
    }

    std::string dir;
    int port = 0;
    pid_t pid = 0;

  private:
    std::string more_;
};

}  // namespace souk::bench
