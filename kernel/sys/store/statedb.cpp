// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/store/statedb.hpp"
#include "kernel/base/cause.hpp"

#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace souk {
namespace {

constexpr int application_id = 0x536f756b;  // "Souk"
// A row that says that whoever ends cleanly takes the mark of the log off this file. Programs up to
// commit 59249cf left the mark there: in a file without this row it says nothing.
constexpr const char* unmarked_row = "SELECT count(*) FROM state WHERE kind = 'log'";
constexpr const char* note_unmarked =
    "INSERT OR IGNORE INTO state VALUES ('log', 'mark', 'is taken off by a clean end')";

bool present(const std::string& path) { return access(path.c_str(), F_OK) == 0; }
std::string log_of(const std::string& file) { return file + "-wal"; }

Status sync_directory(const std::string& dir) {
    TRY_ASSIGN(const Fd directory, open_at(AT_FDCWD, dir, O_RDONLY | O_DIRECTORY));
    if (fsync(directory.get()) != 0) return fail_errno("sync " + dir, errno);
    return {};
}

// Tells whether the file's header says that there is a log beside it (SQLite's format: bytes 18 and
// 19). Errors: the file is empty.
Result<bool> has_log(const std::string& file) {
    TRY_ASSIGN(const Fd there, open_at(AT_FDCWD, file, O_RDONLY));
    unsigned char header[20] = {};
    const ssize_t n = pread(there.get(), header, sizeof header, 0);
    if (n < 0) return fail_errno("read " + file, errno);
    if (n == 0)
        return fail(CauseCode::unsound,
                    file +
                        " is empty (0 bytes), and a database never is: put a copy of it back, or "
                        "remove it to begin anew");
    return header[18] == 2 || header[19] == 2;
}

}  // namespace

// The lock goes with the descriptor, however the process ends.
Result<Fd> StateDb::lock_directory(const std::string& dir) {
    TRY_ASSIGN(Fd lock, open_at(AT_FDCWD, dir + "/lock", O_RDWR | O_CREAT | O_NOFOLLOW, 0600));
    if (flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) return fail_errno("lock " + dir + "/lock", errno);
        std::string pid = read_file(AT_FDCWD, dir + "/lock", 64).value_or("");
        pid.erase(std::find(pid.begin(), pid.end(), '\n'), pid.end());
        return fail(CauseCode::not_possible, "the state directory " + dir +
                                                 " is in use by another process" +
                                                 (pid.empty() ? "" : " (pid " + pid + ")"));
    }
    const std::string pid = std::to_string(getpid()) + "\n";
    // This is only for the message above: the lock is as good without it.
    if (ftruncate(lock.get(), 0) == 0 && pwrite(lock.get(), pid.data(), pid.size(), 0) < 0)
        errno = 0;
    return lock;
}

std::string StateDb::log_missing_text(const std::string& file) {
    return file + " was copied while it was in use, and without its log " + log_of(file) +
           ": what was committed last may be missing";
}

void StateDb::Close::operator()(sqlite3* db) const { sqlite3_close(db); }
void StateDb::Close::operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }

StateDb::StateDb(StateDb&&) noexcept = default;
StateDb::~StateDb() {
    for (Statement* s :
         {&begin_, &put_, &erase_, &commit_, &rollback_, &get_, &load_, &after_, &before_})
        s->reset();
    // A clean end: all is in the file, which is whole without a log. Where that fails (a full disk)
    // the log stays.
    const bool looked = db_ && use_ == Use::look;
    if (db_ && use_ == Use::hold) (void)run("PRAGMA journal_mode = DELETE");
    db_.reset();  // before the lock
    // The log that SQLite made to look at a file that had none.
    if (looked && no_log_) unlink(log_of(path_).c_str());
}

tl::unexpected<Error> StateDb::failed(std::string_view what) const {
    const bool busy = db_ && sqlite3_errcode(db_.get()) == SQLITE_BUSY;
    const int code = busy ? EBUSY : db_ ? sqlite3_system_errno(db_.get()) : 0;
    return tl::unexpected(Error{code, std::string(what) + " " + path_ + ": " +
                                          (db_ ? sqlite3_errmsg(db_.get()) : "out of memory")});
}

Status StateDb::run(const char* sql) const {
    if (sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr) != SQLITE_OK)
        return failed("cannot use");
    return {};
}

Result<StateDb::Statement> StateDb::prepare(const char* sql) const {
    sqlite3_stmt* statement = nullptr;
    if (sqlite3_prepare_v3(db_.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, nullptr) !=
        SQLITE_OK)
        return failed("cannot use");
    return Statement(statement);
}

Result<int64_t> StateDb::ask(const char* sql) const {
    TRY_ASSIGN(const Statement statement, prepare(sql));
    if (sqlite3_step(statement.get()) != SQLITE_ROW) return failed("cannot read");
    return sqlite3_column_int64(statement.get(), 0);
}

