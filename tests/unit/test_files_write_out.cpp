// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string>

#include "agentd/files/write_out.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::files {
namespace {

constexpr uint64_t piece = 1 << 20, worth = WriteOut::worth_bytes;

struct Written {
    unit::TempDir dir;
    Fd file{::open((dir.path + "/file").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)};
    WriteOut out;
    WriteRun run;

    // A piece there; whether a range has begun with it.
    bool write(uint64_t at) {
        const std::string bytes(piece, 'x');
        ck_assert(::pwrite(file.get(), bytes.data(), piece, static_cast<off_t>(at)) == piece);
        return out.wrote(file.get(), at, piece, run);
    }
    void wait() const {
        for (int i = 0; out.busy() && i < 10'000; ++i) ::usleep(1000);
        ck_assert(!out.busy());
    }
    // Pages of the file that wait for the kernel to write them; -1: it does not say.
    int64_t dirty() const {
        constexpr long cachestat = 451;
        struct statfs in {};
        uint64_t range[2] = {}, says[5] = {};
        ck_assert(::fstatfs(file.get(), &in) == 0);
        if (in.f_type == TMPFS_MAGIC) return -1;
        if (::syscall(cachestat, file.get(), range, says, 0) != 0) return -1;
        return static_cast<int64_t>(says[1]);
    }
};

START_TEST(a_long_run_is_on_its_way_to_the_disk_before_anybody_syncs_it) {
    Written w;
    for (uint64_t at = 0; at + piece < worth; at += piece) ck_assert(!w.write(at));
    ck_assert(w.write(worth - piece));
    w.wait();
    const int64_t dirty = w.dirty();
    UNIT_SKIP_IF(dirty < 0 ? "this kernel does not say what is dirty" : nullptr);
    ck_assert_int_eq(dirty, 0);
    for (uint64_t at = worth; at + piece < 2 * worth; at += piece) ck_assert(!w.write(at));
    ck_assert(w.write(2 * worth - piece));
    w.wait();
    ck_assert_int_eq(w.dirty(), 0);
}
END_TEST

START_TEST(what_is_written_here_and_there_is_left_to_the_kernel) {
    Written w;
    for (uint64_t at = 0; at < 3 * worth; at += 2 * piece) ck_assert(!w.write(at));
    ck_assert(!w.write(0));
    ck_assert(!w.out.busy());
}
END_TEST

START_TEST(while_the_disk_is_busy_a_run_grows) {
    Written w;
    ck_assert(!w.out.wrote(w.file.get(), 0, worth - 1, w.run));
    ck_assert(w.out.wrote(w.file.get(), worth - 1, 1, w.run));
    uint64_t begun = worth, end = worth;
    for (int i = 0; i < 100; ++i, end += worth)
        if (w.out.wrote(w.file.get(), end, worth, w.run)) begun = end + worth;
    ck_assert_uint_eq(w.run.begin, begun);
    ck_assert_uint_eq(w.run.end, end);
    w.wait();
}
END_TEST

START_TEST(a_session_may_end_while_its_disk_is_busy) {
    for (int i = 0; i < 20; ++i) {
        Written w;
        ck_assert(w.out.wrote(w.file.get(), 0, worth, w.run));
    }
}
END_TEST

}  // namespace
}  // namespace souk::files

namespace souk {
using namespace souk::files;
UNIT_SUITE(files_write_out, a_long_run_is_on_its_way_to_the_disk_before_anybody_syncs_it,
           what_is_written_here_and_there_is_left_to_the_kernel, while_the_disk_is_busy_a_run_grows,
           a_session_may_end_while_its_disk_is_busy);
}  // namespace souk
