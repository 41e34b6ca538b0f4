// SPDX-License-Identifier: GPL-2.0-or-later
// Logins: who has logged in at this souk-web. A browser shows a cookie; behind it stands the
// session that the market gave for the token (market/core/web_sessions.hpp), which no browser
// gets to know. In memory alone. One owner; every function may be called by any thread.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "kernel/base/result.hpp"
#include "kernel/base/time.hpp"
#include "tools/web/pages.hpp"

namespace souk::tools::web {

struct Login {
    std::string cookie;   // its value
    std::string session;  // the market's
    Nanos ends;
    Visitor visitor;
};

class Logins {
  public:
    // `port` is the one that the server listens on. It is in the cookie's name, because cookies
    // belong to a host and not to a port.
    explicit Logins(uint16_t port) : name_("souk-login-" + std::to_string(port)) {}

    // `session` is the market's answer to web-login.
    Result<Login> begin(const Json& session);
    // Finds the login by a request's Cookie header.
    std::optional<Login> of(std::string_view cookies);
    void end(const Login& login);
    // Returns the value of Set-Cookie for a login; with none it removes the cookie.
    std::string set_cookie(const Login* login, bool over_tls) const;
    // tell() keeps a text for some seconds, which told() shows the visitor on the page at this
    // path.
    void tell(const Login& login, const std::string& path, const std::string& text);
    std::string told(const Login& login, const std::string& path);

  private:
    struct Entry {
        Login login;
        std::string path, text;
        Nanos until;
    };
    Entry* find(std::string_view cookie);

    const std::string name_;
    std::mutex mutex_;
    std::vector<Entry> entries_;  // the oldest first
};

inline constexpr size_t secret_bytes = 20;  // of cookies, and of keys of forms
// The cookie of this name in a Cookie header; empty: there is none.
std::string_view cookie_named(std::string_view cookies, std::string_view name);

}  // namespace souk::tools::web
