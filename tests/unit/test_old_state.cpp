// SPDX-License-Identifier: GPL-2.0-or-later
// The daemons of commit 59249cf left this state on disk (tests/data/59249cf). The stores of today
// load it.
#include <unistd.h>
#include <zlib.h>

#include <set>

#include "agentd/core/home.hpp"
#include "agentd/store/records.hpp"
#include "market/core/market.hpp"
#include "market/store/finished.hpp"
#include "market/store/receipts.hpp"
#include "market/store/records.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::market;
using unit::TempDir;

namespace {

const std::string data = "tests/data/59249cf/";

const char* impossible() {
    if (access((data + "market.state.db.gz").c_str(), R_OK) == 0) return nullptr;
    return "the old databases lie in the source tree: run from there";
}

std::string unpacked(const std::string& file) {
    const gzFile in = gzopen(file.c_str(), "rb");
    ck_assert_msg(in != nullptr, "%s", file.c_str());
    std::string bytes(1 << 20, '\0');
    const int n = gzread(in, bytes.data(), static_cast<unsigned>(bytes.size()));
    ck_assert(n > 0 && gzeof(in));
    gzclose(in);
    bytes.resize(static_cast<size_t>(n));
    return bytes;
}

// A copy of the state directory that one daemon left.
struct Left {
    TempDir dir;
    explicit Left(const std::string& daemon) {
        (void)dir.write("state.db", unpacked(data + daemon + ".state.db.gz"));
    }
    StateDb open(int version = 0, int oldest = INT_MAX) const {
        auto db = StateDb::open(dir.path, version, oldest);
        ck_assert_msg(db.has_value(), "%s", db ? "" : db.error().message.c_str());
        return std::move(*db);
    }
    StateDb open_market() const { return open(market_schema_version, market_schema_oldest); }
};

// Reads all records of a kind. Each of them must be the same after it was written and read again.
template <class Record>
std::vector<Record> records(const StateDb& db, const char* kind) {
    const auto rows = db.load(kind);
    ck_assert(rows.has_value());
    std::vector<Record> all;
    for (const auto& row : *rows) {
        auto record = wire::unpack<Record>(row.value);
        ck_assert_msg(record.has_value(), "%s %s: %s", kind, row.key.c_str(),
                      record ? "" : record.error().message.c_str());
        const std::string bytes = wire::pack(*record);
        const auto again = wire::unpack<Record>(bytes);
        ck_assert_msg(again.has_value() && wire::pack(*again) == bytes, "%s %s", kind,
                      row.key.c_str());
        all.push_back(std::move(*record));
    }
    return all;
}

struct Loaded {
    Market market{MarketOptions{}};
    explicit Loaded(const StateDb& db) {
        for (auto& r : records<MetaRecord>(db, kind_meta)) market.load(std::move(r));
        for (auto& r : records<NodeRecord>(db, kind_node)) market.load(std::move(r));
        for (auto& r : records<JobRecord>(db, kind_job)) market.load(std::move(r));
        for (auto& r : records<AccountRecord>(db, kind_account)) market.load(std::move(r));
        for (auto& r : records<UserRecord>(db, kind_user)) market.load(std::move(r));
        for (auto& r : records<PriceRecord>(db, kind_price)) market.load(std::move(r));
        market.set_calendar(Nanos::from_s(1'795'397'900));
        market.started({});
    }
    std::string job(const char* home, uint64_t seq) const {
        const Job* job = market.find({home, seq});
        if (!job) return "none";
        const JobRecord& r = job->record;
        return std::string(to_string(r.report.phase)) + " " + r.report.where + " " +
               format_money(r.report.terms.max_price) + " " + r.report.name;
    }
};

}  // namespace

START_TEST(a_clean_end_of_an_old_daemon_is_not_taken_for_a_copy_without_its_log) {
    UNIT_SKIP_IF(impossible());
    for (const char* daemon : {"market", "n1", "n2", "n3"}) {
        const Left left(daemon);
        const int version = daemon[0] == 'm' ? market_schema_version : 0;
        {
            const StateDb db = left.open(version, market_schema_oldest);
            ck_assert_msg(!db.log_missing(), "%s", daemon);
        }
        // From now on the database has the mark that tells a copy without its log.
        std::string copy;
        {
            const StateDb db = left.open(version, market_schema_oldest);
            auto bytes = read_file(AT_FDCWD, db.path());
            ck_assert(bytes.has_value());
            copy = std::move(*bytes);
        }
        const TempDir other;
        (void)other.write("state.db", copy);
        const auto db = StateDb::open(other.path, version);
        ck_assert(db.has_value() && db->log_missing());
    }
}
END_TEST

START_TEST(the_old_ledger_is_good_to_the_last_hash) {
    UNIT_SKIP_IF(impossible());
    const Left left("market");
    StateDb db = left.open_market();
    const auto summary = verify_ledger(db);
    ck_assert_msg(summary.has_value(), "%s", summary ? "" : summary.error().message.c_str());
    ck_assert_uint_eq(summary->receipts, 24);
    ck_assert_uint_eq(summary->accounts, 5);
    ck_assert_text(format_money(summary->paid) + " " + format_money(summary->earned) + " " +
                       summary->head + summary->warning,
                   "0.084134 0.084134 "
                   "b603c884a99a2f2e0f3019d2695b151a2e7416d5c9eb8906f59f9641829aa1ce");
    // The next receipt continues the chain.
    auto book = ReceiptBook::open(db);
    ck_assert(book.has_value() && book->newest() == (ReceiptMark{24, summary->head}));
}
END_TEST

START_TEST(old_jobs_limits_and_prices_are_those_that_were_shown_then) {
    UNIT_SKIP_IF(impossible());
    const Left left("market");
    StateDb db = left.open_market();
    const Loaded loaded(db);
    const Market& m = loaded.market;
    ck_assert_uint_eq(m.jobs().size(), 5);
    ck_assert_text(loaded.job("n1", 2), "frozen n1 60 frozen");
    ck_assert_text(loaded.job("n1", 3), "running n1 50 running");
    ck_assert_text(loaded.job("n1", 4), "running n2 30 paced");
    ck_assert_text(loaded.job("n2", 2), "running n1 45 restart");
    ck_assert_text(loaded.job("n3", 1), "running n2 20 saved");
    const JobRecord& frozen = m.find({"n1", 2})->record;
    ck_assert(frozen.hold == Hold::frozen);
    ck_assert_text(format_money(frozen.account.amount), "0.019797");
    const JobTerms& paced = m.find({"n1", 4})->record.report.terms;
    ck_assert(paced.pace && paced.budget == Money::units(5));
    ck_assert(m.users().at(0).record.limits == (UserLimits{Money::units(500), 40, std::nullopt}));
    ck_assert(m.users().at(65'534).record.limits == (UserLimits{std::nullopt, std::nullopt, 3}));
    ck_assert_text(m.audit(), "");
    ck_assert(!m.find_node("n3")->record.report.on_market);
    ck_assert_int_eq(m.find_node("n2")->record.report.speed, 90);
    // Two minutes, the second after n2 and n3 were taken.
    const auto& prices = m.price_history().rows();
    ck_assert_uint_eq(prices.size(), 2);
    const PriceRecord& last = prices.rbegin()->second;
    ck_assert(last.minute == 29'923'297 && last.least == Money::units(5));
    ck_assert(last.speeds ==
              (std::vector<PriceRecord::Speed>{
                  {100, 1, Money::units(46)}, {90, 1, Money::units(6)}, {60, 1, Money::units(5)}}));
}
END_TEST

START_TEST(old_finished_jobs_are_found) {
    UNIT_SKIP_IF(impossible());
    const Left left("market");
    StateDb db = left.open_market();
    const auto finished = FinishedJobs::open(db);
    ck_assert(finished.has_value() && finished->count() == 3);
    const auto is = [&](const char* home, uint64_t seq) {
        const auto found = finished->find({home, seq});
        ck_assert(found.has_value() && *found);
        const JobRecord& r = **found;
        return r.report.user + " " + std::to_string(r.report.wait_status) + " " +
               format_money(r.account.amount);
    };
    ck_assert_text(is("n1", 1), "root 768 0");
    ck_assert_text(is("n1", 6), "root 9 0.008177");
    ck_assert_text(is("n2", 1), "nobody 0 0.005755");
}
END_TEST

START_TEST(old_homes_have_their_jobs) {
    UNIT_SKIP_IF(impossible());
    std::map<std::string, HomeJob> jobs;
    for (const char* node : {"n1", "n2", "n3"}) {
        const Left left(node);
        const StateDb db = left.open();
        Home home(node, {});
        for (HomeJob& job : records<HomeJob>(db, "home")) home.load(std::move(job));
        for (const auto& [seq, job] : home.jobs()) jobs.emplace(job.id.text(), job);
    }
    std::string all;
    for (const auto& [id, job] : jobs)
        all += id + " " + to_string(job.phase) + " " + job.at.node + "." +
               std::to_string(job.epoch.n) + "\n";
    ck_assert_text(all,
                   "n1.1 finished n1.1\n"
                   "n1.2 frozen n1.1\n"
                   "n1.3 running n1.2\n"
                   "n1.4 running n2.3\n"
                   "n1.5 waiting .0\n"
                   "n1.6 finished n2.2\n"
                   "n2.1 finished n1.1\n"
                   "n2.2 running n1.2\n"
                   "n3.1 running n2.3\n");
    ck_assert(jobs.at("n1.3").spec.net == NetMode::own &&
              jobs.at("n1.4").spec.net == NetMode::host);
    ck_assert(jobs.at("n2.2").spec.restart);
    ck_assert(jobs.at("n2.2").spec.move == MovePolicy::safe);
    ck_assert(jobs.at("n2.2").spec.tcp == TcpPolicy::refuse);
    const HomeJob& saved = jobs.at("n3.1");
    ck_assert(saved.spec.checkpoint_every == Nanos::from_s(5));
    ck_assert(saved.checkpoint.at.node == "n3" && saved.checkpoint.epoch == Epoch{16});
    ck_assert(saved.checkpoint.bytes > 100'000);
}
END_TEST

START_TEST(old_guests_are_where_their_homes_say) {
    UNIT_SKIP_IF(impossible());
    std::string all;
    for (const char* node : {"n1", "n2", "n3"}) {
        const Left left(node);
        const StateDb db = left.open();
        for (const GuestJob& g : records<GuestJob>(db, "guest")) {
            all += std::string(node) + " " + g.key.text() + " " + to_string(g.state) +
                   (g.kept ? " kept" : "") + "\n";
            if (g.state == GuestState::frozen && !g.kept) ck_assert(g.image_bytes > 1'000'000);
        }
    }
    ck_assert_text(all,
                   "n1 n1.2.1 frozen\n"
                   "n1 n1.3.2 running\n"
                   "n1 n2.2.2 running\n"
                   "n2 n1.4.3 running\n"
                   "n2 n3.1.3 running\n"
                   "n3 n3.1.16 frozen kept\n");
    const Left n2("n2"), n3("n3");
    ck_assert_int_eq(records<ProviderRecord>(n2.open(), "provider").at(0).speed, 90);
    ck_assert(records<ProviderRecord>(n3.open(), "provider").at(0).reserve == Money::units(5));
}
END_TEST

UNIT_SUITE(old_state, a_clean_end_of_an_old_daemon_is_not_taken_for_a_copy_without_its_log,
           the_old_ledger_is_good_to_the_last_hash,
           old_jobs_limits_and_prices_are_those_that_were_shown_then, old_finished_jobs_are_found,
           old_homes_have_their_jobs, old_guests_are_where_their_homes_say);
