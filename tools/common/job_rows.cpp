// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/job_rows.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <map>
#include <set>

#include "tools/common/job_state.hpp"

namespace souk::tools {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_of_a_word(char c) {
    return is_digit(c) || c == '.' || std::isalpha(static_cast<unsigned char>(c)) || (c & 0x80);
}

std::string rounded_to_three(const std::string& number) {
    const double value = std::strtod(number.c_str(), nullptr);
    if (value == 0) return "0";
    const int whole = value >= 1 ? static_cast<int>(std::floor(std::log10(value))) + 1 : 0;
    // Below 1 the digits begin after the zeros; money has six of them.
    const int zeros = value < 1 ? static_cast<int>(std::floor(-std::log10(value))) : 0;
    const int decimals = std::clamp(value >= 1 ? 3 - whole : 3 + zeros, 0, 6);
    char text[64];
    std::snprintf(text, sizeof text, "%.*f", decimals, value);
    std::string all = text;
    if (all.find('.') != std::string::npos) {
        all.erase(all.find_last_not_of('0') + 1);
        if (all.ends_with('.')) all.pop_back();
    }
    return all;
}

// The order in which a group's states are named.
constexpr const char* states_in_order[] = {"run",      "moving", "starting", "thawing",
                                           "freezing", "wait",   "suspend"};

int rank_of(const Json& job) {
    const std::string status = field(job, "status");
    return status == "wait" ? 1 : status == "suspend" ? 2 : 0;
}

std::string group_of(const Json& job) {
    const std::string array = field(job, "array");
    return array != "-" ? array : field(job, "gang");
}

Json group_row(const std::string& id, const std::vector<const Json*>& jobs) {
    std::map<std::string, int> states;
    std::set<std::string> nodes;
    double cost = 0, run = 0, least = std::numeric_limits<double>::max(), most = 0;
    const Json* first = nullptr;
    for (const Json* const job : jobs) {
        ++states[field(*job, "status")];
        cost += job->value("cost", 0.0);
        run += job->value("runtime_s", 0.0);
        if (field(*job, "status") == "run") {
            nodes.insert(field(*job, "where"));
            least = std::min(least, job->value("price", 0.0));
            most = std::max(most, job->value("price", 0.0));
        } else if (!first) {
            first = job;
        }
    }
    Json row = {{"group", id}, {"kind", jobs.front()->contains("array") ? "array" : "gang"}};
    row["jobs"] = jobs.size();
    row["states"] = states;
    row["cost"] = cost;
    row["runtime_s"] = run;
    if (!nodes.empty()) {
        row["price_least"] = least;
        row["price_most"] = most;
    }
    row["nodes"] = nodes.size();
    row["where"] = nodes;
    row["first"] = first ? *first : *jobs.front();
    return row;
}

// Adds what a group of finished jobs has beside that.
void add_ends(Json& row, const std::vector<const Json*>& jobs) {
    int64_t failed = 0, moves = 0, freezes = 0;
    for (const Json* const job : jobs) {
        failed += field(*job, "exit") != "0";
        moves += job->value("migrations", int64_t{0});
        freezes += job->value("freezes", int64_t{0});
    }
    row["exit"] = failed == 0 ? "0" : std::to_string(failed) + " failed";
    row["ended_unix_s"] = jobs.front()->value("ended_unix_s", 0.0);
    row["migrations"] = moves;
    row["freezes"] = freezes;
}

std::map<std::string, std::vector<const Json*>> groups_of(const Json& jobs) {
    std::map<std::string, std::vector<const Json*>> groups;
    for (const Json& job : jobs)
        if (const std::string group = group_of(job); group != "-") groups[group].push_back(&job);
    return groups;
}

}  // namespace

std::string three_digits(const std::string& text) {
    std::string out;
    for (size_t i = 0; i < text.size();) {
        const bool begins = is_digit(text[i]) && (i == 0 || !is_of_a_word(text[i - 1]));
        size_t end = i;
        while (begins && end < text.size() && is_digit(text[end])) ++end;
        const bool point =
            begins && end + 1 < text.size() && text[end] == '.' && is_digit(text[end + 1]);
        if (!point) {
            out.append(text, i, std::max<size_t>(end - i, 1));
            i = std::max(end, i + 1);
            continue;
        }
        for (++end; end < text.size() && is_digit(text[end]);) ++end;
        const bool version = end < text.size() && text[end] == '.';
        const std::string number = text.substr(i, end - i);
        out += version ? number : rounded_to_three(number);
        i = end;
    }
    return out;
}

