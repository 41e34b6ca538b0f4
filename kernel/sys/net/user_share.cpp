// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/net/user_share.hpp"

#include <unistd.h>

#include <map>
#include <utility>

#include "kernel/base/cause.hpp"

namespace souk {

struct UserShare::State {
    Bounds bounds;
    size_t all = 0;
    std::map<uid_t, size_t> of;
};

UserShare::UserShare(Bounds bounds) : state_(std::make_shared<State>()) { state_->bounds = bounds; }

Result<UserShare::Place> UserShare::take(uid_t uid) {
    State& s = *state_;
    const bool privileged = uid == 0 || uid == ::geteuid();
    const auto held = s.of.find(uid);
    if (!privileged && held != s.of.end() && held->second >= s.bounds.each)
        return fail(CauseCode::too_many,
                    "too many connections of this user: " + std::to_string(held->second) +
                        " are open, and one user may have " + std::to_string(s.bounds.each));
    if (s.all >= s.bounds.all - (privileged ? 0 : s.bounds.reserve))
        return fail("too many connections: try again later");
    ++s.all;
    ++s.of[uid];
    return Place(state_, uid);
}

UserShare::Place::~Place() {
    if (!state_) return;
    --state_->all;
    if (const auto at = state_->of.find(uid_); --at->second == 0) state_->of.erase(at);
}

UserShare::Place& UserShare::Place::operator=(Place&& other) noexcept {
    std::swap(state_, other.state_);
    std::swap(uid_, other.uid_);
    return *this;
}

}  // namespace souk
