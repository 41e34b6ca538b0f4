// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/table.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {
namespace {

// The least price of the machines that are named.
std::string least_price(const Json& site) {
    const Json nodes = site.value("some", Json::array());
    return nodes.empty() ? "" : field(nodes.front(), "next_price");
}

}  // namespace

Result<std::string> site_news_text(const Answer& answer) {
    Table table({{"Site"},
                 {"Age", true},
                 {"Heard from"},
                 {"Nodes", true},
                 {"CPUs", true},
                 {"Price", true},
                 {"Run", true},
                 {"Wait", true}});
    TRY_ASSIGN(const std::string text,
               table.text_of(answer, [](const Json& one) -> std::vector<std::string> {
                   return {field(one, "site"),    duration(one, "age_s"), field(one, "from"),
                           field(one, "nodes"),   field(one, "cpus"),     least_price(one),
                           field(one, "running"), field(one, "waiting")};
               }));
    return text;
}

}  // namespace souk::tools
