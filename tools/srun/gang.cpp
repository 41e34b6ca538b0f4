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
    Fd input;       // with --stdin=all: what it reads
    std::string unread;
};

bool write_whole(int fd, std::string_view text) {
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

// A part reads srun's own stdin, a pipe, or nothing.
enum class Reads { nothing, own, pipe };

// Returns the part's stdin: /dev/null, or its end of a new pipe; no file if it reads srun's own.
Result<Fd> input_of(Part& part, Reads reads) {
    if (reads == Reads::nothing) return open_at(AT_FDCWD, "/dev/null", O_RDONLY);
    if (reads == Reads::own) return Fd();
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("make a pipe", errno);
    part.input = Fd(ends[1]);
    ::fcntl(ends[1], F_SETFL, O_NONBLOCK);
    return Fd(ends[0]);
}

// The child never returns from this; it ends with its exit status.
Result<Part> begin_part(const SrunOptions& options, const std::string& socket, const JobId& id,
                        size_t component, Reads reads, const sigset_t& mask) {
    Part part;
    Fd theirs[2];
    for (int i = 0; i < 2; ++i) {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) return fail_errno("make a pipe", errno);
        part.streams[i] = Fd(ends[0]);
        theirs[i] = Fd(ends[1]);
    }
    TRY_ASSIGN(const Fd input, input_of(part, reads));
    part.pid = ::fork();
    if (part.pid < 0) return fail_errno("start a process", errno);
    if (part.pid > 0) return part;
    ::sigprocmask(SIG_SETMASK, &mask, nullptr);
    ::dup2(theirs[0].get(), STDOUT_FILENO);
    ::dup2(theirs[1].get(), STDERR_FILENO);
    if (input) ::dup2(input.get(), STDIN_FILENO);
    ::syscall(SYS_close_range, 3U, ~0U, 0U);
    SrunOptions own = options;
    if (component < own.plan.size()) {
        const ComponentPlan& plan = own.plan[component];
        if (!plan.out_file.empty()) own.out_file = plan.out_file;
        if (!plan.err_file.empty()) own.err_file = plan.err_file;
    }
    own.status = StatusMode::never;
    own.json = false;
    ::_exit(Session(own, socket).attach(id));
}

// srun's stdin for all parts: what one has not taken yet is waited for, so that the slowest sets
// the pace. A part that reads no more is passed over.
class Feed {
  public:
    explicit Feed(std::vector<Part>& parts) : parts_(parts) {
        for (const Part& part : parts) ended_ = ended_ && !part.input;
    }
    // These say for which descriptors to wait: own() for srun's stdin, of() for a part's input.
    pollfd own() const { return {!ended_ && all_taken() ? STDIN_FILENO : -1, POLLIN, 0}; }
    static pollfd of(const Part& part) {
        return {part.input ? part.input.get() : -1,
                static_cast<short>(part.unread.empty() ? 0 : POLLOUT), 0};
    }
    void read() {
        char buffer[65'536];
        const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
        if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
        ended_ = n <= 0;
        for (Part& part : parts_) {
            if (part.input && n > 0) part.unread.assign(buffer, static_cast<size_t>(n));
            write(part);
        }
    }
    void write(Part& part) const {
        if (!part.input) return;
        if (!part.unread.empty()) {
            const ssize_t n = ::write(part.input.get(), part.unread.data(), part.unread.size());
            if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
            if (n < 0) part.unread.clear();
            if (n < 0) return part.input.reset();
            part.unread.erase(0, static_cast<size_t>(n));
        }
        if (part.unread.empty() && ended_) part.input.reset();
    }

  private:
    bool all_taken() const {
        return std::all_of(parts_.begin(), parts_.end(),
                           [](const Part& part) { return part.unread.empty(); });
    }
    std::vector<Part>& parts_;
    bool ended_ = true;
};

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

// Returns false if that stream has ended.
bool copy_from(Fd& from, int stream, int32_t component, Merged& merged) {
    char buffer[65'536];
    const ssize_t n = ::read(from.get(), buffer, sizeof buffer);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) return true;
    LineMerge& lines = stream == 0 ? merged.out : merged.err;
    const std::string text =
        n > 0 ? lines.add(component, {buffer, static_cast<size_t>(n)}) : lines.end(component);
    if (!write_whole(stream == 0 ? STDOUT_FILENO : STDERR_FILENO, text)) merged.broken = true;
    return n > 0;
}

// Returns how many have ended now.
size_t reap(const SrunOptions& options, std::vector<Part>& parts, std::vector<int>& ended) {
    size_t count = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
        Part& part = parts[i];
        int status = 0;
        if (part.pid <= 0 || part.streams[0] || part.streams[1]) continue;
        if (::waitpid(part.pid, &status, 0) != part.pid) status = 1 << 8;
        part.pid = -1;
        ++count;
        if (is_required(options, i))
            ended.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    }
    return count;
}

// Returns what stands before the lines of each component: its number, or its label if it has one.
std::vector<std::string> labels_of(const SrunOptions& options, size_t count) {
    std::vector<std::string> labels;
    for (size_t i = 0; options.labels && i < count; ++i) {
        const bool named = i < options.plan.size() && !options.plan[i].label.empty();
        labels.push_back(named ? options.plan[i].label : std::to_string(i));
    }
    return labels;
}

