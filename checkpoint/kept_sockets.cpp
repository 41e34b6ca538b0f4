// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/kept_sockets.hpp"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

#include "kernel/sys/host/fd.hpp"

namespace souk {
namespace {
constexpr size_t kept_list_bytes_max = 4 << 20;

// The directory is the job's owner's: nothing on the way to it may be a symbolic link by now.
Fd open_directory(const std::string& path) {
    open_how how{};
    how.flags = O_PATH | O_DIRECTORY | O_CLOEXEC;
    how.resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    return Fd(static_cast<int>(
        ::syscall(SYS_openat2, AT_FDCWD, path.empty() ? "/" : path.c_str(), &how, sizeof how)));
}

// A socket that was renamed within its directory to .souk-INODE, and nothing else: it is removed,
// or gets its name back.
void settle_socket(std::string_view kept, std::string_view name, bool runs) {
    const size_t slash = kept.rfind('/');
    if (slash == kept.npos || !name.starts_with(kept.substr(0, slash + 1)) ||
        name.size() == slash + 1 || name.find('/', slash + 1) != name.npos)
        return;
    // each ends by a zero
    const char *from = kept.data() + slash + 1, *to = name.data() + slash + 1;
    const Fd directory = open_directory(std::string(kept.substr(0, slash)));
    struct stat st {};
    if (!directory || ::fstatat(directory.get(), from, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        !S_ISSOCK(st.st_mode) || kept.substr(slash + 1) != ".souk-" + std::to_string(st.st_ino))
        return;
    // We act with the rights of the socket's owner, because somebody else's file may lie under that
    // name.
    ::setfsgid(st.st_gid);
    ::setfsuid(st.st_uid);
    (void)(runs ? ::unlinkat(directory.get(), from, 0)
                : ::renameat(directory.get(), from, directory.get(), to));
    ::setfsuid(::geteuid());
    ::setfsgid(::getegid());
}
}  // namespace

bool has_kept_sockets(int image) {
    struct stat st {};
    return ::fstatat(image, kept_sockets_name, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
           S_ISREG(st.st_mode);
}

Status settle_sockets(int image, bool runs) {
    if (!has_kept_sockets(image)) return {};
    TRY_ASSIGN(const std::string list, read_file(image, kept_sockets_name, kept_list_bytes_max));
    for (size_t at = 0; at < list.size();) {
        const size_t middle = list.find('\0', at),
                     end = middle == list.npos ? middle : list.find('\0', middle + 1);
        if (end == list.npos) break;
        settle_socket(list.data() + at, list.data() + middle + 1, runs);
        at = end + 1;
    }
    (void)::unlinkat(image, kept_sockets_name, 0);
    return {};
}

}  // namespace souk
