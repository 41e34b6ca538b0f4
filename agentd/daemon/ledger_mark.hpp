// SPDX-License-Identifier: GPL-2.0-or-later
// LedgerMark: the newest receipt of the market that this node has heard of. It is told to the
// market, which answers with its newest: so a market whose records are those of an earlier day
// finds it out. Kept on disk. Owned by the Agent.
#pragma once

#include <functional>
#include <string>

#include "agentd/wire/codec.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "market/store/receipts.hpp"

namespace souk {

class LedgerMark {
  public:
    struct Hooks {
        std::function<void(wire::CtlRequest, std::function<void(const wire::CtlReply&)>)> ask;
        std::function<void(const std::string& text)> keep;
    };
    LedgerMark(Loop& loop, ReceiptMark known, Hooks hooks)
        : loop_(loop), mark_(std::move(known)), hooks_(std::move(hooks)) {}

    const ReceiptMark& mark() const { return mark_; }
    void compare();
    // In a moment, and not often: receipts have been written.
    void compare_soon();

  private:
    Loop& loop_;
    ReceiptMark mark_;
    Hooks hooks_;
    Timer timer_;
    Nanos asked_{INT64_MIN / 2};
};

}  // namespace souk
