// SPDX-License-Identifier: GPL-2.0-or-later
// srun --wait: waits for the end of jobs without being their terminal: what they write stays at
// their home, or goes into their files.
#pragma once

#include <string>
#include <vector>

#include "kernel/base/ids.hpp"
#include "kernel/base/result.hpp"
#include "tools/srun/options.hpp"

namespace souk::tools {

// The jobs of the array that begins with this one, by their index, as the market knows them; of
// another job that job alone. Errors: the market could not be asked.
Result<std::vector<JobId>> jobs_of_array(const SrunOptions& options, const JobId& id);
// "n1.7.2": component 2 of the job n1.7.
bool names_component(const std::string& text);
// Returns the job's id, as the market knows it. Errors: the market could not be asked; there is
// none.
Result<JobId> component_named(const SrunOptions& options, const std::string& text);
// One after the other. The greatest of their exit statuses. Errors: nobody knows such a job, or the
// agentd stayed away for longer than the patience; the jobs go on.
Result<int> wait_for_jobs(const SrunOptions& options, const std::string& socket,
                          const std::vector<JobId>& jobs);

}  // namespace souk::tools
