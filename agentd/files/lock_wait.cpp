// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/lock_wait.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace souk::files {
namespace {

constexpr size_t stack_bytes = 64 << 10;
constexpr uint64_t to_the_end = INT64_MAX;

void interrupt_call(int) {}

}  // namespace

int set_lock(int fd, bool flock, const fuse_file_lock& range, bool waits) {
    int done = 0;
    if (flock) {
        const int type = range.type == F_UNLCK   ? LOCK_UN
                         : range.type == F_WRLCK ? LOCK_EX
                                                 : LOCK_SH;
        done = ::flock(fd, type | (waits ? 0 : LOCK_NB));
    } else {
        struct flock as {};
        as.l_type = static_cast<short>(range.type);
        as.l_start = static_cast<off_t>(range.start);
        as.l_len = range.end >= to_the_end ? 0 : static_cast<off_t>(range.end - range.start + 1);
        done = ::fcntl(fd, waits ? F_OFD_SETLKW : F_OFD_SETLK, &as);
    }
    if (done == 0) return 0;
    return errno == EACCES ? -EAGAIN : -errno;
}

LockWait::LockWait(Fd file, bool flock, const fuse_file_lock& range, int event)
    : file_(std::move(file)), flock_(flock), range_(range), event_(event) {}

LockWait::~LockWait() {
    if (!runs_) return;
    constexpr timespec pause{0, 1'000'000};
    for (end(); !has_ended(); end()) ::nanosleep(&pause, nullptr);
    ::pthread_join(thread_, nullptr);
}

bool LockWait::start() {
    struct sigaction action {};
    action.sa_handler = interrupt_call;  // without SA_RESTART
    ::sigaction(SIGUSR1, &action, nullptr);
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, stack_bytes);
    runs_ = ::pthread_create(&thread_, &attributes, run, this) == 0;
    ::pthread_attr_destroy(&attributes);
    return runs_;
}

void LockWait::end() {
    ending_ = true;
    stop_ = true;
    if (runs_ && !has_ended()) ::pthread_kill(thread_, SIGUSR1);
}

void* LockWait::run(void* self) {
    auto& wait = *static_cast<LockWait*>(self);
    int error = -EINTR;
    while (!wait.stop_) {
        error = set_lock(wait.file_.get(), wait.flock_, wait.range_, true);
        if (error != -EINTR) break;
    }
    wait.error_ = error;
    wait.ended_ = true;
    const uint64_t one = 1;
    (void)!::write(wait.event_, &one, sizeof one);
    return nullptr;
}

}  // namespace souk::files
