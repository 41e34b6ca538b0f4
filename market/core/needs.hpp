// SPDX-License-Identifier: GPL-2.0-or-later
// Needs: what a job asks of the node that it runs on (srun --needs), as an expression over the
// node's attributes:
//
//   cpu.avx512f and memory >= 64G and gpu.model = "A100" and not node in [n3, n4]
//
//   expression   term { "or" term };  term: factor { "and" factor }
//   factor       "not" factor | "(" expression ")" | comparison
//   comparison   NAME | NAME OPERATOR VALUE | NAME "in" "[" VALUE { "," VALUE } "]"
//   operator     = != < <= > >=
//   value        a word, or text in double quotes
//
// A name alone holds for a node that has the attribute, unless its value is 0, no, false or empty.
// Two values that begin with a digit have the order of sizes (64G, of 1024 each thousand) or, part
// by part, of versions (6.1 < 6.18). They are equal where their texts are, in either case, or where
// both are whole sizes or versions. An attribute that a node does not have makes each comparison
// false, != as well. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/result.hpp"

namespace souk::market {

class Needs {
  public:
    static constexpr size_t text_max = 1'000, comparisons_max = 32;  // of an expression
    // The value of an attribute of one node; nullopt: it has none of that name.
    using Lookup = std::function<std::optional<std::string>(std::string_view name)>;

    // Errors: the text is longer than text_max, or no expression, and where that shows.
    static Result<Needs> parse(std::string_view text);

    bool holds(const Lookup& attribute) const { return holds(root_, attribute); }
    // The parts that `and` joins at the top, as they were written.
    std::vector<std::string> parts() const;
    // Whether that part, by its index, holds.
    bool part_holds(size_t part, const Lookup& attribute) const;

  private:
    enum class Kind : uint8_t { any_of, all_of, negated, has, compares, is_one_of };
    enum class Operator : uint8_t { equal, differs, less, at_most, more, at_least };
    struct Node {
        Kind kind = Kind::has;
        Operator op = Operator::equal;
        std::vector<uint32_t> of;         // any_of, all_of, negated
        std::string name;                 // of the attribute
        std::vector<std::string> values;  // compares: one
        size_t from = 0, to = 0;          // where it stands in the text
    };
    friend class NeedsParser;

    bool holds(uint32_t at, const Lookup& attribute) const;
    std::vector<uint32_t> tops() const;

    std::string text_;
    std::vector<Node> nodes_;
    uint32_t root_ = 0;
};

// Tells whether `=` holds.
bool equal_values(std::string_view a, std::string_view b);
// Below, equal to or above 0, as the values begin; nullopt: they have no order, and differ.
std::optional<int> compare_values(std::string_view a, std::string_view b);
// Whether it may be the name of an attribute: words of letters, digits, - and _ with dots between,
// at most 64 bytes, and none that the language has itself.
bool valid_attribute_name(std::string_view name);

}  // namespace souk::market
