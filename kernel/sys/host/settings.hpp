// SPDX-License-Identifier: GPL-2.0-or-later
// Settings: a daemon's configuration as a table of keys over a TOML file, each key with what it may
// be. An unknown key or a value out of range is an error that names file, line and key. Include it
// in config.cpp files only (toml++ is heavy).
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include <toml++/toml.h>

#include "kernel/base/money.hpp"
#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"

namespace souk::settings {

// One key: takes the value, or says what it needs.
using Setter = std::function<Status(const toml::node&)>;
using Keys = std::map<std::string, Setter, std::less<>>;

Result<int64_t> whole(const toml::node& n, int64_t least, int64_t most);
Setter text(std::string& into);  // not empty
Setter boolean(bool& into);
Setter money(Money& into);  // in quotes: decimal units
// A number in the unit that the key names, or a text such as "10m" (kernel/base/units).
Setter milliseconds(Nanos& into, int64_t least, int64_t most);
Setter seconds(Nanos& into, int64_t least, int64_t most);
Setter days(Nanos& into, int64_t least, int64_t most);
Result<int64_t> size_mb(const toml::node& n, int64_t least, int64_t most);
// A number of MB, or a text such as "4G".
template <class T>
Setter megabytes(T& into, int64_t least, int64_t most) {
    return [&into, least, most](const toml::node& n) -> Status {
        TRY_ASSIGN(const int64_t v, size_mb(n, least, most));
        into = static_cast<T>(v);
        return {};
    };
}
Setter address(std::string& into);  // HOST:PORT with a numeric host
// HOST:PORT; a host name is looked up, as when the daemon listens there
Setter listener(std::string& into);
// HOST:PORT with a port of at least 1; a host name is looked up later
Setter peer(std::string& into);
Setter socket_path(std::string& into);  // of a unix socket; short enough for one
Setter words(std::vector<std::string>& into);
template <class T>
Setter number(T& into, int64_t least, int64_t most) {
    return [&into, least, most](const toml::node& n) -> Status {
        TRY_ASSIGN(const int64_t v, whole(n, least, most));
        into = static_cast<T>(v);
        return {};
    };
}
template <class Names>
Setter one_of(std::string& into, const Names& names) {
    return [&into, &names](const toml::node& n) -> Status {
        const auto v = n.value_exact<std::string>();
        std::string all;
        for (const std::string_view name : names) {
            if (v && *v == name) {
                into = *v;
                return {};
            }
            all += (all.empty() ? "" : ", ") + std::string(name);
        }
        return fail("needs one of: " + all);
    };
}

// Reads the file through the table, top to bottom; the first error ends it.
Status load(const std::string& path, const Keys& keys);

}  // namespace souk::settings
