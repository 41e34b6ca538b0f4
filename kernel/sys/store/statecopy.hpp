// SPDX-License-Identifier: GPL-2.0-or-later
// StateCopy: a copy of a StateDb's file, made beside everything else, of one moment: that of its
// last step. A file of its own that needs no log, readable for its owner alone. It has another name
// (FILE.part) until it is whole and on the disk; what has that name already is not touched, nor is
// what has the copy's. restore_state: the other way, for a daemon that does not run. Errors: FILE
// is there already, its directory is not, no room.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kernel/base/result.hpp"
#include "kernel/sys/store/statedb.hpp"

struct sqlite3;
struct sqlite3_backup;

namespace souk {

class StateCopy {
  public:
    // `from` outlives it.
    static Result<StateCopy> begin(const StateDb& from, const std::string& file);
    StateCopy(StateCopy&&) noexcept;
    ~StateCopy();  // what is not finished is removed

    // So many pages more (below 0: all); what is committed meanwhile goes along. False: that was
    // all.
    Result<bool> step(int pages_max);
    // Then, in this order: the file, which is whole; and, when it has been synced (Loop::sync,
    // fsync), its name. That says its length in bytes.
    Result<Fd> whole();
    Result<int64_t> give_name();

  private:
    StateCopy() = default;
    struct Close {
        void operator()(sqlite3* db) const;
        void operator()(sqlite3_backup* backup) const;
    };
    std::string file_, part_;
    std::unique_ptr<sqlite3, Close> to_;
    std::unique_ptr<sqlite3_backup, Close> backup_;
};

// Puts the database `file` in the place of DIR/state.db. `check` says whether it is one that may
// stand there. What stood there is kept: its new name, or empty if there was none. Errors: a daemon
// holds the directory; `check`'s; nothing is changed then.
Result<std::string> restore_state(const std::string& file, const std::string& dir,
                                  int schema_version,
                                  const std::function<Status(const StateDb&)>& check);

}  // namespace souk
