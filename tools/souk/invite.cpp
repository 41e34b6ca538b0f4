// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/invite.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "kernel/base/ids.hpp"

namespace souk {
namespace {

constexpr const char* default_port = "7070";

// Writes the address as other machines write it; empty: it is of no use to them.
std::string text_of(const sockaddr* address) {
    char text[INET6_ADDRSTRLEN] = {};
    if (address->sa_family == AF_INET) {
        sockaddr_in in{};
        std::memcpy(&in, address, sizeof in);
        return ::inet_ntop(AF_INET, &in.sin_addr, text, sizeof text) ? text : "";
    }
    if (address->sa_family != AF_INET6) return {};
    sockaddr_in6 in{};
    std::memcpy(&in, address, sizeof in);
    if (IN6_IS_ADDR_LINKLOCAL(&in.sin6_addr)) return {};
    return ::inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text) ? "[" + std::string(text) + "]"
                                                                   : "";
}

Result<std::string> own_address() {
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return fail_errno("the addresses of this machine", errno);
    const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> held(list, ::freeifaddrs);
    for (const int family : {AF_INET, AF_INET6})
        for (const ifaddrs* one = list; one; one = one->ifa_next) {
            if (!one->ifa_addr || one->ifa_addr->sa_family != family) continue;
            if (!(one->ifa_flags & IFF_UP) || (one->ifa_flags & IFF_LOOPBACK)) continue;
            if (const std::string text = text_of(one->ifa_addr); !text.empty()) return text;
        }
    return fail("this machine has no address that others reach: nodes join with souk token create");
}

}  // namespace

Result<std::vector<std::string>> names_of(const std::string& list) {
    std::vector<std::string> names;
    for (size_t at = 0; at < list.size();) {
        const size_t end = std::min(list.find(',', at), list.size());
        const std::string name = list.substr(at, end - at);
        if (!valid_node_name(name)) return fail("--nodes: '" + name + "' is not a node name");
        if (std::find(names.begin(), names.end(), name) != names.end())
            return fail("--nodes: " + name + " is there twice");
        names.push_back(name);
        at = end + 1;
    }
    return names;
}

Result<std::string> reached_at(const std::string& listen) {
    const size_t colon = listen.rfind(':');
    const std::string host = colon == listen.npos ? "" : listen.substr(0, colon);
    const std::string port = colon == listen.npos ? default_port : listen.substr(colon + 1);
    const bool any = host.empty() || host == "0.0.0.0" || host == "[::]" || host == "*";
    if (!any) return listen;
    TRY_ASSIGN(const std::string own, own_address());
    return own + ":" + port;
}

Status invite(const tools::FindSocket& find, const std::string& list, const std::string& listen) {
    constexpr Nanos patience = Nanos::from_s(20);
    TRY_ASSIGN(const std::vector<std::string> names, names_of(list));
    TRY_ASSIGN(const std::string market, reached_at(listen));
    for (const std::string& name : names) {
        TRY_ASSIGN(auto parts, tools::ask(find, "token-create",
                                          {name, "home,provider", "3600", "", ""}, patience));
        TRY_ASSIGN(const std::string text, tools::joined(std::move(parts)));
        const auto made = nlohmann::json::parse(text, nullptr, false);
        if (!made.is_object() || !made.contains("token"))
            return fail("the market made no token for " + name);
        std::printf("on %s, within an hour: souk setup node --join %s --name %s --market %s\n",
                    name.c_str(), made["token"].get<std::string>().c_str(), name.c_str(),
                    market.c_str());
    }
    return {};
}

}  // namespace souk
