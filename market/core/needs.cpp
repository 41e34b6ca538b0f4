// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/needs.hpp"

#include <algorithm>

#include "kernel/base/check.hpp"

namespace souk::market {

namespace {

constexpr size_t depth_max = 32;  // parentheses and `not` within each other

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter_or_digit(char c) { return is_digit(c) || (lower(c) >= 'a' && lower(c) <= 'z'); }

bool is_word(char c) {
    return is_letter_or_digit(c) || c == '.' || c == '-' || c == '_' || c == '+' || c == ':' ||
           c == '/' || c == '@';
}

bool same_text(std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

bool is_keyword(std::string_view word) {
    return word == "and" || word == "or" || word == "not" || word == "in";
}

// A number with a unit of size behind it, in bytes where it has one: 64G, 1.5T, 512MB, 8.
std::optional<long double> as_size(std::string_view text) {
    size_t at = 0;
    long double value = 0, scale = 1;
    bool fraction = false;
    for (; at < text.size() && (is_digit(text[at]) || (text[at] == '.' && !fraction)); ++at) {
        if (text[at] == '.') {
            fraction = true;
            continue;
        }
        value = value * 10 + (text[at] - '0');
        if (fraction) scale *= 10;
    }
    value /= scale;
    std::string_view unit = text.substr(at);
    if (unit.empty()) return value;
    constexpr std::string_view units = "kmgtp";
    const size_t power = units.find(lower(unit[0]));
    unit.remove_prefix(1);
    if (at == 0) return {};
    if (power == units.npos || (!unit.empty() && !same_text(unit, "b") && !same_text(unit, "ib")))
        return {};
    for (size_t i = 0; i <= power; ++i) value *= 1024;
    return value;
}

// Numbers with dots between, as far as they go: 6.18.5 of "6.18.5-amd64".
std::vector<uint64_t> version_of(std::string_view text) {
    std::vector<uint64_t> parts;
    for (size_t at = 0; at < text.size() && is_digit(text[at]);) {
        uint64_t n = 0;
        for (; at < text.size() && is_digit(text[at]); ++at)
            n = std::min<uint64_t>(n, UINT64_MAX / 16) * 10 + static_cast<uint64_t>(text[at] - '0');
        parts.push_back(n);
        if (at == text.size() || text[at] != '.') break;
        ++at;
    }
    return parts;
}

}  // namespace

std::optional<int> compare_values(std::string_view a, std::string_view b) {
    const auto number = [](std::string_view t) { return !t.empty() && is_digit(t[0]); };
    if (!number(a) || !number(b)) return same_text(a, b) ? std::optional(0) : std::nullopt;
    const bool dots = std::ranges::count(a, '.') > 1 || std::ranges::count(b, '.') > 1;
    const auto x = as_size(a), y = as_size(b);
    const bool has_unit = !is_digit(a.back()) || !is_digit(b.back());
    if (x && y && !dots && (has_unit || (a.find('.') == a.npos && b.find('.') == b.npos)))
        return *x < *y ? -1 : *x > *y ? 1 : 0;
    const auto v = version_of(a), w = version_of(b);
    return v < w ? -1 : v > w ? 1 : 0;
}

bool equal_values(std::string_view a, std::string_view b) {
    if (same_text(a, b)) return true;
    const auto is_version = [](std::string_view t) {
        return std::ranges::all_of(t, [](char c) { return is_digit(c) || c == '.'; });
    };
    const bool sizes = as_size(a) && as_size(b), versions = is_version(a) && is_version(b);
    return (sizes || versions) && compare_values(a, b) == 0;
}

bool valid_attribute_name(std::string_view name) {
    if (name.empty() || name.size() > 64 || is_keyword(name) || name.front() == '.' ||
        name.back() == '.' || name.find("..") != name.npos || is_digit(name[0]))
        return false;
    return std::ranges::all_of(
        name, [](char c) { return is_letter_or_digit(c) || c == '.' || c == '-' || c == '_'; });
}

// Reads an expression from left to right; an error says what was wanted and what stands there.
class NeedsParser {
  public:
    explicit NeedsParser(std::string_view text) { needs_.text_ = text; }

    Result<Needs> whole() {
        TRY_ASSIGN(needs_.root_, any_of(0));
        skip_blanks();
        if (at_ < text().size()) return wrong("'and', 'or' or the end");
        return std::move(needs_);
    }

  private:
    std::string_view text() const { return needs_.text_; }
    void skip_blanks() {
        while (at_ < text().size() && (text()[at_] == ' ' || text()[at_] == '\t')) ++at_;
    }
    // The word that comes next, which stays there; empty: none does.
    std::string_view next_word() {
        skip_blanks();
        size_t end = at_;
        while (end < text().size() && is_word(text()[end])) ++end;
        return text().substr(at_, end - at_);
    }
    bool take(std::string_view sign) {
        skip_blanks();
        const bool word = is_word(sign[0]);
        if (word ? next_word() != sign : !text().substr(at_).starts_with(sign)) return false;
        at_ += sign.size();
        return true;
    }
    tl::unexpected<Error> wrong(const std::string& wanted) {
        skip_blanks();
        const std::string_view rest = text().substr(at_);
        return fail(
            "at " + std::to_string(at_ + 1) + ": " + wanted + " is wanted, and " +
            (rest.empty() ? "it ends" : "'" + std::string(rest.substr(0, 20)) + "' stands") +
            " there");
    }
    uint32_t add(Needs::Node node, size_t from) {
        node.from = from;
        node.to = at_;
        needs_.nodes_.push_back(std::move(node));
        return static_cast<uint32_t>(needs_.nodes_.size() - 1);
    }

