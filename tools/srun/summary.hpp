// SPDX-License-Identifier: GPL-2.0-or-later
// The end of a job as srun's caller sees it.
#pragma once

#include <optional>
#include <string>

#include "agentd/wire/messages.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/result.hpp"

namespace souk::tools {

// The job's own status; 128+N if signal N ended it (also where `why` says what sent it: its memory
// was used up); 255 if it was cancelled or ended by the market (128+N if our user's signal N made
// us cancel it); 1 if it could not be started.
int exit_status(const wire::Exit& exit, int cancel_signal);

// One line of JSON into the file, or on stderr if `file` is empty.
Status write_summary(const std::string& file, const std::string& json);
// Returns what the job has cost in all; nothing if the summary does not say that.
std::optional<Money> cost_of_summary(const std::string& json);
// Checks that the file can be written, before a job is submitted.
Status check_summary_file(const std::string& file);

}  // namespace souk::tools