std::string zone_of(double unix_s) {
    const auto seconds = static_cast<time_t>(unix_s);
    std::tm date{};
    char text[32];
    if (!::localtime_r(&seconds, &date) || std::strftime(text, sizeof text, "%Z", &date) == 0)
        return "UTC";
    return text;
}

std::string money_figure(const Json& object, const char* key) {
    return three_digits(field(object, key));
}

bool is_group(const Json& row) { return row.contains("group"); }
const Json& job_of(const Json& row) {
    return is_group(row) && row.contains("first") ? row["first"] : row;
}
std::string row_id(const Json& row) { return field(row, is_group(row) ? "group" : "id"); }

std::string row_title(const Json& row) {
    if (is_group(row))
        return row_id(row) + (field(row, "kind") == "gang" ? " x " + field(row, "jobs")
                                                           : "[" + field(row, "jobs") + "]");
    return row_id(row);
}

std::string row_states(const Json& row) {
    if (!is_group(row)) return job_state(row);
    const Json states = row.value("states", Json::object());
    std::string text;
    for (const char* state : states_in_order)
        if (const std::string count = field(states, state); count != "-")
            text += (text.empty() ? "" : ", ") + count + " " + state_word(state);
    return text;
}

std::string row_state(const Json& row) {
    if (!is_group(row)) return job_state(row);
    const Json states = row.value("states", Json::object());
    for (const char* state : states_in_order)
        if (states.contains(state)) return state_word(state);
    return "-";
}

std::string row_price(const Json& row) {
    if (!is_group(row)) {
        const std::string status = field(row, "status");
        return status == "run" || status == "moving" ? money_figure(row, "price") : "-";
    }
    const std::string least = money_figure(row, "price_least"),
                      most = money_figure(row, "price_most");
    return least == most ? least : least + "-" + most;
}

std::string row_name(const Json& row) {
    const Json& job = job_of(row);
    std::string name = field(job, "name");
    if (name == "-") name = field(job, "command");
    const std::string index = field(job, job.contains("array") ? "array_index" : "component");
    return is_group(row) || index == "-" || name == "-" ? name : name + "[" + index + "]";
}

std::string promise_words(const Json& job) {
    std::string promise = field(job, "promise");
    if (promise == "-") return promise;
    if (promise == "best_effort" || promise == "asked")
        return duration(job, "finish_s") + " after the submission, " +
               (promise == "asked" ? "no promise yet" : "best effort");
    std::string text = local_time(job, "promise_unix_s");
    if (promise != "open")
        return text +
               (promise == "kept" || promise == "withdrawn" ? ", " + promise : ", missed: ") +
               (job.contains("promise_why") ? field(job, "promise_why") : "");
    text += ", promised";
    if (job.contains("promise_node")) text += " on " + field(job, "promise_node");
    if (job.contains("promise_start_unix_s"))
        text += " from " + local_time(job, "promise_start_unix_s") + " on";
    return text + ", at " + money_figure(job, "promise_price");
}

std::vector<FoldedRow> folded_jobs(const Json& jobs) {
    const auto groups = groups_of(jobs);
    std::vector<std::pair<int, FoldedRow>> ranked;
    std::set<std::string> done;
    for (const Json& job : jobs) {
        const std::string group = group_of(job);
        const auto of = groups.find(group);
        if (of == groups.end() || of->second.size() < 2) {
            ranked.emplace_back(rank_of(job), FoldedRow{&job, {}, {}});
        } else if (done.insert(group).second) {
            int rank = 2;
            for (const Json* const each : of->second) rank = std::min(rank, rank_of(*each));
            ranked.emplace_back(rank, FoldedRow{nullptr, group_row(group, of->second), of->second});
        }
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<FoldedRow> rows;
    rows.reserve(ranked.size());
    for (auto& [rank, row] : ranked) rows.push_back(std::move(row));
    return rows;
}

Json folded_history(const Json& jobs) {
    const auto groups = groups_of(jobs);
    std::set<std::string> done;
    Json rows = Json::array();
    for (const Json& job : jobs) {
        const std::string group = group_of(job);
        const auto of = groups.find(group);
        if (of == groups.end() || of->second.size() < 2) {
            rows.push_back(job);
        } else if (done.insert(group).second) {
            rows.push_back(group_row(group, of->second));
            add_ends(rows.back(), of->second);
        }
    }
    return rows;
}

std::string node_price(const Json& node) {
    return node.value("guests", int64_t{0}) > 0 ? money_figure(node, "current_price") : "-";
}
std::string node_next_price(const Json& node) {
    const std::string status = field(node, "status");
    return status == "free" || status == "busy" ? money_figure(node, "next_price") : "-";
}

}  // namespace souk::tools
