// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/owner_bans.hpp"

#include <algorithm>

namespace souk {

Result<std::string> OwnerBans::entry(std::string_view text) {
    const size_t blank = text.find(' ');
    const std::string kind(text.substr(0, blank));
    const std::string whom(blank == std::string_view::npos ? std::string_view{}
                                                           : text.substr(blank + 1));
    if (kind != "user" && kind != "program" && kind != "job")
        return fail("'" + kind + "' is not one of user, program, job");
    if (whom.empty() || whom.size() > entry_bytes_max)
        return fail(kind + ": a name of at most " + std::to_string(entry_bytes_max) +
                    " characters is wanted");
    if (std::any_of(whom.begin(), whom.end(), [](unsigned char c) { return c < ' ' || c == 127; }))
        return fail(kind + ": a name has no control characters");
    if (kind == "job") TRY(parse_job_id(whom));
    return kind + " " + whom;
}

std::string_view OwnerBans::refuses(const std::vector<std::string>& bans, const Job& job) {
    const size_t slash = job.program.rfind('/');
    const std::string last =
        slash == std::string::npos ? job.program : job.program.substr(slash + 1);
    for (const std::string& all :
         {"user " + job.user, "user " + job.realm + "/" + job.user, "program " + job.program,
          "program " + last, "job " + job.id.text()})
        if (const auto it = std::find(bans.begin(), bans.end(), all); it != bans.end()) return *it;
    return {};
}

}  // namespace souk
