// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/resident.hpp"

#include <algorithm>
#include <optional>
#include <string>

#include "kernel/base/number.hpp"

namespace souk {
namespace {
// "Pss:      260 kB", in bytes.
std::optional<uint64_t> value_of(std::string_view text, std::string_view name) {
    const size_t line = text.find("\n" + std::string(name) + ":");
    if (line == std::string_view::npos) return std::nullopt;
    const size_t at = text.find_first_not_of(" \t", line + name.size() + 2);
    if (at == std::string_view::npos) return std::nullopt;
    const auto kilobytes = leading_number<uint64_t>(text.substr(at));
    return kilobytes ? std::optional(*kilobytes << 10) : std::nullopt;
}
}  // namespace

// The bound holds because a page that n processes map counts n - 1 times too often in `anonymous`,
// and n is at least 2.
uint64_t Resident::shared_max() const {
    return std::min(anonymous - std::min(anonymous, anonymous_proportional),
                    anonymous_proportional);
}

Result<Resident> parse_rollup(std::string_view text) {
    const auto all = value_of(text, "Pss"), anonymous = value_of(text, "Anonymous");
    if (!all || !anonymous) return fail("the kernel does not tell how much memory is shared");
    return Resident{*all, *anonymous, value_of(text, "Pss_Anon").value_or(*anonymous)};
}

Result<Resident> resident_of(const PidsInside& pids, const LookAt& look) {
    TRY_ASSIGN(const auto seen, look(pids, {.sums = true, .runs = true, .files_max = 0}));
    Resident sum;
    bool any = false;
    for (const SeenProcess& process : seen) {
        if (process.sums.empty()) continue;  // gone, or a zombie
        TRY_ASSIGN(const Resident one, parse_rollup(process.sums));
        sum.proportional += one.proportional;
        sum.anonymous += one.anonymous;
        sum.anonymous_proportional += one.anonymous_proportional;
        any = true;
    }
    if (!any) return fail("none of the processes is there");
    return sum;
}

}  // namespace souk
