// SPDX-License-Identifier: GPL-2.0-or-later
// Snapshots of a directory: taken, put back, dropped. The file system of a test need not be able to
// copy by reference: here bytes are copied.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agentd/files/snapshot.hpp"
#include "agentd/files/snapshot_list.hpp"
#include "kernel/sys/host/fd.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::files {
namespace {

using unit::TempDir;

Status copy_bytes(int from, int to) {
    char bytes[4096];
    for (ssize_t n; (n = ::read(from, bytes, sizeof bytes)) > 0;)
        if (::write(to, bytes, static_cast<size_t>(n)) != n) return fail_errno("write", EIO);
    return {};
}

struct Tree {
    TempDir dir;
    Fd top = *open_at(AT_FDCWD, dir.path, O_PATH | O_DIRECTORY);

    void put(const std::string& name, const std::string& text) const {
        ck_assert(create_file(top.get(), name, text).has_value());
    }
    std::string text(const std::string& name) const {
        return read_file(top.get(), name).value_or("(none)");
    }
    ino_t inode(const std::string& name) const {
        struct stat st {};
        return ::fstatat(top.get(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0 ? st.st_ino : 0;
    }
    void rename(const char* from, const char* to) const {
        ck_assert(::renameat(top.get(), from, top.get(), to) == 0);
    }
    void take(const std::string& name) const {
        const auto taken = take_snapshot(top.get(), name, copy_bytes);
        ck_assert_msg(taken.has_value(), "%s", taken ? "" : taken.error().message.c_str());
    }
    std::vector<std::string> back(const std::string& name) const {
        auto names = put_back(top.get(), name, copy_bytes);
        ck_assert_msg(names.has_value(), "%s", names ? "" : names.error().message.c_str());
        std::sort(names->begin(), names->end());
        return *names;
    }
};

START_TEST(all_is_as_it_was_and_what_was_changed_is_said) {
    const Tree t;
    ck_assert(::mkdirat(t.top.get(), "d", 0750) == 0);
    t.put("log", "one\n");
    t.put("d/state", "first");
    t.put("d/same", "untouched");
    ck_assert(::symlinkat("log", t.top.get(), "link") == 0);
    t.take("n1.7.3");
    const ino_t log = t.inode("log");

    t.put("log", "one\ntwo\nthree\n");
    ck_assert(::unlinkat(t.top.get(), "d/state", 0) == 0);
    ck_assert(::unlinkat(t.top.get(), "link", 0) == 0);
    ck_assert(::mkdirat(t.top.get(), "new", 0700) == 0);
    t.put("new/file", "later");

    const std::vector<std::string> wanted = {"d/state", "link", "log", "new/file"};
    ck_assert(t.back("n1.7.3") == wanted);
    ck_assert_str_eq(t.text("log").c_str(), "one\n");
    ck_assert_str_eq(t.text("d/state").c_str(), "first");
    ck_assert_str_eq(t.text("d/same").c_str(), "untouched");
    ck_assert_str_eq(t.text("link").c_str(), "one\n");
    ck_assert(t.inode("new") == 0);
    // who had it open finds the same file
    ck_assert(t.inode("log") == log);
    struct stat st {};
    ck_assert(::fstatat(t.top.get(), "d", &st, 0) == 0 && (st.st_mode & 07777) == 0750);
    // and once more
    ck_assert(t.back("n1.7.3").empty());
}
END_TEST

START_TEST(inodes_get_their_names_back) {
    const Tree t;
    t.put("a", "of a");
    t.put("b", "of b");
    t.put("c", "of c");
    ck_assert(::linkat(t.top.get(), "c", t.top.get(), "c2", 0) == 0);
    const ino_t a = t.inode("a"), b = t.inode("b"), c = t.inode("c");
    t.take("n1.7.1");
    t.rename("a", "x");  // they change names
    t.rename("b", "a");
    t.rename("x", "b");
    t.rename("c", "elsewhere");
    t.put("elsewhere", "written to");
    (void)t.back("n1.7.1");
    ck_assert(t.inode("a") == a && t.inode("b") == b && t.inode("c") == c && t.inode("c2") == c);
    ck_assert_str_eq(t.text("a").c_str(), "of a");
    ck_assert_str_eq(t.text("b").c_str(), "of b");
    ck_assert_str_eq(t.text("c2").c_str(), "of c");
    ck_assert(t.inode("elsewhere") == 0 && t.inode("x") == 0);
}
END_TEST

START_TEST(a_kind_that_changed_is_made_anew) {
    const Tree t;
    t.put("was_file", "text");
    ck_assert(::mkdirat(t.top.get(), "was_directory", 0700) == 0);
    t.put("was_directory/in", "deep");
    t.take("n1.7.1");
    ck_assert(::unlinkat(t.top.get(), "was_file", 0) == 0);
    ck_assert(::mkdirat(t.top.get(), "was_file", 0700) == 0);
    t.put("was_file/in_the_way", "");
    t.rename("was_directory/in", "was_file/in");
    ck_assert(::unlinkat(t.top.get(), "was_directory", AT_REMOVEDIR) == 0);
    t.put("was_directory", "");
    (void)t.back("n1.7.1");
    ck_assert_str_eq(t.text("was_file").c_str(), "text");
    ck_assert_str_eq(t.text("was_directory/in").c_str(), "deep");
}
END_TEST

START_TEST(a_snapshot_that_is_not_whole_is_none) {
    const Tree t;
    t.put("a", "1");
    const auto refuses = [](int, int) -> Status { return fail_errno("no", EOPNOTSUPP); };
    const auto taken = take_snapshot(t.top.get(), "n1.7.1", refuses);
    ck_assert(!taken && taken.error().code == EOPNOTSUPP);
    const auto back = put_back(t.top.get(), "n1.7.1", copy_bytes);
    ck_assert(!back && back.error().message.find("no snapshot") != std::string::npos);
    ck_assert(!take_snapshot(t.top.get(), "../n1.1", copy_bytes));
    ck_assert(!take_snapshot(t.top.get(), "n1", copy_bytes));
}
END_TEST

START_TEST(older_snapshots_of_the_job_are_dropped) {
    const Tree t;
    t.put("a", "1");
    for (const char* name : {"n1.7.1", "n1.7.2", "n1.70.1"}) t.take(name);
    ck_assert(drop_snapshots(t.top.get(), "n1.7", 2));
    ck_assert(*list_dir(t.top.get(), snapshots_name) ==
              (std::vector<std::string>{"n1.7.2", "n1.70.1"}));
    ck_assert(drop_snapshots(t.top.get(), "n1.7", UINT64_MAX));
    ck_assert(drop_snapshots(t.top.get(), "n1.70", UINT64_MAX));
    ck_assert(t.inode(snapshots_name) == 0);
    ck_assert(drop_snapshots(t.top.get(), "n1.70", UINT64_MAX));
}
END_TEST

START_TEST(a_list_that_is_damaged_is_refused) {
    const SnapshotList list = {{"a b\n", 0100644, 5, 6, 7, -8, 9, true, ""},
                               {"l", 0120777, 1, 0, 2, 3, 0, false, "to"}};
    const std::string text = encode(list);
    const auto again = decode_snapshot_list(text);
    ck_assert(again && again->size() == 2 && (*again)[0].path == "a b\n" &&
              (*again)[0].ctime_ns == -8 && (*again)[0].copy == 9 && (*again)[1].target == "to");
    ck_assert(!decode_snapshot_list(""));
    ck_assert(!decode_snapshot_list(text.substr(0, text.size() - 1)));
    ck_assert(!decode_snapshot_list(std::string(text).replace(16, 1, "/")));
}
END_TEST

START_TEST(what_was_written_since_is_told) {
    const Tree t;
    t.put("old", "1");
    t.put("new", "1");
    const timespec times[2] = {{100, 0}, {100, 0}};
    ck_assert(::utimensat(t.top.get(), "old", times, 0) == 0);
    const auto names = written_since(t.top.get(), int64_t{200} * 1'000'000'000);
    ck_assert(names && *names == std::vector<std::string>{"new"});
}
END_TEST

}  // namespace

}  // namespace souk::files

namespace souk {
using namespace souk::files;
UNIT_SUITE(files_snapshot, all_is_as_it_was_and_what_was_changed_is_said,
           inodes_get_their_names_back, a_kind_that_changed_is_made_anew,
           a_snapshot_that_is_not_whole_is_none, older_snapshots_of_the_job_are_dropped,
           a_list_that_is_damaged_is_refused, what_was_written_since_is_told);
}  // namespace souk
