// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/pvdctl/guests.hpp"

#include "tools/common/entries.hpp"

namespace souk::tools {
namespace {

std::vector<std::string> guest_row(const Json& g) {
    return {field(g, "job") + "." + field(g, "epoch"),
            field(g, "state"),
            words({field(g, "want"), field(g, "criu"), field(g, "dump"), field(g, "ending")}),
            field(g, "ship_to"),
            megabytes(g, "memory_mb"),
            duration(g, "lease_left_s"),
            words({field(g, "flags"), field(g, "why")})};
}

std::vector<std::string> job_row(const Json& j) {
    return {field(j, "job"),
            words({field(j, "phase"), field(j, "step")}),
            field(j, "at"),
            field(j, "to"),
            duration(j, "limit_s"),
            field(j, "orphans"),
            words({field(j, "flags"), field(j, "comment")})};
}

}  // namespace

Result<std::string> guests_text(const Answer& answer) {
    Table guests({{"Guest"},
                  {"State"},
                  {"Wanted, done"},
                  {"To"},
                  {"Memory", true},
                  {"Lease", true},
                  {"Notes"}});
    Table jobs({{"Home of"}, {"Phase"}, {"At"}, {"To"}, {"Limit", true}, {"Orphans"}, {"Notes"}});
    bool any_guest = false, any_job = false;
    TRY(for_each_entry(answer, [&](const Json& e) {
        const bool guest = field(e, "kind") == "guest";
        (guest ? any_guest : any_job) = true;
        if (guest)
            guests.add(guest_row(e));
        else
            jobs.add(job_row(e));
    }));
    if (!any_guest && !any_job)
        return std::string("no guest is here, and no job has its home here");
    return (any_guest ? guests.text() : "") + (any_guest && any_job ? "\n\n" : "") +
           (any_job ? jobs.text() : "");
}

Result<std::string> guest_text(const Answer& answer) {
    std::string text;
    TRY(for_each_entry(
        answer, [&](const Json& e) { text += (text.empty() ? "" : "\n\n") + all_of_entry(e); }));
    return text.empty() ? "this node holds nothing of that job" : text;
}

}  // namespace souk::tools
