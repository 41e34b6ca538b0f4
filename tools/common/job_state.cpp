// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/job_state.hpp"

namespace souk::tools {

std::string state_word(const std::string& status) {
    return status == "suspend" ? "frozen" : status;
}

std::string status_of_word(const std::string& word) { return word == "frozen" ? "suspend" : word; }

std::string job_state(const Json& job) {
    const std::string status = field(job, "status");
    if (status == "suspend" && job.value("stopped_in_place", false)) return "stands";
    return state_word(status);
}

}  // namespace souk::tools
