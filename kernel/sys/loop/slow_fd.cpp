// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/loop/slow_fd.hpp"

#include <pthread.h>

#include <cstdint>

namespace souk {
namespace {
void* close_it(void* fd) {
    ::close(static_cast<int>(reinterpret_cast<intptr_t>(fd)));
    return nullptr;
}
}  // namespace

SlowFd::~SlowFd() {
    if (!fd_) return;
    pthread_t thread;
    // If there is no thread, the descriptor is closed here, late as that may be.
    if (::pthread_create(&thread, nullptr, close_it,
                         reinterpret_cast<void*>(static_cast<intptr_t>(fd_.get()))) != 0)
        return;
    (void)fd_.release();
    ::pthread_detach(thread);
}

}  // namespace souk
