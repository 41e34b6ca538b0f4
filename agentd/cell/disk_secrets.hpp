// SPDX-License-Identifier: GPL-2.0-or-later
// DiskSecrets: what homes have given for the images of their jobs on this node's disk
// (checkpoint/disk_key.hpp), one for each (job, epoch) that is here. They lie on the tmpfs for
// images, in a directory of root's, so that they outlive a daemon and not the machine: after a
// reboot the home gives them again with the order to thaw.
//
// Owner: GuestHost. What fails: the tmpfs is full; then a secret is in the memory of the daemon
// alone.
#pragma once

#include <map>
#include <set>
#include <string>

#include "agentd/core/guest_io.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

class DiskSecrets {
  public:
    static constexpr const char* directory_name = "keys";
    DiskSecrets() = default;
    // Below `ram`, which is a tmpfs; with what lies there.
    static Result<DiskSecrets> open(int ram);
    // It can be found at once, whatever the error.
    Status keep(const GuestKey& key, const std::string& secret);
    void forget(const GuestKey& key);
    // All but those, by GuestKey::text.
    void forget_but(const std::set<std::string>& known);
    // Empty: there is none.
    std::string find(const GuestKey& key) const;

  private:
    Fd directory_;
    std::map<std::string, std::string> secrets_;  // by GuestKey::text
};

}  // namespace souk
