// SPDX-License-Identifier: GPL-2.0-or-later
// A restore may open, make and remove files by the names that a job had, but only those that the
// job's user may (checkpoint/criu_user.c). The jobs are root's own, which can be dumped everywhere,
// and their images are restored as if they were a plain user's.
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstring>
#include <filesystem>

#include "checkpoint/core_image.hpp"
#include "checkpoint/restored.hpp"
#include "tests/unit/move_rig.hpp"
#include "tests/unit/unit.hpp"

namespace souk {
namespace {
using unit::CapsuleRig;
using unit::JobOutput;

constexpr uint32_t somebody = 4321;

// A directory that everybody may pass, with one of the user's own in it.
struct Place {
    Place() {
        ck_assert(::chmod(path.c_str(), 0755) == 0);
        ck_assert(::mkdir((path + "/own").c_str(), 0755) == 0);
        ck_assert(::chown((path + "/own").c_str(), somebody, somebody) == 0);
    }
    void file(const std::string& name, uint32_t owner, uint32_t group, mode_t mode) const {
        const std::string at = path + "/" + name;
        ck_assert(create_file(AT_FDCWD, at, "0123456789").has_value());
        ck_assert(::chown(at.c_str(), owner, group) == 0 && ::chmod(at.c_str(), mode) == 0);
    }
    const unit::TempDir dir;
    const std::string& path = dir.path;
};

// Runs `script` up to its first line, freezes it, thaws it as the user, gives it a line and waits
// for its end. Returns what it printed after the first line; or why it was not restored.
std::string thawed_as(
    CriuUser user, const Place& place, const std::string& script,
    const std::function<void()>& meanwhile = [] {}) {
    user.unchecked = true;
    JobOutput output;
    auto rig = std::make_unique<CapsuleRig>(output);
    rig->start(unit::python("import os, socket, sys\nplace = '" + place.path + "'\n" + script));
    ck_assert(rig->until([&] { return output.text[0].ends_with("ready\n"); }));
    const unit::TempDir images;
    std::string why = unit::freeze(*rig, images.fd.get());
    ck_assert_msg(why.empty(), "%s", why.c_str());
    rig.reset();
    meanwhile();
    rig = unit::thaw(output, images.fd.get(), why, false, TcpPolicy::refuse, user);
    if (!rig) return why;
    rig->send_input("go\n");
    ck_assert(rig->until([&] { return rig->ended(); }));
    return output.text[0].substr(6) + output.text[1];
}

std::string holds(const std::string& name, const std::string& flags) {
    return "fd = os.open(place + '/" + name + "', os." + flags +
           ")\nprint('ready')\nsys.stdin.readline()\nprint(os.pread(fd, 4, 2))\n";
}

bool denied(const std::string& why) { return why.find("Permission denied") != std::string::npos; }

START_TEST(a_file_that_the_user_may_not_open_is_not_opened_for_him_by_root) {
    UNIT_SKIP_IF(unit::moves_impossible());
    const Place place;
    place.file("secret", 0, 0, 0600);
    place.file("readable", 0, 0, 0644);
    const CriuUser user{somebody, somebody, {}};
    ck_assert(denied(thawed_as(user, place, holds("secret", "O_RDONLY"))));
    ck_assert(denied(thawed_as(user, place, holds("readable", "O_RDWR"))));
    ck_assert_text(thawed_as(user, place, holds("readable", "O_RDONLY")), "b'2345'\n");
    ck_assert_text(thawed_as({}, place, holds("secret", "O_RDWR")), "b'2345'\n");  // root's own
}
END_TEST

START_TEST(the_groups_of_the_user_count_and_no_others) {
    UNIT_SKIP_IF(unit::moves_impossible());
    const Place place;
    place.file("of_a_group", 0, 777, 0640);
    place.file("of_roots_group", 0, 0, 0640);
    const std::string script = holds("of_a_group", "O_RDONLY");
    ck_assert_text(thawed_as({somebody, somebody, {5, 777}}, place, script), "b'2345'\n");
    ck_assert_text(thawed_as({somebody, 777, {}}, place, script), "b'2345'\n");
    ck_assert(denied(thawed_as({somebody, somebody, {5}}, place, script)));
    const CriuUser user{somebody, somebody, {}};
    ck_assert(denied(thawed_as(user, place, holds("of_roots_group", "O_RDONLY"))));
}
END_TEST

START_TEST(a_file_of_his_own_that_the_user_has_closed_to_himself_is_opened) {
    UNIT_SKIP_IF(unit::moves_impossible());
    const Place place;
    place.file("own/closed", somebody, somebody, 0400);
    const CriuUser user{somebody, somebody, {}};
    ck_assert_text(thawed_as(user, place, holds("own/closed", "O_RDWR")), "b'2345'\n");
}
END_TEST

START_TEST(a_name_that_became_a_link_to_a_file_of_root_gives_nothing) {
    UNIT_SKIP_IF(unit::moves_impossible());
    const Place place;
    place.file("passwd", 0, 0, 0644);
    place.file("own/passwd", somebody, somebody, 0644);
    const CriuUser user{somebody, somebody, {}};
    const std::string said = thawed_as(user, place, holds("own/passwd", "O_RDWR"), [&] {
        std::filesystem::rename(place.path + "/own", place.path + "/away");
        std::filesystem::create_symlink(place.path, place.path + "/own");
    });
    ck_assert_msg(denied(said), "%s", said.c_str());
}
END_TEST

START_TEST(a_sockets_name_is_made_and_removed_as_the_user) {
    UNIT_SKIP_IF(unit::moves_impossible());
    const Place place;
    const std::string script =
        "s = socket.socket(socket.AF_UNIX)\ns.bind(place + '/own/socket')\n"
        "os.chown(place + '/own/socket', 4321, 4321)\ns.listen()\n"
        "print('ready')\nsys.stdin.readline()\nprint(s.getsockname()[-10:])\n";
    const CriuUser user{somebody, somebody, {}};
    const std::string socket = place.path + "/own/socket";
    ck_assert_text(thawed_as(user, place, script), "own/socket\n");
    struct stat st {};
    ck_assert(::stat(socket.c_str(), &st) == 0 && st.st_uid == somebody && S_ISSOCK(st.st_mode));
    ck_assert(::unlink(socket.c_str()) == 0);
    // Another directory is there now, with a socket of that name that is not his.
    const std::string said = thawed_as(user, place, script, [&] {
        std::filesystem::rename(place.path + "/own", place.path + "/away");
        ck_assert(::mkdir((place.path + "/own").c_str(), 0755) == 0);
        ck_assert(::mknod(socket.c_str(), S_IFSOCK | 0755, 0) == 0);
    });
    ck_assert_msg(said.find("Can't bind") != std::string::npos, "%s", said.c_str());
    ck_assert(::stat(socket.c_str(), &st) == 0 && st.st_uid == 0);
}
END_TEST

START_TEST(a_deleted_file_is_there_again_also_where_the_user_may_not_write) {
    UNIT_SKIP_IF(unit::moves_impossible());
    const Place place;
    for (const std::string name : {"own/gone", "gone"}) {
        const std::string script =
            "path = place + '/" + name +
            "'\nfd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)\nos.write(fd, b'0123456789')\n"
            "os.fchown(fd, 4321, 4321)\nos.unlink(path)\nprint('ready')\nsys.stdin.readline()\n"
            "s = os.fstat(fd)\nprint(os.pread(fd, 4, 2), s.st_nlink, s.st_uid)\n";
        ck_assert_text(thawed_as({somebody, somebody, {}}, place, script), "b'2345' 0 4321\n");
    }
    ck_assert(std::filesystem::is_empty(place.path + "/own"));
    ck_assert(!std::filesystem::exists(place.path + "/gone"));
}
END_TEST

// An image of root's is restored as `user`, and the kernel is asked which user it would be. The job
// writes to a file of the user's all the time, so the file shows whether any of it has run.
START_TEST(what_an_image_would_make_root_is_ended_before_any_of_it_has_run) {
    UNIT_SKIP_IF(unit::moves_impossible());
    const Place place;
    place.file("own/ran", somebody, somebody, 0644);
    JobOutput output;
    auto rig = std::make_unique<CapsuleRig>(output);
    rig->start(
        unit::python("import os, threading\nfd = os.open('" + place.path +
                     "/own/ran', os.O_RDWR | os.O_APPEND)\nprint('ready', flush=True)\n"
                     "def work():\n    while True: os.write(fd, b'x')\n"
                     "threading.Thread(target=work).start()\nif os.fork() == 0: work()\nwork()"));
    ck_assert(rig->until([&] { return output.text[0] == "ready\n"; }));
    const unit::TempDir images;
    std::string why = unit::freeze(*rig, images.fd.get());
    ck_assert_msg(why.empty(), "%s", why.c_str());
    rig.reset();
    CriuUser user{somebody, somebody, {}};
    // A look at the images would refuse them. Nobody looks here.
    size_t cores = 0;
    const auto names = list_dir(images.fd.get(), ".");
    ck_assert(names.has_value());
    for (const std::string& name : *names)
        if (name.starts_with("core-")) {
            const auto core = parse_core(*read_file(images.fd.get(), name));
            ck_assert(core && !fits_user(*core, user));
            ++cores;
        }
    ck_assert_uint_eq(cores, 3);
    const auto before = std::filesystem::file_size(place.path + "/own/ran");
    int asked = 0;
    const auto made = [&](const Capsule& capsule) {
        ++asked;
        return fit_restored(capsule.pidfd(), {user, {}, {}});
    };
    // The test does not ask the kernel here. CRIU itself does, before it lets the job go.
    rig = unit::thaw(output, images.fd.get(), why, false, TcpPolicy::refuse, user);
    ck_assert(!rig);
    ck_assert_msg(why.find("Unable to detach") != why.npos, "%s", why.c_str());
    ck_assert(std::filesystem::file_size(place.path + "/own/ran") == before);
    user.unchecked = true;
    rig = unit::thaw(output, images.fd.get(), why, false, TcpPolicy::refuse, user, made);
    ck_assert(!rig && asked == 1);
    ck_assert_msg(why.find(", restored for user 4321: it would be user 0") != why.npos, "%s",
                  why.c_str());
    ck_assert(std::filesystem::file_size(place.path + "/own/ran") == before);
    // An image may be anything if it is restored as root, and it runs at once.
    rig = unit::thaw(
        output, images.fd.get(), why, false, TcpPolicy::refuse, {}, [](const Capsule& capsule) {
            // When the kernel is asked, only processes of the job are there.
            const auto all = std::move(*capsule_processes(capsule));
            for (const CapsuleProcess& p : all)
                ck_assert_msg(p.pid == 1 || p.parent == 0 || p.name.starts_with("python"), "%s",
                              p.name.c_str());
            return check_restored(capsule.pidfd(), {});
        });
    ck_assert_msg(rig != nullptr, "%s", why.c_str());
    ck_assert(
        rig->until([&] { return std::filesystem::file_size(place.path + "/own/ran") > before; }));
}
END_TEST

// Runs a job, and returns what the kernel says of it.
std::string said_of(const std::string& script, const CriuUser& user) {
    JobOutput output;
    CapsuleRig rig(output);
    rig.start(unit::python(
        "import ctypes, os, stat, sys\nos.chdir('/')\ndef become(uid, gid, groups):\n"
        "    os.setgroups(groups); os.setresgid(gid, gid, gid); os.setresuid(uid, uid, uid)\n" +
        script + "\nos.write(1, b'ready\\n')\nsys.stdin.readline()"));
    ck_assert(rig.until([&] { return output.text[0].starts_with("ready\n"); }));
    const Status fits = check_restored(rig.capsule.pidfd(), user);
    return fits ? "" : fits.error().message.substr(fits.error().message.rfind(": ") + 2);
}

START_TEST(the_kernels_word_of_each_thread_counts_and_of_devices_without_a_name) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    const Place place;
    const CriuUser user{somebody, somebody, {5, 777}};
    ck_assert_text(said_of("become(4321, 4321, [5, 777])", user), "");
    ck_assert_text(said_of("", {}), "");
    ck_assert_text(said_of("become(4322, 4321, [])", user), "it would be user 4322");
    ck_assert_text(said_of("become(4321, 42, [])", user), "it would be of group 42");
    ck_assert_text(said_of("become(4321, 4321, [6])", user), "it would be in group 6");
    // One process, or one thread, with other credentials is enough.
    ck_assert_text(said_of("if os.fork():\n    become(4321, 4321, [])", user),
                   "it would be user 0");
    ck_assert_text(said_of("import threading\nthreading.Thread(target=sys.stdin.readline)"
                           ".start()\nlibc = ctypes.CDLL(None)\nos.setgroups([])\n"
                           "os.setresgid(4321, 4321, 4321)\nlibc.syscall(117, 4321, 4321, 4321)",
                           user),
                   "it would be user 0");
    ck_assert_text(said_of("ctypes.CDLL(None).prctl(8, 1, 0, 0, 0)\nbecome(4321, 4321, [])", user),
                   "it would have capabilities");
    const std::string device = "path = '" + place.path +
                               "/device'\nos.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))"
                               "\nfd = os.open(path, os.O_RDWR)\n";
    ck_assert_text(said_of(device + "become(4321, 4321, [])", user), "");
    ck_assert_text(said_of("os.remove('" + place.path + "/device')\n" + device +
                               "os.remove(path)\nbecome(4321, 4321, [])",
                           user),
                   "it has a device open that has no name");
}
END_TEST

std::string varint(uint64_t value) {
    std::string bytes;
    for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
    return bytes + static_cast<char>(value);
}
std::string number(unsigned tag, uint64_t value) { return varint(tag << 3) + varint(value); }
std::string bytes(unsigned tag, const std::string& value) {
    return varint(tag << 3 | 2) + varint(value.size()) + value;
}

// Sends a request to the CRIU of a restore, or of a dump, and says whether it answers; otherwise it
// has ended.
bool answers(const Capsule& capsule, bool restores, const std::string& request) {
    const auto tool = find_criu();
    const unit::TempDir images;
    int ends[2], closed[2];
    ck_assert(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
    ck_assert(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, closed) == 0);
    const Fd ours(ends[0]), one(closed[0]), other(closed[1]);
    Fd theirs(ends[1]);
    CriuLaunch how;
    how.capsule = capsule.pidfd().get();
    how.socket = theirs.get();
    how.images = images.fd.get();
    if (!restores) how.ended = one.get();
    how.user = {somebody, somebody, {}};
    const auto criu = launch_criu(tool->command, tool->preload.get(), how);
    ck_assert_msg(criu.has_value(), "%s", criu ? "" : criu.error().message.c_str());
    theirs.reset();
    ck_assert(::send(ours.get(), request.data(), request.size(), MSG_NOSIGNAL) > 0);
    pollfd p{ours.get(), POLLIN, 0};
    ck_assert(::poll(&p, 1, 30'000) == 1);
    char answer[4096];
    const ssize_t n = ::recv(ours.get(), answer, sizeof answer, 0);
    (void)criu->signal(SIGKILL);
    ck_assert(criu->exited_within(Nanos::from_s(30)).value_or(false));
    (void)criu->reap();
    return n > 0;
}

// CRIU runs as root, and the agentd that asks it may have been taken over. The numbers are those of
// CRIU's rpc.proto.
START_TEST(criu_is_asked_for_what_souk_asks_for_and_nothing_else) {
    UNIT_SKIP_IF(unit::capsules_impossible());
    JobOutput output;
    CapsuleRig rig(output);
    ck_assert(rig.until([&] { return rig.welcomed; }));
    const auto is = [&](bool restores, const std::string& request) {
        return answers(rig.capsule, restores, request);
    };
    constexpr unsigned dump = 1, restore = 2, images_fd = 1, images = 68, log = 10;
    const std::string place = number(images_fd, UINT64_MAX) + bytes(images, "/proc/self/fd/200");
    const auto asks = [&](unsigned what, const std::string& more = "") {
        return number(1, what) + bytes(2, place + more);
    };
    const std::string version = number(1, 10) + number(4, 1);
    ck_assert(is(true, version) && is(false, version));
    // The image and the process do not exist, and CRIU answers just that.
    ck_assert(is(true, asks(restore, bytes(log, "restore.log"))));
    ck_assert(is(true, asks(restore, bytes(27, bytes(1, "pipe:[7]") + number(2, 203)))));
    ck_assert(is(false, asks(dump, bytes(log, "dump.log") + number(2, 4711))));
    const std::string wrong_of_both[] = {
        bytes(22, "/bin/sh"),             // exec_cmd
        bytes(13, "/"),                   // root
        bytes(14, "../other"),            // parent_img
        number(17, 7),                    // work_dir_fd
        bytes(51, "/tmp/own.conf"),       // config_file, which may name plugins and programs
        bytes(log, "/etc/shadow"),        // log_file
        number(34, 4),                    // manage_cgroups_mode: full
        number(64, 1),                    // network_lock: by programs
        number(49, 5),                    // status_fd
        bytes(39, bytes(1, "net")),       // join_ns
        bytes(11, bytes(1, "10.0.0.1")),  // ps
        number(67, 1),                    // unprivileged
        number(9, 99),                    // log_level
        number(images_fd, 7),             // of who asks
        bytes(images, "/etc"),
        number(7, 1),  // shell_job
        number(500, 1),
        std::string("\x0d\0\0\0\0", 5),  // another kind of field
        "\x12\xff"};                     // cut off
    for (const std::string& more : wrong_of_both) {
        ck_assert_msg(!is(true, asks(restore, more)), "restore, byte 0 is %d", more[0]);
        ck_assert_msg(!is(false, asks(dump, more)), "dump, byte 0 is %d", more[0]);
    }
    ck_assert(!is(true, asks(restore, bytes(27, bytes(1, "pipe:[7]") + number(2, 7)))));
    ck_assert(!is(true, asks(restore, bytes(27, bytes(1, "/etc/shadow") + number(2, 201)))));
    ck_assert(!is(true, asks(restore, bytes(37, "mnt[x]:/etc"))));
    ck_assert(!is(false, asks(dump, bytes(37, "mnt[]:s"))));
    ck_assert(!is(true, asks(dump)) && !is(false, asks(restore)));
    for (const unsigned type : {0U, 3U, 4U, 5U, 7U, 8U, 11U, 12U, 13U})
        ck_assert_msg(!is(true, number(1, type)) && !is(false, number(1, type)), "type %u", type);
}
END_TEST

// Runs a Python program with the library that is loaded into CRIU, so that its system calls do what
// CRIU's do. `as`: the variable SOUK_AS.
std::string with_preload(const CriuTool& tool, const std::string& as, const std::string& script) {
    const unit::TempDir dir;
    const std::string text = "import ctypes, os, signal\nsaid = '.'\n" + script + "print(said)\n";
    ck_assert(create_file(dir.fd.get(), "script", text).has_value());
    const std::string command = as + "LD_PRELOAD=/proc/" + std::to_string(::getpid()) + "/fd/" +
                                std::to_string(tool.preload.get()) + " /usr/bin/python3 " +
                                dir.path + "/script";
    FILE* const out = ::popen(command.c_str(), "re");
    char said[64] = {};
    ck_assert(out && std::fgets(said, sizeof said, out) != nullptr && ::pclose(out) == 0);
    return std::string(said, 1, std::strlen(said) - 2);
}

// While a job is restored, root opens files of its processes, and files of CRIU's own. A name in an
// image that goes up from there by .. is neither. Root also makes no group of fanotify for the job.
START_TEST(a_name_that_goes_up_is_no_processes_and_not_crius_own) {
    const auto tool = find_criu();
    UNIT_SKIP_IF(tool ? nullptr : "there is no CRIU");
    UNIT_SKIP_IF(::geteuid() != 0 ? "needs root" : nullptr);
    const Place place;
    place.file("secret", 0, 0, 0600);
    const std::string script = "place = '" + place.path + R"('
top, child = os.open('/', os.O_RDONLY), os.fork()
if child == 0: signal.pause()
def tries(mark, call):
    global said
    try: call(); said += mark
    except OSError: pass
tries('p', lambda: os.open(f'proc/{child}/status', os.O_RDONLY, dir_fd=top))
tries('u', lambda: os.open(f'proc/{child}/../..{place}/secret', os.O_RDONLY, dir_fd=top))
tries('m', lambda: os.open(f'proc/{child}/mem', os.O_RDWR, dir_fd=top))
tries('d', lambda: os.mkdir(f'/proc/..{place}/made'))
if ctypes.CDLL(None).fanotify_init(0, 0) >= 0: said += 'f'
os.kill(child, signal.SIGKILL); os.waitpid(child, 0)
)";
    ck_assert_text(with_preload(*tool, "SOUK_AS=4321:4321: ", script), "p");
    ck_assert(!std::filesystem::exists(place.path + "/made"));
    const std::string root = with_preload(*tool, "SOUK_AS=0:0: ", script);
    ck_assert_msg(root.starts_with("pumd"), "%s", root.c_str());  // and f, where the kernel has it
}
END_TEST

START_TEST(an_image_brings_no_mounts_and_no_network) {
    const auto tool = find_criu();
    UNIT_SKIP_IF(tool ? nullptr : "there is no CRIU");
    const unit::TempDir images;
    for (const char* name : {"core-9.img", "mountpoints-9.img", "netns-9.img", "tmpfs-9.img"})
        ck_assert(create_file(images.fd.get(), name, "x").has_value());
    const std::string there = "cd " + images.path + " && ",
                      script = R"(d = os.open('.', os.O_RDONLY)
for n in sorted(os.listdir(d)):
    try: os.open(n, os.O_RDONLY, dir_fd=d); said += n[0]
    except FileNotFoundError: pass
)";
    ck_assert_text(with_preload(*tool, there, script), "cmnt");  // of a dump
    ck_assert_text(with_preload(*tool, there + "SOUK_AS=0:0: ", script), "cmnt");
    ck_assert_text(with_preload(*tool, there + "SOUK_AS=4321:4321: ", script), "c");
}
END_TEST

START_TEST(what_is_loaded_into_criu_cannot_be_written_to) {
    const auto tool = find_criu();
    UNIT_SKIP_IF(tool ? nullptr : "no CRIU: make deps");
    ck_assert(::pwrite(tool->preload.get(), "x", 1, 0) < 0 && errno == EPERM);
    ck_assert(::ftruncate(tool->preload.get(), 0) != 0);
    void* const map =
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, tool->preload.get(), 0);
    ck_assert(map == MAP_FAILED);
}
END_TEST
}  // namespace

UNIT_SUITE_LONG(criu_user, 120, a_file_that_the_user_may_not_open_is_not_opened_for_him_by_root,
                the_groups_of_the_user_count_and_no_others,
                a_file_of_his_own_that_the_user_has_closed_to_himself_is_opened,
                a_name_that_became_a_link_to_a_file_of_root_gives_nothing,
                a_sockets_name_is_made_and_removed_as_the_user,
                a_deleted_file_is_there_again_also_where_the_user_may_not_write,
                what_an_image_would_make_root_is_ended_before_any_of_it_has_run,
                the_kernels_word_of_each_thread_counts_and_of_devices_without_a_name,
                criu_is_asked_for_what_souk_asks_for_and_nothing_else,
                a_name_that_goes_up_is_no_processes_and_not_crius_own,
                an_image_brings_no_mounts_and_no_network,
                what_is_loaded_into_criu_cannot_be_written_to);

}  // namespace souk
