// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/user_turns.hpp"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace souk {
namespace {

// A user whose unpaid time has come to the burst is heard again when half of it is paid, so that
// many short requests share an iteration of the loop, and its commit.
constexpr Nanos turn_burst = Nanos::from_ms(50);

bool has_share(uid_t uid) { return uid != 0 && uid != ::geteuid(); }

}  // namespace

bool UserTurns::has_time(User& user, Nanos now) const {
    const Nanos owes = user.paid - now;
    user.is_out = user.is_out ? owes.ns > turn_burst.ns / 2 : owes >= turn_burst;
    return !user.is_out;
}

bool UserTurns::is_now(uid_t uid) {
    const auto it = users_.find(uid);
    if (it == users_.end() || !has_share(uid)) return true;
    return it->second.waiting.empty() && has_time(it->second, Loop::now());
}

void UserTurns::run(uid_t uid, const std::function<void()>& request) {
    if (!has_share(uid)) return request();
    const Nanos begun = Loop::now();
    request();
    const Nanos now = Loop::now();
    std::erase_if(users_, [&](const auto& u) {
        return u.first != uid && u.second.waiting.empty() && u.second.paid <= now;
    });
    User& user = users_[uid];
    const auto share = 2 * static_cast<int64_t>(users_.size());
    user.paid = std::max(user.paid, begun) + Nanos{(now - begun).ns * share};
}

void UserTurns::later(uid_t uid, std::function<void()> request) {
    users_[uid].waiting.push_back(std::move(request));
    set_timer();
}

void UserTurns::set_timer() {
    Nanos next = Nanos::never();
    for (const auto& [uid, user] : users_)
        if (!user.waiting.empty())
            next = std::min(next, user.is_out ? user.paid - Nanos{turn_burst.ns / 2} : Nanos{});
    if (next == Nanos::never()) return turn_.cancel();
    turn_ = loop_.at(next, [this] { take_turns(); });
}

// One user's turn at a time: what else has come is looked at before the next one's.
void UserTurns::take_turns() {
    const Nanos now = Loop::now();
    User* next = nullptr;
    uid_t uid = 0;
    for (auto& [number, user] : users_) {
        if (user.waiting.empty() || !has_time(user, now)) continue;
        if (next && next->paid <= user.paid) continue;
        next = &user;
        uid = number;
    }
    while (next && !next->waiting.empty() && has_time(*next, Loop::now())) {
        const auto request = std::move(next->waiting.front());
        next->waiting.pop_front();
        run(uid, request);  // keeps this user
    }
    set_timer();
}

}  // namespace souk
