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
    CLI::App app(
        "One page of HTML of a comparison: tables, and pictures with the intervals of confidence. "
        "It needs no other file and no network.",
        "marketsim report");
    app.add_option("comparison", o.json, "what marketsim compare --json wrote (-: standard input)")
        ->required();
    app.add_option("-o,--out", o.out, "write the page to this file (default: to stdout)");
    app.add_option("--title", o.title, "what the page is called")->capture_default_str();
    if (const auto code = parse_arguments(app, argc, argv)) return *code;
    if (const Status done = make_page(o); !done) return failed(app, done.error());
    return 0;
}

}  // namespace souk::tools
