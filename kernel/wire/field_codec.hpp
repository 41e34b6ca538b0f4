// SPDX-License-Identifier: GPL-2.0-or-later
// A struct with a list of fields (kernel/base/fields.hpp) as a protobuf-c message and back: each
// entry of the list meets the message's field of that name. Where the fields are is looked up once
// for each pair of struct and message; a name or type that does not fit is a bug, found by the
// first use and by the unit test of lists. Codec files alone include it. What no rule of one field
// can say (this field needs that one) is said by `also_check<T>`.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernel/base/fields.hpp"
#include "kernel/base/ipv4.hpp"
#include "kernel/wire/codec_parts.hpp"

namespace souk::wire {

// Called with a value whose fields are good one by one: refuses it by Check::bad, or puts right
// what depends on another field.
template <class T>
inline constexpr auto also_check = nullptr;

// A field of a message: where its value lies, and how.
struct Slot {
    enum class Kind : uint8_t { signed32, unsigned32, bits64, string, bytes, other };
    const ProtobufCFieldDescriptor* field = nullptr;
    uint32_t offset = 0, count_offset = 0;
    Kind kind = Kind::other;
    // The field of that name; a bug if there is none.
    static Slot of(const ProtobufCMessageDescriptor& message, const char* name);
    const ProtobufCMessageDescriptor& message() const {
        return *static_cast<const ProtobufCMessageDescriptor*>(field->descriptor);
    }
    template <class T>
    T& in(char* message) const {
        return *reinterpret_cast<T*>(message + offset);
    }
    template <class T>
    const T& in(const char* message) const {
        return *reinterpret_cast<const T*>(message + offset);
    }
    size_t& count(char* message) const {
        return *reinterpret_cast<size_t*>(message + count_offset);
    }
    size_t count(const char* message) const {
        return *reinterpret_cast<const size_t*>(message + count_offset);
    }
};

// ---- numbers: integers, enums, and structs of one integer

template <class T>
concept Number = std::integral<T> || std::is_enum_v<T> || std::same_as<T, Nanos> ||
    std::same_as<T, Money> || std::same_as<T, Epoch> || std::same_as<T, Ipv4>;

template <Number T>
constexpr auto number_of(const T& v) {
    if constexpr (std::same_as<T, Nanos>)
        return v.ns;
    else if constexpr (std::same_as<T, Money>)
        return v.micro;
    else if constexpr (std::same_as<T, Epoch> || std::same_as<T, Ipv4>)
        return v.n;
    else if constexpr (std::is_enum_v<T>)
        return static_cast<uint32_t>(v);
    else
        return v;
}
template <Number T>
constexpr T number_as(auto n) {
    if constexpr (std::integral<T> || std::is_enum_v<T>)
        return static_cast<T>(n);
    else
        return T{static_cast<decltype(number_of(T{}))>(n)};
}

inline void write_number(const Slot& slot, char* message, uint64_t n) {
    if (slot.kind == Slot::Kind::bits64)
        slot.in<uint64_t>(message) = n;
    else
        slot.in<uint32_t>(message) = static_cast<uint32_t>(n);
}
inline uint64_t read_number(const Slot& slot, const char* message) {
    if (slot.kind == Slot::Kind::bits64) return slot.in<uint64_t>(message);
    if (slot.kind == Slot::Kind::signed32)
        return static_cast<uint64_t>(int64_t{slot.in<int32_t>(message)});
    return slot.in<uint32_t>(message);
}
// `n` if it is within; else c.bad() with the field's name, and lo.
inline int64_t check_signed(const Slot& slot, int64_t n, int64_t lo, int64_t hi, Check& c) {
    if (n >= lo && n <= hi) [[likely]]
        return n;
    return c.in(slot.field->name, n, lo, hi);
}
inline uint64_t check_unsigned(const Slot& slot, uint64_t n, int64_t lo, int64_t hi, Check& c) {
    const uint64_t least = lo < 0 ? 0 : static_cast<uint64_t>(lo);
    const uint64_t most = hi == INT64_MAX ? UINT64_MAX : static_cast<uint64_t>(hi);
    if (n >= least && n <= most) [[likely]]
        return n;
    return c.in(slot.field->name, n, least, most);
}

// The nearest number that its reader takes.
template <std::integral N>
constexpr N saturated(N n, const Rule& rule) {
    if constexpr (std::is_signed_v<N>)
        return static_cast<N>(std::clamp<int64_t>(n, rule.lo, rule.hi));
    else if (rule.hi == INT64_MAX && rule.lo <= 0)
        return n;
    return static_cast<N>(std::clamp<uint64_t>(
        n, static_cast<uint64_t>(std::max<int64_t>(rule.lo, 0)), static_cast<uint64_t>(rule.hi)));
}

template <Number T>
[[gnu::always_inline]] inline void put(const T& v, const Rule& rule, const Slot& slot,
                                       char* message, Arena& arena) {
    if constexpr (std::same_as<T, bool>) {
        slot.in<protobuf_c_boolean>(message) = v;
    } else {
        auto number = number_of(v);
        if (arena.saturates() && (!rule.none || static_cast<int64_t>(number) != *rule.none))
            number = saturated(number, rule);
        const auto n = static_cast<uint64_t>(number);
        if (rule.none && n == static_cast<uint64_t>(*rule.none)) return;
        write_number(slot, message, n + static_cast<uint64_t>(rule.plus));
    }
}
template <Number T>
[[gnu::always_inline]] inline void get(T& v, const Rule& rule, const Slot& slot,
                                       const char* message, Check& c) {
    if constexpr (std::same_as<T, bool>) {
        v = slot.in<protobuf_c_boolean>(message) != 0;
        return;
    } else {
        using N = decltype(number_of(v));
        const uint64_t n = read_number(slot, message);
        if (rule.none && n == 0) {
            v = number_as<T>(*rule.none);
        } else if constexpr (std::is_signed_v<N>) {
            const int64_t good =
                check_signed(slot, static_cast<int64_t>(n), rule.lo + rule.plus,
                             rule.hi == INT64_MAX ? INT64_MAX : rule.hi + rule.plus, c);
            v = number_as<T>(good - rule.plus);
        } else {
            v = number_as<T>(check_unsigned(slot, n, rule.lo, rule.hi, c));
        }
    }
}

// ---- texts

void put(const std::string& v, const Rule& rule, const Slot& slot, char* message, Arena& arena);
void get(std::string& v, const Rule& rule, const Slot& slot, const char* message, Check& c);

// ---- messages

template <class Root, Listed T>
void put_fields(const T& v, const ProtobufCMessageDescriptor& d, char* message, Arena& arena);
template <class Root, Listed T>
void get_fields(T& v, const ProtobufCMessageDescriptor& d, const char* message, Check& c);

char* new_message(const ProtobufCMessageDescriptor& d, Arena& arena);

template <Listed T>
char* put_message(const T& v, const ProtobufCMessageDescriptor& d, Arena& arena) {
    char* message = new_message(d, arena);
    put_fields<T>(v, d, message, arena);
    return message;
}
template <Listed T>
void get_message(T& v, const ProtobufCMessageDescriptor& d, const char* message, Check& c) {
    get_fields<T>(v, d, message, c);
    if constexpr (!std::is_null_pointer_v<std::remove_cv_t<decltype(also_check<T>)>>)
        also_check<T>(v, c);
}

template <Listed T>
void put(const T& v, const Rule& rule, const Slot& slot, char* message, Arena& arena) {
    if (rule.presence == Presence::unless_same && v == T{}) return;
    slot.in<char*>(message) = put_message(v, slot.message(), arena);
}
template <Listed T>
void get(T& v, const Rule& rule, const Slot& slot, const char* message, Check& c) {
    const char* inner = slot.in<const char*>(message);
    if (inner)
        get_message(v, slot.message(), inner, c);
    else if (rule.presence == Presence::required)
        c.bad(slot.field->name, "missing");
}

// A job's name is a message, but to its reader one value.
[[gnu::always_inline]] inline void put(const JobId& v, const Rule&, const Slot& slot, char* message,
                                       Arena& arena) {
    slot.in<Pb__JobId*>(message) = fill_id(v, arena);
}
[[gnu::always_inline]] inline void get(JobId& v, const Rule&, const Slot& slot, const char* message,
                                       Check& c) {
    v = c.job(slot.in<const Pb__JobId*>(message));
}

// ---- lists

void put_strings(const std::string* from, size_t n, const Rule& rule, const Slot& slot,
                 char* message, Arena& arena);
void get_strings(std::vector<std::string>& v, const Rule& rule, const Slot& slot,
                 const char* message, Check& c);
bool too_many(size_t n, const Rule& rule, const Slot& slot, Check& c);

template <class E>
void put(const std::vector<E>& v, const Rule& rule, const Slot& slot, char* message, Arena& arena) {
    const size_t first =
        rule.newest && v.size() > rule.entries_max ? v.size() - rule.entries_max : 0;
    const size_t n = v.size() - first;
    if constexpr (std::same_as<E, std::string>) {
        put_strings(v.data() + first, n, rule, slot, message, arena);
    } else if constexpr (std::same_as<E, uint32_t>) {
        slot.in<const uint32_t*>(message) = v.data() + first;
    } else {
        char** to = slot.in<char**>(message) = arena.array<char*>(n);
        for (size_t i = 0; i < n; ++i) to[i] = put_message(v[first + i], slot.message(), arena);
    }
    slot.count(message) = n;
}
template <class E>
void get(std::vector<E>& v, const Rule& rule, const Slot& slot, const char* message, Check& c) {
    const size_t n = slot.count(message);
    if (too_many(n, rule, slot, c)) return;
    if constexpr (std::same_as<E, std::string>) {
        get_strings(v, rule, slot, message, c);
    } else if constexpr (std::same_as<E, uint32_t>) {
        const uint32_t* from = slot.in<const uint32_t*>(message);
        if (n > 0) v.assign(from, from + n);
    } else {
        const char* const* from = slot.in<const char* const*>(message);
        v.reserve(n);
        for (size_t i = 0; i < n && c.ok(); ++i)
            get_message(v.emplace_back(), slot.message(), from[i], c);
    }
}

// ---- what is rarely there

template <class T>
void put(const Sparse<T>& v, const Rule& rule, const Slot& slot, char* message, Arena& arena) {
    put(*v, rule, slot, message, arena);
}
template <class T>
void get(Sparse<T>& v, const Rule& rule, const Slot& slot, const char* message, Check& c) {
    T value{};
    get(value, rule, slot, message, c);
    v = std::move(value);
}

// ---- packed messages
inline void put_packed(const std::string& bytes, const Slot& slot, char* message, Arena& arena) {
    char* copy = arena.array<char>(bytes.size());
    std::copy(bytes.begin(), bytes.end(), copy);
    slot.in<ProtobufCBinaryData>(message) = {bytes.size(), reinterpret_cast<uint8_t*>(copy)};
}
template <class T>
void get_packed(T& v, const Slot& slot, const char* message, Check& c) {
    const auto& bytes = slot.in<ProtobufCBinaryData>(message);
    auto value = unpack<T>({reinterpret_cast<const char*>(bytes.data), bytes.len});
    if (value)
        v = std::move(*value);
    else
        c.bad(slot.field->name, value.error().message);
}

// ---- entries

// Holds for each entry the slot of its field, and for an Optional that of its bits.
template <class Root, Listed T>
struct Slots {
    static constexpr size_t n = std::tuple_size_v<std::remove_const_t<decltype(fields_of<T>)>>;
    std::array<Slot, n> slot;
    std::array<Slot, n> bits;
    explicit Slots(const ProtobufCMessageDescriptor& d) {
        size_t i = 0;
        for_each_field<T>([&]<class Entry>(const Entry& entry) {
            // An entry that is not written has no slot, a flat one has those of its own list.
            if constexpr (
                requires { entry.name; } && !requires { Entry::unsent; })
                slot[i] = Slot::of(d, entry.name);
            if constexpr (requires { entry.bits; }) bits[i] = Slot::of(d, entry.bits);
            ++i;
        });
    }
    static const Slots& of(const ProtobufCMessageDescriptor& d) {
        static const Slots slots(d);
        return slots;
    }
};

template <class T, class M>
[[gnu::always_inline]] inline void put_entry(const T& v, const FieldEntry<T, M>& e, const Slot& at,
                                             char* message, Arena& arena) {
    put(v.*e.member, e.rule, at, message, arena);
}
template <class T, class M>
[[gnu::always_inline]] inline void get_entry(T& v, const FieldEntry<T, M>& e, const Slot& at,
                                             const char* message, Check& c) {
    get(v.*e.member, e.rule, at, message, c);
}
template <class T, class M, size_t N>
[[gnu::always_inline]] inline void put_entry(const T& v, const Element<T, M, N>& e, const Slot& at,
                                             char* message, Arena& arena) {
    put((v.*e.member)[e.index], e.rule, at, message, arena);
}
template <class T, class M, size_t N>
[[gnu::always_inline]] inline void get_entry(T& v, const Element<T, M, N>& e, const Slot& at,
                                             const char* message, Check& c) {
    get((v.*e.member)[e.index], e.rule, at, message, c);
}
template <class T, class M, class P, class Inner>
[[gnu::always_inline]] inline void put_entry(const T& v, const Part<T, M, P, Inner>& e,
                                             const Slot& at, char* message, Arena& arena) {
    put(e.in(v), e.rule, at, message, arena);
}
template <class T, class M, class P, class Inner>
[[gnu::always_inline]] inline void get_entry(T& v, const Part<T, M, P, Inner>& e, const Slot& at,
                                             const char* message, Check& c) {
    P value = e.in(v);
    get(value, e.rule, at, message, c);
    if (value == e.in(v)) return;
    if constexpr (std::same_as<M, Inner>)
        (v.*e.member).*e.part = std::move(value);
    else
        (v.*e.member).edit().*e.part = std::move(value);
}
template <class T, class M>
[[gnu::always_inline]] inline void put_entry(const T&, const Unsent<T, M>&, const Slot&, char*,
                                             Arena&) {}
template <class T, class M>
[[gnu::always_inline]] inline void get_entry(T&, const Unsent<T, M>&, const Slot&, const char*,
                                             Check&) {}

template <class T, class M>
[[gnu::always_inline]] inline void put_entry(const T& v, const Packed<T, M>& e, const Slot& at,
                                             char* message, Arena& arena) {
    put_packed(pack(v.*e.member), at, message, arena);
}
template <class T, class M>
[[gnu::always_inline]] inline void get_entry(T& v, const Packed<T, M>& e, const Slot& at,
                                             const char* message, Check& c) {
    get_packed(v.*e.member, at, message, c);
}
template <class T, class M>
[[gnu::always_inline]] inline void put_entry(const T& v, const Packed<T, Rare<M>>& e,
                                             const Slot& at, char* message, Arena& arena) {
    if (v.*e.member) put_packed(pack(*(v.*e.member)), at, message, arena);
}
template <class T, class M>
[[gnu::always_inline]] inline void get_entry(T& v, const Packed<T, Rare<M>>& e, const Slot& at,
                                             const char* message, Check& c) {
    if (at.in<ProtobufCBinaryData>(message).len > 0)
        get_packed((v.*e.member).emplace(), at, message, c);
}
template <class T, class M>
[[gnu::always_inline]] inline void put_entry(const T& v, const PackedIf<T, M>& e, const Slot& at,
                                             char* message, Arena& arena) {
    if (v.*e.has) put_packed(pack(v.*e.member), at, message, arena);
}
template <class T, class M>
[[gnu::always_inline]] inline void get_entry(T& v, const PackedIf<T, M>& e, const Slot& at,
                                             const char* message, Check& c) {
    v.*e.has = at.in<ProtobufCBinaryData>(message).len > 0;
    if (v.*e.has) get_packed(v.*e.member, at, message, c);
}

template <class Root, Listed T>
void put_fields(const T& v, const ProtobufCMessageDescriptor& d, char* message, Arena& arena) {
    const auto& at = Slots<Root, T>::of(d);
    size_t i = 0;
    for_each_field<T>([&]<class Entry>(const Entry& e) __attribute__((always_inline)) {
        if constexpr (requires { e.bits; }) {
            if (const auto& value = v.*e.member) {
                at.bits[i].template in<uint32_t>(message) |= e.bit;
                put(*value, e.rule, at.slot[i], message, arena);
            }
        } else if constexpr (requires { e.name; }) {
            put_entry(v, e, at.slot[i], message, arena);
        } else {
            put_fields<Root>(e.in(v), d, message, arena);
        }
        ++i;
    });
}

template <class Root, Listed T>
void get_fields(T& v, const ProtobufCMessageDescriptor& d, const char* message, Check& c) {
    const auto& at = Slots<Root, T>::of(d);
    size_t i = 0;
    for_each_field<T>([&]<class Entry>(const Entry& e) __attribute__((always_inline)) {
        if constexpr (requires { e.bits; }) {
            if (at.bits[i].template in<uint32_t>(message) & e.bit)
                get((v.*e.member).emplace(), e.rule, at.slot[i], message, c);
        } else if constexpr (requires { e.name; }) {
            get_entry(v, e, at.slot[i], message, c);
        } else if constexpr (requires { (v.*e.member).stored(); }) {
            auto value = e.in(v);
            get_fields<Root>(value, d, message, c);
            v.*e.member = std::move(value);
        } else {
            get_fields<Root>(v.*e.member, d, message, c);
        }
        ++i;
    });
}

// ---- whole messages

// `saturates`: what is written can be read, whatever its numbers were. A sum ends at its limit.
template <Listed T>
std::string pack_listed(const T& value, const ProtobufCMessageDescriptor& d, bool saturates) {
    Arena arena(SIZE_MAX, saturates);
    return serialize(*reinterpret_cast<ProtobufCMessage*>(put_message(value, d, arena)));
}

template <Listed T>
Result<T> unpack_listed(const ProtobufCMessageDescriptor& d, std::string_view bytes) {
    Arena arena(arena_bytes_for(bytes.size()));
    const ProtobufCMessage* message = parse_into(arena, d, bytes);
    if (!message)
        return fail(std::string(d.short_name) + ": these " + std::to_string(bytes.size()) +
                    " bytes are not such a message");
    Check check(d.short_name);
    T value;
    get_message(value, d, reinterpret_cast<const char*>(message), check);
    if (!check.ok()) return fail(check.error());
    return value;
}

}  // namespace souk::wire

// pack() and unpack() of a struct that has a list of fields: of a line of a table of words, and of
// a record, whose numbers saturate.
#define SOUK_LISTED_CODEC(T, prefix, saturates)                     \
    std::string pack(const T& value) {                              \
        return pack_listed(value, prefix##__descriptor, saturates); \
    }                                                               \
    template <>                                                     \
    Result<T> unpack<T>(std::string_view bytes) {                   \
        return unpack_listed<T>(prefix##__descriptor, bytes);       \
    }
#define SOUK_WIRE_LISTED(T, name, ...) SOUK_LISTED_CODEC(T, pb__##name, false)
#define SOUK_RECORD_CODEC(T, prefix) SOUK_LISTED_CODEC(T, prefix, true)
