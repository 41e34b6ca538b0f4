// SPDX-License-Identifier: GPL-2.0-or-later
// The user that agentd is, and what is his on this machine: its state, its control groups, and what
// CRIU and souk-init, which are root, have made in its directories. souk-root gives it to him
// before agentd begins, and so finds what an agentd of another user, or of a version that was root,
// has left. Needs root. What lies there may be made by an agentd that was taken over: no symbolic
// link is followed, and no file is given away that has another name elsewhere.
#pragma once

#include <cstdint>
#include <string>

#include "kernel/base/result.hpp"

namespace souk::root {

struct AgentUser {
    uint32_t uid = 0, gid = 0;  // 0: root
    explicit operator bool() const { return uid != 0; }
};

// agentd's things are here, as its configuration says.
struct AgentPlace {
    std::string state, identity, cgroup;  // cgroup: "souk/n1"
    int64_t ram_mb = 0;                   // for images on their way
};

// Finds the user: `name` is that of an account, or a number (then the group has the same one), or
// "root". The error says why agentd cannot be that user on this machine, so that it stays root.
Result<AgentUser> find_agent_user(const std::string& name);

// Makes what is missing, and gives all of it to `user`. If `user` is root, that includes what was
// another user's. Fails if the user cannot have it.
Status hand_over(const AgentPlace& place, AgentUser user);

// Gives that user what root has made directly in that directory of his.
Status give_files(int dir, AgentUser user);

}  // namespace souk::root
