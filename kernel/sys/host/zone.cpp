// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/zone.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <optional>

namespace souk {
namespace {

constexpr size_t zone_name_max = 64;

std::string database() {
    const char* set = std::getenv("TZDIR");
    return set && *set ? set : "/usr/share/zoneinfo";
}

// The zone of this process, for as long as this lives.
class InZone {
  public:
    explicit InZone(const std::string& zone) {
        if (zone.empty()) return;
        if (const char* now = std::getenv("TZ")) before_ = now;
        set_ = true;
        ::setenv("TZ", (":" + zone).c_str(), 1);
        ::tzset();
    }
    ~InZone() {
        if (!set_) return;
        if (before_)
            ::setenv("TZ", before_->c_str(), 1);
        else
            ::unsetenv("TZ");
        ::tzset();
    }
    InZone(const InZone&) = delete;
    InZone& operator=(const InZone&) = delete;

  private:
    bool set_ = false;
    std::optional<std::string> before_;
};

}  // namespace

Status known_zone(const std::string& zone) {
    if (zone.empty()) return {};
    const bool plain = zone.size() <= zone_name_max && zone.front() != '/' &&
                       zone.find("..") == std::string::npos &&
                       std::all_of(zone.begin(), zone.end(), [](unsigned char c) {
                           return std::isalnum(c) || c == '/' || c == '_' || c == '-' || c == '+';
                       });
    struct stat file {};
    if (plain && ::stat((database() + "/" + zone).c_str(), &file) == 0 && S_ISREG(file.st_mode))
        return {};
    return fail("'" + zone +
                "' is no time zone that this machine knows; write for example "
                "Europe/Berlin (" +
                database() + " lists them)");
}

int32_t second_of_week(const std::string& zone, int64_t unix_s) {
    const InZone in(zone);
    const time_t now = unix_s;
    tm local{};
    ::localtime_r(&now, &local);
    const int day = (local.tm_wday + 6) % 7;  // from Monday
    return day * 86'400 + local.tm_hour * 3600 + local.tm_min * 60 + std::min(local.tm_sec, 59);
}

Nanos ahead_of_utc(const std::string& zone, int64_t unix_s) {
    const InZone in(zone);
    const time_t now = unix_s;
    tm local{};
    ::localtime_r(&now, &local);
    return Nanos::from_s(local.tm_gmtoff);
}

}  // namespace souk
