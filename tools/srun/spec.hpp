// SPDX-License-Identifier: GPL-2.0-or-later
// Captures what this process would hand to a program that it executes, so that the job gets the
// same.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kernel/base/launch.hpp"
#include "kernel/base/result.hpp"

namespace souk::tools {

// The program is looked up as execvp does. Errors: there is no such program, it is not executable,
// or its arguments and environment are longer than a job's may be.
Result<LaunchSpec> capture_launch(std::span<char*> program);
// A wish says what is to be different from this process.
struct LaunchWish {
    std::vector<std::string> argv;
    std::string directory;  // empty: this process's own
    std::vector<std::pair<std::string, std::string>> environment;
};
Result<LaunchSpec> capture_launch(const LaunchWish& wish);
// Sets NAME=VALUE in place of the value that was there.
void set_in_environment(std::vector<std::string>& env, const std::string& name,
                        const std::string& value);

}  // namespace souk::tools
