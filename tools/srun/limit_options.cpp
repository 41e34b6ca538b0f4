// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/limit_options.hpp"

#include <fcntl.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "kernel/base/number.hpp"
#include "kernel/base/units.hpp"
#include "kernel/sys/host/fd.hpp"
#include "market/core/needs.hpp"
#include "market/core/site_offer.hpp"
#include "market/core/types.hpp"

namespace souk::tools {
namespace {

constexpr Nanos limit_max = Nanos::from_s(900'000'000);

// TIME, or TIME@SPEED: as long as a machine of that speed would take.
Status set_time_limit(SrunOptions& o, std::string_view text) {
    RunLimits& limits = o.terms.limits.edit();
    const size_t at = text.find('@');
    limits.run = {};
    limits.at_speed = 0;
    if (text == "none") return {};
    TRY_ASSIGN(limits.run, parse_limit(text.substr(0, at)));
    if (at == text.npos) return {};
    TRY_ASSIGN(limits.at_speed,
               parse_whole(std::string(text.substr(at + 1)).c_str(), 1, market::speed_max));
    return {};
}

// A signal by name (USR1, SIGUSR1) or number.
Result<int32_t> signal_of(std::string_view word) {
    const std::string_view name = word.starts_with("SIG") ? word.substr(3) : word;
    for (int number = 1; number < NSIG; ++number)
        if (const char* known = sigabbrev_np(number); known && name == known) return number;
    if (const auto number = whole_number<int32_t>(word); number && *number > 0 && *number <= 64)
        return *number;
    return fail("'" + std::string(word) + "' is no signal, such as USR1");
}

// SIGNAL[@TIME]
Status set_warning(SrunOptions& o, std::string_view text) {
    RunLimits& limits = o.terms.limits.edit();
    const size_t at = text.find('@');
    TRY_ASSIGN(limits.signal, signal_of(text.substr(0, at)));
    limits.before = Nanos::from_s(60);
    if (at == text.npos) return {};
    TRY_ASSIGN(limits.before, parse_span(std::string(text.substr(at + 1)), Nanos::from_s(1),
                                         Nanos::from_s(1), limit_max));
    return {};
}

// Exit statuses, `signal` and `node`, with commas between.
Status set_retry_on(SrunOptions& o, std::string_view list) {
    o.form_given = true;
    o.tries = {.most = o.tries.most};
    for (;;) {
        const std::string_view word = list.substr(0, list.find(','));
        const auto status = whole_number<uint32_t>(word);
        if (word == "signal")
            o.tries.signal = true;
        else if (word == "node")
            o.tries.node = true;
        else if (status && *status >= 1 && *status <= 255)
            o.tries.statuses.push_back(*status);
        else
            return fail("'" + std::string(word) +
                        "' is none of an exit status (1 to 255), signal and node");
        if (o.tries.statuses.size() > JobTries::statuses_max)
            return fail("it names more than " + std::to_string(JobTries::statuses_max) +
                        " exit statuses");
        if (word.size() == list.size()) return {};
        list.remove_prefix(word.size() + 1);
    }
}

// Each that is said has to hold; `none` takes them away.
Status add_needs(SrunOptions& o, const std::string& expression) {
    if (expression == "none") {
        o.needs.clear();
        o.terms.needs.clear();
        return {};
    }
    TRY(market::Needs::parse(expression));
    // The options of the command line come twice where a script has some of its own.
    if (std::ranges::find(o.needs, expression) == o.needs.end()) o.needs.push_back(expression);
    std::string all = o.needs[0];
    if (o.needs.size() > 1) {
        all.clear();
        for (const std::string& one : o.needs) all += (all.empty() ? "(" : " and (") + one + ")";
    }
    TRY(market::Needs::parse(all));
    o.terms.needs = std::move(all);
    return {};
}

// Each that is said counts, the last of a name; `none` takes them away.
Status add_resources(SrunOptions& o, const std::string& list) {
    if (list == "none") {
        o.terms.resources.clear();
        return {};
    }
    TRY_ASSIGN(const std::vector<ResourceNeed> more, parse_resources(list));
    if (more.empty()) return fail("NAME or NAME=COUNT is missing");
    TRY_ASSIGN(std::vector<ResourceNeed> all, parse_resources(*o.terms.resources));
    for (const ResourceNeed& need : more) {
        std::erase_if(all, [&](const ResourceNeed& one) { return one.name == need.name; });
        all.push_back(need);
    }
    TRY_ASSIGN(all, parse_resources(resources_text(all)));
    o.terms.resources = resources_text(all);
    return {};
}

Status add_nodes(SrunOptions& o, std::string_view names, bool on_them) {
    std::string list;
    for (bool more = true; more;) {
        const std::string_view name = names.substr(0, names.find(','));
        if (whole_number<uint32_t>(name))
            return fail("'" + std::string(name) +
                        "' is no name of a node; a job of N components is -N N");
        if (!valid_node_name(name)) return fail("'" + std::string(name) + "' is not a node name");
        list += (list.empty() ? "" : ", ") + std::string(name);
        more = name.size() < names.size();
        if (more) names.remove_prefix(name.size() + 1);
    }
    return add_needs(o, std::string(on_them ? "" : "not ") + "node in [" + list + "]");
}

}  // namespace

Result<Nanos> parse_limit(std::string_view text) {
    if (text.find(':') == text.npos)
        return parse_span(text, Nanos::from_s(60), Nanos::from_s(1), limit_max);
    const auto bad = [&] { return fail("'" + std::string(text) + "' is no time such as 2:30:00"); };
    const size_t dash = text.find('-');
    std::vector<int64_t> parts;
    std::string_view rest = dash == text.npos ? text : text.substr(dash + 1);
    for (bool more = true; more && parts.size() < 4;) {
        const std::string_view part = rest.substr(0, rest.find(':'));
        const auto n = whole_number<uint32_t>(part);
        if (!n) return bad();
        parts.push_back(*n);
        more = part.size() < rest.size();
        if (more) rest.remove_prefix(part.size() + 1);
    }
    if (parts.size() < 2 || parts.size() > 3) return bad();
    int64_t seconds = 0;
    for (const int64_t part : parts) seconds = seconds * 60 + part;
    if (dash != text.npos) {
        const auto days = whole_number<uint32_t>(text.substr(0, dash));
        if (!days) return bad();
        if (parts.size() == 2) seconds *= 60;  // hours and minutes
        seconds += int64_t{*days} * 86'400;
    }
    if (seconds < 1 || seconds > limit_max.ns / 1'000'000'000) return bad();
    return Nanos::from_s(seconds);
}

Result<Money> default_price() {
    const char* const said = std::getenv("SOUK_PRICE");
    const char* const home = std::getenv("HOME");
    const std::string file = (home ? home : "") + std::string("/.config/souk/price");
    std::string text = said ? said : "";
    if (text.empty() && home)
        if (const auto kept = read_file(AT_FDCWD, file)) text = kept->substr(0, kept->find('\n'));
    if (text.empty())
        return fail(
            "--max-price is missing: say what you pay per CPU-hour at most (or $SOUK_PRICE)");
    auto price = parse_money(text);
    if (price && price->micro == 0) price = fail("it must be more than 0");
    if (!price) return wrap(said && *said ? "$SOUK_PRICE" : file, price.error());
    return price;
}

std::vector<Option> limit_options(SrunOptions& o) {
    using wire::Change;
    const auto term = [&o](Change::Field field, auto parse) {
        return [&o, field, parse](const char* text) -> Status {
            o.given |= field;
            return parse(text);
        };
    };
    return {
        {'t', "time", "TIME[@SPEED]",
         "how long it may run at most (a number alone: minutes; none); only time in which it runs "
         "counts.\n"
         "                              With @SPEED: as long as a machine of that speed would take",
         term(Change::time_limit, [&o](const char* t) { return set_time_limit(o, t); })},
        {0, "cpu-time", "TIME",
         "how much CPU time its processes may use in all (a number alone: minutes)",
         term(Change::cpu_limit,
              [&o](const char* t) -> Status {
                  Nanos& cpu = o.terms.limits.edit().cpu = {};
                  if (std::string_view(t) == "none") return {};
                  TRY_ASSIGN(cpu, parse_limit(t));
                  return {};
              })},
        {0, "signal", "SIGNAL[@TIME]",
         "with --time: send it this signal so long before its time is over (default 60s; a number\n"
         "                              alone: seconds)",
         term(Change::warning, [&o](const char* t) { return set_warning(o, t); })},
        {0, "retries", "N",
         "if it fails, run it again from its beginning, N times at most, after a pause that grows",
         [&o](const char* t) -> Status {
             o.form_given = true;
             TRY_ASSIGN(const int64_t most, parse_whole(t, 0, JobTries::most_max));
             o.tries.most = static_cast<uint32_t>(most);
             return {};
         }},
        {0, "retry-on", "LIST",
         "with --retries: which failures count: exit statuses, signal (one has ended it), node "
         "(it was\n"
         "                              lost), such as 1,75,node (default: all)",
         [&o](const char* t) { return set_retry_on(o, t); }},
    };
}

std::vector<Option> needs_options(SrunOptions& o) {
    const auto term = [&o](auto parse) {
        return [&o, parse](const char* text) -> Status {
            o.given |= wire::Change::needs;
            return parse(text);
        };
    };
    return {
        {0, "needs", "EXPRESSION",
         "what its node must be (none: anything), such as 'cpu.avx2 and memory.total >= 64G and "
         "gpu.model = "
         "\"A100\"'",
         term([&o](const char* t) { return add_needs(o, t); })},
        {0, "resource", "NAME[=N],...",
         "named resources that it needs, of its node (gpu=1) or of the market (a licence), as\n"
         "                              marketctl list-providers shows them (none: none)",
         [&o](const char* text) -> Status {
             o.given |= wire::Change::resources;
             return add_resources(o, text);
         }},
        {0, "sites", "SITE,...",
         "other sites to which it may go: any, or their names (default: own, none)",
         [&o](const char* text) -> Status {
             o.given |= wire::Change::sites;
             o.terms.sites.edit().names = std::string_view(text) == "own" ? "" : text;
             return check_site_wish(o.terms.sites->names);
         }},
        {0, "prefer", "finish|cost|stay",
         "with --sites: the place that ends first (default), or costs least; stay: the first,\n"
         "                              and once it runs it moves to no other site for a gain",
         [&o](const char* text) -> Status {
             const std::string_view word = text;
             if (word != "finish" && word != "cost" && word != "stay")
                 return fail("it is finish, cost or stay");
             o.terms.sites.edit().cheapest = word == "cost";
             o.terms.sites.edit().stays = word == "stay";
             o.given |= wire::Change::sites_prefer;
             return {};
         }},
        {0, "within", "PRICE",
         "with --sites: per CPU-hour it pays at other sites at most that (default: as --max-price)",
         [&o](const char* text) -> Status {
             TRY_ASSIGN(o.terms.sites.edit().within, parse_money(text));
             if (o.terms.sites->within <= Money{}) return fail("it must be more than 0");
             o.given |= wire::Change::sites_within;
             return {};
         }},
        {0, "nodes", "NODE,...", "only on these nodes",
         term([&o](const char* t) { return add_nodes(o, t, true); })},
        {0, "exclude", "NODE,...", "not on these nodes",
         term([&o](const char* t) { return add_nodes(o, t, false); })},
    };
}

}  // namespace souk::tools
