// SPDX-License-Identifier: GPL-2.0-or-later
// marketctl: the market's state, and orders by hand for operators and tests.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <optional>
#include <string_view>

#include "kernel/base/ids.hpp"
#include "tools/common/ctl.hpp"
#include "tools/common/nearest.hpp"
#include "tools/common/paths.hpp"
#include "tools/common/table.hpp"
#include "tools/marketctl/cancel.hpp"
#include "tools/marketctl/decisions.hpp"
#include "tools/marketctl/everywhere.hpp"
#include "tools/marketctl/money.hpp"
#include "tools/marketctl/output.hpp"
#include "tools/marketctl/pay.hpp"
#include "tools/marketctl/peer_books.hpp"
#include "tools/marketctl/plan.hpp"
#include "tools/marketctl/report.hpp"
#include "tools/marketctl/user.hpp"
#include "tools/marketctl/views.hpp"
#include "tools/marketctl/wait.hpp"
#include "tools/marketctl/why.hpp"

namespace souk::tools {
namespace {

struct Verb {
    const char *name, *alias;
    // The letters say which words it takes: J a job, N a node, l "lost" or "forget", n a node that
    // may be left out, a an account that may be left out, u a user, v "verify", f a file.
    const char* takes;
    bool may_hold;
    Result<std::string> (*text)(const Answer&);  // null: says nothing
};

constexpr Verb verbs[] = {
    {"status", nullptr, "", false, status_text},
    {"list-jobs", "lj", "", false, nullptr},
    {"list-providers", "lp", "", false, providers_text},
    {"job", nullptr, "J", false, job_text},
    {"offers", nullptr, "J", false, offers_text},
    {"site-news", nullptr, "", false, site_news_text},
    {"reservations", nullptr, "", false, reservations_text},
    {"give", nullptr, "Ju", false, message_text},
    {"dump", nullptr, "", false, dump_text},
    {"move", nullptr, "JN", true, nullptr},
    {"freeze", nullptr, "J", true, nullptr},
    {"thaw", nullptr, "Jn", true, nullptr},
    {"node", nullptr, "lN", false, nullptr},
    {"account", nullptr, "a", false, accounts_text},
    {"receipts", nullptr, "", false, receipts_text},
    {"prices", nullptr, "", false, prices_text},
    {"limits", nullptr, "", false, limits_text},
    {"ledger", nullptr, "v", false, ledger_text},
    {"backup", nullptr, "f", false, backup_text},
    {"restore", nullptr, "f", false, restore_text},
    {"web-token", nullptr, "", false, web_token_text},
};

// WHAT VALUE [WHY ...]
Result<CtlQuestion> set_question(std::span<char*> words) {
    if (words.size() < 2)
        return fail("set: an option and its value are missing (solver, pricing, min-stay, ...)");
    std::string why;
    for (const char* word : words.subspan(2)) why += (why.empty() ? "" : " ") + std::string(word);
    return CtlQuestion{"set", {words[0], words[1], why}, message_text};
}

// Makes the name absolute, because another process has to open the file.
Result<std::string> absolute(std::string_view file) {
    if (file.starts_with('/')) return std::string(file);
    char here[PATH_MAX];
    if (!::getcwd(here, sizeof here)) return fail_errno("the working directory", errno);
    return std::string(here) + "/" + std::string(file);
}

struct OrderOptions {
    bool hold = false, no_wait = false, story = false, verbose = false, load = false;
    std::string wait;
};

Status take_order_options(const OrderOptions& o, bool may_hold, CtlQuestion& question) {
    constexpr int64_t usual_s = 60;
    if (o.hold && !may_hold) return fail(question.verb + ": --hold is for move, freeze and thaw");
    if ((o.no_wait || !o.wait.empty()) && !may_hold)
        return fail(question.verb + ": --wait and --no-wait are for move, freeze and thaw");
    if (o.no_wait && !o.wait.empty())
        return fail(question.verb + ": --wait and --no-wait exclude each other");
    if (o.story && question.verb != "job") return fail(question.verb + ": --story is for job");
    if (o.verbose && !o.story)
        return fail(question.verb + ": --verbose is for job ID --story: what CRIU said of itself");
    if (o.load && (question.verb != "job" || o.story))
        return fail(question.verb + ": --load is for job, without --story");
    if (o.load) {
        question.verb = "load";
        question.text = load_text;
    }
    if (o.story) {
        question.verb = "story";
        question.text = o.verbose ? verbose_story_text : story_text;
    }
    if (!may_hold) return {};
    question.args.emplace_back(o.hold ? "hold" : "once");
    if (o.no_wait) return {};
    int64_t limit_s = usual_s;
    if (!o.wait.empty()) {
        TRY_ASSIGN(limit_s, parse_span_s("--wait", o.wait));
    }
    wait_for_order(question, limit_s);
    return {};
}

// All that stands before and between the words.
struct Given {
    OrderOptions order;
    MoneyOptions money;
    UserOptions user;
    DecisionOptions decisions;
    CancelOptions several;
    ReportOptions report;
    std::string last, step;
    PayOptions pay;
    OutputOptions output;
    ColumnOptions columns;
    std::string needs;
    PlanOptions plan;
    std::string sites;
};

constexpr const char* list_columns =
    "id,user,called,status,exit,value,t-runtime,m-runtime,where,comment";

Status take_options(const Given& given, bool may_hold, CtlQuestion& question) {
    TRY(take_money_options(given.money, question));
    TRY(take_price_options(given.last, given.step, question));
    return take_order_options(given.order, may_hold, question);
}

// Asks for the jobs of one array alone.
Status take_array(const std::string& array, CtlQuestion& question) {
    if (array.empty()) return {};
    TRY_ASSIGN(const JobId id, parse_job_id(array));
    question.args.push_back("array=" + id.text());
    return {};
}

// ID[*]: all of an array, as list-jobs names it.
Result<CtlQuestion> array_question(std::string_view word) {
    CtlQuestion question{"list-jobs", {"state=all"}, array_text};
    TRY(take_array(std::string(word.substr(0, word.size() - 3)), question));
    return question;
}

// Makes the question of a verb that has words of its own; nothing if the verb is none of these.
Result<std::optional<CtlQuestion>> own_words(std::string_view name, std::span<char*> words,
                                             Given given) {
    std::optional<CtlQuestion> question;
    if (name != "why-price" && name != "why" && !given.decisions.at.empty())
        return fail(std::string(name) + ": --at is for why price");
    if (name != "decisions" && !(given.decisions.from + given.decisions.to).empty())
        return fail(std::string(name) + ": --from and --to are for decisions export");
    const bool lists = name == "list-jobs" || name == "lj" || name == "history";
    if (name != "cancel" && (given.several.all || !given.several.name.empty()))
        return fail(std::string(name) + ": --name and --all are for cancel");
    if (name != "cancel" && !lists && !given.several.array.empty())
        return fail(std::string(name) + ": --array is for cancel, list-jobs and history");
    if (!lists && given.columns.any())
        return fail(std::string(name) + ": --open and -o are for list-jobs and history");
    if (name != "list-providers" && name != "lp" && !given.needs.empty())
        return fail(std::string(name) + ": --needs is for list-providers");
    if (name != "plan" && given.plan.any())
        return fail(std::string(name) + ": --until, --if and --svg are for plan");
    if (name != "output" && given.output.any())
        return fail(std::string(name) + ": --follow and --lines are for output");
    const bool statement = name == "statement";
    if (name != "report" && name != "history" &&
        ((given.report.csv && !statement) || !given.report.by.empty()))
        return fail(std::string(name) +
                    ": --by is for report, --csv for report, history and "
                    "statement");
    TRY_ASSIGN(question, pay_question(name, words, given.pay, given.report.csv, given.money));
    if (name == "history") {
        TRY_ASSIGN(question, history_question(words, given.report, given.columns, given.money));
        TRY(take_array(given.several.array, *question));
    } else if (name == "report") {
        TRY_ASSIGN(question, report_question(words, given.report, given.money));
    } else if (name == "cancel") {
        const std::string user = std::exchange(given.money.user, {});
        TRY_ASSIGN(question, cancel_question(words, given.several, user));
    } else if (name == "hold" || name == "release") {
        TRY_ASSIGN(question, jobs_question(std::string(name), words));
    } else if (name == "decisions") {
        const std::string user = std::exchange(given.money.user, {});
        TRY_ASSIGN(question, decisions_question(words, given.decisions, user));
    } else if (name == "ledger" && (!(given.money.peer + given.money.file).empty() ||
                                    (!words.empty() && std::string_view(words[0]) == "export"))) {
        TRY_ASSIGN(question, books_question(words, given.money.peer, given.money.file));
    } else if (name == "why-price") {
        TRY_ASSIGN(question, why_question(words, given.decisions));
    } else if (name == "why") {
        TRY_ASSIGN(question, reasons_question(words, given.decisions));
    } else if (name == "user") {
        TRY_ASSIGN(question, user_question(words, given.user));
    } else if (name == "project") {
        TRY_ASSIGN(question, project_question(words));
    } else if (name == "output") {
        TRY_ASSIGN(question, output_question(words, given.output));
    } else if (name == "plan") {
        TRY_ASSIGN(question, plan_question(words, given.plan));
    } else if (name == "set") {
        TRY_ASSIGN(question, set_question(words));
    } else if (name == "job" && words.size() == 1 && std::string_view(words[0]).ends_with("[*]")) {
        TRY_ASSIGN(question, array_question(words[0]));
    }
    if (question) TRY(take_options(given, false, *question));
    return question;
}

// --help shows these lines about the verbs.
const std::vector<VerbHelp> verbs_help = {
    {"status", "the market, its jobs and what they are worth"},
    {"list-jobs (lj)", "every live job (--state finish, --state all: also those that ended)"},
    {"list-providers (lp)", "every provider; with --needs those that a job could ask for so"},
    {"site-news", "sites that this one has heard of, from its peers and from theirs"},
    {"reservations", "places that are sold ahead or asked for (srun --start, --for)"},
    {"give ID USER",
     "another user may run programs in a place of yours, too (srun --allocate, --in), which you "
     "pay "
     "('-': nobody any more)"},
    {"plan", "what is to run where and until when: what is sold, what runs, what is likely then"},
    {"job ID",
     "all about one job; with --story the steps of its life, with --load what it uses; ID[*]: all "
     "of "
     "an array in sum, and which of its jobs failed"},
    {"output ID",
     "what its home keeps of what the job wrote, on stdout and stderr, without touching the job"},
    {"dump", "what its machine holds right now of each node and unfinished job (root)"},
    {"cancel ID...",
     "end a job, or all jobs of the array that it is the first of (ID[LIST]: these elements, "
     "ID-NUMBER: all between); with --name, --user or --all several"},
    {"offers ID", "what other sites have offered for a job (srun --sites)"},
    {"move ID NODE", "move a job to a node, or to a peer: SITE[:NODE]"},
    {"freeze ID", "freeze a job"},
    {"thaw ID [NODE]", "let a frozen job run (there)"},
    {"hold ID...", "keep jobs of yours from running, or freeze them, until they are released"},
    {"release ID...", "the jobs are the market's again"},
    {"node lost NODE", "it will not come back: its jobs go on from their checkpoints"},
    {"node forget NODE", "it is no node of this market any more, and has no job; its books stay"},
    {"account [NAME]",
     "what a user (or all you may see), a node or the market has received, less what it paid"},
    {"receipts", "what each job ran where, from when to when, and what it paid, the newest first"},
    {"statement [ACCOUNT]",
     "each entry of an account with the balance after it, the newest first (default: yours)"},
    {"transfer USER AMOUNT", "give of what your account holds to another user"},
    {"deposit USER AMOUNT", "money for a user, from outside of the market (root)"},
    {"withdraw USER AMOUNT", "the other way"},
    {"payout NODE AMOUNT [USER]",
     "what a node has earned ('all' of it): to a user, to spend; without one out of the market "
     "(root)"},
    {"history",
     "jobs that have ended, the newest first: where they ran, waits, moves, memory, cost; -o "
     "chooses "
     "the columns"},
    {"report", "what was used and paid in all, by user, node or day (sums of up to 3 years)"},
    {"prices", "what a place for a job of one CPU cost, in all and at each speed"},
    {"limits", "how many jobs and nodes the market takes, and who has the most"},
    {"user show [USER]", "what users may have at most, and have now"},
    {"user limit USER", "set what this user may spend a day, and may have at once"},
    {"user unlimit USER", "all its limits are gone"},
    {"project show PROJECT", "its members, and what it may have at most, and has now"},
    {"project add PROJECT [USER]",
     "a project, or a user who may have jobs paid by it (srun --project); user limit gives it an "
     "allowance (root)"},
    {"project remove PROJECT USER", "the user is no member any more: its jobs there are frozen"},
    {"set OPTION VALUE [WHY]",
     "how the market decides: solver, pricing, horizon, min-stay, quantum, moves-max, ... (root; "
     "'default': as configured)"},
    {"ledger verify",
     "add up all receipts, and follow their chain of hashes; with --peer compare with the book of "
     "another site"},
    {"ledger export SITE", "the entries with another site, for its operator to compare (root)"},
    {"why JOB|NODE",
     "why a job waits or is where it is, what would help, why a node takes none ('why codes': all "
     "that can be said)"},
    {"why price JOB|NODE",
     "the bids and the reserve that set a job's price; what a node's places cost"},
    {"decisions export FILE",
     "the log of decisions and prices, for souk-audit to confirm (-: stdout)"},
    {"backup FILE", "copy the market's records into a new file while it runs"},
    {"web-token", "a token to log in with at souk-web, as you: good once, for two minutes"},
    {"restore FILE",
     "put such a copy in their place, while marketd does not run; keeps what was there"},
};

std::vector<std::string> known_verbs() {
    std::vector<std::string> all;
    for (const VerbHelp& verb : verbs_help) {
        const std::string_view words = verb.words;
        all.emplace_back(words.substr(0, words.find(' ')));
    }
    return all;
}

Result<CtlQuestion> parse_words(std::span<char*> words, const Given& given) {
    const UserOptions& user = given.user;
    const std::string_view name = words.empty() ? "" : words[0];
    TRY_ASSIGN(auto own, own_words(name, words.subspan(words.empty() ? 0 : 1), given));
    if (own) return std::move(*own);
    if (user.any()) return fail(std::string(name) + ": " + for_user_limit);
    const Verb* verb = std::find_if(std::begin(verbs), std::end(verbs), [&](const Verb& v) {
        return name == v.name || (v.alias && name == v.alias);
    });
    if (verb == std::end(verbs))
        return fail(name.empty() ? "a verb is missing"
                                 : "'" + std::string(name) + "' is not a verb" +
                                       did_you_mean(name, known_verbs()));
    CtlQuestion question{verb->name, {}, verb->text};
    if (question.verb == "list-jobs") TRY(show_jobs(given.columns, list_columns, question));
    if (!given.needs.empty()) question.args.push_back("needs=" + given.needs);
    const std::string_view takes = verb->takes;
    for (size_t i = 0; i < takes.size(); ++i) {
        const std::string_view word = i + 1 < words.size() ? words[i + 1] : "";
        if (takes[i] == 'f') {
            if (word.empty()) return fail(std::string(name) + ": a file is missing");
            TRY_ASSIGN(std::string file, absolute(word));
            question.args.push_back(std::move(file));
        } else if (takes[i] == 'u') {
            if (word.empty()) return fail(std::string(name) + ": a user is missing");
            question.args.emplace_back(word);
        } else if (takes[i] == 'v') {
            if (word != "verify") return fail("ledger: 'verify' is what can be done");
        } else if (takes[i] == 'l') {
            if (word == "forget")
                question.verb = "node-forget";
            else if (word == "lost")
                question.args.emplace_back(word);
            else
                return fail("node: 'lost' and 'forget' are what can be said of it");
        } else if (takes[i] == 'a' && !word.empty()) {
            question.args.emplace_back(word);
        } else if ((takes[i] == 'n' || takes[i] == 'a') && word.empty()) {
            question.args.emplace_back("-");
        } else if (takes[i] == 'J') {
            if (word.empty()) return fail(std::string(name) + ": a job's id is missing");
            TRY_ASSIGN(const JobId id, parse_job_id(word));
            question.args.push_back(id.text());
        } else {
            if (word.empty()) return fail(std::string(name) + ": a node's name is missing");
            const auto [site, node] = of_site(word);
            const bool any_there =
                verb->name == std::string_view("move") && !site.empty() && node.empty();  // "uni:"
            if (!valid_node_name(node) && !any_there)
                return fail("'" + std::string(word) + "' is not a node name");
            question.args.emplace_back(word);
        }
    }
    if (words.size() > takes.size() + 1)
        return fail(std::string(name) + ": unexpected argument '" + words[takes.size() + 1] + "'");
    TRY(take_options(given, verb->may_hold, question));
    TRY(take_array(given.several.array, question));
    return question;
}

// Long: a table.
std::vector<Option> options_of(Given& given) {
    auto& [order, money, user, decisions, several, report, last, step, pay, output, columns, needs,
           plan, sites] = given;
    return {
        {'X', "sites", "all|SITE",
         "with status, list-jobs, list-providers, reservations, plan, job and why: ask this market "
         "and all its peers, or these (with commas between them; docs/sites.md)",
         set_text(sites)},
        {0, "hold", nullptr,
         "with move, freeze, thaw: until 'release', the market does not undo it",
         set_flag(order.hold)},
        {0, "story", nullptr,
         "with job: the steps of its life with times, as its home node keeps them",
         set_flag(order.story)},
        {0, "load", nullptr,
         "with job: what it has used of the node on which it runs, as the kernel counts it there",
         set_flag(order.load)},
        {'f', "follow", nullptr, "with output: also what it writes from now on, until it ends",
         set_flag(output.follow)},
        {0, "lines", "N", "with output: only the last N lines", set_text(output.lines)},
        {0, "verbose", nullptr, "with job --story: also what CRIU itself said of a failure",
         set_flag(order.verbose)},
        {0, "wait", "SPAN",
         "with move, freeze, thaw: so long at most until it is done (default 60s)",
         set_text(order.wait)},
        {0, "no-wait", nullptr, "with move, freeze, thaw: only give the order",
         set_flag(order.no_wait)},
        {0, "name", "NAME", "with cancel: all your live jobs of this name", set_text(several.name)},
        {0, "array", "ID",
         "with cancel, list-jobs, history: all jobs of this array (the id of its first)",
         set_text(several.array)},
        {0, "open", nullptr, "with list-jobs, history: each job of an array, not one line for all",
         set_flag(columns.open)},
        {'o', "columns", "NAMES",
         "with list-jobs, history: these columns, with commas between them (a wrong one prints all "
         "that there are)",
         set_text(columns.names)},
        {0, "needs", "EXPRESSION",
         "with list-providers: only nodes that are this, as srun --needs has it", set_text(needs)},
        {0, "until", "TIME", "with plan: to then (18:00, 2026-12-24, 12h; default: a day)",
         set_text(plan.until)},
        {0, "if", "WHAT", "with plan: as if a node were gone: 'NODE off', 'NODE off at 18:00'",
         set_text(plan.what_if)},
        {0, "svg", nullptr, "with plan: a picture, on stdout", set_flag(plan.svg)},
        {0, "all", nullptr, "with cancel: all your live jobs (root: everybody's)",
         set_flag(several.all)},
        {0, "by", "WHAT", "with report: user (the default), node or day (UTC)",
         set_text(report.by)},
        {0, "csv", nullptr, "with report, history, statement: comma-separated values",
         set_flag(report.csv)},
        {0, "note", "TEXT", "with deposit, withdraw, transfer, payout: what for, one line",
         set_text(pay.note)},
        {0, "of", "USER", "with transfer: whose money (root; default: yours)", set_text(pay.of)},
        {0, "job", "ID", "with receipts: of this job", set_text(money.job)},
        {0, "user", "USER",
         "with receipts, history, list-jobs, cancel, decisions export: of this user, by name or "
         "number",
         set_text(money.user)},
        {0, "provider", "NODE", "with receipts, history: of what ran on this node",
         set_text(money.provider)},
        {0, "since", "TIME",
         "with receipts, history, report, statement: from 2026-11-20, 2026-11-20T08:00 or so long "
         "ago (90m, "
         "12h, 7d) on",
         set_text(money.since)},
        {0, "limit", "N",
         "with receipts, statement, history (default 100), list-jobs: only the newest N; of jobs "
         "the live "
         "ones "
         "first, then those that are finished",
         set_text(money.limit)},
        {0, "state", "STATE",
         "with list-jobs: live (the default), wait, run, frozen, finish (the newest first) or all",
         set_text(money.state)},
        {0, "spend-per-day", "AMOUNT",
         "with user limit: a day (UTC), by all jobs of this user; none: as much as they cost",
         set_text(user.spend)},
        {0, "jobs", "N", "with user limit: that run at once; none: any number",
         set_text(user.jobs)},
        {0, "cpus", "N", "with user limit: that its jobs use at once; none: any number",
         set_text(user.cpus)},
        {0, "reserve", "N",
         "with user limit: CPUs that are sold to it ahead at once, 0: it may not reserve; none: "
         "any "
         "number",
         set_text(user.reserve)},
        {0, "hours", "FRAMES",
         "with user limit: its jobs run in these alone, by the market's clock ('mon-fri "
         "20:00-8:00; sat,sun 0:00-24:00'); none: always",
         set_text(user.hours)},
        {0, "credit", "AMOUNT",
         "with user limit: how far its account may fall below 0, in a metered market",
         set_text(user.credit)},
        {0, "allowance", "AMOUNT", "with user limit: what its account is given; none: nothing",
         set_text(user.allowance)},
        {0, "every", "WHAT", "with --allowance: day, week or month (the default), in UTC",
         set_text(user.every)},
        {0, "expires", nullptr,
         "with --allowance: what is left of it goes back before the next one",
         set_flag(user.expires)},
        {0, "from", "TIME",
         "with decisions export: from the decisions of then on, as --since takes it (default: all)",
         set_text(decisions.from)},
        {0, "to", "TIME", "with decisions export: up to those of then", set_text(decisions.to)},
        {0, "at", "TIME", "with why price: what was so then (default: now)",
         set_text(decisions.at)},
        {0, "last", "SPAN", "with prices: so far back (default 24h; 30d are kept)", set_text(last)},
        {0, "step", "SPAN",
         "with prices: one row for so long (a minute at least; default: what fits a screen)",
         set_text(step)},
        {0, "db", "FILE", "with ledger verify: this state.db, of a market that is not running",
         set_text(money.db)},
        {0, "seen", "N:HASH",
         "with ledger verify --db: it must hold this receipt, which an agent has seen (pvdctl "
         "status)",
         set_text(money.seen)},
        {0, "peer", "SITE",
         "with ledger verify: name each difference from the book of that site (root)",
         set_text(money.peer)},
        {0, "file", "FILE",
         "with ledger verify --peer: its book as marketctl ledger export has shown it there "
         "(default: its market is asked)",
         set_text(money.file)},
        {0, "dir", "DIR",
         "with restore: marketd's state directory (default: /var/lib/souk/marketd)",
         set_text(money.dir)}};
}

int run(int argc, char** argv) {
    Given given;
    CtlTool tool{
        {"marketctl", "[options] VERB [ARGS]", "Shows the market, and gives it orders by hand.",
         options_of(given), "", true, verbs_help},
        "ask through this node's agentd (default: the market on this machine)",
        "ask through this daemon's socket",
        "print the market's JSON",
        [&](std::span<char*> words) -> Result<CtlQuestion> {
            TRY_ASSIGN(CtlQuestion question, parse_words(words, given));
            const bool of_one =
                (question.verb == "job" || question.verb == "why") && !question.then;
            const std::string_view word = of_one && !question.args.empty() ? question.args[0] : "";
            const std::string site(of_site(word).site);
            if (!given.sites.empty()) {
                TRY(ask_everywhere(given.sites, question));
            } else if (!site.empty()) {
                show_of_site(site, question);
            }
            return question;
        },
        wire::find_market};
    return run_ctl(std::move(tool), argc, argv);
}

}  // namespace
}  // namespace souk::tools

int main(int argc, char** argv) { return souk::tools::run(argc, argv); }
