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

// What each component may spend of the budget of all: the same for like ones. Error: nothing is
// left for each.
Result<Money> share_of_budget(Money budget, int32_t components);

// The lines of several streams in one: whole lines, each with its label; a line that has no end yet
// waits, up to a bound.
class LineMerge {
  public:
    LineMerge(bool labels, int32_t of) : labels_(labels), of_(of) {}
    // What is to be written now that these bytes came from that component.
    std::string add(int32_t component, std::string_view bytes);
    std::string end(int32_t component);

  private:
    std::string label(int32_t component) const;
    bool labels_;
    int32_t of_;
    std::vector<std::string> open_;
};

// Of the statuses of srun for its components, in the order in which they ended: the first that is
// the component's own and not 0.
int gang_status(const std::vector<int>& ended);

// Submits all components, or none: on a failure those that are there already are cancelled.
// Returns the ids.
Result<std::vector<JobId>> submit_components(const SrunOptions& options, Link& link,
                                             wire::Submit& request);
// Stays until all have ended. Returns srun's exit status; errors are already said.
int attach_components(const SrunOptions& options, const std::string& socket,
                      const std::vector<JobId>& ids);

}  // namespace souk::tools
