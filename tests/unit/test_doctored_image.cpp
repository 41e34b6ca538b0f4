// SPDX-License-Identifier: GPL-2.0-or-later
// A node with a hostile root changes an image and gets nothing by it: its own root made the job,
// and the image says that the job is a plain user's. It is restored as that user's, without anybody
// having looked at it before (souk-inspect would refuse most of it), with what is loaded into CRIU
// and with the kernel's word (checkpoint/restored.hpp).
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cstddef>

#include "checkpoint/restored.hpp"
#include "kernel/sys/host/fd.hpp"
#include "kernel/sys/process/syscall_filter.hpp"
#include "tests/unit/doctored_image.hpp"
#include "tests/unit/unit.hpp"

namespace souk {
namespace {
using unit::JobOutput;

constexpr uint32_t somebody = unit::doctored_user;
constexpr const char* port_start = "/proc/sys/net/ipv4/ip_unprivileged_port_start";

// The image of a job of root's is changed to be the user's, and restored as his. Returns what the
// job printed then; or why it is not restored.
std::string restored_as_users(
    const std::string& script, const std::string& names = "",
    const std::function<void(int)>& more = [](int) {}, bool limited = false) {
    const CriuUser user{somebody, somebody, {}, false, limited};
    const unit::TempDir images;
    JobOutput output;
    unit::freeze_as_users(script, output, images, names);
    more(images.fd.get());
    std::string why;
    auto rig = unit::thaw(output, images.fd.get(), why, false, TcpPolicy::refuse, user,
                          [&](const Capsule& capsule) {
                              return fit_restored(capsule.pidfd(), {user, {}, {}});
                          });
    if (!rig) return why;
    rig->send_input("go\n");
    ck_assert(rig->until([&] { return rig->ended(); }));
    return output.text[0].substr(6) + output.text[1];
}

const std::string wait = "print('ready', flush=True)\nsys.stdin.readline()\n";

bool says(const std::string& text, const char* what) { return text.find(what) != text.npos; }

START_TEST(what_a_user_may_have_comes_back_and_its_peers_are_the_user) {
    UNIT_SKIP_IF(unit::moves_impossible());
    const unit::TempDir place;
    ck_assert(::chmod(place.path.c_str(), 0777) == 0 &&
              ::chown(place.path.c_str(), somebody, somebody) == 0);
    const std::string script = "d = '" + place.path + R"('
def his(name): os.chown(d + name, 4321, 4321)
a, b = socket.socketpair()
tcp = socket.socket(); tcp.bind(('127.0.0.1', 0)); tcp.listen(5)
door = socket.socket(socket.AF_UNIX); door.bind(d + '/s'); door.listen(3); his('/s')
c = socket.socket(socket.AF_UNIX); c.connect(d + '/s'); served = door.accept()[0]
link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0); link.bind((0, 0))
libc = ctypes.CDLL(None)
notes = libc.inotify_init(); libc.inotify_add_watch(notes, d.encode(), 0x100)
waits = select.epoll(); waits.register(b)
os.mkfifo(d + '/p'); his('/p'); fifo = os.open(d + '/p', os.O_RDWR)
mem = os.memfd_create('m'); os.write(mem, b'memory'); os.fchown(mem, 4321, 4321)
count, space = os.eventfd(1), os.open('/proc/self/ns/net', os.O_RDONLY)
child = os.fork()
if child == 0: time.sleep(600)
)" + wait + R"(
def uid(s): return struct.unpack('3i', s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]
new = socket.socket(socket.AF_UNIX); new.connect(d + '/s')
print(uid(a), uid(c), uid(served), uid(new))
a.send(b'x'); served.send(b'y'); os.write(fifo, b'z')
print(len(waits.poll(5)), b.recv(1), c.recv(1), os.read(fifo, 1), os.eventfd_read(count))
print(os.pread(mem, 6, 0), os.fstat(mem).st_uid)
socket.create_connection(tcp.getsockname())
open(d + '/new', 'w').close(); print(len(os.read(notes, 100)) > 0)
os.kill(child, 9); os.waitpid(child, 0)
)";
    ck_assert_text(restored_as_users(script),
                   "4321 4321 4321 4321\n1 b'x' b'y' b'z' 1\nb'memory' 4321\nTrue\n");
}
END_TEST

START_TEST(no_socket_comes_back_that_only_root_can_make) {
    UNIT_SKIP_IF(unit::moves_impossible());
    for (const char* made : {"socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)",
                             "socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)",
                             "socket.socket(); s.bind(('127.0.0.1', 79)); s.listen(1)"}) {
        const std::string said =
            restored_as_users(std::string("s = ") + made + "\n" + wait + "print('it runs')\n");
        ck_assert_msg(!says(said, "it runs") &&
                          (says(said, "not permitted") || says(said, "Permission denied")),
                      "%s: %s", made, said.c_str());
    }
}
END_TEST

// A program of a filter in a file, with which a script of Python limits itself.
std::string limited_by(const std::string& path) {
    return "program = open('" + path + R"(', 'rb').read()
class Filter(ctypes.Structure):
    _fields_ = [('count', ctypes.c_ushort), ('at', ctypes.c_char_p)]
filter = Filter(len(program) // 8, program)
libc = ctypes.CDLL(None, use_errno=True)
if libc.prctl(22, 2, ctypes.byref(filter), 0, 0) != 0: print('no filter')
)";
}

