// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/disks.hpp"

#include <fcntl.h>

#include <algorithm>
#include <filesystem>

#include "kernel/sys/host/bytes.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

std::vector<std::string> whole_disks(const std::string& blocks) {
    std::vector<std::string> all;
    std::error_code none;
    for (std::filesystem::directory_iterator at(blocks, none), end; !none && at != end;
         at.increment(none)) {
        const std::string name = at->path().filename();
        if (name.starts_with("loop") || name.starts_with("ram") || name.starts_with("zram"))
            continue;
        const auto number = read_file(AT_FDCWD, at->path() / "dev");
        const auto size = read_file(AT_FDCWD, at->path() / "size");
        if (!number || !size || size->starts_with("0\n")) continue;
        all.push_back(number->substr(0, number->find('\n')));
    }
    std::sort(all.begin(), all.end());
    return all;
}

}  // namespace souk
