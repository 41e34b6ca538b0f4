// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/typed_options.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "kernel/base/units.hpp"

namespace souk::tools {
namespace {

std::string range_text(const char* type, const std::string& least, const std::string& most) {
    return std::string(type) + " in [" + least + " - " + most + "]";
}

}  // namespace

Kind<int64_t> whole(int64_t least, int64_t most) {
    return {
        most == INT64_MAX ? "INT" : range_text("INT", std::to_string(least), std::to_string(most)),
        [=](const std::string& text) { return parse_whole(text, least, most); }};
}

Kind<double> real(double least, double most) {
    return {range_text("FLOAT", value_text(least), value_text(most)),
            [=](const std::string& text) -> Result<double> {
                double value = 0;
                const char* end = text.data() + text.size();
                const auto [stop, error] = std::from_chars(text.data(), end, value);
                if (error != std::errc{} || stop != end || !(value >= least && value <= most))
                    return fail("'" + text + "' is not a number from " + value_text(least) +
                                " to " + value_text(most));
                return value;
            }};
}

Kind<int64_t> seconds(int64_t least, int64_t most) {
    return {"TIME", [=](const std::string& text) -> Result<int64_t> {
                constexpr Nanos second = Nanos::from_s(1);
                TRY_ASSIGN(const Nanos span,
                           parse_span(text, second, Nanos::from_s(least), Nanos::from_s(most)));
                if (span.ns % second.ns != 0)
                    return fail("'" + text + "' is no whole number of seconds");
                return span.ns / second.ns;
            }};
}

Kind<int64_t> megabytes(int64_t least, int64_t most) {
    return {"SIZE", [=](const std::string& text) { return parse_size_mb(text, least, most); }};
}

Kind<std::string> any_text() {
    return {"TEXT", [](const std::string& text) -> Result<std::string> { return text; }};
}

Kind<std::string> file_name() { return {"FILE", any_text().read}; }

Kind<std::string> one_of(const std::vector<std::string>& names) {
    std::string takes = "{" + value_text(names) + "}";
    return {takes, [names, takes](const std::string& text) -> Result<std::string> {
                if (std::find(names.begin(), names.end(), text) != names.end()) return text;
                return fail("'" + text + "' is none of " + takes);
            }};
}

std::string value_text(double value) {
    char text[32];
    std::snprintf(text, sizeof text, "%g", value);
    return text;
}

}  // namespace souk::tools
