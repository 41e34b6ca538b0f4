// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/resource_reply.hpp"

#include <algorithm>

namespace souk {

void write_resources(JsonWriter& w, const std::vector<ResourceOffer>& all,
                     const std::function<int64_t(const std::string& name)>& taken) {
    w.key("resources").begin_object();
    for (const ResourceOffer& one : all) {
        w.key(one.name).begin_object().field("count", one.count);
        w.field("free", std::max<int64_t>(0, one.count - taken(one.name)));
        w.field("reserve", one.reserve);
        if (one.device) w.field("device", true);
        w.end_object();
    }
    w.end_object();
}

}  // namespace souk
