// SPDX-License-Identifier: GPL-2.0-or-later
// One list of fields for each struct that is stored or sent. What reads the lists: the codec
// (kernel/wire/field_codec.hpp), the comparison below, and JSON (field_json.hpp). A list names each
// field as the .proto file does, and says what values it may have; the codec refuses others on the
// way in.
//
//     SOUK_FIELDS(Orphan, field("peer", &Orphan::peer),
//                 field("epoch", &Orphan::epoch, rule::count));
//
// A list that leaves out a field does not compile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "kernel/base/money.hpp"
#include "kernel/base/rare.hpp"

namespace souk {

enum class TextRule : uint8_t {
    line,          // for people: cleaned of control characters and cut, both ways
    as_is,         // no rule, but no NUL
    node,          // the name of a node
    node_or_none,  // or nothing
    address,       // a NodeAddress, or nothing
    label,         // for people, given by a user: refused with control characters
    strategy,      // at most 31 characters, no quote
    bytes,         // any; too many are refused
    c_string,      // bytes without a NUL
};

enum class Presence : uint8_t {
    always,       // written always; absent: a default one
    required,     // absent: refused
    unless_same,  // not written when it is as a default one
};

// A rule says which values a field may have. Numbers must be within [lo, hi]. Members of a rule
// that the field's type does not use are ignored.
struct Rule {
    int64_t lo = INT64_MIN, hi = INT64_MAX;
    int64_t plus = 0;             // written so much greater, so that an absent one reads as -plus
    std::optional<int64_t> none;  // this value is written as 0, and 0 is read as this
    TextRule text = TextRule::line;
    size_t bytes_max = 1024;
    Presence presence = Presence::always;
    size_t entries_max = SIZE_MAX;
    bool newest = false;  // of more than entries_max only the last are written
};

namespace rule {

// Spans and amounts stay so far below 2^63 that the sum of any few cannot overflow.
inline constexpr int64_t span_ns_max = 1'000'000'000'000'000'000;  // 31 years
inline constexpr int64_t time_ns_max = 4'000'000'000'000'000'000;  // until 2096
inline constexpr int64_t amount_micro_max = 1'000'000'000'000'000'000;
inline constexpr int64_t megabytes_max = int64_t{1} << 40;
inline constexpr int64_t bytes_max = int64_t{1} << 60;
inline constexpr uint64_t counter_max = uint64_t{1} << 62;
inline constexpr int32_t cpus_max = 65'536;
inline constexpr size_t name_bytes_max = 255;

constexpr Rule between(int64_t lo, int64_t hi) {
    Rule r;
    r.lo = lo;
    r.hi = hi;
    return r;
}
template <class E>
constexpr Rule one_of(E first, E last) {
    return between(static_cast<int64_t>(first), static_cast<int64_t>(last));
}
constexpr Rule plus(int64_t n, Rule r) {
    r.plus = n;
    r.lo -= n;
    r.hi -= n;
    return r;
}
constexpr Rule zero_is(int64_t value, Rule r) {
    r.none = value;
    return r;
}
constexpr Rule text(TextRule kind, size_t n_max = SIZE_MAX) {
    Rule r;
    r.text = kind;
    r.bytes_max = n_max;
    return r;
}
constexpr Rule present(Presence presence) {
    Rule r;
    r.presence = presence;
    return r;
}
constexpr Rule at_most(size_t entries, Rule r = {}, bool newest = false) {
    r.entries_max = entries;
    r.newest = newest;
    return r;
}

inline constexpr Rule any{};
inline constexpr Rule span = between(0, span_ns_max);
inline constexpr Rule known_span = plus(1, span);  // -1: not known
inline constexpr Rule time = between(0, time_ns_max);
inline constexpr Rule price = between(0, money_max.micro);
inline constexpr Rule amount = between(0, amount_micro_max);
inline constexpr Rule balance = between(-amount_micro_max, amount_micro_max);
inline constexpr Rule count = between(0, static_cast<int64_t>(counter_max));  // epochs, offsets
inline constexpr Rule megabytes = between(0, megabytes_max);
inline constexpr Rule bytes = between(0, bytes_max);
inline constexpr Rule cpus = between(1, cpus_max);
inline constexpr Rule name = text(TextRule::line, name_bytes_max);
inline constexpr Rule node = text(TextRule::node);
inline constexpr Rule node_or_none = text(TextRule::node_or_none);
inline constexpr Rule address = text(TextRule::address);
inline constexpr Rule required = present(Presence::required);
inline constexpr Rule unless_same = present(Presence::unless_same);

}  // namespace rule

// ---- entries of a list

template <class T, class M>
struct FieldEntry {
    static constexpr size_t members = 1;
    const char* name;
    M T::*member;
    Rule rule;
};
// Names one element of an array member, the one with number `index`.
template <class T, class M, size_t N>
struct Element {
    static constexpr size_t members = 1;
    const char* name;
    M (T::*member)[N];
    size_t index;
    Rule rule;
};
// Names a member of a member that has an entry of its own before.
template <class T, class M, class P, class Inner = M>
struct Part {
    static constexpr size_t members = 0;
    const char* name;
    M T::*member;
    P Inner::*part;
    Rule rule;
    const P& in(const T& v) const { return static_cast<const Inner&>(v.*member).*part; }
};
// A struct whose fields are written as if they were the outer one's own.
template <class T, class M, class Inner = M>
struct Flat {
    static constexpr size_t members = 1;
    M T::*member;
    const Inner& in(const T& v) const { return v.*member; }
};
// A member that is not written.
template <class T, class M>
struct Unsent {
    static constexpr size_t members = 1;
    static constexpr bool unsent = true;
    const char* name;
    M T::*member;
};
// A message, packed into one field; M may be an optional, absent when that is empty.
template <class T, class M>
struct Packed {
    static constexpr size_t members = 1;
    const char* name;
    M T::*member;
};
// The same as Packed, but absent when `has` is false.
template <class T, class M>
struct PackedIf {
    static constexpr size_t members = 2;
    const char* name;
    bool T::*has;
    M T::*member;
};
// An optional; bit `bit` of the field `bits` says that it is there.
template <class T, class M>
struct Optional {
    static constexpr size_t members = 1;
    const char* name;
    std::optional<M> T::*member;
    const char* bits;
    uint32_t bit;
    Rule rule;
};

template <class T, class M>
constexpr FieldEntry<T, M> field(const char* name, M T::*member, Rule rule = {}) {
    return {name, member, rule};
}
template <class T, class M, size_t N>
constexpr Element<T, M, N> element(const char* name, M (T::*member)[N], size_t index,
                                   Rule rule = {}) {
    return {name, member, index, rule};
}
template <class T, class M, class Base, class P>
constexpr Part<T, M, P> part(const char* name, M T::*member, P Base::*inner, Rule rule = {}) {
    return {name, member, inner, rule};
}
template <class T, class M, class Base, class P>
constexpr Part<T, Sparse<M>, P, M> part(const char* name, Sparse<M> T::*member, P Base::*inner,
                                        Rule rule = {}) {
    return {name, member, inner, rule};
}
template <class T, class M>
constexpr Flat<T, M> flat(M T::*member) {
    return {member};
}
template <class T, class M>
constexpr Flat<T, Sparse<M>, M> flat(Sparse<M> T::*member) {
    return {member};
}
template <class T, class M>
constexpr Unsent<T, M> unsent(const char* name, M T::*member) {
    return {name, member};
}
template <class T, class M>
constexpr Packed<T, M> packed(const char* name, M T::*member) {
    return {name, member};
}
template <class T, class M>
constexpr PackedIf<T, M> packed_if(bool T::*has, const char* name, M T::*member) {
    return {name, has, member};
}
template <class T, class M>
constexpr Optional<T, M> optional(const char* name, std::optional<M> T::*member, const char* bits,
                                  uint32_t bit, Rule rule) {
    return {name, member, bits, bit, rule};
}

// ---- lists

template <class T>
inline constexpr std::nullptr_t fields_of = nullptr;  // SOUK_FIELDS makes it a tuple of entries

template <class T>
concept Listed = !std::is_same_v<std::remove_const_t<decltype(fields_of<T>)>, std::nullptr_t>;

namespace detail {

struct AnyValue {
    template <class T>
    operator T() const;
};
template <class T, size_t... I>
constexpr bool takes(std::index_sequence<I...>) {
    return requires { T{(static_cast<void>(I), AnyValue{})...}; };
}
// Returns how many values T's braces take: one for each member, one for each element of an array.
template <class T, size_t N = 0>
constexpr size_t member_count() {
    if constexpr (takes<T>(std::make_index_sequence<N + 1>{}))
        return member_count<T, N + 1>();
    else
        return N;
}
template <class T>
constexpr size_t listed_count() {
    return std::apply([](const auto&... entry) { return (size_t{0} + ... + entry.members); },
                      fields_of<T>);
}

}  // namespace detail

// Calls f(entry) for each entry of T's list, in order.
template <Listed T, class F>
[[gnu::always_inline]] constexpr void for_each_field(F&& f) {
    [&]<size_t... I>(std::index_sequence<I...>) __attribute__((always_inline)) {
        (f(std::get<I>(fields_of<T>)), ...);
    }
    (std::make_index_sequence<std::tuple_size_v<std::remove_const_t<decltype(fields_of<T>)>>>{});
}

// The names of the fields in which two records differ: "phase epoch at"; empty: they are equal.
template <Listed T>
std::string changed_fields(const T& a, const T& b) {
    std::string names;
    const auto differs = [&](const char* name, bool differ) {
        if (differ) names += (names.empty() ? "" : " ") + std::string(name);
    };
    for_each_field<T>([&]<class Entry>(const Entry& e) {
        if constexpr (requires { e.index; })
            differs(e.name, (a.*e.member)[e.index] != (b.*e.member)[e.index]);
        else if constexpr (requires { e.part; })
            differs(e.name, !(e.in(a) == e.in(b)));
        else if constexpr (requires { e.name; })
            differs(e.name, !(a.*e.member == b.*e.member));
        else if (const std::string inner = changed_fields(e.in(a), e.in(b)); !inner.empty())
            names += (names.empty() ? "" : " ") + inner;
    });
    return names;
}

}  // namespace souk

// Use it in namespace souk, once for each struct.
#define SOUK_FIELDS(T, ...)                                               \
    template <>                                                           \
    inline constexpr auto fields_of<T> = std::tuple{__VA_ARGS__};         \
    static_assert(detail::listed_count<T>() == detail::member_count<T>(), \
                  #T ": its list of fields leaves one out, or names one twice")
