// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/pvdctl/status.hpp"

#include "tools/common/table.hpp"

namespace souk::tools {

Result<std::string> provider_status_text(const Answer& answer) {
    TRY_ASSIGN(const Json p, parse_object(answer));
    std::vector<std::pair<std::string, std::string>> rows = {
        {"Status", field(p, "status")},
        {"Min Price", field(p, "reserve")},
        {"Curr Price", field(p, "current_price")},
        {"Next Price", field(p, "next_price")},
        {"Earned", field(p, "earned")},
        {"Guests", field(p, "guests")},
        {"Speed", field(p, "speed")},
        {"CPUs", field(p, "cpus")},
        {"Memory", field(p, "memory_mb") + " MB, " + field(p, "free_mb") + " MB free"},
        {"Load", percent(p, "load_permille") + ", waiting " + percent(p, "wait_permille") + " (" +
                     field(p, "load_source") + ")"},
    };
    if (p.contains("frames")) rows.emplace_back("Frames", field(p, "frames"));
    if (p.contains("set_by_owner"))
        for (const Json& o : p.at("set_by_owner"))
            rows.emplace_back("Set here", field(o, "name") + " " + field(o, "value") + "; the configuration says " + field(o, "configuration") +
                                              " (pvdctl unset " + field(o, "name") + ")");
    if (field(p, "cannot") != "-") rows.emplace_back("Takes no job", field(p, "cannot"));
    if (p.contains("ledger_seen")) rows.emplace_back("Ledger seen", field(p, "ledger_seen"));
    if (p.contains("restriction")) rows.emplace_back("Restriction", field(p, "restriction"));
    if (field(p, "market") == "no") rows.emplace_back("Market", "not connected: " + field(p, "market_trouble"));
    return lines(rows);
}

}  // namespace souk::tools
