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

// What `work` gives back, at most that many bytes. An error, ETIMEDOUT: it has taken longer. Who is
// killed then may be left to be reaped.
Result<std::string> work_within(Nanos limit, const std::function<std::string()>& work);

// The same for work that gives nothing back, or its error: files that are open, and memory that is
// shared, are that process's too.
Status done_within(Nanos limit, const std::function<Status()>& work);

}  // namespace souk
