// SPDX-License-Identifier: GPL-2.0-or-later
// The ledger: what becomes a receipt, both sides of it, the book on disk and what shows in it.
#include <sqlite3.h>

#include "kernel/base/rng.hpp"
#include "kernel/sys/store/sha256.hpp"
#include "market/store/receipts.hpp"
#include "market/store/records.hpp"
#include "tests/unit/market_world.hpp"
#include "tests/unit/temp_dir.hpp"

using namespace souk;
using namespace souk::market;
using unit::TempDir;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }

std::string text_of(const Receipt& r) {
    return r.job.text() + " on " + r.node + " " + std::to_string(r.run.ns / 1'000'000) + " ms at " +
           format_money(r.price) + ": " + format_money(r.paid);
}
std::string text_of(const std::vector<Receipt>& receipts) {
    std::string all;
    for (const Receipt& r : receipts) all += text_of(r) + "\n";
    return all;
}

// A world whose one job runs at the reserve of a machine that is alone.
struct Alone : World {
    JobId job;
    explicit Alone(int64_t reserve = 36, Money budget = {}) {
        transit = s(100);
        add_node("n1", 200, reserve);
        add_node("n2", 100, reserve);
        run_for(s(4));
        job = submit("n1", 100, Nanos::never(), 1, 100, budget);
        run_for(s(200));  // it started after 100
    }
    void on_market(const NodeName& node, bool on) {
        ProviderReport p = providers[node];
        p.on_market = on;
        set_provider(p);
    }
};

// A state database with the receipts of a random ledger, as marketd writes them.
struct Written {
    TempDir dir;
    std::string file = dir.path + "/state.db";
    std::vector<Receipt> receipts;
    explicit Written(int count = 40) {
        auto db = StateDb::open(dir.path, market_schema_version);
        auto book = ReceiptBook::open(*db);
        Ledger ledger;
        Rng rng(5);
        for (int i = 0; i < count; ++i) {
            Receipt r;
            r.job = {"n1", 1 + rng.below(5)};
            r.uid = static_cast<uint32_t>(1000 + rng.below(3));
            r.user = "user" + std::to_string(r.uid);
            r.node = "n" + std::to_string(1 + rng.below(3));
            r.from = s(1'700'000'000 + i * 60);
            r.to = r.from + s(60);
            r.run = s(50);
            r.price = Money::units(36);
            r.cpus = 1;
            r.paid = r.earned = Money::units(rng.between(1, 9));
            ledger.post(r);
        }
        receipts = ledger.take_posted();
        std::map<JobId, JobRecord> jobs;
        for (const Receipt& r : receipts) {
            book->append(r);
            JobRecord& job = jobs[r.job];
            job.report.id = r.job;
            job.report.terms.max_price = Money::units(1);
            job.account.amount += r.paid;
        }
        for (const auto& [id, job] : jobs) db->put(kind_job, id.text(), wire::pack(job));
        for (const AccountRecord& a : ledger.take_changed())
            db->put(kind_account, a.holder.text(), wire::pack(a));
        MetaRecord meta;
        meta.receipts = ledger.last();
        db->put(kind_meta, "market", wire::pack(meta));
        ck_assert(db->commit().has_value());
    }
    void change(const char* sql) const {
        sqlite3* db = nullptr;
        ck_assert_int_eq(sqlite3_open(file.c_str(), &db), SQLITE_OK);
        ck_assert_msg(sqlite3_exec(db, sql, nullptr, nullptr, nullptr) == SQLITE_OK, "%s",
                      sqlite3_errmsg(db));
        sqlite3_close(db);
    }
    std::string verdict() const {
        const auto db = StateDb::open_to_read(file, market_schema_version);
        if (!db) return db.error().message;
        const auto summary = verify_ledger(*db);
        return summary ? "good" : summary.error().message;
    }
};

}  // namespace