START_TEST(a_job_without_the_limit_of_its_system_calls_runs_on_no_node_that_wants_it) {
    UNIT_SKIP_IF(unit::moves_impossible());
    const unit::TempDir place;
    const auto made = make_syscall_filter({});
    ck_assert(made.has_value());
    const std::string own = *read_whole(made->get(), "filter", 1 << 20);
    const auto instruction = [](uint16_t code, uint8_t jt, uint8_t jf, uint32_t k) {
        const sock_filter i{code, jt, jf, k};
        return std::string(reinterpret_cast<const char*>(&i), sizeof i);
    };
    const std::string allowed = instruction(BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW);
    const auto but_if = [&](uint32_t at, uint32_t is) {
        return instruction(BPF_LD | BPF_W | BPF_ABS, 0, 0, at) +
               instruction(BPF_JMP | BPF_JEQ | BPF_K, 0, 1, is) + allowed + own;
    };
    place.write("own", own);
    place.write("all", allowed);
    place.write("key", but_if(offsetof(seccomp_data, args) + 40, 0x5a5a5a5a));
    place.write("call", but_if(offsetof(seccomp_data, nr), SYS_setns));
    place.write("user", but_if(offsetof(seccomp_data, args), CLONE_NEWUSER | CLONE_NEWNS));
    const auto restored = [&](const std::string& filters) {
        return restored_as_users(
            filters + wait + "print('it runs')\n", "", [](int) {}, true);
    };
    ck_assert_text(restored(limited_by(place.path + "/own")), "it runs\n");
    // A filter of its own, beside the node's, is its business.
    ck_assert_text(restored(limited_by(place.path + "/own") + limited_by(place.path + "/all")),
                   "it runs\n");
    for (const char* name : {"", "/all", "/key", "/call", "/user"}) {
        const std::string said = restored(*name ? limited_by(place.path + name) : "");
        ck_assert_msg(!says(said, "it runs") && says(said, "has no filter that keeps it from"),
                      "%s: %s", name, said.c_str());
    }
}
END_TEST

START_TEST(no_file_of_roots_is_opened_by_a_name_with_one_slash_more) {
    UNIT_SKIP_IF(unit::moves_impossible());
    const unit::TempDir place;
    const std::string decoy = place.path + "/decoy", secret = place.path + "/secret";
    ck_assert(::chmod(place.path.c_str(), 0755) == 0);
    for (const std::string& name : {decoy, secret})
        ck_assert(create_file(AT_FDCWD, name, "0123456789").has_value());
    ck_assert(::chmod(decoy.c_str(), 0666) == 0 && ::chmod(secret.c_str(), 0600) == 0);
    const std::string script = "fd = os.open('" + decoy + "', os.O_RDWR)\n" + wait +
                               "os.pwrite(fd, b'x', 0)\nprint('it runs')\n";
    ck_assert_text(restored_as_users(script), "it runs\n");
    for (const char* slashes : {"", "/", "//", "/proc/1/root/", "//proc/self/root/"}) {
        const std::string said = restored_as_users(script, " " + decoy + " " + slashes + secret);
        ck_assert_msg(!says(said, "it runs"), "%s: %s", slashes, said.c_str());
        ck_assert_text(*read_file(AT_FDCWD, secret), "0123456789");
    }
}
END_TEST

START_TEST(nothing_is_watched_that_the_user_does_not_find) {
    UNIT_SKIP_IF(unit::moves_impossible());
    const unit::TempDir place;  // root's alone
    ck_assert(::mkdir((place.path + "/within").c_str(), 0755) == 0);
    const std::string said = restored_as_users(
        "libc = ctypes.CDLL(None)\nlibc.inotify_add_watch(libc.inotify_init(), b'" + place.path +
        "/within', 0x100)\nos.chdir('/')\n" + wait + "print('it runs')\n");
    ck_assert_msg(says(said, "does not find") || says(said, "Permission denied"), "%s",
                  said.c_str());
}
END_TEST

START_TEST(the_nodes_network_stays_as_it_is) {
    UNIT_SKIP_IF(unit::moves_impossible());
    const std::string before = *read_file(AT_FDCWD, port_start);
    const std::string said = restored_as_users(wait + "print('it runs')\n", "", [](int image) {
        char values[SOUK_NETWORK_VALUES][SOUK_NETWORK_VALUE_MAX] = {"0 2147483647", "7"};
        ck_assert(create_file(image, SOUK_NETWORK_NAME, {values[0], sizeof values}).has_value());
    });
    const std::string after = *read_file(AT_FDCWD, port_start);
    if (after != before) (void)create_file(AT_FDCWD, port_start, before);
    ck_assert_text(said, "it runs\n");
    ck_assert_text(after, before);
}
END_TEST
}  // namespace

UNIT_SUITE_LONG(doctored_image, 120, what_a_user_may_have_comes_back_and_its_peers_are_the_user,
                no_socket_comes_back_that_only_root_can_make,
                a_job_without_the_limit_of_its_system_calls_runs_on_no_node_that_wants_it,
                no_file_of_roots_is_opened_by_a_name_with_one_slash_more,
                nothing_is_watched_that_the_user_does_not_find, the_nodes_network_stays_as_it_is);

}  // namespace souk
