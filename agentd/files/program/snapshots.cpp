// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/program/snapshots.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "agentd/files/snapshot.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::files {
namespace {

constexpr size_t named_max = 5;  // in a sentence

// Opens the directory as a program of the job would find it.
Result<Fd> open_below(int root, const std::string& directory) {
    open_how how{};
    how.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC;
    how.resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS;
    Fd fd(static_cast<int>(::syscall(SYS_openat2, root, directory.c_str(), &how, sizeof how)));
    if (!fd) return fail_errno(directory, errno);
    return fd;
}

// A line for a terminal.
std::string plain(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
    return text;
}

std::string files(const std::vector<std::string>& names) {
    std::string text = std::to_string(names.size()) + (names.size() == 1 ? " file" : " files");
    for (size_t i = 0; i < std::min(names.size(), named_max); ++i)
        text += (i == 0 ? " (" : ", ") + plain(names[i]);
    if (names.size() > named_max) text += ", ...";
    return names.empty() ? text : text + ")";
}

Result<std::string> take(int directory, const std::string& name) {
    struct statfs fs {};
    if (::fstatfs(directory, &fs) != 0) return fail_errno("statfs", errno);
    if (fs.f_type != FUSE_SUPER_MAGIC) {
        TRY(take_snapshot(directory, name));
        return std::string();
    }
    if (::fsetxattr(directory, snapshot_attribute, name.data(), name.size(), 0) != 0)
        return fail_errno("its home", errno);
    return std::string();
}

Result<std::string> done(const SnapshotTask& task, int directory) {
    const std::string& where = task.directory;
    if (task.what == "take") return take(directory, task.name);
    if (task.what == "put-back") {
        TRY_ASSIGN(const auto names, put_back(directory, task.name));
        return names.empty()
                   ? "nothing below " + plain(where) + " has changed since"
                   : files(names) + " below " + plain(where) + " put back to what was there then";
    }
    const size_t dot = task.name.rfind('.');
    const auto number = whole_number<uint64_t>(task.name.substr(dot + 1));
    if (!number) return fail("bad number in " + task.name);
    if (task.what == "drop") {
        TRY(drop_snapshots(directory, task.name.substr(0, dot), *number));
        return std::string();
    }
    if (task.what != "written") return fail("bad task " + task.what);
    TRY_ASSIGN(const auto names, written_since(directory, static_cast<int64_t>(*number)));
    return names.empty()
               ? std::string()
               : files(names) + " below " + plain(where) + " written since then, and not put back";
}

}  // namespace

Status do_snapshot_task(const SnapshotTask& task, int root, int answer) {
    const auto run = [&]() -> Result<std::string> {
        TRY_ASSIGN(const Fd directory, open_below(root, task.directory));
        return done(task, directory.get());
    };
    const auto said = run();
    return write_all(answer, said ? "+" + *said : "-" + plain(said.error().message),
                     "answer agentd");
}

}  // namespace souk::files
