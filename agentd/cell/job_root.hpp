// SPDX-License-Identifier: GPL-2.0-or-later
// JobRoot: the first process of a job: its number inside of the capsule, its number on this node,
// and its terminal. Pure. Owned by the Cell.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>

namespace souk {

class JobRoot {
  public:
    void is(pid_t inside) { inside_ = inside; }
    pid_t inside() const { return inside_; }
    // 0: no look has found it yet.
    pid_t here() const { return here_of_ == inside_ ? here_ : 0; }
    // `pids` as of pids_inside.
    void find(const std::map<pid_t, pid_t>& pids) {
        const auto root = pids.find(inside_);
        here_of_ = inside_;
        here_ = root == pids.end() ? 0 : root->second;
    }
    // CRIU's name of it; empty: it has none.
    void set_terminal(std::string key) { terminal_ = std::move(key); }
    const std::string& terminal() const { return terminal_; }

  private:
    pid_t inside_ = 0;
    pid_t here_ = 0, here_of_ = 0;  // as a look found out for that one
    std::string terminal_;
};

}  // namespace souk
