// SPDX-License-Identifier: GPL-2.0-or-later
// LedgerKeeper: the ledger as a whole: its proof while the market runs, its copy, and what agents
// have seen of it. Each goes on beside everything else, a piece at a time. Owned by Marketd.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "kernel/sys/store/statecopy.hpp"
#include "market/core/market.hpp"
#include "market/daemon/connections.hpp"
#include "market/daemon/ledger_replies.hpp"
#include "market/daemon/market_records.hpp"
#include "market/daemon/step_taker.hpp"
#include "market/store/receipts.hpp"

namespace souk {

class LedgerKeeper {
  public:
    LedgerKeeper(Loop& loop, Log& log, market::Market& market, MarketRecords& records,
                 Connections& connections, ReplyQueue& replies, Warnings& warnings,
                 StepTaker& steps)
        : loop_(loop),
          log_(log),
          market_(market),
          records_(records),
          connections_(connections),
          replies_(replies),
          warnings_(warnings),
          steps_(steps) {}

    // Proves that the receipts say what the market holds. One that asks meanwhile shares the walk.
    void verify(uint64_t connection, const wire::CtlRequest& request);
    // Copies the records to a file of this machine, for its root alone, because the file is written
    // with this daemon's rights. There is one copy at a time; a caller that asks again
    // (CtlRequest::after) waits on.
    void begin_backup(uint64_t connection, const Connection& c, const wire::CtlRequest& request);
    // An agent says which receipt it saw last, and hears which is the last now.
    wire::CtlReply compare(const Connection& c, const wire::CtlRequest& request);
    // An agent says that its node has missed a promise to its owner, for a guest of it.
    wire::CtlReply promise_missed(const Connection& c, const wire::CtlRequest& request);
    void close();

  private:
    void heard_of_receipt(const NodeName& node, const ReceiptMark& seen, const std::string& here);
    struct Backup {
        std::string file;
        StateCopy copy;
        uint64_t connection = 0, request = 0;  // who waits for it
        Fd synced;
        Sync sync;
        Timer step, answer;
    };
    void walk_on();
    Result<LedgerSummary> walk_ended() const;
    Result<bool> walk_finished();
    void copy_on();
    void end_backup(Result<std::string> json);

    Loop& loop_;
    Log& log_;
    market::Market& market_;
    MarketRecords& records_;
    Connections& connections_;
    ReplyQueue& replies_;
    Warnings& warnings_;
    StepTaker& steps_;
    std::set<NodeName> differing_;  // nodes that have seen receipts which are not here
    std::optional<ReceiptWalk> walk_;
    std::vector<Reply> walkers_;  // those who wait for the walk
    Timer walk_timer_;
    // finished jobs below that number, and from that on, are still to be walked over
    uint64_t walked_to_ = 0, walked_from_ = 0;
    std::optional<Backup> backup_;
};

}  // namespace souk
