// SPDX-License-Identifier: GPL-2.0-or-later
// Fd: the only owner of a file descriptor; closes it when it goes. Pidfd: a process that cannot be
// mistaken for a later one with the same number. Both are move-only. Functions that take a bare
// `int` borrow it for the call.
//
// read_file and write_file are the one door to the kernel's small files (/proc, /sys, cgroups):
// relative to a held directory fd (AT_FDCWD for absolute paths), in one open. They fail with errno
// and the path that failed.
#pragma once

#include <fcntl.h>
#include <sys/types.h>
#include <unistd.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"

namespace souk {

class Fd {
  public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(other.release()) {}
    Fd& operator=(Fd&& other) noexcept {
        if (this != &other) reset(other.release());
        return *this;
    }
    ~Fd() { reset(); }

    int get() const { return fd_; }
    explicit operator bool() const { return fd_ >= 0; }
    int release() { return std::exchange(fd_, -1); }
    void reset(int fd = -1) {
        if (fd_ >= 0) ::close(fd_);
        fd_ = fd;
    }

  private:
    int fd_ = -1;
};

struct Pipe {
    Fd read_end, write_end;
};

// openat(2) with O_CLOEXEC. The path stands in the error.
Result<Fd> open_at(int dir, const std::string& path, int flags, mode_t mode = 0);
// pipe2(2) with O_CLOEXEC.
Result<Pipe> make_pipe();
// A duplicate, close-on-exec.
Result<Fd> duplicate(int fd);

inline constexpr size_t read_file_bytes_max = 4 << 20;
// The whole of a file; an error (EFBIG) if it is longer than `bytes_max`.
Result<std::string> read_file(int dir, const std::string& path,
                              size_t bytes_max = read_file_bytes_max);
// Writes `text` into a file that exists, in one write(2) as kernel files need; does not create or
// truncate.
Status write_file(int dir, const std::string& path, std::string_view text);
// Writes all of `bytes`, in as many write(2) as it takes. The error begins with `what`.
Status write_all(int fd, std::string_view bytes, const std::string& what);
// A regular file with these bytes. By `how` it is emptied first if it is there (O_TRUNC), or must
// not be there (O_EXCL).
Status create_file(int dir, const std::string& path, std::string_view bytes, int how = O_TRUNC,
                   mode_t mode = 0600);
// Puts such a file in the place of `path` at once: who opens that finds the old file or the new
// one, whole. `durable`: the bytes are on disk before.
Status replace_file(const std::string& path, std::string_view bytes, mode_t mode, bool durable);
// An anonymous file with these bytes, close-on-exec, at its end; its name stands in /proc/PID/fd.
Result<Fd> memory_file(const char* name, std::string_view bytes);
// Nobody changes the bytes or the length of such a file any more.
Status seal(int memory_file);
// The names in a directory but "." and "..", sorted.
Result<std::vector<std::string>> list_dir(int dir, const std::string& path);

class Pidfd {
  public:
    Pidfd() = default;
    // ESRCH if there is no such process. The caller knows that `pid` is still the one it means (its
    // own child).
    static Result<Pidfd> open(pid_t pid);
    // Takes a pidfd that clone3 gave with CLONE_PIDFD.
    Pidfd(Fd fd, pid_t pid) : fd_(std::move(fd)), pid_(pid) {}
    Pidfd(Pidfd&&) = default;
    Pidfd& operator=(Pidfd&&) = default;

    int get() const { return fd_.get(); }
    pid_t pid() const { return pid_; }
    explicit operator bool() const { return static_cast<bool>(fd_); }

    // Sends a signal; ok as well if the process is already gone.
    Status signal(int number) const;
    // True once the process has exited, waiting at most that long for it.
    Result<bool> exited_within(Nanos wait_max) const;
    // Reaps an exited child, without waiting: its wait status as of wait(2). EAGAIN if it still
    // runs.
    Result<int> reap() const;

  private:
    Fd fd_;
    pid_t pid_ = 0;
};

}  // namespace souk
