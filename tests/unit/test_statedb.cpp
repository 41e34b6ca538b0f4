// SPDX-License-Identifier: GPL-2.0-or-later
// The state database on a real file system: what a crash, a full disk, a second daemon and a
// strange file do to it.
#include "kernel/sys/store/statedb.hpp"

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "kernel/base/rng.hpp"
#include "kernel/sys/store/statecopy.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using unit::TempDir;

namespace {

StateDb open_state(const std::string& dir, int version = 1) {
    auto state = StateDb::open(dir, version);
    ck_assert_msg(state.has_value(), "%s", state ? "" : state.error().message.c_str());
    return std::move(*state);
}

std::string text_of(const StateDb& state, const char* kind) {
    auto rows = state.load(kind);
    ck_assert(rows.has_value());
    std::string out;
    for (const auto& row : *rows) out += row.key + "=" + row.value + ";";
    return out;
}

void must_commit(StateDb& state) {
    const Status status = state.commit();
    ck_assert_msg(status.has_value(), "%s", status ? "" : status.error().message.c_str());
}

}  // namespace

START_TEST(what_was_committed_is_there_after_reopening_and_nothing_else) {
    TempDir dir;
    const std::string binary("\0\xff\n'", 4);
    {
        StateDb state = open_state(dir.path);
        state.put("job", "n1.2", "two");
        state.put("job", "n1.1", "one");
        state.put("job", "n1.3", "three");
        state.put("guest", "n1.1", binary);
        state.put("guest", binary, "");
        must_commit(state);
        state.put("job", "n1.1", "uno");
        state.erase("job", "n1.2");
        state.erase("job", "never was");
        must_commit(state);
        ck_assert(!state.has_changes());
        must_commit(state);  // nothing to do
        state.put("job", "n1.3", "lost");
    }
    StateDb state = open_state(dir.path);
    ck_assert_text(text_of(state, "job"), "n1.1=uno;n1.3=three;");
    ck_assert(text_of(state, "guest") == binary + "=;n1.1=" + binary + ";");
    ck_assert_text(text_of(state, "none"), "");
    struct stat st;
    ck_assert_int_eq(stat((dir.path + "/state.db").c_str(), &st), 0);
    ck_assert_int_eq(st.st_mode & 0777, 0600);
}
END_TEST

START_TEST(a_second_daemon_on_the_same_directory_is_refused_and_told_who_holds_it) {
    TempDir dir;
    {
        StateDb state = open_state(dir.path);
        auto second = StateDb::open(dir.path, 1);
        ck_assert(!second);
        ck_assert_text(second.error().message, "the state directory " + dir.path +
                                                   " is in use by another process (pid " +
                                                   std::to_string(getpid()) + ")");
    }
    open_state(dir.path);
}
END_TEST

START_TEST(a_daemon_killed_between_commits_leaves_the_last_commit) {
    TempDir dir;
    for (int round = 0; round < 5; ++round) {
        const pid_t pid = fork();
        if (pid == 0) {
            auto state = StateDb::open(dir.path, 1);
            if (!state) _exit(1);
            for (int i = 0; i < 50; ++i) {
                state->put("job", "both-a", std::to_string(round * 100 + i));
                state->put("job", "both-b", std::to_string(round * 100 + i));
                if (!state->commit()) _exit(1);
            }
            state->put("job", "both-a", "lost");
            kill(getpid(), SIGKILL);
        }
        int status;
        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        const std::string last = std::to_string(round * 100 + 49);
        ck_assert_text(text_of(open_state(dir.path), "job"),
                       "both-a=" + last + ";both-b=" + last + ";");
    }
}
END_TEST

