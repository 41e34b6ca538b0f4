// SPDX-License-Identifier: GPL-2.0-or-later
// souk-ledger: what marketctl does with the records of a market that is not running: their proof
// (`marketctl ledger verify
// --db`), and putting a backup in their place (`marketctl restore`). A program of its own, so that
// marketctl, which is started for every order by hand, need not load a database and a library of
// ciphers.
#include <cstdio>
#include <string_view>

#include "kernel/base/json.hpp"
#include "kernel/base/version.hpp"
#include "kernel/sys/store/statecopy.hpp"
#include "market/store/receipts.hpp"
#include "tools/common/args.hpp"
#include "tools/common/ask.hpp"

namespace souk::tools {
namespace {

constexpr const char* usual_directory = "/var/lib/souk/marketd";

Result<std::string> verified(const std::string& file, const std::string& seen) {
    ReceiptMark mark;
    if (!seen.empty()) {
        TRY_ASSIGN(mark, parse_receipt_mark(seen));
    }
    TRY_ASSIGN(const StateDb db, StateDb::open_to_read(file, market_schema_version));
    TRY_ASSIGN(const LedgerSummary summary, verify_ledger(db, mark));
    return ledger_json(summary);
}

// Restores a backup. Its ledger is checked first, because a ledger that does not add up must not
// take the place of one that may.
Result<std::string> restored(const std::string& file, const std::string& dir) {
    LedgerSummary summary;
    const auto check = [&](const StateDb& db) -> Status {
        TRY_ASSIGN(summary, verify_ledger(db));
        return {};
    };
    TRY_ASSIGN(const std::string kept, restore_state(file, dir, market_schema_version, check));
    JsonWriter w;
    w.begin_object().field("restored", dir + "/state.db");
    if (!kept.empty()) w.field("kept", kept);
    w.field("receipts", summary.receipts).field("head", summary.head).end_object();
    return w.take();
}

int run(int argc, char** argv) {
    if (version_asked("souk-ledger", argc, argv)) return 0;
    const std::string_view verb = argc > 1 ? argv[1] : "";
    if (argc != 4 || (verb != "verify" && verb != "restore")) {
        std::fprintf(stderr,
                     "usage: souk-ledger verify FILE SEEN | restore FILE DIRECTORY\nThe records of "
                     "a market that is not running; "
                     "JSON on stdout. SEEN and DIRECTORY may be empty. (marketctl ledger verify "
                     "--db FILE and marketctl restore "
                     "FILE show it for people.)\n");
        return 2;
    }
    const std::string file = argv[2], more = argv[3];
    const auto json = verb == "verify" ? verified(file, more)
                                       : restored(file, more.empty() ? usual_directory : more);
    const Status shown = json ? print(*json) : Status(tl::unexpected(json.error()));
    if (shown) return 0;
    complain("souk-ledger", shown.error());
    return 1;
}

}  // namespace
}  // namespace souk::tools

int main(int argc, char** argv) { return souk::tools::run(argc, argv); }
