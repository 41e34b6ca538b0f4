// SPDX-License-Identifier: GPL-2.0-or-later
// Questions about money and use to a real marketd, over its socket (market_rig.hpp): what a user
// may ask of it on and on keeps nobody else waiting.
#include <time.h>

#include <filesystem>
#include <nlohmann/json.hpp>  // before Check, whose macro fail() would break it

#include "market/core/transfer_pace.hpp"
#include "market/store/receipts.hpp"
#include "market/store/usage.hpp"
#include "tests/unit/market_rig.hpp"

using namespace souk;
using souk::unit::MarketPeer;
using souk::unit::MarketRig;

namespace {

const char* no_marketd() {
    if (std::filesystem::exists(souk::unit::marketd_path())) return nullptr;
    return "a test of marketd needs its program: make bins";
}

}  // namespace

// A tool sends all its questions in one packet: who asks for little has his answer before the sums
// over many rows are done, and nobody has more of those reckoned than he may.
START_TEST(sums_over_years_keep_nobody_waiting) {
    UNIT_SKIP_IF(no_marketd());
    constexpr int64_t day_ns = 86'400'000'000'000, days = 1'000;
    MarketRig m;
    ck_assert_int_eq(m.stop(), 0);
    {
        auto db = StateDb::open(m.dir + "/state", market_schema_version);
        ck_assert(db.has_value());
        UsageBook book(*db, *db);
        market::Receipt r;
        r.job = {"n1", 1};
        r.node = "n1";
        r.paid = r.earned = Money::units(1);
        const int64_t today = ::time(nullptr) / 86'400;
        for (int64_t n = 0; n < 40 * days; ++n) {
            r.to = Nanos{(today - n % days) * day_ns};
            r.uid = static_cast<uint32_t>(1'000 + n / days);
            r.user = "u" + std::to_string(r.uid);
            ck_assert(book.add(r).has_value());
        }
        ck_assert(db->commit().has_value());
    }
    m.start();
    MarketPeer tool = m.tool();
    std::string frames;
    for (uint64_t n = 1; n <= 6; ++n) {
        const wire::CtlRequest ask{n, 0, n < 6 ? "report" : "status", {}, {}};
        frames += text_of(wire::encode_frame(wire::market_words, wire::frame_type<wire::CtlRequest>,
                                             wire::pack(ask)));
    }
    tool.send_raw(frames);
    const auto refused = tool.expect<wire::CtlReply>();
    ck_assert_uint_eq(refused.request, 5);
    ck_assert_text(refused.error, "too many reports are asked for at once: ask again");
    ck_assert_uint_eq(tool.expect<wire::CtlReply>().request, 6);
    for (uint64_t n = 1; n <= 4; ++n) {
        const auto report = tool.expect<wire::CtlReply>();
        ck_assert_uint_eq(report.request, n);
        const auto rows = nlohmann::json::parse(report.json);
        ck_assert_uint_eq(rows.size(), 40);
        ck_assert(rows[0]["paid"] == days);
    }
    ck_assert_text(m.ask("report", {"by=hour"}).error,
                   "report: by is one of user, node and day, not 'hour'");
}
END_TEST

// The mark at which a statement goes on comes back from whoever asks.
START_TEST(a_statement_goes_on_at_no_mark_that_a_number_cannot_hold) {
    UNIT_SKIP_IF(no_marketd());
    MarketRig m;
    ck_assert_text(m.ask("deposit", {"1000", "5", ""}).error, "");
    ck_assert(m.ask("statement", {"1000"}, "9/9/5000000").json.find("\"balance\":5,") !=
              std::string::npos);
    for (const std::string mark : {"9/9/-9223372036854775808", "9/9/9223372036854775807"})
        ck_assert_text(m.ask("statement", {"1000"}, mark).error,
                       "'" + mark + "' is not where a statement goes on");
}
END_TEST

// A node says itself which of its users asks.
START_TEST(money_in_the_least_parts_fills_neither_the_ledger_nor_its_accounts) {
    UNIT_SKIP_IF(no_marketd());
    MarketRig m;
    for (const char* user : {"1000", "1001"})
        ck_assert_text(m.ask("deposit", {user, "5", ""}).error, "");
    MarketPeer evil = m.agent("evil");
    uint64_t number = 0;
    const auto gives = [&](MarketPeer& node, uint32_t uid, uint32_t to) {
        node.send(wire::CtlRequest{
            ++number, uid, "transfer", {"-", std::to_string(to), "0.000001", ""}, {}});
        return node.expect<wire::CtlReply>();
    };
    int64_t given = 0;
    wire::CtlReply last;
    for (uint32_t to = 100'000; to < 102'000 && (last = gives(evil, 1'000, to)).ok; ++to) ++given;
    ck_assert_int_eq(given, market::TransferPace::user_burst);
    ck_assert_text(last.error, "too many transfers of you or of your node: one more each 10 s");
    ck_assert(last.error.code == CauseCode::too_many);
    ck_assert(gives(evil, 1'001, 100'000).ok);  // somebody else
}
END_TEST

START_TEST(the_users_that_a_node_names_have_no_more_transfers_than_the_node) {
    market::TransferPace pace;
    Nanos now = Nanos::from_s(5);
    int64_t given = 0;
    for (uint32_t n = 0; n < 20'000; ++n) given += pace.take("evil", n % 500, now);
    ck_assert_int_eq(given, market::TransferPace::node_burst);
    ck_assert(pace.take("n1", 1, now) && !pace.take("evil", 1, now));
    ck_assert_uint_eq(pace.known(), 502);
    now += Nanos::from_s(1);
    ck_assert(pace.take("evil", 1, now) && !pace.take("evil", 2, now));
    // A user who has all of it again is forgotten.
    now += Nanos::from_s(10'000);
    ck_assert(pace.take("n2", 7, now));
    ck_assert_uint_eq(pace.known(), 2);
}
END_TEST

// Places to wait are for the users of all nodes.
START_TEST(a_node_that_names_many_users_waits_for_few_orders) {
    UNIT_SKIP_IF(no_marketd());
    MarketRig m;
    MarketPeer evil = m.agent("evil"), n1 = m.agent("n1");
    const auto job = [](const char* home, uint64_t seq, uint32_t uid) {
        JobReport r;
        r.id = {home, seq};
        r.terms.max_price = Money::units(1);
        r.uid = uid;
        r.user = "u" + std::to_string(uid);
        return r;
    };
    const auto wait = [](uint64_t number, uint32_t uid, const std::string& id) {
        return wire::CtlRequest{number, uid, "await", {id, "n9", "move", "0", "0", "20000"}, {}};
    };
    for (uint32_t n = 1; n <= 200; ++n) evil.send(job("evil", n, 20'000 + n));
    for (uint32_t n = 1; n <= 200; ++n) evil.send(wait(n, 20'000 + n, "evil." + std::to_string(n)));
    size_t refused = 0;
    for (uint64_t n = 129; n <= 200; ++n) {
        const auto reply = evil.expect<wire::CtlReply>();
        refused += reply.error.code == CauseCode::too_many && reply.request == n;
    }
    ck_assert_uint_eq(refused, 72);
    n1.send(job("n1", 1, 1'000));
    n1.send(wait(1, 1'000, "n1.1"));
    n1.send(wire::CtlRequest{2, 1'000, "status", {}, {}});
    ck_assert_uint_eq(n1.expect<wire::CtlReply>().request, 2);  // the first waits
}
END_TEST

UNIT_SUITE(market_sums, sums_over_years_keep_nobody_waiting,
           money_in_the_least_parts_fills_neither_the_ledger_nor_its_accounts,
           the_users_that_a_node_names_have_no_more_transfers_than_the_node,
           a_node_that_names_many_users_waits_for_few_orders,
           a_statement_goes_on_at_no_mark_that_a_number_cannot_hold);
