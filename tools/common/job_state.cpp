// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/job_state.hpp"

namespace souk::tools {

std::string job_state(const Json& job) {
    const std::string status = field(job, "status");
    const bool stands = status == "suspend" && job.value("stopped_in_place", false);
    return stands && job.value("can_move", false) ? "stands" : status;
}

}  // namespace souk::tools
