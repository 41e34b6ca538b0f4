// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/join.hpp"

#include <unistd.h>

#include "kernel/sys/host/clock.hpp"
#include "kernel/trust/ticket_list.hpp"
#include "market/wire/codec.hpp"
#include "tools/common/talk.hpp"

namespace souk {
namespace {

constexpr Nanos join_limit = Nanos::from_s(20);

// A market as a joiner speaks to it.
tools::Talk talk_of(const JoinPlan& plan) {
    tools::Talk what{plan.market, trust::Role::market, "", wire::market_words, {}, join_limit};
    what.hello.role = wire::Role::joiner;
    what.hello.node = plan.name;
    what.says = "the market says: ";
    return what;
}

Result<wire::Certified> certified_of(const JoinPlan& plan, wire::Tls& tls,
                                     const std::string& request) {
    wire::Certified certified;
    TRY(tools::talk(tls, talk_of(plan),
                    [&](wire::Channel& market, const wire::Frame& f) -> Result<bool> {
                        if (f.type == wire::frame::welcome) {
                            // The peer has the market's certificate below the token's root: else it
                            // had not been heard.
                            const wire::Join join{plan.token.id, plan.token.secret, request};
                            TRY(market.send(wire::frame::join, wire::pack(join)));
                            return false;
                        }
                        if (f.type != wire::frame::certified)
                            return fail("an unexpected answer of the market");
                        TRY_ASSIGN(certified, wire::unpack<wire::Certified>(f.body));
                        return true;
                    }));
    return certified;
}

// So a node knows from the start that its market signs this list. What lies there is of a market of
// before, which may be another one.
Status take_tickets(const std::string& dir, const std::string& list,
                    const trust::Certificate& issuer) {
    for (const char* file : {"/ticket-keys", "/ticket-list"}) (void)::unlink((dir + file).c_str());
    if (list.empty()) return {};
    TRY_ASSIGN(const trust::Key key, issuer.key());
    TRY(trust::parse_ticket_list(list, key));
    return trust::save_ticket_list(dir, list);
}

}  // namespace

Result<Nanos> market_time(const std::string& market, const std::string& root_digest) {
    const JoinPlan plan{{}, "doctor", market, {}};
    TRY_ASSIGN(const auto tls, wire::Tls::open_stranger(root_digest));
    Nanos time;
    TRY(tools::talk(*tls, talk_of(plan), [&](wire::Channel&, const wire::Frame& f) -> Result<bool> {
        if (f.type != wire::frame::welcome) return fail("an unexpected answer of the market");
        TRY_ASSIGN(const auto welcome, wire::unpack<wire::Welcome>(f.body));
        time = welcome.time;
        return true;
    }));
    if (time.ns == 0) return fail("the market does not tell its time: it is an older version");
    return time;
}

Result<Nanos> join(const JoinPlan& plan) {
    TRY(trust::make_private_dir(plan.identity));
    TRY_ASSIGN(const trust::Key key, trust::key_of(plan.identity));
    TRY_ASSIGN(const std::string request, trust::make_request(key, plan.name));
    TRY_ASSIGN(const auto tls, wire::Tls::open_stranger(plan.token.root));
    const auto certified = certified_of(plan, *tls, request);
    if (!certified) return wrap("join the market at " + plan.market, certified.error());
    TRY_ASSIGN(auto chain, trust::parse_chain(certified->chain));
    const trust::Certificate& root = *tls->root();
    TRY_ASSIGN(const trust::Peer me, trust::verify(chain, root, {}, unix_now()));
    if (me.subject.name != plan.name || me.key != key.digest())
        return fail("the market has certified somebody else");
    TRY(trust::save_revoked(plan.identity, certified->revoked));
    TRY(take_tickets(plan.identity, certified->tickets, chain.back()));
    TRY(trust::save_identity(plan.identity, {key, std::move(chain), root, {}}));
    return certified->insecure_until;
}

}  // namespace souk
