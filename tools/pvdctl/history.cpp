// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/pvdctl/history.hpp"

#include "tools/common/table.hpp"

namespace souk::tools {
namespace {

std::string misses_of(const Json& r) {
    std::string text;
    for (const Json& miss : r.at("missed"))
        text += (text.empty() ? "" : "; ") + field(miss, "promise") + ": " + field(miss, "why");
    return text;
}

std::string time_of(const Json& object, const char* key) {
    return object.contains(key) ? milliseconds(object, key) : "-";
}

}  // namespace

Result<std::string> provider_history_text(const Answer& answer) {
    TRY_ASSIGN(const Json h, parse_object(answer));
    if (!h.contains("returns") || !h.contains("promises")) return fail("not a history");
    if (h.at("returns").empty()) return std::string("its owner has not come back yet");
    Table promises({{"Until"},
                    {"Promised", true},
                    {"Times", true},
                    {"p50", true},
                    {"p99", true},
                    {"p99.9", true},
                    {"Missed", true}});
    for (const Json& p : h.at("promises"))
        promises.add({field(p, "promise"), time_of(p, "promised_ms"), field(p, "count"),
                      time_of(p, "p50_ms"), time_of(p, "p99_ms"), time_of(p, "p999_ms"),
                      field(p, "missed")});
    Table returns({{"Return", true},
                   {"Began"},
                   {"Cause"},
                   {"Guests", true},
                   {"CPU", true},
                   {"Stopped", true},
                   {"Memory", true},
                   {"Empty", true},
                   {"Away", true},
                   {"Missed"},
                   {"Share"}});
    for (const Json& r : h.at("returns"))
        returns.add({field(r, "number"), local_time(r, "began_unix_s"), field(r, "cause"),
                     field(r, "guests"), time_of(r, "free_cpu_ms"), time_of(r, "stopped_ms"),
                     time_of(r, "free_memory_ms"), time_of(r, "empty_ms"), time_of(r, "away_ms"),
                     misses_of(r), field(r, "share")});
    return promises.text() + "\n\n" + returns.text();
}

}  // namespace souk::tools
