// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>
#include <sstream>

#include "kernel/sys/cgroup.hpp"

namespace souk {
namespace {

constexpr std::string_view v1_controllers[] = {"cpu", "cpuacct", "memory", "freezer", "pids", "cpuset"};

// mountinfo writes blank, tab, newline and backslash as \ooo.
std::string unescape(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
        const auto octal = [&](size_t at) { return text[at] >= '0' && text[at] <= '7'; };
        if (text[i] == '\\' && i + 3 < text.size() && octal(i + 1) && octal(i + 2) && octal(i + 3)) {
            out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
            i += 3;
        } else {
            out += text[i];
        }
    }
    return out;
}

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream in(text);
    for (std::string part; std::getline(in, part, separator);)
        if (!part.empty()) parts.push_back(part);
    return parts;
}

}  // namespace

bool CgroupLayout::in_v2(std::string_view controller) const {
    return std::find(v2_controllers.begin(), v2_controllers.end(), controller) != v2_controllers.end();
}

// proc(5): "36 35 98:0 /root /mount/point options optional... - type source super-options".
CgroupLayout detect_cgroups(std::string_view mountinfo) {
    CgroupLayout layout;
    for (const std::string& line : split(std::string(mountinfo), '\n')) {
        const size_t dash = line.find(" - ");
        if (dash == std::string::npos) continue;
        const std::vector<std::string> before = split(line.substr(0, dash), ' ');
        const std::vector<std::string> after = split(line.substr(dash + 3), ' ');
        if (before.size() < 6 || after.size() < 3) continue;
        const std::string mount = unescape(before[4]);
        if (after[0] == "cgroup2" && layout.v2.empty()) {
            layout.v2 = mount;
            if (auto text = read_file(AT_FDCWD, mount + "/cgroup.controllers")) {
                std::replace(text->begin(), text->end(), '\n', ' ');
                layout.v2_controllers = split(*text, ' ');
            }
        } else if (after[0] == "cgroup") {
            for (const std::string& option : split(after[2], ','))
                if (std::find(std::begin(v1_controllers), std::end(v1_controllers), option) != std::end(v1_controllers))
                    layout.v1.emplace(option, mount);
        }
    }
    return layout;
}

}  // namespace souk
