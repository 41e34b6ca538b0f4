// SPDX-License-Identifier: GPL-2.0-or-later
// Work that may wait for others for as long as they like, as a look-up of a user does where
// accounts are told over a network: it is done in a process of its own, which ends after a while
// whether it has an answer or not. That process is a copy of this one, which has one thread.
#pragma once

#include <functional>
#include <string>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"

namespace souk {

inline constexpr size_t bounded_answer_max = 64 << 10;

// Returns the result of `work`, at most that many bytes. `work` runs in a process of its own.
// ETIMEDOUT: the work has taken longer, and the process is killed; it may be left to be reaped.
Result<std::string> work_within(Nanos limit, const std::function<std::string()>& work);

// Does the same for work that returns nothing, or an error. Open files and shared memory belong to
// the other process too.
Status done_within(Nanos limit, const std::function<Status()>& work);

}  // namespace souk
