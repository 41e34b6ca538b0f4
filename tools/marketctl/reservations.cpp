// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/table.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {

Result<std::string> reservations_text(const Answer& reservations) {
    Table table({{"Id"},
                 {"State"},
                 {"From"},
                 {"Until"},
                 {"CPUs", true},
                 {"Memory", true},
                 {"Node"},
                 {"Price", true},
                 {"Market", true},
                 {"Cost", true},
                 {"User"},
                 {"Why"}});
    return table.text_of(reservations, [](const Json& r) -> std::vector<std::string> {
        return {field(r, "id"),
                field(r, "state"),
                local_time(r, "start_unix_s"),
                local_time(r, "end_unix_s"),
                field(r, "cpus"),
                megabytes(r, "memory_mb"),
                field(r, "node"),
                field(r, "price"),
                field(r, "market_price"),
                field(r, "cost"),
                field(r, "user") + (r.contains("given") ? " > " + field(r, "given") : ""),
                field(r, "comment")};
    });
}

}  // namespace souk::tools
