// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/provider_settings.hpp"

#include <utility>

namespace souk::provider {

namespace {

constexpr int64_t warning_s_max = 86'400;

// A value that the owner can set, in a record, as text.
struct Setting {
    const char* name;
    uint32_t bit;
    std::string (*text)(const ProviderRecord&);
    void (*copy)(const ProviderRecord& from, ProviderRecord& to);
};
const Setting settings[] = {
    {"price", set_price_bit,
     [](const ProviderRecord& r) {
         return r.price_auto ? "auto, at least " + format_money(r.floor) : format_money(r.reserve);
     },
     [](const ProviderRecord& from, ProviderRecord& to) {
         to.reserve = from.reserve;
         to.price_auto = from.price_auto;
         to.floor = from.floor;
     }},
    {"speed", set_speed_bit, [](const ProviderRecord& r) { return std::to_string(r.speed); },
     [](const ProviderRecord& from, ProviderRecord& to) { to.speed = from.speed; }},
    {"cpus", set_cpus_bit, [](const ProviderRecord& r) { return std::to_string(r.cpus); },
     [](const ProviderRecord& from, ProviderRecord& to) { to.cpus = from.cpus; }},
    {"memory", set_memory_bit, [](const ProviderRecord& r) { return std::to_string(r.memory_mb); },
     [](const ProviderRecord& from, ProviderRecord& to) { to.memory_mb = from.memory_mb; }},
    {"frames", set_frames_bit, [](const ProviderRecord& r) { return r.frames; },
     [](const ProviderRecord& from, ProviderRecord& to) {
         if (std::exchange(to.frames, from.frames) == from.frames) return;
         to.by_hand = false;  // new frames rule from now on
         to.since_unix_s = 0;
     }},
    {"zone", set_zone_bit, [](const ProviderRecord& r) { return r.zone; },
     [](const ProviderRecord& from, ProviderRecord& to) { to.zone = from.zone; }},
    {"curve", set_curve_bit, [](const ProviderRecord& r) { return r.curve; },
     [](const ProviderRecord& from, ProviderRecord& to) { to.curve = from.curve; }},
    {"warning", set_warning_bit,
     [](const ProviderRecord& r) { return std::to_string(r.warning_s); },
     [](const ProviderRecord& from, ProviderRecord& to) { to.warning_s = from.warning_s; }},
    {"share", set_share_bit,
     [](const ProviderRecord& r) { return r.share.empty() ? "all" : r.share; },
     [](const ProviderRecord& from, ProviderRecord& to) { to.share = from.share; }},
    {"market", set_market_bit,
     [](const ProviderRecord& r) { return std::string(r.on_market ? "on" : "off"); },
     [](const ProviderRecord& from, ProviderRecord& to) {
         // The word of the owner holds until the next edge of a frame.
         if (!to.by_hand) to.on_market = from.on_market;
     }},
};

}  // namespace

Status check_range(const char* what, int64_t value, int64_t low, int64_t high, const char* why) {
    if (value >= low && value <= high) return {};
    return fail(std::string(what) + " " + std::to_string(value) + " is not from " +
                std::to_string(low) + " to " + std::to_string(high) + why);
}

Status check_price(Money reserve) {
    if (reserve >= Money{} && reserve <= money_max) return {};
    return fail("price " + format_money(reserve) + " is not from 0 to " + format_money(money_max));
}

Status check_speed(int64_t speed) {
    return check_range("speed", speed, 1, provider_speed_max, "; 100 is a standard machine");
}

Status check_warning(int64_t seconds) {
    return check_range("warning", seconds, 0, warning_s_max, " seconds");
}

Status check_record(const ProviderRecord& record) {
    TRY(check_price(record.reserve));
    TRY(check_speed(record.speed));
    TRY(check_range("cpus", record.cpus, 1, INT32_MAX));
    TRY(check_range("memory", record.memory_mb, 1, INT64_MAX));
    TRY(check_price(record.floor));
    TRY(check_price(record.learned));
    return check_warning(record.warning_s);
}

ProviderRecord joined(const ProviderRecord& file, ProviderRecord kept) {
    if (!(kept.set & set_told)) {
        kept.set = set_told;
        for (const Setting& s : settings)
            if (s.text(kept) != s.text(file)) kept.set |= s.bit;
    }
    for (const Setting& s : settings)
        if (!(kept.set & s.bit)) s.copy(file, kept);
    return kept;
}

std::vector<Override> overrides(const ProviderRecord& file, const ProviderRecord& record,
                                bool by_frames) {
    std::vector<Override> all;
    for (const Setting& s : settings) {
        if (!(record.set & s.bit) || s.text(record) == s.text(file)) continue;
        if (s.bit == set_market_bit && by_frames) continue;
        all.push_back({s.name, s.text(record), s.text(file)});
    }
    return all;
}

}  // namespace souk::provider
