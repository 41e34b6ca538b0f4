// SPDX-License-Identifier: GPL-2.0-or-later
// A door to locks of files that somebody keeps for a job: a socket in the network of its node, from
// which descriptors come for whoever knows the secret (kernel/sys/store/served_locks.h). The server
// of a job's files and souk-root's keeper each open one, so that locks can go from the one to the
// other when the job comes home or leaves it. Both ends look who the other one is: root, or the
// job's user.
#pragma once

#include <cstdint>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

// It accepts without waiting. Fails if there is such a door already.
Result<Fd> open_lock_door(uint64_t secret);
// Accepts who comes, and gives him the descriptors if he is root or that user, and says the secret.
// Waits for at most a second for his word. Makes system calls only.
void answer_at_lock_door(int door, uint64_t secret, uint32_t user, const int* descriptors,
                         size_t count);
// Takes what is behind the door, which is root's or that user's. Waits for at most two seconds for
// each packet. Nothing: there is no such door.
std::vector<Fd> take_from_lock_door(uint64_t secret, uint32_t user);

}  // namespace souk
