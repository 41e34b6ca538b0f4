// SPDX-License-Identifier: GPL-2.0-or-later
// JournalDb: a daemon's Journal on its state database. It commits what the journal says is due;
// what is written as Records is due now, and read through what is not committed yet. Beside the
// database it may keep a reserve of room, a file, so that the state itself can be written on a disk
// that a job's image or output has filled. Owned by the daemon; not moved.
//
// A record that cannot be read does not keep its daemon down. It is set aside: it stays in the
// database, as kind `aside` under "KIND KEY", is no record of its kind any more, and is tried again
// at each start, as a later version may be able to read it. The file `aside.txt` of the state
// directory lists what is set aside, for `souk doctor`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernel/base/journal.hpp"
#include "kernel/sys/store/statedb.hpp"

namespace souk {

class JournalDb final : public Records, private Journal::Store {
  public:
    // `reserve`: the name of its file; empty: there is none.
    explicit JournalDb(StateDb db, std::string reserve = {})
        : db_(std::move(db)), reserve_(std::move(reserve)), journal_(*this) {}
    JournalDb(const JournalDb&) = delete;
    JournalDb& operator=(const JournalDb&) = delete;

    Journal& journal() { return journal_; }
    const Journal& journal() const { return journal_; }
    // Returns the database, to read what is committed, and to copy it.
    StateDb& db() { return db_; }
    const StateDb& db() const { return db_; }

    void put(std::string_view kind, std::string_view key, std::string value) override;
    void erase(std::string_view kind, std::string_view key) override;
    Result<std::optional<std::string>> get(std::string_view kind,
                                           std::string_view key) const override;

    struct SetAside {
        std::string kind, key, why;
    };
    // Gives each record of this kind to `read`, also those that were set aside before. One for
    // which it returns an error is set aside (or stays so); `read` has changed nothing then.
    // Errors: those of the database.
    using Read = std::function<Status(const StateDb::Row&)>;
    Status read_all(std::string_view kind, const Read& read);
    // All that read_all has found until now, but for those whose place a newer record has: these
    // are kept for people, and nothing depends on them.
    const std::vector<SetAside>& set_aside() const { return aside_; }
    bool is_aside(std::string_view kind, std::string_view key) const;
    // Gives such a record up: it is erased.
    void forget_aside(std::string_view kind, std::string_view key);

    // Returns false if there is no reserve. (May be called for a database that cannot even be
    // opened.)
    static bool give_up(const std::string& reserve);

  private:
    Status commit(const Changes& changes) override { return db_.commit(changes); }
    bool give_room() override { return give_up(reserve_); }
    bool take_room() override;
    void list_aside() const;
    bool leaves_traces() const override { return true; }
    bool scrub() override { return db_.scrub(); }

    StateDb db_;
    const std::string reserve_;
    std::vector<SetAside> aside_, replaced_;
    Journal journal_;
};

}  // namespace souk
