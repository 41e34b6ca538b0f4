// SPDX-License-Identifier: GPL-2.0-or-later
// UserShare: how many connections each user may hold at a socket that all may use. A user has a
// share; what all of them hold together leaves a reserve, which root and the daemon's own user may
// use too. Neither of those two has a share.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>

#include "kernel/base/result.hpp"

namespace souk {

class UserShare {
    struct State;

  public:
    struct Bounds {
        size_t all = 0;      // root's and the daemon's own user's bound
        size_t reserve = 0;  // of these, for root and the daemon's user alone
        size_t each = 0;     // of any other user
    };
    // One connection. It counts until it is dropped.
    class Place {
      public:
        Place() = default;
        ~Place();
        Place(Place&&) = default;
        Place& operator=(Place&& other) noexcept;

      private:
        friend class UserShare;
        Place(std::shared_ptr<State> state, uid_t uid) : state_(std::move(state)), uid_(uid) {}
        std::shared_ptr<State> state_;
        uid_t uid_ = 0;
    };

    explicit UserShare(Bounds bounds);
    // The error is a line for that user.
    Result<Place> take(uid_t uid);

  private:
    std::shared_ptr<State> state_;
};

}  // namespace souk
