// SPDX-License-Identifier: GPL-2.0-or-later
// The market's own account over random markets that are started again and again: nothing of it is
// taken from the ledger. Balances are summed up here, from the receipts as text.
#include <map>

#include "tests/unit/market_chaos.hpp"

using namespace souk;
using namespace souk::market;

namespace {

std::vector<std::string> fields_of(const std::string& text) {
    std::vector<std::string> fields(1);
    for (const char c : text)
        if (c == '\t')
            fields.emplace_back();
        else
            fields.back() += c;
    return fields;
}

// Books kept by whoever reads all receipts.
struct Reader {
    size_t read = 0;
    int64_t market = 0, least = 0;
    std::map<std::string, int64_t> balances;

    void follow(const World& w) {
        for (; read < w.receipts.size(); ++read) {
            const auto f = fields_of(receipt_text(w.receipts[read]));
            const int64_t paid = std::stoll(f.at(12)), earned = std::stoll(f.at(13));
            balances["user " + f.at(3)] -= paid;
            balances["node " + f.at(5)] += earned;
            market += paid - earned;
            least = std::min(least, market);
            ck_assert_msg(paid < 0 || earned <= paid, "receipt %s: its provider gets %ld of %ld",
                          f.at(0).c_str(), earned, paid);
            ck_assert_msg(paid >= 0 || paid <= earned,
                          "receipt %s: %ld are taken back, and %ld of the provider",
                          f.at(0).c_str(), paid, earned);
        }
        ck_assert_msg(least >= 0, "the market's account falls to %ld", least);
    }
    // The market's stored accounts must have the same balances.
    void compare(const World& w) const {
        for (const auto& [holder, record] : w.stored_accounts) {
            const auto found = balances.find(holder.text());
            const int64_t due = holder.kind == Holder::Kind::market ? market
                                : found == balances.end()           ? 0
                                                                    : found->second;
            ck_assert_msg(record.balance.micro == due, "%s has %ld, by the receipts %ld",
                          holder.text().c_str(), record.balance.micro, due);
        }
    }
};

}  // namespace

// Method: each algorithm with each pricing; a third of the events is followed by a new start of the
// market, which finds nodes that come back one after the other, late, or not at all.
START_TEST(the_markets_account_never_falls_below_0_whatever_is_settled) {
    size_t receipts = 0;
    for (uint64_t seed = 1; seed <= 150; ++seed) {
        const char* const algorithms[] = {"greedy_migration", "welfare", "proportional_share",
                                          "balance"};
        const char* const pricings[] = {"critical", "first", "uniform"};
        MarketOptions o;
        o.solver.algorithm = algorithms[seed % 4];
        o.solver.pricing = pricings[seed % 3];
        Chaos c(seed, World(o));
        Reader reader;
        for (int i = 0; i < 80; ++i) {
            c.event();
            c.w.run_for(Nanos::from_ms(c.rng.between(0, 3'000)));
            reader.follow(c.w);
            if (!c.rng.chance(0.33)) continue;
            c.w.restart();
            for (const auto& [name, p] : c.w.providers) {
                if (c.rng.chance(0.3)) c.w.run_for(Nanos::from_ms(c.rng.between(0, 5'000)));
                if (c.rng.chance(0.8)) c.w.connect(name);
            }
        }
        reader.follow(c.w);
        reader.compare(c.w);
        receipts += reader.read;
    }
    ck_assert_uint_gt(receipts, 2'000);
}
END_TEST

UNIT_SUITE_LONG(market_account, 300, the_markets_account_never_falls_below_0_whatever_is_settled);
