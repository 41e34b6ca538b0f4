// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/price_curve.hpp"

#include <algorithm>
#include <utility>

namespace souk {
namespace {

constexpr size_t rules_max = 168;  // one for each hour of the week
constexpr size_t curve_text_max = 8'192;

std::string_view stripped(std::string_view s) {
    const size_t from = s.find_first_not_of(" \t");
    return from == std::string_view::npos ? std::string_view{}
                                          : s.substr(from, s.find_last_not_of(" \t") - from + 1);
}

Result<PriceCurve::Rule> parse_rule(std::string_view text) {
    const std::string whole(text);
    const size_t mark = text.find('=');
    if (mark == std::string_view::npos)
        return fail("price curve: '" + whole +
                    "' has no price; write for example 'mon-fri 8:00-18:00 = 40'");
    auto frames = TimeFrames::parse_apart(stripped(text.substr(0, mark)));
    if (!frames) return wrap("price curve: '" + whole + "'", frames.error());
    auto price = parse_money(stripped(text.substr(mark + 1)));
    if (!price) return wrap("price curve: '" + whole + "'", price.error());
    if (*price < Money{} || *price > money_max)
        return fail("price curve: '" + whole + "': price " + format_money(*price) +
                    " is not from 0 to " + format_money(money_max));
    return PriceCurve::Rule{std::move(*frames), *price};
}

}  // namespace

Result<PriceCurve> PriceCurve::parse(std::string_view text) {
    PriceCurve curve;
    if (stripped(text).empty()) return curve;
    if (text.size() > curve_text_max)
        return fail("price curve: longer than " + std::to_string(curve_text_max) + " characters");
    for (size_t from = 0; from <= text.size();) {
        const size_t end = std::min(text.find(';', from), text.size());
        TRY_ASSIGN(Rule rule, parse_rule(stripped(text.substr(from, end - from))));
        if (curve.rules_.size() >= rules_max)
            return fail("price curve: more than " + std::to_string(rules_max) + " rules");
        curve.text_ += (curve.text_.empty() ? "" : "; ") + rule.frames.text() + " = " +
                       format_money(rule.price);
        curve.rules_.push_back(std::move(rule));
        from = end + 1;
    }
    TRY(curve.apart());
    return curve;
}

Status PriceCurve::apart() const {
    for (size_t i = 0; i < rules_.size(); ++i)
        for (size_t k = i + 1; k < rules_.size(); ++k) {
            const TimeFrames &one = rules_[i].frames, &other = rules_[k].frames;
            if (one.always() || other.always())
                return fail("price curve: '" + one.text() + "' and '" + other.text() + "' overlap");
            if (const auto both = TimeFrames::parse_apart(one.text() + "; " + other.text()); !both)
                return wrap("price curve", both.error());
        }
    return {};
}

const PriceCurve::Rule* PriceCurve::at(int32_t second_of_week) const {
    const auto it = std::find_if(rules_.begin(), rules_.end(),
                                 [&](const Rule& r) { return r.frames.contains(second_of_week); });
    return it == rules_.end() ? nullptr : &*it;
}

int32_t PriceCurve::to_next_edge(int32_t second_of_week) const {
    int32_t nearest = 0;
    for (const Rule& r : rules_)
        if (const int32_t edge = r.frames.to_next_edge(second_of_week); edge > 0)
            nearest = nearest == 0 ? edge : std::min(nearest, edge);
    return nearest;
}

}  // namespace souk
