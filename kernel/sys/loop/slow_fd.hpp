// SPDX-License-Identifier: GPL-2.0-or-later
// SlowFd: a file descriptor whose close makes the kernel wait for all processors, 5 to 20 ms for a
// packet socket (packet_release, synchronize_net). A thread of its own closes it, so that no event
// loop stands still for that.
#pragma once

#include "kernel/sys/host/fd.hpp"

namespace souk {

class SlowFd {
  public:
    SlowFd() = default;
    explicit SlowFd(Fd fd) : fd_(std::move(fd)) {}
    SlowFd(SlowFd&&) noexcept = default;
    SlowFd& operator=(SlowFd&& o) noexcept {
        std::swap(fd_, o.fd_);
        return *this;
    }
    ~SlowFd();
    int get() const { return fd_.get(); }
    explicit operator bool() const { return static_cast<bool>(fd_); }

  private:
    Fd fd_;
};

}  // namespace souk
