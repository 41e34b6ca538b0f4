// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/log_trace.hpp"

#include <vector>

namespace souk {

void LogTrace::tell(const TraceLine& line) {
    std::vector<Field> fields{{"STEP", line.step}};
    if (!line.job.home.empty()) fields.emplace_back("JOB", line.job.text());
    if (line.epoch.n > 0) fields.emplace_back("EPOCH", line.epoch.n);
    if (!line.node.empty()) fields.emplace_back("NODE", line.node);
    if (!line.to.empty()) fields.emplace_back("TO", line.to);
    if (!line.why.empty()) fields.emplace_back("WHY", line.why);
    log_.write(Level::debug, std::string(line.machine) + " " + to_string(line.kind), fields);
}

}  // namespace souk
