// SPDX-License-Identifier: GPL-2.0-or-later
// Rows of jobs as the pages and the monitor show them. A row is a job, or a group: the jobs of one
// array or gang as one line (`list-jobs` with `fold=yes`, tools/common/replies.md). Pure.
//
// A figure has at most three digits that count. "-" says that something does not apply, and "0" is
// zero.
#pragma once

#include <string>
#include <vector>

#include "tools/common/table.hpp"

namespace souk::tools {

// Rounds each number with a point in the text to three digits: "640.0 MB of 1.23 GB" becomes
// "640 MB of 1.23 GB". A number that stands within a word (n1.24) stays.
std::string three_digits(const std::string& text);
// Returns the zone of local times at this moment: "CET", "UTC".
std::string zone_of(double unix_s);
std::string money_figure(const Json& object, const char* key);

bool is_group(const Json& row);
// Returns the job that stands for the row: of a group one that does not run, if there is one.
const Json& job_of(const Json& row);
// Returns the id of the job, and of a group that of its first job.
std::string row_id(const Json& row);
// Returns what the row is called: "n1.7", "n1.7[12]" for an array of 12 jobs, "n1.7 x 3" for a
// gang.
std::string row_title(const Json& row);
// Returns the one word of a job's state; of a group how many are so: "3 run, 6 frozen".
std::string row_states(const Json& row);
// Returns the word that gives the row its colour: of a group what its first jobs do.
std::string row_state(const Json& row);
// Returns what the row pays per CPU-hour: "-" if it does not run, "0.5-4.5" for a group.
std::string row_price(const Json& row);
// Returns the name, else the command; of one job of an array or gang with its number.
std::string row_name(const Json& row);

// Returns what the market has promised of the job's deadline, and what became of it; "-": it has
// none.
std::string promise_words(const Json& job);

// One row of a folded list. It points into the list that it was made of.
struct FoldedRow {
    const Json* job = nullptr;      // null: a group
    Json group;                     // as the market's with fold=yes
    std::vector<const Json*> jobs;  // of the group, in the list's order
    const Json& row() const { return job ? *job : group; }
};
// Folds live jobs as the market does: those that run first, then those that wait, then those that
// are frozen, in the order of the list, and arrays and gangs as one row each.
std::vector<FoldedRow> folded_jobs(const Json& jobs);

// Finished jobs, the newest first, with two or more of one array or gang as one row in the place of
// the newest: as above, with how they ended (`exit`), when the last one did, and the sums of their
// moves and freezes.
Json folded_history(const Json& jobs);

// A node's price is that of a guest, and there is no next one on a node that takes no job.
std::string node_price(const Json& node);
std::string node_next_price(const Json& node);

}  // namespace souk::tools
