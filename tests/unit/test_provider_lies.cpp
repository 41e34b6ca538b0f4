// SPDX-License-Identifier: GPL-2.0-or-later
// Sequences of what others bring about at an owner's machine: a market that lies about prices and
// comes and goes, clocks that jump, and homes whose jobs make the machine look as they like. None
// of it changes what the owner has said, asks less than he wants or offers more than he has; each
// record can be read and begun with again, and each report is one that the market takes.
// SOUK_LIES=N: so many seeds, from SOUK_LIES_FROM on.
#include <cstdlib>

#include "agentd/core/provider.hpp"
#include "agentd/daemon/price_learning.hpp"
#include "agentd/store/records.hpp"
#include "kernel/base/json.hpp"
#include "kernel/base/rng.hpp"
#include "market/core/reserve_learner.hpp"
#include "tests/unit/seeds.hpp"
#include "tests/unit/unit.hpp"
#include "tests/unit/wire_samples.hpp"

using namespace souk;

namespace {

constexpr int steps = 150;

struct LiedProvider {
    uint64_t seed;
    Rng rng;
    Hardware machine{8, 16'000, {"x86_64", "6.18", "4.2", 4096, "fpu sse2"}};
    ProviderRecord file;
    std::optional<Provider> provider;
    std::string disk;  // the newest record
    std::optional<bool> accepts;
    Nanos now = Nanos::from_s(100);
    WallTime wall{1'700'000'000, 0};
    int told = 0;  // prices that were learned

    explicit LiedProvider(uint64_t s) : seed(s), rng(s) {
        file.reserve = Money::units(10);
        file.cpus = 4;
        file.memory_mb = 8'000;
        start();
    }

    void check(bool holds, const char* what) const {
        ck_assert_msg(holds, "seed %lu: %s", static_cast<unsigned long>(seed), what);
    }
    void check(const Status& good, const char* what) const {
        ck_assert_msg(good.has_value(), "seed %lu: %s: %s", static_cast<unsigned long>(seed), what,
                      good ? "" : good.error().message.c_str());
    }

    void start() {
        std::optional<ProviderRecord> kept;
        if (!disk.empty()) {
            auto read = wire::unpack<ProviderRecord>(disk);
            check(read ? Status{} : tl::unexpected(read.error()), "its record");
            kept = std::move(*read);
        }
        auto made = Provider::create("n1", machine, file, std::move(kept));
        check(made ? Status{} : tl::unexpected(made.error()), "begins again");
        provider.emplace(std::move(*made));
        accepts.reset();
        step([&](provider::Outputs& out) { provider->started(wall, out); });
    }

    template <class F>
    void step(F f) {
        provider::Outputs out;
        f(out);
        for (const provider::Output& o : out) look(o);
    }
    void look(const provider::Output& o) {
        if (const auto* p = std::get_if<provider::Persist>(&o)) disk = wire::pack(p->record);
        if (const auto* a = std::get_if<provider::Accepting>(&o)) accepts = a->accepting;
        const auto* const r = std::get_if<provider::Report>(&o);
        if (!r) return;
        const ToMarket message(r->report);
        const auto back = wire::unpack_to_market(wire::type_of(message), wire::pack(message));
        check(back ? Status{} : tl::unexpected(back.error()), "a report");
        check(r->report.node == "n1" && r->report.cpus <= provider->record().cpus &&
                  r->report.memory_mb <= provider->record().memory_mb,
              "offers what there is");
        check(r->report.reserve == provider->asked(), "reports what it asks");
        check(!r->report.on_market || provider->record().on_market,
              "is on the market only if its owner wants");
    }

    int64_t any_number() {
        constexpr int64_t edges[] = {0, 1, -1, INT64_MAX, INT64_MIN, 1'000'000, 999'999'999'999};
        return rng.chance(0.5) ? edges[rng.below(std::size(edges))]
                               : static_cast<int64_t>(rng.below(UINT64_MAX)) >> rng.below(63);
    }

    // The owner's own words, between the lies.
    void owner() {
        step([&](provider::Outputs& out) {
            Status done;
            switch (rng.below(8)) {
                case 0: done = provider->set_price(Money::units(rng.between(0, 50)), out); break;
                case 1: done = provider->set_auto(Money::units(rng.between(0, 50)), out); break;
                case 2: done = provider->set_speed(rng.between(1, 300), out); break;
                case 3: done = provider->set_cpus(rng.between(1, 8), out); break;
                case 4: done = provider->set_memory(rng.between(1, 16'000), out); break;
                case 5: done = provider->set_curve("daily 08:00-20:00=20", wall, out); break;
                case 6:
                    done = provider->set_frames(rng.chance(0.5) ? "always" : "daily 09:00-17:00",
                                                wall, out);
                    break;
                default: provider->market(rng.chance(0.7), wall, out);
            }
            check(done, "its owner's word");
        });
    }

    // As the agent learns: from an answer to `prices`, which may be anything.
    std::string any_answer() {
        const auto amount = [&] {
            return rng.chance(0.5)   ? std::to_string(rng.between(0, 100)) + ".5"
                   : rng.chance(0.5) ? std::to_string(any_number())
                                     : std::string(rng.chance(0.5) ? "1e308" : "\"much\"");
        };
        std::string rows;
        for (uint64_t i = rng.below(5); i > 0; --i) {
            rows += std::string(rows.empty() ? "" : ",") + "{\"from_unix_s\":" + amount() +
                    ",\"speeds\":[";
            for (uint64_t k = rng.below(3); k > 0; --k)
                rows += "{\"speed\":" + amount() + ",\"price\":" + amount() +
                        ",\"open_s\":" + amount() + "}" + (k > 1 ? "," : "");
            rows += "]}";
        }
        std::string json = "[" + rows + "]";
        if (rng.chance(0.1)) json.resize(rng.below(json.size() + 1));
        return json;
    }
    void prices() {
        const auto rows = read_prices(any_answer(), provider->record().speed);
        if (!rows) return;
        market::ReserveLearner learner(provider->record().floor, seed);
        for (const PriceSeen& row : *rows) learner.saw(row.price, row.minutes);
        check(learner.price() >= provider->record().floor, "learns no less than the floor");
        const Money learned = rng.chance(0.7) ? learner.price() : Money{any_number()};
        ++told;
        step([&](provider::Outputs& out) { provider->learned(learned, out); });
    }

    void load() {
        const auto permille = [&] { return static_cast<int32_t>(rng.below(1'001)); };
        LoadReading l;
        l.free_mb = rng.between(0, 16'000);
        l.load_permille = permille();
        l.wait_permille = permille();
        l.source = rng.chance(0.5) ? "bpf" : "proc";
        l.owner_permille = permille();
        l.owner_wait_permille = permille();
        l.system_permille = permille();
        l.headroom_permille = permille();
        l.cpus = 8;
        if (rng.chance(0.5)) l.memory_pressure_permille = permille();
        now += Nanos::from_ms(rng.between(0, 40'000));
        step([&](provider::Outputs& out) { provider->set_load(l, now, out); });
    }

    void clock() {
        wall.unix_s =
            rng.chance(0.9) ? wall.unix_s + rng.between(0, 90'000) : rng.between(0, 3'900'000'000);
        wall.second_of_week = static_cast<int32_t>(rng.below(7 * 86'400));
        step([&](provider::Outputs& out) { (void)provider->tick(wall, out); });
        const int64_t next = provider->next_call(wall);
        check(next >= 0 && next <= 3'600, "is called within an hour");
    }

    void trouble() {
        const std::string why = rng.chance(0.5) ? "" : "no room on the disk";
        step([&](provider::Outputs& out) {
            switch (rng.below(4)) {
                case 0: return provider->set_cannot(why, out);
                case 1: return provider->set_leaving(why, out);
                case 2: return provider->set_resting(why, out);
                default: return provider->set_here(rng.chance(0.5), out);
            }
        });
    }

    void lie() {
        ProviderRecord before = provider->record();
        switch (rng.below(6)) {
            case 0:
            case 1: prices(); break;
            case 2: load(); break;
            case 3:
                clock();
                before.on_market = provider->record().on_market;  // by its frames
                before.by_hand = provider->record().by_hand;
                break;
            case 4: trouble(); break;
            default: step([&](provider::Outputs& out) { provider->market_up(out); });
        }
        before.learned = provider->record().learned;
        check(provider->record() == before, "what the owner said is as it was");
        const ProviderRecord& r = provider->record();
        check(!r.price_auto || provider->asked() >= r.floor, "asks no less than the floor");
        check(r.price_auto || !r.curve.empty() || provider->asked() == r.reserve,
              "asks what the owner said");
        const ProviderReport said = provider->report();
        check(!said.on_market || !said.cannot.empty() || accepts.value_or(true),
              "takes jobs when it says so");
        JsonWriter j;
        j.begin_object();
        provider->explain(j);
        j.end_object();
    }
};

}  // namespace

START_TEST(nothing_that_others_bring_about_changes_what_the_owner_has_said) {
    int told = 0;
    for (const uint64_t seed : seeds_of_lies(300)) {
        LiedProvider p(seed);
        for (int i = 0; i < steps; ++i) {
            if (p.rng.chance(0.15))
                p.owner();
            else if (p.rng.chance(0.03))
                p.start();
            else
                p.lie();
        }
        told += p.told;
    }
    ck_assert_int_gt(told, 0);
}
END_TEST

UNIT_SUITE_LONG(provider_lies, 300,
                nothing_that_others_bring_about_changes_what_the_owner_has_said);
