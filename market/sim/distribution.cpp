// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/distribution.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernel/base/money.hpp"
#include "kernel/base/number.hpp"

namespace souk::sim {
namespace {

using Wide = __int128;

struct Shape {
    std::string_view name;
    Distribution::Kind kind;
    size_t parameters;
    const char* usage;
};
constexpr Shape shapes[] = {{"fix", Distribution::Kind::fix, 1, "fix A"},
                            {"uniform", Distribution::Kind::uniform, 2, "uniform LO HI"},
                            {"bimodal", Distribution::Kind::bimodal, 6, "bimodal P M1 D1 Q M2 D2"}};
constexpr int64_t share_most = 1'000'000;

std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> words;
    constexpr std::string_view blanks = " \t\r\n";
    for (size_t at = text.find_first_not_of(blanks); at != std::string_view::npos;) {
        const size_t end = std::min(text.find_first_of(blanks, at), text.size());
        words.push_back(text.substr(at, end - at));
        at = text.find_first_not_of(blanks, end);
    }
    return words;
}

// The shares of a bimodal distribution: percents that make 100, or fractions that make 1, with
// decimals or without.
Status set_shares(Distribution& d, std::string_view first, std::string_view second) {
    const Result<Money> p = parse_money(first), q = parse_money(second);
    if (!p || !q || p->micro < 0 || q->micro < 0)
        return fail("a share is no number with at most six decimals");
    constexpr int64_t percent = 1'000'000;
    const Wide sum = static_cast<Wide>(p->micro) + q->micro;
    const int64_t scale = sum == percent ? 100 : 1;
    if (sum * scale != 100 * percent) return fail("the two shares make neither 100 % nor 1");
    const int64_t share = p->micro * scale;
    d.parameters[0] = share / percent;
    d.parameters[3] = 100 - d.parameters[0];
    if (share % percent != 0) d.first_share_micro = share;
    return {};
}

int64_t normal(Rng& rng, int64_t mean, int64_t deviation) {
    double sum = -6;
    for (int i = 0; i < 12; ++i) sum += rng.unit();
    return mean + std::llround(sum * static_cast<double>(deviation));
}

}  // namespace

int64_t Distribution::draw(Rng& rng, int64_t least) const {
    const int64_t* p = parameters;
    switch (kind) {
        case Kind::fix: return std::max(least, p[0]);
        case Kind::uniform: return std::max(least, rng.between(p[0], p[1]));
        case Kind::bimodal: break;
    }
    const bool first = first_share_micro >= 0 ? rng.between(1, 100'000'000) <= first_share_micro
                                              : rng.between(1, 100) <= p[0];
    return std::max(least, first ? normal(rng, p[1], p[2]) : normal(rng, p[4], p[5]));
}

Result<Distribution> parse_distribution(std::string_view text) {
    const std::vector<std::string_view> words = words_of(text);
    const Shape* shape = nullptr;
    for (const Shape& s : shapes)
        if (!words.empty() && words[0] == s.name) shape = &s;
    const std::string quoted = "'" + std::string(text.substr(0, 60)) + "'";
    if (!shape)
        return fail(quoted + " is no distribution (fix A, uniform LO HI, bimodal P M1 D1 Q M2 D2)");
    if (words.size() != shape->parameters + 1)
        return fail(quoted + " is not of the form '" + shape->usage + "'");
    Distribution d{shape->kind, {}};
    if (d.kind == Distribution::Kind::bimodal)
        if (const Status shares = set_shares(d, words[1], words[4]); !shares)
            return fail(quoted + ": " + shares.error().message);
    for (size_t i = 1; i < words.size(); ++i) {
        if (d.kind == Distribution::Kind::bimodal && (i == 1 || i == 4)) continue;
        const std::string_view word = words[i];
        const auto v = whole_number<int64_t>(word);
        if (!v || *v < 0 || *v > share_most)
            return fail(quoted + ": '" + std::string(word.substr(0, 24)) +
                        "' is no integer from 0 to 1000000");
        d.parameters[i - 1] = *v;
    }
    if (d.kind == Distribution::Kind::uniform && d.parameters[0] > d.parameters[1])
        return fail(quoted + ": the least value is above the greatest");
    return d;
}

}  // namespace souk::sim
