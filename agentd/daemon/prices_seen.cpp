// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/prices_seen.hpp"

#include <cmath>
#include <nlohmann/json.hpp>

namespace souk {
namespace {

using Json = nlohmann::json;

double number(const Json& object, const char* key) {
    const auto it = object.is_object() ? object.find(key) : object.end();
    return it != object.end() && it->is_number() ? it->get<double>() : -1;
}

}  // namespace

Result<std::vector<PriceSeen>> read_prices(const std::string& json, int64_t speed) {
    const Json rows = Json::parse(json, nullptr, false);
    if (!rows.is_array()) return fail("the market's prices are no list");
    std::vector<PriceSeen> all;
    for (const Json& row : rows) {
        const double from = number(row, "from_unix_s");
        const auto speeds = row.is_object() ? row.find("speeds") : row.end();
        if (from < 0 || from > 1e12 || speeds == row.end() || !speeds->is_array()) continue;
        for (const Json& s : *speeds) {  // the fastest first
            const double price = number(s, "price"), open = number(s, "open_s");
            if (number(s, "speed") > static_cast<double>(speed)) continue;
            if (price >= 0 && price <= 1e9 && open >= 60 && open <= 1e7)
                all.push_back({static_cast<int64_t>(from), static_cast<int64_t>(open / 60),
                               Money{static_cast<int64_t>(std::llround(price * 1e6))}});
            break;
        }
    }
    return all;
}

}  // namespace souk
