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

// What a component of so many CPUs may spend of the budget of all, who have `all` CPUs. Error:
// nothing.
Result<Money> share_of_budget(Money budget, int32_t cpus, int64_t all);

// The lines of several streams in one: whole lines, each with its label; a line that has no end yet
// waits, up to a bound.
class LineMerge {
  public:
    // Of each component its label; none: lines have none.
    explicit LineMerge(std::vector<std::string> labels);
    // What is to be written now that these bytes came from that component.
    std::string add(int32_t component, std::string_view bytes);
    std::string end(int32_t component);

  private:
    std::string label(size_t component) const;
    std::vector<std::string> labels_;
    std::vector<std::string> open_;
};

// Of the statuses of srun for its required components, in the order in which they ended: the first
// that is the component's own and not 0.
int gang_status(const std::vector<int>& ended);
bool is_required(const SrunOptions& options, size_t component);

// The request of each, by the command line and the plan; `common` is what all have. Errors: a
// program or a directory that is not there, a budget too small.
Result<std::vector<wire::Submit>> describe_components(const SrunOptions& options,
                                                      const wire::Submit& common);
// Submits all components, or none: on a failure those that are there already are cancelled.
// Returns the ids.
Result<std::vector<JobId>> submit_components(Link& link, std::vector<wire::Submit>& requests);
// Stays until all have ended. Returns srun's exit status; errors are already said.
int attach_components(const SrunOptions& options, const std::string& socket,
                      const std::vector<JobId>& ids);

}  // namespace souk::tools
