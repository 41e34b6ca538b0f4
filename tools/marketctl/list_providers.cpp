// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/table.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {

Result<std::string> providers_text(const std::string& json) {
    TRY_ASSIGN(const Json providers, parse_array(json));
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
    for (const Json& p : providers)
        table.add({field(p, "node"), field(p, "address"), field(p, "status"), field(p, "reserve"),
                   field(p, "current_price"), field(p, "next_price"), field(p, "speed"), field(p, "cpus"),
                   field(p, "memory_mb"), field(p, "free_mb"), percent(p, "load_permille"), field(p, "guests"),
                   field(p, "earned")});
    return table.text();
}

}  // namespace souk::tools
