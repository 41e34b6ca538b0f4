// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/fd.hpp"

#include <dirent.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>

#include "kernel/sys/loop/backoff.hpp"

namespace souk {

Result<Fd> open_at(int dir, const std::string& path, int flags, mode_t mode) {
    const int fd = ::openat(dir, path.c_str(), flags | O_CLOEXEC, mode);
    if (fd < 0) return fail_errno(path, errno);
    return Fd(fd);
}

Result<Pipe> make_pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) < 0) return fail_errno("pipe", errno);
    return Pipe{Fd(ends[0]), Fd(ends[1])};
}

Result<Fd> duplicate(int fd) {
    const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0) return fail_errno("dup", errno);
    return Fd(copy);
}

Result<std::string> read_file(int dir, const std::string& path, size_t bytes_max) {
    TRY_ASSIGN(const Fd file, open_at(dir, path, O_RDONLY));
    std::string text;
    char chunk[4096];
    while (true) {
        const ssize_t n = ::read(file.get(), chunk, sizeof chunk);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(path, errno);
        if (n == 0) return text;
        if (text.size() + static_cast<size_t>(n) > bytes_max) return fail_errno(path, EFBIG);
        text.append(chunk, static_cast<size_t>(n));
    }
}

Status write_file(int dir, const std::string& path, std::string_view text) {
    TRY_ASSIGN(const Fd file, open_at(dir, path, O_WRONLY));
    ssize_t n;
    do n = ::write(file.get(), text.data(), text.size());
    while (n < 0 && errno == EINTR);
    if (n < 0) return fail_errno(path, errno);
    if (static_cast<size_t>(n) != text.size()) return fail_errno(path, EIO);
    return {};
}

Status write_all(int fd, std::string_view bytes, const std::string& what) {
    while (!bytes.empty()) {
        const ssize_t n = ::write(fd, bytes.data(), bytes.size());
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return fail_errno(what, n < 0 ? errno : ENOSPC);
        bytes.remove_prefix(static_cast<size_t>(n));
    }
    return {};
}

Status create_file(int dir, const std::string& path, std::string_view bytes, int how, mode_t mode) {
    TRY_ASSIGN(const Fd file, open_at(dir, path, O_WRONLY | O_CREAT | how, mode));
    return write_all(file.get(), bytes, "write " + path);
}

Status replace_file(const std::string& path, std::string_view bytes, mode_t mode, bool durable) {
    constexpr int flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW;
    const std::string temporary = path + ".new";
    TRY_ASSIGN(const Fd file, open_at(AT_FDCWD, temporary, flags, mode));
    TRY(write_all(file.get(), bytes, "write " + temporary));
    if (durable && ::fsync(file.get()) != 0) return fail_errno("sync " + temporary, errno);
    if (::rename(temporary.c_str(), path.c_str()) != 0)
        return fail_errno("rename " + temporary, errno);
    return {};
}

Result<Fd> memory_file(const char* name, std::string_view bytes) {
    Fd file(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file) return fail_errno("memfd_create", errno);
    TRY(write_all(file.get(), bytes, std::string("write ") + name));
    return file;
}

Status seal(int memory_file) {
    constexpr int all = F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL;
    if (::fcntl(memory_file, F_ADD_SEALS, all) != 0)
        return fail_errno("seal an anonymous file", errno);
    return {};
}

Result<std::vector<std::string>> list_dir(int dir, const std::string& path) {
    TRY_ASSIGN(Fd fd, open_at(dir, path, O_RDONLY | O_DIRECTORY));
    DIR* stream = ::fdopendir(fd.get());
    if (stream == nullptr) return fail_errno(path, errno);
    fd.release();  // the stream owns it now
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(stream)) {
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") names.emplace_back(name);
        errno = 0;
    }
    const int code = errno;
    ::closedir(stream);
    if (code != 0) return fail_errno(path, code);
    std::sort(names.begin(), names.end());
    return names;
}

Result<Pidfd> Pidfd::open(pid_t pid) {
    const int fd = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
    if (fd < 0) return fail_errno("process " + std::to_string(pid), errno);
    return Pidfd(Fd(fd), pid);
}

Status Pidfd::signal(int number) const {
    if (::syscall(SYS_pidfd_send_signal, fd_.get(), number, nullptr, 0) < 0 && errno != ESRCH)
        return fail_errno(
            "signal " + std::to_string(number) + " to process " + std::to_string(pid_), errno);
    return {};
}

Result<bool> Pidfd::exited_within(Nanos wait_max) const {
    pollfd item{fd_.get(), POLLIN, 0};
    const Backoff clock(wait_max);  // an interrupted wait goes on with what is left
    while (true) {
        const timespec timeout = to_timespec(clock.left());
        const int n = ::ppoll(&item, 1, &timeout, nullptr);
        if (n >= 0) return n > 0;
        if (errno != EINTR) return fail_errno("wait for process " + std::to_string(pid_), errno);
    }
}

Result<int> Pidfd::reap() const {
    siginfo_t info{};
    int n;
    do n = ::waitid(P_PIDFD, static_cast<id_t>(fd_.get()), &info, WEXITED | WNOHANG);
    while (n < 0 && errno == EINTR);
    if (n < 0) return fail_errno("reap process " + std::to_string(pid_), errno);
    if (info.si_pid == 0) return fail_errno("reap process " + std::to_string(pid_), EAGAIN);
    if (info.si_code == CLD_EXITED) return W_EXITCODE(info.si_status, 0);
    return info.si_status | (info.si_code == CLD_DUMPED ? WCOREFLAG : 0);
}

}  // namespace souk
