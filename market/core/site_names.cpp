// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/site_names.hpp"

namespace souk {

Status SiteBorder::hear(NodeName& name) const {
    TRY_ASSIGN(name, heard_from_site(name, from, own));
    return {};
}

Status SiteBorder::hear(Sparse<NodeName>& name) const {
    TRY_ASSIGN(NodeName heard, heard_from_site(*name, from, own));
    name = std::move(heard);
    return {};
}

Status SiteBorder::hear(std::vector<NodeName>& names) const {
    for (NodeName& name : names) TRY(hear(name));
    return {};
}

Status SiteBorder::hear(JobReport& r) const {
    TRY(hear(r.id.home));
    TRY(hear(r.where));
    TRY(hear(r.to));
    TRY(hear(r.places));
    TRY(hear(r.lacking));
    TRY(hear(r.no_user));
    TRY(hear(r.checkpoint_node));
    return hear(r.only_node);
}

Status SiteBorder::hear(SiteJob& word) const {
    TRY(hear(word.report));
    return hear(word.to);
}

Status SiteBorder::hear(OrderFailed& failed) const {
    TRY(hear(failed.id.home));
    return hear(failed.node);
}

Status SiteBorder::hear(Order& order) const {
    TRY(hear(order.id.home));
    return hear(order.node);
}

}  // namespace souk
