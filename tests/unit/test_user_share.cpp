// SPDX-License-Identifier: GPL-2.0-or-later
#include <unistd.h>

#include <vector>

#include "kernel/base/rng.hpp"
#include "kernel/sys/net/user_share.hpp"
#include "tests/unit/unit.hpp"

using namespace souk;

START_TEST(a_user_has_a_share_and_root_a_reserve_whatever_the_others_hold) {
    // Users come and go at random: nobody passes a bound, root is never refused below the whole,
    // and what was given back can be taken again.
    const UserShare::Bounds bounds{40, 8, 12};
    UserShare share(bounds);
    Rng rng(3);
    std::vector<std::pair<uid_t, UserShare::Place>> held;
    const auto count = [&](uid_t uid) {
        size_t n = 0;
        for (const auto& [who, place] : held) n += who == uid;
        return n;
    };
    bool refused_by_share = false, refused_by_reserve = false;
    for (int i = 0; i < 5000; ++i) {
        if (!held.empty() && rng.below(5) < 2) {
            held.erase(held.begin() + static_cast<long>(rng.below(held.size())));
            continue;
        }
        const uid_t uid = rng.below(8) == 0 ? 0 : 1'000'000 + static_cast<uid_t>(rng.below(4));
        auto place = share.take(uid);
        if (uid == 0) {
            ck_assert(place.has_value() == (held.size() < bounds.all));
        } else {
            const bool within = count(uid) < bounds.each,
                       room = held.size() < bounds.all - bounds.reserve;
            ck_assert(place.has_value() == (within && room));
            if (!within)
                ck_assert(place.error().message.starts_with("too many connections of this user"));
            refused_by_share |= !within;
            refused_by_reserve |= within && !room;
        }
        if (place) held.emplace_back(uid, std::move(*place));
    }
    ck_assert(refused_by_share && refused_by_reserve);
}
END_TEST

UNIT_SUITE(user_share, a_user_has_a_share_and_root_a_reserve_whatever_the_others_hold);
