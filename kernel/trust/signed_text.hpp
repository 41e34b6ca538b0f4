// SPDX-License-Identifier: GPL-2.0-or-later
// A text of lines that an authority signs: a heading, lines, and at last
//
//   signature HEXADECIMAL-DIGITS
//
// which is of all that stands before it. So do lists go from a market to its nodes: whoever brings
// them.
#pragma once

#include <string>
#include <string_view>

#include "kernel/trust/key.hpp"

namespace souk::trust {

// `lines`: the heading and all others, each with its end.
Result<std::string> sign_text(std::string lines, const Key& issuing);

struct SignedText {
    std::string_view body;   // what is signed: heading and lines
    std::string_view lines;  // without the heading
    std::string signature;
    bool is_of(const Key& issuing) const { return issuing.verify(body, signature).has_value(); }
};
// Takes the parts of a signed text, whoever has signed it. `heading` is a line with its end. The
// error names the text by `what`: it is longer than bytes_max, has another heading, no signature or
// something behind it.
Result<SignedText> take_apart(std::string_view text, std::string_view heading,
                              const std::string& what, size_t bytes_max);

// The next line of `lines` without its end, taken off; they end with a whole line.
std::string_view take_line(std::string_view& lines);

}  // namespace souk::trust
