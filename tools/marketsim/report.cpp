// SPDX-License-Identifier: GPL-2.0-or-later
// marketsim report: the JSON of a comparison as one page of HTML.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "kernel/sys/host/fd.hpp"
#include "market/sim/files.hpp"
#include "tools/marketsim/cli.hpp"
#include "tools/marketsim/page.hpp"
#include "tools/marketsim/verbs.hpp"

namespace souk::tools {
namespace {

constexpr size_t comparison_bytes_max = 256 << 20;

struct ReportOptions {
    std::string json, out, title = "Comparison";
};

Result<std::string> read_text(const std::string& path) {
    if (path != "-") return read_file(AT_FDCWD, path, comparison_bytes_max);
    std::string text;
    char buffer[64 * 1024];
    for (;;) {
        const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno("standard input", errno);
        if (n == 0) return text;
        text.append(buffer, static_cast<size_t>(n));
    }
}

Status make_page(const ReportOptions& o) {
    TRY_ASSIGN(const std::string json, read_text(o.json));
    auto page = comparison_page(json, o.title);
    if (!page) return wrap(o.json, page.error());
    if (o.out.empty() || o.out == "-") return print(*page);
    sim::OutputFiles files;
    if (o.json != "-") files.spare(o.json);
    TRY(files.add(o.out, *page));
    return files.commit();
}

}  // namespace

int marketsim_report(int argc, char** argv) {
    ReportOptions o;
    const CommandLine line{
        .tool = "marketsim report",
        .summary =
            "One page of HTML of a comparison: tables, and pictures with the intervals of "
            "confidence. It needs no other file and no network.",
        .options = {option('o', "out", o.out, file_name(),
                           "write the page to this file (default: to stdout)"),
                    option(0, "title", o.title, any_text(), "what the page is called",
                           Default::shown)},
        .arguments = {{"comparison", "what marketsim compare --json wrote (-: standard input)",
                       set_text(o.json)}}};
    if (const auto status = parse_options(line, argc, argv)) return *status;
    return exit_status(line, make_page(o));
}

}  // namespace souk::tools
