// SPDX-License-Identifier: GPL-2.0-or-later
// Messages as bytes and back (protobuf-c; the .proto files say the numbers). pack() cannot fail.
// unpack() believes nothing: every enum, name, length, count and amount is checked, so that no
// bytes from outside can break an invariant of the machines; its error is one line that names the
// message and the field. Lines for people (comment, why, user, name, command, text) are cleaned
// instead: control characters become blanks and what is too long is cut, both ways. What a field
// may be is said once, in codec_parts.hpp and at its check.
//
// Each room with messages has a table of them: the struct, the name and number of its frame, and
// how long that may be. A receiver looks at the type and the length alone before it reads a frame's
// body: a type that is not among the connection's words or a longer frame ends the connection.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernel/base/result.hpp"
#include "kernel/trust/subject.hpp"
#include "kernel/wire/frame.hpp"
#include "kernel/wire/messages.hpp"

namespace souk::wire {

template <class T>
Result<T> unpack(std::string_view bytes) = delete;  // only the messages of the tables
template <class T>
inline constexpr FrameType frame_type = FrameType{};

// Longest bodies, in bytes.
inline constexpr uint32_t small_bytes = 16 * 1024, report_bytes = 256 * 1024,
                          list_bytes = 2 * 1024 * 1024;

#define SOUK_WIRE_DECLARE(T, name, number, bytes_max) \
    namespace frame {                                 \
    inline constexpr FrameType name{number};          \
    }                                                 \
    std::string pack(const T& message);               \
    template <>                                       \
    Result<T> unpack<T>(std::string_view bytes);      \
    template <>                                       \
    inline constexpr FrameType frame_type<T> = frame::name;
#define SOUK_WIRE_BYTES_MAX(T, name, number, bytes_max) \
    if (type == FrameType{number}) return bytes_max;

SOUK_COMMON_WORDS(SOUK_WIRE_DECLARE)

// A table of authority says in each line: a kind of peer, a word, and of nodes also the role that
// its certificate must have for that word (`node`: either) and what the word may be about.
#define SOUK_WIRE_MAY(who, name, ...) \
    if (type == frame::name) return words(type);
inline constexpr trust::Roles needs_home = trust::only(trust::Role::home),
                              needs_provider = trust::only(trust::Role::provider),
                              needs_node = trust::node_roles;
#define SOUK_WIRE_NEEDS(who, name, role, ...) \
    if (type == frame::name) return needs_##role;
// A function of what a peer may say: the lines of a table of authority, of the words `all`.
#define SOUK_WIRE_ALLOWED(function, all, TABLE) \
    inline uint32_t function(FrameType type) {  \
        constexpr auto words = all;             \
        TABLE(SOUK_WIRE_MAY)                    \
        return 0;                               \
    }

// Tells whether a node with these roles may say that.
#define SOUK_WIRE_HAS_ROLE(function, TABLE)                    \
    inline bool function(trust::Roles roles, FrameType type) { \
        const auto needed = [&]() -> trust::Roles {            \
            TABLE(SOUK_WIRE_NEEDS)                             \
            return {};                                         \
        };                                                     \
        return (roles.bits & needed().bits) != 0;              \
    }

// The words of any connection.
constexpr uint32_t common_words(FrameType type) {
    SOUK_COMMON_WORDS(SOUK_WIRE_BYTES_MAX)
    return 0;
}

}  // namespace souk::wire
