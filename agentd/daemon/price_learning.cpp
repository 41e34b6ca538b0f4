// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/price_learning.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/clock.hpp"

namespace souk {
namespace {

using Json = nlohmann::json;

constexpr const char* kind_asked = "asked";
constexpr int64_t row_s = 3'600, history_s = 30 * 86'400;
constexpr size_t rows_max = 10'000;
constexpr Nanos first_look = Nanos::from_s(2), each = Nanos::from_s(row_s);

int64_t hour_now() { return unix_now().ns / 1'000'000'000 / row_s; }

// The learner draws bonuses by this seed. It follows from the node's name, so that a node draws the
// same ones each time.
uint64_t seed_of(const NodeName& node) {
    uint64_t hash = 14'695'981'039'346'656'037u;
    for (const unsigned char c : node) hash = (hash ^ c) * 1'099'511'628'211u;
    return hash;
}

double number(const Json& object, const char* key) {
    const auto it = object.is_object() ? object.find(key) : object.end();
    return it != object.end() && it->is_number() ? it->get<double>() : -1;
}

}  // namespace

Result<std::vector<PriceSeen>> read_prices(const std::string& json, int64_t speed) {
    const Json rows = Json::parse(json, nullptr, false);
    if (!rows.is_array()) return fail("the market's prices are no list");
    std::vector<PriceSeen> all;
    for (const Json& row : rows) {
        const double from = number(row, "from_unix_s");
        const auto speeds = row.is_object() ? row.find("speeds") : row.end();
        if (from < 0 || from > 1e12 || speeds == row.end() || !speeds->is_array()) continue;
        for (const Json& s : *speeds) {  // the fastest first
            const double price = number(s, "price"), open = number(s, "open_s");
            if (number(s, "speed") > static_cast<double>(speed)) continue;
            if (price >= 0 && price <= 1e9 && open >= 60 && open <= 1e7)
                all.push_back({static_cast<int64_t>(from), static_cast<int64_t>(open / 60),
                               Money{static_cast<int64_t>(std::llround(price * 1e6))}});
            break;
        }
    }
    return all;
}

Status PriceLearning::load() {
    TRY_ASSIGN(const auto rows, commits_.db().db().load(kind_asked));
    for (const auto& row : rows) {
        const auto hour = whole_number<int64_t>(row.key);
        const auto price = parse_money(row.value);
        if (hour && price) asked_[*hour] = *price;
    }
    return {};
}

void PriceLearning::learn_soon() {
    if (!offer_.provider().record().price_auto) return timer_.cancel();
    timer_ = loop_.after(first_look, [this] {
        seen_.clear();
        ask_prices("");
    });
}

// The market answers in parts.
void PriceLearning::ask_prices(const std::string& after) {
    timer_ = loop_.after(each, [this] { learn_soon(); });
    wire::CtlRequest request;
    request.verb = "prices";
    request.args = {std::to_string(unix_now().ns / 1'000'000'000 - history_s),
                    std::to_string(row_s)};
    request.after = after;
    market_.ask(std::move(request), [this](const wire::CtlReply& reply) {
        const ProviderRecord& record = offer_.provider().record();
        if (!record.price_auto) return;
        auto rows = reply.ok ? read_prices(reply.json, record.speed)
                             : Result<std::vector<PriceSeen>>(fail(reply.error));
        trouble_ = rows ? "" : rows.error().message;
        if (!rows) {
            log_.limited("learn", Loop::now(), Level::warning, "no price is learned",
                         {{"WHY", rows.error()}});
            timer_ = loop_.after(Nanos::from_s(60), [this] { learn_soon(); });
            return;
        }
        seen_.insert(seen_.end(), rows->begin(), rows->end());
        if (!reply.next.empty() && seen_.size() < rows_max) return ask_prices(reply.next);
        learned();
    });
}

void PriceLearning::learned() {
    market::ReserveLearner learner(offer_.provider().record().floor, seed_of(node_));
    hours_ = 0;
    for (const PriceSeen& seen : seen_) {
        const auto own = asked_.find(seen.from_unix_s / row_s);
        if (own != asked_.end() && seen.price <= own->second) continue;
        learner.saw(seen.price, seen.minutes);
        ++hours_;
    }
    best_ = learner.best();
    if (hours_ > 0)  // without an hour the price that was learned before stays
        offer_.step([&](Provider& p, provider::Outputs& out) { p.learned(learner.price(), out); });
    const int64_t hour = hour_now();
    const Money asks = offer_.provider().asked();
    asked_[hour] = asks;
    commits_.put(kind_asked, std::to_string(hour), format_money(asks), Durable::later);
    while (asked_.begin()->first < hour - history_s / row_s) {
        commits_.erase(kind_asked, std::to_string(asked_.begin()->first), Durable::later);
        asked_.erase(asked_.begin());
    }
    log_.info("a price was learned",
              {{"price", format_money(asks)}, {"hours", static_cast<int64_t>(hours_)}});
}

void PriceLearning::write(JsonWriter& j) const {
    if (!offer_.provider().record().price_auto) return;
    j.field("learned_hours", hours_)
        .field("best_price", best_.price)
        .field("best_revenue", best_.revenue);
    if (!trouble_.empty()) j.field("learn_trouble", trouble_);
}

}  // namespace souk
