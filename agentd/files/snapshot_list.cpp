// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/files/snapshot_list.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <optional>

#include "agentd/files/snapshot.hpp"
#include "kernel/base/number.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk::files {
namespace {

constexpr std::string_view header = "souk snapshot 1";
constexpr size_t strings_each = 9;
constexpr int64_t tick_ns = 20'000'000;  // more than the grain of a file's times

int64_t ns_of(const timespec& t) { return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec; }

struct Walk {
    int top;
    dev_t device;
    int64_t now_ns;
    SnapshotList& list;

    // Looks at a directory, and leaves out what has gone meanwhile.
    Status look(const std::string& directory) {
        auto names = list_dir(top, directory.empty() ? "." : directory);
        if (!names && names.error().code == ENOENT) return {};
        if (!names) return tl::unexpected(names.error());
        for (const std::string& name : *names) {
            if (directory.empty() && name == snapshots_name) continue;
            TRY(add(directory.empty() ? name : directory + "/" + name));
        }
        return {};
    }

    Status add(const std::string& path) {
        struct stat st {};
        if (::fstatat(top, path.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0)
            return errno == ENOENT ? Status{} : fail_errno(path, errno);
        if (st.st_dev != device) return {};
        if (list.size() >= snapshot_entries_max)
            return fail_errno("more than " + std::to_string(snapshot_entries_max) + " names",
                              E2BIG);
        SnapshotEntry e;
        e.path = path;
        e.mode = st.st_mode;
        e.inode = st.st_ino;
        e.size = S_ISDIR(st.st_mode) ? 0 : static_cast<uint64_t>(st.st_size);
        e.mtime_ns = ns_of(st.st_mtim);
        e.ctime_ns = ns_of(st.st_ctim);
        e.just_written = e.ctime_ns > now_ns - tick_ns;
        if (S_ISLNK(st.st_mode)) {
            char target[PATH_MAX];
            const ssize_t n = ::readlinkat(top, path.c_str(), target, sizeof target);
            if (n < 0) return fail_errno(path, errno);
            e.target.assign(target, static_cast<size_t>(n));
        }
        list.push_back(std::move(e));
        return S_ISDIR(st.st_mode) ? look(path) : Status{};
    }
};

}  // namespace

Result<SnapshotList> list_below(int top) {
    struct stat st {};
    if (::fstat(top, &st) != 0) return fail_errno("look at the directory", errno);
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    SnapshotList list;
    TRY((Walk{top, st.st_dev, ns_of(now), list}).look({}));
    return list;
}

std::string encode(const SnapshotList& list) {
    std::string text;
    const auto put = [&](std::string_view s) { text.append(s).push_back('\0'); };
    put(header);
    for (const SnapshotEntry& e : list) {
        put(e.path);
        put(e.target);
        for (const uint64_t n :
             {uint64_t{e.mode}, e.inode, e.size, e.copy, uint64_t{e.just_written}})
            put(std::to_string(n));
        for (const int64_t n : {e.mtime_ns, e.ctime_ns}) put(std::to_string(n));
    }
    return text;
}

Result<SnapshotList> decode_snapshot_list(std::string_view text) {
    std::vector<std::string_view> strings;
    for (size_t at = 0; at < text.size();) {
        const size_t end = text.find('\0', at);
        if (end == text.npos) return fail("the list of the snapshot is cut short");
        strings.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    if (strings.empty() || strings[0] != header || (strings.size() - 1) % strings_each != 0)
        return fail("the list of the snapshot is none");
    SnapshotList list;
    for (size_t i = 1; i < strings.size(); i += strings_each) {
        const auto* s = &strings[i];
        std::optional<uint64_t> numbers[5];
        bool good = !s[0].empty() && s[0][0] != '/';
        for (size_t n = 0; n < 5; ++n) {
            numbers[n] = whole_number<uint64_t>(s[2 + n]);
            good = good && numbers[n];
        }
        const auto mtime = whole_number<int64_t>(s[7]), ctime = whole_number<int64_t>(s[8]);
        if (!good || !mtime || !ctime || *numbers[0] > UINT32_MAX)
            return fail("the list of the snapshot is damaged");
        list.push_back({std::string(s[0]), static_cast<uint32_t>(*numbers[0]), *numbers[1],
                        *numbers[2], *mtime, *ctime, *numbers[3], *numbers[4] != 0,
                        std::string(s[1])});
    }
    return list;
}

}  // namespace souk::files
