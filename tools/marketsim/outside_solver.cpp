// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketsim/outside_solver.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <map>

#include "market/core/solver_protocol.hpp"

namespace souk::tools {
namespace {

using namespace sim;
namespace command = market::command;

constexpr int patience_s = 20;
constexpr size_t line_max = 4096;

// The beginning of a line, without what a terminal would act on.
std::string shown(const std::string& line) {
    std::string text = line.substr(0, 80);
    for (char& c : text)
        if (c < ' ' || c > '~') c = '?';
    return text;
}

// A program with its standard input and output at one end of a socket. Killed when this goes.
class Child {
  public:
    Child() = default;
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    ~Child() {
        if (fd_ >= 0) ::close(fd_);
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
        }
    }

    Status start(std::vector<std::string> words) {
        int ends[2];
        if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
            return fail_errno("socketpair", errno);
        fd_ = ends[0];
        posix_spawn_file_actions_t files;
        posix_spawn_file_actions_init(&files);
        posix_spawn_file_actions_adddup2(&files, ends[1], 0);
        posix_spawn_file_actions_adddup2(&files, ends[1], 1);
        std::vector<char*> argv;
        argv.reserve(words.size() + 1);
        for (std::string& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);
        const int code = posix_spawn(&pid_, argv[0], &files, nullptr, argv.data(), environ);
        posix_spawn_file_actions_destroy(&files);
        ::close(ends[1]);
        if (code == 0) return {};
        pid_ = 0;
        return fail_errno("start", code);
    }

    // Says `text` and hands over lines until `take` returns false. What it says while it is told is
    // read as well, so neither waits for the other.
    template <class Take>
    Status converse(std::string_view text, Take&& take) {
        for (;;) {
            for (size_t end; (end = partial_.find('\n')) != std::string::npos;) {
                const std::string line = partial_.substr(0, end);
                partial_.erase(0, end + 1);
                TRY_ASSIGN(const bool more, take(line));
                if (!more && text.empty()) return {};
            }
            if (partial_.size() > line_max) return fail("says a line of more than 4096 characters");
            pollfd both{fd_, static_cast<short>(text.empty() ? POLLIN : POLLIN | POLLOUT), 0};
            const int ready = ::poll(&both, 1, patience_s * 1000);
            if (ready < 0 && errno == EINTR) continue;
            if (ready < 0) return fail_errno("poll", errno);
            if (ready == 0)
                return fail("gives no answer within " + std::to_string(patience_s) + " s");
            if (both.revents & POLLOUT) {
                const ssize_t n =
                    ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
                if (n > 0)
                    text.remove_prefix(static_cast<size_t>(n));
                else if (errno != EAGAIN && errno != EINTR)
                    return fail("has ended");
            }
            if (both.revents & (POLLIN | POLLHUP | POLLERR)) {
                char piece[1 << 16];
                const ssize_t n = ::recv(fd_, piece, sizeof piece, MSG_DONTWAIT);
                if (n > 0)
                    partial_.append(piece, static_cast<size_t>(n));
                else if (n == 0 || (errno != EAGAIN && errno != EINTR))
                    return fail("has ended");
            }
        }
    }

  private:
    pid_t pid_ = 0;
    int fd_ = -1;
    std::string partial_;
};

class OutsideSolver : public Decider {
  public:
    OutsideSolver(std::span<const SimJob> jobs, std::span<const SimProvider> providers,
                  std::string name)
        : jobs_(jobs), providers_(providers), name_(std::move(name)) {}

    Status start() {
        std::vector<std::string> words;
        for (size_t at = name_.find_first_not_of(' '); at != std::string::npos;) {
            const size_t end = std::min(name_.find(' ', at), name_.size());
            words.push_back(name_.substr(at, end - at));
            at = name_.find_first_not_of(' ', end);
        }
        if (const Status started = child_.start(words); !started)
            return wrap(name_, started.error());
        return {};
    }

