// SPDX-License-Identifier: GPL-2.0-or-later
// ShutIn: which processes of this machine have a thread that has shut itself in with Landlock. Such
// a thread is not moved (checkpoint/criu_landlock.c); no file of the kernel's says of it, but its
// credentials do (shut_in.bpf.c). A look costs about 0.1 us for each thread of the machine, and the
// thread nothing.
//
// An agent owns one. open() fails where BTF or permission is missing, or Landlock itself; then only
// a dump finds such a thread.
#pragma once

#include <sys/types.h>

#include <set>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

class ShutIn {
  public:
    static Result<ShutIn> open();
    // The numbers of such processes.
    Result<std::set<pid_t>> processes() const;

  private:
    ShutIn(Fd program, unsigned word) : program_(std::move(program)), word_(word) {}
    Fd program_;
    unsigned word_;  // Landlock's
};

}  // namespace souk
