// SPDX-License-Identifier: GPL-2.0-or-later
// Jobs as marketctl asks for them, wherever their records are: those that live in the market's
// machine, the finished ones in its database (market/store/finished.hpp), of which a bounded number
// is looked at for one part of an answer.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kernel/base/json.hpp"
#include "market/core/market.hpp"
#include "market/store/finished.hpp"

namespace souk {

using WriteJob = std::function<void(JsonWriter&, const market::Job&)>;

// JobAsker: who asks for a list, and when.
struct JobAsker {
    uint32_t uid = 0;
    Nanos now;
};

// A finished job as the machine would know it.
market::Job finished_job(market::JobRecord record);
// Errors: there is no such job, or it is finished.
Status must_live(const market::Market& market, const FinishedJobs& finished, const JobId& id);

// `filters`: KEY=VALUE of state (live, wait, run, suspend, finish, all; default: live ones and the
// newest finished ones), user (name or number), node, array, group (an array or a gang), since,
// limit, page (at most so many in one part) and fold. By id; with state=finish, limit or page the
// newest first; with fold=yes (job_groups.hpp) those that run first. `after` and `next`: where the
// list goes on.
Result<std::string> list_jobs_reply(const market::Market& market, const FinishedJobs& finished,
                                    const std::vector<std::string>& filters,
                                    const std::string& after, const JobAsker& asker,
                                    const WriteJob& write, std::string& next);

}  // namespace souk
