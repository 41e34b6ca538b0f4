// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/refused_images.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "checkpoint/images.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {
namespace {

struct Kept {
    std::string name;
    int64_t since_ns = 0;  // when it was moved here
    uint64_t bytes = 0;
};

Result<Kept> look(int parent, const std::string& name) {
    TRY_ASSIGN(const Fd directory, open_at(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW));
    TRY_ASSIGN(const auto files, list_dir(directory.get(), "."));
    struct stat st {};
    if (::fstat(directory.get(), &st) != 0) return fail_errno("look at " + name, errno);
    Kept kept{name, st.st_ctim.tv_sec * 1'000'000'000 + st.st_ctim.tv_nsec, 0};
    for (const std::string& file : files)
        if (::fstatat(directory.get(), file.c_str(), &st, AT_SYMLINK_NOFOLLOW) == 0)
            kept.bytes += static_cast<uint64_t>(st.st_size);
    return kept;
}

}  // namespace

Status keep_refused_image(int from, const std::string& name, int to, const RefusedBounds& bounds) {
    TRY_ASSIGN(const Kept next, look(from, name));
    if (next.bytes > bounds.bytes_max)
        return tl::unexpected(Error{EFBIG, "keep image " + name + ": it has " +
                                               std::to_string(next.bytes >> 20) +
                                               " MB, and all that are kept may have " +
                                               std::to_string(bounds.bytes_max >> 20)});
    TRY(remove_image(to, name));
    TRY_ASSIGN(const auto names, list_dir(to, "."));
    std::vector<Kept> all;
    uint64_t bytes = next.bytes;
    for (const std::string& there : names) {
        auto kept = look(to, there);
        if (!kept) continue;
        bytes += kept->bytes;
        all.push_back(std::move(*kept));
    }
    std::sort(all.begin(), all.end(), [](const Kept& a, const Kept& b) {
        return std::pair(a.since_ns, a.name) < std::pair(b.since_ns, b.name);
    });
    size_t count = all.size() + 1;
    for (const Kept& oldest : all) {
        if (count <= bounds.images_max && bytes <= bounds.bytes_max) break;
        TRY(remove_image(to, oldest.name));
        bytes -= oldest.bytes;
        --count;
    }
    if (::renameat(from, name.c_str(), to, name.c_str()) != 0)
        return fail_errno("keep image " + name, errno);
    return {};
}

}  // namespace souk
