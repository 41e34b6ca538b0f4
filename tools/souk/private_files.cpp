// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/private_files.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "kernel/sys/process/process.hpp"

namespace souk {
namespace {

constexpr const char* of_people[] = {"/home",  "/root", "/srv",    "/mnt",
                                     "/media", "/tmp",  "/var/tmp"};

std::string link_of(const Fd& fd) { return "/proc/self/fd/" + std::to_string(fd.get()); }

Status bind_over(const Fd& from, const std::string& to, unsigned long how) {
    if (::mount(link_of(from).c_str(), to.c_str(), nullptr, MS_BIND | how, nullptr) != 0)
        return fail_errno("mount " + to, errno);
    return {};
}

Status make_directories(const std::string& path) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) return fail("make " + path + ": " + error.message());
    return {};
}

bool lies_in(const std::string& path, const std::string& top) {
    return path.starts_with(top + "/");
}

// Runs in the new namespace.
Status hide(const std::string& own, const std::vector<std::string>& kept) {
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
        return fail_errno("make mounts private", errno);
    std::vector<std::pair<std::string, Fd>> back;
    for (const std::string& path : kept) {
        const bool hidden =
            std::ranges::any_of(of_people, [&](const char* top) { return lies_in(path, top); });
        if (!hidden || ::access(path.c_str(), F_OK) != 0) continue;
        TRY_ASSIGN(Fd fd, open_at(AT_FDCWD, path, O_PATH | O_DIRECTORY));
        back.emplace_back(path, std::move(fd));
    }
    TRY_ASSIGN(const Fd top, open_at(AT_FDCWD, own, O_PATH | O_DIRECTORY));
    for (const char* path : of_people) {
        struct stat st {};
        if (::lstat(path, &st) != 0 || !S_ISDIR(st.st_mode)) continue;
        const std::string inside = link_of(top) + path;
        TRY(make_directories(inside));
        if (::chmod(inside.c_str(), st.st_mode & 07777) != 0 ||
            ::chown(inside.c_str(), st.st_uid, st.st_gid) != 0)
            return fail_errno("make " + own + path, errno);
        TRY_ASSIGN(const Fd fd, open_at(AT_FDCWD, inside, O_PATH | O_DIRECTORY));
        TRY(bind_over(fd, path, 0));
    }
    for (const auto& [path, fd] : back) {
        TRY(make_directories(path));
        TRY(bind_over(fd, path, MS_REC));
    }
    return {};
}

}  // namespace

Result<Fd> make_private_files(const std::string& own, const std::vector<std::string>& kept) {
    TRY(make_directories(own));
    TRY_ASSIGN(Pipe made, make_pipe());
    TRY_ASSIGN(Pipe taken, make_pipe());
    const pid_t child = ::fork();
    if (child < 0) return fail_errno("fork", errno);
    if (child == 0) {
        taken.write_end.reset();
        Status done =
            ::unshare(CLONE_NEWNS) == 0 ? hide(own, kept) : Status(fail_errno("unshare", errno));
        const std::string word = done ? "" : done.error().message;
        (void)!::write(made.write_end.get(), word.data(), word.size());
        made.write_end.reset();
        char end;
        (void)!::read(taken.read_end.get(), &end, 1);  // until it has been taken
        ::_exit(0);
    }
    made.write_end.reset();
    taken.read_end.reset();
    std::string why;
    char some[512];
    for (ssize_t n; (n = ::read(made.read_end.get(), some, sizeof some)) > 0;)
        why.append(some, static_cast<size_t>(n));
    auto space = open_at(AT_FDCWD, "/proc/" + std::to_string(child) + "/ns/mnt", O_RDONLY);
    taken.write_end.reset();
    ::waitpid(child, nullptr, 0);
    if (!why.empty()) return fail("files of a node's own: " + why);
    return space;
}

}  // namespace souk
