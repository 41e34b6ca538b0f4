// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/table.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {

Result<std::string> jobs_text(const Answer& jobs) {
    Table table({{"ID"},
                 {"User"},
                 {"Status"},
                 {"V", true},
                 {"T-runtime", true},
                 {"M-runtime", true},
                 {"Where"},
                 {"Comment"}});
    return table.text_of(jobs, [](const Json& job) -> std::vector<std::string> {
        return {field(job, "id"),    field(job, "user"),         field(job, "status"),
                field(job, "value"), duration(job, "runtime_s"), duration(job, "market_runtime_s"),
                field(job, "where"), field(job, "comment")};
    });
}

}  // namespace souk::tools
