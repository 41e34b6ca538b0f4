// SPDX-License-Identifier: GPL-2.0-or-later
// JsonWriter: writes one JSON text (RFC 8259) straight into a string, with no tree in between: what
// the daemons answer their tools with. Owned by whoever builds the answer. Commas and quotes are
// the writer's; a misuse (a value without a key inside an object, a brace that does not match, an
// answer that is not complete) is a bug and MUSTs.
//
// Strings: quotes, backslashes and control characters are escaped, valid UTF-8 passes as it is, and
// every byte that is not part of valid UTF-8 (overlong forms and surrogates included) becomes
// U+FFFD, so that the text always parses.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>

#include "kernel/base/money.hpp"

namespace souk {

// Appends `text` as a JSON string with its quotes.
void json_append_string(std::string& out, std::string_view text);

class JsonWriter {
  public:
    JsonWriter& begin_object();
    JsonWriter& end_object();
    JsonWriter& begin_array();
    JsonWriter& end_array();
    JsonWriter& key(std::string_view name);

    JsonWriter& value(std::string_view text);
    JsonWriter& value(const char* text) { return value(std::string_view(text)); }
    JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
    template <std::same_as<bool> T>
    JsonWriter& value(T v) {
        return raw(v ? "true" : "false");
    }
    template <std::integral T>
    requires(!std::same_as<T, bool> && !std::same_as<T, char>) JsonWriter& value(T v) {
        return raw(std::to_string(v));
    }
    // A number in units, exact ("0.25"): amounts are decimal, so nothing is lost on the way to
    // text.
    JsonWriter& value(Money m) { return raw(format_money(m)); }
    // Shortest text that reads back as the same double; null for what JSON has no number for (NaN,
    // infinity).
    JsonWriter& value(double v);
    JsonWriter& null() { return raw("null"); }

    template <class T>
    JsonWriter& field(std::string_view name, const T& v) {
        return key(name).value(v);
    }

    // Written so far.
    size_t bytes() const { return out_.size(); }

    // The whole text; everything opened must be closed. The writer is empty afterwards.
    std::string take();

  private:
    JsonWriter& raw(std::string_view token);
    void before_value();
    JsonWriter& open(char bracket);
    JsonWriter& close(char bracket);

    std::string out_;
    std::string open_;   // the brackets that are open, outermost first
    bool first_ = true;  // no element yet in the innermost one
    bool have_key_ = false;
    bool complete_ = false;
};

}  // namespace souk
