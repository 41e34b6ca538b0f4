// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/gang.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "kernel/sys/host/fd.hpp"
#include "tools/srun/session.hpp"

namespace souk::tools {
namespace {

constexpr Nanos answer_max = Nanos::from_s(30);
constexpr size_t line_max = 65'536;
constexpr int ended_by_market = 255;

// srun for one component: its own process, whose output comes here.
struct Part {
    pid_t pid = -1;
    Fd streams[2];  // stdout, stderr
};

bool write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t n = ::write(fd, text.data(), text.size());
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) {
            pollfd ready{fd, POLLOUT, 0};
            if (errno == EAGAIN) ::poll(&ready, 1, -1);
            continue;
        }
        if (n <= 0) return false;
        text.remove_prefix(static_cast<size_t>(n));
    }
    return true;
}

// Never returns in the child, but with its exit status.
Result<Part> begin_part(const SrunOptions& options, const std::string& socket, const JobId& id,
                        bool takes_input, const sigset_t& mask) {
    int out[2], err[2];
    if (::pipe2(out, O_CLOEXEC) != 0) return fail_errno("make a pipe", errno);
    if (::pipe2(err, O_CLOEXEC) != 0) {
        ::close(out[0]);
        ::close(out[1]);
        return fail_errno("make a pipe", errno);
    }
    Part part;
    part.pid = ::fork();
    if (part.pid == 0) {
        ::sigprocmask(SIG_SETMASK, &mask, nullptr);
        ::dup2(out[1], STDOUT_FILENO);
        ::dup2(err[1], STDERR_FILENO);
        if (!takes_input)
            if (const int none = ::open("/dev/null", O_RDONLY); none > 0) ::dup2(none, 0);
        ::syscall(SYS_close_range, 3U, ~0U, 0U);
        SrunOptions own = options;
        own.status = StatusMode::never;
        own.json = false;
        ::_exit(Session(own, socket).attach(id));
    }
    const int error = errno;
    part.streams[0] = Fd(out[0]);
    part.streams[1] = Fd(err[0]);
    ::close(out[1]);
    ::close(err[1]);
    if (part.pid < 0) return fail_errno("start a process", error);
    return part;
}

// A signal from the terminal reaches every process of srun; one that was sent to srun alone is
// passed on.
void pass_on(int signals, const std::vector<Part>& parts) {
    signalfd_siginfo info{};
    while (::read(signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_code == SI_KERNEL) continue;
        for (const Part& part : parts)
            if (part.pid > 0) ::kill(part.pid, static_cast<int>(info.ssi_signo));
    }
}

struct Merged {
    LineMerge out, err;
    bool broken = false;  // nobody reads our stdout any more
};

// False: that stream has ended.
bool copy_from(Fd& from, int stream, int32_t component, Merged& merged) {
    char buffer[65'536];
    const ssize_t n = ::read(from.get(), buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    LineMerge& lines = stream == 0 ? merged.out : merged.err;
    const std::string text =
        n > 0 ? lines.add(component, {buffer, static_cast<size_t>(n)}) : lines.end(component);
    if (!write_all(stream == 0 ? STDOUT_FILENO : STDERR_FILENO, text)) merged.broken = true;
    return n > 0;
}

void reap(std::vector<Part>& parts, std::vector<int>& ended) {
    for (Part& part : parts) {
        int status = 0;
        if (part.pid <= 0 || part.streams[0] || part.streams[1]) continue;
        if (::waitpid(part.pid, &status, 0) != part.pid) status = 1 << 8;
        ended.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        part.pid = -1;
    }
}

int stay(std::vector<Part>& parts, int signals, bool labels) {
    const auto count = static_cast<int32_t>(parts.size());
    Merged merged{{labels, count}, {labels, count}};
    std::vector<int> ended;
    while (ended.size() < parts.size()) {
        std::vector<pollfd> polled{{signals, POLLIN, 0}};
        for (const Part& part : parts)
            for (const Fd& stream : part.streams)
                polled.push_back({stream ? stream.get() : -1, POLLIN, 0});
        if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) break;
        if (polled[0].revents) pass_on(signals, parts);
        for (size_t i = 1; i < polled.size(); ++i) {
            Fd& stream = parts[(i - 1) / 2].streams[(i - 1) % 2];
            const auto component = static_cast<int32_t>((i - 1) / 2);
            if (polled[i].revents &&
                !copy_from(stream, static_cast<int>((i - 1) % 2), component, merged))
                stream.reset();
        }
        reap(parts, ended);
        if (merged.broken)
            for (const Part& part : parts)
                if (part.pid > 0) ::kill(part.pid, SIGTERM);
        merged.broken = false;
    }
    return gang_status(ended);
}

// Of a gang that lacks components: as Ctrl-C does of one that waits.
void cancel_all(Link& link, const JobId& first) {
    wire::Attach watch;
    watch.id = first;
    watch.watch = true;
    link.queue(watch);
    if (const auto attached = link.expect<wire::Attached>(answer_max); !attached)
        return say(attached.error().message + "; marketctl cancel " + first.text() + " ends it");
    link.queue(wire::Signal{SIGTERM});
    (void)link.flush();
}

}  // namespace

