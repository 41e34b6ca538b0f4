// SPDX-License-Identifier: GPL-2.0-or-later
// Result<T>: a value or an Error with a chain of context. Our own code throws nothing; a function
// either returns its error or logs it, never both.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tl/expected.hpp>
#include <utility>

namespace souk {

enum class CauseCode : uint16_t;

// An Error says why a call failed: `code` is an errno value where the kernel said one (0
// otherwise), `message` is one line, outermost context first ("start job n1.7: mount /proc:
// Permission denied").
struct Error {
    int code = 0;
    std::string message;
    // An error that concerns a job has these: its code (cause.hpp), and what a program that failed
    // said itself.
    CauseCode cause{};
    std::string detail = {};
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

// An error of our own making, without an errno.
tl::unexpected<Error> fail(std::string message);
// An error of a system call: appends strerror(code). Pass errno at once, before anything can change
// it.
tl::unexpected<Error> fail_errno(std::string_view what, int code);
// Makes the same error one level up: "context: message".
tl::unexpected<Error> wrap(std::string_view context, Error inner);

}  // namespace souk

#define SOUK_CONCAT_(a, b) a##b
#define SOUK_CONCAT(a, b) SOUK_CONCAT_(a, b)
// Assigns the value of a Result expression to `lhs`, or returns its error from this function.
#define TRY_ASSIGN(lhs, expr)                                                  \
    auto SOUK_CONCAT(try_, __LINE__) = (expr);                                 \
    if (!SOUK_CONCAT(try_, __LINE__))                                          \
        return tl::unexpected(std::move(SOUK_CONCAT(try_, __LINE__)).error()); \
    lhs = std::move(*SOUK_CONCAT(try_, __LINE__))
// Returns the error of a Status expression from this function.
#define TRY(expr)                                                                \
    if (auto SOUK_CONCAT(try_, __LINE__) = (expr); !SOUK_CONCAT(try_, __LINE__)) \
    return tl::unexpected(std::move(SOUK_CONCAT(try_, __LINE__)).error())
