// SPDX-License-Identifier: GPL-2.0-or-later
// The watches of a server of files: many sessions, one instance of inotify, of which a user has
// few.
#include <linux/fuse.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "agentd/files/server.hpp"
#include "kernel/sys/host/fd.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::files {
namespace {

using unit::TempDir;

int instances() {
    int count = 0;
    const auto fds = list_dir(AT_FDCWD, "/proc/self/fd");
    for (const std::string& fd : *fds) {
        char target[64] = {};
        (void)!::readlink(("/proc/self/fd/" + fd).c_str(), target, sizeof target - 1);
        count += std::strcmp(target, "anon_inode:inotify") == 0;
    }
    return count;
}

// Looks a name up, and says whether the answer may be used until it is recalled.
bool look(Session& session, const std::string& name) {
    fuse_in_header head{};
    head.len = static_cast<uint32_t>(sizeof head + name.size() + 1);
    head.opcode = FUSE_LOOKUP;
    head.nodeid = FUSE_ROOT_ID;
    Bytes request, out;
    put(request, head);
    request.insert(request.end(), name.c_str(), name.c_str() + name.size() + 1);
    session.handle(request, out);
    fuse_out_header answer{};
    ck_assert(out.size() >= sizeof answer);
    std::memcpy(&answer, out.data(), sizeof answer);
    ck_assert(answer.error == 0);
    return session.leased() != Lease::none;
}

// Counts for each session how often it was told of that name.
std::map<uint64_t, int> told(Watches& watches, const std::string& name) {
    std::map<uint64_t, int> all;
    watches.read([&](const Watches::Change& c) {
        if (c.directory == FUSE_ROOT_ID && c.name == name) ++all[c.session];
    });
    return all;
}

START_TEST(many_sessions_share_one_instance_and_each_is_told) {
    const TempDir dir;
    (void)dir.write("program", "x");
    const int before = instances();
    Watches watches(Watches::make_instance(::geteuid()));
    UNIT_SKIP_IF(watches.fd() < 0 ? "no instance of inotify is left" : nullptr);
    const auto tree = open_export(dir.path, {}, {dir.path});
    ck_assert(tree.has_value());
    std::vector<std::unique_ptr<Session>> sessions;
    constexpr uint64_t many = 300;  // more than a user has instances
    for (uint64_t n = 1; n <= many; ++n) {
        sessions.push_back(std::make_unique<Session>(*tree, SessionLimits{}, &watches, n));
        ck_assert(look(*sessions.back(), "program"));
    }
    ck_assert_int_eq(instances(), before + 1);
    ck_assert_uint_eq(watches.count(), 1);
    (void)dir.write("program", "changed");
    ck_assert_uint_eq(told(watches, "program").size(), many);
    sessions.resize(many / 2);
    (void)dir.write("program", "changed again");
    ck_assert_uint_eq(told(watches, "program").size(), many / 2);
    sessions.clear();
    ck_assert_uint_eq(watches.count(), 0);
    (void)dir.write("program", "and again");
    ck_assert(told(watches, "program").empty());
}
END_TEST

START_TEST(a_directory_that_has_gone_is_watched_by_nobody) {
    const TempDir dir;
    const std::string gone = dir.path + "/gone";
    Watches watches(Watches::make_instance(::geteuid()));
    UNIT_SKIP_IF(watches.fd() < 0 ? "no instance of inotify is left" : nullptr);
    ck_assert(::mkdir(gone.c_str(), 0755) == 0);
    Fd directory = *open_at(AT_FDCWD, gone, O_PATH | O_DIRECTORY);
    ck_assert(watches.watch(1, 7, directory.get()) && watches.watch(2, 8, directory.get()));
    // The kernel of session 1 has forgotten the directory, and now knows it by another number.
    ck_assert(watches.watch(1, 9, directory.get()));
    directory.reset();
    ck_assert(::rmdir(gone.c_str()) == 0);
    std::map<uint64_t, uint64_t> all;
    watches.read([&](const Watches::Change& c) { all[c.session] = c.directory; });
    ck_assert(all == (std::map<uint64_t, uint64_t>{{1, 9}, {2, 8}}));
    ck_assert_uint_eq(watches.count(), 0);
    watches.leave(1);
    watches.leave(2);
}
END_TEST

START_TEST(the_oldest_watch_goes_for_a_newer_one_and_is_told) {
    const TempDir dir;
    Watches watches(Watches::make_instance(::geteuid()), 3);
    UNIT_SKIP_IF(watches.fd() < 0 ? "no instance of inotify is left" : nullptr);
    for (uint64_t node = 10; node < 15; ++node) {
        const std::string path = dir.path + "/" + std::to_string(node);
        ck_assert(::mkdir(path.c_str(), 0755) == 0);
        ck_assert(watches.watch(1, node, open_at(AT_FDCWD, path, O_PATH | O_DIRECTORY)->get()));
    }
    ck_assert_uint_eq(watches.count(), 3);
    std::vector<uint64_t> all;
    watches.read([&](const Watches::Change& c) {
        if (c.session == 1 && c.name.empty() && !c.stays) all.push_back(c.directory);
    });
    ck_assert(all == (std::vector<uint64_t>{10, 11}));
    watches.leave(1);
    ck_assert_uint_eq(watches.count(), 0);
}
END_TEST

START_TEST(without_an_instance_all_is_asked_for_each_time) {
    const TempDir dir;
    (void)dir.write("program", "x");
    Watches none{Fd()};
    const auto tree = open_export(dir.path, {}, {dir.path});
    Session session(*tree, {}, &none, 1);
    ck_assert(!look(session, "program"));
    ck_assert(told(none, "program").empty());
}
END_TEST

// The agentd of the server has removed the name of its socket.
START_TEST(a_server_without_an_instance_ends_with_its_name_too) {
    const TempDir dir;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const std::string path = dir.path + "/socket";
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    const Fd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ck_assert(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 &&
              ::listen(listener.get(), 1) == 0);
    const Fd name = *open_at(AT_FDCWD, path, O_PATH);
    const pid_t pid = ::fork();
    if (pid == 0) {
        auto tree = open_export(dir.path, {});
        const Status done =
            Server(std::move(*tree), {}, Watches(Fd()), false).run(listener.get(), name.get());
        ::_exit(done ? 7 : 1);
    }
    ck_assert(::unlink(path.c_str()) == 0);
    int status = 0;
    ck_assert(::waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
}
END_TEST
}  // namespace

}  // namespace souk::files

namespace souk {
using namespace souk::files;
UNIT_SUITE(files_watches, many_sessions_share_one_instance_and_each_is_told,
           a_directory_that_has_gone_is_watched_by_nobody,
           the_oldest_watch_goes_for_a_newer_one_and_is_told,
           without_an_instance_all_is_asked_for_each_time,
           a_server_without_an_instance_ends_with_its_name_too);
}  // namespace souk
