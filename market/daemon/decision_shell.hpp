// SPDX-License-Identifier: GPL-2.0-or-later
// DecisionShell: the decision log of marketd: the text of what the Market decides, and the files
// that it goes to. It writes a step's text when the records of that step are committed, has it on
// the disk within a second, and begins new segments. A log that cannot be written holds nothing
// back: the market goes on, and the text goes on with a snapshot and a gap before it when there is
// room. Owned by Marketd, and outlives its Market. Nothing here fails but open().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernel/sys/host/log.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "market/core/market.hpp"
#include "market/store/decision_files.hpp"

namespace souk {

class DecisionShell {
  public:
    // `newest`: of the decisions that the records name.
    static Result<std::unique_ptr<DecisionShell>> open(Loop& loop, Log& log, const std::string& dir,
                                                       DecisionFiles::Bounds bounds,
                                                       uint64_t newest);

    market::DecisionLog* text() { return &text_; }
    // After each step of the Market; `now` is Unix time.
    void stepped(const market::Market& market, Nanos now);
    // The records of the steps until here are committed.
    void write();
    void close();  // the end: nothing more comes

    const DecisionFiles& files() const { return files_; }
    uint64_t number() const { return text_.number(); }
    // Why nothing is written now; empty: it is.
    const std::string& trouble() const { return trouble_; }

  private:
    struct Block {
        std::string text;
        uint64_t number = 0;
        DecisionFiles::Named named;
        bool begins = false;
        Nanos now;
    };
    DecisionShell(Loop& loop, Log& log, DecisionFiles files, uint64_t newest);
    void failed(const Error& error);
    void sync_soon();

    Loop& loop_;
    Log& log_;
    DecisionFiles files_;
    market::DecisionText text_;
    std::vector<Block> blocks_;  // not committed yet
    bool begins_ = true;         // the next block begins a segment
    std::string trouble_;
    Nanos try_again_;
    bool unsynced_ = false;
    Fd synced_;
    Timer timer_;
    Sync sync_;
};

}  // namespace souk
