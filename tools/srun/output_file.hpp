// SPDX-License-Identifier: GPL-2.0-or-later
// The files that srun -o and -e name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kernel/base/ids.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"
#include "tools/srun/options.hpp"

namespace souk::tools {

// Gives the signs for the names of the files of a job of these options.
OutputSigns output_signs_of(const SrunOptions& options, const JobId& id,
                            std::optional<uint32_t> index);

// Opens the file to be written at its end, and makes it if it is not there. Errors: with the name
// as it was given.
Result<Fd> open_output_file(const std::string& pattern, const OutputSigns& signs);

// Fails if that would not work. A FIFO is only looked at: opening it would wait for its reader, and
// closing it again would end what that reads.
Status try_output_file(const std::string& pattern, const OutputSigns& signs);

// Checks before a job has an id whether its file, or one in its directory, could be written. Makes
// nothing. Errors: with the name as it was given.
Status output_can_be_written(const std::string& pattern);

}  // namespace souk::tools
