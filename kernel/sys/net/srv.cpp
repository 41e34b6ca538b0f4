// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/srv.hpp"

#include <arpa/nameser.h>
#include <netdb.h>
#include <resolv.h>
#include <sys/random.h>

#include <algorithm>
#include <array>

namespace souk {

namespace {

constexpr size_t domains_max = 3;
constexpr int wait_s = 1, tries = 2;

struct Resolver {
    struct __res_state state {};
    bool ready = ::res_ninit(&state) == 0;
    Resolver() {
        state.retrans = wait_s;
        state.retry = tries;
    }
    ~Resolver() {
        if (ready) ::res_nclose(&state);
    }
    Resolver(const Resolver&) = delete;

    std::vector<std::string> domains() const {
        std::vector<std::string> all;
        for (size_t i = 0; i < MAXDNSRCH && state.dnsrch[i] && all.size() < domains_max; ++i)
            if (*state.dnsrch[i] && std::string_view(state.dnsrch[i]) != ".")
                all.emplace_back(state.dnsrch[i]);
        return all;
    }
};

uint16_t two_bytes(const uint8_t* at) { return static_cast<uint16_t>(at[0] << 8 | at[1]); }

uint64_t any_number() {
    uint64_t number = 0;
    (void)::getrandom(&number, sizeof number, GRND_NONBLOCK);
    return number;
}

}  // namespace

Result<std::vector<SrvTarget>> parse_srv(std::span<const uint8_t> message) {
    constexpr size_t fixed = 6;
    const Error bad = fail("the answer of the DNS server is damaged").value();
    ns_msg parsed;
    if (::ns_initparse(message.data(), static_cast<int>(message.size()), &parsed) != 0)
        return tl::unexpected(bad);
    std::vector<SrvTarget> targets;
    for (int i = 0; i < ns_msg_count(parsed, ns_s_an); ++i) {
        ns_rr record;
        if (::ns_parserr(&parsed, ns_s_an, i, &record) != 0) return tl::unexpected(bad);
        if (ns_rr_type(record) != ns_t_srv) continue;
        const uint8_t* data = ns_rr_rdata(record);
        std::array<char, NS_MAXDNAME> host{};
        if (ns_rr_rdlen(record) < fixed ||
            ::ns_name_uncompress(message.data(), message.data() + message.size(), data + fixed,
                                 host.data(), host.size()) < 0)
            return tl::unexpected(bad);
        targets.push_back({two_bytes(data), two_bytes(data + 2), two_bytes(data + 4), host.data()});
    }
    return targets;
}

std::string choose_srv(std::vector<SrvTarget> targets, uint64_t draw) {
    std::erase_if(targets, [](const SrvTarget& t) { return t.host.empty() || t.host == "."; });
    if (targets.empty()) return {};
    // those without a weight first, so that they are drawn now and then, as the RFC has it
    std::stable_sort(targets.begin(), targets.end(), [](const SrvTarget& a, const SrvTarget& b) {
        return std::pair{a.priority, a.weight} < std::pair{b.priority, b.weight};
    });
    uint64_t sum = 0;
    for (const SrvTarget& t : targets)
        if (t.priority == targets.front().priority) sum += t.weight;
    uint64_t left = draw % (sum + 1);
    const SrvTarget* chosen = targets.data();
    while (left > chosen->weight) left -= chosen++->weight;
    return chosen->host + ":" + std::to_string(chosen->port);
}

Result<std::string> find_service(const std::string& service) {
    Resolver resolver;
    if (!resolver.ready) return fail("the resolver of this machine cannot be read");
    const std::vector<std::string> domains = resolver.domains();
    if (domains.empty()) return fail("this machine has no DNS domain (search in /etc/resolv.conf)");
    std::string asked;
    for (const std::string& domain : domains) {
        const std::string name = service + "." + domain;
        asked += (asked.empty() ? "" : ", ") + name;
        std::array<uint8_t, 4'096> answer{};
        const int bytes = ::res_nquery(&resolver.state, name.c_str(), ns_c_in, ns_t_srv,
                                       answer.data(), static_cast<int>(answer.size()));
        if (bytes < 0 && resolver.state.res_h_errno == TRY_AGAIN)
            return fail("no DNS server answers for " + name);
        if (bytes <= 0) continue;
        const size_t whole = std::min(static_cast<size_t>(bytes), answer.size());
        TRY_ASSIGN(auto targets, parse_srv(std::span(answer.data(), whole)));
        if (std::string place = choose_srv(std::move(targets), any_number()); !place.empty())
            return place;
    }
    return fail("DNS has no SRV record " + asked);
}

}  // namespace souk
