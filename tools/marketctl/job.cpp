// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>

#include "tools/common/job_state.hpp"
#include "tools/common/table.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {
namespace {

using Rows = std::vector<std::pair<std::string, std::string>>;

// A zero of these means the same as their absence, so it is not shown.
constexpr const char* nothing_at_zero[] = {"budget",      "memory_mb",    "price",
                                           "freezes",     "thaws",        "migrations",
                                           "failures",    "failed_moves", "longest_pause_ms",
                                           "image_bytes", "finish_s",     "waited_s"};
// Another row says these, or all the rest does.
constexpr const char* said_elsewhere[] = {"uid", "can_move"};

bool is_one_of(std::span<const char* const> keys, const std::string& key) {
    return std::any_of(keys.begin(), keys.end(), [&](const char* each) { return key == each; });
}

bool says_nothing(const std::string& key, const Json& value) {
    if (is_one_of(said_elsewhere, key) || value.is_null() ||
        (value.is_boolean() && !value.get<bool>()))
        return true;
    if ((value.is_string() && value.get_ref<const std::string&>().empty()) ||
        (value.is_array() && value.empty()))
        return true;
    return value.is_number() && value.get<double>() == 0 && is_one_of(nothing_at_zero, key);
}

// Makes a row; the end of the key says the unit.
std::pair<std::string, std::string> row_of(const Json& job, const std::string& key) {
    if (key == "finish_s") return {"finish", duration(job, "finish_s") + " after it was submitted"};
    const auto is = [&](const char* end) { return key.ends_with(end) && job[key].is_number(); };
    const auto without = [&](const char* end) {
        return key.substr(0, key.size() - std::string_view(end).size());
    };
    if (is("_unix_s")) return {without("_unix_s"), local_time(job, key.c_str())};
    if (is("_bytes_per_s")) return {without("_bytes_per_s"), bytes(job, key.c_str()) + "/s"};
    if (is("_ms")) return {without("_ms"), milliseconds(job, key.c_str())};
    if (is("_s")) return {without("_s"), duration(job, key.c_str())};
    if (is("_mb")) return {without("_mb"), megabytes(job, key.c_str())};
    if (is("_bytes")) return {without("_bytes"), bytes(job, key.c_str())};
    if (key == "value" || key == "price" || key == "bid" || key == "counts_as")
        return {key, field(job, key.c_str()) + " per CPU-hour"};
    if (key == "checkpoint_trouble")
        return {"checkpoint", (job.contains("checkpoint_node") ? "the last try failed: "
                                                               : "none yet, last try failed: ") +
                                  field(job, key.c_str())};
    if (key == "image_stays") return {"image", field(job, key.c_str())};
    if (key == "reason" && job[key].is_object()) {
        const std::string text = field(job[key], "text");
        const bool said = text == field(job, "comment");  // in the row of that
        return {key, field(job[key], "code") + (said ? "" : ": " + text)};
    }
    if (key == "efficiency" && job[key].is_number())
        return {key, std::to_string(static_cast<int64_t>(job[key].get<double>() * 100 + 0.5)) +
                         "% of the CPU time that it asked for"};
    if (key == "array")
        return {key,
                field(job, "array") + "; marketctl job " + field(job, "array") + "[*] sums it up"};
    if (key == "status") return {key, job_state(job)};
    if (key == "user" && job.contains("uid"))
        return {key, field(job, "user") + " (" + field(job, "uid") + ")"};
    return {key, field(job, key.c_str())};
}

}  // namespace

// Whatever the market says of the job, in its order: a new key needs no change here.
Result<std::string> job_text(const Answer& answer) {
    TRY_ASSIGN(const Json job, parse_object(answer));
    Rows rows;
    for (const auto& [key, value] : job.items()) {
        if (says_nothing(key, value)) continue;
        const bool said_twice =
            key == "market_runtime_s" && duration(job, key.c_str()) == duration(job, "runtime_s");
        if (said_twice || (key == "why" && value == job.value("comment", Json()))) continue;
        auto row = row_of(job, key);
        for (char& c : row.first)
            if (c == '_') c = ' ';
        rows.push_back(std::move(row));
    }
    return lines(rows);
}

}  // namespace souk::tools
