// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: `pvdctl set price auto`. Once an hour the market's prices of the last 30 days are asked
// for, and what follows of them (market/core/reserve_learner.hpp) is asked from then on.
//
// While this node has a place free, its own price may be what a place costs: who learned from that
// would hear himself. So what was asked is kept by the hour, and an hour in which a place cost no
// more counts as one without a buyer.
#include <algorithm>

#include "agentd/daemon/agent.hpp"
#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/clock.hpp"
#include "kernel/sys/host/log.hpp"

namespace souk {
namespace {

constexpr const char* kind_asked = "asked";
constexpr int64_t row_s = 3'600, history_s = 30 * 86'400;
constexpr size_t rows_max = 10'000;
constexpr Nanos first_look = Nanos::from_s(2), each = Nanos::from_s(row_s);

int64_t hour_now() { return unix_now().ns / 1'000'000'000 / row_s; }

// The same node draws the same bonuses.
uint64_t seed_of(const NodeName& node) {
    uint64_t hash = 14'695'981'039'346'656'037u;
    for (const unsigned char c : node) hash = (hash ^ c) * 1'099'511'628'211u;
    return hash;
}

}  // namespace

Status Agent::load_asked() {
    TRY_ASSIGN(const auto rows, state_->db().db().load(kind_asked));
    for (const auto& row : rows) {
        const auto hour = whole_number<int64_t>(row.key);
        const auto price = parse_money(row.value);
        if (hour && price) asked_[*hour] = *price;
    }
    return {};
}

void Agent::learn_soon() {
    if (!provider_->record().price_auto) return learn_timer_.cancel();
    learn_timer_ = loop_.after(first_look, [this] {
        prices_seen_.clear();
        ask_prices("");
    });
}

// In parts, as the market answers.
void Agent::ask_prices(const std::string& after) {
    learn_timer_ = loop_.after(each, [this] { learn_soon(); });
    wire::CtlRequest request;
    request.verb = "prices";
    request.args = {std::to_string(unix_now().ns / 1'000'000'000 - history_s),
                    std::to_string(row_s)};
    request.after = after;
    market_->ask(std::move(request), [this](const wire::CtlReply& reply) {
        if (!provider_->record().price_auto) return;
        auto rows = reply.ok ? read_prices(reply.json, provider_->record().speed)
                             : Result<std::vector<PriceSeen>>(fail(reply.error));
        learn_trouble_ = rows ? "" : rows.error().message;
        if (!rows) {
            log_.limited("learn", Loop::now(), Level::warning, "no price is learned",
                         {{"WHY", rows.error()}});
            learn_timer_ = loop_.after(Nanos::from_s(60), [this] { learn_soon(); });
            return;
        }
        prices_seen_.insert(prices_seen_.end(), rows->begin(), rows->end());
        if (!reply.next.empty() && prices_seen_.size() < rows_max) return ask_prices(reply.next);
        learned();
    });
}

void Agent::learned() {
    const ProviderRecord& record = provider_->record();
    market::ReserveLearner learner(record.floor, seed_of(config_.node));
    learned_hours_ = 0;
    for (const PriceSeen& seen : prices_seen_) {
        const auto own = asked_.find(seen.from_unix_s / row_s);
        if (own != asked_.end() && seen.price <= own->second) continue;
        learner.saw(seen.price, seen.minutes);
        ++learned_hours_;
    }
    learned_best_ = learner.best();
    if (learned_hours_ > 0)  // else what was learned before holds
        provider_step(
            [&](Provider& p, provider::Outputs& out) { p.learned(learner.price(), out); });
    const int64_t hour = hour_now();
    asked_[hour] = provider_->asked();
    state_->put(kind_asked, std::to_string(hour), format_money(provider_->asked()), Durable::later);
    while (asked_.begin()->first < hour - history_s / row_s) {
        state_->erase(kind_asked, std::to_string(asked_.begin()->first), Durable::later);
        asked_.erase(asked_.begin());
    }
    log_.info("a price was learned", {{"price", format_money(provider_->asked())},
                                      {"hours", static_cast<int64_t>(learned_hours_)}});
}

void Agent::write_learned(JsonWriter& j) const {
    if (!provider_->record().price_auto) return;
    j.field("learned_hours", learned_hours_)
        .field("best_price", learned_best_.price)
        .field("best_revenue", learned_best_.revenue);
    if (!learn_trouble_.empty()) j.field("learn_trouble", learn_trouble_);
}

}  // namespace souk
