// SPDX-License-Identifier: GPL-2.0-or-later
// Options whose value has a type: a row is made of a variable and of the kind of its values, and
// help shows the bounds of the kind. A single value may be given once. A list takes commas; given
// again, it grows.
#pragma once

#include <type_traits>

#include "kernel/base/text.hpp"
#include "tools/common/args.hpp"

namespace souk::tools {

template <class T>
struct Kind {
    std::string takes;  // as help shows it: "INT in [1 - 5]"
    std::function<Result<T>(const std::string& text)> read;
};

Kind<int64_t> whole(int64_t least, int64_t most);
Kind<double> real(double least, double most);
// Times and sizes (kernel/base/units) as whole seconds and MB: "10m" becomes 600, "4G" 4096.
Kind<int64_t> seconds(int64_t least, int64_t most);
Kind<int64_t> megabytes(int64_t least, int64_t most);
Kind<std::string> any_text();
Kind<std::string> file_name();
Kind<std::string> one_of(const std::vector<std::string>& names);

enum class Default { hidden, shown };  // in help

inline std::string value_text(const std::string& value) { return value; }
std::string value_text(double value);
template <std::integral T>
std::string value_text(T value) {
    return std::to_string(value);
}
template <class T>
std::string value_text(const std::vector<T>& values) {
    std::string all;
    for (const T& value : values) all += (all.empty() ? "" : ",") + value_text(value);
    return all;
}

template <class T, class To>
std::function<Status(const char*)> set_value(To& to,
                                             std::function<Result<T>(const std::string&)> read) {
    return [&to, read = std::move(read)](const char* text) -> Status {
        TRY_ASSIGN(to, read(text));
        return {};
    };
}

// The first value given takes the place of the default.
template <class T, class To>
std::function<Status(const char*)> set_value(std::vector<To>& to,
                                             std::function<Result<T>(const std::string&)> read) {
    return [&to, read = std::move(read), first = true](const char* text) mutable -> Status {
        if (first) to.clear();
        first = false;
        for (const std::string& part : comma_parts(text)) {
            TRY_ASSIGN(To value, read(part));
            to.push_back(std::move(value));
        }
        return {};
    };
}

template <class To>
constexpr bool is_list = false;
template <class To>
constexpr bool is_list<std::vector<To>> = true;

// `to` outlives the parsing.
template <class T, class To>
Option option(char letter, const char* name, To& to, Kind<T> kind, const char* help,
              Default usual = Default::hidden) {
    Option o{letter, name, lasting(std::move(kind.takes)), help,
             set_value<T>(to, std::move(kind.read))};
    o.once = !is_list<To>;
    if constexpr (requires { value_text(to); })
        if (usual == Default::shown) o.usual = value_text(to);
    return o;
}

}  // namespace souk::tools
