// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/store/statecopy.hpp"
#include "kernel/base/cause.hpp"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

namespace souk {
namespace {

bool copy_present(const std::string& path) { return access(path.c_str(), F_OK) == 0; }

Status sync_path(const std::string& path, int flags) {
    TRY_ASSIGN(const Fd fd, open_at(AT_FDCWD, path, flags));
    if (fsync(fd.get()) != 0) return fail_errno("sync " + path, errno);
    return {};
}

std::string directory_of(const std::string& file) {
    const size_t slash = file.rfind('/');
    return slash == std::string::npos ? "." : slash == 0 ? "/" : file.substr(0, slash);
}

// A name that nothing has yet: FILE.before-2026-11-22T10:30:00, with a number behind where that is
// taken.
std::string kept_name(const std::string& file) {
    const time_t now = ::time(nullptr);
    std::tm date{};
    char text[32] = "";
    if (::gmtime_r(&now, &date)) std::strftime(text, sizeof text, "%FT%H:%M:%S", &date);
    const std::string name = file + ".before-" + text;
    std::string free = name;
    for (int n = 2; copy_present(free); ++n) free = name + "-" + std::to_string(n);
    return free;
}

// Gives a file that root has made in another user's directory to that user, whose daemon will use
// it. The file must be root's and have only this one name, because the daemon may have put
// something else there.
Status give_to_owner_of(const std::string& dir, const Fd& file) {
    struct stat place {};
    struct stat st {};
    if (::stat(dir.c_str(), &place) != 0) return fail_errno("stat " + dir, errno);
    if (::fstat(file.get(), &st) != 0) return fail_errno("stat in " + dir, errno);
    if (::geteuid() != 0 || place.st_uid == 0 || st.st_uid != 0) return {};
    if (!S_ISREG(st.st_mode) || st.st_nlink != 1)
        return fail("a file in " + dir + " was swapped for another one: nothing was restored");
    if (::fchown(file.get(), place.st_uid, place.st_gid) != 0)
        return fail_errno("chown in " + dir, errno);
    return {};
}

}  // namespace

void StateCopy::Close::operator()(sqlite3* db) const { sqlite3_close(db); }
void StateCopy::Close::operator()(sqlite3_backup* backup) const { sqlite3_backup_finish(backup); }

StateCopy::StateCopy(StateCopy&&) noexcept = default;

StateCopy::~StateCopy() {
    backup_.reset();
    if (!to_) return;
    to_.reset();
    for (const char* end : {"", "-wal", "-journal"}) unlink((part_ + end).c_str());
}

Result<StateCopy> StateCopy::begin(const StateDb& from, const std::string& file) {
    StateCopy copy;
    copy.file_ = file;
    copy.part_ = file + ".part";
    if (copy_present(file))
        return fail(CauseCode::not_possible,
                    file + " is there already: name another, or remove it");
    { TRY_ASSIGN(const Fd made, open_at(AT_FDCWD, copy.part_, O_RDWR | O_CREAT | O_EXCL, 0600)); }
    sqlite3* db = nullptr;
    const int ret = sqlite3_open_v2(copy.part_.c_str(), &db,
                                    SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
    copy.to_.reset(db);
    if (ret != SQLITE_OK) return fail("cannot open " + copy.part_);
    // The caller syncs the copy, once.
    sqlite3_exec(db, "PRAGMA synchronous = OFF", nullptr, nullptr, nullptr);
    copy.backup_.reset(sqlite3_backup_init(db, "main", from.db_.get(), "main"));
    if (!copy.backup_) return fail("cannot write " + copy.part_ + ": " + sqlite3_errmsg(db));
    return copy;
}

Result<bool> StateCopy::step(int pages_max) {
    const int ret = sqlite3_backup_step(backup_.get(), pages_max);
    if (ret == SQLITE_OK) return true;
    if (ret == SQLITE_DONE) return false;
    return fail("cannot write " + part_ + ": " + sqlite3_errstr(ret));
}

Result<Fd> StateCopy::whole() {
    const int ret = sqlite3_backup_finish(backup_.release());
    if (ret != SQLITE_OK) return fail("cannot write " + part_ + ": " + sqlite3_errstr(ret));
    // The copy has the header of its source, which has a log. The copy needs none.
    if (sqlite3_exec(to_.get(), "PRAGMA journal_mode = DELETE", nullptr, nullptr, nullptr) !=
        SQLITE_OK)
        return fail("cannot write " + part_ + ": " + sqlite3_errmsg(to_.get()));
    return open_at(AT_FDCWD, part_, O_RDONLY | O_NOFOLLOW);
}

Result<int64_t> StateCopy::give_name() {
    struct stat st {};
    if (::stat(part_.c_str(), &st) != 0) return fail_errno("stat " + part_, errno);
    if (::renameat2(AT_FDCWD, part_.c_str(), AT_FDCWD, file_.c_str(), RENAME_NOREPLACE) != 0)
        return fail_errno("rename " + part_ + " to " + file_, errno);
    to_.reset();
    TRY(sync_path(directory_of(file_), O_RDONLY | O_DIRECTORY));
    return st.st_size;
}

// The old database gets its second name before its log loses its name, so that one database never
// stands beside the other's log. After a crash between the two steps the old database stands there
// without its log, and whoever opens it says so.
Result<std::string> restore_state(const std::string& file, const std::string& dir,
                                  int schema_version,
                                  const std::function<Status(const StateDb&)>& check) {
    const std::string place = dir + "/state.db", part = place + ".part", log = place + "-wal";
    TRY_ASSIGN(const Fd lock, StateDb::lock_directory(dir));
    {
        TRY_ASSIGN(const StateDb good, StateDb::open_to_read(file, schema_version));
        if (good.log_missing()) return fail(CauseCode::unsound, StateDb::log_missing_text(file));
        TRY(check(good));
        // We copy through SQLite and do not copy the file, so that the contents of its log go
        // along.
        unlink(part.c_str());
        unlink((part + ".part").c_str());
        TRY_ASSIGN(StateCopy copy, StateCopy::begin(good, part));
        for (bool more = true; more;) {
            TRY_ASSIGN(more, copy.step(-1));
        }
        TRY_ASSIGN(const Fd whole, copy.whole());
        TRY(give_to_owner_of(dir, whole));
        TRY(give_to_owner_of(dir, lock));
        if (fsync(whole.get()) != 0) return fail_errno("sync " + part, errno);
        TRY(copy.give_name());
    }
    std::string kept;
    if (copy_present(place) || copy_present(log)) {
        kept = kept_name(place);
        if (copy_present(log) && ::link(log.c_str(), (kept + "-wal").c_str()) != 0)
            return fail_errno("link " + kept + "-wal", errno);
        if (copy_present(place) && ::link(place.c_str(), kept.c_str()) != 0)
            return fail_errno("link " + kept, errno);
        TRY(sync_path(dir, O_RDONLY | O_DIRECTORY));
        if (copy_present(log) && ::unlink(log.c_str()) != 0)
            return fail_errno("remove " + log, errno);
    }
    if (::rename(part.c_str(), place.c_str()) != 0) return fail_errno("rename " + part, errno);
    TRY(sync_path(dir, O_RDONLY | O_DIRECTORY));
    return kept;
}

}  // namespace souk
