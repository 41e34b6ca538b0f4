// SPDX-License-Identifier: GPL-2.0-or-later
// Questions about money and use to a real marketd, over its socket (market_rig.hpp): what a user
// may ask of it on and on keeps nobody else waiting.
#include <time.h>

#include <filesystem>
#include <nlohmann/json.hpp>  // before Check, whose macro fail() would break it

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

UNIT_SUITE(market_sums, sums_over_years_keep_nobody_waiting,
           a_statement_goes_on_at_no_mark_that_a_number_cannot_hold);
