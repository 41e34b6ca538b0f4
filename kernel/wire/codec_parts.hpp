// SPDX-License-Identifier: GPL-2.0-or-later
// The codec files share this; nothing else includes it. Arena: memory of one message, bounded,
// freed at once. Check: collects the first field that is not what it may be. SOUK_WIRE_CODEC is for
// a message that needs a codec of its own; the others have a list of fields (field_codec.hpp).
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/fields.hpp"
#include "kernel/base/ids.hpp"
#include "kernel/base/money.hpp"
#include "kernel/base/time.hpp"
#include "kernel/wire/codec.hpp"
#include "kernel/wire/wire.pb-c.h"

namespace souk::wire {

class Arena {
  public:
    explicit Arena(size_t bytes_max, bool saturates = false)
        : saturates_(saturates), left_(bytes_max) {}
    // Numbers that are written through it are brought within their rules.
    bool saturates() const { return saturates_; }
    // Zeroed, aligned for any type; null when the bound is reached.
    void* allocate(size_t bytes);
    template <class T>
    T* array(size_t n) {
        // T may be a pointer.
        // NOLINTNEXTLINE(bugprone-sizeof-expression)
        return static_cast<T*>(allocate(n * sizeof(T) + 1));
    }

  private:
    std::vector<std::unique_ptr<char[]>> blocks_;
    char* next_ = nullptr;
    size_t in_block_ = 0;
    bool saturates_;
    size_t left_;
};

inline constexpr size_t line_max = 1024;  // a line for people

class Check {
  public:
    explicit Check(const char* message) : message_(message) {}
    bool ok() const { return error_.empty(); }
    const std::string& error() const { return error_; }
    void bad(const char* field, const std::string& what);

    template <std::integral T>
    T in(const char* field, T value, T lo, T hi) {
        if (value < lo || value > hi) {
            bad(field, std::to_string(value) + " is not in " + std::to_string(lo) + " to " +
                           std::to_string(hi));
            return lo;
        }
        return value;
    }
    Money price(const char* field, int64_t micro, int64_t lo = 0) {
        return {in(field, micro, lo, money_max.micro)};
    }
    Nanos span(const char* field, int64_t ns) {
        return {in<int64_t>(field, ns, 0, rule::span_ns_max)};
    }
    int64_t megabytes(const char* field, int64_t mb) {
        return in<int64_t>(field, mb, 0, rule::megabytes_max);
    }
    int32_t cpus(const char* field, int32_t n) { return in(field, n, 1, rule::cpus_max); }
    NodeName node(const char* field, const char* name);
    NodeName node_or_none(const char* field, const char* name) {
        return *name ? node(field, name) : NodeName();
    }
    // host:port, or nothing.
    std::string address(const char* field, const char* text);
    JobId job(const Pb__JobId* id);
    std::string strategy(const char* field, const char* text);
    // Bytes of a stream.
    std::string data(const char* field, const ProtobufCBinaryData& bytes, size_t n_max);
    // A string for the kernel: no NUL inside.
    std::string c_string(const char* field, const ProtobufCBinaryData& bytes, size_t n_max);

  private:
    const char* message_;
    std::string error_;
};

// A line for people: control and format characters as blanks (kernel/base/text), at most n_max
// bytes, cut between characters.
std::string clean(std::string_view text, size_t n_max = line_max);

Pb__JobId* fill_id(const JobId& id, Arena& arena);
char* fill_string(const std::string& text, Arena& arena);  // points into `text`
char* fill_line(std::string_view text, Arena& arena, size_t n_max = line_max);
ProtobufCBinaryData fill_bytes(std::string_view bytes);  // points into `bytes`

std::string serialize(const ProtobufCMessage& message);
// Returns null if the bytes are not such a message or need more than a bounded multiple of their
// length.
const ProtobufCMessage* parse_into(Arena& arena, const ProtobufCMessageDescriptor& descriptor,
                                   std::string_view bytes);
size_t arena_bytes_for(size_t message_bytes);

template <class T, class Pb>
Result<T> parse(const ProtobufCMessageDescriptor& descriptor, std::string_view bytes,
                T (*take)(const Pb&, Check&)) {
    Arena arena(arena_bytes_for(bytes.size()));
    const ProtobufCMessage* message = parse_into(arena, descriptor, bytes);
    if (!message)
        return fail(std::string(descriptor.short_name) + ": these " + std::to_string(bytes.size()) +
                    " bytes are not such a message");
    Check check(descriptor.short_name);
    T value = take(*reinterpret_cast<const Pb*>(message), check);
    if (!check.ok()) return fail(check.error());
    return value;
}

}  // namespace souk::wire

// pack() and unpack() of T from static functions `void fill(const T&, Pb&, Arena&)` and `T
// take(const Pb&, Check&)`.
#define SOUK_WIRE_CODEC(T, Pb, prefix)                          \
    std::string pack(const T& value) {                          \
        Arena arena(SIZE_MAX);                                  \
        Pb message;                                             \
        prefix##__init(&message);                               \
        fill(value, message, arena);                            \
        return serialize(message.base);                         \
    }                                                           \
    template <>                                                 \
    Result<T> unpack<T>(std::string_view bytes) {               \
        return parse<T, Pb>(prefix##__descriptor, bytes, take); \
    }