START_TEST(what_is_taken_back_at_another_price_changes_the_mean_that_a_receipt_states) {
    Tab tab;
    tab.add(Money::units(36), Nanos::from_s(100), Money::units(1), Nanos::from_s(1'000));
    // its home's clock was behind
    tab.add(Money::units(72), Nanos::from_s(-10), Money{-200'000}, Nanos::from_s(1'000));
    ck_assert(tab.run == Nanos::from_s(90) && tab.amount == Money{800'000});
    ck_assert(cost_of(tab.price, 1, tab.run) == tab.amount);
}
END_TEST

START_TEST(a_run_at_one_place_is_one_receipt_and_neither_move_nor_freeze_is_in_it) {
    Alone w;
    w.run_for(s(100));
    ck_assert(w.receipts.empty());
    w.on_market("n1", false);
    w.run_for(s(300));  // moves for 100 s, then runs on n2 for 200
    ck_assert_text(text_of(w.receipts), "n1.1 on n1 200000 ms at 36: 2\n");
    ck_assert_int_eq((w.receipts[0].to - w.receipts[0].from).ns, s(200).ns);
    w.on_market("n2", false);
    w.run_for(s(1'000));  // frozen
    ck_assert_text(text_of(w.receipts),
                   "n1.1 on n1 200000 ms at 36: 2\nn1.1 on n2 200000 ms at 36: 2\n");
    w.on_market("n1", true);
    w.run_for(s(150));  // thaws for 100
    w.end(w.jobs[w.job]);
    w.run_for(s(1));
    ck_assert_text(text_of(w.receipts.back()), "n1.1 on n1 50000 ms at 36: 0.5");
    ck_assert_text(format_money(w.market->ledger().balance(Holder::user(1000))), "-4.5");
    ck_assert_text(format_money(w.market->ledger().balance(Holder::provider("n1"))), "2.5");
    ck_assert_text(format_money(w.market->ledger().balance(Holder{})), "0");
}
END_TEST

START_TEST(each_price_that_lasts_has_a_receipt_and_those_that_change_within_seconds_share_one) {
    Alone w;
    w.transit = {};
    w.run_for(s(100));
    w.on_market("n2", false);
    const auto rival = [&](int64_t bid) { return w.submit_as(1001, "n1", bid); };
    const JobId first = rival(72);  // what it must be paid to keep away
    w.run_for(s(50));
    ck_assert_text(text_of(w.receipts), "n1.1 on n1 200000 ms at 36: 2\n");
    (void)w.market->cancel(first, 0);
    w.run_for(s(1));
    ck_assert_text(text_of(w.receipts.back()), "n1.1 on n1 50000 ms at 72: 1");
    const size_t before = w.receipts.size();
    for (int i = 0; i < 9; ++i) {  // a price a second
        const JobId other = rival(40 + i);
        w.run_for(s(1));
        (void)w.market->cancel(other, 0);
    }
    w.run_for(s(100));
    ck_assert_uint_le(w.receipts.size() - before, 2);
    w.run_for(s(3'700));
    ck_assert_text(text_of(w.receipts.back()).substr(0, 11), "n1.1 on n1 ");
}
END_TEST

// Method: random markets are checked at every step by World::check_stored; here, that one made
// before there was a ledger is.
START_TEST(records_of_a_market_without_a_ledger_are_brought_forward) {
    Alone w;
    w.run_for(s(500));
    w.on_market("n1", false);
    w.run_for(s(700));
    const Money cost = w.cost(w.job);
    ck_assert(cost > Money::units(5));
    w.stored_accounts.clear();
    w.receipts.clear();
    w.paid.clear();
    w.stored_meta.ledger = false;
    w.stored_meta.receipts = 0;
    w.stored_meta.retired = Money::units(3);
    w.stored_nodes["n2"].earned += Money::units(3);
    for (auto& [id, job] : w.stored_jobs) job.tab = {};
    w.restart();
    w.connect("n1");
    w.connect("n2");
    w.run_for(s(100));
    ck_assert_text(format_money(w.market->ledger().balance(Holder::user(nobody_uid))), "-3");
    ck_assert_text(format_money(w.market->ledger().balance(Holder{})), "0");
    w.end(w.jobs[w.job]);
    w.run_for(s(1));
    ck_assert(Money{} - w.market->ledger().balance(Holder::user(1000)) == w.cost(w.job));
    w.restart();  // and once only
    const size_t receipts = w.receipts.size();
    w.run_for(s(1));
    ck_assert_uint_eq(w.receipts.size(), receipts);
}
END_TEST

START_TEST(a_receipt_reads_back_from_its_text_and_nothing_else_does) {
    Receipt r;
    r.seq = 7;
    r.job = {"n1", 12};
    r.uid = 1000;
    r.user = "A. User";
    r.node = "n2";
    r.from = {1};
    r.to = {2};
    r.run = {-3};
    r.cpu = {4};
    r.price = {5};
    r.cpus = 6;
    r.paid = r.earned = {-7};
    const std::string text = receipt_text(r);
    ck_assert_text(text, "7\tuse\tn1.12\t1000\tA. User\tn2\t1\t2\t-3\t4\t5\t6\t-7\t-7");
    ck_assert(parse_receipt(text).value() == r);
    for (const std::string& bad :
         {text + "\t", text + "0\t1", text.substr(2), "0" + text, std::string(), text + " "})
        ck_assert_msg(!parse_receipt(bad), "'%s' was taken", bad.c_str());
    r.reason = "displaced";  // with no log of decisions
    ck_assert_text(receipt_text(r), text + "\t0\t0\tdisplaced");
    ck_assert(parse_receipt(receipt_text(r)).value() == r);
    r.decided_from = 3;
    r.decided_to = 4;
    ck_assert(parse_receipt(receipt_text(r)).value() == r);
    for (const std::string& bad :
         {text + "\t3\t4\t", text + "\t3\t4\tIn words", text + "\t3\t4\tx\ty"})
        ck_assert_msg(!parse_receipt(bad), "'%s' was taken", bad.c_str());
    r.files_out = 8;
    r.files_requests = 9;
    ck_assert_text(receipt_text(r), text + "\t3\t4\tdisplaced\t8\t0\t9");
    ck_assert(parse_receipt(receipt_text(r)).value() == r);
    r.reason.clear();
    ck_assert_text(receipt_text(r), text + "\t3\t4\t-\t8\t0\t9");
    ck_assert(parse_receipt(receipt_text(r)).value() == r);
    for (const std::string& bad :
         {text + "\t3\t4\t-", text + "\t3\t4\t-\t8\t0", text + "\t3\t4\tx\t0\t0\t0",
          text + "\t3\t4\tx\t8\t0\t-9", text + "\t3\t4\tx\t8\t0\t9\t1"})
        ck_assert_msg(!parse_receipt(bad), "'%s' was taken", bad.c_str());
    r.files_out = r.files_requests = 0;  // as receipts of before
    ck_assert_text(receipt_text(r), text + "\t3\t4");
    ck_assert(parse_receipt(receipt_text(r)).value() == r);
}
END_TEST

START_TEST(the_hash_is_sha256) {
    ck_assert_text(sha256_hex("abc"),
                   "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}
END_TEST

START_TEST(whatever_is_changed_in_the_book_is_named) {
    ck_assert_text(Written().verdict(), "good");
    const auto after = [](const char* sql) {
        const Written w;
        w.change(sql);
        return w.verdict();
    };
    const std::string hash = ": its hash is not that of what it says and of the one before";
    ck_assert_text(after("UPDATE state SET value = replace(value, 'user', 'loser') WHERE kind = "
                         "'receipt' AND key LIKE '%017'"),
                   "receipt 17" + hash);
    ck_assert_text(after("UPDATE state SET value = '1' || substr(value, 2) WHERE kind = 'receipt' "
                         "AND key LIKE '%012'")
                       .substr(0, 10),
                   "receipt 12");
    ck_assert_text(after("DELETE FROM state WHERE kind = 'receipt' AND key LIKE '%015'"),
                   "receipt 16" + hash);
    ck_assert_text(after("DELETE FROM state WHERE kind = 'receipt' AND key LIKE '%040'"),
                   "there are 39 receipts, and there were 40");
    ck_assert_text(after("UPDATE state SET key = '00000000000000000041' WHERE kind = 'receipt' AND "
                         "key LIKE '%040'"),
                   "receipt 41: it has the number 40");
    ck_assert_text(after("UPDATE state SET value = 'x' WHERE kind = 'receipt' AND key LIKE '%003'"),
                   "receipt 3: it is not one");
    ck_assert_text(after("DELETE FROM state WHERE key = 'user 1001'").substr(0, 24),
                   "the account of user 1001");
    ck_assert_text(after("UPDATE state SET value = (SELECT value FROM state WHERE key = 'node n2') "
                         "WHERE key = 'node n1'"),
                   "the account of node n1 is that of node n2");
    ck_assert_text(after("UPDATE state SET value = (SELECT value FROM state WHERE key = 'n1.2' AND "
                         "kind = 'job') "
                         "WHERE key = 'n1.1' AND kind = 'job'"),
                   "the record of job n1.1 is that of n1.2");
    ck_assert_text(after("DELETE FROM state WHERE kind = 'job'"), "good");  // finished long ago
    ck_assert_text(
        after("DELETE FROM state WHERE kind = 'account' AND key LIKE 'user%'").substr(0, 19),
        "the account of user");
}
END_TEST

// Method: each bit of a receipt's row in the file, one at a time. What it says or its hash: that
// receipt is named. What SQLite keeps around it: it is refused, and the database's error names the
// receipts that could not be read.
START_TEST(a_flipped_bit_in_a_receipt_names_it) {
    const Written w;
    std::string whole;
    { whole = read_file(AT_FDCWD, w.file, 1 << 24).value(); }
    const auto book = [&] {
        const auto db = StateDb::open_to_read(w.file, market_schema_version);
        return db->load(kind_receipt).value();
    }();
    Rng rng(3);
    for (int round = 0; round < 150; ++round) {
        const size_t n = rng.below(book.size());
        const size_t at = whole.find(book[n].value);
        ck_assert_uint_ne(at, std::string::npos);
        std::string bad = whole;
        bad[at + rng.below(book[n].value.size())] ^= static_cast<char>(1 << rng.below(8));
        ck_assert(write_file(AT_FDCWD, w.file, bad).has_value());
        const std::string verdict = w.verdict();
        ck_assert_msg(verdict.starts_with("receipt " + std::to_string(n + 1) + ": "),
                      "receipt %zu: %s", n + 1, verdict.c_str());
    }
    for (int round = 0; round < 300; ++round) {  // anywhere
        std::string bad = whole;
        bad[rng.below(whole.size())] ^= static_cast<char>(1 << rng.below(8));
        ck_assert(write_file(AT_FDCWD, w.file, bad).has_value());
        const std::string v = w.verdict();
        const bool named = v == "good" || v.find("receipt") != std::string::npos ||
                           v.find("job ") != std::string::npos ||
                           v.find("account of ") != std::string::npos ||
                           v.find("record of the market") != std::string::npos ||
                           v.find(w.file) != std::string::npos;
        ck_assert_msg(named, "%s", v.c_str());
    }
}
END_TEST

START_TEST(what_an_agent_has_seen_tells_an_older_state_and_another_past) {
    const Written w(20);
    const auto verdict = [&w](const ReceiptMark& seen) {
        const auto db = StateDb::open_to_read(w.file, market_schema_version);
        const auto summary = verify_ledger(*db, seen);
        return summary ? "good" : summary.error().message;
    };
    const auto db = StateDb::open_to_read(w.file, market_schema_version);
    const auto book = ReceiptBook::open(const_cast<StateDb&>(*db));
    const std::string hash = book->hash_of(7).value();
    ck_assert_text(verdict({7, hash}), "good");
    ck_assert_text(verdict({20, book->newest().head}), "good");
    ck_assert_text(verdict({21, hash}),
                   "an agent has seen receipt 21, and the last here is 20: this is an older state "
                   "of the ledger");
    ck_assert(
        verdict({7, book->newest().head})
            .starts_with("receipt 7: an agent has seen it with the hash " + book->newest().head));
    ck_assert_text(book->hash_of(21).value(), "");
    ck_assert(parse_receipt_mark(ReceiptMark{7, hash}.text()).value() == (ReceiptMark{7, hash}));
    for (const std::string& bad : {std::string(), std::string("7"), "7:" + hash + "0", "7 " + hash,
                                   ":" + hash, "7:" + hash.substr(1) + "G"})
        ck_assert_msg(!parse_receipt_mark(bad), "'%s' was taken", bad.c_str());
}
END_TEST

START_TEST(pages_go_from_the_newest_on_and_hold_what_the_filter_lets_through) {
    Written w(12'000);
    auto db = StateDb::open(w.dir.path, market_schema_version);
    auto book = ReceiptBook::open(*db);
    Rng rng(9);
    for (int round = 0; round < 20; ++round) {
        ReceiptBook::Filter filter;
        if (rng.chance(0.5)) filter.job = JobId{"n1", 1 + rng.below(6)};
        if (rng.chance(0.5)) filter.uid = static_cast<uint32_t>(1000 + rng.below(4));
        if (rng.chance(0.5)) filter.node = "n" + std::to_string(1 + rng.below(4));
        if (rng.chance(0.5)) filter.since = s(1'700'000'000 + rng.between(0, 800'000));
        std::vector<uint64_t> wanted, got;
        for (auto it = w.receipts.rbegin(); it != w.receipts.rend(); ++it)
            if (filter.lets(*it)) wanted.push_back(it->seq);
        std::optional<uint64_t> before = 20'000;
        while (before) {
            const auto page = book->page(filter, *before, 700);
            ck_assert(page.has_value() && page->entries.size() <= 700);
            for (const auto& e : page->entries) got.push_back(e.receipt.seq);
            ck_assert(!page->before || *page->before < *before);
            before = page->before;
        }
        ck_assert_msg(got == wanted, "round %d: %zu receipts, not %zu", round, got.size(),
                      wanted.size());
    }
}
END_TEST

START_TEST(an_older_database_is_taken_over_and_a_newer_one_refused) {
    TempDir dir;
    { ck_assert(StateDb::open(dir.path, 1).has_value()); }
    ck_assert(!StateDb::open(dir.path, 3, 2).has_value());
    ck_assert(StateDb::open(dir.path, 2, 1).has_value());
    ck_assert(StateDb::open(dir.path, 2).has_value());
    ck_assert(!StateDb::open(dir.path, 1, 1).has_value());
    ck_assert(!StateDb::open_to_read(dir.path + "/none", 2).has_value());
}
END_TEST

UNIT_SUITE(ledger, what_is_taken_back_at_another_price_changes_the_mean_that_a_receipt_states,
           a_run_at_one_place_is_one_receipt_and_neither_move_nor_freeze_is_in_it,
           each_price_that_lasts_has_a_receipt_and_those_that_change_within_seconds_share_one,
           records_of_a_market_without_a_ledger_are_brought_forward,
           a_receipt_reads_back_from_its_text_and_nothing_else_does, the_hash_is_sha256,
           whatever_is_changed_in_the_book_is_named, a_flipped_bit_in_a_receipt_names_it,
           what_an_agent_has_seen_tells_an_older_state_and_another_past,
           pages_go_from_the_newest_on_and_hold_what_the_filter_lets_through,
           an_older_database_is_taken_over_and_a_newer_one_refused);
