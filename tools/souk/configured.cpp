// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/souk/configured.hpp"

#include <fcntl.h>

#include <regex>

#include "kernel/sys/host/fd.hpp"

namespace souk {

std::string config_text(const std::string& path) {
    auto text = read_file(AT_FDCWD, path);
    return text ? *text : std::string();
}

std::string configured(const std::string& text, const std::string& key) {
    std::smatch found;
    const std::regex line("(^|\n)\\s*" + key + "\\s*=\\s*\"([^\"\n]*)\"");
    return std::regex_search(text, found, line) ? found[2].str() : std::string();
}

bool is_insecure(const std::string& text) {
    return std::regex_search(text, std::regex("(^|\n)\\s*insecure\\s*=\\s*true"));
}

std::string identity_dir(const std::string& text, const std::string& daemon) {
    if (std::string dir = configured(text, "identity"); !dir.empty()) return dir;
    const std::string state = configured(text, "state");
    return (state.empty() ? "/var/lib/souk/" + daemon : state) + "/identity";
}

}  // namespace souk
