// SPDX-License-Identifier: GPL-2.0-or-later
// Times and sizes (kernel/base/units) for options of CLI11 that hold a whole number: "10m" becomes
// 600, "4G" 4096.
#pragma once

#include <CLI/CLI.hpp>

#include "kernel/base/units.hpp"

namespace souk::tools {

inline CLI::Validator as_seconds() {
    return {[](std::string& text) -> std::string {
                const auto span =
                    parse_span(text, Nanos::from_s(1), Nanos{}, Nanos::from_s(1'000'000'000));
                if (!span) return span.error().message;
                if (span->ns % 1'000'000'000 != 0)
                    return "'" + text + "' is no whole number of seconds";
                text = std::to_string(span->ns / 1'000'000'000);
                return {};
            },
            ""};
}

inline CLI::Validator as_megabytes() {
    return {[](std::string& text) -> std::string {
                const auto mb = parse_size_mb(text, 0, int64_t{1} << 40);
                if (!mb) return mb.error().message;
                text = std::to_string(*mb);
                return {};
            },
            ""};
}

}  // namespace souk::tools
