// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/booking_options.hpp"

#include "tools/common/ahead.hpp"
#include "tools/srun/limit_options.hpp"

namespace souk::tools {

std::vector<Option> booking_options(SrunOptions& o) {
    using wire::Change;
    return {
        {0, "start", "TIME",
         "with --for: reserve its place from then on: 9:30 (the next), 2026-12-24T18:00, or so "
         "long\n"
         "                              from now (90m)",
         [&o](const char* t) -> Status {
             o.given |= Change::booking;
             TRY_ASSIGN(o.terms.booking.edit().start, parse_ahead(t));
             return {};
         }},
        {0, "for", "TIME",
         "reserve its place for so long (2h; a number alone: minutes), at a price that is fixed "
         "when\n"
         "                              it is sold; without --start: from as soon as there is one",
         [&o](const char* t) -> Status {
             o.given |= Change::booking;
             TRY_ASSIGN(o.terms.booking.edit().span, parse_limit(t));
             return {};
         }},
        {0, "early", nullptr,
         "with --start: begin before that, at the market's price, if its bid has a place",
         [&o](const char*) -> Status {
             o.given |= Change::booking;
             o.terms.booking.edit().early = true;
             return {};
         }},
        {0, "promise", "[=no]",
         "have the market promise --finish, at a price that it says before; if it cannot, submit\n"
         "                              nothing and say what it could. Needs --time, --runtime or "
         "earlier runs of the program",
         [&o](const char* t) -> Status {
             const std::string_view word = t ? t : "yes";
             if (word != "yes" && word != "no")
                 return fail("'" + std::string(word) + "' is neither yes nor no");
             o.given |= Change::booking;
             o.terms.booking.edit().promise = word == "yes";
             return {};
         }},
        {0, "allocate", nullptr,
         "run no program, and hold the place for those that --in ID brings; with --for it ends "
         "then",
         [&o](const char*) -> Status {
             o.form_given = true;
             o.terms.booking.edit().holds = true;
             return {};
         }},
        {0, "in", "ID",
         "run in the place that this job of yours holds (--allocate), which pays for it",
         [&o](const char* t) -> Status {
             o.form_given = true;
             TRY_ASSIGN(const JobId id, parse_job_id(t));
             o.terms.booking.edit().within = id.text();
             return {};
         }},
    };
}

namespace {

std::string wrong_with_promise(const SrunOptions& o, bool changes) {
    const Booking& b = *o.terms.booking;
    if (b.start.ns > 0 || b.span.ns > 0 || b.early || b.holds || !b.within.empty())
        return "--promise books by itself: not with --start, --for, --early, --allocate or --in";
    if (changes) return {};
    if (o.terms.finish.ns == 0) return "--promise needs --finish: the deadline";
    if (o.near || o.pack)
        return "--near and --pack are not possible with --promise: how near machines will be to "
               "each other is not reckoned ahead";
    if (o.jobs > 1) return "--promise is asked for one job at a time: not with --jobs";
    if (o.begin.ns > 0 || !o.after.empty() || o.singleton)
        return "--promise is given at once: not with --begin, --after or --singleton";
    return {};
}

}  // namespace

std::string wrong_with_booking(SrunOptions& o, bool changes, bool quotes) {
    const Booking& b = *o.terms.booking;
    if (b == Booking{}) return {};
    if (b.promise) return wrong_with_promise(o, changes);
    if (quotes) return "--start, --for, --early, --allocate and --in are not for --quote";
    if (b.span.ns == 0 && b.start.ns > 0) return "--start needs --for: how long the place is kept";
    if (b.early && b.start.ns == 0) return "--early needs --start: before what it may begin";
    if (changes) return {};
    if (!b.within.empty() && (b.asks() || b.holds))
        return "--in runs in a place that is there: not with --start, --for or --allocate";
    if (b.asks() && (o.near || o.pack))
        return "--near and --pack are not possible with --for: how near machines will be to each "
               "other is not reckoned ahead";
    if (b.early && b.holds) return "--early is not possible with --allocate";
    if (b.asks() && (o.begin.ns > 0 || !o.after.empty() || o.singleton))
        return "--start says when it begins: not with --begin, --after or --singleton";
    if (b.asks() && (!o.terms.strategy.empty() || o.terms.pace))
        return "the price of a place that is sold ahead is fixed: no --strategy or --pace with "
               "--for";
    if (!b.holds) return {};
    if (!o.program.empty()) return "--allocate runs no program; --in ID runs one in its place";
    if (o.exec || !o.plan.empty()) return "--allocate is not possible with --components FILE";
    // The capsule needs a first process; this one does nothing, and ends when it is told to.
    static char sleep[] = "/bin/sleep", span[] = "infinity";
    static char* words[] = {sleep, span};
    o.program = words;
    if (o.name.empty()) o.name = "place";
    return {};
}

}  // namespace souk::tools
