// SPDX-License-Identifier: GPL-2.0-or-later
// Checks before any page who may ask, and under which name. Pure.
//
// A page of a stranger can make a browser ask any name that resolves to this machine. It cannot
// make the browser name this server in the Host header, so only known names are answered (DNS
// rebinding). Only a browser that has shown the key once (a link that is printed at the start) has
// the cookie.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/souk-web/options.hpp"

namespace souk::tools::web {

class Guard {
  public:
    // `port`: that it listens on.
    Guard(const Options& options, uint16_t port);

    // A Host header's value.
    bool knows_host(std::string_view host) const;
    // Tells whether this request's Cookie header has the key. Always true if souk-web is open to
    // all.
    bool lets_in(std::string_view cookies) const;
    // Is it the key? In a time that does not depend on how much of it is right.
    bool is_key(std::string_view text) const;
    // Is an Origin header's value this server, as the browser calls it by this Host? Without TLS
    // that is only on this host itself.
    bool is_own_origin(std::string_view origin, std::string_view host) const;
    // The value of Set-Cookie.
    std::string cookie() const;

  private:
    std::vector<std::string> own_;    // this host, with port
    std::vector<std::string> hosts_;  // also others, and those of --host without port
    std::string name_, key_;
    bool open_;
};

}  // namespace souk::tools::web
