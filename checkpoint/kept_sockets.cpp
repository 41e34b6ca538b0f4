// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/kept_sockets.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

#include "kernel/sys/fd.hpp"

namespace souk {
namespace {
constexpr size_t list_bytes_max = 4 << 20;

// A socket that was renamed within its directory, and nothing else.
bool is_kept(std::string_view kept, std::string_view name) {
    const size_t slash = kept.rfind('/');
    struct stat st {};
    return slash != kept.npos && name.starts_with(kept.substr(0, slash + 1)) && name.find('/', slash + 1) == name.npos &&
           kept.substr(slash + 1).starts_with(".souk-") && ::lstat(kept.data(), &st) == 0 && S_ISSOCK(st.st_mode);
}
}  // namespace

void settle_sockets(int parent, const std::string& image, bool runs) {
    const Fd directory(::openat(parent, image.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    const auto list = directory ? read_file(directory.get(), kept_sockets_name, list_bytes_max) : Result<std::string>(fail(""));
    if (!list) return;
    for (size_t at = 0; at < list->size();) {
        const size_t middle = list->find('\0', at), end = middle == list->npos ? middle : list->find('\0', middle + 1);
        if (end == list->npos) break;
        const char *kept = list->data() + at, *name = list->data() + middle + 1;
        at = end + 1;
        if (!is_kept(kept, name)) continue;
        (void)(runs ? ::unlink(kept) : ::rename(kept, name));
    }
    (void)::unlinkat(directory.get(), kept_sockets_name, 0);
}

}  // namespace souk