    Result<uint32_t> any_of(size_t depth) { return joined(Needs::Kind::any_of, "or", depth); }
    Result<uint32_t> all_of(size_t depth) { return joined(Needs::Kind::all_of, "and", depth); }

    Result<uint32_t> joined(Needs::Kind kind, std::string_view word, size_t depth) {
        skip_blanks();
        const size_t from = at_;
        Needs::Node node;
        node.kind = kind;
        do {
            TRY_ASSIGN(const uint32_t one,
                       kind == Needs::Kind::any_of ? all_of(depth) : factor(depth));
            node.of.push_back(one);
        } while (take(word));
        if (node.of.size() == 1) return node.of[0];
        return add(std::move(node), from);
    }

    Result<uint32_t> factor(size_t depth) {
        if (depth > depth_max)
            return fail("it has more than " + std::to_string(depth_max) +
                        " parentheses and 'not' within each other");
        skip_blanks();
        const size_t from = at_;
        if (take("not")) {
            Needs::Node node;
            node.kind = Needs::Kind::negated;
            TRY_ASSIGN(const uint32_t one, factor(depth + 1));
            node.of = {one};
            return add(std::move(node), from);
        }
        if (take("(")) {
            TRY_ASSIGN(const uint32_t inner, any_of(depth + 1));
            if (!take(")")) return wrong("')'");
            return inner;
        }
        return comparison(from);
    }

    Result<uint32_t> comparison(size_t from) {
        if (++comparisons_ > Needs::comparisons_max)
            return fail("it has more than " + std::to_string(Needs::comparisons_max) +
                        " comparisons");
        Needs::Node node;
        const std::string_view name = next_word();
        if (!valid_attribute_name(name)) return wrong("the name of an attribute");
        node.name = name;
        at_ += name.size();
        if (take("in")) {
            node.kind = Needs::Kind::is_one_of;
            if (!take("[")) return wrong("'['");
            do {
                TRY(add_value(node));
            } while (take(","));
            if (!take("]")) return wrong("',' or ']'");
            return add(std::move(node), from);
        }
        using Op = Needs::Operator;
        constexpr std::pair<std::string_view, Op> operators[] = {
            {"<=", Op::at_most}, {">=", Op::at_least}, {"!=", Op::differs}, {"==", Op::equal},
            {"=", Op::equal},    {"<", Op::less},      {">", Op::more}};
        for (const auto& [sign, op] : operators) {
            if (!take(sign)) continue;
            node.kind = Needs::Kind::compares;
            node.op = op;
            TRY(add_value(node));
            break;
        }
        return add(std::move(node), from);
    }

    Status add_value(Needs::Node& node) {
        skip_blanks();
        if (take("\"")) {
            const size_t end = text().find('"', at_);
            if (end == std::string_view::npos) return fail("a quote (\") does not end");
            node.values.emplace_back(text().substr(at_, end - at_));
            at_ = end + 1;
            return {};
        }
        const std::string_view word = next_word();
        if (word.empty()) return wrong("a value");
        node.values.emplace_back(word);
        at_ += word.size();
        return {};
    }

    Needs needs_;
    size_t at_ = 0, comparisons_ = 0;
};

Result<Needs> Needs::parse(std::string_view text) {
    if (text.size() > text_max)
        return fail("it has more than " + std::to_string(text_max) + " bytes");
    return NeedsParser(text).whole();
}

bool Needs::holds(uint32_t at, const Lookup& attribute) const {
    const Node& n = nodes_[at];
    const auto one_holds = [&](uint32_t one) { return holds(one, attribute); };
    switch (n.kind) {
        case Kind::any_of: return std::ranges::any_of(n.of, one_holds);
        case Kind::all_of: return std::ranges::all_of(n.of, one_holds);
        case Kind::negated: return !holds(n.of[0], attribute);
        default: break;
    }
    const auto value = attribute(n.name);
    if (!value) return false;
    if (n.kind == Kind::has)
        return !value->empty() && *value != "0" && !same_text(*value, "no") &&
               !same_text(*value, "false");
    if (n.kind == Kind::is_one_of)
        return std::ranges::any_of(n.values,
                                   [&](const std::string& v) { return equal_values(*value, v); });
    const auto order = compare_values(*value, n.values[0]);
    switch (n.op) {
        case Operator::equal: return equal_values(*value, n.values[0]);
        case Operator::differs: return !equal_values(*value, n.values[0]);
        case Operator::less: return order && *order < 0;
        case Operator::at_most: return order && *order <= 0;
        case Operator::more: return order && *order > 0;
        case Operator::at_least: return order && *order >= 0;
    }
    MUST(false);
}

std::vector<uint32_t> Needs::tops() const {
    const Node& n = nodes_[root_];
    return n.kind == Kind::all_of ? n.of : std::vector<uint32_t>{root_};
}

std::vector<std::string> Needs::parts() const {
    std::vector<std::string> all;
    for (const uint32_t at : tops()) {
        all.push_back(text_.substr(nodes_[at].from, nodes_[at].to - nodes_[at].from));
        while (all.back().ends_with(' ') || all.back().ends_with('\t')) all.back().pop_back();
    }
    return all;
}

bool Needs::part_holds(size_t part, const Lookup& attribute) const {
    return holds(tops().at(part), attribute);
}

}  // namespace souk::market
