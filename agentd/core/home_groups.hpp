// SPDX-License-Identifier: GPL-2.0-or-later
// HomeGroups: jobs that wait for other jobs of this home: until one has ended, or until fewer than
// so many of an array are unfinished before them. The market hears of such a job and is told why it
// may not place it (JobReport::waits_for). What it holds follows from the records: an index. Pure;
// part of Home.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "agentd/core/home_io.hpp"

namespace souk {

class HomeGroups {
  public:
    using Jobs = std::map<uint64_t, HomeJob>;

    // Checks the array of a new job, and the job that it waits for. Errors: this user has no such
    // job, or it has not ended as it should. A wait that is over is taken out.
    static Status check(HomeJob& job, const Jobs& jobs);
    // It is in the records. The variables by which a program knows its job are in its environment.
    void add(HomeJob& job);
    // Why it may not begin yet; empty: it may.
    std::string waits(const HomeJob& job) const;
    // It has ended: who waited for that, or moves up in its array.
    std::vector<uint64_t> ended(const HomeJob& job);

  private:
    std::map<uint64_t, std::set<uint64_t>> after_;   // who waits for it
    std::map<uint64_t, std::set<uint64_t>> arrays_;  // which of it are unfinished
};

// Sets NAME=VALUE in an environment, in place of the value that it had.
void set_variable(std::vector<std::string>& env, const std::string& name, const std::string& value);
// It ran to its own end, and exited with 0.
bool ended_well(const HomeJob& job);

}  // namespace souk
