// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/config.hpp"

#include <unistd.h>

#include <algorithm>
#include <cctype>

#include "kernel/sys/host/settings.hpp"

namespace souk {
namespace {

Status check(MarketConfig& c) {
    if (c.name.empty()) {
        char host[256] = {};
        ::gethostname(host, sizeof host - 1);
        c.name = host;
    }
    if (c.identity.empty()) c.identity = c.state + "/identity";
    TRY(market::Solver().set_options(c.market.solver));
    c.market.submit_filter = !c.submit_filter.empty();
    const std::pair<const char*, const std::string&> programs[] = {
        {"submit_filter", c.submit_filter}, {"arrival_filter", c.arrival_filter},
        {"user_map", c.user_map},           {"site_metric", c.site_metric},
        {"site_reroute", c.site_reroute},
    };
    for (const auto& [key, path] : programs)
        if (!path.empty() && !path.starts_with('/'))
            return fail(std::string(key) + " needs the absolute path of an executable");
    return {};
}

std::string all_of(const auto& names) {
    std::string all;
    for (const std::string_view name : names) all += (all.empty() ? "" : ", ") + std::string(name);
    return all;
}

using namespace settings;

// The name of an algorithm, or what else it may be called.
Key algorithm(std::string& into) {
    return {[&into](const toml::node& n) -> Status {
                const auto text = n.value_exact<std::string>().value_or("");
                const auto name = market::Solver::algorithm_named(text);
                if (!name) return fail("needs one of: " + all_of(market::Solver::algorithms()));
                into = *name;
                return {};
            },
            [&into] { return quoted(into); }, "one of: " + all_of(market::Solver::algorithms())};
}

Key site(std::string& into) {
    return {[&into](const toml::node& n) -> Status {
                into = n.value_exact<std::string>().value_or("");
                if (valid_site_name(into) && into != "all") return {};
                return fail(
                    "needs the name of a site: letters, digits, '.', '_' or '-', 64 at most, and "
                    "not 'all'");
            },
            [&into] { return quoted(into); }, "a name"};
}

const char* unit_of(const market::SolverOption& option) {
    if (option.kind != market::SolverOption::Kind::time) return "";
    return option.unit == Nanos::from_ms(1) ? "milliseconds" : "seconds";
}

// The default, if that says something.
int64_t example_of(const market::SolverOption& option, int64_t value) {
    if (value > option.least) return value;
    using Kind = market::SolverOption::Kind;
    const int64_t some = option.kind == Kind::time    ? Nanos::from_s(10).ns
                         : option.kind == Kind::money ? 500'000
                                                      : 10;
    return std::clamp(some, option.least, option.most);
}

// A number in the unit that the key names, or a text as the tools take it.
Setting of_solver(const market::SolverOption& option, market::SolverOptions& into) {
    auto set = [&option, &into](const toml::node& n) -> Status {
        const auto number = n.value_exact<int64_t>();
        const std::string text =
            number ? std::to_string(*number) : n.value_exact<std::string>().value_or("");
        TRY_ASSIGN(const int64_t value, option.parse(text, option.unit));
        option.set(into, value);
        return {};
    };
    auto show = [&option, &into] {
        const int64_t value = option.get(into);
        if (option.kind == market::SolverOption::Kind::time && value % option.unit.ns == 0)
            return std::to_string(value / option.unit.ns);
        if (option.kind == market::SolverOption::Kind::number) return std::to_string(value);
        return quoted(option.text(value));
    };
    std::string about(option.help);
    about[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(about[0])));
    return {std::string(option.key),
            {std::move(set), std::move(show), option.range(), unit_of(option)},
            about + ".",
            quoted(option.text(example_of(option, option.get(into))))};
}

// The settings are written into this.
struct Reading {
    MarketConfig config;
    ResourceTable resources, resource_reserves;

