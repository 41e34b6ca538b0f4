// SPDX-License-Identifier: GPL-2.0-or-later
// A daemon's configuration: a TOML file read once through a table of settings. Each has its name,
// what it may be, what it is for, and its default: what its variable holds before the file is read.
// The reference, the sample file and the man page are made from the same table. An unknown key or a
// value out of range is an error that names file, line and key. Include it in config.cpp files only
// (toml++ is heavy).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <toml++/toml.h>

#include "kernel/base/money.hpp"
#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "kernel/sys/host/config_text.hpp"

namespace souk::settings {

// A Key sets and shows a value, and says which values it takes.
struct Key {
    // Takes the value, or says what it needs.
    std::function<Status(const toml::node&)> set;
    std::function<std::string()> show;  // the value as TOML
    std::string takes;                  // "a whole number, 1 to 10000"
    std::string unit{};                 // of a number alone: "seconds"; empty: it has none
};

struct Setting {
    std::string name;
    Key key;
    std::string about;    // one or more sentences
    std::string example;  // as TOML
    // If the default depends on the machine, this text describes it. The page then shows it instead
    // of the variable's value.
    std::string usual{};
};
using Settings = std::vector<Setting>;
// Names the line of the file in which each key stands.
using Sources = std::map<std::string, uint32_t, std::less<>>;

Result<int64_t> whole(const toml::node& n, int64_t least, int64_t most);
std::string quoted(const std::string& text);
std::string bounds_text(const char* what, int64_t least, int64_t most);
Key text(std::string& into);  // not empty
Key boolean(bool& into);
Key money(Money& into);  // in quotes: decimal units
// A number in the unit that the key names, or a text such as "10m" (kernel/base/units).
Key milliseconds(Nanos& into, int64_t least, int64_t most);
Key seconds(Nanos& into, int64_t least, int64_t most);
Key days(Nanos& into, int64_t least, int64_t most);
Key moment(Nanos& into);  // Unix time
Result<int64_t> size_mb(const toml::node& n, int64_t least, int64_t most);
// A number of MB, or a text such as "4G".
template <class T>
Key megabytes(T& into, int64_t least, int64_t most) {
    return {[&into, least, most](const toml::node& n) -> Status {
                TRY_ASSIGN(const int64_t v, size_mb(n, least, most));
                into = static_cast<T>(v);
                return {};
            },
            [&into] { return std::to_string(into); },
            bounds_text("a size: a whole number, or a text such as \"4G\"", least, most), "MB"};
}
Key address(std::string& into);  // HOST:PORT with a numeric host
// HOST:PORT; a host name is looked up, as when the daemon listens there
Key listener(std::string& into);
// HOST:PORT with a port of at least 1; a host name is looked up later
Key peer(std::string& into);
Key socket_path(std::string& into);  // of a unix socket; short enough for one
Key words(std::vector<std::string>& into);
// A table of names, each with a whole number or a text: { gpu = 2, matlab = "5" }.
Key table(std::map<std::string, std::string>& into);
template <class T>
Key number(T& into, int64_t least, int64_t most) {
    return {[&into, least, most](const toml::node& n) -> Status {
                TRY_ASSIGN(const int64_t v, whole(n, least, most));
                into = static_cast<T>(v);
                return {};
            },
            [&into] { return std::to_string(into); }, bounds_text("a whole number", least, most)};
}
template <class Names>
Key one_of(std::string& into, const Names& names) {
    std::string all;
    for (const std::string_view name : names) all += (all.empty() ? "" : ", ") + std::string(name);
    return {[&into, names, all](const toml::node& n) -> Status {
                const auto v = n.value_exact<std::string>();
                for (const std::string_view name : names)
                    if (v && *v == name) {
                        into = *v;
                        return {};
                    }
                return fail("needs one of: " + all);
            },
            [&into] { return settings::quoted(into); }, "one of: " + all};
}

// Reads the file through the table, top to bottom; the first error ends it. `text`: what is in it,
// read by somebody else.
Status load(const std::string& path, const Settings& settings, Sources& sources,
            const std::string* text = nullptr);

// Returns TOML that reads back: every key with the value in force, and where that comes from.
ConfigText effective(const Settings& settings, const Sources& sources, const std::string& path);
// An array of objects: name, takes, unit, about, default, example.
std::string reference_json(const Settings& settings);

}  // namespace souk::settings
