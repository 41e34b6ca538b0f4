// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/pressure.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "kernel/base/number.hpp"

namespace souk {

Result<Nanos> pressure_total(const std::string& text) {
    constexpr std::string_view key = "total=";
    const size_t end = text.find('\n'), at = text.find(key);
    if (!text.starts_with("some ") || at == text.npos || at > end)
        return fail("no line 'some ... total=N'");
    const auto us = leading_number<int64_t>(std::string_view(text).substr(at + key.size()));
    if (!us || *us < 0) return fail("'some ... total=' without a number");
    return Nanos::from_us(*us);
}

// The kernel writes two digits behind the point.
Result<int32_t> pressure_permille(const std::string& text) {
    constexpr std::string_view key = "some avg10=";
    if (!text.starts_with(key)) return fail("no line 'some avg10=N'");
    const std::string_view rest = std::string_view(text).substr(key.size());
    const size_t point = rest.find('.');
    const auto whole = leading_number<int32_t>(rest);
    if (!whole || *whole < 0 || *whole > 100) return fail("'some avg10=' without a percentage");
    const bool tenth =
        point < 4 && point + 1 < rest.size() && rest[point + 1] >= '0' && rest[point + 1] <= '9';
    return std::min(1000, *whole * 10 + (tenth ? rest[point + 1] - '0' : 0));
}

Result<int32_t> memory_pressure_permille() {
    TRY_ASSIGN(const std::string text, read_file(AT_FDCWD, "/proc/pressure/memory"));
    return pressure_permille(text);
}

Result<PressureWatch> PressureWatch::open(const std::string& resource, Nanos limit,
                                          const std::string& group, const OpenDevice& device) {
    PressureWatch watch;
    const std::string path = "/proc/pressure/" + resource;
    TRY_ASSIGN(watch.trigger_, device(resource == "cpu"      ? Device::cpu_pressure
                                      : resource == "memory" ? Device::memory_pressure
                                                             : Device::io_pressure));
    // Windows of 2 s need no privilege.
    const std::string words = "some " + std::to_string(limit.ns / 1'000) + " 2000000";
    if (::write(watch.trigger_.get(), words.c_str(), words.size() + 1) < 0)
        return fail_errno("watch " + path, errno);
    watch.resource_ = resource;
    watch.limit_ = limit;
    if (!group.empty()) watch.group_ = group + "/" + resource + ".pressure";
    watch.begin();
    return watch;
}

// A group without the file (pressure is off there) counts as if it had no stalls.
Nanos PressureWatch::of_others() const {
    const auto read = [](const std::string& path) {
        const auto text = path.empty() ? Result<std::string>("") : read_file(AT_FDCWD, path);
        const auto total = text ? pressure_total(*text) : Result<Nanos>(fail(""));
        return total ? *total : Nanos{};
    };
    return read("/proc/pressure/" + resource_) - read(group_);
}

void PressureWatch::begin() { base_ = of_others(); }

Nanos PressureWatch::over() const {
    const Nanos stalled = of_others() - base_;
    return stalled >= limit_ ? stalled : Nanos{};
}

}  // namespace souk
