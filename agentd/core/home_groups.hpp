// SPDX-License-Identifier: GPL-2.0-or-later
// HomeGroups: jobs that wait for other jobs of this home: until some have ended as they should
// (JobTies::afters), until no earlier one of the same name is unfinished, or until fewer than so
// many of an array are unfinished before them. The market hears of such a job and is told why it
// may not place it (JobReport::waits_for). What it holds follows from the records: an index. Pure;
// part of Home.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
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
    // Takes that end into account for one of these. changed: it waits for less. never: it cannot
    // begin any more, as that job has not ended as it should.
    enum class Wait : uint8_t { same, changed, never };
    Wait settle(HomeJob& waiting, const HomeJob& ended);

  private:
    using Name = std::pair<uint32_t, std::string>;  // of jobs of one user
    using Waiters = std::map<uint64_t, std::set<uint64_t>>;
    Waiters& waiters_of(const JobAfter& after);
    void stop_waiting(const JobAfter& after, uint64_t seq);
    bool has_namesake_before(const HomeJob& job) const;

    Waiters after_;                                  // the jobs that wait for a job
    Waiters array_after_;                            // and those that wait for all of an array
    std::map<uint64_t, std::set<uint64_t>> arrays_;  // which of it are unfinished
    std::map<Name, std::set<uint64_t>> names_;       // likewise, of those that look at it
};

// Sets NAME=VALUE in an environment, in place of the value that it had.
void set_variable(std::vector<std::string>& env, const std::string& name, const std::string& value);
// It ran to its own end, and exited with 0.
bool ended_well(const HomeJob& job);

}  // namespace souk
