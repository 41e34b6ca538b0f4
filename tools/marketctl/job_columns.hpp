// SPDX-License-Identifier: GPL-2.0-or-later
// JobColumns: the columns that `list-jobs` and `history` can show of jobs (-o), and the line of an
// array, which is one job made of all of its jobs. As table.hpp: for .cpp files of tools that print
// answers.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tools/common/ctl.hpp"
#include "tools/common/table.hpp"

namespace souk::tools {

// One column. `key`: what it shows, in the JSON of a job (replies.md).
struct JobColumn {
    const char *name, *title, *key;
    bool right;
    std::string (*text)(const Json& job, const char* key);
};

// The command line says this of the columns: names with commas (empty: the usual ones), and that
// each job of an array has a line.
struct ColumnOptions {
    std::string names;
    bool open = false;
    bool any() const { return open || !names.empty(); }
};

using JobColumns = std::vector<const JobColumn*>;

// The columns of these names, with commas between them. Errors: a name that is none, with all that
// there are.
Result<JobColumns> job_columns(std::string_view names);

// The question shows its jobs as a table. An array is one line where its first job stands. `usual`:
// the columns when none are named. Errors: a name that is no column.
Status show_jobs(const ColumnOptions& options, std::string_view usual, CtlQuestion& question);
// Writes the jobs as csv_of() does, each by itself.
Result<std::string> jobs_csv(const Answer& jobs, const JobColumns& columns);
// Says of one array what its jobs have in common and in sum. Errors: no job is of an array.
Result<std::string> array_text(const Answer& jobs);

// The jobs of one array, as one.
class JobArray {
  public:
    void add(const Json& job);
    size_t jobs() const { return jobs_; }
    // The array as a job: sums of times, money and moves, the most memory, the mean efficiency.
    Json as_job() const;

    // "2: n1.9[3] (1), n1.11[5] (137)": how many failed, and the first of them with how they ended.
    std::string failures() const;
    // Jobs that somebody cancelled are none of these.
    size_t cancelled() const { return cancelled_; }

  private:
    Json sum_ = Json::object();
    std::map<std::string, size_t> states_;
    size_t jobs_ = 0, ended_ = 0, failed_ = 0, cancelled_ = 0;
    double asked_s_ = 0, used_s_ = 0;  // CPU time, of the jobs whose use is known
    std::string failures_;
};

}  // namespace souk::tools
