// SPDX-License-Identifier: GPL-2.0-or-later
// Answers of marketd about users and their limits (tools/common/replies.md says which keys). A user
// sees his own, root everything; only root sets them. Errors: one line that says why not.
#pragma once

#include <string>
#include <vector>

#include "market/core/market.hpp"

namespace souk {

// A user by number, or by the name that his homes or an operator gave him. And that name; empty:
// none is known.
std::string name_of(const market::Market& market, uint32_t uid);
// The name, or the number where none is known.
std::string called_by(const market::Market& market, uint32_t uid);
Result<uint32_t> user_of(const market::Market& market, const std::string& who);

// `who`: a user; "-": all that have a limit and that `uid` may see.
Result<std::string> users_reply(const market::Market& market, const std::string& who, uint32_t uid,
                                Nanos now);

// args: the user, then KEY=VALUE of spend-per-day, jobs and cpus; VALUE none takes that limit back,
// others stay.
Result<std::string> limit_reply(market::Market& market, const std::vector<std::string>& args,
                                uint32_t uid, Nanos now);

// Changes the members of a project: add or remove, its name, and a user or "-".
Result<std::string> project_reply(market::Market& market, const std::vector<std::string>& args,
                                  uint32_t uid, Nanos now);

}  // namespace souk
