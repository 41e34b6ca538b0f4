// SPDX-License-Identifier: GPL-2.0-or-later
// Which of a process's files other machines see, by its mounts and its open files.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <string>

#include "kernel/sys/store/network_files.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;
using namespace souk::unit;

START_TEST(the_devices_of_network_mounts_are_found_whatever_tags_stand_before_the_type) {
    const std::string text =
        "22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n"
        "40 22 0:51 / /home rw,relatime shared:9 master:2 - nfs4 server:/home rw,vers=4.2\n"
        "41 22 0:52 / /a\\040b rw - cifs //server/a rw\n"
        "42 22 0:53 / /s rw - fuse.sshfs me@there:/ rw\n"
        "43 22 0:54 / /n rw - fuseblk /dev/sdb1 rw\n"
        "44 22 0:51 /me /home/me rw - nfs4 server:/home rw\n"
        "45 22 nonsense - nfs\n46 22 0: / / rw - nfs x\n47 - nfs";
    ck_assert(network_devices(text) ==
              (std::set<dev_t>{makedev(0, 51), makedev(0, 52), makedev(0, 53)}));
    ck_assert(network_devices("").empty());
    const auto every = [](std::string_view) { return true; };
    ck_assert_uint_eq(network_devices(text, every).size(), 5);
}
END_TEST

START_TEST(what_a_process_has_open_for_writing_there_is_found_and_nothing_else) {
    const TempDir directory;
    const auto open_in = [&](const char* name, int flags) {
        return std::move(*open_at(directory.fd.get(), name, flags | O_CREAT, 0600));
    };
    struct stat there {};
    ck_assert_int_eq(::fstat(directory.fd.get(), &there), 0);
    const auto found = [&] { return written_files({::getpid()}, {there.st_dev}); };
    const size_t before = found().size();
    const Fd read = open_in("read", O_RDONLY);
    ck_assert_uint_eq(found().size(), before);
    const Fd written = open_in("written", O_WRONLY | O_APPEND), both = open_in("both", O_RDWR);
    struct stat one {};
    ck_assert_int_eq(::fstat(written.get(), &one), 0);
    const FileKeys among = {{there.st_dev, one.st_ino}};
    auto some = written_files({::getpid()}, {there.st_dev}, &among);
    ck_assert(!some.empty());
    for (const Fd& f : some)
        ck_assert(::fstat(f.get(), &one) == 0 && among.contains({one.st_dev, one.st_ino}));
    some.clear();
    const FileKeys none;
    ck_assert(written_files({::getpid()}, {there.st_dev}, &none).empty());
    // its end is for the server as well
    ck_assert_int_eq(::unlinkat(directory.fd.get(), "both", 0), 0);
    const auto files = found();
    ck_assert_uint_eq(files.size(), before + 2);
    for (const Fd& f : files) ck_assert_int_eq(::fdatasync(f.get()), 0);
    ck_assert(written_files({::getpid()}, {makedev(0, 1 << 18)}).empty());
    ck_assert(written_files({}, {there.st_dev}).empty());
}
END_TEST

START_TEST(what_is_to_be_synced_is_read_as_it_was_said_and_nothing_else) {
    for (const bool mapped_alone : {false, true}) {
        const SyncWords said{{makedev(0, 51), makedev(254, 7)}, {1, 77, 4194303}, mapped_alone};
        const auto read = parse_sync_words(sync_words(said));
        ck_assert(read && read->devices == said.devices && read->pids == said.pids);
        ck_assert(read->mapped_alone == mapped_alone);
    }
    ck_assert(parse_sync_words("\n\n")->pids.empty());
    for (const char* bad : {"", "\n", "1\n2", "x\n2\n", "1\n0\n", "1\n-4\n", "1\n4294967297\n",
                            "1\n2\n3\n", "1  2\n3\n"})
        ck_assert_msg(!parse_sync_words(bad), "%s", bad);
}
END_TEST

START_TEST(what_is_mapped_shared_there_is_found_and_nothing_else) {
    FileKeys found;
    add_shared_mappings(
        "7f00-7f01 rw-s 00000000 00:33 42   /home/a file\n"
        "7f01-7f02 r--s 00001000 00:33 43   /home/b\n"
        "7f02-7f03 rw-p 00000000 00:33 44   /home/c\n"
        "7f03-7f04 rw-s 00000000 00:34 45   /other\n"
        "7f04-7f05 rw-p 00000000 00:00 0\nnonsense\n",
        {makedev(0, 0x33)}, found);
    ck_assert(found == (FileKeys{{makedev(0, 0x33), 42}, {makedev(0, 0x33), 43}}));
    const TempDir directory;
    const Fd file = std::move(*open_at(directory.fd.get(), "m", O_RDWR | O_CREAT, 0600));
    struct stat st {};
    ck_assert(::ftruncate(file.get(), 4096) == 0 && ::fstat(file.get(), &st) == 0);
    const auto is_found = [&] {
        return shared_mappings({::getpid()}, {st.st_dev}).contains({st.st_dev, st.st_ino});
    };
    ck_assert(!is_found());
    void* const map = ::mmap(nullptr, 4096, PROT_READ, MAP_SHARED, file.get(), 0);
    ck_assert(map != MAP_FAILED && is_found());
    ck_assert(::munmap(map, 4096) == 0 && !is_found());
}
END_TEST

UNIT_SUITE(network_files,
           the_devices_of_network_mounts_are_found_whatever_tags_stand_before_the_type,
           what_a_process_has_open_for_writing_there_is_found_and_nothing_else,
           what_is_mapped_shared_there_is_found_and_nothing_else,
           what_is_to_be_synced_is_read_as_it_was_said_and_nothing_else);
