// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/options.hpp"

#include <algorithm>

#include "agentd/core/files_choice.hpp"
#include "kernel/base/array_spec.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/text.hpp"
#include "kernel/base/units.hpp"
#include "market/core/strategy.hpp"
#include "market/core/users.hpp"
#include "tools/common/ahead.hpp"
#include "tools/srun/booking_options.hpp"
#include "tools/srun/contradictions.hpp"
#include "tools/srun/elsewhere.hpp"
#include "tools/srun/layout_options.hpp"
#include "tools/srun/limit_options.hpp"
#include "tools/srun/script.hpp"
#include "tools/srun/terminal.hpp"

namespace souk::tools {
namespace {

constexpr Nanos hour = Nanos::from_s(3'600), span_max = Nanos{hour.ns * 250'000};

Result<Money> positive_money(const char* text) {
    TRY_ASSIGN(const Money money, parse_money(text));
    if (money.micro == 0) return fail("it must be more than 0");
    return money;
}

// The value of that name, from the first to `last`.
template <class Enum>
bool named(std::string_view name, Enum last, Enum& to) {
    for (int v = 0; v <= static_cast<int>(last); ++v)
        if (name == to_string(static_cast<Enum>(v))) return to = static_cast<Enum>(v), true;
    return false;
}

// Sets how a job bids.
Status set_strategy(SrunOptions& o, std::string_view name) {
    if (!market::strategy_named(name))
        return fail("'" + std::string(name) + "' is none of truthful, pace, deadline and patient");
    o.terms.strategy = name;
    o.terms.pace = name == "pace";
    o.given |= wire::Change::strategy | wire::Change::pace;
    return {};
}

using Setter = std::function<Status(const char*)>;

// A term that may also change while the job lives: `parse` sets it, and it is marked as given.
Setter term(SrunOptions& o, wire::Change::Field field, Setter parse) {
    return [&o, field, parse = std::move(parse)](const char* text) -> Status {
        o.given |= field;
        return parse(text);
    };
}

template <class Whole>
Setter whole(Whole& to, int64_t most) {
    return [&to, most](const char* text) -> Status {
        TRY_ASSIGN(to, parse_whole(text, 1, most));
        return {};
    };
}

template <class Money>
Setter positive(Money& to) {
    return [&to](const char* text) -> Status {
        TRY_ASSIGN(to, positive_money(text));
        return {};
    };
}

// These options say what the job pays, and what it needs for that.
std::vector<Option> term_options(SrunOptions& o) {
    using wire::Change;
    return {
        {'p', "max-price", "PRICE",
         "the most to pay per CPU-hour (of a new job: default $SOUK_PRICE)",
         term(o, Change::max_price, positive(o.terms.max_price))},
        {'b', "budget", "AMOUNT", "the most that the job may cost in all",
         term(o, Change::budget, positive(o.terms.budget))},
        {'f', "finish", "TIME",
         "the time by which it should be done, from now (a number alone: hours): best effort,\n"
         "                              or with --promise promised",
         term(o, Change::finish, set_span(o.terms.finish, hour, span_max))},
        {0, "pace", "[=no]",
         "bid so that the budget lasts until the finish: needs --budget and --finish",
         term(o, Change::pace,
              [&o](const char* t) -> Status {
                  const std::string_view word = t ? t : "yes";
                  if (word != "yes" && word != "no")
                      return fail("'" + std::string(word) + "' is neither yes nor no");
                  o.terms.pace = word == "yes";
                  return {};
              })},
        {'m', "memory", "SIZE",
         "memory that it needs, and more it may not have (a number alone: MB)",
         term(o, Change::memory_mb,
              [&o](const char* t) -> Status {
                  TRY_ASSIGN(o.terms.memory_mb, parse_size_mb(t, 1, 1 << 30));
                  return {};
              })},
        {'c', "cpus", "N", "CPUs that it may use, on one machine (default 1)",
         sized(o, size_cpus, term(o, Change::cpus, whole(o.terms.cpus, 65'536)))},
        {'s', "strategy", "NAME",
         "how it bids: truthful (the default): its price; pace: the same as --pace; deadline: what "
         "is "
         "enough to be done by --finish, 95 % sure; needs --runtime; patient: at most the usual "
         "price",
         [&o](const char* t) { return set_strategy(o, t); }},
    };
}

Status add_local_path(SrunOptions& o, const char* text) {
    o.form_given = true;
    std::string path = text;
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    if (!may_lie_over(path))
        return fail(
            "'" + path +
            "' is no absolute path of a directory besides /proc, /sys, /dev, /run and /tmp");
    if (o.local_paths.size() >= local_paths_max)
        return fail(std::to_string(local_paths_max) + " directories are the most");
    if (std::ranges::find(o.local_paths, path) == o.local_paths.end())
        o.local_paths.push_back(std::move(path));
    return {};
}

Status set_tmp(SrunOptions& o, const char* text) {
    const std::string_view which = text;
    if (which != "own" && which != "shared")
        return fail("'" + std::string(which) + "' is neither own nor shared");
    o.form_given = true;
    o.tmp = which == "own" ? FilesTmp::own : FilesTmp::shared;
    return {};
}

// These options say what a new job is called, who pays for it, and how it moves.
std::vector<Option> form_options(SrunOptions& o) {
    return {
        {0, "project", "NAME", "whose account pays for it, of which you are a member",
         [&o](const char* t) -> Status {
             o.form_given = true;
             if (!market::valid_project_name(t))
                 return fail("'" + std::string(t) + "' is no name of a project");
             o.terms.project = t;
             return {};
         }},
        {0, "name", "NAME", "what to call the job in lists",
         [&o](const char* t) -> Status {
             o.name = t;
             return check_label(t, 255);
         }},
        {0, "move", "FORM",
         "how it may move: auto (the default), safe (never runs before its memory is whole),\n"
         "                              or fast (runs as soon as it can)",
         [&o](const char* t) -> Status {
             o.form_given = true;
             if (named(t, MovePolicy::fast, o.move)) return {};
             return fail("'" + std::string(t) + "' is none of auto, safe and fast");
         }},
        {0, "net", "WHICH",
         "its network: host (the default: that of the node where it is), or own (an address of "
         "its\n"
         "                              own that moves with it, and its connections with that)",
         [&o](const char* t) -> Status {
             o.form_given = o.net_given = true;
             if (named(t, NetMode::own, o.net)) return {};
             return fail("'" + std::string(t) + "' is neither host nor own");
         }},
        {0, "files", "WHOSE",
         "whose files it sees: local (those of the node where it is), home (those of this node,\n"
         "                              wherever it is), or auto (this node's, straight from where "
         "it is if\n"
         "                              they are the same); default: as this node is configured",
         [&o](const char* t) -> Status {
             o.form_given = true;
             o.files = files_wish(t);
             if (o.files) return {};
             return fail("'" + std::string(t) + "' is none of local, home and auto");
         }},
        {0, "local-path", "DIR",
         "with --files=home or auto: a directory of the node where it is in place of this node's, "
         "there and\n"
         "                              here (several times: several); it runs only on nodes that "
         "offer it",
         [&o](const char* t) { return add_local_path(o, t); }},
        {0, "files-snapshot", nullptr,
         "with --files=home or auto and --checkpoint-every: a job that goes back to a checkpoint "
         "finds its\n"
         "                              working directory, and all below it, as it was then "
         "(btrfs, xfs)",
         [&o](const char*) -> Status {
             o.form_given = o.files_snapshot = true;
             return {};
         }},
        {0, "tcp", "WHAT",
         "with --net=host, when it moves, its established TCP connections: close (the default), "
         "or\n"
         "                              refuse (as long as it has one it does not move)",
         [&o](const char* t) -> Status {
             o.form_given = o.tcp_given = true;
             if (named(t, TcpPolicy::refuse, o.tcp)) return {};
             return fail("'" + std::string(t) + "' is neither close nor refuse");
         }},
    };
}

std::vector<Option> quote_options(SrunOptions& o) {
    return {
        {0, "quote", nullptr, "say what the job would get and cost now, and submit nothing",
         [&o](const char*) -> Status {
             o.mode = SrunOptions::Mode::quote;
             return {};
         }},
        {0, "check", nullptr,
         "say whether PROGRAM, or the process with that number, could move as a job, and what "
         "holds it:\n"
         "                              runs the program here for a moment, and submits nothing",
         [&o](const char*) -> Status {
             o.mode = SrunOptions::Mode::check;
             return {};
         }},
        {0, "check-for", "TIME",
         "with --check: how long the program runs here (default 2s; a number alone: seconds)",
         set_span(o.check_for, Nanos::from_s(1), hour)},
        {'n', "jobs", "N", "with --quote: N such jobs at once (default 1)", whole(o.jobs, 1'000)},
        {0, "runtime", "TIME",
         "how long all of it runs on a machine of speed 100, all its CPUs at work (a number alone: "
         "hours): for --quote and -s deadline",
         term(o, wire::Change::runtime, set_span(o.terms.runtime, hour, span_max))},
    };
}

// These options say what becomes of a new job that cannot move, or whose node is lost.
std::vector<Option> loss_options(SrunOptions& o) {
    return {
        {0, "checkpoint-every", "TIME",
         "write down the running job so often (a number alone: seconds): if its node is lost, it "
         "goes on\n"
         "                              from there",
         [&o](const char* t) -> Status {
             o.form_given = true;
             TRY_ASSIGN(o.checkpoint_every,
                        parse_span(t, Nanos::from_s(1), Nanos::from_s(1), span_max));
             return {};
         }},
        {0, "must-migrate", nullptr,
         "refuse to run it if it is found, as it starts, that it cannot be moved",
         [&o](const char*) -> Status {
             o.form_given = o.must_migrate = true;
             return {};
         }},
        {0, "grace", "TIME",
         "a cancel asks it to end (SIGTERM), and ends it after so long (default: as its node is\n"
         "                              configured; 0: at once; a number alone: seconds)",
         [&o](const char* t) -> Status {
             o.form_given = true;
             TRY_ASSIGN(const Nanos grace, parse_span(t, Nanos::from_s(1), Nanos{}, hour));
             o.grace = std::max(grace, Nanos::from_ms(1));  // 0 on the wire: not said
             return {};
         }},
        {0, "restart", nullptr, "if its node is lost and there is no checkpoint, begin anew",
         [&o](const char*) -> Status {
             o.form_given = o.restart = true;
             return {};
         }},
    };
}

Status set_wait(SrunOptions& o, const char* ids) {
    o.wait = true;
    if (!ids) return {};
    for (std::string_view rest = ids;;) {
        const std::string id(rest.substr(0, rest.find(',')));
        TRY(parse_job_id(id, "x"));
        o.wait_for.push_back(id);
        if (id.size() == rest.size()) return {};
        rest.remove_prefix(id.size() + 1);
    }
}

// These options say how large the job's components are, and where they go.
std::vector<Option> size_options(SrunOptions& o) {
    return {
        {0, "total", "N", "all N CPUs on one machine: the same as -N 1 -c N",
         sized(o, size_total, [&o](const char* text) { return set_total(o, text); })},
        {0, "flexible", "N[:MIN]",
         "N CPUs on any machines: components of MIN CPUs each (default 1), the last of what is "
         "left,\n"
         "                              as many of them on one machine as find room",
         sized(o, size_flexible, [&o](const char* text) { return set_flexible(o, text); })},
        {0, "ordered", "NODE:CPUS,...",
         "one component for each item, of so many CPUs (default: as -c), on that node and nowhere "
         "else",
         sized(o, size_ordered, [&o](const char* text) { return set_ordered(o, text); })},
        {0, "spread", "[=N]",
         "with -N: each component on a node of its own, or at most N of them on one node",
         [&o](const char* text) -> Status {
             TRY_ASSIGN(const int64_t most, parse_whole(text ? text : "1", 1, gang_components_max));
             o.spread = static_cast<int32_t>(most);
             return {};
         }},
        {0, "pack", nullptr, "with -N: on as few nodes as the speed allows that the job gets",
         set_flag(o.pack)},
        {0, "near", "[=BOUND,...]",
         "with -N: all on nodes that are near each other; within a round trip (500us, 1ms), with\n"
         "                              a bandwidth (100M, 10G: bits/s)",
         [&o](const char* text) { return set_near(o, text); }},
        {0, "tmp", "WHOSE",
         "its /tmp: own (empty as it begins, in its memory, and goes along when it moves), or "
         "shared\n"
         "                              (that of all); default: shared, or as this node is "
         "configured",
         [&o](const char* text) { return set_tmp(o, text); }},
    };
}

// These options say what a job has around it: other jobs, files, and what is told of it.
std::vector<Option> around_options(SrunOptions& o) {
    return {
        {'N', "components", "N",
         "one job of N components, each with the memory and CPUs asked for: they start together, "
         "on "
         "any\n"
         "                              nodes, and end as one; each finds its own in "
         "$SOUK_COMPONENT. Or of those\n"
         "                              that the file of this name describes",
         sized(o, size_components, [&o](const char* text) { return set_components(o, text); })},
        {'l', "label", nullptr, "with -N: each line of output begins with its component",
         set_flag(o.labels)},
        {0, "exec", nullptr,
         "with -N: the program begins in the first component; it runs others in the rest with\n"
         "                              souk-exec COMPONENT PROGRAM",
         set_flag(o.exec)},
        {0, "mpi", nullptr,
         "with -N: a program of Open MPI: mpirun in the first component starts it in all, as often "
         "as each\n"
         "                              has CPUs",
         [&o](const char*) -> Status {
             o.exec = o.mpi = true;
             return {};
         }},
        {0, "stdin", "WHICH",
         "with -N: which component reads srun's stdin: its number or label (default 0), all, or "
         "none",
         set_text(o.input)},
        {0, "array", "LIST",
         "as many jobs as the list has indexes (1-100, 0-100:10, 1,3,7-9), at most N at once "
         "(1-100%N); "
         "each\n"
         "                              finds its own in $SOUK_ARRAY_INDEX",
         [&o](const char* t) -> Status {
             TRY_ASSIGN(const ArraySpec spec, parse_array(t));
             o.array = spec.indexes;
             o.at_once = spec.at_once;
             return {};
         }},
        {0, "after", "ID[:HOW],...",
         "begin when these jobs of the same node have ended; HOW: ok (only if it exits with 0), "
         "notok,\n"
         "                              or each (of an array: element by element, ok). With ? in "
         "place of commas: when\n"
         "                              one of them has",
         set_text(o.after)},
        {0, "singleton", nullptr,
         "begin when no earlier job of this --name and user is unfinished on this node",
         set_flag(o.singleton)},
        {0, "begin", "TIME",
         "not before: 9:30 (the next), 2026-12-24T18:00, or so long from now (90m)",
         [&o](const char* t) -> Status {
             TRY_ASSIGN(o.begin, parse_ahead(t));
             return {};
         }},
        {'o', "output", "FILE",
         "write what the job writes to stdout at the end of FILE, on this machine (%j: its id, %a: "
         "its\n"
         "                              index in an array, %A: the array, %N: its home, %x: its "
         "name, %u: its user)",
         set_text(o.out_file)},
        {'e', "error", "FILE", "the same for stderr (with -o alone: into the same file)",
         set_text(o.err_file)},
    };
}

// These options say which job is meant, through which agentd, and what srun says itself.
std::vector<Option> own_options(SrunOptions& o, std::string& change, std::string& attach) {
    return {
        {'d', "detach", nullptr, "submit, print the id and leave", set_flag(o.detach)},
        {0, "notify", "COMMAND",
         "with --detach: run this here, as you, when the job has ended ($SOUK_JOB_ID, $SOUK_EXIT)",
         set_text(o.notify)},
        {0, "wait", "[=ID,...]",
         "submit, print the id, and leave when the job has ended, as it did; or wait so for jobs "
         "that\n"
         "                              are there already (their terminal is somebody else's)",
         [&o](const char* t) { return set_wait(o, t); }},
        {'J', "job", "ID", "change the terms of this job", set_text(change)},
        {0, "attach", "ID", "become the terminal of this job, or of a component of it (ID.C)",
         set_text(attach)},
        {0, "node", "NAME", "the node to stand on (default $SOUK_NODE, then this machine's)",
         set_text(o.node)},
        {0, "socket", "PATH", "the agentd's socket", set_text(o.socket)},
        {0, "json", "[=FILE]",
         "write a summary as JSON into FILE, or as the last line of stderr;\n"
         "                              with --detach print {\"id\": ID}, with --quote the answer",
         [&o](const char* file) -> Status {
             o.json = true;
             if (file) o.json_file = file;
             return {};
         }},
        {0, "log", "FILE",
         "write what becomes of the job at the end of FILE, each step with its time",
         set_text(o.log_file)},
        {0, "patience", "TIME",
         "how long to try again when the agentd is gone (default 5m; a number alone: seconds)",
         set_span(o.patience, Nanos::from_s(1), span_max)},
        {0, "hangup", "WHAT",
         "when the terminal or the connection to it is lost: detach (the default: the job goes "
         "on,\n"
         "                              srun --attach ID comes back to it), or kill (the job gets "
         "SIGHUP)",
         [&o](const char* t) -> Status {
             const std::string_view what = t;
             if (what != "detach" && what != "kill")
                 return fail("'" + std::string(what) + "' is neither detach nor kill");
             o.hangup_kills = what == "kill";
             return {};
         }},
        {0, "status", "HOW",
         "what becomes of the job, on stderr: line (one, written anew; the default on a "
         "terminal),\n"
         "                              log (a line each time), or never",
         [&o](const char* t) -> Status {
             const std::string_view how = t;
             if (how != "line" && how != "log" && how != "never")
                 return fail("'" + std::string(how) + "' is none of line, log and never");
             o.status = how == "line"  ? StatusMode::line
                        : how == "log" ? StatusMode::log
                                       : StatusMode::never;
             return {};
         }},
        {'q', "quiet", nullptr, "say nothing but errors", set_flag(o.quiet)},
        {'v', "verbose", nullptr, "say all that becomes of the job", set_flag(o.verbose)},
    };
}

CommandLine command_line(SrunOptions& o, std::string& change, std::string& attach) {
    std::vector<Option> options;
    for (auto& some : {term_options(o), form_options(o), quote_options(o), loss_options(o),
                       limit_options(o), needs_options(o), booking_options(o), around_options(o),
                       size_options(o), own_options(o, change, attach)})
        options.insert(options.end(), some.begin(), some.end());
    CommandLine line{
        srun,
        "[options] -p PRICE PROGRAM [ARGS]  |  srun --quote -p PRICE ...  |  srun -J ID "
        "[terms]  |  srun --attach ID",
        "Runs a program on the market and stays its terminal; or changes, or attaches to, a "
        "job that runs.",
        std::move(options),
        "\nA TIME is a number with a unit, such as 90s, 30m, 1.5h or 2d; a SIZE likewise, such "
        "as 512M or 4G.\n"
        "\nThe exit status is the job's own (128+N if signal N ended it). 255: the job was "
        "cancelled, or ended by the\n"
        "market. 129: the terminal was lost, the job goes on. 1: it could not be submitted or "
        "started, its output not\n"
        "written, or the agentd stayed away; 2: a mistake on the command line.\n"
        "Signals, the terminal's keys and its size reach the job; a job that waits or is "
        "frozen is cancelled by Ctrl-C.\n"};
    line.elsewhere = slurm_option;
    return line;
}

Parsed usage(const std::string& why) {
    complain_usage(srun, why);
    return Parsed::failed;
}

Parsed parse_line(CommandLine line, const char* program, const ScriptLine& own) {
    std::vector<std::string> all = {"srun"};
    all.insert(all.end(), own.words.begin(), own.words.end());
    std::vector<char*> pointers;
    pointers.reserve(all.size() + 1);
    for (std::string& word : all) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    line.at = program + (" line " + std::to_string(own.number)) + ": ";
    std::span<char*> rest;
    const Parsed parsed = parse(line, static_cast<int>(all.size()), pointers.data(), rest);
    if (parsed == Parsed::go && !rest.empty())
        return usage(line.at + "'" + rest[0] + "' of a #SOUK line is not an option");
    return parsed;
}

// A job script's own options, as if they stood before those of the command line: these come again
// after them, and count.
Parsed parse_script(const CommandLine& line, int argc, char** argv, SrunOptions& o) {
    if (o.program.empty()) return Parsed::go;
    const char* const program = o.program[0];
    const auto script = read_script(program);
    if (!script) return usage(script.error().message);
    if (script->sbatch_line > 0 && script->lines.empty() && !o.quiet)
        say(program + (" line " + std::to_string(script->sbatch_line)) +
            ": #SBATCH lines are not read; #SOUK lines with options of srun are "
            "(docs/other-schedulers.md)");
    if (script->lines.empty()) return Parsed::go;
    o.sizes_said = 0;
    for (const ScriptLine& own : script->lines)
        if (const Parsed parsed = parse_line(line, program, own); parsed != Parsed::go)
            return parsed;
    if (const std::string conflict = size_conflict(o); !conflict.empty())
        return usage(std::string(program) + ": " + conflict);
    o.sizes_said = 0;
    return parse(line, argc, argv, o.program);
}

// Changes the terms of a job that is there already, or attaches to it.
Parsed of_a_known_job(SrunOptions& o, const std::string& change, const std::string& attach) {
    o.mode = !change.empty() ? SrunOptions::Mode::change : SrunOptions::Mode::attach;
    o.job = change.empty() ? attach : change;
    if (!o.program.empty())
        return usage(std::string("'") + o.program[0] + "': a program is only for a new job");
    if (o.detach || !o.name.empty() || o.form_given)
        return usage(
            "--detach, --name, --move, --net, --files, --local-path, --tmp, --files-snapshot, "
            "--tcp, --checkpoint-every, --must-migrate, --retries and --restart are only for a "
            "new job");
    if (o.mode == SrunOptions::Mode::change && !o.given)
        return usage("--job: no term to change was given");
    if (o.mode == SrunOptions::Mode::attach && o.given)
        return usage("--attach changes no terms: use --job");
    return Parsed::go;
}

}  // namespace

Parsed parse_srun(int argc, char** argv, SrunOptions& o) {
    std::string change, attach;
    const CommandLine line = command_line(o, change, attach);
    if (const Parsed parsed = parse(line, argc, argv, o.program); parsed != Parsed::go)
        return parsed;
    if (const Parsed parsed = parse_script(line, argc, argv, o); parsed != Parsed::go)
        return parsed;
    const bool quotes = o.mode == SrunOptions::Mode::quote;
    if (quotes && !(change + attach).empty())
        return usage("--quote is for a new job: not with --job or --attach");
    const bool checks = o.mode == SrunOptions::Mode::check;
    if (checks && !(change + attach).empty())
        return usage("--check is for a program or a process: not with --job or --attach");
    if (checks && o.detach) return usage("--check submits nothing: not with --detach");
    if (checks && o.program.empty())
        return usage("--check: the program, or the number of a process, is missing");
    if (checks) return Parsed::go;
    if (quotes && o.detach) return usage("--quote submits nothing: not with --detach");
    if (!o.log_file.empty() && (quotes || o.detach || o.wait))
        return usage("--log is for a job that srun stays attached to");
    if (o.wait && (quotes || !(change + attach).empty()))
        return usage("--wait is for a new job, or --wait=ID");
    if (!o.wait_for.empty() && (!o.program.empty() || o.given || o.form_given || o.detach))
        return usage("--wait=ID waits for jobs that are there already: no new job with it");
    if (const std::string wrong = wrong_with_files(o, quotes || !change.empty(), attach.empty());
        !wrong.empty())
        return usage(wrong);
    if (!o.wait_for.empty()) {
        o.mode = SrunOptions::Mode::wait;
        return Parsed::go;
    }
    if (!quotes && o.jobs > 1) return usage("--jobs is for --quote; a job of N components is -N N");
    std::string wrong = wrong_with_waits(o, quotes || !(change + attach).empty());
    if (wrong.empty()) wrong = wrong_with_gang(o, !(change + attach).empty(), quotes);
    if (wrong.empty()) wrong = wrong_with_booking(o, !(change + attach).empty(), quotes);
    if (!wrong.empty()) return usage(wrong);
    if (!change.empty() && !attach.empty()) return usage("--job and --attach exclude each other");
    if (!(change + attach).empty()) return of_a_known_job(o, change, attach);
    if (o.components > 0 && !o.net_given && !o.tcp_given) o.net = NetMode::own;
    if (o.net == NetMode::own && o.tcp_given)
        return usage(
            "--tcp is for --net=host: connections of a job with a network of its own go along");
    if (o.net == NetMode::own) o.tcp = TcpPolicy::keep;
    if (!(o.given & wire::Change::max_price) && !o.terms.booking->within.empty()) {
        o.terms.max_price = Money{1};  // the other job pays
    } else if (!(o.given & wire::Change::max_price)) {
        const auto price = default_price();
        if (!price) return usage(price.error().message);
        o.terms.max_price = *price;
        o.given |= wire::Change::max_price;
    }
    if (const std::string lacking = lacking_with(o); !lacking.empty()) return usage(lacking);
    const auto has_program = [](const ComponentPlan& one) { return !one.program.empty(); };
    const bool all_have = !o.plan.empty() && (o.exec ? has_program(o.plan[0])
                                                     : std::ranges::all_of(o.plan, has_program));
    if (o.program.empty() && !quotes && !all_have) return usage("the program to run is missing");
    return Parsed::go;
}

}  // namespace souk::tools
