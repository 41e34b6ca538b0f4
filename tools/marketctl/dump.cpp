// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/entries.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {
namespace {

std::string order_of(const Json& job) {
    if (!job.contains("order")) return "-";
    const Json& order = job["order"];
    return words({field(order, "kind"), field(order, "node"), duration(order, "age_s")});
}

std::vector<std::string> dumped_job_row(const Json& j) {
    return {field(j, "job"),
            field(j, "phase"),
            field(j, "where"),
            order_of(j),
            field(j, "claims"),
            words({field(j, "hold"), field(j, "once"), field(j, "via")}),
            field(j, "bid"),
            field(j, "flags"),
            words({field(j, "last_failed"), field(j, "comment")})};
}

std::vector<std::string> node_row(const Json& n) {
    return {field(n, "node"),
            field(n, "state"),
            field(n, "used_cpus") + "/" + field(n, "cpus"),
            megabytes(n, "used_mb") + " of " + megabytes(n, "memory_mb"),
            megabytes(n, "room_mb"),
            field(n, "jobs")};
}

}  // namespace

Result<std::string> dump_text(const Answer& answer) {
    Table nodes({{"Node"}, {"State"}, {"CPUs", true}, {"Memory", true}, {"Room", true}, {"Jobs"}});
    Table jobs({{"Job"},
                {"Phase"},
                {"Where"},
                {"Order"},
                {"Claims"},
                {"Held"},
                {"Bid", true},
                {"Flags"},
                {"Notes"}});
    std::string text;
    TRY(for_each_entry(answer, [&](const Json& e) {
        const std::string kind = field(e, "kind");
        if (kind == "node")
            nodes.add(node_row(e));
        else if (kind == "job")
            jobs.add(dumped_job_row(e));
        else
            text += all_of_entry(e);
    }));
    return text + "\n\n" + nodes.text() + "\n\n" + jobs.text();
}

}  // namespace souk::tools
