// SPDX-License-Identifier: GPL-2.0-or-later
// What a restore has made, by the kernel's own word: asked when CRIU has given the processes all
// that they are to have, and nothing of them has run yet. It needs no image: so it holds whatever
// an image says, and whoever has read it (core_image.hpp looks at images, before).
#pragma once

#include "checkpoint/criu.hpp"
#include "kernel/base/result.hpp"

namespace souk {

// Each thread in the capsule but souk-init's and CRIU's: its ids and groups are the user's, it has
// no capability and gains none, and it has no device open whose name is gone (it can only be out of
// the image). Of root anything may be. The error names the process.
Status check_restored(const Capsule& capsule, const CriuUser& user);
// Ends the same processes, while CRIU still holds them: none of them runs once more.
void kill_restored(const Capsule& capsule);

}  // namespace souk
