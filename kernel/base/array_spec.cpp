// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/array_spec.hpp"

#include <algorithm>

#include "kernel/base/number.hpp"

namespace souk {

Result<ArraySpec> parse_array(std::string_view text) {
    constexpr uint32_t index_max = 1'000'000;
    constexpr size_t indexes_max = 10'000;
    const auto bad = [&](const char* why) { return fail("'" + std::string(text) + "' " + why); };
    ArraySpec spec;
    std::string_view list = text.substr(0, text.find('%'));
    if (list.size() < text.size()) {
        const auto n = whole_number<uint32_t>(text.substr(list.size() + 1));
        if (!n || *n == 0) return bad("has no number above 0 after %");
        spec.at_once = *n;
    }
    while (true) {
        const std::string_view part = list.substr(0, list.find(','));
        const std::string_view range = part.substr(0, part.find(':'));
        const auto step = range.size() < part.size()
                              ? whole_number<uint32_t>(part.substr(range.size() + 1))
                              : std::optional(1U);
        const size_t dash = std::min(range.find('-'), range.size());
        const auto from = whole_number<uint32_t>(range.substr(0, dash));
        const auto to = dash < range.size() ? whole_number<uint32_t>(range.substr(dash + 1)) : from;
        if (!from || !to || *from > *to || !step || *step == 0 || *step > index_max)
            return bad("is no list of indexes such as 1-100, 0-100:10, 1,3,7-9 or 1-100%8");
        if (*to > index_max) return bad("has an index above 1000000");
        if (spec.indexes.size() + (*to - *from) / *step >= indexes_max)
            return bad("has more than 10000 indexes");
        for (uint32_t i = *from; i <= *to; i += *step) spec.indexes.push_back(i);
        if (part.size() == list.size()) break;
        list.remove_prefix(part.size() + 1);
    }
    std::sort(spec.indexes.begin(), spec.indexes.end());
    if (std::adjacent_find(spec.indexes.begin(), spec.indexes.end()) != spec.indexes.end())
        return bad("has an index twice");
    return spec;
}

}  // namespace souk
