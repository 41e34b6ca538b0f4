// SPDX-License-Identifier: GPL-2.0-or-later
// Scripts read the status file. These tests check its text, that it is replaced whole, and what
// happens on a disk that does not take it.
#include "kernel/sys/host/status_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/temp_dir.hpp"

using namespace souk;
using namespace souk::unit;

namespace {

// Collects what a log has been told, by lines.
struct Told {
    Pipe pipe = std::move(*make_pipe());
    Log log{{.fd = pipe.write_end.get(), .program = "test", .journal = ""}};
    Told() { set_nonblocking(pipe.read_end.get()); }
    std::string lines() const {
        std::string all(65'536, '\0');
        const ssize_t n = ::read(pipe.read_end.get(), all.data(), all.size());
        all.resize(n < 0 ? 0 : static_cast<size_t>(n));
        return all;
    }
};

std::string text_at(const std::string& path) {
    return read_file(AT_FDCWD, path).value_or("(none)");
}

}  // namespace

START_TEST(values_are_words_for_sh_and_cannot_forge_a_line) {
    ck_assert_text(status_text({{"n", 7},
                                {"yes", true},
                                {"no", false},
                                {"word", "n1:7071"},
                                {"none", ""},
                                {"why", "it's gone\nid=0; $(id)"}}),
                   "n=7\nyes=1\nno=0\nword=n1:7071\nnone=\nwhy='it'\\''s gone id=0; $(id)'\n");
    const std::string long_one = status_text({{"w", std::string(5'000, 'x')}});
    ck_assert_uint_eq(long_one.size(), 2 + status_value_bytes_max + 1);
}
END_TEST

START_TEST(the_file_is_there_at_once_is_written_anew_and_goes_with_the_daemon) {
    const TempDir dir;
    const std::string path = dir.path + "/status";
    Loop loop = open_loop();
    Told told;
    int written = 0;
    {
        const StatusFile file(loop, told.log, "testd", path, Nanos::from_ms(1),
                              [&]() -> std::vector<StatusLine> {
                                  return {{"n", ++written}};
                              });
        const std::string text = text_at(path);
        ck_assert_msg(text.starts_with("format=1\ndaemon=testd\nversion="), "%s", text.c_str());
        ck_assert(text.find("\ntime=") != std::string::npos && text.ends_with("n=1\n"));
        struct stat info {};
        ck_assert_int_eq(::stat(path.c_str(), &info), 0);
        ck_assert_uint_eq(info.st_mode & 0444, 0444);
        UNTIL(loop, written >= 3);
        ck_assert(text_at(path).ends_with("n=" + std::to_string(written) + "\n"));
        ck_assert_text(text_at(path + ".new"), "(none)");
    }
    ck_assert_text(text_at(path), "(none)");
    ck_assert_text(told.lines(), "");
}
END_TEST

START_TEST(what_keeps_it_from_being_written_is_said_once_and_its_end_once) {
    const TempDir dir;
    const std::string below = dir.path + "/below", path = below + "/status";
    Loop loop = open_loop();
    Told told;
    StatusFile file(loop, told.log, "testd", path, Nanos::from_s(3'600),
                    [] { return std::vector<StatusLine>{}; });
    const std::string first = told.lines();
    ck_assert_msg(first.find("not written") != std::string::npos &&
                      first.find("No such file") != std::string::npos,
                  "%s", first.c_str());
    file.write();
    file.write();
    ck_assert_text(told.lines(), "");
    ck_assert_int_eq(::mkdir(below.c_str(), 0755), 0);
    file.write();
    const std::string again = told.lines();
    ck_assert_msg(again.find("written again") != std::string::npos, "%s", again.c_str());
    file.write();
    ck_assert_text(told.lines(), "");
}
END_TEST

START_TEST(no_link_that_somebody_laid_is_followed) {
    const TempDir dir;
    const std::string path = dir.path + "/status", victim = dir.write("victim", "as it was");
    ck_assert_int_eq(::symlink(victim.c_str(), (path + ".new").c_str()), 0);
    ck_assert_int_eq(::symlink(victim.c_str(), path.c_str()), 0);
    Loop loop = open_loop();
    Told told;
    const StatusFile file(loop, told.log, "testd", path, Nanos::from_s(3'600),
                          [] { return std::vector<StatusLine>{}; });
    ck_assert_text(text_at(victim), "as it was");
    ck_assert(text_at(path).starts_with("format=1\n"));
}
END_TEST

UNIT_SUITE(status_file, values_are_words_for_sh_and_cannot_forge_a_line,
           the_file_is_there_at_once_is_written_anew_and_goes_with_the_daemon,
           what_keeps_it_from_being_written_is_said_once_and_its_end_once,
           no_link_that_somebody_laid_is_followed);
