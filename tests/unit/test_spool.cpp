// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <map>
#include <string>

#include "agentd/daemon/spool.hpp"
#include "kernel/base/rng.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

START_TEST(a_job_finds_its_own_output_and_nobody_elses_whatever_files_are_used_again) {
    // Jobs come, write or not, and go, and the daemon starts again, at random: what each reads is
    // what it wrote.
    const unit::TempDir where;
    const auto open_dir = [&] {
        return SpoolDir(*open_at(AT_FDCWD, where.path, O_RDONLY | O_DIRECTORY));
    };
    SpoolDir dir = open_dir();
    Rng rng(5);
    std::map<uint64_t, std::string> jobs;
    size_t files_most = 0;
    uint64_t next = 1;
    for (int i = 0; i < 2000; ++i) {
        if (rng.below(50) == 0) dir = open_dir();
        if (jobs.size() < 8 || (jobs.size() < 20 && rng.below(2) == 0)) {
            auto spool = dir.open(next);
            ck_assert(spool.has_value());
            ck_assert_uint_eq(spool->end(0), 0);
            ck_assert_uint_eq(spool->end(1), 0);
            jobs[next++];
        } else {
            auto at = jobs.begin();
            std::advance(at, static_cast<long>(rng.below(jobs.size())));
            auto spool = dir.open(at->first);
            ck_assert(spool.has_value());
            ck_assert_uint_eq(spool->end(0), at->second.size());
            ck_assert_text(*spool->read(0, 0, 4096), at->second);
            if (rng.below(3) == 0) {
                const std::string more = std::to_string(at->first) + ";";
                ck_assert(spool->append(0, at->second.size(), more));
                at->second += more;
            } else {
                dir.remove(at->first);
                jobs.erase(at);
            }
        }
        files_most = std::max(files_most, list_dir(AT_FDCWD, where.path)->size());
    }
    // what waits for the next job is no more than there were once
    ck_assert_uint_le(files_most, 2 * 20 + 2);
}
END_TEST

START_TEST(a_file_that_nothing_was_written_to_is_used_again) {
    const unit::TempDir where;
    SpoolDir dir(*open_at(AT_FDCWD, where.path, O_RDONLY | O_DIRECTORY));
    const auto inode = [&](const char* name) {
        struct stat st {};
        return ::stat((where.path + "/" + name).c_str(), &st) == 0 ? st.st_ino : 0;
    };
    ck_assert(dir.open(1)->append(1, 0, "words"));
    const ino_t quiet = inode("1.out"), used = inode("1.err");
    ck_assert(quiet != 0 && used != 0);
    dir.remove(1);
    ck_assert(dir.open(2).has_value());
    ck_assert(inode("2.out") == quiet || inode("2.err") == quiet);
    ck_assert_uint_eq(list_dir(AT_FDCWD, where.path)->size(), 2);
}
END_TEST

UNIT_SUITE(spool, a_job_finds_its_own_output_and_nobody_elses_whatever_files_are_used_again,
           a_file_that_nothing_was_written_to_is_used_again);
