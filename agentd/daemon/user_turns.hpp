// SPDX-License-Identifier: GPL-2.0-or-later
// UserTurns: shares the time of this daemon's one thread among the users whose tools ask for
// something. A user has a burst; after it his requests wait, in order, until he has paid for it by
// waiting twice as long as they took, times the number of users who have not paid yet. So all users
// together take at most half of the time, and nobody else waits for one of them longer than for a
// burst and a request. Root and the daemon's own user never wait. Owned by the ToolServer.
#pragma once

#include <sys/types.h>

#include <deque>
#include <functional>
#include <map>

#include "kernel/sys/loop/loop.hpp"

namespace souk {

class UserTurns {
  public:
    explicit UserTurns(Loop& loop) : loop_(loop) {}

    // Whether this user's next request may be done now: he has time left, and none of his waits.
    bool is_now(uid_t uid);
    // Does a request now. Its time is the user's.
    void run(uid_t uid, const std::function<void()>& request);
    // Does it when the user's turn comes. Who calls bounds how many of a user wait.
    void later(uid_t uid, std::function<void()> request);

  private:
    struct User {
        Nanos paid;  // when he has paid for all that was done
        bool is_out = false;
        std::deque<std::function<void()>> waiting;
    };
    bool has_time(User& user, Nanos now) const;
    void take_turns();
    void set_timer();

    Loop& loop_;
    std::map<uid_t, User> users_;
    Timer turn_;
};

}  // namespace souk
