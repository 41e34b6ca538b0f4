// SPDX-License-Identifier: GPL-2.0-or-later
// StateDb: what a daemon must know after a crash, as (kind, key) -> bytes in one SQLite file of its
// state directory, which it alone holds (a lock file; a second daemon is refused). put() and
// erase() only note changes; commit() writes all of them in one durable transaction (WAL,
// synchronous=FULL), once per loop iteration, and costs nothing when nothing changed. A commit that
// fails (full disk) leaves the last committed state on disk and keeps the changes: they are in the
// next commit. So "persist, then send" is: hold back what depends on it until commit() says ok. One
// owner, one thread; the calls block for the disk. Small: a page cache of 256 KiB, a WAL of about 4
// MiB.
//
// The log beside the file (state.db-wal) holds the newest commits while a daemon has the database.
// Its clean end puts them into the file, removes the log and takes the mark of it off the file's
// header. So a file with the mark and without its log is a copy that may lack what was committed
// last (log_missing). A row of the file says that its daemons do so: those up to commit 59249cf
// left the mark. A file of this name is never empty: a new one is made whole under another name
// first.
#pragma once

#include <climits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/records.hpp"
#include "kernel/base/result.hpp"
#include "kernel/sys/host/fd.hpp"

struct sqlite3;
struct sqlite3_stmt;

namespace souk {

class StateDb final : public Records {
  public:
    struct Row {
        std::string key, value;
    };
    // Opens or creates DIR/state.db (the directory must exist). `schema_version` is that of the
    // records' meaning: a file of another version is refused, but from `oldest` on it becomes one
    // of this version: its records are read with defaults. Errors: in use by another process (and
    // which), of another version, not a database, empty, its log without it, not writable.
    static Result<StateDb> open(const std::string& dir, int schema_version, int oldest = INT_MAX);
    // An existing file, to look at: nothing is ever committed, and what lies there stays as it is.
    // Errors: as above, or it is not there.
    static Result<StateDb> open_to_read(const std::string& file, int schema_version);
    // Tells that the database may lack what was committed last: see above.
    bool log_missing() const { return log_missing_; }
    const std::string& path() const { return path_; }
    static std::string log_missing_text(const std::string& file);
    // Takes a state directory for this process, for as long as the descriptor is open. Errors:
    // another has it, and which.
    static Result<Fd> lock_directory(const std::string& dir);
    StateDb(StateDb&&) noexcept;
    ~StateDb() override;  // changes that were not committed are lost

    void put(std::string_view kind, std::string_view key, std::string value) override;
    void erase(std::string_view kind, std::string_view key) override;
    bool has_changes() const { return !changes_.empty(); }
    // Errors: one line with the directory and SQLite's reason; the changes stay noted.
    Status commit();
    // Commits changes that the caller notes. If that fails, nothing of them is kept here.
    Status commit(const Changes& changes);
    // After this none of the files holds what was erased or replaced: the database has zeros there
    // (secure_delete), and the log is put into it and made empty, as at each open. False: this is
    // not possible now (a full disk, a copy that is being made). Blocks that the file system has
    // freed may still hold old data; we do not look at them.
    bool scrub();
    // Counts the commits since the database was opened. Each is one sync of the log; moving the log
    // into the file, every 1,024 pages, is two more.
    uint64_t commits() const { return commits_; }

    // One row's value; nothing: there is no such row. Changes that are not committed yet count.
    Result<std::optional<std::string>> get(std::string_view kind,
                                           std::string_view key) const override;
    // All committed rows of a kind, in the order of their keys.
    Result<std::vector<Row>> load(std::string_view kind) const;
    // These return at most so many rows: those after a key (the first rows: ""), or those before
    // it, the last one first (the newest rows: "~").
    Result<std::vector<Row>> after(std::string_view kind, std::string_view key,
                                   size_t rows_max) const;
    Result<std::vector<Row>> before(std::string_view kind, std::string_view key,
                                    size_t rows_max) const;

  private:
    struct Close {
        void operator()(sqlite3* db) const;
        void operator()(sqlite3_stmt* statement) const;
    };
    using Statement = std::unique_ptr<sqlite3_stmt, Close>;

    friend class StateCopy;
    enum class Use { create, hold, look };

    StateDb() = default;
    static Status create(const std::string& file, int schema_version);
    Status open_file(int schema_version, int oldest, Use use);
    Status use_file(Use use);
    Result<std::vector<Row>> rows(const Statement& statement, std::string_view kind,
                                  std::string_view key, size_t rows_max) const;
    Status check_version(int schema_version, int oldest);
    Status run(const char* sql) const;
    Result<int64_t> ask(const char* sql) const;
    Result<Statement> prepare(const char* sql) const;
    Status write_changes(const Changes& changes);
    tl::unexpected<Error> failed(std::string_view what) const;

    std::string path_;
    bool no_log_ = false;  // it has the mark of a log, and no log lies there
    bool log_missing_ = false;
    Use use_ = Use::look;
    uint64_t commits_ = 0;
    Fd lock_;
    std::unique_ptr<sqlite3, Close> db_;
    Statement begin_, put_, erase_, commit_, rollback_, get_, load_, after_, before_;
    Changes changes_;
};

}  // namespace souk
