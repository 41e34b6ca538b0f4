// SPDX-License-Identifier: GPL-2.0-or-later
// souk-ledger: the proof of a ledger that no market serves, for `marketctl ledger verify --db`. A program of its own, so
// that marketctl, which is started for every order by hand, need not load a database and a library of ciphers.
#include <cstdio>
#include <string_view>

#include "market/store/receipts.hpp"
#include "tools/common/args.hpp"
#include "tools/common/ask.hpp"

namespace souk::tools {
namespace {

Result<std::string> verified(const std::string& file) {
    TRY_ASSIGN(const StateDb db, StateDb::open_to_read(file, market_schema_version));
    TRY_ASSIGN(const LedgerSummary summary, verify_ledger(db));
    return ledger_json(summary);
}

int run(int argc, char** argv) {
    if (argc != 2 || std::string_view(argv[1]) == "--help") {
        std::fprintf(stderr, "usage: souk-ledger FILE\nVerifies the ledger in a state.db of a market that is not running; "
                             "JSON on stdout. (marketctl ledger verify --db FILE shows it for people.)\n");
        return 2;
    }
    const auto json = verified(argv[1]);
    const Status shown = json ? print(*json) : Status(tl::unexpected(json.error()));
    if (shown) return 0;
    complain("souk-ledger", shown.error().message);
    return 1;
}

}  // namespace
}  // namespace souk::tools

int main(int argc, char** argv) { return souk::tools::run(argc, argv); }
