// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>
#include <sstream>

#include "kernel/sys/process/cgroup.hpp"
#include "kernel/sys/store/mounts.hpp"

namespace souk {
namespace {

constexpr std::string_view v1_controllers[] = {"cpu",     "cpuacct", "memory",
                                               "freezer", "pids",    "cpuset"};

std::vector<std::string> split(const std::string& text, char separator) {
    std::vector<std::string> parts;
    std::istringstream in(text);
    for (std::string part; std::getline(in, part, separator);)
        if (!part.empty()) parts.push_back(part);
    return parts;
}

}  // namespace

bool CgroupLayout::in_v2(std::string_view controller) const {
    return std::find(v2_controllers.begin(), v2_controllers.end(), controller) !=
           v2_controllers.end();
}

CgroupLayout detect_cgroups(const std::string& mountinfo) {
    CgroupLayout layout;
    for (const Mount& mount : parse_mounts(mountinfo)) {
        if (mount.type == "cgroup2" && layout.v2.empty()) {
            layout.v2 = mount.point;
            if (auto text = read_file(AT_FDCWD, mount.point + "/cgroup.controllers")) {
                std::replace(text->begin(), text->end(), '\n', ' ');
                layout.v2_controllers = split(*text, ' ');
            }
        } else if (mount.type == "cgroup") {
            for (const std::string& option : split(mount.options, ','))
                if (std::find(std::begin(v1_controllers), std::end(v1_controllers), option) !=
                    std::end(v1_controllers))
                    layout.v1.emplace(option, mount.point);
        }
    }
    return layout;
}

}  // namespace souk
