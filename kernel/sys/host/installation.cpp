// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/installation.hpp"

#include <unistd.h>

#include <climits>

namespace souk {

std::string program_directory() {
    char self[PATH_MAX];
    const ssize_t n = ::readlink("/proc/self/exe", self, sizeof self);
    if (n <= 0) return ".";
    const std::string own(self, static_cast<size_t>(n));
    return own.substr(0, own.rfind('/'));
}

std::string program_path(const std::string& name) {
    const std::string here = program_directory();
    std::string beside = here + "/" + name;
    for (const std::string& path : {beside, here + "/../lib/souk/" + name,
                                    here + "/../sbin/" + name, here + "/../bin/" + name})
        if (::access(path.c_str(), X_OK) == 0) return path;
    return beside;
}

std::string installed_criu_root() {
    const std::string root = program_directory() + "/../lib/souk/criu";
    return ::access((root + "/usr/sbin/criu").c_str(), X_OK) == 0 ? root : "";
}

std::string criu_root() {
    const std::string installed = installed_criu_root();
    return installed.empty() ? SOUK_CRIU_ROOT : installed;
}

std::string beside_state(const std::string& state) {
    std::string path = state;
    while (path.size() > 1 && path.ends_with('/')) path.pop_back();
    return path + "-root";
}

}  // namespace souk
