// SPDX-License-Identifier: GPL-2.0-or-later
// souk-files: the files of a job that come along. agentd starts it; docs/files.md.
//
//   serve ROOT UID GID GROUPS SEALED...   at the home: fd 3 listens, fd 4 is its file (O_PATH);
//                                         +DIRECTORY in place of a SEALED: of programs (cache.hpp)
//   client UID GID                        at the guest: fd 3 /dev/fuse, fd 4 the requests, fd 5
//                                         its keeper
//   store BYTES                           at the guest: fd 3 the directory of contents, fd 4
//                                         agentd, which brings clients (store.hpp)
//   append UID GID GROUPS UMASK DIRECTORY OUT ERR
//                                         at the home: what a job writes into files; fd 3 is
//                                         agentd, fd 4 the note of how far it is (append.hpp)
//   snapshot TASK UID GID GROUPS NAME DIRECTORY
//                                         at the home, or where its job is: fd 3 is agentd, fd 4
//                                         the root directory (snapshots.hpp)
//   sync                                  at the guest: fd 3 is agentd, which says whose files,
//                                         fd 4 a pidfd of souk-init (sync.hpp)
//   try ROOT MOUNTPOINT [SOCKET [+DIRECTORY...] [=DIRECTORY]]   both, of one directory, until it is
//                                         unmounted; SOCKET: what leads to the server, if it is not
//                                         its own; =DIRECTORY: with a store of contents there
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "agentd/files/client.hpp"
#include "agentd/files/program/append.hpp"
#include "agentd/files/program/snapshots.hpp"
#include "agentd/files/program/sync.hpp"
#include "agentd/files/server.hpp"
#include "agentd/files/store.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/version.hpp"
#include "kernel/sys/net/descriptors.hpp"
#include "kernel/sys/process/read_ahead.hpp"

namespace souk::files {
namespace {

constexpr uint32_t nobody = 65534;

int fail_with(const std::string& why) {
    std::fprintf(stderr, "souk-files: %s\n", why.c_str());
    return 1;
}

Status become(uint32_t uid, uint32_t gid, const std::vector<gid_t>& groups) {
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return fail_errno("no new privileges", errno);
    if (::geteuid() != 0) return {};  // it is somebody already
    if (::setgroups(groups.size(), groups.data()) != 0 || ::setresgid(gid, gid, gid) != 0 ||
        ::setresuid(uid, uid, uid) != 0)
        return fail_errno("become user " + std::to_string(uid), errno);
    return {};
}

// Allows as many descriptors as may be, divided by Server::sessions_max sessions: a node is opened
// again when it is asked for, an open file is not.
SessionLimits limits() {
    struct rlimit files {};
    ::getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
    SessionLimits l;
    l.fds_max = std::clamp<size_t>(files.rlim_cur / 16, 48, 1 << 16);
    l.open_max = std::clamp<size_t>(files.rlim_cur / 6, 64, 1 << 16);
    return l;
}

// The greatest number means "as before" to the kernel: the process would stay root.
Result<uint32_t> number_of_user(const std::string& word) {
    const auto number = whole_number<uint32_t>(word);
    if (!number || *number == UINT32_MAX)
        return fail("bad user or group " + word + ": a number below 4294967295 is needed");
    return *number;
}

Result<std::vector<gid_t>> groups_of(const std::string& words) {
    std::vector<gid_t> groups;
    for (size_t at = 0; at < words.size();) {
        const size_t end = std::min(words.find(',', at), words.size());
        TRY_ASSIGN(const gid_t group, number_of_user(words.substr(at, end - at)));
        groups.push_back(group);
        at = end + 1;
    }
    return groups;
}

// Returns the words without a + before them, and those with one.
std::pair<std::vector<std::string>, std::vector<std::string>> parted(
    const std::vector<std::string>& words) {
    std::pair<std::vector<std::string>, std::vector<std::string>> both;
    for (const std::string& word : words)
        word.starts_with('+') ? both.second.push_back(word.substr(1)) : both.first.push_back(word);
    return both;
}

Status serve(const std::vector<std::string>& words) {
    TRY_ASSIGN(const uint32_t uid, number_of_user(words[1]));
    TRY_ASSIGN(const uint32_t gid, number_of_user(words[2]));
    TRY_ASSIGN(const std::vector<gid_t> groups, groups_of(words[3]));
    const SessionLimits most = limits();
    Watches watches(Watches::make_instance(uid));
    const bool told = watches.watch_name(4);  // only root may
    TRY(become(uid, gid, groups));
    const auto [sealed, quiet] = parted({words.begin() + 4, words.end()});
    TRY_ASSIGN(Export tree, open_export(words[0], sealed, quiet));
    return Server(std::move(tree), most, std::move(watches), told).run(3, 4);
}

Status relay(const std::vector<std::string>& words) {
    TRY_ASSIGN(const uint32_t uid, number_of_user(words[0]));
    TRY_ASSIGN(const uint32_t gid, number_of_user(words[1]));
    TRY(become(nobody, nobody, {}));
    return run_client({3, 4, 5, uid, gid});
}

// Root without its privileges: its files are its own.
Status give_up_privileges() {
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        return fail_errno("no new privileges", errno);
    const __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct none[2] = {};
    if (::syscall(SYS_capset, &head, none) != 0) return fail_errno("capset", errno);
    return {};
}

Status keep_contents(Fd directory, uint64_t bytes_max, int control) {
    TRY(give_up_privileges());
    TRY_ASSIGN(Store store, Store::open(std::move(directory), bytes_max));
    return store.run(control);
}

Status store(const std::vector<std::string>& words) {
    const auto bytes = whole_number<uint64_t>(words[0]);
    if (!bytes || *bytes == 0) return fail("bad size " + words[0]);
    (void)limits();
    struct stat st {};
    if (::fstat(3, &st) != 0) return fail_errno("the store of contents", errno);
    TRY(become(st.st_uid, st.st_gid, {}));  // agentd's user, whose directory it is
    return keep_contents(Fd(3), *bytes, 4);
}

Status append(const std::vector<std::string>& words) {
    TRY_ASSIGN(const uint32_t uid, number_of_user(words[0]));
    TRY_ASSIGN(const uint32_t gid, number_of_user(words[1]));
    TRY_ASSIGN(const std::vector<gid_t> groups, groups_of(words[2]));
    const auto umask = whole_number<uint32_t>(words[3]);
    if (!umask) return fail("bad umask " + words[3]);
    TRY(become(uid, gid, groups));
    ::umask(*umask & 0777);
    return append_output(3, 4, words[4], words[5], words[6]);
}

Status snapshot(const std::vector<std::string>& words) {
    TRY_ASSIGN(const uint32_t uid, number_of_user(words[1]));
    TRY_ASSIGN(const uint32_t gid, number_of_user(words[2]));
    TRY_ASSIGN(const std::vector<gid_t> groups, groups_of(words[3]));
    (void)limits();
    TRY(become(uid, gid, groups));
    return do_snapshot_task({words[0], words[4], words[5]}, 4, 3);
}

Status sync(const std::vector<std::string>&) {
    (void)limits();
    TRY_ASSIGN(const Synced capsule, synced_of(Fd(4)));
    return sync_written(3, capsule);
}

// ---- try

struct Try {
    std::string root, mountpoint, via, contents;
    Fd store;
    std::vector<std::string> quiet;
    std::string directory, socket;
    Fd listener, name, fuse, slots, control;
    pid_t server = -1;
    Pidfd client;

