// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/ledger_mark.hpp"

#include <algorithm>
#include <string_view>

namespace souk {
namespace {

constexpr Nanos wait = Nanos::from_s(1), pace = Nanos::from_s(30);

}  // namespace

void LedgerMark::compare() {
    wire::CtlRequest request;
    request.verb = "ledger-seen";
    if (mark_.seq > 0) request.args.push_back(mark_.text());
    hooks_.ask(std::move(request), [this](const wire::CtlReply& reply) {
        const std::string& text = reply.json;
        if (!reply.ok || text.size() < 2) return;  // a market that does not know the question
        auto mark = parse_receipt_mark(std::string_view(text).substr(1, text.size() - 2));
        if (!mark || mark->seq <= mark_.seq) return;
        mark_ = std::move(*mark);
        hooks_.keep(mark_.text());
    });
}

void LedgerMark::compare_soon() {
    if (timer_.waiting()) return;
    timer_ = loop_.at(std::max(asked_ + pace, Loop::now() + wait), [this] {
        asked_ = Loop::now();
        compare();
    });
}

}  // namespace souk
