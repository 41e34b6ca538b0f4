// SPDX-License-Identifier: GPL-2.0-or-later
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>

#include "checkpoint/kept_sockets.hpp"
#include "kernel/sys/host/fd.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

namespace {
bool there(const std::string& path) {
    struct stat st {};
    return ::lstat(path.c_str(), &st) == 0;
}

// A directory of a job with a socket that a restore has put aside, and an image directory whose
// list says so.
struct Aside {
    unit::TempDir dir;
    std::string job = dir.path + "/job", name = job + "/door", kept;

    Aside() {
        ck_assert_int_eq(::mkdir(job.c_str(), 0700), 0);
        ck_assert_int_eq(::mkdir((dir.path + "/image").c_str(), 0700), 0);
        kept = make_socket();
    }
    std::string make_socket() const {
        const Fd fd(::socket(AF_UNIX, SOCK_STREAM, 0));
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        std::strncpy(address.sun_path, name.c_str(), sizeof address.sun_path - 1);
        ck_assert_int_eq(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address),
                         0);
        struct stat st {};
        ck_assert_int_eq(::lstat(name.c_str(), &st), 0);
        const std::string aside = job + "/.souk-" + std::to_string(st.st_ino);
        ck_assert_int_eq(::rename(name.c_str(), aside.c_str()), 0);
        return aside;
    }
    void settle(std::string_view list, bool runs) const {
        const std::string path = dir.path + "/image/" + kept_sockets_name;
        const auto written = write_whole(path, list);
        ck_assert(written);
        const Fd image(::openat(dir.fd.get(), "image", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        ck_assert(settle_sockets(image.get(), runs).has_value());
        ck_assert(!there(path));
    }
    static bool write_whole(const std::string& path, std::string_view text) {
        const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
        return fd &&
               ::write(fd.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    }
};

std::string pair_of(const std::string& kept, const std::string& name) {
    return kept + '\0' + name + '\0';
}
}  // namespace

START_TEST(a_socket_gets_its_name_back_or_goes_when_the_job_runs) {
    const Aside back, gone;
    back.settle(pair_of(back.kept, back.name), false);
    ck_assert(there(back.name) && !there(back.kept));
    gone.settle(pair_of(gone.kept, gone.name), true);
    ck_assert(!there(gone.name) && !there(gone.kept));
}
END_TEST

START_TEST(a_list_that_was_cut_does_what_it_still_says) {
    Aside a;
    const std::string whole = pair_of(a.kept, a.name);
    for (size_t n = 0; n < whole.size(); ++n) {
        a.settle(whole.substr(0, n), false);
        ck_assert(there(a.kept) && !there(a.name));
    }
    a.settle(whole + whole.substr(0, 9), false);
    ck_assert(there(a.name));
}
END_TEST

// The directory belongs to the job's user, who may put a link in its place.
START_TEST(no_link_is_followed_and_nothing_else_is_touched) {
    for (const bool runs : {false, true}) {
        const Aside a;
        const std::string link = a.dir.path + "/link";
        ck_assert_int_eq(::symlink(a.job.c_str(), link.c_str()), 0);
        const std::string base = a.kept.substr(a.kept.rfind('/'));
        a.settle(pair_of(link + base, link + "/door"), runs);
        a.settle(pair_of(a.kept, a.dir.path + "/door"), runs);     // another directory
        a.settle(pair_of(a.kept, a.job + "/further/door"), runs);  // below it
        a.settle(pair_of(a.kept, a.job + "/"), runs);              // no name
        a.settle(pair_of(base.substr(1), "door"), runs);           // not where it is said from
        const std::string other = a.job + "/.souk-1";              // not that inode
        ck_assert_int_eq(::rename(a.kept.c_str(), other.c_str()), 0);
        a.settle(pair_of(other, a.name), runs);
        ck_assert(there(other) && !there(a.name));
        ck_assert(Aside::write_whole(a.kept, "a file"));
        a.settle(pair_of(a.kept, a.name), runs);
        ck_assert(there(a.kept) && !there(a.name));
    }
}
END_TEST

UNIT_SUITE(kept_sockets, a_socket_gets_its_name_back_or_goes_when_the_job_runs,
           a_list_that_was_cut_does_what_it_still_says,
           no_link_is_followed_and_nothing_else_is_touched);
