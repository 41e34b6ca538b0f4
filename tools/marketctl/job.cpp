// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/table.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {

// Whatever the market says of the job, in its order: a new key needs no change here.
Result<std::string> job_text(const Answer& answer) {
    TRY_ASSIGN(const Json job, parse_object(answer));
    std::vector<std::pair<std::string, std::string>> rows;
    for (const auto& [key, value] : job.items()) {
        const bool span = key.ends_with("_s") && value.is_number();
        std::string name = span ? key.substr(0, key.size() - 2) : key;
        for (char& c : name)
            if (c == '_') c = ' ';
        rows.emplace_back(std::move(name), span ? duration(job, key.c_str()) : field(job, key.c_str()));
    }
    return lines(rows);
}

}  // namespace souk::tools
