// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/root/locks.hpp"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>

#include "agentd/root/descriptors.hpp"
#include "checkpoint/kept_locks.h"
#include "kernel/base/number.hpp"
#include "kernel/base/proc_status.hpp"
#include "kernel/base/text.hpp"
#include "kernel/sys/net/descriptors.hpp"
#include "kernel/sys/net/lock_door.hpp"
#include "kernel/sys/net/tcp_repair.hpp"

namespace souk::root {
namespace {

constexpr const char* keeper_name = "souk-locks";
constexpr int label_fd = 3, first_kept = 4;

// A keeper has a file open under that name: the kernel shows it to root, and so tells what is kept.
std::string label(const uint8_t (&token)[16], uint32_t user) {
    std::string text = std::string(keeper_name) + "-";
    constexpr std::string_view digits = "0123456789abcdef";
    for (const uint8_t byte : token) text += {digits[byte >> 4], digits[byte & 15]};
    return text + "-" + std::to_string(user) + "-";
}

// -------------------------------------------------------------------------------------------------
// the keeper

// The way to what it keeps; no descriptor (-1): another one has that door.
struct LockDoor {
    int fd;
    uint64_t secret;
    uint32_t user;
    const int* kept;
    size_t count;
};

// System calls only: it is a copy of a process that may have had threads. Where the kernel has no
// watch left for root (fs.inotify.max_user_instances), it looks from time to time.
[[noreturn]] void keep_until_removed(int watch, const char* name, const char* path,
                                     const LockDoor& door) {
    constexpr int pause_ms = 5000;
    alignas(inotify_event) char events[4096];
    while (::access(path, F_OK) == 0) {
        pollfd ready[2] = {{watch, POLLIN, 0}, {door.fd, POLLIN, 0}};
        const int some = ::poll(ready, 2, watch < 0 ? pause_ms : -1);
        if (some > 0 && ready[1].revents != 0)
            answer_at_lock_door(door.fd, door.secret, door.user, door.kept, door.count);
        if (some <= 0 || ready[0].revents == 0) continue;
        const ssize_t n = ::read(watch, events, sizeof events);
        if (n <= 0 && errno != EINTR) break;
        for (ssize_t at = 0; at < n;) {
            const auto* const event = reinterpret_cast<const inotify_event*>(events + at);
            if ((event->mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT | IN_IGNORED)) != 0)
                ::_exit(0);
            if (event->len > 0 && ::strcmp(event->name, name) == 0) ::_exit(0);
            at += static_cast<ssize_t>(sizeof *event + event->len);
        }
    }
    ::_exit(0);
}

Status start_keeper(const std::string& directory, const std::string& named,
                    const std::vector<Fd>& kept, uint64_t secret, uint32_t user) {
    const size_t slash = directory.rfind('/');
    if (slash == std::string::npos || slash == 0) return fail("a capsule without a directory");
    const std::string parent = directory.substr(0, slash), name = directory.substr(slash + 1);
    const Fd told(::memfd_create((named + std::to_string(kept.size())).c_str(), MFD_CLOEXEC));
    if (!told) return fail_errno("memfd", errno);
    constexpr uint32_t ends = IN_DELETE | IN_MOVED_FROM | IN_DELETE_SELF | IN_MOVE_SELF;
    Fd watch(::inotify_init1(IN_CLOEXEC));
    if (watch && ::inotify_add_watch(watch.get(), parent.c_str(), ends | IN_ONLYDIR) < 0)
        watch.reset();
    TRY_ASSIGN(Pipe ready, make_pipe());
    const auto open = open_lock_door(secret);
    const int watch_fd = first_kept + static_cast<int>(kept.size()), ready_fd = watch_fd + 1,
              door_fd = ready_fd + 1, high = door_fd + 1;
    std::vector<int> moved(kept.size()), numbers(kept.size());
    std::iota(numbers.begin(), numbers.end(), first_kept);
    const pid_t pid = ::fork();
    if (pid < 0) return fail_errno("fork", errno);
    if (pid > 0) {
        char is = 0;
        ready.write_end.reset();
        return ::read(ready.read_end.get(), &is, 1) == 1 ? Status{}
                                                         : fail("it could not keep them");
    }
    ::setsid();
    ::prctl(PR_SET_NAME, keeper_name);
    const int label = ::fcntl(told.get(), F_DUPFD, high),
              done = ::fcntl(ready.write_end.get(), F_DUPFD, high),
              removed = watch ? ::fcntl(watch.get(), F_DUPFD, high) : -1,
              door = open ? ::fcntl(open->get(), F_DUPFD, high) : -1;
    for (size_t i = 0; i < kept.size(); ++i)
        if ((moved[i] = ::fcntl(kept[i].get(), F_DUPFD, high)) < 0) ::_exit(1);
    if (::dup2(label, label_fd) < 0) ::_exit(1);
    for (size_t i = 0; i < kept.size(); ++i)
        if (::dup2(moved[i], first_kept + static_cast<int>(i)) < 0) ::_exit(1);
    if (::dup2(done, ready_fd) < 0) ::_exit(1);
    if (removed >= 0 && ::dup2(removed, watch_fd) < 0) ::_exit(1);
    if (door >= 0 && ::dup2(door, door_fd) < 0) ::_exit(1);
    ::syscall(SYS_close_range, 0U, 2U, 0U);
    ::syscall(SYS_close_range, static_cast<unsigned>(high), ~0U, 0U);
    if (removed < 0) ::close(watch_fd);
    if (door < 0) ::close(door_fd);
    if (::write(ready_fd, "", 1) != 1) ::_exit(1);
    ::close(ready_fd);
    keep_until_removed(removed < 0 ? -1 : watch_fd, name.c_str(), directory.c_str(),
                       {door < 0 ? -1 : door_fd, secret, user, numbers.data(), numbers.size()});
}

// Returns how many locks the process keeps, if it is the keeper that is called so.
std::optional<size_t> keeps(pid_t pid, std::string_view named) {
    const std::string process = "/proc/" + std::to_string(pid);
    const auto comm = read_file(AT_FDCWD, process + "/comm");
    if (!comm || *comm != std::string(keeper_name) + "\n") return std::nullopt;
    const auto status = read_file(AT_FDCWD, process + "/status");
    if (!status || status_line(*status, "Uid") != "0\t0\t0\t0") return std::nullopt;
    char link[PATH_MAX];
    const std::string path = process + "/fd/" + std::to_string(label_fd);
    const ssize_t n = ::readlink(path.c_str(), link, sizeof link);
    std::string_view text(link, n < 0 ? 0 : static_cast<size_t>(n));
    const std::string begin = "/memfd:" + std::string(named);
    if (!text.starts_with(begin)) return std::nullopt;
    return leading_number<size_t>(text.substr(begin.size()));
}

std::vector<Fd> take_kept(std::string_view named) {
    std::vector<Fd> all;
    const auto numbers = list_dir(AT_FDCWD, "/proc");
    if (!numbers) return all;
    for (const std::string& number : *numbers) {
        const auto pid = whole_number<pid_t>(number);
        if (!pid || !keeps(*pid, named)) continue;
        const Pidfd process(Fd(static_cast<int>(::syscall(SYS_pidfd_open, *pid, 0))), *pid);
        const auto count = keeps(*pid, named);  // still, now that it is held
        if (process.get() < 0 || !count || *count > souk_locks_max) continue;
        for (size_t i = 0; i < *count; ++i) {
            auto one = take_descriptor(process, first_kept + static_cast<int>(i));
            if (!one) return {};
            all.push_back(std::move(*one));
        }
        return all;
    }
    return all;
}

bool answer(int socket, uint8_t what, bool more, std::span<const int> descriptors) {
    souk_locks_packet packet{};
    packet.what = what;
    packet.more = more;
    const std::string_view bytes(reinterpret_cast<const char*>(&packet), sizeof packet);
    return send_descriptors(socket, bytes, descriptors).value_or(false);
}

bool give(int socket, const std::vector<Fd>& all) {
    const std::vector<int> numbers = numbers_of(all);
    const std::span<const int> rest(numbers);
    for (size_t at = 0; at < rest.size(); at += souk_lock_descriptors) {
        const size_t count = std::min<size_t>(rest.size() - at, souk_lock_descriptors);
        if (!answer(socket, souk_locks_keep, at + count < rest.size(), rest.subspan(at, count)))
            return false;
    }
    return !all.empty() || answer(socket, souk_locks_none, false, {});
}

// Takes what is behind a door and gives it, in a process of its own: whoever is at the door may be
// a process of the job's user that lets who comes wait.
Result<Pidfd> start_giver(int socket, uint64_t secret, uint32_t user) {
    constexpr int own_socket = 3;
    constexpr unsigned longest_s = 8;  // CRIU waits for 10 s (criu_locks.c)
    const pid_t self = ::getpid(), pid = ::fork();
    if (pid < 0) return fail_errno("fork", errno);
    if (pid > 0) {
        auto giver = Pidfd::open(pid);
        if (!giver) (void)::kill(pid, SIGKILL);
        return giver;
    }
    ::prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
    ::alarm(longest_s);
    if (::getppid() != self || ::dup2(socket, own_socket) < 0) ::_exit(1);
    ::syscall(SYS_close_range, static_cast<unsigned>(own_socket + 1), ~0U, 0U);
    ::_exit(give(own_socket, take_from_lock_door(secret, user)) ? 0 : 1);
}

}  // namespace

