// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/table.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {

Result<std::string> providers_text(const Answer& providers) {
    Table table({{"Node"},
                 {"Address"},
                 {"Status"},
                 {"Min", true},
                 {"Curr", true},
                 {"Next", true},
                 {"Speed", true},
                 {"CPUs", true},
                 {"Memory", true},
                 {"Free", true},
                 {"Load", true},
                 {"Guests", true},
                 {"Earned", true}});
    TRY_ASSIGN(std::string text,
               table.text_of(providers, [](const Json& p) -> std::vector<std::string> {
                   return {field(p, "node"),
                           field(p, "address"),
                           field(p, "status"),
                           field(p, "reserve"),
                           field(p, "current_price"),
                           field(p, "next_price"),
                           field(p, "speed"),
                           field(p, "cpus"),
                           field(p, "memory_mb"),
                           field(p, "free_mb"),
                           percent(p, "load_permille"),
                           field(p, "guests"),
                           field(p, "earned")};
               }));
    // What fits into no column.
    for (const std::string& part : providers)
        for (const Json& p : Json::parse(part, nullptr, false))
            if (p.contains("restriction"))
                text += "\n" + field(p, "node") + ": " + field(p, "restriction");
    return text;
}

}  // namespace souk::tools
