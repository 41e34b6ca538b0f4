// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/messages.hpp"

#include "kernel/base/check.hpp"

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
