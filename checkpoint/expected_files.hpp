// SPDX-License-Identifier: GPL-2.0-or-later
// Which files of its home CRIU is about to look at, at a dump or a restore of a job whose root is
// its home's tree: what each process has open and mapped, with the flags of open(2). Only so that
// they are asked for at once (agentd/files/expected.hpp): nothing is wrong if the list is.
#pragma once

#include <string>

#include "kernel/sys/process/process_files.hpp"

namespace souk {

inline constexpr const char* expected_files_name = "souk-expected";

// Of processes that run, or stand: the list that goes to the client. No file server is asked.
std::string expected_files(const PidsInside& pids, const LookAt& look = look_from_here);
// In an image; an image of an earlier version has none. What cannot be written or read is left out.
void save_expected_files(int image, const std::string& list);
std::string read_expected_files(int image);

}  // namespace souk
