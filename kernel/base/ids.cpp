// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/ids.hpp"

#include "kernel/base/number.hpp"

namespace souk {

bool valid_node_name(std::string_view name) {
    if (name.empty() || name.size() > 32 || name[0] < 'a' || name[0] > 'z') return false;
    return name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") ==
           std::string_view::npos;
}

Result<JobId> parse_job_id(std::string_view text, std::string_view default_home) {
    const auto point = text.rfind('.');
    const std::string_view home =
        point == std::string_view::npos ? default_home : text.substr(0, point);
    const std::string_view number = point == std::string_view::npos ? text : text.substr(point + 1);
    const JobId id{NodeName(home), whole_number<uint64_t>(number).value_or(0)};
    if (id.seq == 0 || !valid_node_name(home))
        return fail("'" + std::string(text) + "' is not a job id: use HOME.NUMBER, such as n1.7");
    return id;
}

}  // namespace souk
