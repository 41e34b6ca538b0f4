// SPDX-License-Identifier: GPL-2.0-or-later
// Which files count as the same after a restore, by kernel and file system.
#include "checkpoint/open_files.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "checkpoint/kept_files.h"
#include "kernel/base/home_inode.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk {
namespace {

OpenFile file(std::string place, std::string path, uint64_t device, uint64_t inode,
              std::string type = "ext4", std::string source = "/dev/vda") {
    return {2,
            std::move(place),
            std::move(path),
            std::move(type),
            std::move(source),
            device,
            inode,
            0,
            S_IFREG,
            false};
}

OpenFiles list(std::vector<OpenFile> files, std::string boot = "this") {
    return {std::move(boot), std::move(files)};
}

bool same(const OpenFile& was, const OpenFile& is, const char* there = "this") {
    return same_files(list({was}), list({is}, there)).has_value();
}

START_TEST(on_one_kernel_a_file_is_its_device_and_inode) {
    const OpenFile was = file("fd 3", "/home/a/passwd", 8, 100);
    ck_assert(same(was, was));
    ck_assert(same(was, file("fd 3", "/home/b/renamed", 8, 100)));
    ck_assert(!same(was, file("fd 3", "/home/a/passwd", 8, 101)));
    ck_assert(!same(was, file("fd 3", "/etc/passwd", 9, 100)));
    ck_assert(same(was, file("fd 3", "/home/a/passwd", 9, 7)));  // mounted anew
    ck_assert(!same(was, file("fd 4", "/home/a/passwd", 8, 100)));
    // Put back by its home: another inode of that name will do.
    OpenFile then = file("fd 3", "/run/souk-root/home/ann/state", 8, 5), now = then;
    then.type = now.type = "fuse.souk";
    then.capsules = now.capsules = true;
    now.inode = 6;
    ck_assert(!same_files(list({then}), list({now})));
    ck_assert(same_files(list({then}), list({now}), "/run/souk-root/home/ann"));
    ck_assert(!same_files(list({then}), list({now}), "/run/souk-root/home/an"));
    const Status why = same_files(list({was}), list({file("fd 3", "/etc/passwd", 8, 5)}));
    ck_assert_text(why.error().message,
                   "process 2, fd 3: /home/a/passwd (device 0:8, inode 100) is another file now: "
                   "/etc/passwd (device 0:8, inode 5)");
}
END_TEST

START_TEST(where_inode_numbers_are_made_up_the_path_counts) {
    const OpenFile was = file("cwd", "/mnt/a", 8, 100, "fuse.sshfs");
    ck_assert(same(was, file("cwd", "/mnt/a", 8, 7, "fuse.sshfs")));
    ck_assert(!same(was, file("cwd", "/mnt/b", 8, 100, "fuse.sshfs")));
}
END_TEST

START_TEST(on_another_kernel_only_a_server_that_both_see_has_the_same_inodes) {
    const OpenFile local = file("exe", "/usr/bin/x", 8, 100);
    ck_assert(same(local, file("exe", "/usr/bin/x", 3, 5), "other"));
    ck_assert(same(local, file("exe", "/opt/bin/x", 3, 5), "other"));
    const OpenFile shared = file("fd 3", "/home/a", 8, 100, "nfs4", "server:/home");
    ck_assert(same(shared, file("fd 3", "/home/a", 3, 100, "nfs4", "server:/home"), "other"));
    ck_assert(!same(shared, file("fd 3", "/home/a", 3, 5, "nfs4", "server:/home"), "other"));
    ck_assert(same(shared, file("fd 3", "/home/a", 3, 5, "nfs4", "mirror:/home"), "other"));
}
END_TEST

START_TEST(a_file_of_the_home_is_its_inode_there_wherever_the_job_is) {
    OpenFile was = file("fd 3", "/run/souk-root/home/a", 40, 100, "fuse.souk"),
             is = file("fd 3", "/run/souk-root/home/a", 51, 100, "fuse.souk");
    was.capsules = is.capsules = true;
    ck_assert(same(was, is) && same(was, is, "other"));
    is.inode = 101;  // another was put there while the job was frozen
    ck_assert(!same(was, is) && !same(was, is, "other"));
    is = was;
    is.path = "/run/souk-root/etc/passwd";
    ck_assert(!same(was, is, "other"));
}
END_TEST

START_TEST(a_file_of_the_capsules_own_stays_one_and_no_other_becomes_one) {
    OpenFile was = file("fd 3", "/dev/shm/a", 8, 100, "tmpfs"), is = was;
    was.capsules = is.capsules = true;
    is.device = 8;  // a number that was free again
    is.inode = 5;
    ck_assert(same(was, is));
    is.path = "/dev/shm/b";
    ck_assert(!same(was, is));
    is.path = was.path;
    is.capsules = false;
    ck_assert(!same(was, is) && !same(was, is, "other"));
}
END_TEST

// As the file of sem_open(3) has, whose first name is gone.
START_TEST(a_file_of_the_capsules_own_with_several_names_is_restored_by_any_of_them) {
    OpenFile was[] = {file("map", "/dev/shm/sem.x (deleted)", 8, 100, "tmpfs"),
                      file("map", "/dev/shm/sem.a", 8, 100, "tmpfs"),
                      file("map", "/dev/shm/sem.b", 8, 101, "tmpfs")};
    for (OpenFile& f : was) f.capsules = true;
    was[0].pid = 9;
    OpenFile is[] = {was[0], was[1], was[2]};
    is[1].path = was[0].path;
    ck_assert(same_files(list({was[0], was[1]}), list({is[0], is[1]}, "other")));
    is[2].path = was[0].path;
    ck_assert(!same_files(list({was[0], was[2]}), list({is[0], is[2]}, "other")));
}
END_TEST

START_TEST(a_device_is_its_number_and_a_kind_never_changes) {
    OpenFile was = file("fd 3", "/dev/null", 8, 100), is = was;
    was.kind = is.kind = S_IFCHR;
    was.rdev = is.rdev = 259;
    is.inode = 5;
    ck_assert(same(was, is) && same(was, is, "other"));
    is.rdev = 260;
    ck_assert(!same(was, is) && !same(was, is, "other"));
    is = was;
    is.kind = S_IFREG;
    ck_assert(!same(was, is) && !same(was, is, "other"));
}
END_TEST

START_TEST(every_mapped_file_was_mapped_and_is) {
    const OpenFile a = file("map", "/lib/a", 8, 1), b = file("map", "/lib/b", 8, 2);
    ck_assert(same_files(list({a, b}), list({b, a})).has_value());
    ck_assert(!same_files(list({a, b}), list({a})).has_value());
    ck_assert(!same_files(list({a}), list({a, b})).has_value());
}
END_TEST

START_TEST(a_list_reads_as_it_was_written_and_a_damaged_one_is_refused) {
    OpenFiles all = list({file("fd 3", "/a\nb", 8, 1), file("cwd", "/", 0, UINT64_MAX, "", "")});
    all.files[1].capsules = true;
    const std::string text = all.encode();
    const auto again = OpenFiles::decode(text);
    ck_assert(again && again->boot == all.boot && again->files == all.files);
    for (size_t n = 0; n < text.size(); ++n)
        if (const auto part = OpenFiles::decode(std::string_view(text).substr(0, n)))
            ck_assert(part->files.size() < all.files.size());
    ck_assert(!OpenFiles::decode(text + std::string("x\0", 2)));
}
END_TEST

START_TEST(an_image_that_names_no_files_is_refused_and_an_empty_list_compares_nothing) {
    const unit::TempDir image;
    const PidsInside pids = {{1, ::getpid()}};
    const auto why = [&] {
        const Status same = check_open_files(image.fd.get(), pids);
        return same ? "" : same.error().message;
    };
    ck_assert_text(why(), "its image does not say what files it had");
    ck_assert(save_open_files(image.fd.get(), {}).has_value());
    ck_assert_text(why(), "");
    const std::string path = image.write("file", "x");
    Fd held = *open_at(AT_FDCWD, path, O_RDONLY);
    ck_assert(save_open_files(image.fd.get(), *open_files_of(pids)).has_value());
    ck_assert_text(why(), "");
    held.reset();
    ck_assert_str_ne(why().c_str(), "");
}
END_TEST

START_TEST(a_file_that_was_made_again_or_has_lost_its_name_since_is_the_same) {
    const unit::TempDir image, dir;
    const PidsInside pids = {{1, ::getpid()}};
    const std::string path = dir.write("file", "x");
    Fd held = *open_at(AT_FDCWD, path, O_RDONLY);
    ck_assert(save_open_files(image.fd.get(), *open_files_of(pids)).has_value());
    ck_assert_int_eq(::unlink(path.c_str()), 0);
    ck_assert(check_open_files(image.fd.get(), pids).has_value());
    // Another one has its name. It is the job's if the restore has made it.
    const Fd was = std::move(held);
    dir.write("file", "x");
    ck_assert(::dup2(open_at(AT_FDCWD, path, O_RDONLY)->get(), was.get()) == was.get());
    ck_assert(!check_open_files(image.fd.get(), pids).has_value());
    struct stat st {};
    ck_assert_int_eq(::fstat(was.get(), &st), 0);
    const std::string of_another = path + '\0' + std::to_string(st.st_ino + 1) + '\0';
    image.write(SOUK_MADE_AGAIN_NAME, of_another);
    ck_assert(!check_open_files(image.fd.get(), pids).has_value());
    image.write(SOUK_MADE_AGAIN_NAME, of_another + path + '\0' + std::to_string(st.st_ino) + '\0');
    ck_assert(check_open_files(image.fd.get(), pids).has_value());
    ck_assert_int_eq(::unlink(path.c_str()), 0);
    ck_assert(check_open_files(image.fd.get(), pids).has_value());
}
END_TEST

START_TEST(the_files_of_a_process_are_found_and_deleted_ones_and_pipes_left_out) {
    const unit::TempDir dir;
    const std::string path = dir.write("kept", "x"), gone = dir.write("gone", "x");
    const Fd kept = *open_at(AT_FDCWD, path, O_RDONLY);
    const Fd deleted = *open_at(AT_FDCWD, gone, O_RDONLY);
    const Pipe pipe = *make_pipe();
    ck_assert(::unlink(gone.c_str()) == 0);
    const auto found = open_files_of({{1, ::getpid()}});
    ck_assert(found.has_value());
    struct stat st {};
    ck_assert(::stat(path.c_str(), &st) == 0);
    int files = 0, others = 0, maps = 0, exe = 0;
    for (const OpenFile& f : found->files) {
        if (f.place == "fd " + std::to_string(kept.get())) {
            files += f.inode == st.st_ino && f.device == st.st_dev && f.path == path;
            ck_assert(!f.capsules && !f.type.empty());
        }
        for (const int fd : {deleted.get(), pipe.read_end.get()})
            others += f.place == "fd " + std::to_string(fd);
        maps += f.place == "map";
        exe += f.place == "exe";
    }
    ck_assert(files == 1 && others == 0 && maps > 0 && exe == 1);
    ck_assert(same_files(*found, *open_files_of({{1, ::getpid()}})).has_value());
}
END_TEST

START_TEST(a_file_that_is_mapped_in_pieces_is_found_once_wherever_they_are) {
    const unit::TempDir dir;
    const std::string path = dir.write("mapped", std::string(3 * 4096, 'x'));
    const Fd file = *open_at(AT_FDCWD, path, O_RDONLY);
    // An address of few digits: the table of mappings shows it with zeros before them.
    void* const low = reinterpret_cast<void*>(0x2000000);
    const auto map = [&](void* at, off_t from) {
        void* const m =
            ::mmap(at, 4096, PROT_READ, MAP_PRIVATE | MAP_FIXED_NOREPLACE, file.get(), from);
        return m == at ? m : nullptr;
    };
    const auto times = [&path] {
        const auto all = open_files_of({{1, ::getpid()}});
        return std::ranges::count_if(
            all->files, [&path](const OpenFile& f) { return f.place == "map" && f.path == path; });
    };
    ck_assert(times() == 0);
    ck_assert(map(low, 0) != nullptr);
    ck_assert(times() == 1);
    ck_assert(map(static_cast<char*>(low) + 16 * 4096, 8192) != nullptr);
    ck_assert(times() == 1);
    ck_assert(::munmap(low, 4096) == 0);
    ck_assert(times() == 1);
}
END_TEST
START_TEST(what_is_open_at_a_look_and_closed_later_is_left_out) {
    const unit::TempDir dir;
    const Fd kept = *open_at(AT_FDCWD, dir.write("kept", "text"), O_RDONLY);
    const std::map<pid_t, pid_t> own = {{7, ::getpid()}};
    const auto before = open_files_of(own);
    Fd log = *open_at(AT_FDCWD, dir.write("dump.log", "text"), O_RDONLY);
    // a number that the look itself, which is of its own process here, does not take
    log = Fd(::fcntl(log.get(), F_DUPFD_CLOEXEC, 500));
    auto files = open_files_of(own);
    ck_assert(files->files.size() == before->files.size() + 1);
    ck_assert(leave_out_closed(*files, own).has_value());
    ck_assert(files->files.size() == before->files.size() + 1);
    log.reset();
    const Status swapped = same_files(*files, *open_files_of(own));
    ck_assert(!swapped.has_value());
    ck_assert(swapped.error().message.find("dump.log") != std::string::npos);
    ck_assert(leave_out_closed(*files, own).has_value());
    ck_assert(files->files == before->files);
    // A process that is gone says nothing of what it had.
    ck_assert(!leave_out_closed(*files, {{7, 0}}).has_value());
}
END_TEST

START_TEST(an_inode_of_a_home_has_one_number_in_a_tree_of_several_file_systems) {
    const HomeInode root{100, 2};
    ck_assert_uint_eq(home_inode(root, root), 1);
    ck_assert_uint_eq(home_inode(root, {100, 77}), 77);
    const uint64_t other = home_inode(root, {101, 77});
    ck_assert(other != 77 && other == home_inode(root, {101, 77}));
    ck_assert(home_inode(root, {102, 77}) != other && home_inode(root, {101, 78}) != other);
}
END_TEST
}  // namespace

UNIT_SUITE(open_files, on_one_kernel_a_file_is_its_device_and_inode,
           where_inode_numbers_are_made_up_the_path_counts,
           on_another_kernel_only_a_server_that_both_see_has_the_same_inodes,
           a_file_of_the_home_is_its_inode_there_wherever_the_job_is,
           a_file_of_the_capsules_own_stays_one_and_no_other_becomes_one,
           a_file_of_the_capsules_own_with_several_names_is_restored_by_any_of_them,
           a_device_is_its_number_and_a_kind_never_changes, every_mapped_file_was_mapped_and_is,
           a_list_reads_as_it_was_written_and_a_damaged_one_is_refused,
           an_image_that_names_no_files_is_refused_and_an_empty_list_compares_nothing,
           a_file_that_was_made_again_or_has_lost_its_name_since_is_the_same,
           the_files_of_a_process_are_found_and_deleted_ones_and_pipes_left_out,
           a_file_that_is_mapped_in_pieces_is_found_once_wherever_they_are,
           what_is_open_at_a_look_and_closed_later_is_left_out,
           an_inode_of_a_home_has_one_number_in_a_tree_of_several_file_systems);

}  // namespace souk
