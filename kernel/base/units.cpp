// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/units.hpp"

#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string>

namespace souk {
namespace {

struct Unit {
    std::string_view name;
    int64_t in_base;
};
constexpr Unit times[] = {{"w", 604'800'000}, {"d", 86'400'000}, {"h", 3'600'000}, {"min", 60'000},
                          {"m", 60'000},      {"s", 1'000},      {"ms", 1}};
constexpr Unit sizes[] = {{"K", 1}, {"M", 1 << 10}, {"G", 1 << 20}, {"T", 1 << 30}};

// The number, with what follows it left in `text`; below 0: none.
double take_number(std::string_view& text) {
    double n = -1;
    const auto [end, error] =
        std::from_chars(text.data(), text.data() + text.size(), n, std::chars_format::fixed);
    if (error != std::errc{} || text.starts_with('-') || !std::isfinite(n)) return -1;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return n;
}

tl::unexpected<Error> no(std::string_view text, const std::string& what) {
    return fail("'" + std::string(text) + "' is " + what);
}

std::string size_text(int64_t mb) {
    if (mb >= 1 << 20 && mb % (1 << 20) == 0) return std::to_string(mb >> 20) + "T";
    if (mb >= 1 << 10 && mb % (1 << 10) == 0) return std::to_string(mb >> 10) + "G";
    return std::to_string(mb) + "M";
}

}  // namespace

std::string span_text(Nanos span) {
    for (const Unit& u : times) {
        const int64_t tenths_ns = u.in_base * 100'000;
        if (u.name == "min" || u.name == "w" || span.ns < tenths_ns * 10 ||
            span.ns % tenths_ns != 0)
            continue;
        const int64_t tenths = span.ns / tenths_ns;
        const std::string part = tenths % 10 ? "." + std::to_string(tenths % 10) : "";
        return std::to_string(tenths / 10) + part + std::string(u.name);
    }
    return std::to_string(span.ms()) + "ms";
}

std::string human_span(Nanos span) {
    constexpr long long minute = 60, hour = 60 * minute, day = 24 * hour;
    const long long whole = span.ns / 1'000'000'000;
    char text[64];
    if (whole < minute)
        std::snprintf(text, sizeof text, "%.1fs", static_cast<double>(span.ns) / 1e9);
    else if (whole < hour)
        std::snprintf(text, sizeof text, "%lldm%02llds", whole / minute, whole % minute);
    else if (whole < 2 * day)
        std::snprintf(text, sizeof text, "%lldh%02lldm", whole / hour, whole % hour / minute);
    else
        std::snprintf(text, sizeof text, "%lldd%02lldh", whole / day, whole % day / hour);
    return text;
}

// Two digits after the point; below 1 three that say something.
std::string human_money(Money amount) {
    int64_t step = 10'000;
    if (amount.micro > -1'000'000 && amount.micro < 1'000'000)
        for (step = 1; std::abs(amount.micro) / step >= 1'000;) step *= 10;
    const int64_t half = amount.micro < 0 ? -step / 2 : step / 2;
    return format_money(Money{(amount.micro + half) / step * step});
}

std::string human_bytes(uint64_t bytes) {
    constexpr const char* units[] = {"bytes", "kB", "MB", "GB", "TB"};
    auto n = static_cast<double>(bytes);
    size_t unit = 0;
    for (; n >= 1000 && unit + 1 < std::size(units); ++unit) n /= 1000;
    char text[64];
    std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", n, units[unit]);
    return text;
}

Result<Nanos> parse_span(std::string_view text, Nanos plain, Nanos least, Nanos most) {
    std::string_view unit = text;
    const double n = take_number(unit);
    // A double in microseconds is exact for any span that is taken.
    const int64_t plain_us = plain.ns / 1'000;
    double unit_us = unit.empty() ? static_cast<double>(plain_us) : 0;
    for (const Unit& u : times)
        if (unit == u.name) unit_us = static_cast<double>(u.in_base) * 1e3;
    if (unit == "us") unit_us = 1;  // of round trips: no span is shown so
    if (n < 0 || unit_us == 0) return no(text, std::string("no time such as ") + span_forms);
    const double ns = std::round(n * unit_us) * 1e3;
    if (ns < static_cast<double>(least.ns) || ns > static_cast<double>(most.ns) ||
        (n > 0 && ns == 0))
        return no(text, "not from " + (least.ns == 0 ? "0" : span_text(least)) + " to " +
                            span_text(most));
    return Nanos{static_cast<int64_t>(ns)};
}

Result<int64_t> parse_size_mb(std::string_view text, int64_t least, int64_t most) {
    std::string_view unit = text;
    const double n = take_number(unit);
    std::string upper;
    for (const char c : unit) upper += static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    double unit_kb = upper.empty() ? 1 << 10 : 0;
    for (const Unit& u : sizes) {
        const std::string name(u.name);
        if (upper == name || upper == name + "B" || upper == name + "IB")
            unit_kb = static_cast<double>(u.in_base);
    }
    if (n < 0 || unit_kb == 0)
        return no(text, std::string("no size such as ") + size_forms + " (a number alone is MB)");
    const double mb = n * unit_kb / 1024;
    if (mb != std::floor(mb)) return no(text, "no whole number of MB");
    if (mb < static_cast<double>(least) || mb > static_cast<double>(most))
        return no(text, "not from " + size_text(least) + " to " + size_text(most));
    return static_cast<int64_t>(mb);
}

}  // namespace souk
