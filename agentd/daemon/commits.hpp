// SPDX-License-Identifier: GPL-2.0-or-later
// Commits: the agent's journal in its turn of the loop. Records go into the journal at once; it is
// flushed in the loop's deferred phase, before any byte leaves, and what waits for a commit is
// called after it. As long as the disk refuses a commit the loop keeps back what would leave, and
// the log says so. Owned by the Agent.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernel/sys/host/log.hpp"
#include "kernel/sys/loop/loop.hpp"
#include "kernel/sys/store/journal_db.hpp"

namespace souk {

class Commits {
  public:
    // The database of this directory, and beside it a reserve of room.
    static Result<std::unique_ptr<Commits>> open(Loop& loop, Log& log,
                                                 const std::string& directory);
    Commits(Loop& loop, Log& log, std::string directory, std::unique_ptr<JournalDb> db);
    ~Commits();

    void put(const char* kind, const std::string& key, std::string record, Durable when);
    void erase(const char* kind, const std::string& key, Durable when);
    // As JournalDb::read_all; what is set aside is said in the log.
    Status read_all(const char* kind, const JournalDb::Read& read);
    void forget_aside(const char* kind, const std::string& key);
    // After the next commit.
    void then(std::function<void()> call);
    // After the commit of all that has been erased, if something has.
    bool erases_wait() const { return db_->journal().erases_wait(); }
    void after_erases(std::function<void()> call) { db_->journal().after_erases(std::move(call)); }

    const JournalDb& db() const { return *db_; }

  private:
    void ask_flush();
    void flush_later();
    void flush();
    void tell(const Journal::Flushed& flushed, bool held);

    Loop& loop_;
    Log& log_;
    const std::string directory_;
    std::unique_ptr<JournalDb> db_;
    Timer timer_;
    bool due_ = false;
};

}  // namespace souk
