// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: this node's certificate. It is renewed at half of its life, with the key that it has, by
// whom it is connected to anyway: the market. And the keys that the market has revoked.
#include <unistd.h>
#include <algorithm>

#include "agentd/daemon/agent.hpp"
#include "checkpoint/stream_tag.hpp"
#include "kernel/base/units.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/log.hpp"
#include "kernel/trust/openssl.hpp"
#include "kernel/trust/verify.hpp"

namespace souk {
namespace {

// How far two clocks are apart, in whole minutes.
Nanos minutes_apart(Nanos span) {
    const Nanos apart = std::max(span, Nanos{} - span), minute = Nanos::from_s(60);
    return Nanos{apart.ns / minute.ns * minute.ns};
}
constexpr Nanos ask_anew_after = Nanos::from_s(60);

}  // namespace

Status Agent::open_trust() {
    TRY_ASSIGN(image_secret_, trust::random_bytes(StreamTag::key_bytes));
    if (!config_.insecure)
        handshakes_ = std::make_unique<handshake::Handshakes>(
            loop_, log_,
            [this](Fd socket) {
                return root_.program(root::Program::handshake, {}, {socket.get()}, false);
            },
            root_.end());
    TRY_ASSIGN(tls_,
               wire::open_tls(config_.identity, config_.insecure, "souk setup node --join TOKEN",
                              {.elsewhere = handshakes_.get()}));
    if (!tls_) {
        log_.warning("insecure: whoever reaches its port may run anything on this node");
        return {};
    }
    TRY_ASSIGN(TicketDesk desk, TicketDesk::open(config_.identity));
    tickets_ = std::make_unique<TicketDesk>(std::move(desk));
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

// What the market sent is looked at where nothing can come of it, and read here if it is good.
void Agent::certified(const wire::Certified& certified) {
    const auto refused = [this](const Error& why) {
        log_.limited("certificate", Loop::now(), Level::warning,
                     "a certificate of the market is not taken", {{"WHY", why}});
    };
    if (!tls_) return refused(Error{0, "this node runs without certificates"});
    handshakes_->examine(certified.chain, [=, this](const Result<trust::Peer>& me) {
        if (!me) return refused(me.error());
        if (const Status taken = take_certificate(certified); !taken) return refused(taken.error());
        log_.info("this node's certificate is renewed",
                  {{"until", trust::date_text(tls_->identity()->own().ends())}});
    });
}

// On disk first: a certificate that a restart forgets is none.
Status Agent::take_certificate(const wire::Certified& certified) {
    const trust::Identity& own = *tls_->identity();
    TRY_ASSIGN(auto chain, trust::parse_chain(certified.chain));
    // Which authority is believed from now on is not for souk-handshake to say.
    TRY_ASSIGN(const trust::Peer me, trust::verify(chain, own.root, own.revoked, unix_now()));
    if (me.subject.name != config_.node || me.key != own.key.digest())
        return fail("the market has certified somebody else");
    TRY_ASSIGN(const trust::Key issuer, chain.back().key());
    // Another authority's list would not be read at the next start; its own comes with this.
    if (chain.back().digest() != own.issuer().digest())
        (void)::unlink((config_.identity + "/revoked").c_str());
    TRY(trust::save_chain(config_.identity, chain));
    TRY(tls_->renew(std::move(chain)));
    // By the authority of this certificate, which may be a new one.
    if (!certified.revoked.empty()) revoked(certified.revoked);
    if (!certified.tickets.empty()) (void)taken(tickets_->take(certified.tickets, issuer));
    return {};
}

void Agent::revoked(const std::string& list) {
    const auto take = [&]() -> Result<bool> {
        if (!tls_) return false;
        const trust::Identity& own = *tls_->identity();
        TRY_ASSIGN(const trust::Key issuer, own.issuer().key());
        TRY_ASSIGN(auto revoked, trust::parse_revocations(list, issuer));
        if (revoked.number < own.revoked.number) return false;
        TRY(trust::save_revoked(config_.identity, list));
        if (revoked.number == own.revoked.number) return false;
        tls_->revoke(std::move(revoked));
        return true;
    };
    const auto taken = take();
    // The market's issuing authority may be a new one: this node's next certificate is of it.
    if (!taken && Loop::now() >= asked_anew_ + ask_anew_after) {
        asked_anew_ = Loop::now();
        (void)renew_certificate();
    }
    if (!taken)
        return log_.limited("revoked", Loop::now(), Level::warning,
                            "a list of revoked keys is not taken", {{"WHY", taken.error()}});
    if (!*taken) return;
    log_.notice("keys are revoked", {{"number", tls_->identity()->revoked.number}});
    // Not from within a callback of one of them.
    loop_.defer([this] { peers_->cut(tls_->identity()->revoked); });
}

bool Agent::taken(const Status& keys) {
    if (!keys)
        log_.limited("ticket keys", Loop::now(), Level::warning,
                     "the market's ticket keys are not taken", {{"WHY", keys.error()}});
    return keys.has_value();
}

void Agent::ticket_keys(const wire::TicketKeys& told) {
    if (!tickets_) return;
    const auto take = [&]() -> Status {
        TRY_ASSIGN(const trust::Key issuer, tls_->identity()->issuer().key());
        return tickets_->told(told, issuer, Loop::now(), unix_now());
    };
    if (!taken(take())) return;
    const Nanos behind = tickets_->behind();
    if (behind <= ticket_slack && Nanos{} - ticket_slack <= behind) return;
    log_.limited("clock", Loop::now(), Level::warning,
                 "this node's clock is " + span_text(minutes_apart(behind)) +
                     (behind.ns > 0 ? " behind" : " ahead of") +
                     " the market's: set the one that is wrong (timedatectl); until then tickets "
                     "count by the market's");
}

}  // namespace souk
