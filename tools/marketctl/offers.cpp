// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/table.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {

// A job that waits goes where it gets a place.
static Table places_of(const Json& o) {
    Table table(
        {{"Site"}, {"Price", true}, {"Speed", true}, {"Begins in"}, {"Kept for"}, {"Why not"}});
    for (const Json& one : o.value("offers", Json::array())) {
        const bool is_offer = one.contains("price");
        table.add({field(one, "site"), field(one, "price"), field(one, "speed"),
                   is_offer ? duration(one, "starts_in_s") : "",
                   is_offer ? duration(one, "held_s") : "", field(one, "why")});
    }
    return table;
}

// One that runs goes where it gains more than the move costs.
static Table gains_of(const Json& o) {
    Table table({{"Site"},
                 {"Price", true},
                 {"Speed", true},
                 {"Gain", true},
                 {"Move costs", true},
                 {"Why not"}});
    const Json& here = o.at("here");
    table.add({"where it runs", field(here, "price"), field(here, "speed"), "", "", ""});
    for (const Json& one : o.value("offers", Json::array())) {
        const bool in_money = one.contains("gain");
        const std::string times = one.value("twice", false) ? " x 2" : "";
        const std::string gain = in_money ? field(one, "gain") : duration(one, "gain_s"),
                          cost = in_money ? field(one, "cost") : duration(one, "cost_s");
        const bool is_offer = one.contains("price");
        table.add({field(one, "site"), field(one, "price"), field(one, "speed"),
                   is_offer ? gain : "", is_offer ? cost + times : "", field(one, "why")});
    }
    return table;
}

Result<std::string> offers_text(const Answer& answer) {
    TRY_ASSIGN(const Json o, parse_object(answer));
    const std::string sites = field(o, "sites");
    if (sites == "own") return "the job stays at this site (srun -J ID --sites)";
    if (!o.contains("age_s")) return "no other site has been asked yet (" + sites + ")";
    const bool runs = o.contains("here");
    const bool open = o.value("open", false);
    Table table = runs ? gains_of(o) : places_of(o);
    std::string verdict = open   ? "not all have answered yet"
                          : runs ? "no site is worth a move"
                                 : "no site offers a place";
    if (o.contains("best")) verdict = "the best is that of " + field(o, "best");
    return table.text() + "\nasked " + duration(o, "age_s") + " ago; " + verdict;
}

}  // namespace souk::tools