Result<StateDb> StateDb::open(const std::string& dir, int schema_version, int oldest) {
    StateDb state;
    state.path_ = dir + "/state.db";
    TRY_ASSIGN(state.lock_, lock_directory(dir));
    if (!present(state.path_)) {
        if (present(log_of(state.path_)))
            return fail(CauseCode::unsound,
                        state.path_ + " is not there, and its log " + log_of(state.path_) +
                            " is: put the database back, or remove the log to begin anew");
        TRY(create(state.path_, schema_version));
        TRY(sync_directory(dir));
    }
    TRY(state.open_file(schema_version, oldest, Use::hold));
    return state;
}

// Under another name until it is whole.
Status StateDb::create(const std::string& file, int schema_version) {
    StateDb fresh;
    fresh.path_ = file + ".part";
    for (const char* end : {"", "-wal", "-journal"}) unlink((fresh.path_ + end).c_str());
    { TRY_ASSIGN(const Fd made, open_at(AT_FDCWD, fresh.path_, O_RDWR | O_CREAT | O_EXCL, 0600)); }
    TRY(fresh.use_file(Use::create));
    TRY(fresh.run(("BEGIN IMMEDIATE; CREATE TABLE state (kind TEXT NOT NULL, key TEXT NOT NULL, "
                   "value BLOB NOT NULL,"
                   " PRIMARY KEY (kind, key)) WITHOUT ROWID; " +
                   std::string(note_unmarked) +
                   "; PRAGMA application_id = " + std::to_string(application_id) +
                   "; PRAGMA user_version = " + std::to_string(schema_version) + "; COMMIT")
                      .c_str()));
    fresh.db_.reset();
    if (rename(fresh.path_.c_str(), file.c_str()) != 0)
        return fail_errno("rename " + fresh.path_, errno);
    return {};
}

Result<StateDb> StateDb::open_to_read(const std::string& file, int schema_version) {
    StateDb state;
    state.path_ = file;
    { TRY_ASSIGN(const Fd there, open_at(AT_FDCWD, file, O_RDWR)); }
    TRY(state.open_file(schema_version, INT_MAX, Use::look));
    return state;
}

Status StateDb::open_file(int schema_version, int oldest, Use use) {
    TRY_ASSIGN(const bool logged, has_log(path_));
    no_log_ = logged && !present(log_of(path_));
    TRY(use_file(use));
    TRY(check_version(schema_version, oldest));
    TRY_ASSIGN(const int64_t noted, ask(unmarked_row));
    log_missing_ = no_log_ && noted > 0;
    if (use == Use::hold) {
        (void)run(note_unmarked);  // on a full disk: at the next start
        (void)scrub();             // of what a daemon left that was killed
    }
    TRY_ASSIGN(begin_, prepare("BEGIN IMMEDIATE"));
    TRY_ASSIGN(put_, prepare("INSERT INTO state VALUES (?1, ?2, ?3) "
                             "ON CONFLICT DO UPDATE SET value = excluded.value"));
    TRY_ASSIGN(erase_, prepare("DELETE FROM state WHERE kind = ?1 AND key = ?2"));
    TRY_ASSIGN(commit_, prepare("COMMIT"));
    TRY_ASSIGN(rollback_, prepare("ROLLBACK"));
    TRY_ASSIGN(get_, prepare("SELECT key, value FROM state WHERE kind = ?1 AND key = ?2 LIMIT ?3"));
    TRY_ASSIGN(load_, prepare("SELECT key, value FROM state WHERE kind = ?1 ORDER BY key"));
    TRY_ASSIGN(after_, prepare("SELECT key, value FROM state WHERE kind = ?1 AND key > ?2 "
                               "ORDER BY key LIMIT ?3"));
    TRY_ASSIGN(before_, prepare("SELECT key, value FROM state WHERE kind = ?1 AND key < ?2 "
                                "ORDER BY key DESC LIMIT ?3"));
    return {};
}

