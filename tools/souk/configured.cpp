// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/configured.hpp"

#include <fcntl.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "kernel/sys/host/fd.hpp"

namespace souk {
namespace {

constexpr const char* blanks = " \t\r\n\v\f";

std::string_view trimmed(std::string_view text) {
    return text.substr(std::min(text.find_first_not_of(blanks), text.size()));
}

// A line that begins with a key and an equals sign.
struct KeyLine {
    size_t begin, end;  // in the text; the newline is at `end`
    std::string_view value;
};

std::optional<KeyLine> find_key(std::string_view text, std::string_view key, size_t from) {
    for (size_t begin = from; begin < text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        const std::string_view line = trimmed(text.substr(begin, end - begin));
        const std::string_view rest =
            line.starts_with(key) ? trimmed(line.substr(key.size())) : std::string_view();
        if (rest.starts_with('=')) return KeyLine{begin, end, trimmed(rest.substr(1))};
        begin = end + 1;
    }
    return std::nullopt;
}

}  // namespace

std::string config_text(const std::string& path) {
    auto text = read_file(AT_FDCWD, path);
    return text ? *text : std::string();
}

std::string configured(const std::string& text, const std::string& key) {
    for (auto line = find_key(text, key, 0); line; line = find_key(text, key, line->end))
        if (const size_t end = line->value.find('"', 1);
            line->value.starts_with('"') && end != std::string_view::npos)
            return std::string(line->value.substr(1, end - 1));
    return {};
}

bool says(const std::string& text, const std::string& key) {
    return find_key(text, key, 0).has_value();
}

bool is_insecure(const std::string& text) {
    for (auto line = find_key(text, "insecure", 0); line;
         line = find_key(text, "insecure", line->end))
        if (line->value.starts_with("true")) return true;
    return false;
}

std::string without_key(std::string text, const std::string& key) {
    for (auto line = find_key(text, key, 0); line;) {
        const size_t before =
            line->begin > 0 ? text.find_last_not_of(blanks, line->begin - 1) : std::string::npos;
        const size_t from = before == std::string::npos ? 0 : text.find('\n', before) + 1;
        text.erase(from, line->end - from);
        line = find_key(text, key, from);
    }
    return text;
}

std::string identity_dir(const std::string& text, const std::string& daemon) {
    if (std::string dir = configured(text, "identity"); !dir.empty()) return dir;
    const std::string state = configured(text, "state");
    return (state.empty() ? "/var/lib/souk/" + daemon : state) + "/identity";
}

}  // namespace souk
