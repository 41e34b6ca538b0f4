// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/check.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/movable.hpp"
#include "tools/common/ask.hpp"
#include "tools/common/paths.hpp"
#include "tools/common/table.hpp"
#include "tools/srun/shut_in.hpp"
#include "tools/srun/summary.hpp"

namespace souk::tools {
namespace {

constexpr Nanos look_every = Nanos::from_ms(100), end_limit = Nanos::from_s(2);

// Returns what keeps every job of this user on the node, as its agentd says.
Cause held_by_node(const SrunOptions& o) {
    if (::geteuid() == 0) return {};
    const auto socket = [&] { return wire::find_agentd(o.socket, o.node); };
    const auto answer = ask(socket, "provider-status", {}, std::min(o.patience, end_limit));
    if (!answer) return {};  // no node here: what the process itself has is all there is to say
    const auto status = parse_object(*answer);
    if (!status || !status->contains("restriction")) return {};
    return {CauseCode::lacks_sys_resource, field(*status, "restriction")};
}

// A Trial is a program that runs here with no input, its output going nowhere, in a process group
// of its own.
class Trial {
  public:
    static Result<Trial> start(std::span<char*> program) {
        posix_spawn_file_actions_t files;
        posix_spawnattr_t how;
        posix_spawn_file_actions_init(&files);
        posix_spawnattr_init(&how);
        for (int fd = 0; fd < 3; ++fd)
            posix_spawn_file_actions_addopen(&files, fd, "/dev/null", fd == 0 ? O_RDONLY : O_WRONLY,
                                             0);
        posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP);
        posix_spawnattr_setpgroup(&how, 0);
        std::vector<char*> argv(program.begin(), program.end());
        argv.push_back(nullptr);
        Trial trial;
        const int error =
            ::posix_spawnp(&trial.pid_, argv[0], &files, &how, argv.data(), ::environ);
        posix_spawn_file_actions_destroy(&files);
        posix_spawnattr_destroy(&how);
        if (error != 0) return fail_errno(argv[0], error);
        trial.pidfd_ = Fd(static_cast<int>(::syscall(SYS_pidfd_open, trial.pid_, 0)));
        if (!trial.pidfd_) return fail_errno("watch it", errno);
        return trial;
    }
    Trial(Trial&& other) noexcept
        : pid_(std::exchange(other.pid_, 0)), pidfd_(std::move(other.pidfd_)) {}
    Trial& operator=(Trial&&) = delete;
    ~Trial() {
        if (pid_ == 0) return;
        (void)::kill(-pid_, SIGTERM);
        if (!ended_within(end_limit)) (void)::kill(-pid_, SIGKILL);
        (void)::waitpid(pid_, nullptr, 0);
    }
    pid_t pid() const { return pid_; }
    bool ended_within(Nanos span) const {
        pollfd end{pidfd_.get(), POLLIN, 0};
        return ::poll(&end, 1, static_cast<int>(span.ns / 1'000'000)) > 0;
    }

  private:
    Trial() = default;
    pid_t pid_ = 0;
    Fd pidfd_;
};

Status look_at_program(const SrunOptions& o) {
    TRY_ASSIGN(const Trial trial, Trial::start(o.program));
    const Nanos end = monotonic_now() + o.check_for;
    bool ended = false;
    while (!ended) {
        const Nanos left = end - monotonic_now();
        ended = left.ns <= 0 || trial.ended_within(std::min(left, look_every));
        const Status movable = check_movable_here(trial.pid(), o.tcp);
        if (!movable && movable.error().code == ESRCH) return {};
        TRY(movable);
        if (ended) TRY(look_closely(trial.pid()));
    }
    return {};
}

Status look_at_process(const SrunOptions& o, pid_t pid) {
    TRY(check_movable_here(pid, o.tcp));
    return look_closely(pid);
}

Status say_verdict(const SrunOptions& o, const Cause& why) {
    if (o.json) {
        JsonWriter w;
        w.begin_object().field("can_move", why.empty());
        write_cause(w, "why", why);
        const std::string text = w.end_object().take();
        return o.json_file.empty() ? print(text) : write_summary(o.json_file, text);
    }
    return print(why.empty() ? std::string("nothing is found that would keep it from moving")
                             : why + "  [" + std::string(to_string(why.code)) + "]");
}

}  // namespace

Result<int> check_program(const SrunOptions& o) {
    const std::string_view first = o.program[0];
    const auto pid = o.program.size() == 1 ? whole_number<pid_t>(first) : std::nullopt;
    Cause why = held_by_node(o);
    if (why.empty()) {
        const Status movable = pid ? look_at_process(o, *pid) : look_at_program(o);
        if (!movable && movable.error().cause == CauseCode::none)
            return tl::unexpected(movable.error());
        if (!movable) why = movable.error();
    }
    TRY(say_verdict(o, why));
    return why.empty() ? 0 : 1;
}

}  // namespace souk::tools
