// SPDX-License-Identifier: GPL-2.0-or-later
// SwfParser: reads a job log in the Standard Workload Format (Chapin et al., 'Benchmarks and
// standards for the evaluation of parallel job schedulers', JSSPP 1999; version 2.2 of the Parallel
// Workloads Archive) from text that comes in pieces of any size. Pure: no file, no clock. The owner
// feeds it and takes the trace from finish().
//
// A job line has exactly 18 numbers between blanks; `;` starts a header line; CRLF ends and empty
// lines are taken. Times and memory may have a fraction, and are rounded. A job that was swapped
// out has a line for each part (status 2, 3, 4) and one as a whole, which counts; without that one
// its parts make one job: submitted as the first was, as long as all together.
// Fails on, naming line, field and why: a missing or a 19th field, text that is no number, a
// fraction or a number out of range where a count is kept, a negative number other than -1
// ("unknown"), an unknown id, an id that an earlier line has, a line of more than 64 KiB, a text
// without any job.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk::sim {

// The fields of a job line that the simulators use; -1 is "unknown" in every field but the id.
struct SwfJob {
    int64_t id = 0;
    int64_t submit_s = 0;  // since the start of the log (or of the epoch: some logs say so)
    int32_t run_s = -1;
    int32_t allocated = -1;     // processors that it got
    int32_t requested = -1;     // processors that it asked for
    int32_t requested_s = -1;   // run time that its user expected
    int32_t used_kb = -1;       // memory per processor
    int32_t requested_kb = -1;  // memory per processor
    int32_t user = -1;
    uint32_t line = 0;  // its line in the text, from 1
};

struct SwfTrace {
    std::vector<SwfJob> jobs;  // in the order of the text; submit times need not be sorted
    int64_t max_procs = 0;     // of the header; 0 when it does not say
};

class SwfParser {
  public:
    Status feed(std::string_view piece);
    Result<SwfTrace> finish();
    uint64_t lines() const { return line_; }  // whole lines read so far

  private:
    Status lines_of(const char* from, const char* end);
    Status job_line(const char*& p);
    Status keep(const int64_t* fields, const char* text);
    void header_line(std::string_view line);
    tl::unexpected<Error> bad(int field, std::string_view why) const;
    Status no_duplicates() const;
    void join_parts();

    SwfTrace trace_;
    std::vector<SwfJob> parts_;  // in the order of the text
    std::string tail_;           // the beginning of a line whose end has not come yet
    uint64_t line_ = 0;
    int64_t id_max_ = -1;
    bool ids_ascend_ = true;
};

// Parses the whole text of a log at once.
Result<SwfTrace> parse_swf(std::string_view text);

}  // namespace souk::sim
