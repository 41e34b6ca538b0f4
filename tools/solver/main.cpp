// SPDX-License-Identifier: GPL-2.0-or-later
// solver: the market's allocation core behind the text protocol of market/core/solver_protocol.hpp,
// on stdin and stdout. Answers are written as soon as the commands that came together have been
// carried out. Exits 0 at `exit` or at the end of input, 1 if input or output fails.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "kernel/sys/host/fd.hpp"
#include "market/core/solver_session.hpp"
#include "tools/common/args.hpp"

namespace souk::tools {
namespace {

constexpr const char* tool = "solver";
constexpr const char* writing = "writing answers";

// Cuts input into lines. What is kept of a line that is too long is still too long, so the session
// says so.
class Lines {
  public:
    template <class Take>
    void feed(std::string_view bytes, Take&& take) {
        while (!bytes.empty()) {
            const size_t end = bytes.find('\n');
            const std::string_view part = bytes.substr(0, end);
            line_.append(part.substr(0, market::protocol_line_max + 1 - line_.size()));
            if (end == bytes.npos) return;
            take(line_);
            line_.clear();
            bytes.remove_prefix(end + 1);
        }
    }
    const std::string& rest() const { return line_; }

  private:
    std::string line_;
};

constexpr size_t out_max = 1 << 20;  // of answers that wait for the commands that came with theirs

int serve(const market::SolverOptions& options) {
    market::SolverSession session(options);
    Lines lines;
    std::string out;
    Status written;  // an error: nobody takes the answers
    const auto take = [&](const std::string& line) {
        if (session.ended() || !written) return;
        out += session.take(line);
        if (out.size() < out_max) return;
        written = write_all(STDOUT_FILENO, out, writing);
        out.clear();
    };
    char buffer[1 << 16];
    while (!session.ended()) {
        const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            complain(tool, std::string("reading commands: ") + std::strerror(errno));
            return 1;
        }
        if (n > 0)
            lines.feed({buffer, static_cast<size_t>(n)}, take);
        else
            take(lines.rest());
        if (written) written = write_all(STDOUT_FILENO, out, writing);
        if (!written) {
            complain(tool, written.error());
            return 1;
        }
        out.clear();
        if (n == 0) break;
    }
    return 0;
}

using market::Solver;
using market::SolverOption;
using market::SolverOptions;

std::string options_of_table() {
    std::string all;
    for (const SolverOption& option : market::solver_option_table())
        all += (all.empty() ? "" : ", ") + std::string(option.name);
    return all;
}

std::function<Status(const char*)> named(std::string& into,
                                         Result<std::string> (*find)(const std::string&)) {
    return [&into, find](const char* text) -> Status {
        TRY_ASSIGN(into, find(text));
        return {};
    };
}

int run(int argc, char** argv) {
    SolverOptions options;
    const std::string algorithms = market::Solver::algorithms_help();
    const std::string begin_with =
        "the algorithm to begin with, of " + algorithms + "; the first is the default";
    const std::string commands =
        "Commands: info, aj id value memory cpus start run [uid], dj id, uj id value, jmd id, jfd "
        "id,\n"
        "ag id value start run uid [COUNTx]CPUS:MEMORY[:optional]... (a job of several "
        "components),\n"
        "ap id reserve memory cpus start [speed], dp id, up id reserve, time t, go, alloc, "
        "payment, lj, lp, reset,\n"
        "set solver NAME, set pricing NAME (critical, first, uniform), set OPTION VALUE, exit.\n"
        "Options: " +
        options_of_table() +
        ".\n"
        "Algorithms: " +
        algorithms +
        ".\n"
        "What cannot be taken is answered by a line 'error: ...'.\n";
    CommandLine line{tool,
                     "[options] < COMMANDS",
                     "Allocates jobs to providers: reads commands from stdin, one a line, "
                     "and answers on stdout.",
                     {{'s', "solver", "NAME", begin_with.c_str(),
                       named(options.algorithm, market::Solver::algorithm_named)},
                      {0, "pricing", "NAME",
                       "the pricing to begin with: critical, the default, first or uniform",
                       named(options.pricing, market::Solver::pricing_named)}},
                     commands.c_str()};
    for (const SolverOption& option : market::solver_option_table())
        line.options.push_back({0, option.name.data(), "VALUE", option.help.data(),
                                [&options, &option](const char* text) -> Status {
                                    TRY_ASSIGN(const int64_t value,
                                               option.parse(text, Nanos::from_s(1)));
                                    option.set(options, value);
                                    return {};
                                }});
    if (const auto ended = parse_options(line, argc, argv)) return *ended;
    return serve(options);
}
}  // namespace
}  // namespace souk::tools

int main(int argc, char** argv) { return souk::tools::run(argc, argv); }