Result<Money> share_of_budget(Money budget, int32_t components) {
    if (budget.micro == 0) return budget;
    const Money share{budget.micro / components};
    if (share.micro > 0) return share;
    return fail("--budget: nothing is left for each of " + std::to_string(components) +
                " components");
}

std::string LineMerge::label(int32_t component) const {
    if (!labels_) return {};
    const std::string number = std::to_string(component);
    const size_t width = std::to_string(of_ - 1).size();
    return std::string(width - std::min(width, number.size()), ' ') + number + ": ";
}

std::string LineMerge::add(int32_t component, std::string_view bytes) {
    const auto at = static_cast<size_t>(component);
    if (open_.size() <= at) open_.resize(at + 1);
    std::string whole;
    while (!bytes.empty()) {
        const size_t end = bytes.find('\n');
        const size_t n = end == std::string_view::npos ? bytes.size() : end + 1;
        open_[at].append(bytes.substr(0, n));
        bytes.remove_prefix(n);
        if (end == std::string_view::npos && open_[at].size() < line_max) break;
        whole += label(component) + std::exchange(open_[at], {});
    }
    return whole;
}

std::string LineMerge::end(int32_t component) {
    const auto at = static_cast<size_t>(component);
    if (open_.size() <= at || open_[at].empty()) return {};
    return label(component) + std::exchange(open_[at], {}) + (labels_ ? "\n" : "");
}

int gang_status(const std::vector<int>& ended) {
    int by_market = 0;
    for (const int status : ended) {
        if (status != 0 && status != ended_by_market) return status;
        by_market = std::max(by_market, status);
    }
    return by_market;
}

Result<std::vector<JobId>> submit_components(const SrunOptions& options, Link& link,
                                             wire::Submit& request) {
    TRY_ASSIGN(request.terms.budget, share_of_budget(options.terms.budget, options.components));
    std::vector<JobId> ids;
    for (int32_t i = 0; i < options.components; ++i) {
        request.group.gang = ids.empty() ? 0 : ids[0].seq;
        request.group.components = static_cast<uint32_t>(options.components);
        request.group.component = static_cast<uint32_t>(i);
        if (::getrandom(&request.token, sizeof request.token, 0) != sizeof request.token)
            request.token = 0;
        link.queue(request);
        auto submitted = link.expect<wire::Submitted>(answer_max);
        if (submitted && !submitted->gangs) {
            ids.push_back(submitted->id);
            submitted = fail("the agentd here is of an older version: it starts single jobs only");
        }
        if (submitted) {
            ids.push_back(submitted->id);
            continue;
        }
        if (!ids.empty()) cancel_all(link, ids[0]);
        return tl::unexpected(submitted.error());
    }
    return ids;
}

int attach_components(const SrunOptions& options, const std::string& socket,
                      const std::vector<JobId>& ids) {
    sigset_t taken, before;
    ::sigemptyset(&taken);
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2})
        ::sigaddset(&taken, number);
    ::sigprocmask(SIG_BLOCK, &taken, &before);
    ::signal(SIGPIPE, SIG_IGN);
    const Fd signals(::signalfd(-1, &taken, SFD_CLOEXEC | SFD_NONBLOCK));
    std::vector<Part> parts;
    for (const JobId& id : ids) {
        auto part = begin_part(options, socket, id, parts.empty(), before);
        if (!part) {
            say(part.error().message + "; the job goes on: marketctl cancel " + ids[0].text());
            for (const Part& one : parts) ::kill(one.pid, SIGKILL);
            return 1;
        }
        parts.push_back(std::move(*part));
    }
    return stay(parts, signals.get(), options.labels);
}

}  // namespace souk::tools
