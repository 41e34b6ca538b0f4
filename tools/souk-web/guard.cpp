// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk-web/guard.hpp"

#include <algorithm>

#include "kernel/trust/openssl.hpp"
#include "tools/souk-web/logins.hpp"

namespace souk::tools::web {
namespace {

std::string lower(std::string_view text) {
    std::string all(text);
    std::transform(all.begin(), all.end(), all.begin(),
                   [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
    return all;
}

// "name:80" without the port, "[::1]:80" too.
std::string_view without_port(std::string_view host) {
    const size_t colon = host.rfind(':');
    if (colon == std::string_view::npos || host.ends_with(']')) return host;
    return host.substr(0, colon);
}

}  // namespace

Guard::Guard(const Options& o, uint16_t port)
    : name_("souk-" + std::to_string(port)), key_(o.key), open_(o.open) {
    const std::string at = ":" + std::to_string(port);
    for (const char* own : {"localhost", "127.0.0.1", "[::1]"}) own_.push_back(own + at);
    hosts_ = own_;
    if (o.address != "0.0.0.0" && o.address != "::")
        hosts_.push_back(
            (o.address.find(':') == std::string::npos ? o.address : "[" + o.address + "]") + at);
    for (const std::string& host : o.hosts) hosts_.push_back(lower(host));
}

bool Guard::knows_host(std::string_view host) const {
    const std::string whole = lower(host), name(without_port(whole));
    return std::any_of(hosts_.begin(), hosts_.end(),
                       [&](const std::string& known) { return known == whole || known == name; });
}

bool Guard::is_key(std::string_view text) const { return trust::is_same_secret(key_, text); }

bool Guard::lets_in(std::string_view cookies) const {
    return open_ || is_key(cookie_named(cookies, name_));
}

bool Guard::is_own_origin(std::string_view origin, std::string_view host) const {
    const bool plain = origin.starts_with("http://"), tls = origin.starts_with("https://");
    if (!plain && !tls) return false;
    const std::string name = lower(host);
    if (lower(origin.substr(plain ? 7 : 8)) != name) return false;
    return tls || std::find(own_.begin(), own_.end(), name) != own_.end();
}

std::string Guard::cookie() const {
    return name_ + "=" + key_ + "; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000";
}

}  // namespace souk::tools::web
