// SPDX-License-Identifier: GPL-2.0-or-later
// LiedWorld: a World by seed with two nodes of its own, whose market somebody lies to. Whatever the
// market says or stores can be read.
#pragma once

#include "kernel/base/rng.hpp"
#include "market/store/records.hpp"
#include "market/wire/site_codec.hpp"
#include "tests/unit/market_world.hpp"

namespace souk::market {

struct LiedWorld {
    uint64_t seed;
    Rng rng;
    World w;

    LiedWorld(uint64_t number, MarketOptions (*options)(Rng&))
        : seed(number), rng(number), w(options(rng)) {
        w.calendar = Nanos::from_s(1'700'000'000);
        w.market->set_calendar(w.calendar);
        w.transit = Nanos::from_ms(rng.between(0, 3'000));
        w.sees_record = [this](const JobRecord& r) { check_readable(r); };
        for (const char* name : {"n1", "n2"}) {
            w.add_node(name, 100, rng.between(1, 5), 2, 2'000);
            ProviderReport p = w.providers[name];
            p.version = "1";
            w.set_provider(p);
        }
    }

    template <class T>
    void check_readable(const T& value) {
        const auto back = wire::unpack<T>(wire::pack(value));
        ck_assert_msg(back.has_value(), "seed %lu: %s", static_cast<unsigned long>(seed),
                      back ? "" : back.error().message.c_str());
    }
};

}  // namespace souk::market
