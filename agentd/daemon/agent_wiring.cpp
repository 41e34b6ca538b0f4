// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: wiring. What each part tells the others through it, and nothing else.
#include "agentd/daemon/agent.hpp"

namespace souk {
namespace {

// a market that is started again takes less
constexpr Nanos outage_worth_telling = Nanos::from_s(1);

}  // namespace

void Agent::wire_cells() {
    site_.loop = &loop_;
    site_.log = &log_;
    site_.criu = &criu_;
    site_.precopy_dropped = [this](const GuestKey& key) { precopy_->close(key); };
    site_.want_pages = [this](const GuestKey& key, bool restored, uint64_t put,
                              const std::vector<PageRange>& wishes) {
        wire::PagesState state{put, restored, {}};
        for (const PageRange& w : wishes) {
            if (state.wishes.size() == wire::page_wishes_max)
                transfers_->want(key, std::exchange(state, {put, restored, {}}));
            state.wishes.push_back(w);
        }
        transfers_->want(key, state);
    };
    site_.pages_whole = [this](const GuestKey& key) { transfers_->whole(key); };
    site_.pages_refused = [this](const GuestKey& key, const std::string& why) {
        transfers_->refuse(key, why);
    };
    site_.event = [this](const GuestKey& key, const guest::Event& e) { cell_event(key, e); };
    site_.output = [this](const GuestKey& key, uint32_t s, uint64_t o, std::string_view b) {
        return cell_output(key, s, o, b);
    };
    site_.input_taken = [this](const GuestKey& key, uint64_t offset) {
        const wire::StdioInputAck ack{key.id, key.epoch, offset};
        if (key.id.home != config_.node) return (void)peers_->to_home(key.id.home, ack);
        after_commit([this, ack] { stdio_input_ack(config_.node, ack); });
    };
    site_.cgroup_changed = [this](const Cgroup& capsule, Nanos used, bool added) {
        const bool lived = !tools_listener_;  // it was found again
        added ? load_.capsule_came(capsule, used, lived) : load_.capsule_went(capsule);
    };
}

void Agent::wire_peers() {
    Peers::Handlers peers;
    peers.guest_up = [this](const NodeName& node) {
        home_step([&](Home& h, home::Outputs& out) { h.guest_up(node, Loop::now(), out); });
    };
    peers.undelivered = [this](const NodeName& node, const GuestCommand& c) {
        home_step([&](Home& h, home::Outputs& out) { h.undelivered(node, c, Loop::now(), out); });
    };
    peers.from_guest = [this](const NodeName& node, const wire::Frame& f) {
        return from_guest(node, f);
    };
    peers.guest_needed = [this](const NodeName& node) { return home_.needs_guest(node); };
    peers.guest_drained = [this](const NodeName& node) {  // what did not fit was lost
        for (const auto& [seq, job] : home_.jobs())
            if (job.phase == JobPhase::running && job.at.node == node) terminals_->resync(job);
    };
    peers.home_up = [this](const NodeName& node) { home_up(node); };
    peers.home_down = [this](const NodeName& node) {
        guest_step([&](Guest& g, guest::Outputs&) { g.home_down(node); });
    };
    peers.from_home = [this](const NodeName& node, const wire::Frame& f) {
        return from_home(node, f);
    };
    peers.home_drained = [this](const NodeName& node) {
        for (const auto& [key, c] : cells_)
            if (key.id.home == node) c->resync();
    };
    peers.from_image = [this](uint64_t number, const NodeName& node, const wire::Frame& f) {
        return PrecopyLinks::takes(f) ? precopy_->frame(number, node, f)
                                      : transfers_->frame(number, node, f);
    };
    peers.image_closed = [this](uint64_t number) {
        transfers_->closed(number);
        precopy_->closed(number);
    };
    peers_ = std::make_unique<Peers>(loop_, log_, tls_.get(), config_.node, config_.address,
                                     std::move(peers));
}

// An image is here. One that is kept need not run here.
Status Agent::image_came(const GuestKey& key, const Manifest& m, MoveForm form) {
    Cell* c = cell(key);
    if (!c || m.job != key.id) return fail("the image is of job " + m.job.text());
    if (c->job().kept) {
        c->keep(m, [this, key, form, bytes = static_cast<int64_t>(m.bytes())](const Status& kept) {
            if (kept) return guest_ended(key, guest::ImageReceived{bytes, form});
            if (guest_.expects_image(key))
                guest_ended(key, guest::ImageFailed{"keep its image: " + kept.error().message});
        });
        return {};
    }
    TRY(can_take(site_.machine, m.machine));
    TRY(c->seal(m));
    if (form != MoveForm::stop_and_copy && !site_.pages_possible)
        return fail("this node cannot take memory past an image");
    c->expect_pages(form);
    guest_ended(key, guest::ImageReceived{static_cast<int64_t>(m.bytes()), form});
    return {};
}

void Agent::wire_transfers() {
    Transfers::Handlers transfers;
    transfers.expects = [this](const GuestKey& key) { return guest_.expects_image(key); };
    transfers.image_dir = [this](const GuestKey& key) -> Result<Fd> {
        Cell* c = cell(key);
        return c ? c->image() : fail("no capsule waits for it");
    };
    transfers.received = [this](const GuestKey& key, const Manifest& m, MoveForm form) {
        return image_came(key, m, form);
    };
    transfers.pages = [this](const GuestKey& key, const PageRange& range,
                             std::string_view bytes) -> Status {
        Cell* c = cell(key);
        return c ? c->put_pages(range, bytes) : Status{};
    };
    transfers.failed = [this](const GuestKey& key, const std::string& why) {
        if (guest_.expects_image(key)) return guest_ended(key, guest::ImageFailed{why});
        guest_ended(key, guest::PagesLost{why});
    };
    transfers.want = [this](uint64_t number, const wire::PagesState& state) {
        peers_->want_pages(number, state);
    };
    transfers.receive_raw = [this](uint64_t number, std::function<void(ByteView)> on_bytes) {
        peers_->receive_raw(number, std::move(on_bytes));
    };
    transfers.answer = [this](uint64_t number, const wire::ImageResult& r) {
        peers_->answer_image(number, r);
    };
    transfers_ = std::make_unique<Transfers>(
        loop_, BulkIdentity{config_.node, config_.address, tls_.get()}, std::move(transfers));
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
        learn_address(seen_at);
        provider_step([](Provider& p, provider::Outputs& out) { p.market_up(out); });
        home_step([](Home& h, home::Outputs& out) { h.market_up(Loop::now(), out); });
        ledger_->compare();
        outage_timer_.cancel();
        if (std::exchange(outage_told_, false)) tell_waiting();
    };
    market.down = [this] {
        home_step([](Home& h, home::Outputs&) { h.market_down(); });
        outage_timer_ = loop_.after(outage_worth_telling, [this] {
            outage_told_ = true;
            tell_waiting();
        });
    };
    market.tried = [this] {
        if (const auto told = std::exchange(on_ready_, nullptr)) told();
    };
    market.certified = [this](const wire::Certified& c) { certified(c); };
    market.revoked = [this](const std::string& list) { revoked(list); };
    market.message = [this](const FromMarket& m) { from_market(m); };
    market_ = std::make_unique<MarketLink>(loop_, log_, tls_.get(), config_.node, config_.address,
                                           config_.market, std::move(market));
}

}  // namespace souk
