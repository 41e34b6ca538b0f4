// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/owner_share.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/number.hpp"
#include "kernel/base/units.hpp"

namespace souk {
namespace {

using Rule = OwnerShare::Rule;

constexpr size_t share_rules_max = 64;
constexpr size_t share_text_max = 4'096;
constexpr int64_t whole_part = 100'000;  // 100 %, in thousandths
constexpr int64_t cpu_milli_max = 65'536'000;
constexpr const char* share_forms = "write for example 'here = 0.5 cpus, 50% memory'";

std::string_view trimmed(std::string_view s) {
    const size_t from = s.find_first_not_of(" \t");
    return from == std::string_view::npos ? std::string_view{}
                                          : s.substr(from, s.find_last_not_of(" \t") - from + 1);
}

// "0.5" -> 500. At most three digits behind the point.
std::optional<int64_t> thousandths(std::string_view text) {
    const size_t point = text.find('.');
    const std::string_view behind = point == text.npos ? "" : text.substr(point + 1);
    const auto digits = [](std::string_view s) {
        return !s.empty() && s.find_first_not_of("0123456789") == s.npos;
    };
    if (!digits(text.substr(0, point)) || (point != text.npos && !digits(behind)) ||
        behind.size() > 3)
        return std::nullopt;
    const auto whole = whole_number<int64_t>(text.substr(0, point));
    if (!whole || *whole > cpu_milli_max / 1'000) return std::nullopt;
    std::string part(behind);
    part.resize(3, '0');
    return *whole * 1'000 + *whole_number<int64_t>(part);
}

// The number before it, and the word behind.
struct Amount {
    std::string_view number, what;
    bool percent = false;
};

Amount split(std::string_view text) {
    size_t end = text.find_first_of(" \t%");
    Amount a;
    a.number = text.substr(0, end);
    if (end == text.npos) return a;
    a.percent = text[end] == '%';
    a.what = trimmed(text.substr(a.percent ? end + 1 : end));
    if (!a.percent && a.what.starts_with('%')) {
        a.percent = true;
        a.what = trimmed(a.what.substr(1));
    }
    return a;
}

Status set_once(std::optional<int64_t>& field, bool taken, int64_t value, const char* what) {
    if (taken || field) return fail(std::string(what) + " are said twice");
    field = value;
    return {};
}

Status add_part(const Amount& a, Rule& rule) {
    const auto part = thousandths(a.number);
    const std::string shown = std::string(a.number) + "%";
    if (!part) return fail("'" + shown + "' is no share: 1% to 100% are");
    if (*part > whole_part) return fail(shown + " is more than 100%");
    if (*part == 0)
        return fail(shown + " leaves guests nothing: frames, or owner_return, keep them away");
    if (!a.what.empty() && a.what != "cpus" && a.what != "memory")
        return fail("'" + std::string(a.what) + "' is not one of cpus, memory");
    if (a.what != "memory") TRY(set_once(rule.cpu_part, rule.cpu_milli.has_value(), *part, "CPUs"));
    if (a.what != "cpus")
        TRY(set_once(rule.memory_part, rule.memory_mb.has_value(), *part, "sizes of memory"));
    return {};
}

Status add_amount(std::string_view text, Rule& rule) {
    const Amount a = split(text);
    if (a.percent) return add_part(a, rule);
    if (a.what == "cpus" || a.what == "cpu") {
        const auto milli = thousandths(a.number);
        if (!milli) return fail("'" + std::string(a.number) + "' is no number of CPUs");
        if (*milli == 0)
            return fail(
                "0 CPUs leave guests nothing: frames, or owner_return, keep "
                "them away");
        return set_once(rule.cpu_milli, rule.cpu_part.has_value(), *milli, "CPUs");
    }
    if (a.what == "memory") {
        const auto mb = parse_size_mb(a.number, 1, int64_t{1} << 40);
        if (!mb) return wrap("memory", mb.error());
        return set_once(rule.memory_mb, rule.memory_part.has_value(), *mb, "sizes of memory");
    }
    return fail("'" + std::string(text) + "' is no share; " + share_forms);
}

Result<Rule> parse_share_rule(std::string_view text) {
    Rule rule;
    rule.text = text;
    const std::string where = "'" + rule.text + "'";
    const size_t mark = text.find('=');
    if (mark == std::string_view::npos) return fail(where + " has no '='; " + share_forms);
    const std::string_view when = trimmed(text.substr(0, mark));
    rule.here = when == "here";
    if (!rule.here) {
        auto frames = TimeFrames::parse_apart(when);
        if (!frames) return wrap(where, frames.error());
        rule.frames = std::move(*frames);
    }
    const std::string_view amounts = text.substr(mark + 1);
    std::string tidy;
    for (size_t from = 0; from <= amounts.size();) {
        const size_t end = std::min(amounts.find(',', from), amounts.size());
        const std::string_view amount = trimmed(amounts.substr(from, end - from));
        if (auto added = add_amount(amount, rule); !added) return wrap(where, added.error());
        tidy += (tidy.empty() ? "" : ", ") + std::string(amount);
        from = end + 1;
    }
    rule.text = (rule.here ? "here" : rule.frames.text()) + " = " + tidy;
    return rule;
}

int64_t at_most(std::optional<int64_t> part, std::optional<int64_t> amount, int64_t machine,
                int64_t offered) {
    if (amount) offered = std::min(offered, *amount);
    // The machine's size is below 2^40 and a part at most 10^5.
    if (part) offered = std::min(offered, machine * *part / whole_part);
    return offered;
}

bool rule_holds(const Rule& rule, int32_t second_of_week, bool here) {
    return rule.here ? here : rule.frames.contains(second_of_week);
}

}  // namespace

Result<OwnerShare> OwnerShare::parse(std::string_view text) {
    OwnerShare share;
    if (trimmed(text).empty()) return share;
    if (text.size() > share_text_max)
        return fail("share: longer than " + std::to_string(share_text_max) + " characters");
    for (size_t from = 0; from <= text.size();) {
        const size_t end = std::min(text.find(';', from), text.size());
        auto rule = parse_share_rule(trimmed(text.substr(from, end - from)));
        if (!rule) return wrap("share", rule.error());
        if (share.rules_.size() >= share_rules_max)
            return fail("share: more than " + std::to_string(share_rules_max) + " rules");
        share.text_ += (share.text_.empty() ? "" : "; ") + rule->text;
        share.rules_.push_back(std::move(*rule));
        from = end + 1;
    }
    return share;
}

Status OwnerShare::fits(const MachineSize& machine) const {
    for (const Rule& r : rules_) {
        const std::string where = "share: '" + r.text + "': ";
        if (r.cpu_milli && *r.cpu_milli > machine.cpu_milli)
            return fail(where + "this machine has " + std::to_string(machine.cpu_milli / 1'000) +
                        " CPUs");
        if (r.memory_mb && *r.memory_mb > machine.memory_mb)
            return fail(where + "this machine has " + std::to_string(machine.memory_mb) +
                        " MB of memory");
        const MachineSize got = {
            at_most(r.cpu_part, r.cpu_milli, machine.cpu_milli, machine.cpu_milli),
            at_most(r.memory_part, r.memory_mb, machine.memory_mb, machine.memory_mb)};
        if (got.cpu_milli < cpu_milli_min)
            return fail(where + "less than a hundredth of a CPU is no share");
        if (got.memory_mb < memory_mb_min)
            return fail(where + "less than 1 MB of memory is no share");
    }
    return {};
}

bool OwnerShare::when_here() const {
    return std::any_of(rules_.begin(), rules_.end(), [](const Rule& r) { return r.here; });
}

MachineSize OwnerShare::of(const MachineSize& machine, const MachineSize& offered,
                           int32_t second_of_week, bool here) const {
    MachineSize got = offered;
    for (const Rule& r : rules_) {
        if (!rule_holds(r, second_of_week, here)) continue;
        got.cpu_milli = at_most(r.cpu_part, r.cpu_milli, machine.cpu_milli, got.cpu_milli);
        got.memory_mb = at_most(r.memory_part, r.memory_mb, machine.memory_mb, got.memory_mb);
    }
    got.cpu_milli = std::max(got.cpu_milli, cpu_milli_min);
    got.memory_mb = std::max(got.memory_mb, memory_mb_min);
    return got;
}

std::string OwnerShare::holds(int32_t second_of_week, bool here) const {
    std::string all;
    for (const Rule& r : rules_)
        if (rule_holds(r, second_of_week, here)) all += (all.empty() ? "" : "; ") + r.text;
    return all;
}

int32_t OwnerShare::to_next_edge(int32_t second_of_week) const {
    int32_t nearest = 0;
    for (const Rule& r : rules_)
        if (const int32_t edge = r.here ? 0 : r.frames.to_next_edge(second_of_week); edge > 0)
            nearest = nearest == 0 ? edge : std::min(nearest, edge);
    return nearest;
}

}  // namespace souk
