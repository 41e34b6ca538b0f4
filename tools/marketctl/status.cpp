// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/job_state.hpp"
#include "tools/common/table.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {

Result<std::string> status_text(const Answer& answer) {
    TRY_ASSIGN(const Json s, parse_object(answer));
    const Json jobs = s.value("jobs", Json::object());
    std::string counts = field(jobs, "total");
    for (const char* kind : {"wait", "run", "suspend", "finish"})
        counts += ", " + state_word(kind) + " " + field(jobs, kind);
    std::vector<std::pair<std::string, std::string>> rows = {
        {"Hostname", field(s, "hostname")},
        {"Ports", field(s, "ports")},
        {"Home nodes", field(s, "home_nodes")},
        {"Market type", field(s, "market_type")},
        {"Solver", field(s, "solver")},
        {"Pricing", field(s, "pricing")},
        {"Jobs", counts},
        {"Money", s.value("metered", false)
                      ? "metered: users spend what their accounts hold"
                      : "unmetered: accounts are kept, and nothing ends at them"},
        {"Providers", field(s, "providers")},
        {"Clusters", field(s, "clusters")},
        {"Next run in", duration(s, "next_run_s")},
        {"Consumers Surplus", field(s, "consumers_surplus")},
        {"Providers Surplus", field(s, "providers_surplus")},
        {"Social Welfare", field(s, "social_welfare")},
    };
    if (s.contains("resources")) rows.emplace_back("Resources", resources_text(s));
    for (const Json& set : s.value("set", Json::array()))
        rows.emplace_back("Set by hand",
                          field(set, "what") + " = " + field(set, "value") + ", " +
                              local_time(set, "at_unix_s") + ", user " + field(set, "uid") +
                              (field(set, "why").empty() ? "" : ": ") + field(set, "why"));
    if (const Json log = s.value("decisions", Json()); log.is_object()) {
        rows.emplace_back("Decisions", field(log, "number") + ":" + field(log, "head"));
        if (log.contains("trouble")) rows.emplace_back("Not logged", field(log, "trouble"));
    }
    for (const Json& warning : s.value("warnings", Json::array()))
        if (warning.is_string()) rows.emplace_back("Warning", warning.get<std::string>());
    return lines(rows);
}

Result<std::string> limits_text(const Answer& answer) {
    TRY_ASSIGN(const Json s, parse_object(answer));
    std::vector<std::pair<std::string, std::string>> rows = {
        {"Jobs", field(s, "jobs") + " of " + field(s, "jobs_max") + " (jobs_max)"},
        {"Of one home", "at most " + field(s, "jobs_home_max") + " (jobs_home_max)"},
        {"Of one user", "at most " + field(s, "jobs_user_max") + " (jobs_user_max)"},
        {"The last " + field(s, "jobs_reserve"),
         "for homes and users with fewer than " + field(s, "jobs_few")},
        {"Nodes", field(s, "nodes") + " of " + field(s, "nodes_max") + " (nodes_max)"},
    };
    for (const Json& home : s.value("homes", Json::array()))
        rows.emplace_back(field(home, "node"), field(home, "jobs") + " jobs, refused " +
                                                   field(home, "refused") + " times");
    return lines(rows);
}

Result<std::string> message_text(const Answer& answer) {
    TRY_ASSIGN(const Json s, parse_object(answer));
    return field(s, "message");
}

}  // namespace souk::tools
