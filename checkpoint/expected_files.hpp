// SPDX-License-Identifier: GPL-2.0-or-later
// Lists the files of its home that CRIU is about to look at, at a dump or a restore of a job whose
// root is its home's tree: what each process has open and mapped, with the flags of open(2). The
// list only lets them be asked for at once (agentd/files/expected.hpp), so a wrong list does no
// harm.
#pragma once

#include <string>

#include "kernel/sys/process/process_files.hpp"

namespace souk {

inline constexpr const char* expected_files_name = "souk-expected";

// Lists the files of processes, which may run or stand still. The list goes to the client that
// serves the job's files. Making it asks no file server.
std::string expected_files(const PidsInside& pids, const LookAt& look = look_from_here);
// Saves the list in an image, and reads it there. An image of an earlier version has no list.
// Errors are ignored, because a job restores without the list too, only slower.
void save_expected_files(int image, const std::string& list);
std::string read_expected_files(int image);

}  // namespace souk