Status StateDb::use_file(Use use) {
    use_ = use;
    sqlite3* db = nullptr;
    const int ret =
        sqlite3_open_v2(path_.c_str(), &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
    db_.reset(db);
    if (ret != SQLITE_OK) return failed("cannot open");
    sqlite3_extended_result_codes(db, 1);
    // Exclusive: the lock above says that nobody else reads, so the WAL needs no shared memory.
    TRY(
        run("PRAGMA locking_mode = EXCLUSIVE; PRAGMA page_size = 4096; PRAGMA synchronous = FULL;"
            "PRAGMA cache_size = -256; PRAGMA wal_autocheckpoint = 1024;"
            "PRAGMA journal_size_limit = 4194304; PRAGMA temp_store = MEMORY;"
            "PRAGMA secure_delete = ON"));
    if (use == Use::look) sqlite3_db_config(db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    if (use == Use::hold) return run("PRAGMA journal_mode = WAL");
    return {};
}

Status StateDb::check_version(int schema_version, int oldest) {
    TRY_ASSIGN(const int64_t tables, ask("SELECT count(*) FROM sqlite_schema"));
    if (tables == 0)
        return fail(CauseCode::unsound,
                    path_ + " holds nothing, not even a table" +
                        (no_log_ ? ": it was copied without its log " + log_of(path_) : "") +
                        ": put a copy of it back, or remove it to begin anew");
    TRY_ASSIGN(const int64_t id, ask("PRAGMA application_id"));
    TRY_ASSIGN(const int64_t version, ask("PRAGMA user_version"));
    if (id != application_id)
        return fail(CauseCode::unsound, path_ + " is a database of another program");
    if (version < schema_version && version >= oldest)
        return run(("PRAGMA user_version = " + std::to_string(schema_version)).c_str());
    if (version != schema_version)
        return fail(path_ + " has version " + std::to_string(version) +
                    ", this program needs version " + std::to_string(schema_version) +
                    ": run the release that wrote it");
    return {};
}

void StateDb::put(std::string_view kind, std::string_view key, std::string value) {
    changes_[{std::string(kind), std::string(key)}] = std::move(value);
}

void StateDb::erase(std::string_view kind, std::string_view key) {
    changes_[{std::string(kind), std::string(key)}] = std::nullopt;
}

Status StateDb::write_changes(const Changes& changes) {
    // Resets after each use: a statement in the middle of its work would hold the transaction open.
    const auto step = [this](const Statement& statement) -> Status {
        const int ret = sqlite3_step(statement.get());
        if (ret == SQLITE_DONE) {
            sqlite3_reset(statement.get());
            return {};
        }
        auto error = failed("cannot save state in");
        sqlite3_reset(statement.get());
        return error;
    };
    TRY(step(begin_));
    for (const auto& [name, value] : changes) {
        const Statement& statement = value ? put_ : erase_;
        sqlite3_bind_text(statement.get(), 1, name.first.data(),
                          static_cast<int>(name.first.size()), SQLITE_STATIC);
        sqlite3_bind_text(statement.get(), 2, name.second.data(),
                          static_cast<int>(name.second.size()), SQLITE_STATIC);
        if (value)
            sqlite3_bind_blob64(statement.get(), 3, value->empty() ? "" : value->data(),
                                value->size(), SQLITE_STATIC);
        Status written = step(statement);
        sqlite3_clear_bindings(statement.get());
        if (!written) return written;
    }
    return step(commit_);
}

Status StateDb::commit() {
    TRY(commit(changes_));
    changes_.clear();
    return {};
}

Status StateDb::commit(const Changes& changes) {
    if (changes.empty()) return {};
    if (Status written = write_changes(changes); !written) {
        if (sqlite3_get_autocommit(db_.get()) == 0) {  // some errors have rolled back already
            sqlite3_step(rollback_.get());
            sqlite3_reset(rollback_.get());
        }
        return written;
    }
    ++commits_;
    return {};
}

bool StateDb::scrub() {
    return sqlite3_wal_checkpoint_v2(db_.get(), nullptr, SQLITE_CHECKPOINT_TRUNCATE, nullptr,
                                     nullptr) == SQLITE_OK;
}

Result<std::optional<std::string>> StateDb::get(std::string_view kind, std::string_view key) const {
    if (const auto change = changes_.find({std::string(kind), std::string(key)});
        change != changes_.end())
        return change->second;
    TRY_ASSIGN(auto found, rows(get_, kind, key, 1));
    if (found.empty()) return std::nullopt;
    return std::move(found[0].value);
}

Result<std::vector<StateDb::Row>> StateDb::load(std::string_view kind) const {
    return rows(load_, kind, {}, 0);
}

Result<std::vector<StateDb::Row>> StateDb::after(std::string_view kind, std::string_view key,
                                                 size_t rows_max) const {
    return rows(after_, kind, key, rows_max);
}

Result<std::vector<StateDb::Row>> StateDb::before(std::string_view kind, std::string_view key,
                                                  size_t rows_max) const {
    return rows(before_, kind, key, rows_max);
}

// Binds what the statement has room for.
Result<std::vector<StateDb::Row>> StateDb::rows(const Statement& statement, std::string_view kind,
                                                std::string_view key, size_t rows_max) const {
    std::vector<Row> rows;
    sqlite3_stmt* const select = statement.get();
    sqlite3_bind_text(select, 1, kind.data(), static_cast<int>(kind.size()), SQLITE_STATIC);
    if (sqlite3_bind_parameter_count(select) > 1) {
        sqlite3_bind_text(select, 2, key.empty() ? "" : key.data(), static_cast<int>(key.size()),
                          SQLITE_STATIC);
        sqlite3_bind_int64(select, 3, static_cast<sqlite3_int64>(rows_max));
    }
    int ret;
    while ((ret = sqlite3_step(select)) == SQLITE_ROW) {
        const auto column = [select](int i) {
            const void* bytes = sqlite3_column_blob(select, i);
            const int n = sqlite3_column_bytes(select, i);
            return n > 0 ? std::string(static_cast<const char*>(bytes), static_cast<size_t>(n))
                         : std::string();
        };
        rows.push_back({column(0), column(1)});
    }
    const Status status = ret == SQLITE_DONE ? Status() : Status(failed("cannot read"));
    sqlite3_reset(select);
    sqlite3_clear_bindings(select);
    if (!status) return tl::unexpected(status.error());
    return rows;
}

}  // namespace souk