    settings::Settings settings();
    void add_place(settings::Settings& all);
    void add_decisions(settings::Settings& all);
    void add_programs(settings::Settings& all);
    void add_limits(settings::Settings& all);
};

void Reading::add_place(Settings& all) {
    MarketConfig& c = config;
    const Settings some = {
        {"name", text(c.name), "The market's name, which it tells its nodes.", "\"lab\"",
         "this host's name"},
        {"site", site(c.site),
         "The name of this site among its peers (docs/sites.md), which stands before the ids of "
         "its "
         "jobs there: lab:n1.7.",
         "\"lab\"", "the realm of its certificates (souk setup market --name)"},
        {"site_news", boolean(c.site_news),
         "Whether this market tells its peers, and through them others, of its machines, prices "
         "and queue, and hears of theirs (docs/sites.md).",
         "false"},
        {"listen", address(c.listen), "Where nodes connect.", "\"192.0.2.1:7070\""},
        {"metrics", address(c.metrics),
         "Where Prometheus gets this market's figures (http, /metrics); nothing asks who it is, so "
         "give an address that only its machine reaches.",
         "\"127.0.0.1:7079\"", "nowhere"},
        {"status_file", text(c.status_file),
         "A file that says how this market is, for scripts, as lines NAME=VALUE "
         "(docs/metrics.md); it is replaced whole. Give a path below /run/souk, where the unit "
         "may write.",
         "\"/run/souk/marketd.status\"", "none"},
        {"status_file_s", seconds(c.status_every, 1, 3'600), "How often that file is written.",
         "\"10s\""},
        {"socket", socket_path(c.socket), "Where marketctl on this machine connects.",
         "\"/run/souk/marketd.sock\""},
        {"state", text(c.state), "The directory of its records.", "\"/var/lib/souk/marketd\""},
        {"identity", text(c.identity),
         "The directory of the market's key, its certificate and the authority that certifies "
         "nodes (docs/certificates.md).",
         "\"/etc/souk/identity\"", "the directory `identity` in `state`"},
        {"insecure", boolean(c.insecure),
         "Take nodes without certificates: whoever reaches the port operates the market. For a "
         "network that nobody else reaches.",
         "true"},
        {"insecure_until", moment(c.insecure_until),
         "Take nodes with and without certificates until then, while a market gets them "
         "(docs/certificates.md); whoever reaches the port may act as any node, as before.",
         "2026-11-30T12:00:00Z", "never"},
        {"nodes_operate", boolean(c.nodes_operate),
         "Root on any node may operate the market, as root on the market's own machine may. "
         "Without "
         "it a metered market takes no jobs of root's from nodes: root's account is the "
         "operator's.",
         "true"},
        {"web_user", text(c.web_user),
         "The account that a souk-web of this machine runs as which may act for every user who "
         "logs in there (docs/web.md). Without it a souk-web acts for the user alone whom it runs "
         "as.",
         "\"_souk-web\"", "none"},
    };
    all.insert(all.end(), some.begin(), some.end());
}

void Reading::add_decisions(Settings& all) {
    MarketConfig& c = config;
    const Settings some = {
        {"solver", algorithm(c.market.solver.algorithm),
         "The algorithm that decides which job runs where (docs/market.md).", "\"welfare\""},
        {"pricing", one_of(c.market.solver.pricing, market::Solver::pricings()),
         "The rule by which a place is charged.", "\"first\""},
        {"settle_ms", milliseconds(c.market.settle, 0, 3'600'000),
         "After its start the market waits so long for its nodes before it decides.", "\"5s\""},
        {"grace_s", seconds(c.market.grace, 0, 86'400),
         "So long a node that is not heard from keeps its place in the market.", "\"5m\""},
        {"backoff_min_ms", milliseconds(c.market.backoff_min, 10, 86'400'000),
         "After an order failed the market waits so long before the next for that job; twice as "
         "long after each further failure.",
         "500"},
        {"backoff_max_s", seconds(c.market.backoff_max, 1, 86'400), "And at most so long.",
         "\"5m\""},
        {"solver_program", words(c.solver_program),
         "A program that decides instead, by the solver's text protocol: solver(1).",
         "[\"/usr/local/bin/mine\", \"--fast\"]"},
        {"solver_places", boolean(c.solver_places),
         "That program knows the commands rj and fj: it is told where jobs are.", "true"},
        {"solver_patience_ms", milliseconds(c.solver_patience, 1, 60'000),
         "An answer of that program that comes later counts as none.", "\"2s\""},
    };
    all.insert(all.end(), some.begin(), some.end());
    for (const market::SolverOption& option : market::solver_option_table())
        all.push_back(of_solver(option, c.market.solver));
}

// Asked programs: docs/filters.md says what each is told and may answer.
void Reading::add_programs(Settings& all) {
    MarketConfig& c = config;
    const Settings some = {
        {"submit_filter", text(c.submit_filter),
         "An executable that is asked about each new job of this site before it may run "
         "(docs/filters.md). Without an answer the job waits, and it is asked again.",
         "\"/etc/souk/filters/submit\"", "none: all may run"},
        {"arrival_filter", text(c.arrival_filter),
         "One that is asked about each job of a peer before it may come. Without an answer it "
         "does not come.",
         "\"/etc/souk/filters/arrival\"", "none: the peer's terms alone decide"},
        {"user_map", text(c.user_map),
         "One that says which account a user of a peer has on the nodes of this site; a line of "
         "an owner's own user_map goes before. Without an answer the job does not come.",
         "\"/etc/souk/filters/users\"", "none: the owners' files alone decide"},
        {"site_metric", text(c.site_metric),
         "One that gives each offer of other sites a number, of which the least is the best. "
         "Without an answer the market chooses by itself.",
         "\"/etc/souk/filters/metric\"", "none"},
        {"site_reroute", text(c.site_reroute),
         "One that says whether a job that runs moves to another site or home. Without an answer "
         "the market decides by itself.",
         "\"/etc/souk/filters/reroute\"", "none"},
        {"programs_limit_ms", milliseconds(c.programs_limit, 10, 60'000),
         "An answer of one of these programs that comes later counts as none, and the program is "
         "killed.",
         "\"2s\""},
        {"programs_user", text(c.programs_user),
         "The account as which they run where marketd is root; else they run as marketd.",
         "\"_souk-filters\""},
    };
    all.insert(all.end(), some.begin(), some.end());
}

void Reading::add_limits(Settings& all) {
    MarketConfig& c = config;
    const Settings some = {
        {"metered", boolean(c.market.metered),
         "Users spend what their accounts hold, by deposits and allowances (docs/ledger.md): a "
         "user "
         "whose account is empty has its jobs frozen. false: the market is unmetered; accounts are "
         "kept, and nothing ends at them.",
         "true"},
        {"refund_permille", number(c.market.refund_permille, 0, 1'000),
         "What an owner gets of a job's user when the job has made a promise to him be missed "
         "(pvdctl history), beside the price: so many thousandths of what it has paid there, once. "
         "0: nothing.",
         "100"},
        {"resources", table(resources),
         "Named resources of the whole market, such as licences: so many of each may be used at "
         "once, wherever the jobs run that ask for them (srun --resource). What a node offers by "
         "the same name is given to nobody, and its owner is told.",
         "{ matlab = 5 }", "none"},
        {"resource_reserves", table(resource_reserves),
         "The least that a job pays for each one of them per hour, beside what its node asks; it "
         "is part of the price of its CPUs.",
         "{ matlab = \"2.50\" }", "0 for each"},
        {"jobs_max", number(c.market.jobs_max, 1, 100'000'000),
         "How many unfinished jobs there may be.", "100000"},
        {"jobs_home_max", number(c.market.jobs_home_max, 0, 100'000'000),
         "Of these, how many of one home; 0: nine tenths of jobs_max. The last tenth of jobs_max "
         "is "
         "for homes and users that have fewer than a thousandth of it. A job that is not taken "
         "stays "
         "at its home, which is asked for it again.",
         "20000"},
        {"jobs_user_max", number(c.market.jobs_user_max, 0, 100'000'000),
         "And how many of one user; 0: nine tenths of jobs_max.", "10000"},
        {"nodes_max", number(c.market.nodes_max, 1, 1'000'000),
         "How many nodes there may be; each needs a file descriptor.", "5000"},
        {"finished_max", number(c.finished_max, 0, 1'000'000'000),
         "How many finished jobs are kept to be shown: the newest, of each home and user by his "
         "share.",
         "10000"},
        {"finished_days", days(c.finished_age, 0, 36'500),
         "And for how long; 0: whatever their age.", "30"},
        {"decisions_mb", megabytes(c.decisions_mb, 0, 1'000'000),
         "How much of the disk the log of decisions may take; 0: there is none.", "\"1G\""},
        {"decisions_days", days(c.decisions_age, 0, 36'500),
         "And for how long it is kept; 0: whatever its age.", "365"},
        {"hello_patience_ms", milliseconds(c.hello_patience, 10, 60'000),
         "A connection that says nothing for so long at first is closed.", "\"10s\""},
        {"strangers_max", number(c.strangers.all, 16, 1'000'000),
         "How many connections there may be whose peer has not proven who he is, such as a joiner; "
         "one more, and the oldest of the address with the most goes. Each needs a file "
         "descriptor.",
         "1024"},
        {"strangers_host_max", number(c.strangers.host, 4, 1'000'000),
         "And of one address; also how many may come of it in a second, over a few seconds.", "64"},
        {"agent_queue_mb", megabytes(c.agent_queue_mb, 2, 4'096),
         "How much may wait to be sent to one node; a node that takes less starts afresh.",
         "\"128M\""},
        {"keepalive_s", seconds(c.keepalive, 1, 3'600),
         "A silent node is asked after so long, and given up after three times.", "5"},
    };
    all.insert(all.end(), some.begin(), some.end());
}

Settings Reading::settings() {
    Settings all;
    add_place(all);
    add_decisions(all);
    add_programs(all);
    add_limits(all);
    return all;
}

}  // namespace

Result<MarketConfig> load_market_config(const std::string& path, ConfigText* effective) {
    Reading reading;
    const Settings settings = reading.settings();
    Sources sources;
    if (!path.empty()) TRY(settings::load(path, settings, sources));
    auto offers = resource_offers(reading.resources, reading.resource_reserves);
    if (!offers) return wrap(path + ": resources", offers.error());
    reading.config.market.resources = std::move(*offers);
    auto good = check(reading.config);
    if (!good && path.empty()) return tl::unexpected(good.error());
    if (!good) return wrap(path, good.error());
    if (effective) *effective = settings::effective(settings, sources, path);
    return reading.config;
}

std::string market_config_reference() {
    Reading reading;
    return reference_json(reading.settings());
}

}  // namespace souk
