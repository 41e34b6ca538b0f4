// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: this node's certificate. It is renewed at half of its life, with the key that it has, by
// whom it is connected to anyway: the market. And the keys that the market has revoked.
#include "agentd/daemon/agent.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {

Status Agent::open_trust() {
    TRY_ASSIGN(tls_, wire::open_tls(config_.identity, config_.insecure,
                                    "souk setup node --join TOKEN", {}));
    if (!tls_) {
        log_.warning("insecure: whoever reaches its port may run anything on this node");
        return {};
    }
    TRY_ASSIGN(const trust::Subject own, tls_->identity()->own().subject());
    if (own.name != config_.node)
        return fail("this node is " + config_.node + ", its certificate in " + config_.identity +
                    " is of " + own.name);
    return {};
}

// Looked at each minute, so that a clock that is put right is seen too.
void Agent::tick_certificate() {
    constexpr Nanos look = Nanos::from_s(60), last_call = Nanos::from_s(86'400);
    if (!tls_) return;
    certificate_timer_ = loop_.after(look, [this] { tick_certificate(); });
    const trust::Certificate& own = tls_->identity()->own();
    const Nanos now = unix_now();
    if (now < own.renew_at()) return;
    (void)renew_certificate();
    if (own.ends() - now < last_call)
        log_.limited("certificate", Loop::now(), Level::warning,
                     "this node's certificate is not renewed: the market is not reached",
                     {{"until", trust::date_text(own.ends())}, {"WHY", market_->trouble()}});
}

Status Agent::renew_certificate() {
    if (!tls_) return fail("this node runs without certificates");
    const trust::Identity& own = *tls_->identity();
    TRY_ASSIGN(const std::string request, trust::make_request(own.key, config_.node));
    if (!market_->renew(request))
        return fail("there is no connection to the market (" + market_->trouble() + ")");
    return {};
}

// On disk first: a certificate that a restart forgets is none.
void Agent::certified(const wire::Certified& certified) {
    const auto take = [&]() -> Status {
        if (!tls_) return fail("this node runs without certificates");
        TRY_ASSIGN(auto chain, trust::parse_chain(certified.chain));
        const trust::Identity& own = *tls_->identity();
        TRY_ASSIGN(const trust::Peer me, trust::verify(chain, own.root, own.revoked, unix_now()));
        if (me.subject.name != config_.node || me.key != own.key.digest())
            return fail("the market has certified somebody else");
        TRY(trust::save_chain(config_.identity, chain));
        return tls_->renew(std::move(chain));
    };
    if (const Status taken = take(); !taken)
        return log_.limited("certificate", Loop::now(), Level::warning,
                            "a certificate of the market is not taken", {{"WHY", taken.error()}});
    log_.info("this node's certificate is renewed",
              {{"until", trust::date_text(tls_->identity()->own().ends())}});
}

void Agent::revoked(const std::string& list) {
    const auto take = [&]() -> Result<bool> {
        if (!tls_) return false;
        const trust::Identity& own = *tls_->identity();
        TRY_ASSIGN(const trust::Key issuer, own.issuer().key());
        TRY_ASSIGN(auto revoked, trust::parse_revocations(list, issuer));
        if (revoked.number <= own.revoked.number) return false;
        TRY(trust::save_revoked(config_.identity, list));
        tls_->revoke(std::move(revoked));
        return true;
    };
    const auto taken = take();
    if (!taken)
        return log_.limited("revoked", Loop::now(), Level::warning,
                            "a list of revoked keys is not taken", {{"WHY", taken.error()}});
    if (!*taken) return;
    log_.notice("keys are revoked", {{"number", tls_->identity()->revoked.number}});
    // Not from within a callback of one of them.
    loop_.defer([this] { peers_->cut(tls_->identity()->revoked); });
}

}  // namespace souk
