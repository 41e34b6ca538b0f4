// SPDX-License-Identifier: GPL-2.0-or-later
// The job and provider files of the market simulator, as plain values. Pure: text in, values out.
//
// One job or provider a line, blanks between the fields, `#` starts a comment, empty lines are
// skipped, CRLF is taken.
//   provider: id start end reserve memory cpus speed      (end -1: never leaves)
//   job:      id start run value memory cpus [user [home mb requests]]
// run: seconds on a standard machine, speed 100. home: the provider that has the job's files (0:
// none; one that is not in the file takes no jobs); away from it the job reads and writes so many
// MB, and makes so many requests, in each second.
// Times are whole seconds, memory is MB, money has at most six decimals. Without a user every job
// is its own. An error says line, field and why: a missing field or one too many, no number, a
// number out of range, an id twice, an end that is not after the start, a file without any line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/money.hpp"
#include "kernel/base/result.hpp"

namespace souk::sim {

// Starts and ends are at most this (253 years): the market reckons in nanoseconds, 64 bits of them,
// and its options add up to 1e9 s.
inline constexpr int64_t seconds_max = 8'000'000'000;

struct SimJob {
    int64_t id = 0;       // at least 1
    int64_t start_s = 0;  // arrives
    int64_t run_s = 0;    // at least 1
    Money value;          // per CPU-hour
    int64_t memory_mb = 0;
    int32_t cpus = 1;
    uint32_t user = 0;
    int64_t home = 0;  // id of the provider that has its files; 0: none
    int64_t files_mb_per_s = 0, files_requests_per_s = 0;
    bool operator==(const SimJob&) const = default;
};

struct SimProvider {
    int64_t id = 0;  // at least 1
    int64_t start_s = 0;
    int64_t end_s = -1;
    Money reserve;
    int64_t memory_mb = 0;
    int32_t cpus = 1;
    int32_t speed = 100;
    bool operator==(const SimProvider&) const = default;
};

// Ascending by id.
Result<std::vector<SimJob>> parse_jobs(std::string_view text);
Result<std::vector<SimProvider>> parse_providers(std::string_view text);

// The text that parses to the same; `with_users` adds the seventh field, a home all ten.
std::string format_jobs(const std::vector<SimJob>& jobs, bool with_users);
std::string format_providers(const std::vector<SimProvider>& providers);

}  // namespace souk::sim
