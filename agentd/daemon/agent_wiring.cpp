// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: wiring. What each part tells the others through it, and nothing else.
#include <cerrno>

#include "agentd/daemon/agent.hpp"

namespace souk {
void Agent::wire_peers() {
    Peers::Handlers peers;
    peers.guest_up = [this](const NodeName& node) {
        home_->step([&](Home& h, home::Outputs& out) { h.guest_up(node, Loop::now(), out); });
    };
    peers.undelivered = [this](const NodeName& node, const GuestCommand& c) {
        home_->step([&](Home& h, home::Outputs& out) { h.undelivered(node, c, Loop::now(), out); });
    };
    peers.too_old = [this](const NodeName& node, const GuestCommand& c, const Trouble& why) {
        GuestEvent refused;
        refused.id = c.id;
        refused.epoch = c.epoch;
        refused.state = GuestState::failed;
        if (c.verb == GuestVerb::start) {  // as of a program that is not there
            refused.error = ENOENT;
            refused.program_error = true;
        }
        refused.why = why;
        home_->guest_event(node, refused);
    };
    peers.from_guest = [this](const NodeName& node, const wire::Frame& f) {
        return home_->from_guest(node, f);
    };
    peers.guest_needed = [this](const NodeName& node) {
        return home_->machine().needs_guest(node);
    };
    peers.guest_drained = [this](const NodeName& node) { home_->guest_drained(node); };
    peers.home_up = [this](const NodeName& node) { guests_->home_up(node); };
    peers.home_down = [this](const NodeName& node) {
        guests_->step([&](Guest& g, guest::Outputs&) { g.home_down(node); });
    };
    peers.from_home = [this](const NodeName& node, const wire::Frame& f) {
        return guests_->from_home(node, f);
    };
    peers.home_drained = [this](const NodeName& node) { guests_->resync(node); };
    peers.from_image = [this](uint64_t number, const NodeName& node, const wire::Frame& f) {
        return guests_->from_image(number, node, f);
    };
    peers.image_closed = [this](uint64_t number) { guests_->image_closed(number); };
    peers.asked = [this](uint64_t number, const trust::Peer& who, wire::CtlRequest request) {
        remote_request(number, who, std::move(request));
    };
    peers_ = std::make_unique<Peers>(loop_, log_, identity_.tls(), config_.node, config_.address,
                                     std::move(peers));
}

Status Agent::wire_ledger() {
    TRY_ASSIGN(const auto known, state_->db().get("seen", config_.market));
    LedgerMark::Hooks ledger;
    ledger.ask = [this](wire::CtlRequest request, auto answer) {
        market_->ask(std::move(request), std::move(answer));
    };
    ledger.keep = [this](const std::string& text) {
        state_->put("seen", config_.market, text, Durable::later);
    };
    const ReceiptMark mark =
        known ? parse_receipt_mark(*known).value_or(ReceiptMark{}) : ReceiptMark{};
    ledger_ = std::make_unique<LedgerMark>(loop_, mark, std::move(ledger));
    return {};
}

void Agent::wire_market() {
    MarketLink::Handlers market;
    market.question = [this](wire::CtlRequest r) {
        r.uid = UINT32_MAX;  // nobody's: what is root's alone is asked for here
        return view_request(r, true);
    };
    market.up = [this](const std::string& seen_at) {
        offer_->step([](Provider& p, provider::Outputs& out) { p.market_up(out); });
        home_->market_up(seen_at);
        ledger_->compare();
        use_->tell(true);
    };
    market.down = [this] { home_->market_down(); };
    market.tried = [this] {
        if (const auto told = std::exchange(on_ready_, nullptr)) told();
    };
    market.certified = [this](const wire::Certified& c) { renewal_->certified(c); };
    market.revoked = [this](const std::string& list) { renewal_->revoked(list); };
    market.ticket_keys = [this](const wire::TicketKeys& told) { renewal_->ticket_keys(told); };
    market.message = [this](const FromMarket& m) {
        if (const auto* note = std::get_if<ProviderNote>(&m)) return offer_->noted(*note);
        home_->from_market(m);
        if (std::holds_alternative<JobNote>(m)) ledger_->compare_soon();
    };
    market_ = std::make_unique<MarketLink>(loop_, log_, identity_.tls(), config_.node,
                                           config_.address, config_.market, std::move(market));
    renewal_ =
        std::make_unique<CertificateRenewal>(loop_, log_, config_, identity_, *market_, *peers_);
}

}  // namespace souk
