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
    // Its directory, once it has been told (lies_in); -1: it has not.
    Status lies_in(const Pidfd& init, int directory);
    int directory(const Pidfd& init) const;
    // One of a capsule that is known.
    Result<Inside> process(int pidfd) const;
    // Likewise, and not CRIU's.
    Result<Inside> process_of_job(int pidfd) const;

    // Whether CRIU may be started there now. An error, EALREADY: one is there.
    Status may_have_criu(const Pidfd& init) const;
    Status has_criu(const Pidfd& init, const Pidfd& criu, bool restores);
    // What was started there as such.
    Result<Pidfd> criu(int pidfd) const;
    // Of these numbers, as `proc`, the capsule's /proc, has them, those that are not CRIU's.
    Result<std::vector<pid_t>> without_criu(const Pidfd& init, int proc,
                                            const std::vector<pid_t>& pids) const;
    // What was started here, or is a process of a capsule.
    Status started(int pidfd);

  private:
    // By the namespace. The number of it inside; whether it restores.
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
