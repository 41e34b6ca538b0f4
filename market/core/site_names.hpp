// SPDX-License-Identifier: GPL-2.0-or-later
// The names in the words of another site's market (site_offer.hpp), as they are at this site. Each
// market writes them as they are at its own, so that none can name a job or a node of a third one.
// Pure.
#pragma once

#include "market/core/site_offer.hpp"

namespace souk {

struct SiteBorder {
    std::string_view from, own;
    Status hear(NodeName& name) const;
    Status hear(JobReport& report) const;
    Status hear(SiteJob& word) const;
    Status hear(OrderFailed& failed) const;
    Status hear(Order& order) const;

  private:
    Status hear(Sparse<NodeName>& name) const;
    Status hear(std::vector<NodeName>& names) const;
};

}  // namespace souk
