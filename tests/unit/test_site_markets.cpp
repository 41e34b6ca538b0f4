// SPDX-License-Identifier: GPL-2.0-or-later
// Random markets of three and four sites with owners, bids, breaks, restarts and orders that fail
// (docs/sites.md, "Bounds"). Their judge holds the bound of moves, that each is worth its cost,
// that nothing bounces, and that the markets agree in the end. SOUK_SITE_GAINS=N plays N of them,
// SOUK_SITE_GAINS_FROM=S begins with seed S.
#include "kernel/base/rng.hpp"
#include "tests/unit/site_net.hpp"

using namespace souk;
using namespace souk::market;

namespace {

constexpr Nanos s(int64_t v) { return Nanos::from_s(v); }

// Three or four sites at random, and their judge.
struct Bazaar : SiteNet {
    Rng rng;
    std::vector<std::string> names;
    std::map<std::string, std::vector<JobId>> jobs;
    std::map<std::string, std::map<JobId, std::map<std::string, Nanos>>> left;  // site, when
    size_t gains = 0, back = 0, compared = 0, most_trips = 0, looked = 0;
    bool calm = false;

    static std::vector<std::string> names_of(uint64_t seed) {
        return seed % 2 ? std::vector<std::string>{"a", "b", "c"}
                        : std::vector<std::string>{"a", "b", "c", "d"};
    }
    explicit Bazaar(uint64_t seed) : SiteNet(names_of(seed)), rng(seed), names(names_of(seed)) {
        delay = [this] { return Nanos::from_ms(rng.between(0, calm ? 500 : 4'000)); };
        decided = [this](Site& x, const JobId& id, const Gain& g) { is_worth(x, id, g); };
        for (auto& [name, site] : sites) {
            site.terms.most_cpus = static_cast<int32_t>(rng.between(1, 4));
            site.w.transit = Nanos::from_ms(rng.between(0, 3'000));
            site.w.refuse = [this](const Order& o) -> std::optional<OrderFailed> {
                if (calm || !rng.chance(0.05)) return std::nullopt;
                return OrderFailed{o.id, o.seq, o.node, "no"};
            };
            for (int64_t n = 1, most = rng.between(1, 3); n <= most; ++n)
                site.w.add_node("n" + std::to_string(n), rng.between(1, 8) * 50, rng.between(0, 20),
                                static_cast<int32_t>(rng.between(1, 2)));
        }
        run(s(5));
    }
    // Each move of a running job is worth its cost by the user's own measure, from the place where
    // it truly is, and twice that where it was within the hour.
    void is_worth(Site& x, const JobId& id, const Gain& g) {
        if (!g.ran) return;
        const JobReport& r = x.w.jobs.at(id).report;
        const std::string from(of_site(r.where).site);
        ck_assert(from != g.to && !r.terms.sites->stays);
        ck_assert(g.to.empty() || is_wished(*r.terms.sites, g.to));
        // The speed of a machine elsewhere is as when it was ordered there.
        if (from.empty()) ck_assert(g.move.here.speed == x.w.providers.at(r.where).speed);
        ck_assert(g.move.cheapest == r.terms.sites->cheapest && g.move.bid == r.terms.max_price);
        ck_assert(g.offer.price <= r.terms.max_price);
        SiteMove truth = g.move;
        truth.lately.clear();
        const auto was = left[x.name][id].find(g.to);
        if (was != left[x.name][id].end() && now < was->second + s(3'500)) truth.lately = {g.to};
        ck_assert_msg(worth(truth, stay_of(g.offer), g.to) > -1'000, "%s of %s: %s",
                      id.text().c_str(), x.name.c_str(),
                      gain_of(truth, stay_of(g.offer), g.to).text(g.to).c_str());
        ++gains;
        back += g.to.empty();
    }
    void note_left() {
        for (const auto& [name, of] : changes)
            for (const auto& [id, all] : of)
                for (size_t i = 0; i < all.size(); ++i)
                    left[name][id][i == 0 ? std::string() : all[i - 1].to] = all[i].at;
    }
    // No more trips than the bound in any span, and none but from home or to it.
    void is_bounded() {
        for (const auto& [name, of] : changes)
            for (const auto& [id, all] : of) {
                std::vector<Nanos> out;
                std::string at;
                for (const Change& c : all) {
                    ck_assert_msg(at.empty() || c.to.empty(), "%s goes from %s to %s",
                                  id.text().c_str(), at.c_str(), c.to.c_str());
                    if (!c.to.empty()) out.push_back(c.at);
                    at = c.to;
                }
                most_trips = std::max(most_trips, out.size());
                for (size_t i = 0; i < out.size(); ++i)
                    for (size_t j = i; j < out.size(); ++j) {
                        const int64_t most = LentJobs::trips_at_once +
                                             (out[j] - out[i] + s(60)).ns / LentJobs::trip_apart.ns;
                        ck_assert_msg(static_cast<int64_t>(j - i + 1) <= most,
                                      "%s of %s: %zu trips in %f s", id.text().c_str(),
                                      name.c_str(), j - i + 1, (out[j] - out[i]).seconds());
                    }
                ck_assert(all.size() <= 2 * out.size());
            }
    }
    // While nothing is under way: a site's own job that could run does not wait beside a job of
    // another site that bids less.
    void own_come_first() {
        for (const auto& [name, site] : sites) {
            const Market& market = *site.w.market;
            const auto& all = market.jobs();
            if (market.settling() || std::ranges::any_of(all, [](const auto& one) {
                    return one.second.record.order || is_on_its_way(one.second);
                }))
                continue;
            for (const auto& [id, own] : all) {
                const bool waits = own.phase() == JobPhase::waiting ||
                                   (own.phase() == JobPhase::frozen &&
                                    of_site(own.record.report.where).site.empty());
                if (is_of_site(id) || !waits || is_lent(own) || !own.reported ||
                    !own.failed->bars.empty() || own.failed->stuck.active)
                    continue;
                for (const auto& [other, guest] : all) {
                    // One whose freeze has just failed is tried again after a pause.
                    if (!is_of_site(other) || guest.phase() != JobPhase::running ||
                        guest.failed->stuck.active)
                        continue;
                    const Node* const node = market.find_node(guest.record.report.where);
                    if (!node || !Places::usable(*node) || !guest.reported) continue;
                    ++compared;
                    const bool wins = own.bid > guest.bid && own.bid >= node->record.report.reserve;
                    ck_assert_msg(!wins, "%s: %s waits at %ld beside %s at %ld: %s", name.c_str(),
                                  id.text().c_str(), own.bid.micro, other.text().c_str(),
                                  guest.bid.micro, market.comment(own).c_str());
                }
            }
        }
    }
    // While no word is under way, one market at most has each job run on its nodes.
    void one_has_it() {
        const auto is_out = [](const auto& way) { return !way.second.empty(); };
        if (std::ranges::any_of(ways, is_out)) return;
        for (const std::string& one : names)
            for (const std::string& other : names)
                if (one < other && !is_up(one, other)) return;
        for (const auto& [name, of] : jobs)
            for (const JobId& id : of) {
                std::string have;
                size_t n = 0;
                for (auto& [other, peer] : sites) {
                    const JobId there = other == name ? id : JobId{name + ":" + id.home, id.seq};
                    const Job* const job = peer.w.market->find(there);
                    if (!job || job->phase() != JobPhase::running ||
                        !of_site(job->record.report.where).site.empty())
                        continue;
                    have += " " + other;
                    ++n;
                }
                ck_assert_msg(n <= 1, "%s of %s runs at%s", id.text().c_str(), name.c_str(),
                              have.c_str());
                looked += n;
            }
    }
    std::string any() { return names[rng.below(names.size())]; }
    NodeName any_node(const std::string& site) {
        const std::vector<NodeName> nodes = own_nodes(at(site));
        return nodes[rng.below(nodes.size())];
    }
    void event() {
        const std::string x = any(), y = any();
        switch (rng.below(10)) {
            case 0:
            case 1: {
                if (jobs[x].size() >= 6) break;
                SiteWish wish{rng.chance(0.8) ? "any" : y, rng.chance(0.4)};
                wish.stays = rng.chance(0.1);
                if (rng.chance(0.1)) wish = {};
                const Nanos work = rng.chance(0.4) ? s(rng.between(60, 6'000)) : Nanos::never();
                jobs[x].push_back(submit(x, rng.between(5, 60), work, wish));
                break;
            }
            case 2:
            case 3:
            case 4: {
                ProviderReport r = at(x).w.providers.at(any_node(x));
                if (rng.chance(0.2)) r.on_market = !r.on_market;
                if (rng.chance(0.5)) r.reserve = Money::units(rng.between(0, 30));
                if (rng.chance(0.4)) r.speed = rng.between(1, 8) * 50;
                at(x).w.set_provider(r);
                break;
            }
            case 5: {
                if (jobs[x].empty()) break;
                World::HomeJob& job = at(x).w.jobs.at(jobs[x][rng.below(jobs[x].size())]);
                job.report.terms.max_price = Money::units(rng.between(5, 60));
                if (job.report.phase != JobPhase::finished) at(x).w.tell(job);
                break;
            }
            case 6:
                if (x != y && !calm) set_link(x, y, !is_up(x, y));
                break;
            case 7:
                if (rng.chance(0.1)) restart(x);
                break;
            case 8:
                for (const std::string& one : names)
                    for (const std::string& other : names)
                        if (one < other) set_link(one, other, true);
                break;
            default: break;
        }
    }
    void heal() {
        calm = true;
        for (const std::string& one : names)
            for (const std::string& other : names)
                if (one < other) set_link(one, other, true);
        for (auto& [name, site] : sites)
            for (const NodeName& node : own_nodes(site)) {
                ProviderReport r = site.w.providers.at(node);
                r.on_market = true;
                site.w.set_provider(r);
            }
    }
    size_t moves() const {
        size_t n = 0;
        for (const auto& [name, of] : changes)
            for (const auto& [id, all] : of) n += all.size();
        return n;
    }
    // Both sites say the same of each job.
    void agree() {
        for (auto& [name, site] : sites)
            for (const JobId& id : jobs[name]) {
                const JobReport& r = site.w.jobs.at(id).report;
                const std::string there(r.phase == JobPhase::running ? of_site(r.where).site : "");
                for (auto& [other, peer] : sites) {
                    if (other == name) continue;
                    const Job* const guest = peer.w.market->find({name + ":" + id.home, id.seq});
                    const bool has = guest && guest->phase() == JobPhase::running;
                    ck_assert_msg(has == (other == there), "%s of %s runs at '%s', and %s: %s",
                                  id.text().c_str(), name.c_str(), there.c_str(), other.c_str(),
                                  guest ? to_string(guest->phase()) : "unknown");
                }
                if (const Job* const own = site.w.market->find(id))
                    ck_assert_msg(own->record.loan->site == there, "%s of %s: '%s' and '%s'",
                                  id.text().c_str(), name.c_str(), there.c_str(),
                                  own->record.loan->site.c_str());
            }
    }
};

struct Played {
    size_t gains = 0, back = 0, moves = 0, compared = 0, looked = 0, most_trips = 0;
};

void play(uint64_t seed, Played& sum) {
    Bazaar b(seed);
    for (const Nanos end = b.now + s(2 * 3'600); b.now < end;) {
        b.event();
        for (int64_t n = b.rng.between(1, 60); n > 0; --n) {
            b.step();
            b.note_left();
            b.own_come_first();
            b.one_has_it();
        }
    }
    // With owners and bids as they are all comes to rest: the last hour sees no move.
    b.heal();
    for (const auto& [name, of] : b.jobs)  // what ends gives room, so that others move
        for (const JobId& id : of) b.at(name).w.jobs.at(id).work = Nanos::never();
    b.run(s(2 * 3'600));
    const size_t before = b.moves();
    b.run(s(3'600));
    ck_assert_msg(b.moves() == before, "seed %d: %zu moves at rest", static_cast<int>(seed),
                  b.moves() - before);
    b.agree();
    b.own_come_first();
    b.is_bounded();
    sum.gains += b.gains;
    sum.back += b.back;
    sum.moves += b.moves();
    sum.compared += b.compared;
    sum.looked += b.looked;
    sum.most_trips = std::max(sum.most_trips, b.most_trips);
    // All end, once, and nobody has a job that is no more.
    for (const auto& [name, of] : b.jobs)
        for (const JobId& id : of)
            if (b.at(name).w.market->find(id)) (void)b.at(name).w.market->cancel(id, 0);
    b.run(s(120));
    for (auto& [name, site] : b.sites) {
        for (const auto& [id, job] : site.w.jobs)
            ck_assert_msg(job.report.phase == JobPhase::finished, "%s of %s is %s",
                          id.text().c_str(), name.c_str(), to_string(job.report.phase));
        for (const auto& [id, job] : site.w.market->jobs())
            ck_assert_msg(job.phase() == JobPhase::finished && job.record.loan->site.empty(),
                          "%s at %s", id.text().c_str(), name.c_str());
    }
}

}  // namespace

START_TEST(random_markets_move_jobs_within_the_bound_for_gains_alone_and_come_to_rest) {
    const char* const wished = getenv("SOUK_SITE_GAINS");
    const uint64_t seeds = wished ? std::stoull(wished) : 8;
    const char* const from = getenv("SOUK_SITE_GAINS_FROM");
    const uint64_t first = from ? std::stoull(from) : 1;
    Played sum;
    for (uint64_t seed = first; seed < first + seeds; ++seed) {
        if (wished) fprintf(stderr, "seed %d\n", static_cast<int>(seed));
        play(seed, sum);
    }
    if (wished)
        fprintf(stderr,
                "%zu gains, %zu of them back home, %zu moves, %zu trips of one job at most\n"
                "%zu own jobs beside guests, %zu looks at who has a job\n",
                sum.gains, sum.back, sum.moves, sum.most_trips, sum.compared, sum.looked);
    // The judge has had something to judge.
    if (seeds < 8) return;
    ck_assert(sum.gains > 40 && sum.back > 10 && sum.moves > 150);
    ck_assert_msg(sum.compared > 1'000 && sum.looked > 1'000 && sum.most_trips >= 6,
                  "%zu, %zu and %zu trips", sum.compared, sum.looked, sum.most_trips);
}
END_TEST

UNIT_SUITE_LONG(site_markets, 240,
                random_markets_move_jobs_within_the_bound_for_gains_alone_and_come_to_rest);
