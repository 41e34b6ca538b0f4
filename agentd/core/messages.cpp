// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/messages.hpp"

#include "kernel/base/check.hpp"

namespace souk {

const char* guest_state_name(GuestState state) {
    switch (state) {
        case GuestState::unknown: return "unknown";
        case GuestState::starting: return "starting";
        case GuestState::running: return "running";
        case GuestState::dump_ready: return "dump-ready";
        case GuestState::dumping: return "dumping";
        case GuestState::shipped: return "shipped";
        case GuestState::frozen: return "frozen";
        case GuestState::prepared: return "prepared";
        case GuestState::held: return "held";
        case GuestState::exited: return "exited";
        case GuestState::killed: return "killed";
        case GuestState::failed: return "failed";
        case GuestState::retained: return "retained";
        case GuestState::filling: return "filling";
    }
    MUST(false);
}

}  // namespace souk
