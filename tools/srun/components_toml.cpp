// SPDX-License-Identifier: GPL-2.0-or-later
// Components as TOML: a table [[component]] for each, [job] for what is of all of them, and
// [names] for what $(NAME) stands for.
#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

#include "tools/srun/components.hpp"

namespace souk::tools::components {
namespace {

std::string line_of(const toml::node& n) { return std::to_string(n.source().begin.line); }

bool of_a_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

// Splits a text into plain pieces and names. In a file that gives no names, $(...) is a text like
// any other.
Text text_of(std::string_view text, bool has_names) {
    Text pieces(1);
    while (!text.empty()) {
        size_t end = 2;
        while (has_names && end < text.size() && of_a_name(text[end])) ++end;
        if (has_names && text.starts_with("$(") && end > 2 && end < text.size() &&
            text[end] == ')') {
            pieces.push_back({true, std::string(text.substr(2, end - 2))});
            pieces.push_back({});
            text.remove_prefix(end + 1);
            continue;
        }
        pieces.back().text += text[0];
        text.remove_prefix(1);
    }
    return pieces;
}

Result<Value> value_of(const toml::node& n, bool has_names) {
    Value v;
    v.line = n.source().begin.line;
    if (const auto* text = n.as_string()) {
        v.text = text_of(**text, has_names);
    } else if (const auto* number = n.as_integer()) {
        v.text = {{false, std::to_string(**number)}};
    } else if (const auto* list = n.as_array()) {
        v.is_list = true;
        for (const toml::node& one : *list) {
            TRY_ASSIGN(v.list.emplace_back(), value_of(one, has_names));
        }
    } else if (const auto* table = n.as_table()) {
        v.is_list = true;
        for (const auto& [key, one] : *table) {
            Value pair;
            pair.is_list = true;
            pair.line = one.source().begin.line;
            pair.list.resize(2);
            pair.list[0].text = {{false, std::string(key.str())}};
            TRY_ASSIGN(pair.list[1], value_of(one, has_names));
            v.list.push_back(std::move(pair));
        }
    } else {
        return fail(line_of(n) + ": a value is a text, a whole number, a list or a table");
    }
    return v;
}

}  // namespace

Result<File> parse_toml(std::string_view text) {
    const toml::parse_result parsed = toml::parse(text);
    if (!parsed)
        return fail(std::to_string(parsed.error().source().begin.line) + ": " +
                    std::string(parsed.error().description()));
    File file;
    const toml::node* const names = parsed.table().get("names");
    if (names && !names->is_table()) return fail(line_of(*names) + ": names is a table");
    if (names)
        for (const auto& [key, value] : *names->as_table()) {
            TRY_ASSIGN(Value v, value_of(value, true));
            if (v.is_list) return fail(line_of(value) + ": a name stands for one text");
            file.names[std::string(key.str())] = std::move(v.text);
        }
    const toml::node* const job = parsed.table().get("job");
    if (job && !job->is_table()) return fail(line_of(*job) + ": job is a table");
    if (job)
        for (const auto& [key, given] : *job->as_table()) {
            TRY_ASSIGN(Value v, value_of(given, names != nullptr));
            file.job.emplace_back(key.str(), std::move(v));
        }
    for (const auto& [key, value] : parsed.table()) {
        if (key == "names" || key == "job") continue;
        if (key != "component" || !value.is_array_of_tables())
            return fail(line_of(value) + ": '" + std::string(key.str()) +
                        "' is none of [names], [job] and [[component]]");
        for (const toml::node& one : *value.as_array()) {
            Request r;
            r.line = one.source().begin.line;
            for (const auto& [attribute, given] : *one.as_table()) {
                TRY_ASSIGN(Value v, value_of(given, names != nullptr));
                r.attributes.emplace_back(attribute.str(), std::move(v));
            }
            file.requests.push_back(std::move(r));
        }
    }
    return file;
}

}  // namespace souk::tools::components
