// SPDX-License-Identifier: GPL-2.0-or-later
// The files that processes have open and mapped are looked at, written down, and read again.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/process_files.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

const SeenFile* at(const SeenProcess& process, const std::string& place) {
    const auto found = std::ranges::find(process.files, place, &SeenFile::place);
    return found == process.files.end() ? nullptr : &*found;
}

START_TEST(a_look_tells_what_a_process_has_open_and_mapped) {
    const TempDir dir;
    ck_assert(create_file(dir.fd.get(), "file", "text").has_value());
    const Fd file = std::move(*open_at(dir.fd.get(), "file", O_RDWR | O_APPEND));
    ck_assert_int_eq(::flock(file.get(), LOCK_EX), 0);
    const std::string place = "fd " + std::to_string(file.get());
    struct stat st {};
    ck_assert_int_eq(::fstat(file.get(), &st), 0);
    const PidsInside own = {{7, ::getpid()}};

    const auto names = look_from_here(own, {});
    ck_assert(names && names->size() == 1 && names->at(0).pid == 7 && names->at(0).error == 0);
    const SeenFile* seen = at(names->at(0), place);
    ck_assert(seen && seen->target == dir.path + "/file" && !seen->known && !seen->locked);
    ck_assert(!at(names->at(0), "cwd") && names->at(0).maps.empty());

    int pipe[2], sockets[2];
    ck_assert(::pipe2(pipe, O_CLOEXEC | O_DIRECT) == 0);
    ck_assert(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sockets) == 0);
    const Fd ends[] = {Fd(pipe[0]), Fd(pipe[1]), Fd(sockets[0]), Fd(sockets[1])};
    const auto kinds = look_from_here(own, {.kinds = true});
    ck_assert(at(kinds->at(0), "fd " + std::to_string(pipe[1]))->packets);
    ck_assert_text(at(kinds->at(0), "fd " + std::to_string(sockets[0]))->protocol, "UNIX");
    ck_assert(kinds->at(0).spaces.starts_with("mnt:[") &&
              kinds->at(0).spaces.find(" net:[") != std::string::npos);
    ck_assert(decode_look(encode_look(*kinds)).value() == *kinds);
    SeenProcess odd;
    odd.spaces = "uts:[5]";
    odd.files.resize(2);
    odd.files[0].wakes = odd.files[1].thread = true;
    ck_assert(decode_look(encode_look({odd})).value() == std::vector<SeenProcess>{odd});

    const LookFor all{.states = true, .mapped = true, .infos = true, .maps = true};
    const auto whole = look_from_here(own, all);
    seen = at(whole->at(0), place);
    ck_assert(seen && seen->known && seen->inode == st.st_ino && seen->device == st.st_dev);
    ck_assert(seen->links == 1 && S_ISREG(seen->mode) && seen->locked && seen->mount != 0);
    ck_assert((seen->flags & O_APPEND) != 0 && (seen->flags & O_ACCMODE) == O_RDWR);
    ck_assert(at(whole->at(0), "exe") && at(whole->at(0), "root")->target == "/");
    ck_assert(at(whole->at(0), "map")->known);
    ck_assert(!mapped_ranges(whole->at(0).maps).empty());

    ck_assert(decode_look(encode_look(*whole)).value() == *whole);
    const std::string text = encode_look(*names);
    for (size_t n = 0; n < text.size(); ++n) ck_assert(!decode_look(text.substr(0, n)));
    ck_assert(!decode_look(text + '\0'));
}
END_TEST

START_TEST(no_more_files_are_looked_at_than_were_asked_for) {
    const PidsInside twice = {{1, ::getpid()}, {2, ::getpid()}};
    const auto some = look_from_here(twice, {.files_max = 2});
    ck_assert(some->at(0).files.size() == 2 && some->at(1).files.empty());
}
END_TEST

START_TEST(who_has_more_than_is_looked_at_is_not_looked_at_in_part) {
    const Fd proc = std::move(*open_at(AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY));
    const auto look = [&](const LookFor& what, LookMost most) {
        return look_at_processes(proc.get(), {::getpid()}, what, most);
    };
    const auto all = look({.states = true, .mapped = true, .maps = true}, {});
    const auto files = static_cast<uint32_t>(all->at(0).files.size());
    for (uint32_t most = 1; most < files; ++most) {
        const auto part = look({.states = true, .mapped = true}, {.files = most});
        ck_assert(!part && part.error().code == EFBIG);
    }
    ck_assert(look({.states = true, .mapped = true}, {.files = files + 8}).has_value());
    const auto maps = look({.maps = true}, {.maps_bytes = all->at(0).maps.size() / 2});
    ck_assert(!maps && maps.error().code == EFBIG);
    ck_assert_text(maps.error().message.substr(0, 24), "its processes have more ");
}
END_TEST

START_TEST(how_much_memory_they_have_is_told_without_their_files) {
    const auto sums = look_from_here({{3, ::getpid()}}, {.sums = true, .files_max = 0});
    ck_assert(sums && sums->at(0).files.empty() && sums->at(0).maps.empty());
    ck_assert(sums->at(0).sums.find("\nPss:") != std::string::npos);
    ck_assert(decode_look(encode_look(*sums)).value() == *sums);
}
END_TEST

START_TEST(who_has_ended_has_an_error) {
    const auto none = look_from_here({{1, 0x7ffffffe}}, {});
    ck_assert(none && none->at(0).error == ENOENT && none->at(0).files.empty());
}
END_TEST

START_TEST(mapped_files_are_named_as_the_kernel_names_them) {
    const auto ranges = mapped_ranges(
        "00400000-00401000 r-xp 00000000 08:01 12  /bin/a b\n"
        "7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n"
        "00000000-0000f000 r--p 00001000 08:01 12  /bin/a b");
    ck_assert(ranges.size() == 2 && ranges[0].name == "400000-401000");
    ck_assert(ranges[1].name == "0-f000" && ranges[0].file == ranges[1].file);
}
END_TEST

}  // namespace

UNIT_SUITE(process_files, a_look_tells_what_a_process_has_open_and_mapped,
           no_more_files_are_looked_at_than_were_asked_for,
           who_has_more_than_is_looked_at_is_not_looked_at_in_part,
           how_much_memory_they_have_is_told_without_their_files, who_has_ended_has_an_error,
           mapped_files_are_named_as_the_kernel_names_them);

}  // namespace souk::unit