    Try() = default;
    Try(const Try&) = delete;
    Try& operator=(const Try&) = delete;
    ~Try() { remove_socket(); }
    // The server ends with it.
    void remove_socket() {
        if (!socket.empty()) ::unlink(socket.c_str());
        if (!directory.empty()) ::rmdir(directory.c_str());
        socket.clear();
        directory.clear();
    }
};

Status make_listener(Try& t) {
    const char* wanted = std::getenv("TMPDIR");
    std::string directory = std::string(wanted && *wanted ? wanted : "/tmp") + "/souk-files-XXXXXX";
    if (!::mkdtemp(directory.data())) return fail_errno("make the directory " + directory, errno);
    t.directory = directory;
    t.socket = t.directory + "/socket";
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (t.socket.size() >= sizeof address.sun_path)
        return fail("the name " + t.socket + " is too long for a socket: set a shorter TMPDIR");
    t.socket.copy(address.sun_path, sizeof address.sun_path - 1);
    t.listener = Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::bind(t.listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        ::listen(t.listener.get(), 8) != 0)
        return fail_errno("listen on " + t.socket, errno);
    TRY_ASSIGN(t.name, open_at(AT_FDCWD, t.socket, O_PATH));
    return {};
}

Status mount_it(Try& t) {
    TRY_ASSIGN(t.fuse, open_at(AT_FDCWD, "/dev/fuse", O_RDWR));
    TRY_ASSIGN(t.slots, Slots::make());
    const std::string options = "fd=" + std::to_string(t.fuse.get()) +
                                ",rootmode=40000,user_id=0,group_id=0,allow_other" +
                                (::geteuid() == 0 ? ",default_permissions" : "");
    if (::mount("souk", t.mountpoint.c_str(), "fuse.souk", MS_NOSUID | MS_NODEV, options.c_str()) !=
        0)
        return fail_errno("mount " + t.mountpoint, errno);
    read_ahead(t.mountpoint.c_str());
    return {};
}

void start_server(Try& t) {
    t.server = ::fork();
    if (t.server != 0) return;
    t.fuse.reset();
    const SessionLimits most = limits();
    auto tree = open_export(t.root, {}, t.quiet);
    if (!tree) ::_exit(fail_with(tree.error().message));
    Watches watches(Watches::make_instance(::geteuid()));
    const bool told = watches.watch_name(t.name.get());
    const Status served = Server(std::move(*tree), most, std::move(watches), told)
                              .run(t.listener.get(), t.name.get());
    ::_exit(served ? 0 : fail_with(served.error().message));
}

Status connect_client(Try& t) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    (t.via.empty() ? t.socket : t.via).copy(address.sun_path, sizeof address.sun_path - 1);
    const Fd stream(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(stream.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0)
        return fail_errno("connect", errno);
    const Head attach{0, Kind::attach, 1, 0};
    if (::send(stream.get(), &attach, sizeof attach, MSG_NOSIGNAL) != sizeof attach)
        return fail_errno("attach", errno);
    return give_stream(t.control.get(), stream.get());
}

Status start_store(Try& t) {
    if (t.contents.empty()) return {};
    TRY_ASSIGN(Fd directory, open_at(AT_FDCWD, t.contents, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return fail_errno("socketpair", errno);
    t.store = Fd(pair[0]);
    const Fd theirs(pair[1]);
    const pid_t pid = ::fork();
    if (pid == 0) {
        t.fuse.reset();
        t.store.reset();
        const char* bytes = std::getenv("SOUK_CONTENT_BYTES");
        const auto most = whole_number<uint64_t>(bytes ? bytes : "1073741824");
        const Status done = keep_contents(std::move(directory), most.value_or(0), theirs.get());
        ::_exit(done ? 0 : fail_with(done.error().message));
    }
    std::printf("store %d\n", pid);
    return {};
}

Status give_client_store(Try& t) {
    if (!t.store) return {};
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return fail_errno("socketpair", errno);
    const Fd one(pair[0]), other(pair[1]);
    const int theirs = one.get();
    TRY(send_descriptors(t.store.get(), "c", {&theirs, 1}));
    return give_store(t.control.get(), other.get());
}

Status start_client(Try& t) {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        return fail_errno("socketpair", errno);
    t.control = Fd(pair[0]);
    Fd theirs(pair[1]);
    const pid_t pid = ::fork();
    if (pid == 0) {
        t.control.reset();
        t.store.reset();
        const Status done =
            run_client({t.fuse.get(), t.slots.get(), theirs.get(), ::geteuid(), ::getegid()});
        ::_exit(done ? 0 : fail_with(done.error().message));
    }
    TRY_ASSIGN(t.client, Pidfd::open(pid));
    if (const Status given = give_client_store(t); !given) (void)fail_with(given.error().message);
    std::printf("client %d\n", pid);
    std::fflush(stdout);
    return {};
}

// Works until the mount has ended. A client, or a stream, that has ended otherwise is replaced.
Status keep(Try& t) {
    constexpr int pause_ms = 50;
    for (bool connected = connect_client(t).has_value();;) {
        pollfd ready[2] = {{t.client.get(), POLLIN, 0}, {t.control.get(), POLLIN, 0}};
        const int some = ::poll(ready, 2, connected ? -1 : pause_ms);
        if (ready[0].revents != 0) {
            int status = 0;
            if (::waitpid(t.client.pid(), &status, 0) < 0) return fail_errno("waitpid", errno);
            if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
            ::usleep(pause_ms * 1000);  // not as fast as it can, should it fail at once
            TRY(start_client(t));
            connected = connect_client(t).has_value();
            continue;
        }
        char word;
        if (ready[1].revents != 0 && ::recv(t.control.get(), &word, 1, MSG_DONTWAIT) == 1)
            connected = false;
        if (some == 0) connected = connect_client(t).has_value();
    }
}

Status try_it(const std::vector<std::string>& words) {
    Try t;
    t.root = words[0];
    t.mountpoint = words[1];
    if (words.size() > 2) t.via = words[2];
    t.quiet = parted({words.begin() + std::min<ptrdiff_t>(3, static_cast<ptrdiff_t>(words.size())),
                      words.end()})
                  .second;
    if (words.back().starts_with('=')) t.contents = words.back().substr(1);
    TRY(make_listener(t));
    TRY(mount_it(t));
    start_server(t);
    std::printf("server %d socket %s\n", t.server, t.socket.c_str());
    TRY(start_store(t));
    TRY(start_client(t));
    Status kept = keep(t);
    t.remove_socket();
    t.store.reset();
    while (::wait(nullptr) > 0) {
    }
    return kept;
}

struct Verb {
    const char* name;
    size_t words_min, words_max;
    Status (*run)(const std::vector<std::string>&);
};
constexpr Verb verbs[] = {{"serve", 4, 64, serve},      {"client", 2, 2, relay},
                          {"store", 1, 1, store},       {"append", 7, 7, append},
                          {"snapshot", 6, 6, snapshot}, {"sync", 0, 0, sync},
                          {"try", 2, 16, try_it}};

int run(int argc, char** argv) {
    if (version_asked("souk-files", argc, argv)) return 0;
    const std::vector<std::string> words(argv + std::min(argc, 2), argv + argc);
    for (const Verb& verb : verbs) {
        if (argc < 2 || std::strcmp(argv[1], verb.name) != 0) continue;
        if (words.size() < verb.words_min || words.size() > verb.words_max) break;
        const Status done = verb.run(words);
        return done ? 0 : fail_with(done.error().message);
    }
    std::fprintf(stderr,
                 "souk-files: is started by agentd; to try it: souk-files try DIRECTORY "
                 "MOUNTPOINT\n");
    return 2;
}

}  // namespace
}  // namespace souk::files

int main(int argc, char** argv) { return souk::files::run(argc, argv); }
