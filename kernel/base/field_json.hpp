// SPDX-License-Identifier: GPL-2.0-or-later
// A struct with a list of fields (fields.hpp) as JSON: every field under its name. Amounts are in
// units, spans and times in seconds, an enum is its name; a time of never is null. For people who
// look into a running daemon.
#pragma once

#include <concepts>
#include <type_traits>
#include <vector>

#include "kernel/base/fields.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/base/ipv4.hpp"
#include "kernel/base/json.hpp"
#include "kernel/base/time.hpp"

namespace souk {

template <Listed T>
void write_fields(JsonWriter& j, const T& v);

template <class M>
void write_field_value(JsonWriter& j, const M& v) {
    if constexpr (requires { v.stored(); })
        write_field_value(j, *v);
    else if constexpr (std::same_as<M, Nanos>)
        v == Nanos::never() ? j.null() : j.value(v.seconds());
    else if constexpr (std::same_as<M, Epoch> || std::same_as<M, Ipv4>)
        j.value(v.n);
    else if constexpr (std::same_as<M, JobId>)
        j.value(v.text());
    else if constexpr (requires { to_string(v); } && std::is_enum_v<M>)
        j.value(to_string(v));
    else if constexpr (std::is_enum_v<M>)
        j.value(static_cast<int64_t>(v));
    else if constexpr (requires { v.has_value(); })
        v ? write_field_value(j, *v) : static_cast<void>(j.null());
    else if constexpr (requires { v.steps(); })
        write_field_value(j, v.steps());
    else if constexpr (Listed<M>) {
        j.begin_object();
        write_fields(j, v);
        j.end_object();
    } else if constexpr (requires(JsonWriter & w) { w.value(v); })
        j.value(v);
    else {
        j.begin_array();
        for (const auto& element : v) write_field_value(j, element);
        j.end_array();
    }
}

// Writes the fields without the braces.
template <Listed T>
void write_fields(JsonWriter& j, const T& v) {
    for_each_field<T>([&]<class Entry>(const Entry& e) {
        if constexpr (requires { e.index; }) {
            j.key(e.name);
            write_field_value(j, (v.*e.member)[e.index]);
        } else if constexpr (requires { e.part; }) {
            j.key(e.name);
            write_field_value(j, e.in(v));
        } else if constexpr (requires { e.name; }) {
            j.key(e.name);
            write_field_value(j, v.*e.member);
        } else {
            write_fields(j, e.in(v));
        }
    });
}

}  // namespace souk
