// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/release.hpp"

#include <algorithm>
#include <optional>

#include "kernel/base/number.hpp"

namespace souk {
namespace {

struct Release {
    int64_t major = -1, minor = -1;
};

// The numbers at the begin of a version, and what they end with.
std::optional<Release> parse_release(std::string_view text) {
    text = text.substr(0, text.find(' '));
    const size_t dot = text.find('.');
    if (dot == text.npos) return std::nullopt;
    const std::string_view rest = text.substr(dot + 1);
    const auto major = whole_number<int32_t>(text.substr(0, dot));
    const auto minor = whole_number<int32_t>(rest.substr(0, rest.find_first_of(".~+-")));
    if (!major || !minor || *major < 0 || *minor < 0) return std::nullopt;
    return Release{*major, *minor};
}

}  // namespace

std::string_view release_of(std::string_view version) {
    return parse_release(version) ? version.substr(0, version.find(' ')) : std::string_view();
}

bool may_run_together(std::string_view version, std::string_view other) {
    const auto a = parse_release(version), b = parse_release(other);
    if (!a || !b || a->major != b->major) return false;
    return std::max(a->minor, b->minor) - std::min(a->minor, b->minor) <= 1;
}

}  // namespace souk
