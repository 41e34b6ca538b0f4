// SPDX-License-Identifier: GPL-2.0-or-later
// JobWatcher: what a plain user's job may have, by the kernel's word alone. It shares nothing with
// what the product looks at (checkpoint/restored.hpp), so that it finds what that does not.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace souk::unit {

class JobWatcher {
  public:
    // `init`: the souk-init of the job's capsule, by its number here. `user`: his uid and gid.
    JobWatcher(int init, uint32_t user) : init_(init), user_(user) {}

    // One line for each thing that a process in that capsule, but souk-init and CRIU, has and may
    // not have.
    // `looked`: how many processes there were.
    std::vector<std::string> look(int& looked);

  private:
    void look_at(int pid);
    void look_at_status(int pid, const std::string& task);
    void look_at_place(int pid);
    void look_at_files(int pid);
    void look_at_maps(int pid);
    void look_at_priority(int pid, const std::string& task);
    bool may_use(const std::string& path, unsigned flags) const;
    void found(int pid, const std::string& what);

    const int init_;
    const uint32_t user_;
    std::set<std::string> special_, waiting_;  // sockets: packet and raw; at ports of the system's
    std::vector<std::string> found_;
};

}  // namespace souk::unit
