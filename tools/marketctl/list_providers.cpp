// SPDX-License-Identifier: GPL-2.0-or-later
#include <map>

#include "kernel/base/release.hpp"
#include "tools/common/table.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {
namespace {

constexpr size_t named_max = 8;
constexpr int worth_permille = 100;  // of memory pressure
// Nodes of one version, which is not the market's.
struct Others {
    std::string market, nodes;
    size_t count = 0;
    bool far = false;
};

std::string release(const Json& provider) {
    const std::string version = provider.value("version", "");
    const std::string_view release = release_of(version);
    return release.empty() ? "-" : std::string(release);
}

std::string line_of(const std::string& version, const Others& o) {
    std::string line = "agentd " + (version.empty() ? "of a version before 0.1" : version) +
                       ", the market " + o.market + ":" + o.nodes;
    if (o.count > named_max) line += " and " + std::to_string(o.count - named_max) + " more";
    if (o.far) line += " (more than one step apart: bring both to one version)";
    return line;
}

}  // namespace

std::string resources_text(const Json& has) {
    std::string text;
    const Json all = has.value("resources", Json::object());
    for (const auto& [name, one] : all.items()) {
        text += (text.empty() ? "" : ", ") + name + " " + field(one, "free") + " of " +
                field(one, "count") + " free";
        if (one.value("reserve", 0.0) > 0) text += " at " + field(one, "reserve") + " an hour each";
    }
    return text;
}

Result<std::string> providers_text(const Answer& providers) {
    Table table({{"Node"},
                 {"Address"},
                 {"Status", false, true},
                 {"Min", true},
                 {"Curr", true},
                 {"Next", true},
                 {"Speed", true},
                 {"CPUs", true},
                 {"Memory", true},
                 {"Free", true},
                 {"Load", true},
                 {"Guests", true},
                 {"Earned", true},
                 {"Version"}});
    TRY_ASSIGN(std::string text,
               table.text_of(providers, [](const Json& p) -> std::vector<std::string> {
                   return {field(p, "node"),
                           field(p, "address"),
                           node_state(p),
                           field(p, "reserve"),
                           field(p, "current_price"),
                           field(p, "next_price"),
                           field(p, "speed"),
                           field(p, "cpus"),
                           megabytes(p, "memory_mb"),
                           megabytes(p, "free_mb"),
                           percent(p, "load_permille"),
                           field(p, "guests"),
                           field(p, "earned"),
                           release(p)};
               }));
    // Facts that fit into no column follow the table.
    std::map<std::string, Others> others;
    for (const std::string& part : providers)
        for (const Json& p : parse_json(part)) {
            if (p.contains("near_group"))
                text += "\n" + field(p, "node") + ": is near " + near_text(p);
            if (p.contains("resources"))
                text += "\n" + field(p, "node") + ": has " + resources_text(p);
            for (const Json& name : p.value("of_market", Json::array()))
                text += "\n" + field(p, "node") + ": its own " + name.get<std::string>() +
                        " is given to nobody, as the market has that name";
            if (p.contains("restriction"))
                text += "\n" + field(p, "node") + ": " + field(p, "restriction");
            if (p.value("memory_pressure_permille", 0) >= worth_permille)
                text += "\n" + field(p, "node") +
                        ": its programs stood still for want of memory in " +
                        percent(p, "memory_pressure_permille") + " of the last 10 s";
            if (!p.value("certificate", true))
                text += "\n" + field(p, "node") + ": comes without a certificate (souk setup node)";
            if (!p.contains("market_version")) continue;
            Others& o = others[p.value("version", "")];
            o.market = field(p, "market_version");
            o.far = p.value("far", false);
            if (o.count++ < named_max) o.nodes += " " + field(p, "node");
        }
    for (const auto& [version, o] : others) text += "\n" + line_of(version, o);
    return text;
}

}  // namespace souk::tools
