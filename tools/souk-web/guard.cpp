// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk-web/guard.hpp"

#include <algorithm>

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
    for (const char* own : {"localhost", "127.0.0.1", "[::1]"}) hosts_.push_back(own + at);
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

bool Guard::is_key(std::string_view text) const {
    if (key_.empty() || text.size() != key_.size()) return false;
    unsigned different = 0;
    for (size_t i = 0; i < key_.size(); ++i)
        different |= static_cast<unsigned char>(text[i]) ^ static_cast<unsigned char>(key_[i]);
    return different == 0;
}

bool Guard::lets_in(std::string_view cookies) const {
    if (open_) return true;
    while (!cookies.empty()) {
        const size_t end = std::min(cookies.find(';'), cookies.size());
        std::string_view one = cookies.substr(0, end);
        cookies.remove_prefix(std::min(end + 1, cookies.size()));
        one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
        if (one.starts_with(name_ + "=") && is_key(one.substr(name_.size() + 1))) return true;
    }
    return false;
}

std::string Guard::cookie() const {
    return name_ + "=" + key_ + "; Path=/; HttpOnly; SameSite=Strict; Max-Age=2592000";
}

}  // namespace souk::tools::web
