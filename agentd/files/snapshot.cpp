// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/snapshot.hpp"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>

#include "agentd/files/snapshot_list.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::files {
namespace {

constexpr size_t snapshots_max = 64;  // in one directory
constexpr char list_name[] = "list";

Status remove_tree(int directory, const std::string& name) {
    std::error_code failed;
    std::filesystem::remove_all("/proc/self/fd/" + std::to_string(directory) + "/" + name, failed);
    return failed ? Status(fail_errno("remove " + name, failed.value())) : Status{};
}

// A descriptor that may list and sync, of one that may be O_PATH.
Result<Fd> open_directory(int directory) { return open_at(directory, ".", O_RDONLY | O_DIRECTORY); }

Result<Fd> open_snapshots(int directory) {
    return open_at(directory, snapshots_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

// Files of one inode are copied once.
Status copy_all(int top, int to, SnapshotList& list, CloneFile clone) {
    std::map<uint64_t, uint64_t> copies;
    for (SnapshotEntry& e : list) {
        if (!S_ISREG(e.mode)) continue;
        const auto [known, is_new] = copies.try_emplace(e.inode, copies.size() + 1);
        e.copy = known->second;
        if (!is_new) continue;
        TRY_ASSIGN(const Fd from, open_at(top, e.path, O_RDONLY | O_NOFOLLOW));
        TRY_ASSIGN(const Fd copy,
                   open_at(to, std::to_string(e.copy), O_WRONLY | O_CREAT | O_EXCL, 0600));
        if (Status done = clone(from.get(), copy.get()); !done)
            return wrap(e.path, std::move(done).error());
    }
    return {};
}

// ---- put back

class Back {
  public:
    // `held`: an empty directory beside.
    Back(int top, int snapshot, int held, CloneFile clone)
        : top_(top), snapshot_(snapshot), held_(held), clone_(clone) {}

    Status read() {
        TRY_ASSIGN(const std::string text,
                   read_file(snapshot_, list_name, snapshot_list_bytes_max));
        TRY_ASSIGN(list_, decode_snapshot_list(text));
        TRY_ASSIGN(present_, list_below(top_));
        for (const SnapshotEntry& e : present_) {
            now_[e.path] = &e;
            if (S_ISREG(e.mode)) path_of_[e.inode] = e.path;
        }
        return {};
    }

    Result<std::vector<std::string>> run() {
        TRY(hold());
        for (const SnapshotEntry& e : list_) {
            wanted_.insert(e.path);
            TRY(make(e));
        }
        // Deepest first: what came since.
        for (auto e = present_.rbegin(); e != present_.rend(); ++e)
            if (!wanted_.contains(e->path) && !is_left_alone(e->mode)) {
                TRY(remove(e->path));
                if (!S_ISDIR(e->mode)) changed_.push_back(e->path);
            }
        for (auto e = list_.rbegin(); e != list_.rend(); ++e)
            if (S_ISDIR(e->mode)) TRY(dress(*e));
        return std::move(changed_);
    }

  private:
    static bool is_left_alone(uint32_t mode) {
        return !S_ISREG(mode) && !S_ISDIR(mode) && !S_ISLNK(mode) && !S_ISFIFO(mode);
    }
    const SnapshotEntry* now(const std::string& path) const {
        const auto it = now_.find(path);
        return it == now_.end() ? nullptr : it->second;
    }

    // Inodes that are to have another name again keep one until then.
    Status hold() {
        for (const SnapshotEntry& e : list_) {
            const SnapshotEntry* const is = now(e.path);
            const auto other = path_of_.find(e.inode);
            if (!S_ISREG(e.mode) || other == path_of_.end() || (is && is->inode == e.inode))
                continue;
            if (::linkat(top_, other->second.c_str(), held_, std::to_string(e.inode).c_str(), 0) !=
                    0 &&
                errno != EEXIST)
                return fail_errno("hold " + other->second, errno);
        }
        return {};
    }

    Status remove(const std::string& path) const {
        const auto gone = [&](int how) { return ::unlinkat(top_, path.c_str(), how) == 0; };
        if (gone(0) || errno == ENOENT || errno == ENOTDIR || gone(AT_REMOVEDIR)) return {};
        // A directory that has what is left alone stays.
        return errno == ENOTEMPTY || errno == EEXIST ? Status{}
                                                     : fail_errno("remove " + path, errno);
    }

    Status make(const SnapshotEntry& e) {
        const SnapshotEntry* const is = now(e.path);
        const bool same_kind = is && (is->mode & S_IFMT) == (e.mode & S_IFMT);
        if (S_ISREG(e.mode)) return make_file(e, same_kind ? is : nullptr, is && !same_kind);
        if (same_kind && e.target == is->target) return {};
        if (is) TRY(remove_tree(top_, e.path));
        changed_.push_back(e.path);
        const bool made = S_ISDIR(e.mode) ? ::mkdirat(top_, e.path.c_str(), 0700) == 0
                          : S_ISLNK(e.mode)
                              ? ::symlinkat(e.target.c_str(), top_, e.path.c_str()) == 0
                              : ::mkfifoat(top_, e.path.c_str(), 0600) == 0;
        if (!made) return fail_errno("make " + e.path, errno);
        return S_ISFIFO(e.mode) ? dress(e) : Status{};
    }

    Status make_file(const SnapshotEntry& e, const SnapshotEntry* is, bool in_the_way) {
        const bool same = is && is->inode == e.inode;
        const bool elsewhere = !same && path_of_.contains(e.inode);
        const bool alike = is && is->size == e.size && is->mtime_ns == e.mtime_ns && !elsewhere;
        // Another inode of that size and time was made by an earlier try.
        if (alike && !e.just_written && (!same || is->ctime_ns == e.ctime_ns)) return {};
        if (!alike) changed_.push_back(e.path);
        if (in_the_way) TRY(remove_tree(top_, e.path));
        if (!same && !alike) TRY(name_it(e));
        return fill(e);
    }

    // The inode that had this name has it again, if it is there; else a new one has it.
    Status name_it(const SnapshotEntry& e) const {
        const std::string number = std::to_string(e.inode);
        const auto named = [&] {
            return ::linkat(held_, number.c_str(), held_, "next", 0) == 0 &&
                   ::renameat(held_, "next", top_, e.path.c_str()) == 0;
        };
        (void)::unlinkat(held_, "next", 0);
        if (named()) return {};
        if (errno != ENOENT) return fail_errno("name " + e.path, errno);
        TRY_ASSIGN([[maybe_unused]] const Fd made,
                   open_at(held_, number, O_WRONLY | O_CREAT | O_EXCL, 0600));
        return named() ? Status{} : fail_errno("name " + e.path, errno);
    }

    // Writes to the file in place, because a process in an image that has it open must find its
    // inode.
    Status fill(const SnapshotEntry& e) {
        if ((e.mode & S_IWUSR) == 0) (void)::fchmodat(top_, e.path.c_str(), 0600, 0);
        auto to = open_at(top_, e.path, O_WRONLY | O_NOFOLLOW);
        if (!to && to.error().code == EACCES && ::fchmodat(top_, e.path.c_str(), 0600, 0) == 0)
            to = open_at(top_, e.path, O_WRONLY | O_NOFOLLOW);
        if (!to) return tl::unexpected(to.error());
        TRY_ASSIGN(const Fd copy, open_at(snapshot_, std::to_string(e.copy), O_RDONLY));
        if (::ftruncate(to->get(), 0) != 0) return fail_errno("empty " + e.path, errno);
        if (Status done = clone_(copy.get(), to->get()); !done)
            return wrap(e.path, std::move(done).error());
        return dress(e);
    }

    Status dress(const SnapshotEntry& e) const {
        if (::fchmodat(top_, e.path.c_str(), e.mode & 07777, 0) != 0)
            return fail_errno("mode of " + e.path, errno);
        const timespec at{e.mtime_ns / 1'000'000'000, e.mtime_ns % 1'000'000'000};
        const timespec times[2] = {{0, UTIME_OMIT}, at};
        (void)::utimensat(top_, e.path.c_str(), times, AT_SYMLINK_NOFOLLOW);
        return {};
    }

    int top_, snapshot_, held_;
    CloneFile clone_;
    SnapshotList list_, present_;
    std::map<std::string, const SnapshotEntry*> now_;
    std::map<uint64_t, std::string> path_of_;
    std::set<std::string> wanted_;
    std::vector<std::string> changed_;
};

}  // namespace

Status clone_by_reference(int from, int to) {
    if (::ioctl(to, FICLONE, from) == 0) return {};
    const bool cannot = errno == EOPNOTSUPP || errno == EXDEV || errno == ENOTTY || errno == EINVAL;
    return fail_errno(cannot ? "its file system cannot copy by reference (btrfs and xfs can)"
                             : "copy by reference",
                      cannot ? EOPNOTSUPP : errno);
}

bool is_snapshot_name(const std::string& name) {
    const size_t dot = name.rfind('.');
    return dot != name.npos && dot > 0 && name[0] != '.' && name.size() <= 200 &&
           name.find('/') == name.npos && whole_number<uint64_t>(name.substr(dot + 1));
}

Status take_snapshot(int directory, const std::string& name, CloneFile clone) {
    if (!is_snapshot_name(name)) return fail_errno("no name of a snapshot", EINVAL);
    TRY_ASSIGN(const Fd top, open_directory(directory));
    if (::mkdirat(top.get(), snapshots_name, 0700) != 0 && errno != EEXIST)
        return fail_errno(std::string("make ") + snapshots_name, errno);
    TRY_ASSIGN(const Fd all, open_snapshots(top.get()));
    const std::string part = name + ".part";
    for (const std::string& old : {name, part}) TRY(remove_tree(all.get(), old));
    TRY_ASSIGN(const auto names, list_dir(all.get(), "."));
    if (names.size() >= snapshots_max) return fail_errno("too many snapshots there", EDQUOT);
    const auto make = [&]() -> Status {
        if (::mkdirat(all.get(), part.c_str(), 0700) != 0) return fail_errno("make " + part, errno);
        TRY_ASSIGN(const Fd to, open_at(all.get(), part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
        TRY_ASSIGN(SnapshotList list, list_below(top.get()));
        TRY(copy_all(top.get(), to.get(), list, clone));
        TRY(create_file(to.get(), list_name, encode(list)));
        if (::syncfs(to.get()) != 0) return fail_errno("sync", errno);
        if (::renameat(all.get(), part.c_str(), all.get(), name.c_str()) != 0 ||
            ::fsync(all.get()) != 0)
            return fail_errno("name the snapshot", errno);
        return {};
    };
    Status made = make();
    if (!made) (void)remove_tree(all.get(), part);
    return made;
}

Result<std::vector<std::string>> put_back(int directory, const std::string& name, CloneFile clone) {
    if (!is_snapshot_name(name)) return fail_errno("no name of a snapshot", EINVAL);
    TRY_ASSIGN(const Fd top, open_directory(directory));
    const auto lacks = [&](Error why) {
        return why.code == ENOENT ? fail("there is no snapshot of that moment")
                                  : tl::unexpected(std::move(why));
    };
    auto all = open_snapshots(top.get());
    if (!all) return lacks(all.error());
    auto snapshot = open_at(all->get(), name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!snapshot) return lacks(snapshot.error());
    const std::string part = name + ".part";
    TRY(remove_tree(all->get(), part));
    if (::mkdirat(all->get(), part.c_str(), 0700) != 0) return fail_errno("make " + part, errno);
    TRY_ASSIGN(const Fd held, open_at(all->get(), part, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    Back back(top.get(), snapshot->get(), held.get(), clone);
    TRY(back.read());
    auto changed = back.run();
    TRY(remove_tree(all->get(), part));
    return changed;
}

Status drop_snapshots(int directory, const std::string& job, uint64_t below) {
    TRY_ASSIGN(const Fd top, open_directory(directory));
    auto all = open_snapshots(top.get());
    if (!all) return all.error().code == ENOENT ? Status{} : tl::unexpected(all.error());
    TRY_ASSIGN(const auto names, list_dir(all->get(), "."));
    for (const std::string& name : names) {
        const std::string_view whole = name.ends_with(".part")
                                           ? std::string_view(name).substr(0, name.size() - 5)
                                           : std::string_view(name);
        if (!whole.starts_with(job + ".")) continue;
        const auto number = whole_number<uint64_t>(whole.substr(job.size() + 1));
        if (number && *number < below) TRY(remove_tree(all->get(), name));
    }
    (void)::unlinkat(top.get(), snapshots_name, AT_REMOVEDIR);  // if it is empty
    return {};
}

Result<std::vector<std::string>> written_since(int directory, int64_t since_ns) {
    TRY_ASSIGN(const Fd top, open_directory(directory));
    TRY_ASSIGN(const SnapshotList list, list_below(top.get()));
    std::vector<std::string> names;
    for (const SnapshotEntry& e : list)
        if (S_ISREG(e.mode) && e.mtime_ns >= since_ns) names.push_back(e.path);
    return names;
}

}  // namespace souk::files
