// SPDX-License-Identifier: GPL-2.0-or-later
// The names of what the market's machine and its solver hold: one table for each enum, which the
// compiler checks.
#include "kernel/base/check.hpp"
#include "market/core/market.hpp"

namespace souk::market {

const char* to_string(JobState state) {
    switch (state) {
        case JobState::waiting: return "waiting";
        case JobState::running: return "running";
        case JobState::frozen: return "frozen";
    }
    MUST(false);
}

const char* to_string(Pin pin) {
    switch (pin) {
        case Pin::free: return "free";
        case Pin::stay: return "stay";
        case Pin::frozen: return "frozen";
    }
    MUST(false);
}

const char* to_string(ChangeKind kind) {
    switch (kind) {
        case ChangeKind::start: return "start";
        case ChangeKind::move: return "move";
        case ChangeKind::freeze: return "freeze";
        case ChangeKind::thaw: return "thaw";
    }
    MUST(false);
}

const char* to_string(Cause cause) {
    switch (cause) {
        case Cause::placed: return "placed";
        case Cause::cheaper: return "cheaper";
        case Cause::faster: return "faster";
        case Cause::near_files: return "near_files";
        case Cause::displaced: return "displaced";
        case Cause::below_reserve: return "below_reserve";
        case Cause::provider_gone: return "provider_gone";
        case Cause::no_room: return "no_room";
        case Cause::barred: return "barred";
        case Cause::share: return "share";
        case Cause::pinned: return "pinned";
        case Cause::adopted: return "adopted";
        case Cause::balanced: return "balanced";
    }
    MUST(false);
}

const char* to_string(Hold hold) {
    switch (hold) {
        case Hold::none: return "none";
        case Hold::at_node: return "at_node";
        case Hold::frozen: return "frozen";
        case Hold::stay: return "stay";
        case Hold::by_user: return "by_user";
    }
    MUST(false);
}

const char* to_string(Job::Held held) {
    switch (held) {
        case Job::Held::none: return "none";
        case Job::Held::jobs: return "jobs";
        case Job::Held::cpus: return "cpus";
    }
    MUST(false);
}

const char* to_string(Receipt::Kind kind) {
    switch (kind) {
        case Receipt::Kind::use: return "use";
        case Receipt::Kind::opening: return "opening";
        case Receipt::Kind::deposit: return "deposit";
        case Receipt::Kind::withdrawal: return "withdrawal";
        case Receipt::Kind::transfer: return "transfer";
        case Receipt::Kind::payout: return "payout";
        case Receipt::Kind::allowance: return "allowance";
        case Receipt::Kind::expiry: return "expiry";
        case Receipt::Kind::refund: return "refund";
        case Receipt::Kind::broken: return "broken";
        case Receipt::Kind::settlement: return "settlement";
    }
    MUST(false);
}

const char* to_string(FilterWord::State state) {
    switch (state) {
        case FilterWord::State::none: return "none";
        case FilterWord::State::asked: return "asked";
        case FilterWord::State::passed: return "passed";
        case FilterWord::State::refused: return "refused";
    }
    MUST(false);
}

}  // namespace souk::market