START_TEST(a_full_disk_fails_the_commit_keeps_the_last_state_and_the_changes) {
    // The limit on the size of a file stands for the disk: what lies beyond cannot be written.
    TempDir dir;
    signal(SIGXFSZ, SIG_IGN);
    rlimit had;
    getrlimit(RLIMIT_FSIZE, &had);
    StateDb state = open_state(dir.path);
    state.put("job", "a", "before");
    must_commit(state);
    rlimit full{300'000, had.rlim_max};
    setrlimit(RLIMIT_FSIZE, &full);
    state.put("job", "a", "after");
    state.put("job", "big", std::string(1'000'000, 'x'));
    for (int i = 0; i < 3; ++i) {
        const Status status = state.commit();
        ck_assert(!status);
        ck_assert_msg(
            status.error().message.starts_with("cannot save state in " + dir.path + "/state.db: "),
            "%s", status.error().message.c_str());
        ck_assert(state.has_changes());
        ck_assert_text(text_of(state, "job"), "a=before;");
    }
    // A smaller change takes its place, and then there is room again.
    state.put("job", "big", "small");
    must_commit(state);
    ck_assert_text(text_of(state, "job"), "a=after;big=small;");
    setrlimit(RLIMIT_FSIZE, &had);
    state.put("job", "big", std::string(1'000'000, 'y'));
    must_commit(state);
    ck_assert_uint_eq(state.load("job")->at(1).value.size(), 1'000'000);
}
END_TEST

START_TEST(files_of_another_version_or_program_are_refused_with_one_line) {
    TempDir dir;
    { open_state(dir.path, 3); }
    auto older = StateDb::open(dir.path, 4);
    ck_assert_text(
        older.error().message,
        dir.path +
            "/state.db has version 3, this program needs version 4: run the release that wrote it");
    open_state(dir.path, 3);
    std::filesystem::remove(dir.path + "/state.db");
    { std::filesystem::copy("/proc/self/exe", dir.path + "/state.db"); }
    auto garbage = StateDb::open(dir.path, 3);
    ck_assert(!garbage);
    ck_assert_text(garbage.error().message,
                   "cannot use " + dir.path + "/state.db: file is not a database");
    auto nowhere = StateDb::open(dir.path + "/none", 1);
    ck_assert(!nowhere && nowhere.error().code == ENOENT);
}
END_TEST

START_TEST(the_log_of_changes_stays_bounded_over_many_commits) {
    TempDir dir;
    StateDb state = open_state(dir.path);
    Rng rng(3);
    // About four times the bound. Each commit waits for the disk, however slow it is: so few large
    // ones.
    for (int i = 0; i < 600; ++i) {
        state.put("job", "n1." + std::to_string(rng.below(30)),
                  std::string(20'000, static_cast<char>('a' + i % 26)));
        must_commit(state);
    }
    ck_assert_uint_le(std::filesystem::file_size(dir.path + "/state.db-wal"), 5u << 20);
    ck_assert_uint_le(std::filesystem::file_size(dir.path + "/state.db"), 1u << 20);
}
END_TEST

// Counts how many of these texts stand in the bytes of the database's files.
size_t to_be_read(const TempDir& dir, const std::vector<std::string>& texts) {
    const auto bytes = [&](const char* name) {
        auto text = read_file(dir.fd.get(), name, 64 << 20);
        return text ? std::move(*text) : std::string();
    };
    const std::string all = bytes("state.db") + bytes("state.db-wal");
    return static_cast<size_t>(std::count_if(
        texts.begin(), texts.end(), [&](const auto& t) { return all.find(t) != all.npos; }));
}

START_TEST(what_was_erased_or_replaced_is_in_no_byte_of_its_files) {
    TempDir dir;
    Rng rng(1);
    StateDb state = open_state(dir.path);
    std::map<std::string, std::string> there;
    std::vector<std::string> gone;
    // Records of all lengths, in an order that splits and joins pages.
    constexpr size_t lengths[] = {10, 400, 3000, 20'000};
    for (int i = 0; i < 2'000; ++i) {
        const std::string key = std::to_string(rng.below(200));
        if (there.contains(key)) gone.push_back(there.at(key));
        there.erase(key);
        if (rng.chance(0.4)) {
            state.erase("home", key);
        } else {
            const std::string secret = std::to_string(rng.next()) + std::to_string(rng.next());
            const size_t before = rng.below(lengths[rng.below(4)]);
            there[key] = secret;
            state.put("home", key, std::string(before, 'x') + secret + std::string(100, 'y'));
        }
        if (i % 4 == 3) must_commit(state);
    }
    ck_assert_uint_gt(to_be_read(dir, gone), 0);  // the log has them
    ck_assert(state.scrub());
    ck_assert_uint_eq(to_be_read(dir, gone), 0);
    ck_assert_uint_gt(gone.size(), 1'000);
    ck_assert_uint_gt(to_be_read(dir, {there.begin()->second}), 0);
    ck_assert_uint_eq(state.load("home")->size(), there.size());
}
END_TEST

// A daemon that is killed before it scrubs leaves the log; the next one begins with that.
START_TEST(what_a_killed_daemon_has_erased_is_gone_after_the_next_start) {
    TempDir dir;
    const std::vector<std::string> secret = {"3141592653589793"};
    const pid_t child = fork();
    if (child == 0) {
        StateDb state = open_state(dir.path);
        state.put("home", "1", secret[0]);
        must_commit(state);
        state.erase("home", "1");
        must_commit(state);
        raise(SIGKILL);
    }
    int status = 0;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(WTERMSIG(status), SIGKILL);
    ck_assert_uint_eq(to_be_read(dir, secret), 1);
    const StateDb state = open_state(dir.path);
    ck_assert_uint_eq(to_be_read(dir, secret), 0);
}
END_TEST

START_TEST(an_empty_file_or_a_log_without_its_file_begins_nothing_anew) {
    TempDir dir;
    const std::string file = dir.path + "/state.db";
    { open_state(dir.path); }
    std::filesystem::resize_file(file, 0);
    const std::string empty = file +
                              " is empty (0 bytes), and a database never is: put a copy of it "
                              "back, or remove it to begin anew";
    auto opened = StateDb::open(dir.path, 1);
    ck_assert(!opened);
    ck_assert_text(opened.error().message, empty);
    ck_assert_text(StateDb::open_to_read(file, 1).error().message, empty);
    ck_assert_uint_eq(std::filesystem::file_size(file), 0);
    std::filesystem::rename(file, file + "-wal");
    const auto log_alone = StateDb::open(dir.path, 1);
    ck_assert(!log_alone);
    ck_assert_text(log_alone.error().message,
                   file + " is not there, and its log " + file +
                       "-wal is: put the database back, or remove the log to begin anew");
    std::filesystem::remove(file + "-wal");
    open_state(dir.path);
}
END_TEST

START_TEST(a_file_without_the_log_that_it_had_says_so_and_a_clean_end_leaves_none) {
    TempDir dir, other;
    const std::string file = dir.path + "/state.db", copy = other.path + "/state.db";
    const auto lacks = [&copy] {
        const auto state = StateDb::open_to_read(copy, 1);
        ck_assert(state.has_value());
        return state->log_missing();
    };
    const auto take = [&](bool log) {
        std::filesystem::copy_file(file, copy, std::filesystem::copy_options::overwrite_existing);
        std::filesystem::remove(copy + "-wal");
        if (log && std::filesystem::exists(file + "-wal"))
            std::filesystem::copy_file(file + "-wal", copy + "-wal");
    };
    {
        StateDb state = open_state(dir.path);
        state.put("job", "a", "1");
        must_commit(state);
        take(true);
        ck_assert(!lacks() && !lacks());  // looking changes nothing
        ck_assert_text(text_of(*StateDb::open_to_read(copy, 1), "job"), "a=1;");
        take(false);
        ck_assert(lacks() && lacks());
        ck_assert(!std::filesystem::exists(copy + "-wal"));
        std::filesystem::create_directory(other.path + "/in");
        std::filesystem::rename(copy, other.path + "/in/state.db");
        ck_assert(open_state(other.path + "/in").log_missing());
    }
    ck_assert(!std::filesystem::exists(file + "-wal"));
    take(false);
    ck_assert(!lacks());
    ck_assert(!open_state(dir.path).log_missing());
    // A process that was killed leaves its log, so it is not missing.
    const pid_t pid = fork();
    if (pid == 0) {
        auto state = StateDb::open(dir.path, 1);
        state->put("job", "a", "2");
        if (!state->commit()) _exit(1);
        kill(getpid(), SIGKILL);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    take(false);
    ck_assert(lacks());
    ck_assert(!open_state(dir.path).log_missing());
}
END_TEST

// Method: random changes are committed between the steps of the copy; it is what the database is
// when the last step ends, or it is not there at all.
START_TEST(a_copy_made_beside_the_work_is_the_state_of_one_moment) {
    Rng rng(17);
    for (int round = 0; round < 12; ++round) {
        TempDir dir, other;
        StateDb state = open_state(dir.path);
        const auto change = [&] {
            for (uint64_t i = 0; i < 40; ++i)
                state.put("job", "n1." + std::to_string(rng.below(300)),
                          std::string(rng.below(4'000), static_cast<char>('a' + rng.below(26))));
            if (rng.chance(0.3)) state.erase("job", "n1." + std::to_string(rng.below(300)));
            must_commit(state);
        };
        for (int i = 0; i < 5; ++i) change();
        const std::string file = other.path + "/backup";
        auto copy = StateCopy::begin(state, file);
        ck_assert_msg(copy.has_value(), "%s", copy ? "" : copy.error().message.c_str());
        for (;;) {
            const auto more = copy->step(1 + static_cast<int>(rng.below(60)));
            ck_assert_msg(more.has_value(), "%s", more ? "" : more.error().message.c_str());
            if (!*more) break;
            if (rng.chance(0.6)) change();
        }
        const std::string then = text_of(state, "job");
        ck_assert(copy->whole().has_value());
        change();
        ck_assert(!std::filesystem::exists(file));
        ck_assert(copy->give_name().has_value());
        ck_assert_int_eq(std::distance(std::filesystem::directory_iterator(other.path),
                                       std::filesystem::directory_iterator()),
                         1);
        const auto read = StateDb::open_to_read(file, 1);
        ck_assert(read.has_value() && !read->log_missing());
        ck_assert(text_of(*read, "job") == then);
        auto again = StateCopy::begin(state, file);
        ck_assert(!again);
        ck_assert_text(again.error().message,
                       file + " is there already: name another, or remove it");
        { ck_assert(StateCopy::begin(state, file + "2").has_value()); }  // given up
        ck_assert(!std::filesystem::exists(file + "2.part"));
    }
}
END_TEST

START_TEST(a_restore_keeps_what_was_there_and_refuses_what_is_in_use_or_not_whole) {
    TempDir dir, other;
    const auto restore = [&](const std::string& file) {
        auto kept = restore_state(file, dir.path, 1, [](const StateDb& db) -> Status {
            if (db.load("bad")->empty()) return {};
            return Status(tl::unexpected(Error{0, "it is bad"}));
        });
        return kept ? "kept " + *kept : kept.error().message;
    };
    const std::string file = other.path + "/state.db";
    {
        StateDb source = open_state(other.path);
        source.put("job", "a", "backup");
        must_commit(source);
    }
    // Root restores the state of marketd, which runs as another user.
    if (geteuid() == 0) ck_assert_int_eq(chown(dir.path.c_str(), 4321, 4321), 0);
    ck_assert_text(restore(file), "kept ");  // nothing was there
    for (const char* name : {"/state.db", "/lock"}) {
        struct stat st;
        ck_assert_int_eq(stat((dir.path + name).c_str(), &st), 0);
        ck_assert_uint_eq(st.st_uid, geteuid() == 0 ? 4321 : geteuid());
    }
    {
        StateDb state = open_state(dir.path);
        ck_assert_text(text_of(state, "job"), "a=backup;");
        ck_assert(restore(file).starts_with("the state directory " + dir.path +
                                            " is in use by another process (pid "));
    }
    const pid_t pid = fork();
    if (pid == 0) {
        auto state = StateDb::open(dir.path, 1);
        state->put("job", "a", "newest");
        if (!state->commit()) _exit(1);
        kill(getpid(), SIGKILL);
    }
    int status;
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    const std::string said = restore(file);
    ck_assert(said.starts_with("kept " + dir.path + "/state.db.before-"));
    ck_assert_text(text_of(open_state(dir.path), "job"), "a=backup;");
    ck_assert_text(text_of(*StateDb::open_to_read(said.substr(5), 1), "job"), "a=newest;");
    {
        StateDb source = open_state(other.path);
        source.put("bad", "b", "");
        must_commit(source);
        std::filesystem::copy_file(file, other.path + "/torn");
    }
    ck_assert_text(restore(file), "it is bad");
    ck_assert(restore(other.path + "/torn").find("without its log") != std::string::npos);
    ck_assert_text(text_of(open_state(dir.path), "job"), "a=backup;");
}
END_TEST

UNIT_SUITE(statedb, what_was_committed_is_there_after_reopening_and_nothing_else,
           a_second_daemon_on_the_same_directory_is_refused_and_told_who_holds_it,
           a_daemon_killed_between_commits_leaves_the_last_commit,
           a_full_disk_fails_the_commit_keeps_the_last_state_and_the_changes,
           files_of_another_version_or_program_are_refused_with_one_line,
           the_log_of_changes_stays_bounded_over_many_commits,
           what_was_erased_or_replaced_is_in_no_byte_of_its_files,
           what_a_killed_daemon_has_erased_is_gone_after_the_next_start,
           an_empty_file_or_a_log_without_its_file_begins_nothing_anew,
           a_file_without_the_log_that_it_had_says_so_and_a_clean_end_leaves_none,
           a_copy_made_beside_the_work_is_the_state_of_one_moment,
           a_restore_keeps_what_was_there_and_refuses_what_is_in_use_or_not_whole);
