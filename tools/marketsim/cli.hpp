// SPDX-License-Identifier: GPL-2.0-or-later
// What the verbs share: arguments through CLI11 with the exit codes of this project, and one way to
// fail. Heavy header.
#pragma once

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <optional>
#include <string>

#include "kernel/base/result.hpp"
#include "tools/common/cli_source.hpp"

namespace souk::tools {

// All of the text is out, or why not (a full disk, say).
inline Status print(const std::string& text) {
    if (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0)
        return fail_errno("standard output", errno);
    return {};
}

inline int failed(const CLI::App& app, const Error& error) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), error.message.c_str());
    return 1;
}

// Parses; nothing when the verb may go on, else its exit code (help on stdout: 0; a usage error,
// one line: 2).
inline std::optional<int> parse_arguments(CLI::App& app, int argc, char** argv) {
    if (cli_source_asked(app, app.get_name().c_str(), argc, argv)) return 0;
    try {
        app.parse(argc, argv);
        return std::nullopt;
    } catch (const CLI::CallForHelp&) {
        const Status done = print(app.help());
        return done ? 0 : failed(app, done.error());
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

}  // namespace souk::tools
