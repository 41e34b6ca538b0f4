// SPDX-License-Identifier: GPL-2.0-or-later
// The recorded traces are in $SOUK_TRACES, or in ../shared/traces beside the checkout. They are too
// large to be kept in the repository.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

namespace souk::unit {

// The directory; says on stderr that `what` is skipped, and why, when there is none.
inline std::optional<std::string> traces_directory(const char* what) {
    const char* named = std::getenv("SOUK_TRACES");
    const std::string directory = named ? named : "../shared/traces";
    std::error_code ignored;
    if (std::filesystem::is_directory(directory, ignored)) return directory;
    std::fprintf(stderr, "skipped: %s: no traces in '%s' (set SOUK_TRACES)\n", what,
                 directory.c_str());
    return std::nullopt;
}

}  // namespace souk::unit
