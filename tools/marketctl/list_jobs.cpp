// SPDX-License-Identifier: GPL-2.0-or-later
#include <map>
#include <set>

#include "tools/common/entries.hpp"
#include "tools/common/job_state.hpp"
#include "tools/common/table.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {
namespace {

// Returns the job's name, else the command that it runs.
std::string called(const Json& job) {
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

Table jobs_table() {
    return Table({{"ID"},
                  {"User"},
                  {"Name"},
                  {"Status", false, true},
                  {"Exit", true},
                  {"V", true},
                  {"T-runtime", true},
                  {"M-runtime", true},
                  {"Where"},
                  {"Comment"}});
}

std::vector<std::string> job_row(const Json& job) {
    return {field(job, "id"),
            field(job, "user"),
            called(job),
            job_state(job),
            field(job, "exit"),
            field(job, "value"),
            duration(job, "runtime_s"),
            duration(job, "market_runtime_s"),
            field(job, "where"),
            field(job, "comment")};
}

// The jobs of one array, as one.
struct Array {
    std::string user, name, value;
    std::map<std::string, size_t> states;
    size_t jobs = 0, ended = 0, failed = 0;
    double run = 0, market_run = 0;

    void add(const Json& job) {
        if (jobs++ == 0) {
            user = field(job, "user");
            name = called(job);
            value = field(job, "value");
        }
        ++states[job_state(job)];
        if (job.contains("exit")) ++ended;
        if (job.value("exit", 0) != 0) ++failed;
        run += job.value("runtime_s", 0.0);
        market_run += job.value("market_runtime_s", 0.0);
    }
    std::vector<std::string> row(const std::string& id) const {
        std::string text;
        for (const auto& [state, n] : states)
            text += (text.empty() ? "" : ", ") + std::to_string(n) + " " + state;
        const Json sums = {{"run", run}, {"market_run", market_run}};
        const std::string exit = failed > 0 ? std::to_string(failed) + " failed" : "0";
        return {id + "[*]",
                user,
                name,
                text,
                ended > 0 ? exit : "-",
                value,
                duration(sums, "run"),
                duration(sums, "market_run"),
                "-",
                "an array of " + std::to_string(jobs) + ": list-jobs --open shows each"};
    }
};

}  // namespace

Result<std::string> open_jobs_text(const Answer& jobs) {
    return jobs_table().text_of(jobs, job_row);
}

// A line for each array, where its first job stands in the list.
Result<std::string> jobs_text(const Answer& jobs) {
    std::map<std::string, Array> arrays;
    TRY(for_each_entry(jobs, [&](const Json& job) {
        if (job.contains("array")) arrays[field(job, "array")].add(job);
    }));
    Table table = jobs_table();
    std::set<std::string> shown;
    TRY(for_each_entry(jobs, [&](const Json& job) {
        const std::string array = job.contains("array") ? field(job, "array") : "";
        const auto of = arrays.find(array);
        if (of == arrays.end() || of->second.jobs == 1)
            table.add(job_row(job));
        else if (shown.insert(array).second)
            table.add(of->second.row(array));
    }));
    return table.text();
}

}  // namespace souk::tools
