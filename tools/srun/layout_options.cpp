// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/srun/layout_options.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "kernel/base/number.hpp"
#include "kernel/base/units.hpp"
#include "market/core/types.hpp"
#include "tools/common/ahead.hpp"
#include "tools/common/args.hpp"
#include "tools/srun/limit_options.hpp"

namespace souk::tools {

TakeOption sized(SrunOptions& o, SizeOption option, TakeOption parse) {
    return [&o, option, parse = std::move(parse)](const char* text) -> Status {
        TRY(parse(text));
        o.sizes_said |= option;
        return {};
    };
}

std::string size_conflict(const SrunOptions& o) {
    const auto said = [&](uint32_t options) { return (o.sizes_said & options) == options; };
    if (said(size_total | size_flexible))
        return "--total and --flexible exclude each other: --total N is all CPUs on one machine, "
               "--flexible N[:MIN] is the same sum on any";
    if (said(size_ordered | size_total) || said(size_ordered | size_flexible))
        return "--ordered says the size and the node of each component (NODE:CPUS,...): leave "
               "--total and --flexible out";
    if (said(size_flexible | size_components))
        return "--flexible makes as many components as it needs: leave -N out, or write -N "
               "COMPONENTS -c CPUS";
    if (said(size_flexible | size_cpus))
        return "--flexible says the size of its components: write --flexible N:MIN in place of -c";
    if (said(size_total | size_cpus)) return "--total N is one component of N CPUs: leave -c out";
    if (said(size_total | size_components) && o.components_said != 1)
        return "--total N is one component of N CPUs: leave -N out, or write -N COMPONENTS -c CPUS";
    if (!said(size_ordered | size_components) || o.components_said == o.components) return "";
    if (o.components_said == 0)
        return "--ordered and a file of -N exclude each other: say node = NAME in the file";
    return "-N says " + std::to_string(o.components_said) + " components and --ordered " +
           std::to_string(o.components) +
           ": leave -N out, or name a node for each "
           "(NODE:CPUS,...)";
}

Status set_total(SrunOptions& o, const char* text) {
    TRY_ASSIGN(o.terms.cpus, parse_whole(text, 1, 65'536));
    o.plan.clear();
    o.components = 1;
    return {};
}

Status set_limit(const std::string& text, Nanos& limit) {
    TRY_ASSIGN(limit, parse_limit(text));
    return {};
}

// Takes what the file says of the whole job, where the command line has not said it before.
Status take_words_of_job(SrunOptions& o, const std::map<std::string, std::string>& words) {
    for (const auto& [name, value] : words) {
        Booking& b = o.terms.booking.edit();
        Status taken;
        if (name == "start" && b.start.ns == 0) {
            const auto start = parse_ahead(value);
            taken = start ? Status() : tl::unexpected(start.error());
            b.start = start.value_or(Nanos{});
        } else if (name == "for" && b.span.ns == 0) {
            taken = set_limit(value, b.span);
        } else if (name == "finish" && o.terms.finish.ns == 0) {
            taken = set_limit(value, o.terms.finish);
        } else if (name == "promise") {
            if (value != "yes" && value != "no") taken = fail("it is neither yes nor no");
            b.promise = b.promise || value == "yes";
        }
        if (!taken) return wrap(name + ": '" + value + "'", taken.error());
    }
    return {};
}

// A number, or a file. A number beside another option of the size is compared with that.
Status set_components(SrunOptions& o, const char* text) {
    const bool is_beside = (o.sizes_said & ~(size_cpus | size_components)) != 0;
    o.components_said = 0;
    if (const auto number = parse_whole(text, INT64_MIN, INT64_MAX); number) {
        TRY_ASSIGN(o.components_said, parse_whole(text, 1, gang_components_max));
        if (is_beside) return {};
        o.plan.clear();
        o.components = o.components_said;
        return {};
    }
    TRY_ASSIGN(ComponentsFile file, read_components(text, gang_components_max));
    o.plan = std::move(file.plan);
    TRY(take_words_of_job(o, file.job));
    o.components = static_cast<int32_t>(o.plan.size());
    return {};
}

// Makes the components as small as they may be, because then they fit wherever there is room.
Status set_flexible(SrunOptions& o, std::string_view text) {
    const size_t colon = std::min(text.find(':'), text.size());
    TRY_ASSIGN(const int64_t all, parse_whole(text.substr(0, colon), 1, 65'536));
    int64_t each = 1;
    if (colon < text.size()) {
        TRY_ASSIGN(each, parse_whole(text.substr(colon + 1), 1, all));
    }
    const int64_t count = (all + each - 1) / each;
    if (count > gang_components_max)
        return fail(std::to_string(count) + " components are more than " +
                    std::to_string(gang_components_max) + ": give a greater MIN");
    o.components = static_cast<int32_t>(count);
    o.plan.assign(static_cast<size_t>(count), {});
    for (ComponentPlan& one : o.plan) one.cpus = static_cast<int32_t>(each);
    o.plan.back().cpus = static_cast<int32_t>(all - each * (count - 1));
    return {};
}

// NODE:CPUS,...: the size and the node of each.
Status set_ordered(SrunOptions& o, std::string_view text) {
    o.plan.clear();
    for (std::string_view rest = text;;) {
        const std::string_view one = rest.substr(0, rest.find(','));
        const size_t colon = std::min(one.find(':'), one.size());
        ComponentPlan& plan = o.plan.emplace_back();
        plan.node = one.substr(0, colon);
        if (const Status good = check_node_name(plan.node); !good)
            return fail(good.error().message + "; give NODE:CPUS,NODE:CPUS,...");
        if (colon < one.size()) {
            TRY_ASSIGN(const int64_t cpus, parse_whole(one.substr(colon + 1), 1, 65'536));
            plan.cpus = static_cast<int32_t>(cpus);
        }
        if (one.size() == rest.size()) break;
        rest.remove_prefix(one.size() + 1);
    }
    if (std::ssize(o.plan) > gang_components_max)
        return fail("a job has at most " + std::to_string(gang_components_max) +
                    " components, these are " + std::to_string(o.plan.size()));
    o.components = static_cast<int32_t>(o.plan.size());
    return {};
}

// BOUND,...: a round trip or a bandwidth (bits/s: M, G).
Status set_near(SrunOptions& o, const char* text) {
    o.near = true;
    o.near_trip_us = o.near_mbit = 0;
    if (!text) return {};
    for (std::string_view rest = text;;) {
        const std::string_view one = rest.substr(0, rest.find(','));
        const auto trip = parse_span(one, Nanos{}, Nanos::from_us(1), Nanos::from_s(1'000));
        const bool giga = one.ends_with('G');
        const bool bits = giga || one.ends_with('M');
        const auto number = whole_number<int64_t>(bits ? one.substr(0, one.size() - 1) : "");
        if (!trip && (!number || *number < 1 || *number > market::near_most / 1'000))
            return fail("'" + std::string(one) +
                        "' is no round trip (500us, 1ms) and no bandwidth (100M, 10G: bits/s)");
        int64_t& bound = trip ? o.near_trip_us : o.near_mbit;
        if (bound != 0) return fail("--near has two bounds of one kind");
        bound = trip ? trip->ns / 1'000 : *number * (giga ? 1'000 : 1);
        if (one.size() == rest.size()) return {};
        rest.remove_prefix(one.size() + 1);
    }
}

}  // namespace souk::tools
