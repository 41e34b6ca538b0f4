// SPDX-License-Identifier: GPL-2.0-or-later
// Html: text of a page, written from front to end. What stands in the source is markup; everything
// else is escaped, so no name or command of a job can become markup. Pure.
#pragma once

#include <string>
#include <string_view>

namespace souk::tools::web {

// Markup: a text that is known when the program is compiled.
struct Markup {
    // NOLINTNEXTLINE(google-explicit-constructor): a literal is one
    consteval Markup(const char* literal) : text(literal) {}
    std::string_view text;
};

class Html {
  public:
    Html& markup(Markup m) {
        out_ += m.text;
        return *this;
    }
    // Escaped for an element's text and for an attribute in double quotes.
    Html& text(std::string_view text);
    // Adds a part of an address: percent-encoded, also what separates its parts.
    Html& in_address(std::string_view text);
    Html& number(double value);  // of a picture, one decimal
    Html& add(const Html& other) {
        out_ += other.out_;
        return *this;
    }
    bool empty() const { return out_.empty(); }
    const std::string& str() const { return out_; }

  private:
    std::string out_;
};

}  // namespace souk::tools::web
