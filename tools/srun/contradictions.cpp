// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/contradictions.hpp"

#include <algorithm>

#include "tools/srun/after.hpp"
#include "tools/srun/layout_options.hpp"

namespace souk::tools {
namespace {

// Returns the component that --stdin means; the number of components: all; below 0: none.
Result<int32_t> reader_of_input(const SrunOptions& o) {
    if (o.input.empty()) return 0;
    if (o.input == "all") return o.components;
    if (o.input == "none") return -1;
    for (size_t i = 0; i < o.plan.size(); ++i)
        if (o.plan[i].label == o.input) return static_cast<int32_t>(i);
    const auto number = parse_whole(o.input, 0, o.components - 1);
    if (!number) return fail("--stdin: there is no component '" + o.input + "'");
    return static_cast<int32_t>(*number);
}

// A letter behind a % in a file's name that stands for nothing.
std::string wrong_sign(const char* option, const std::string& pattern, bool new_job) {
    for (size_t at = 0; (at = pattern.find('%', at)) != std::string::npos; at += 2) {
        const char sign = at + 1 < pattern.size() ? pattern[at + 1] : '%';
        const bool letter = (sign >= 'a' && sign <= 'z') || (sign >= 'A' && sign <= 'Z');
        if (!letter) continue;
        if (output_signs.find(sign) == output_signs.npos)
            return std::string(option) + ": '%" + sign +
                   "' is none of %j (the job's id), %a (its index in an array), %A (the array), %N "
                   "(its home), %x (its name) and %u (its user)";
        if (!new_job && (sign == 'x' || sign == 'A'))
            return std::string(option) + ": %" + sign + " is for a new job";
    }
    return {};
}

// Names the options that a job of several components cannot have (yet); empty: none was given.
std::string gang_conflict(const SrunOptions& o) {
    if (o.components == 0) return {};
    if (!o.array.empty() || !o.after.empty()) return "--array or --after";
    if (o.singleton || o.begin.ns > 0) return "--singleton or --begin";
    if (o.tries.most > 0) return "--retries";
    if (!o.terms.resources.empty()) return "--resource";
    if (o.files_snapshot) return "--files-snapshot";
    if (o.terms.pace || !(o.terms.strategy.empty() || o.terms.strategy == "truthful"))
        return "--pace or a strategy";
    if (!o.json_file.empty() || !o.log_file.empty()) return "--json=FILE or --log";
    return {};
}

}  // namespace

// Says what is wrong with -o and -e; empty: nothing.
std::string wrong_with_files(const SrunOptions& o, bool no_output, bool new_job) {
    if (!(o.out_file + o.err_file).empty() && (no_output || !o.wait_for.empty()))
        return "--output and --error are for a new job, or with --attach";
    const std::string wrong = wrong_sign("--output", o.out_file, new_job);
    return wrong.empty() ? wrong_sign("--error", o.err_file, new_job) : wrong;
}

// Checks the options of several components, and sets which of them reads srun's input. Returns what
// is wrong; empty: nothing.
std::string wrong_with_gang(SrunOptions& o, bool no_new_job, bool quotes) {
    if (std::string conflict = size_conflict(o); !conflict.empty()) return conflict;
    if (o.components == 0)
        return o.exec                         ? "--exec and --mpi are for --components"
               : o.labels                     ? "--label is for --components"
               : !o.input.empty()             ? "--stdin is for --components"
               : o.spread || o.pack || o.near ? "--spread, --pack and --near are for --components"
                                              : "";
    if (no_new_job) return "--components is for a new job";
    if (quotes && o.jobs > 1) return "--quote is of --jobs alike or of one job of --components";
    if (const std::string with = gang_conflict(o); !with.empty())
        return "a job of several components (--components) is not possible with " + with;
    const auto reader = reader_of_input(o);
    if (!reader) return reader.error().message;
    o.reader = *reader;
    for (const ComponentPlan& one : o.plan)
        if (o.spread > 0 && one.role == ComponentClass::optional)
            return one.at + ": no component is optional with --spread";
        else if (o.near && one.role == ComponentClass::optional)
            return one.at + ": no component is optional with --near";
    if (!o.exec) return {};
    if ((o.net_given && o.net != NetMode::own) || o.tcp_given)
        return "--exec and --mpi need components with addresses of their own (--net=own)";
    const auto own = std::find_if(
        o.plan.begin() + (o.plan.empty() ? 0 : 1), o.plan.end(), [](const ComponentPlan& one) {
            return !one.program.empty() || one.arguments || one.role == ComponentClass::optional;
        });
    if (own == o.plan.end()) return {};
    return own->at +
           ": with --exec or --mpi only the first component has a program of its own, and none is "
           "optional";
}

// Says what is wrong with what the job is to wait for; empty: nothing.
std::string wrong_with_waits(const SrunOptions& o, bool no_new_job) {
    const bool waits = !o.after.empty() || o.singleton || o.begin.ns > 0;
    if ((waits || !o.array.empty()) && no_new_job)
        return "--array, --after, --singleton and --begin are for a new job";
    if (const Status after = check_after(o.after, !o.array.empty()); !after)
        return "--after: " + after.error().message;
    if (o.singleton && o.name.empty())
        return "--singleton needs --name: jobs of one name begin one after the other";
    return {};
}

// Says which option lacks another one; empty: none does.
std::string lacking_with(const SrunOptions& o) {
    const uint32_t chooses = wire::Change::sites_prefer | wire::Change::sites_within;
    if ((o.given & chooses) != 0 && o.terms.sites->names.empty())
        return "--prefer and --within need --sites: whose offers to choose from";
    if (o.terms.pace && (o.terms.budget.micro == 0 || o.terms.finish.ns == 0))
        return "--pace needs --budget and --finish: what to spread, and until when";
    if (o.terms.limits->signal != 0 && o.terms.limits->run.ns == 0)
        return "--signal needs --time: it is sent before that is over";
    if (!o.notify.empty() && !o.detach) return "--notify is for --detach";
    if (o.tries.most == 0 && o.tries != JobTries{})
        return "--retry-on needs --retries: how often it is run again";
    if (o.terms.strategy == "deadline" && (o.terms.finish.ns == 0 || o.terms.runtime.ns == 0))
        return "-s deadline needs --finish and --runtime: until when, and how much work it is";
    return {};
}

}  // namespace souk::tools
