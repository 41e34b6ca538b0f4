// SPDX-License-Identifier: GPL-2.0-or-later
// Capsules: which processes are of jobs, as far as souk-root lets agentd reach into them. A capsule
// is known by its PID 1: that is souk-init, started by root, and in no user namespace of somebody's
// own. Others have PID namespaces too (containers, browsers), and are nobody's to look into.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

#include "kernel/sys/host/fd.hpp"

namespace souk::root {

// Of a process in a PID namespace below this one: its number here, and the one in its own
// namespace.
struct Inside {
    pid_t here = 0, inside = 0;
};

class Capsules {
  public:
    // A capsule's PID 1, as this process has it. From then on its processes are known.
    Result<Pidfd> init(int pidfd);
    // Likewise one that was just made here.
    Status made(const Pidfd& init);
    // One of a capsule that is known.
    Result<Inside> process(int pidfd) const;
    // What was started here, or is a process of a capsule.
    Status started(int pidfd);

  private:
    void forget_ended();
    std::map<ino_t, Pidfd> known_;  // by their namespace, with their PID 1
};

// Of its processes; 0: it has ended.
Result<ino_t> namespace_of(pid_t pid);

}  // namespace souk::root
