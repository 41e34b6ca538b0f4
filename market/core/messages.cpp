// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/messages.hpp"

#include "kernel/base/check.hpp"
#include "kernel/base/json.hpp"

namespace souk {

const char* to_string(JobPhase phase) {
    switch (phase) {
        case JobPhase::waiting: return "waiting";
        case JobPhase::starting: return "starting";
        case JobPhase::running: return "running";
        case JobPhase::moving: return "moving";
        case JobPhase::freezing: return "freezing";
        case JobPhase::frozen: return "frozen";
        case JobPhase::thawing: return "thawing";
        case JobPhase::finished: return "finished";
    }
    MUST(false);
}

void write_near(JsonWriter& w, const ProviderReport& r) {
    if (r.near_group.empty()) return;
    w.field("near_group", r.near_group);
    if (r.near_trip_us > 0) w.field("near_round_trip_us", r.near_trip_us);
    if (r.near_mbit > 0) w.field("near_mbit_per_s", r.near_mbit);
}

const char* to_string(Order::Kind kind) {
    switch (kind) {
        case Order::Kind::run: return "run";
        case Order::Kind::suspend: return "suspend";
        case Order::Kind::abort: return "abort";
        case Order::Kind::give_up: return "give_up";
    }
    MUST(false);
}

}  // namespace souk
