// SPDX-License-Identifier: GPL-2.0-or-later
// srun -N: a job of several components (docs/gangs.md). Its output comes by component, its exit
// status is that of the first component that failed.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/ids.hpp"
#include "kernel/base/result.hpp"
#include "tools/common/link.hpp"
#include "tools/srun/options.hpp"

namespace souk::tools {

// Returns the part of the whole budget that a component with so many CPUs may spend; all components
// together have `all` CPUs. Error: the part is nothing.
Result<Money> share_of_budget(Money budget, int32_t cpus, int64_t all);

// Merges the lines of several streams: whole lines, each with its label. A line that has no end yet
// waits, up to a bound.
class LineMerge {
  public:
    // Takes a label for each component; none: lines have no labels.
    explicit LineMerge(std::vector<std::string> labels);
    // Takes bytes that came from that component, and returns what is to be written now.
    std::string add(int32_t component, std::string_view bytes);
    std::string end(int32_t component);

  private:
    std::string label(size_t component) const;
    std::vector<std::string> labels_;
    std::vector<std::string> open_;
};

// Returns the status of the gang, from the statuses of srun for its required components in the
// order in which they ended: the first that is the component's own and not 0.
int gang_status(const std::vector<int>& ended);
bool is_required(const SrunOptions& options, size_t component);

// Makes the request of each component from the command line and the plan; `common` is what all
// have. Errors: a program or a directory that is not there, a budget too small.
Result<std::vector<wire::Submit>> describe_components(const SrunOptions& options,
                                                      const wire::Submit& common);
// Submits all components, or none: on a failure those that are there already are cancelled.
// Returns the ids.
Result<std::vector<JobId>> submit_components(Link& link, std::vector<wire::Submit>& requests);
// Stays until all have ended. Returns srun's exit status; errors are already said.
int attach_components(const SrunOptions& options, const std::string& socket,
                      const std::vector<JobId>& ids);

}  // namespace souk::tools
