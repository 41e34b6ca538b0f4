// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/ahead.hpp"

#include <ctime>
#include <optional>

#include "kernel/base/units.hpp"

namespace souk::tools {
namespace {

constexpr Nanos ahead_max = Nanos::from_s(900'000'000);

// YYYY-MM-DD[THH:MM[:SS]], or HH:MM[:SS], the next time; nullopt: another form.
std::optional<time_t> moment_of(const std::string& text, time_t now) {
    for (const char* form :
         {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d", "%H:%M:%S", "%H:%M"}) {
        tm at{};
        ::localtime_r(&now, &at);
        at.tm_hour = at.tm_min = at.tm_sec = 0;
        const char* const end = ::strptime(text.c_str(), form, &at);
        if (!end || *end != '\0') continue;
        at.tm_isdst = -1;
        time_t moment = ::mktime(&at);
        if (form[1] == 'H' && moment <= now) {
            ++at.tm_mday;
            at.tm_isdst = -1;
            moment = ::mktime(&at);
        }
        return moment;
    }
    return {};
}

}  // namespace

Result<Nanos> parse_ahead(const std::string& text) {
    const time_t now = ::time(nullptr);
    if (const auto moment = moment_of(text, now)) {
        constexpr time_t latest = time_t{4'000'000'000};
        if (*moment <= now) return fail("'" + text + "' is over");
        if (*moment > latest) return fail("'" + text + "' is too far ahead");
        return Nanos::from_s(*moment);
    }
    const auto span = parse_span(text.starts_with("now+") ? text.substr(4) : text, Nanos{},
                                 Nanos::from_s(1), ahead_max);
    if (!span)
        return fail("'" + text + "' is no time such as 9:30, 2026-12-24T18:00 or 90m (from now)");
    return Nanos::from_s(now) + *span;
}

}  // namespace souk::tools
