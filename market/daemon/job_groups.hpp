// SPDX-License-Identifier: GPL-2.0-or-later
// Live jobs as a page lists them: those that run first, and the jobs of one array or gang as one
// entry, if there are two of them at least. A job that the asker is told little of is in no group,
// because its group is no business of the asker. One walk over all live jobs for each part.
#pragma once

#include <functional>
#include <string>

#include "market/daemon/job_list.hpp"

namespace souk {

// `lets`: which jobs are listed. At most `page` entries in one part. A group is an object with
// `group` (the id of its first job), `kind`, `jobs`, `states`, sums, and `first`, a job of it that
// does not run, if there is one: its reason says what the group waits for.
Result<std::string> folded_jobs_reply(const market::Market& market,
                                      const std::function<bool(const market::JobRecord&)>& lets,
                                      size_t page, const std::string& after, const JobAsker& asker,
                                      const WriteJob& write, std::string& next);

}  // namespace souk