Result<Fd> Locks::open(int directory, uint32_t user) {
    static_assert(souk_lock_descriptors <= descriptors_max);
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return fail_errno("socketpair", errno);
    Fd theirs(pair[1]);
    Talk talk{Fd(pair[0]), {}, user, {}, {}};
    if (directory >= 0) talk.directory = name_of(directory);
    talks_.push_back(std::move(talk));
    return theirs;
}

void Locks::wait_for(std::vector<pollfd>& all) const {
    for (const Talk& talk : talks_)
        all.push_back({talk.giver ? talk.giver.get() : talk.socket.get(), POLLIN, 0});
}

void Locks::look(const pollfd* ready, size_t count) {
    std::vector<Talk> go_on;
    for (size_t i = 0; i < talks_.size(); ++i)
        if (i >= count || ready[i].revents == 0 || hear(talks_[i]))
            go_on.push_back(std::move(talks_[i]));
    talks_ = std::move(go_on);
}

// Returns false if the CRIU has ended, or says what it may not say.
bool Locks::hear(Talk& talk) {
    if (talk.giver) {
        talk.giver = Pidfd();
        return true;
    }
    souk_locks_packet packet{};
    auto got =
        receive_descriptors(talk.socket.get(), {reinterpret_cast<char*>(&packet), sizeof packet});
    if (!got) return false;
    if (!*got) return true;
    if ((*got)->bytes != sizeof packet || (*got)->truncated) return false;
    const std::string named = label(packet.token, talk.user);
    if (packet.what == souk_locks_take) return give(talk.socket.get(), take_kept(named));
    const uint64_t secret = souk_locks_secret(packet.token);
    if (packet.what == souk_locks_take_served) {
        auto giver = start_giver(talk.socket.get(), secret, talk.user);
        if (giver) talk.giver = std::move(*giver);
        return giver.has_value();
    }
    if (packet.what != souk_locks_keep || talk.directory.empty()) return false;
    std::ranges::move((*got)->descriptors, std::back_inserter(talk.kept));
    if (talk.kept.size() > souk_locks_max) return false;
    if (packet.more != 0) return true;
    const bool started =
        start_keeper(talk.directory, named, talk.kept, secret, talk.user).has_value();
    return answer(talk.socket.get(), started ? souk_locks_done : souk_locks_none, false, {});
}

}  // namespace souk::root