int stay(std::vector<Part>& parts, int signals, const SrunOptions& options) {
    const auto labels = labels_of(options, parts.size());
    Merged merged{LineMerge(labels), LineMerge(labels)};
    std::vector<int> ended;
    size_t gone = 0;
    Feed feed(parts);
    while (gone < parts.size()) {
        std::vector<pollfd> polled{{signals, POLLIN, 0}};
        for (const Part& part : parts)
            for (const Fd& stream : part.streams)
                polled.push_back({stream ? stream.get() : -1, POLLIN, 0});
        const size_t outputs = polled.size();
        for (const Part& part : parts) polled.push_back(Feed::of(part));
        polled.push_back(feed.own());
        if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) break;
        if (polled[0].revents) pass_on(signals, parts);
        if (polled.back().revents) feed.read();
        for (size_t i = outputs; i + 1 < polled.size(); ++i)
            if (polled[i].revents) feed.write(parts[i - outputs]);
        for (size_t i = 1; i < outputs; ++i) {
            Fd& stream = parts[(i - 1) / 2].streams[(i - 1) % 2];
            const auto component = static_cast<int32_t>((i - 1) / 2);
            if (polled[i].revents &&
                !copy_from(stream, static_cast<int>((i - 1) % 2), component, merged))
                stream.reset();
        }
        gone += reap(options, parts, ended);
        if (merged.broken)
            for (const Part& part : parts)
                if (part.pid > 0) ::kill(part.pid, SIGTERM);
        merged.broken = false;
    }
    return gang_status(ended);
}

// Cancels a gang that lacks components, as Ctrl-C does with a gang that waits.
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

Status can_take(const wire::Submitted& submitted, const wire::Submit& request) {
    if (!submitted.gangs)
        return fail("the agentd here is of an older version: it starts single jobs only");
    if (request.group.role != ComponentClass::required && !submitted.classes)
        return fail("the agentd here is of an older version: each component is required by it");
    const JobTies& group = request.group;
    if (!submitted.layouts && (!group.node.empty() || group.spread > 0 || group.pack))
        return fail(
            "the agentd here is of an older version: it knows no --ordered, --spread or --pack");
    if (!submitted.near && group.near)
        return fail("the agentd here is of an older version: it knows no --near");
    return {};
}

}  // namespace

Result<Money> share_of_budget(Money budget, int32_t cpus, int64_t all) {
    if (budget.micro == 0) return budget;
    const Money share{static_cast<int64_t>(static_cast<__int128>(budget.micro) * cpus / all)};
    if (share.micro > 0) return share;
    return fail("--budget: nothing is left for each component");
}

bool is_required(const SrunOptions& options, size_t component) {
    if (options.exec) return component == 0;
    return component >= options.plan.size() ||
           options.plan[component].role == ComponentClass::required;
}

LineMerge::LineMerge(std::vector<std::string> labels) : labels_(std::move(labels)) {
    size_t width = 0;
    for (const std::string& label : labels_) width = std::max(width, label.size());
    for (std::string& label : labels_)
        label = std::string(width - label.size(), ' ') + label + ": ";
}

std::string LineMerge::label(size_t component) const {
    return component < labels_.size() ? labels_[component] : std::string();
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
        whole += label(at) + std::exchange(open_[at], {});
    }
    return whole;
}

std::string LineMerge::end(int32_t component) {
    const auto at = static_cast<size_t>(component);
    if (open_.size() <= at || open_[at].empty()) return {};
    return label(at) + std::exchange(open_[at], {}) + (labels_.empty() ? "" : "\n");
}

int gang_status(const std::vector<int>& ended) {
    int by_market = 0;
    for (const int status : ended) {
        if (status != 0 && status != ended_by_market) return status;
        by_market = std::max(by_market, status);
    }
    return by_market;
}

Result<std::vector<JobId>> submit_components(Link& link, std::vector<wire::Submit>& requests) {
    std::vector<JobId> ids;
    for (wire::Submit& request : requests) {
        request.group.gang = ids.empty() ? 0 : ids[0].seq;
        if (::getrandom(&request.token, sizeof request.token, 0) != sizeof request.token)
            request.token = 0;
        link.queue(request);
        const auto submitted = link.expect<wire::Submitted>(answer_max);
        Status taken = submitted ? Status() : tl::unexpected(submitted.error());
        if (submitted) ids.push_back(submitted->id);
        if (submitted) taken = can_take(*submitted, request);
        if (taken) continue;
        if (!ids.empty()) cancel_all(link, ids[0]);
        return tl::unexpected(taken.error());
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
        const auto number = static_cast<int32_t>(parts.size());
        const Reads reads = options.reader == options.components ? Reads::pipe
                            : options.reader == number           ? Reads::own
                                                                 : Reads::nothing;
        auto part = begin_part(options, socket, id, parts.size(), reads, before);
        if (!part) {
            say(part.error().message + "; the job goes on: marketctl cancel " + ids[0].text());
            for (const Part& one : parts) ::kill(one.pid, SIGKILL);
            return 1;
        }
        parts.push_back(std::move(*part));
    }
    return stay(parts, signals.get(), options);
}

}  // namespace souk::tools
