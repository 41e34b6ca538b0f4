// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/json.hpp"

#include <charconv>
#include <cmath>

#include "kernel/base/check.hpp"

namespace souk {
namespace {

// Length of the valid UTF-8 sequence that `s` begins with (Unicode 15, table 3-7); 0 if there is
// none.
size_t utf8_length(std::string_view s) {
    const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
    const auto tail = [&](size_t i) { return i < s.size() && byte(i) >= 0x80 && byte(i) <= 0xbf; };
    const uint8_t b = byte(0);
    if (b < 0x80) return 1;
    if (b < 0xc2) return 0;
    if (b < 0xe0) return tail(1) ? 2 : 0;
    if (b < 0xf0) {
        if (!tail(1) || !tail(2)) return 0;
        if (b == 0xe0 && byte(1) < 0xa0) return 0;
        if (b == 0xed && byte(1) > 0x9f) return 0;
        return 3;
    }
    if (b > 0xf4 || !tail(1) || !tail(2) || !tail(3)) return 0;
    if (b == 0xf0 && byte(1) < 0x90) return 0;
    if (b == 0xf4 && byte(1) > 0x8f) return 0;
    return 4;
}

void append_ascii(std::string& out, char c) {
    switch (c) {
        case '"': out += "\\\""; return;
        case '\\': out += "\\\\"; return;
        case '\n': out += "\\n"; return;
        case '\r': out += "\\r"; return;
        case '\t': out += "\\t"; return;
        default: break;
    }
    if (static_cast<uint8_t>(c) >= 0x20 && c != 0x7f) {
        out += c;
        return;
    }
    constexpr char hex[] = "0123456789abcdef";
    out += "\\u00";
    out += hex[static_cast<uint8_t>(c) >> 4];
    out += hex[static_cast<uint8_t>(c) & 15];
}

}  // namespace

void json_append_string(std::string& out, std::string_view text) {
    out += '"';
    while (!text.empty()) {
        const size_t n = utf8_length(text);
        if (n == 1)
            append_ascii(out, text[0]);
        else if (n == 0)
            out += "\xef\xbf\xbd";
        else
            out += text.substr(0, n);
        text.remove_prefix(n == 0 ? 1 : n);
    }
    out += '"';
}

void JsonWriter::before_value() {
    MUST(!complete_);
    if (open_.empty()) return;
    if (open_.back() == '{') {
        MUST(have_key_);
        have_key_ = false;
        return;
    }
    if (!first_) out_ += ',';
    first_ = false;
}

JsonWriter& JsonWriter::open(char bracket) {
    before_value();
    out_ += bracket;
    open_ += bracket;
    first_ = true;
    return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
    MUST(!open_.empty() && open_.back() == (bracket == '}' ? '{' : '[') && !have_key_);
    out_ += bracket;
    open_.pop_back();
    first_ = false;
    complete_ = open_.empty();
    return *this;
}

JsonWriter& JsonWriter::begin_object() { return open('{'); }
JsonWriter& JsonWriter::end_object() { return close('}'); }
JsonWriter& JsonWriter::begin_array() { return open('['); }
JsonWriter& JsonWriter::end_array() { return close(']'); }

JsonWriter& JsonWriter::key(std::string_view name) {
    MUST(!open_.empty() && open_.back() == '{' && !have_key_);
    if (!first_) out_ += ',';
    first_ = false;
    json_append_string(out_, name);
    out_ += ':';
    have_key_ = true;
    return *this;
}

JsonWriter& JsonWriter::raw(std::string_view token) {
    before_value();
    out_ += token;
    complete_ = open_.empty();
    return *this;
}

JsonWriter& JsonWriter::value(std::string_view text) {
    before_value();
    json_append_string(out_, text);
    complete_ = open_.empty();
    return *this;
}

JsonWriter& JsonWriter::value(double v) {
    if (!std::isfinite(v)) return null();
    char text[32];
    const auto end = std::to_chars(text, text + sizeof text, v);
    return raw({text, static_cast<size_t>(end.ptr - text)});
}

std::string JsonWriter::take() {
    MUST(complete_);
    std::string text = std::move(out_);
    *this = JsonWriter();
    return text;
}

}  // namespace souk
