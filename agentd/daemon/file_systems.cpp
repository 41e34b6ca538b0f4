// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/file_systems.hpp"

#include "kernel/sys/store/same_files.hpp"
#include "kernel/trust/openssl.hpp"

namespace souk {

Result<std::string> file_systems(const std::string& directories) {
    TRY_ASSIGN(const auto all, directories_of(directories));
    TRY_ASSIGN(const std::string text, own_file_systems(all));
    std::string named = trust::sha256(text);
    for (const std::string& directory : all) named += " " + directory;
    return named;
}

bool has_file_systems(const std::string& named) {
    if (named.empty()) return false;
    const size_t blank = std::min(named.find(' '), named.size());
    const auto own = file_systems(named.substr(blank));
    return own && *own == named;
}

}  // namespace souk
