// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/wait.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <optional>

#include "kernel/base/number.hpp"
#include "kernel/base/units.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/fd.hpp"
#include "tools/common/ask.hpp"
#include "tools/common/link.hpp"
#include "tools/common/paths.hpp"
#include "tools/common/table.hpp"
#include "tools/srun/summary.hpp"
#include "tools/srun/terminal.hpp"

namespace souk::tools {
namespace {

struct Ended {
    int status = 0;
    std::string why, summary;
};
// One connection ends with this: the job's end, or why the agentd does not know it.
struct Heard {
    std::optional<Ended> ended;
    Cause unknown;
};

void pause_for(Nanos span) {
    const timespec time{span.ns / 1'000'000'000, span.ns % 1'000'000'000};
    ::nanosleep(&time, nullptr);
}

// Listens until the job's end is told. Errors: the connection broke.
Result<Heard> listen_once(const std::string& socket, const JobId& id, bool& reached) {
    TRY_ASSIGN(Link link, Link::open(socket));
    wire::Attach watch;
    watch.id = id;
    watch.watch = true;
    link.queue(watch);
    for (;;) {
        TRY(link.flush());
        pollfd ready{link.fd(), static_cast<short>(POLLIN | (link.has_queued() ? POLLOUT : 0)), 0};
        if (::poll(&ready, 1, -1) < 0 && errno != EINTR) return fail_errno("poll", errno);
        if (!(ready.revents & ~POLLOUT)) continue;
        TRY_ASSIGN(const bool open, link.receive());
        for (;;) {
            TRY_ASSIGN(const auto frame, link.next());
            if (!frame) break;
            if (frame->type == wire::frame::attached) reached = true;
            if (frame->type == wire::frame::error_text) {
                TRY_ASSIGN(auto error, wire::unpack<wire::ErrorText>(frame->body));
                return Heard{{}, std::move(error.text)};
            }
            if (frame->type == wire::frame::exit) {
                TRY_ASSIGN(auto exit, wire::unpack<wire::Exit>(frame->body));
                return Heard{Ended{exit_status(exit, 0), exit.why, exit.summary}, {}};
            }
        }
        if (!open) return fail(CauseCode::away, "the agentd has gone away");
    }
}

// A job of another home, or one that ended long ago: the market tells. It is asked with a pause
// that grows, as nobody tells us.
Result<Ended> ask_market(const SrunOptions& options, const JobId& id, const Cause& unknown) {
    const auto find = [&] { return wire::find_market(options.socket, options.node); };
    for (Nanos pause = Nanos::from_ms(50);;
         pause = std::min(Nanos{pause.ns * 2}, Nanos::from_s(2))) {
        const auto answer = ask(find, "job", {id.text()}, options.patience);
        if (!answer) return fail(unknown.code, unknown);
        TRY_ASSIGN(const Json job, parse_object(*answer));
        if (job.contains("exit"))
            return Ended{job["exit"].get<int>(), job.value("why", ""), job.dump()};
        pause_for(pause);
    }
}

Result<Ended> wait_for(const SrunOptions& options, const std::string& socket, const JobId& id) {
    const Nanos wait_backoff_min = Nanos::from_ms(50), wait_backoff_max = Nanos::from_s(2);
    Nanos backoff = wait_backoff_min, lost_at = Nanos::never();
    for (;;) {
        bool reached = false;
        const auto heard = listen_once(socket, id, reached);
        if (heard && heard->ended) return *heard->ended;
        if (heard) return ask_market(options, id, heard->unknown);
        const Nanos now = monotonic_now();
        if (reached || lost_at == Nanos::never()) lost_at = now, backoff = wait_backoff_min;
        if (now - lost_at >= options.patience)
            return fail(CauseCode::away, "job " + id.text() + ": " + heard.error().message +
                                             "; it was tried for " + human_span(options.patience) +
                                             ". The job goes on");
        pause_for(backoff);
        backoff = std::min(Nanos{backoff.ns * 2}, wait_backoff_max);
    }
}

using Numbered = std::vector<std::pair<uint64_t, JobId>>;

// The jobs since `first` in whose `of` its id stands, by that number.
Result<Numbered> listed(const SrunOptions& options, const Json& first,
                        std::vector<std::string> words, const char* of, const char* number) {
    const auto find = [&] { return wire::find_market(options.socket, options.node); };
    const bool unfiltered = words.empty();
    words.insert(words.begin(), "state=all");
    words.push_back("since=" + std::to_string(first.value("submitted_unix_s", int64_t{0})));
    TRY_ASSIGN(const Answer parts, ask(find, "list-jobs", words, options.patience));
    Numbered found;
    for (const std::string& part : parts) {
        const Json rows = parse_json(part);
        if (!rows.is_array()) return fail("the market's list of jobs is not understood");
        for (const Json& row : rows) {
            if (unfiltered && row.value(of, "") != first.value(of, "")) continue;
            TRY_ASSIGN(JobId job, parse_job_id(row.value("id", "")));
            found.emplace_back(row.value(number, uint64_t{0}), std::move(job));
        }
    }
    std::sort(found.begin(), found.end());
    return found;
}

}  // namespace

Result<std::vector<JobId>> jobs_of_array(const SrunOptions& options, const JobId& id) {
    const auto find = [&] { return wire::find_market(options.socket, options.node); };
    TRY_ASSIGN(const Answer answer, ask(find, "job", {id.text()}, options.patience));
    TRY_ASSIGN(const Json first, parse_object(answer));
    if (first.value("array", "") != id.text()) return std::vector{id};
    TRY_ASSIGN(const Numbered found,
               listed(options, first, {"array=" + id.text()}, "array", "array_index"));
    std::vector<JobId> jobs;
    jobs.reserve(found.size());
    for (const auto& [index, job] : found) jobs.push_back(job);
    return jobs;
}

bool names_component(const std::string& text) {
    const size_t point = std::min(text.rfind('.'), text.size());
    return parse_job_id(text.substr(0, point)).has_value() && point < text.size() &&
           whole_number<uint64_t>(std::string_view(text).substr(point + 1)).has_value();
}

Result<JobId> component_named(const SrunOptions& options, const std::string& text) {
    const size_t point = text.rfind('.');
    const std::string id = text.substr(0, point), component = text.substr(point + 1);
    const auto find = [&] { return wire::find_market(options.socket, options.node); };
    TRY_ASSIGN(const Answer answer, ask(find, "job", {id}, options.patience));
    TRY_ASSIGN(const Json first, parse_object(answer));
    if (first.value("gang", "") != id)
        return fail(CauseCode::invalid, "job " + id + " is not of several components");
    TRY_ASSIGN(const Numbered found, listed(options, first, {}, "gang", "component"));
    for (const auto& [number, job] : found)
        if (std::to_string(number) == component) return job;
    return fail(CauseCode::not_found, "job " + id + " has no component " + component);
}

Result<int> wait_for_jobs(const SrunOptions& options, const std::string& socket,
                          const std::vector<JobId>& jobs) {
    int greatest = 0;
    std::string summaries;
    for (const JobId& id : jobs) {
        TRY_ASSIGN(const Ended ended, wait_for(options, socket, id));
        greatest = std::max(greatest, ended.status);
        if (!ended.why.empty() && !options.quiet) say("job " + id.text() + ": " + ended.why);
        summaries += (summaries.empty() ? "" : "\n") + ended.summary;
    }
    if (options.json && !summaries.empty()) TRY(write_summary(options.json_file, summaries));
    return greatest;
}

}  // namespace souk::tools
