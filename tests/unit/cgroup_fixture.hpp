// SPDX-License-Identifier: GPL-2.0-or-later
// CgroupFixture: a root of its own for one test's groups ("souk-test-PID"), and a guard process
// that ends everything in it when the test process goes, however it goes. need_root(): says why a
// test skips without root.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "kernel/base/check.hpp"
#include "kernel/sys/process/cgroup.hpp"

namespace souk::unit {

inline bool need_root(const char* what) {
    if (::geteuid() == 0) return true;
    std::printf("skipped: %s needs root\n", what);
    return false;
}

class CgroupFixture {
  public:
    explicit CgroupFixture(const CgroupLayout& layout)
        : root_("souk-test-" + std::to_string(::getpid())) {
        cgroups_ = new Cgroups(std::move(*Cgroups::open(layout, root_)));
        Pipe pipe = std::move(*make_pipe());
        guard_ = ::fork();
        MUST(guard_ >= 0);
        if (guard_ == 0) {
            ::setsid();  // Check kills the test's process group
            pipe.write_end.reset();
            char byte;
            while (::read(pipe.read_end.get(), &byte, 1) > 0) {
            }
            ::_exit(cgroups_->remove("", Nanos::from_s(20)) ? 0 : 1);
        }
        alive_ = std::move(pipe.write_end);
    }
    CgroupFixture() : CgroupFixture(detect_cgroups(*read_file(AT_FDCWD, "/proc/self/mountinfo"))) {}
    ~CgroupFixture() {
        alive_.reset();
        int status = 0;
        ::waitpid(guard_, &status, 0);
        delete cgroups_;
        MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    CgroupFixture(const CgroupFixture&) = delete;
    const Cgroups& operator*() const { return *cgroups_; }
    const Cgroups* operator->() const { return cgroups_; }
    const std::string& root() const { return root_; }

    // A process in the group that runs `work` and exits 0; it dies with the test. It has entered
    // when this returns.
    Pidfd spawn(const Cgroup& group, const auto& work) const {
        Pipe ready = std::move(*make_pipe());
        auto forked = fork_into(group.entry());
        MUST(forked);
        if (forked->is_child) {
            let_go();
            ready.read_end.reset();
            ready.write_end.reset();
            work();
            ::_exit(0);
        }
        ready.write_end.reset();
        char byte;
        MUST(::read(ready.read_end.get(), &byte, 1) == 0);
        return std::move(forked->pidfd);
    }

    // In a child of the test: it dies with the test. A fork does not close the pipe, and the guard
    // waits for the last copy.
    void let_go() const {
        ::close(alive_.get());
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    }

  private:
    std::string root_;
    Cgroups* cgroups_ = nullptr;
    pid_t guard_ = -1;
    Fd alive_;
};

}  // namespace souk::unit
