// SPDX-License-Identifier: GPL-2.0-or-later
// srun: submits a job to the market and stays attached as its terminal; changes a job's terms;
// attaches to a job.
#include <sys/random.h>
#include <unistd.h>

#include "tools/common/link.hpp"
#include "tools/common/paths.hpp"
#include "tools/srun/options.hpp"
#include "tools/srun/quote.hpp"
#include "tools/srun/session.hpp"
#include "tools/srun/spec.hpp"
#include "tools/srun/summary.hpp"

namespace souk::tools {
namespace {

constexpr Nanos answer_max = Nanos::from_s(30);

int failed(const Error& error) {
    say(error.message);
    return 1;
}

// "7" is job 7 of the node that we stand on, which the agentd names.
Result<JobId> resolve_job(Link& link, const std::string& text) {
    if (text.find('.') != std::string::npos) return parse_job_id(text);
    TRY(parse_job_id(text, "x"));
    TRY_ASSIGN(const std::string node, link.peer_name(answer_max));
    return parse_job_id(text, node);
}

int usage(const Error& error) {
    complain(srun, error.message);
    return 2;
}

int change(const SrunOptions& options, const std::string& socket) {
    auto link = Link::open(socket);
    if (!link) return failed(link.error());
    auto id = resolve_job(*link, options.job);
    if (!id) return failed(id.error());
    link->queue(wire::Change{*id, options.given, options.terms});
    if (const auto ok = link->expect<wire::Ok>(answer_max); !ok) return failed(ok.error());
    return 0;
}

int attach(const SrunOptions& options, const std::string& socket) {
    JobId id;
    if (auto known = parse_job_id(options.job)) {
        id = *known;
    } else {
        auto link = Link::open(socket);
        if (!link) return failed(link.error());
        auto resolved = resolve_job(*link, options.job);
        if (!resolved) return failed(resolved.error());
        id = *resolved;
    }
    if (const Status file = check_summary_file(options.json_file); !file)
        return failed(file.error());
    return Session(options, socket).attach(id);
}

int detach(const SrunOptions& options, const std::string& socket, const wire::Submit& request) {
    auto link = Link::open(socket);
    if (!link) return failed(link.error());
    link->queue(request);
    const auto submitted = link->expect<wire::Submitted>(answer_max);
    if (!submitted) return failed(submitted.error());
    const std::string id = submitted->id.text();
    if (!submitted->waits.empty() && !options.quiet)
        say("job " + id + " waits: " + submitted->waits);
    const std::string line = options.json ? "{\"id\":\"" + id + "\"}\n" : id + "\n";
    if (write(STDOUT_FILENO, line.data(), line.size()) < 0)
        return failed({0, "job " + id + " runs; stdout is closed"});
    return 0;
}

int submit(const SrunOptions& options, const std::string& socket) {
    wire::Submit request;
    auto launch = capture_launch(options.program);
    if (!launch) return failed(launch.error());
    request.spec.launch = std::move(*launch);
    request.terms = options.terms;
    request.name = options.name;
    request.spec.move = options.move;
    request.spec.tcp = options.tcp;
    request.spec.checkpoint_every = options.checkpoint_every;
    request.spec.restart = options.restart;
    request.spec.must_migrate = options.must_migrate;
    request.spec.net = options.net;
    request.attach = !options.detach;
    if (getrandom(&request.token, sizeof request.token, 0) != sizeof request.token)
        request.token = 0;
    if (!options.detach && Terminal::present()) {
        request.spec.launch.tty = true;
        request.spec.launch.rows = Terminal::size().rows;
        request.spec.launch.cols = Terminal::size().cols;
    }
    if (options.detach) return detach(options, socket, request);
    if (const Status file = check_summary_file(options.json_file); !file)
        return failed(file.error());
    return Session(options, socket).submit(std::move(request));
}

int run(int argc, char** argv) {
    keep_standard_fds();
    SrunOptions options;
    switch (parse_srun(argc, argv, options)) {
        case Parsed::done: return 0;
        case Parsed::failed: return 2;
        case Parsed::go: break;
    }
    if (!options.job.empty())
        if (const auto id = parse_job_id(options.job, "x"); !id) return usage(id.error());
    const auto socket = wire::find_agentd(options.socket, options.node);
    if (!socket) return failed(socket.error());
    switch (options.mode) {
        case SrunOptions::Mode::change: return change(options, *socket);
        case SrunOptions::Mode::attach: return attach(options, *socket);
        case SrunOptions::Mode::quote:
            if (const Status told = quote(options, *socket); !told) return failed(told.error());
            return 0;
        case SrunOptions::Mode::submit: return submit(options, *socket);
    }
    return 1;
}

}  // namespace
}  // namespace souk::tools

int main(int argc, char** argv) { return souk::tools::run(argc, argv); }
