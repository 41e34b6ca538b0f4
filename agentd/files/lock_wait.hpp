// SPDX-License-Identifier: GPL-2.0-or-later
// LockWait: a thread that waits for one lock in the kernel's queue (locks.hpp). It ends when it has
// the lock, or when it is told to: a signal interrupts its call, and is sent again until it has
// ended, since it may come just before the call. Also: how a lock of a description is set. Owned by
// Locks.
#pragma once

#include <linux/fuse.h>
#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <utility>

#include "agentd/files/locks.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::files {

// Sets the lock by the description behind `fd`. Returns 0 or -errno; -EAGAIN: somebody else has it.
int set_lock(int fd, bool flock, const fuse_file_lock& range, bool waits);

class LockWait {
  public:
    // `event` is an eventfd that is told when it has ended.
    LockWait(Fd file, bool flock, const fuse_file_lock& range, int event);
    LockWait(const LockWait&) = delete;
    LockWait& operator=(const LockWait&) = delete;
    ~LockWait();  // waits for the thread, which has been told to end
    bool start();
    void end();
    bool is_ending() const { return ending_; }
    bool has_ended() const { return ended_.load(); }
    int error() const { return error_; }
    int file() const { return file_.get(); }
    Fd take_file() { return std::move(file_); }  // once it has ended

    Locks::Holder holder;
    uint64_t number = 0, used = 0;  // as the holder's (Locks::Held)
    uint64_t seq = 0, unique = 0;   // of the request
    Locks::Before before;
    bool is_told = true;  // somebody is to hear of its end

  private:
    static void* run(void* self);

    Fd file_;
    const bool flock_;
    const fuse_file_lock range_;
    const int event_;
    pthread_t thread_{};
    bool runs_ = false, ending_ = false;
    int error_ = 0;
    std::atomic<bool> stop_ = false, ended_ = false;
};

}  // namespace souk::files
