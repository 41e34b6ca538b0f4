// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/marketctl/job_columns.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "kernel/base/text.hpp"
#include "tools/common/entries.hpp"
#include "tools/common/job_state.hpp"
#include "tools/common/nearest.hpp"

namespace souk::tools {
namespace {

// Returns the job's name, else the command that it runs.
std::string called(const Json& job, const char* /*key*/) {
    constexpr size_t shown = 24;
    const std::string name = job.value("name", "");
    std::string text = name.empty() ? field(job, "command") : name;
    size_t characters = 0, end = 0;  // of the last that is shown if it is cut
    for (size_t i = 0; i < text.size(); ++i) {
        if ((text[i] & 0xc0) == 0x80) continue;  // within one
        if (characters == shown - 2) end = i;
        ++characters;
    }
    return characters <= shown ? text : text.substr(0, end) + "..";
}

std::string state(const Json& job, const char* /*key*/) { return job_state(job); }

std::string part_of_one(const Json& job, const char* key) {
    if (!job.contains(key) || !job[key].is_number()) return "-";
    return std::to_string(static_cast<int64_t>(job[key].get<double>() * 100 + 0.5)) + "%";
}

constexpr JobColumn columns[] = {
    {"id", "ID", "id", false, field},
    {"user", "User", "user", false, field},
    {"name", "Name", "name", false, field},
    {"called", "Name", "name", false, called},
    {"command", "Command", "command", false, field},
    {"status", "Status", "status", false, state},
    {"exit", "Exit", "exit", true, field},
    {"why", "Why", "why", false, field},
    {"failures", "Failures", "failures", true, field},
    {"value", "V", "value", true, field},
    {"price", "Price", "price", true, field},
    {"cost", "Cost", "cost", true, field},
    {"budget", "Budget", "budget", true, field},
    {"project", "Project", "project", false, field},
    {"submitted", "Submitted", "submitted_unix_s", false, local_time},
    {"ended", "Ended", "ended_unix_s", false, local_time},
    {"run", "Run", "runtime_s", true, duration},
    {"wait", "Wait", "wait_s", true, duration},
    {"t-runtime", "T-runtime", "runtime_s", true, duration},
    {"m-runtime", "M-runtime", "market_runtime_s", true, duration},
    {"cpus", "CPUs", "cpus", true, field},
    {"cpu", "CPU time", "cpu_used_s", true, duration},
    {"efficiency", "Efficiency", "efficiency", true, part_of_one},
    {"memory", "Memory", "memory_mb", true, megabytes},
    {"peak", "Peak", "memory_peak_bytes", true, bytes},
    {"moves", "Moves", "migrations", true, field},
    {"freezes", "Freezes", "freezes", true, field},
    {"where", "Where", "where", false, field},
    {"places", "Ran on", "places", false, field},
    {"comment", "Comment", "comment", false, field},
};

std::vector<std::string> row_of(const Json& job, const JobColumns& shown) {
    std::vector<std::string> row;
    for (const JobColumn* c : shown) row.push_back(c->text(job, c->key));
    return row;
}

// An array is the sum of these, and the most of those.
constexpr const char* summed[] = {"runtime_s", "market_runtime_s", "wait_s",  "cpu_used_s",
                                  "cost",      "migrations",       "freezes", "failures",
                                  "thaws",     "failed_moves"};
constexpr const char* most_of[] = {"memory_peak_bytes", "ended_unix_s"};
constexpr size_t failures_named_max = 8;  // so many failures are named

}  // namespace

Result<JobColumns> job_columns(std::string_view names) {
    JobColumns found;
    std::vector<std::string> known;
    for (const JobColumn& c : columns) known.emplace_back(c.name);
    for (const std::string& name : comma_parts(names)) {
        const auto column = std::find_if(std::begin(columns), std::end(columns),
                                         [&](const JobColumn& c) { return c.name == name; });
        if (column == std::end(columns)) {
            std::string all;
            for (const std::string& each : known) all += (all.empty() ? "" : ", ") + each;
            return fail("-o: '" + name + "' is no column" + did_you_mean(name, known) +
                        "; there are " + all);
        }
        found.push_back(column);
    }
    return found;
}

void JobArray::add(const Json& job) {
    if (jobs_++ == 0) {
        for (const char* key : {"user", "value", "command", "cpus", "memory_mb", "project",
                                "budget", "submitted_unix_s"})
            if (job.contains(key)) sum_[key] = job[key];
        sum_["name"] = called(job, "name");
        sum_["array"] = field(job, "array");
    }
    ++states_[job_state(job)];
    if (job.contains("exit")) ++ended_;
    if (job.value("cancelled", false) && field(job, "why_code") == "cancelled")
        ++cancelled_;
    else if (job.value("exit", 0) != 0 && ++failed_ <= failures_named_max)
        failures_ += (failures_.empty() ? "" : ", ") + field(job, "id") + "[" +
                     field(job, "array_index") + "] (" + field(job, "exit") + ")";
    for (const char* key : summed)
        if (job.contains(key) && job[key].is_number())
            sum_[key] = sum_.value(key, 0.0) + job[key].get<double>();
    for (const char* key : most_of)
        if (job.contains(key) && job[key].is_number())
            sum_[key] = std::max(sum_.value(key, 0.0), job[key].get<double>());
    if (!job.contains("efficiency")) return;
    used_s_ += job.value("cpu_used_s", 0.0);
    asked_s_ += job.value("runtime_s", 0.0) * job.value("cpus", 1.0);
}

std::string JobArray::failures() const {
    return std::to_string(failed_) + (failures_.empty() ? "" : ": " + failures_) +
           (failed_ > failures_named_max ? ", .." : "");
}

Json JobArray::as_job() const {
    Json job = sum_;
    std::string states;
    for (const auto& [state, n] : states_)
        states += (states.empty() ? "" : ", ") + std::to_string(n) + " " + state;
    job["id"] = field(sum_, "array") + "[*]";
    job["status"] = states;
    std::string exit = failed_ > 0 ? std::to_string(failed_) + " failed" : "";
    if (cancelled_ > 0)
        exit += (exit.empty() ? "" : ", ") + std::to_string(cancelled_) + " cancelled";
    if (ended_ > 0) job["exit"] = exit.empty() ? "0" : exit;
    if (asked_s_ > 0) job["efficiency"] = used_s_ / asked_s_;
    job["comment"] = "an array of " + std::to_string(jobs_) + ": --open shows each";
    return job;
}

namespace {

Result<std::string> jobs_table(const Answer& jobs, const JobColumns& shown, bool open) {
    std::map<std::string, JobArray> arrays;
    const auto array_of = [&](const Json& job) {
        return open || !job.contains("array") ? std::string() : field(job, "array");
    };
    TRY(for_each_entry(jobs, [&](const Json& job) {
        if (const std::string array = array_of(job); !array.empty()) arrays[array].add(job);
    }));
    std::vector<Table::Column> titles;
    for (const JobColumn* c : shown) titles.push_back({c->title, c->right, c->text == state});
    Table table(std::move(titles));
    std::set<std::string> seen;
    TRY(for_each_entry(jobs, [&](const Json& job) {
        const auto of = arrays.find(array_of(job));
        if (of == arrays.end() || of->second.jobs() == 1)
            table.add(row_of(job, shown));
        else if (seen.insert(of->first).second)
            table.add(row_of(of->second.as_job(), shown));
    }));
    return table.text();
}

}  // namespace

Status show_jobs(const ColumnOptions& options, std::string_view usual, CtlQuestion& question) {
    TRY_ASSIGN(const JobColumns shown, job_columns(options.names.empty() ? usual : options.names));
    question.text = [shown, open = options.open](const Answer& jobs) {
        return jobs_table(jobs, shown, open);
    };
    return {};
}

Result<std::string> array_text(const Answer& jobs) {
    JobArray array;
    TRY(for_each_entry(jobs, [&](const Json& job) { array.add(job); }));
    if (array.jobs() == 0)
        return fail("this market has no such array now, or its jobs are others'");
    const Json sum = array.as_job();
    return lines({{"array", field(sum, "id")},
                  {"user", field(sum, "user")},
                  {"name", field(sum, "name")},
                  {"command", field(sum, "command")},
                  {"jobs", std::to_string(array.jobs())},
                  {"status", field(sum, "status")},
                  {"failed", array.failures()},
                  {"cancelled", std::to_string(array.cancelled())},
                  {"memory", megabytes(sum, "memory_mb") + " each"},
                  {"memory peak", bytes(sum, "memory_peak_bytes")},
                  {"run", duration(sum, "runtime_s")},
                  {"cpu used", duration(sum, "cpu_used_s")},
                  {"efficiency", part_of_one(sum, "efficiency")},
                  {"moves", field(sum, "migrations")},
                  {"freezes", field(sum, "freezes")},
                  {"cost", field(sum, "cost")}});
}

Result<std::string> jobs_csv(const Answer& jobs, const JobColumns& shown) {
    std::vector<const char*> keys;
    for (const JobColumn* c : shown) keys.push_back(c->key);
    return csv_of(jobs, keys);
}

}  // namespace souk::tools