    Result<std::vector<Placement>> decide(std::span<const Told> told, int64_t now_s) override {
        std::string question;
        const auto say = [&](const market::Command& c) {
            question += market::format_command(c) + "\n";
        };
        for (const Told& t : told) say(command_of(t));
        say(command::Time{now_s});
        say(command::Go{});
        say(command::Alloc{});
        say(command::Info{});
        bool answered = false;
        const Status done = child_.converse(question, [&](const std::string& line) -> Result<bool> {
            if (answered) return false;  // more of its `info`
            if (const std::string_view error = market::error_of(line); !error.empty())
                return fail("says: " + std::string(error.substr(0, 200)));
            const auto one = market::parse_alloc_line(line);
            answered = !one;
            if (answered && !line.starts_with("solver "))
                return fail("says '" + shown(line) +
                            "', which is neither a line of alloc nor the answer to info");
            if (one) TRY(take(*one));
            return !answered;
        });
        if (!done) return wrap(name_, done.error());
        std::vector<Placement> out;
        for (const auto& [job, provider] : wanted_) out.push_back({job, provider});
        return out;
    }

  private:
    template <class T>
    static std::optional<uint32_t> index_of(std::span<const T> all, uint64_t id) {
        const auto at = std::partition_point(
            all.begin(), all.end(), [&](const T& x) { return static_cast<uint64_t>(x.id) < id; });
        if (at == all.end() || static_cast<uint64_t>(at->id) != id) return std::nullopt;
        return static_cast<uint32_t>(at - all.begin());
    }
    market::Command command_of(const Told& t) {
        const bool of_job =
            t.what != Told::What::provider_came && t.what != Told::What::provider_left;
        const market::JobKey job{of_job ? static_cast<uint64_t>(jobs_[t.index].id) : 0};
        const market::ProviderKey provider{of_job ? 0
                                                  : static_cast<uint64_t>(providers_[t.index].id)};
        switch (t.what) {
            case Told::What::job_came: {
                const SimJob& j = jobs_[t.index];
                return command::AddJob{job,       j.value, j.memory_mb, j.cpus,
                                       j.start_s, j.run_s, j.user};
            }
            case Told::What::job_ended: wanted_.erase(t.index); return command::DeleteJob{job};
            case Told::What::job_frozen: return command::FreezeDone{job};
            case Told::What::job_placed: return command::MoveDone{job};
            case Told::What::provider_came: {
                const SimProvider& p = providers_[t.index];
                return command::AddProvider{provider, p.reserve, p.memory_mb,
                                            p.cpus,   p.start_s, p.speed};
            }
            case Told::What::provider_left:
                std::erase_if(wanted_, [&](const auto& w) { return w.second == t.index; });
                return command::DeleteProvider{provider};
        }
        return command::Info{};
    }
    Status take(const market::AllocLine& line) {
        const auto job = index_of(jobs_, line.job.n);
        if (!job) return fail("places job " + std::to_string(line.job.n) + ", which there is not");
        if (line.provider.n == 0) {
            wanted_.erase(*job);
            return {};
        }
        const auto provider = index_of(providers_, line.provider.n);
        if (!provider)
            return fail("names provider " + std::to_string(line.provider.n) +
                        ", which there is not");
        wanted_[*job] = *provider;
        return {};
    }

    std::span<const SimJob> jobs_;
    std::span<const SimProvider> providers_;
    const std::string name_;
    Child child_;
    std::map<uint32_t, uint32_t> wanted_;  // the provider of each job that it has placed
};

}  // namespace

Status set_decider(MarketRunOptions& options, const std::string& name) {
    if (const auto algorithm = market::Solver::algorithm_named(name)) {
        options.solver.algorithm = *algorithm;
        options.decider = {};
        return {};
    }
    options.decided_by = name;
    if (name.find('/') == std::string::npos) {
        std::string known;
        for (const auto n : market::Solver::algorithms()) known += std::string(n) + ", ";
        return fail("'" + name + "' is not known (" + known +
                    "or the path of a program, with a /)");
    }
    options.decider =
        [name](std::span<const SimJob> jobs,
               std::span<const SimProvider> providers) -> Result<std::unique_ptr<Decider>> {
        auto program = std::make_unique<OutsideSolver>(jobs, providers, name);
        TRY(program->start());
        return program;
    };
    return {};
}

}  // namespace souk::tools
