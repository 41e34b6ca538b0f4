// SPDX-License-Identifier: GPL-2.0-or-later
// A program that looks at the processes of a job must wait for none of the file systems that their
// files are on: the server of one of them may be waiting for that program.
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <string>

#include "agentd/files/client.hpp"
#include "agentd/files/session.hpp"
#include "agentd/root/helper.hpp"
#include "checkpoint/kept_sockets.hpp"
#include "checkpoint/restored.hpp"
#include "kernel/sys/process/bounded_work.hpp"
#include "kernel/sys/process/pids.hpp"
#include "kernel/sys/process/process_files.hpp"
#include "tests/unit/loop_fixture.hpp"
#include "tests/unit/temp_dir.hpp"
#include "tests/unit/unit.hpp"

namespace souk::files {
namespace {

constexpr Nanos patience = Nanos::from_s(5);

// A process that serves `tree` to the kernel until it is stopped. Nothing that it says of a file is
// good for longer than that moment.
[[noreturn]] void serve(int fuse, const Export& tree) {
    Session session(tree, {.fds_max = 64, .open_max = 64, .trusted_s = 0});
    Bytes in(2 << 20);
    for (;;) {
        const ssize_t n = ::read(fuse, in.data(), in.size());
        if (n < 0 && (errno == EINTR || errno == ENOENT)) continue;
        if (n < static_cast<ssize_t>(sizeof(fuse_in_header))) ::_exit(1);
        const ByteView request(in.data(), static_cast<size_t>(n));
        fuse_in_header head{};
        std::memcpy(&head, request.data(), sizeof head);
        Bytes out;
        if (head.opcode != FUSE_INIT)
            session.handle(request, out);
        else if (auto answer = answer_init(request, false))
            out = *answer;
        if (!out.empty() && ::write(fuse, out.data(), out.size()) < 0 && errno != ENOENT)
            ::_exit(1);
    }
}

// A file system in a mount namespace of this process, with a program that runs there.
struct Served {
    unit::TempDir behind, at;
    Fd fuse;
    pid_t server = -1, program = -1;
    Served() {
        ck_assert(::unshare(CLONE_NEWNS) == 0);
        ck_assert(::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0);
        const auto text = read_file(AT_FDCWD, "/bin/sleep", 4 << 20);
        ck_assert(text.has_value());
        ck_assert(::chmod(behind.write("sleep", *text).c_str(), 0755) == 0);
        fuse = Fd(::open("/dev/fuse", O_RDWR | O_CLOEXEC));
        const std::string options =
            "fd=" + std::to_string(fuse.get()) + ",rootmode=40000,user_id=0,group_id=0";
        ck_assert(fuse && ::mount("files", at.path.c_str(), "fuse", 0, options.c_str()) == 0);
        auto tree = open_export(behind.path, {});
        ck_assert(tree.has_value());
        server = ::fork();
        if (server == 0) serve(fuse.get(), *tree);
        program = ::fork();
        if (program == 0) {
            const std::string path = at.path + "/sleep";
            if (::open(path.c_str(), O_RDONLY) < 0) ::_exit(1);  // NOLINT: it stays open
            ::execl(path.c_str(), "sleep", "1000", nullptr);
            ::_exit(1);
        }
        const Fd proc = std::move(*open_at(AT_FDCWD, "/proc", O_PATH | O_DIRECTORY));
        const auto own = program_file(proc.get(), ::getpid());
        ck_assert(own.has_value());
        for (auto its = own; its && *its == *own; its = program_file(proc.get(), program))
            ck_assert(::waitpid(program, nullptr, WNOHANG) == 0);
    }
    Served(const Served&) = delete;
    void be_silent() const {
        ck_assert(::kill(server, SIGSTOP) == 0);
        ck_assert(::waitpid(server, nullptr, WUNTRACED) == server);
        // An exact question waits from now on, because the server answers nobody.
        const auto asked = work_within(Nanos::from_ms(200), [&] {
            struct stat st {};
            return std::to_string(
                ::stat(("/proc/" + std::to_string(program) + "/exe").c_str(), &st));
        });
        ck_assert(!asked && asked.error().code == ETIMEDOUT);
    }
    // Looks at processes by /proc. That must succeed, and in time.
    static void looked_at(const std::function<Status(int proc)>& look) {
        const Status seen = done_within(patience, [&]() -> Status {
            TRY_ASSIGN(const Fd proc, open_at(AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY));
            return look(proc.get());
        });
        ck_assert_msg(seen.has_value(), "%s", seen ? "" : seen.error().message.c_str());
    }
    ~Served() {
        for (const pid_t one : {server, program}) (void)::kill(one, SIGKILL);
        (void)::umount2(at.path.c_str(), MNT_DETACH);
        fuse.reset();
        for (const pid_t one : {server, program}) (void)::waitpid(one, nullptr, 0);
    }
};

const char* no_mounts() {
    if (::geteuid() != 0) return "only root mounts a file system";
    return ::access("/dev/fuse", R_OK | W_OK) == 0 ? nullptr : "no /dev/fuse here";
}

START_TEST(which_program_runs_is_known_though_nobody_serves_its_file) {
    UNIT_SKIP_IF(no_mounts());
    const Served served;
    struct stat it {};
    ck_assert(::stat((served.at.path + "/sleep").c_str(), &it) == 0);
    served.be_silent();
    served.looked_at([&](int proc) -> Status {
        TRY_ASSIGN(const ProgramFile file, program_file(proc, served.program));
        return file == ProgramFile{it.st_dev, it.st_ino}
                   ? Status{}
                   : Status(tl::unexpected(Error{0, "another file"}));
    });
}
END_TEST

START_TEST(a_process_is_looked_at_though_nobody_serves_its_files) {
    UNIT_SKIP_IF(no_mounts());
    const Served served;
    served.be_silent();
    served.looked_at([&](int proc) -> Status {
        TRY_ASSIGN(
            const auto all,
            look_at_processes(
                proc, {served.program},
                {.states = true, .mapped = true, .infos = true, .maps = true, .files_max = 100}));
        for (const char* place : {"exe", "fd ", "map"})
            if (std::ranges::none_of(all.at(0).files, [&](const SeenFile& file) {
                    return file.place.starts_with(place) && file.known &&
                           file.target == served.at.path + "/sleep";
                }))
                return tl::unexpected(Error{0, std::string(place) + " is not seen"});
        return {};
    });
}
END_TEST

START_TEST(what_a_restored_process_has_open_is_looked_at_though_nobody_serves_it) {
    UNIT_SKIP_IF(no_mounts());
    const Served served;
    served.be_silent();
    served.looked_at([&](int proc) -> Status {
        TRY_ASSIGN(const Fd process,
                   open_at(proc, std::to_string(served.program), O_RDONLY | O_DIRECTORY));
        return check_devices(process.get());
    });
}
END_TEST

// A refusal, as any other: that the kernel was late is not that souk-root is.
START_TEST(souk_root_outlives_work_that_is_late) {
    UNIT_SKIP_IF(no_mounts());
    const Served served;
    served.be_silent();
    const unit::TempDir image;
    const std::string list = served.at.path + "/.souk-1" + '\0' + served.at.path + "/s" + '\0';
    (void)image.write(kept_sockets_name, list);
    Loop loop = unit::open_loop();
    std::string lost;
    root::Helper helper(loop, [&](const std::string& why) { lost = why; });
    ck_assert(helper.start("/").has_value());
    const Status settled = helper.reach().settle(image.fd.get(), true);
    ck_assert(!settled && settled.error().code == ETIMEDOUT);
    ck_assert_text(lost, "");
    ck_assert(!helper.put_status("up=1\n"));  // it answers: it has no such file
    ck_assert_text(lost, "");
    ck_assert(has_kept_sockets(image.fd.get()));
}
END_TEST

}  // namespace
}  // namespace souk::files

using namespace souk::files;
UNIT_SUITE(silent_files, which_program_runs_is_known_though_nobody_serves_its_file,
           a_process_is_looked_at_though_nobody_serves_its_files,
           what_a_restored_process_has_open_is_looked_at_though_nobody_serves_it,
           souk_root_outlives_work_that_is_late);
