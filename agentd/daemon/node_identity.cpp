// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/node_identity.hpp"

#include <unistd.h>

#include <algorithm>

#include "kernel/base/units.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/trust/openssl.hpp"
#include "kernel/trust/verify.hpp"

namespace souk {
namespace {

constexpr Nanos ask_anew_after = Nanos::from_s(60);

// How far two clocks are apart, in whole minutes.
Nanos minutes_apart(Nanos span) {
    const Nanos apart = std::max(span, Nanos{} - span), minute = Nanos::from_s(60);
    return Nanos{apart.ns / minute.ns * minute.ns};
}

}  // namespace

Status NodeIdentity::open(Loop& loop, Log& log, const Config& config, root::Helper& root) {
    if (!config.insecure)
        handshakes_ = std::make_unique<handshake::Handshakes>(
            loop, log,
            [&root](Fd socket) {
                return root.program(root::Program::handshake, {}, {socket.get()}, false);
            },
            root.end());
    TRY_ASSIGN(tls_,
               wire::open_tls(config.identity, config.insecure, "souk setup node --join TOKEN",
                              {.elsewhere = handshakes_.get()}));
    if (!tls_) {
        log.warning("insecure: whoever reaches its port may run anything on this node");
        return {};
    }
    TRY_ASSIGN(TicketDesk desk, TicketDesk::open(config.identity));
    tickets_ = std::make_unique<TicketDesk>(std::move(desk));
    TRY_ASSIGN(const trust::Subject own, tls_->identity()->own().subject());
    if (own.name != config.node)
        return fail("this node is " + config.node + ", its certificate in " + config.identity +
                    " is of " + own.name);
    return {};
}

// It looks each minute, because the clock may be put right meanwhile.
void CertificateRenewal::tick() {
    constexpr Nanos look = Nanos::from_s(60), last_call = Nanos::from_s(86'400);
    if (!identity_.tls()) return;
    timer_ = loop_.after(look, [this] { tick(); });
    const trust::Certificate& own = identity_.tls()->identity()->own();
    const Nanos now = unix_now();
    if (now < own.renew_at()) return;
    (void)renew();
    if (own.ends() - now < last_call)
        log_.limited("certificate", Loop::now(), Level::warning,
                     "this node's certificate is not renewed: the market is not reached",
                     {{"until", trust::date_text(own.ends())}, {"WHY", market_.trouble()}});
}

Status CertificateRenewal::renew() {
    if (!identity_.tls())
        return fail(CauseCode::not_possible,
                    "nothing is renewed: this node runs without certificates");
    const trust::Identity& own = *identity_.tls()->identity();
    TRY_ASSIGN(const std::string request, trust::make_request(own.key, config_.node));
    if (!market_.renew(request))
        return fail(CauseCode::away, "nothing is renewed: there is no connection to the market (" +
                                         market_.trouble() +
                                         "); it is tried again each minute once half of its "
                                         "certificate's life is over");
    return {};
}

// souk-handshake reads what the market sent first, because it has no rights that bad bytes could
// misuse. This process reads it when it is good.
void CertificateRenewal::certified(const wire::Certified& certified) {
    const auto refused = [this](const Error& why) {
        log_.limited("certificate", Loop::now(), Level::warning,
                     "a certificate of the market is not taken", {{"WHY", why}});
    };
    if (!identity_.tls()) return refused(Error{0, "this node runs without certificates"});
    identity_.handshakes()->examine(certified.chain, [=, this](const Result<trust::Peer>& me) {
        if (!me) return refused(me.error());
        if (const Status taken = take(certified); !taken) return refused(taken.error());
        log_.info("this node's certificate is renewed",
                  {{"until", trust::date_text(identity_.tls()->identity()->own().ends())}});
    });
}

// It is written to disk first, because a certificate that a restart forgets is none.
Status CertificateRenewal::take(const wire::Certified& certified) {
    const trust::Identity& own = *identity_.tls()->identity();
    TRY_ASSIGN(auto chain, trust::parse_chain(certified.chain));
    // This process verifies the chain itself: souk-handshake has no say in which authority the node
    // believes from now on.
    TRY_ASSIGN(const trust::Peer me, trust::verify(chain, own.root, own.revoked, unix_now()));
    if (me.subject.name != config_.node || me.key != own.key.digest())
        return fail("the market has certified somebody else");
    TRY_ASSIGN(const trust::Key issuer, chain.back().key());
    // The next start would not read another authority's list. The new authority's list comes with
    // this certificate.
    if (chain.back().digest() != own.issuer().digest())
        (void)::unlink((config_.identity + "/revoked").c_str());
    TRY(trust::save_chain(config_.identity, chain));
    TRY(identity_.tls()->renew(std::move(chain)));
    // The authority of this certificate, which may be a new one, has signed both.
    if (!certified.revoked.empty()) revoked(certified.revoked);
    if (!certified.tickets.empty())
        (void)taken(identity_.tickets()->take(certified.tickets, issuer));
    return {};
}

void CertificateRenewal::revoked(const std::string& list) {
    wire::Tls* const tls = identity_.tls();
    const auto take = [&]() -> Result<bool> {
        if (!tls) return false;
        const trust::Identity& own = *tls->identity();
        TRY_ASSIGN(const trust::Key issuer, own.issuer().key());
        TRY_ASSIGN(auto revoked, trust::parse_revocations(list, issuer));
        if (revoked.number < own.revoked.number) return false;
        TRY(trust::save_revoked(config_.identity, list));
        if (revoked.number == own.revoked.number) return false;
        tls->revoke(std::move(revoked));
        return true;
    };
    const auto taken = take();
    // The market's issuing authority may be a new one. It signs this node's next certificate, and
    // this node can read its list then.
    if (!taken && Loop::now() >= asked_anew_ + ask_anew_after) {
        asked_anew_ = Loop::now();
        (void)renew();
    }
    if (!taken)
        return log_.limited("revoked", Loop::now(), Level::warning,
                            "a list of revoked keys is not taken", {{"WHY", taken.error()}});
    if (!*taken) return;
    log_.notice("keys are revoked", {{"number", tls->identity()->revoked.number}});
    // A connection that is cut may be calling this function now, so the cut comes after it.
    loop_.defer([this] { peers_.cut(identity_.tls()->identity()->revoked); });
}

bool CertificateRenewal::taken(const Status& keys) {
    if (!keys)
        log_.limited("ticket keys", Loop::now(), Level::warning,
                     "the market's ticket keys are not taken", {{"WHY", keys.error()}});
    return keys.has_value();
}

void CertificateRenewal::peer_sites(const wire::PeerSites& told) {
    if (!identity_.tls() || told == sites_) return;
    std::map<std::string, std::string> roots;
    std::set<std::string> names;
    for (const std::string& line : told.roots) {
        const size_t space = line.find(' ');
        if (space == line.npos || !valid_site_name(line.substr(space + 1))) continue;
        roots.emplace(line.substr(0, space), line.substr(space + 1));
        names.insert(line.substr(space + 1));
    }
    if (const Status known = identity_.tls()->know_sites(roots, wire::OfSites::nodes); !known) {
        log_.warning("other sites are not known here", {{"WHY", known.error()}});
    } else {
        sites_ = told;
        log_.info("the sites that are peers",
                  {{"own", told.own}, {"count", static_cast<int64_t>(names.size())}});
    }
    peers_.know_sites(told.own, std::move(names));  // those of before are none any more
}

void CertificateRenewal::ticket_keys(const wire::TicketKeys& told) {
    TicketDesk* const tickets = identity_.tickets();
    if (!tickets) return;
    const auto take = [&]() -> Status {
        TRY_ASSIGN(const trust::Key issuer, identity_.tls()->identity()->issuer().key());
        return tickets->told(told, issuer, Loop::now(), unix_now());
    };
    if (!taken(take())) return;
    const Nanos behind = tickets->behind();
    if (behind <= ticket_slack && Nanos{} - ticket_slack <= behind) return;
    log_.limited("clock", Loop::now(), Level::warning,
                 "this node's clock is " + span_text(minutes_apart(behind)) +
                     (behind.ns > 0 ? " behind" : " ahead of") +
                     " the market's: set the one that is wrong (timedatectl); until then tickets "
                     "count by the market's");
}

}  // namespace souk
