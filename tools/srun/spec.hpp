// SPDX-License-Identifier: GPL-2.0-or-later
// What this process would hand to a program that it executes: the job gets the same.
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
// What is to be otherwise than with this process.
struct LaunchWish {
    std::vector<std::string> argv;
    std::string directory;  // empty: this process's own
    std::vector<std::pair<std::string, std::string>> environment;
};
Result<LaunchSpec> capture_launch(const LaunchWish& wish);
// NAME=VALUE in place of what it had.
void set_in_environment(std::vector<std::string>& env, const std::string& name,
                        const std::string& value);

}  // namespace souk::tools
