// SPDX-License-Identifier: GPL-2.0-or-later
// srun: submits a job to the market and stays attached as its terminal; changes a job's terms;
// attaches to a job.
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <vector>

#include "tools/common/link.hpp"
#include "tools/common/paths.hpp"
#include "tools/srun/after.hpp"
#include "tools/srun/check.hpp"
#include "tools/srun/gang.hpp"
#include "tools/srun/notify.hpp"
#include "tools/srun/options.hpp"
#include "tools/srun/output_file.hpp"
#include "tools/srun/quote.hpp"
#include "tools/srun/session.hpp"
#include "tools/srun/spec.hpp"
#include "tools/srun/summary.hpp"
#include "tools/srun/wait.hpp"

namespace souk::tools {
namespace {

constexpr Nanos answer_max = Nanos::from_s(30);

int failed(const Error& error) {
    complain(srun, error);
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
    complain(srun, caused_by(CauseCode::invalid, error));
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

Result<JobId> known_job(const std::string& socket, const std::string& text) {
    if (auto known = parse_job_id(text)) return known;
    TRY_ASSIGN(Link link, Link::open(socket));
    return resolve_job(link, text);
}

int attach(const SrunOptions& options, const std::string& socket) {
    const auto id = names_component(options.job) ? component_named(options, options.job)
                                                 : known_job(socket, options.job);
    if (!id) return failed(id.error());
    if (const Status file = check_summary_file(options.json_file); !file)
        return failed(file.error());
    return Session(options, socket).attach(*id);
}

Result<wire::Submitted> send(Link& link, const SrunOptions& options, wire::Submit& request) {
    if (getrandom(&request.token, sizeof request.token, 0) != sizeof request.token)
        request.token = 0;
    link.queue(request);
    TRY_ASSIGN(auto submitted, link.expect<wire::Submitted>(answer_max));
    if (!submitted.waits.empty() && !options.quiet && options.array.empty())
        say("job " + submitted.id.text() + " waits: " + submitted.waits);
    return submitted;
}

int print_id(const SrunOptions& options, const std::string& id, size_t jobs) {
    std::string line = id + "\n";
    if (options.json)
        line = "{\"id\":\"" + id + "\"" + (jobs > 0 ? ",\"jobs\":" + std::to_string(jobs) : "") +
               "}\n";
    if (write(STDOUT_FILENO, line.data(), line.size()) < 0)
        return failed({0, "job " + id + " runs; stdout is closed"});
    return 0;
}

// Tries to open the job's output files, so that the user is told now what keeps them from being
// written. The job's home writes them.
Status try_files(const SrunOptions& options, const JobId& id, std::optional<uint32_t> index) {
    for (const std::string& file : {options.out_file, options.err_file}) {
        if (file.empty()) continue;
        if (Status opened = try_output_file(file, output_signs_of(options, id, index)); !opened) {
            opened.error().message += "; job " + id.text() + " goes on: srun --attach " + id.text();
            return opened;
        }
    }
    return {};
}

int wait_for(const SrunOptions& options, const std::string& socket,
             const std::vector<JobId>& jobs) {
    const auto status = wait_for_jobs(options, socket, jobs);
    return status ? *status : failed(status.error());
}

int detach(const SrunOptions& options, const std::string& socket, Link& link,
           wire::Submit& request) {
    const auto submitted = send(link, options, request);
    if (!submitted) return failed(submitted.error());
    const int printed = print_id(options, submitted->id.text(), 0);
    if (const Status waits = notify_at_end(options, socket, {submitted->id}); !waits)
        return failed(waits.error());
    if (const Status files = try_files(options, submitted->id, {}); !files)
        return failed(files.error());
    return printed == 0 && options.wait ? wait_for(options, socket, {submitted->id}) : printed;
}

int wait_for_known(const SrunOptions& options, const std::string& socket) {
    std::vector<JobId> jobs;
    for (const std::string& text : options.wait_for) {
        auto id = known_job(socket, text);
        if (!id) return failed(id.error());
        auto all = jobs_of_array(options, *id);
        if (!all) {
            if (all.error().cause != CauseCode::not_found)  // its home says that anyway
                say("whether " + id->text() + " is an array is not known: " + all.error().message);
            all = std::vector{*id};
        }
        jobs.insert(jobs.end(), all->begin(), all->end());
    }
    return wait_for(options, socket, jobs);
}

// All elements, then what they write, one after the other. The exit status is the greatest of all.
int submit_array(SrunOptions options, const std::string& socket, Link& link,
                 wire::Submit& request) {
    std::vector<JobId> ids;
    const bool leaves = options.detach || options.wait;
    for (const uint32_t index : options.array) {
        request.group.first = ids.empty();
        request.group.array = ids.empty() ? 0 : ids[0].seq;
        request.group.index = index;
        request.group.at_once = options.at_once;
        const auto submitted = send(link, options, request);
        if (!submitted) {
            if (ids.empty()) return failed(submitted.error());
            return failed({0, "array " + ids[0].text() + ": " + std::to_string(ids.size()) +
                                  " of " + std::to_string(options.array.size()) +
                                  " jobs are submitted; " + submitted.error().message});
        }
        ids.push_back(submitted->id);
        options.array_id = ids[0];
        if (!leaves) continue;
        if (const Status files = try_files(options, ids.back(), index); !files)
            return failed(files.error());
    }
    if (leaves) {
        const int printed = print_id(options, ids[0].text(), ids.size());
        if (const Status waits = notify_at_end(options, socket, ids); !waits)
            return failed(waits.error());
        return printed == 0 && options.wait ? wait_for(options, socket, ids) : printed;
    }
    if (!options.quiet) say("array " + ids[0].text() + ": " + std::to_string(ids.size()) + " jobs");
    int greatest = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
        SrunOptions one = options;
        one.array = {options.array[i]};
        greatest = std::max(greatest, Session(one, socket).attach(ids[i]));
    }
    return greatest;
}

// Tries what the job's home will do for a snapshot, with these rights, in this directory.
Status can_take_snapshots() {
    const std::string option = "--files-snapshot: ";
    const Fd one(::open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    const Fd other(::open(".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    const bool none = !one || !other;
    if (none && errno != EOPNOTSUPP && errno != EISDIR)
        return fail_errno(option + "cannot write in this directory", errno);
    if (none || ::write(one.get(), "", 1) != 1 || ::ioctl(other.get(), FICLONE, one.get()) != 0)
        return fail(
            CauseCode::not_possible,
            option +
                "the file system of this directory cannot copy files by reference; btrfs can, "
                "and xfs");
    return {};
}

int submit_gang(const SrunOptions& options, const std::string& socket, Link& link,
                wire::Submit& request) {
    auto requests = describe_components(options, request);
    if (!requests) return failed(requests.error());
    const auto ids = submit_components(link, *requests);
    if (!ids) return failed(ids.error());
    if (!options.detach && !options.wait) {
        if (!options.quiet)
            say("job " + ids->front().text() + ": " + std::to_string(ids->size()) + " components");
        return attach_components(options, socket, *ids);
    }
    const int printed = print_id(options, ids->front().text(), ids->size());
    if (const Status waits = notify_at_end(options, socket, *ids); !waits)
        return failed(waits.error());
    if (printed != 0 || !options.wait) return printed;
    std::vector<int> statuses;
    for (size_t i = 0; i < ids->size(); ++i)
        if (const int status = wait_for(options, socket, {(*ids)[i]}); is_required(options, i))
            statuses.push_back(status);
    return gang_status(statuses);
}

// Fails if nothing can be read from stdin. A program would be told that, but a job would take it
// for an end of its input. A device that cannot be read is allowed: nohup(1) gives one.
Status readable_stdin() {
    struct stat st {};
    if (::fstat(STDIN_FILENO, &st) != 0) return {};
    const int how = ::fcntl(STDIN_FILENO, F_GETFL);
    if (S_ISDIR(st.st_mode))
        return fail(CauseCode::invalid,
                    "stdin is a directory, which cannot be read: give it a file");
    if (S_ISREG(st.st_mode) && how >= 0 && (how & O_ACCMODE) == O_WRONLY)
        return fail(CauseCode::invalid,
                    "stdin is open for writing alone, and cannot be read: give it a file with <");
    return {};
}

// A job that is run again finds its input read.
Status stdin_for_retries(const SrunOptions& options) {
    struct stat in {};
    if (options.tries.most == 0 || ::fstat(STDIN_FILENO, &in) != 0 || S_ISCHR(in.st_mode))
        return {};
    return fail(CauseCode::invalid,
                "--retries: a job that is run again does not read its input again: give it "
                "< /dev/null, and the file by its name");
}

Status files_can_be_written(const SrunOptions& options) {
    std::vector<std::string> files = {options.out_file, options.err_file};
    for (const ComponentPlan& one : options.plan)
        files.insert(files.end(), {one.out_file, one.err_file});
    for (const std::string& file : files)
        if (!file.empty()) TRY(output_can_be_written(file));
    return {};
}

int submit(const SrunOptions& options, const std::string& socket) {
    wire::Submit request;
    if (const Status can = files_can_be_written(options); !can) return failed(can.error());
    if (options.components == 0) {
        auto launch = capture_launch(options.program);
        if (!launch) return failed(launch.error());
        request.spec.launch = std::move(*launch);
    }
    request.terms = options.terms;
    request.name = options.name;
    request.spec.move = options.move;
    request.spec.tcp = options.tcp;
    request.spec.checkpoint_every = options.checkpoint_every;
    request.spec.restart = options.restart;
    request.tries = options.tries;
    request.group.begin = options.begin;
    request.group.singleton = options.singleton;
    request.spec.grace = options.grace;
    request.spec.must_migrate = options.must_migrate;
    request.spec.net = options.net;
    request.files_said = options.files.has_value();
    if (options.files) {
        request.spec.files = options.files->mode;
        request.spec.files_auto = options.files->is_auto;
    }
    request.spec.local_paths = options.local_paths;
    request.spec.tmp = options.tmp;
    for (const std::string& path : options.local_paths)
        if (struct stat st{}; ::stat(path.c_str(), &st) != 0 || !S_ISDIR(st.st_mode))
            return failed({0,
                           "--local-path " + path +
                               ": there is no such directory here, where a node's could lie",
                           CauseCode::not_found});
    request.spec.files_snapshot = options.files_snapshot;
    if (options.files_snapshot)
        if (const Status can = can_take_snapshots(); !can) return failed(can.error());
    if (options.terms.booking->promise)
        if (const Status can = ask_for_promise(options, socket); !can) return failed(can.error());
    const bool many = !options.array.empty() || options.components > 0;
    const bool leaves = options.detach || options.wait;
    request.attach = !leaves && !many;
    if (leaves) {
        request.out_file = options.out_file;
        request.err_file = options.err_file;
    }
    if (!leaves) {
        if (const Status can = readable_stdin(); !can) return failed(can.error());
        if (const Status can = stdin_for_retries(options); !can) return failed(can.error());
    }
    if (many || leaves || !options.after.empty()) {
        auto link = Link::open(socket);
        if (!link) return failed(link.error());
        if (const Status known = take_after(*link, options.after, request); !known)
            return failed(known.error());
        if (options.components > 0) return submit_gang(options, socket, *link, request);
        if (many) return submit_array(options, socket, *link, request);
        if (leaves) return detach(options, socket, *link, request);
    }
    if (getrandom(&request.token, sizeof request.token, 0) != sizeof request.token)
        request.token = 0;
    if (Terminal::present()) {
        request.spec.launch.tty = true;
        request.spec.launch.rows = Terminal::size().rows;
        request.spec.launch.cols = Terminal::size().cols;
    }
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
    const bool component =
        options.mode == SrunOptions::Mode::attach && names_component(options.job);
    if (!options.job.empty() && !component)
        if (const auto id = parse_job_id(options.job, "x"); !id) return usage(id.error());
    if (options.mode == SrunOptions::Mode::check) {
        const auto verdict = check_program(options);
        return verdict ? *verdict : failed(verdict.error());
    }
    const auto socket = wire::find_agentd(options.socket, options.node);
    if (!socket) return failed(socket.error());
    switch (options.mode) {
        case SrunOptions::Mode::change: return change(options, *socket);
        case SrunOptions::Mode::attach: return attach(options, *socket);
        case SrunOptions::Mode::wait: return wait_for_known(options, *socket);
        case SrunOptions::Mode::quote:
            if (const Status told = quote(options, *socket); !told) return failed(told.error());
            return 0;
        case SrunOptions::Mode::check:
        case SrunOptions::Mode::submit: return submit(options, *socket);
    }
    return 1;
}

}  // namespace
}  // namespace souk::tools

int main(int argc, char** argv) { return souk::tools::run(argc, argv); }
