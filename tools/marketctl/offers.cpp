// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/table.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {

Result<std::string> offers_text(const Answer& answer) {
    TRY_ASSIGN(const Json o, parse_object(answer));
    const std::string sites = field(o, "sites");
    if (sites == "own") return "the job stays at this site (srun -J ID --sites)";
    if (!o.contains("age_s")) return "no other site has been asked yet (" + sites + ")";
    Table table(
        {{"Site"}, {"Price", true}, {"Speed", true}, {"Begins in"}, {"Kept for"}, {"Why not"}});
    for (const Json& one : o.value("offers", Json::array())) {
        const bool is_offer = one.contains("price");
        table.add({field(one, "site"), field(one, "price"), field(one, "speed"),
                   is_offer ? duration(one, "starts_in_s") : "",
                   is_offer ? duration(one, "held_s") : "", field(one, "why")});
    }
    const bool open = o.value("open", false);
    std::string verdict = open ? "not all have answered yet" : "no site offers a place";
    if (o.contains("best")) verdict = "the best is that of " + field(o, "best");
    return table.text() + "\nasked " + duration(o, "age_s") + " ago; " + verdict;
}

}  // namespace souk::tools
