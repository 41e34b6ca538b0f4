// SPDX-License-Identifier: GPL-2.0-or-later
// What the verbs share: arguments through CLI11 with the exit codes of this project, and one way to fail. Heavy header.
#pragma once

#include <CLI/CLI.hpp>
#include <ctime>
#include <optional>
#include <string>

#include "kernel/base/result.hpp"

namespace souk::tools {

// Parses; nothing when the verb may go on, else its exit code (help on stdout: 0; a usage error, one line: 2).
inline std::optional<int> parse_arguments(CLI::App& app, int argc, char** argv) {
    try {
        app.parse(argc, argv);
        return std::nullopt;
    } catch (const CLI::CallForHelp&) {
        std::fputs(app.help().c_str(), stdout);
        return 0;
    } catch (const CLI::ParseError& e) {
        std::string why = e.what();
        for (char& c : why) c = c == '\n' ? ' ' : c;
        std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), why.c_str());
        return 2;
    }
}

inline int usage_error(const CLI::App& app, const std::string& why) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), why.c_str());
    return 2;
}

inline int failed(const CLI::App& app, const Error& error) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), error.message.c_str());
    return 1;
}

// CPU time of this process since it began, all threads, in seconds.
inline double cpu_seconds() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) / 1e9;
}

}  // namespace souk::tools
