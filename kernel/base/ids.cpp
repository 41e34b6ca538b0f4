// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/ids.hpp"

#include "kernel/base/number.hpp"

namespace souk {

bool valid_node_name(std::string_view name) {
    if (name.empty() || name.size() > 32 || name[0] < 'a' || name[0] > 'z') return false;
    return name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") ==
           std::string_view::npos;
}

bool valid_full_node_name(std::string_view name) { return valid_node_name(of_site(name).rest); }

Result<JobId> parse_job_id(std::string_view text, std::string_view default_home) {
    const auto point = text.rfind('.');
    const std::string_view home =
        point == std::string_view::npos ? default_home : text.substr(0, point);
    const std::string_view number = point == std::string_view::npos ? text : text.substr(point + 1);
    const JobId id{NodeName(home), whole_number<uint64_t>(number).value_or(0)};
    if (id.seq == 0 || !valid_full_node_name(home))
        return fail("'" + std::string(text) + "' is not a job id: use HOME.NUMBER, such as n1.7");
    return id;
}

bool valid_site_name(std::string_view name) {
    return !name.empty() && name.size() <= 64 &&
           name.find_first_not_of(
               "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
               std::string_view::npos;
}

OfSite of_site(std::string_view text) {
    const size_t colon = text.find(':');
    if (colon == std::string_view::npos || !valid_site_name(text.substr(0, colon)))
        return {{}, text};
    return {text.substr(0, colon), text.substr(colon + 1)};
}

Result<NodeName> heard_from_site(std::string_view name, std::string_view from,
                                 std::string_view own) {
    if (name.empty()) return NodeName();
    const auto [site, rest] = of_site(name);
    if (!valid_node_name(rest) || (!site.empty() && site != own))
        return fail("'" + std::string(name.substr(0, 100)) + "' is no node of site " +
                    std::string(from) + ", and none of this one");
    return site.empty() ? NodeName(from) + ":" + NodeName(rest) : NodeName(rest);
}

}  // namespace souk
