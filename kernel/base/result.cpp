// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/result.hpp"

#include <cstring>

namespace souk {

tl::unexpected<Error> fail(std::string message) {
    return tl::unexpected(Error{0, std::move(message)});
}

tl::unexpected<Error> fail_errno(std::string_view what, int code) {
    char buf[128];
    std::string message(what);
    message += ": ";
    message += strerror_r(code, buf, sizeof buf);  // the GNU form returns the text
    return tl::unexpected(Error{code, std::move(message)});
}

tl::unexpected<Error> wrap(std::string_view context, Error inner) {
    inner.message.insert(0, ": ").insert(0, context);
    return tl::unexpected(std::move(inner));
}

}  // namespace souk
