// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/cell/allowed_launch.hpp"

#include <sys/resource.h>

namespace souk {

LaunchSpec allowed_launch(const CellSite& site, LaunchSpec launch) {
    if (launch.uid == 0) return launch;
    for (const auto& [resource, most] : site.limits_max) {
        bool told = false;
        for (ResourceLimit& r : launch.rlimits) {
            if (r.resource != resource) continue;
            const rlimit may = bounded(resource, {r.soft, r.hard}, most);
            r = {resource, may.rlim_cur, may.rlim_max};
            told = true;
        }
        if (told) continue;
        rlimit own{};
        ::getrlimit(static_cast<__rlimit_resource>(resource), &own);
        const rlimit may = bounded(resource, own, most);
        launch.rlimits.push_back({resource, may.rlim_cur, may.rlim_max});
    }
    return launch;
}

}  // namespace souk
