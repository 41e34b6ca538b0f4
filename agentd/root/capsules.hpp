// SPDX-License-Identifier: GPL-2.0-or-later
// Capsules: which processes are of jobs, as far as souk-root lets agentd reach into them. A capsule
// is known by its PID 1: that is souk-init, started by root, and in no user namespace of somebody's
// own. Others have PID namespaces too (containers, browsers), and are nobody's to look into. Nor is
// the CRIU that was started in a capsule, of which there is one at most, and what still is CRIU of
// the processes that it makes: they are root's, whatever the job is.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "kernel/sys/host/fd.hpp"

namespace souk::root {

// Names a process in a PID namespace below this one: by its number here, and by the one in its own
// namespace.
struct Inside {
    pid_t here = 0, inside = 0;
};

class Capsules {
  public:
    // Takes a pidfd of a capsule's PID 1, and returns it as this process has it. From then on the
    // capsule's processes are known.
    Result<Pidfd> init(int pidfd);
    // Makes a capsule known that was just made here.
    Status made(const Pidfd& init);
    // Notes the capsule's directory. directory() returns it; -1: it has not been told.
    Status lies_in(const Pidfd& init, int directory);
    int directory(const Pidfd& init) const;
    // Returns a process of a capsule that is known.
    Result<Inside> process(int pidfd) const;
    // Returns such a process, but none of CRIU's.
    Result<Inside> process_of_job(int pidfd) const;

    // Fails if CRIU may not be started there now. EALREADY: one is there.
    Status may_have_criu(const Pidfd& init) const;
    Status has_criu(const Pidfd& init, const Pidfd& criu, bool restores);
    // Returns the CRIU that was started in a capsule.
    Result<Pidfd> criu(int pidfd) const;
    // Returns those of these numbers that are not CRIU's. They are numbers in `proc`, the capsule's
    // /proc.
    Result<std::vector<pid_t>> without_criu(const Pidfd& init, int proc,
                                            const std::vector<pid_t>& pids) const;
    // Fails unless the process was started here, or is of a capsule.
    Status started(int pidfd);

  private:
    // Notes the CRIU that runs in a capsule, by the capsule's namespace: its number inside, and
    // whether it restores.
    struct Criu {
        Pidfd process;
        pid_t inside = 0;
        bool restores = false;
    };
    const Criu* criu_in(ino_t capsule) const;  // that has not ended
    void forget_ended();
    struct Known {
        Pidfd init;
        Fd directory;
    };
    std::map<ino_t, Known> known_;  // by their namespace
    std::map<ino_t, Criu> criu_;
};

}  // namespace souk::root
