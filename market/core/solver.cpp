// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/solver.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "kernel/base/check.hpp"
#include "market/core/algorithm.hpp"
#include "market/core/least_bids.hpp"
#include "market/core/named_rooms.hpp"
#include "market/core/pricing.hpp"
#include "market/core/pricing_integral.hpp"
#include "market/core/pricing_unit.hpp"

namespace souk::market {

namespace {
enum class PricingRule { critical, first, uniform };
// In the order of the enumeration.
constexpr std::array<std::string_view, 3> pricing_names{"critical", "first", "uniform"};

Error unknown(std::string_view what, std::span<const std::string_view> names,
              const std::string& name) {
    std::string known;
    for (const auto n : names) known += (known.empty() ? "" : ", ") + std::string(n);
    return Error{0, std::string(what) + " '" + name + "' is not known (" + known + ")"};
}

Result<const AlgorithmEntry*> find_algorithm(const std::string& name) {
    for (const AlgorithmEntry& entry : algorithm_registry())
        if (name == entry.name || (name == entry.alias && !name.empty())) return &entry;
    return tl::unexpected(unknown("algorithm", Solver::algorithms(), name));
}

Result<PricingRule> find_pricing(const std::string& name) {
    for (size_t i = 0; i < pricing_names.size(); ++i)
        if (pricing_names[i] == name) return static_cast<PricingRule>(i);
    return tl::unexpected(unknown("pricing", pricing_names, name));
}

bool is_weight(int32_t w) { return w >= weight_plain && w <= weight_most; }

bool valid(Money m) { return m.micro >= 0 && m <= money_max; }

bool valid(const FileTraffic& f) {
    return f.bytes_per_s >= 0 && f.bytes_per_s <= FileTraffic::bytes_most &&
           f.requests_per_s >= 0 && f.requests_per_s <= FileTraffic::requests_most &&
           f.round_trip.ns >= 0 && f.round_trip <= FileTraffic::round_trip_most;
}

// In the order of their names, and each in its range.
template <class Named>
bool valid_named(const std::vector<Named>& all, int32_t least) {
    for (size_t i = 0; i < all.size(); ++i)
        if (all[i].count < least || all[i].count > NamedAmount::count_max ||
            (i > 0 && all[i - 1].name >= all[i].name))
            return false;
    return true;
}

bool valid(const NamedOffers& all) {
    return valid_named(all, 0) && std::all_of(all.begin(), all.end(), [](const NamedOffer& one) {
               return one.reserve.micro >= 0 && one.reserve <= money_max;
           });
}

bool valid(const JobDemand& s) {
    return valid(s.value) && s.cpus >= 1 && s.cpus <= cpus_max && s.memory_mb >= 0 &&
           s.memory_mb <= memory_mb_max && s.move_bytes >= -1 &&
           s.move_bytes <= memory_mb_max * 1'000'000 && s.dirty_bytes_per_s >= -1 &&
           is_weight(s.weight) && valid(s.files) && valid_named(s.named, 1) &&
           valid_named(s.licences, 1) &&
           (s.place.n != 0 || (s.state != JobState::running && s.pin != Pin::stay));
}

bool valid(const ProviderSpec& s) {
    return valid(s.reserve) && s.speed >= 1 && s.speed <= speed_max && s.cpus >= 1 &&
           s.cpus <= cpus_max && s.memory_mb >= 0 && s.memory_mb <= memory_mb_max &&
           s.network <= ProviderSpec::network_max && s.trip_us >= 0 && s.mbit >= 0 &&
           valid(s.named);
}
// The algorithm in force; a copy has one of its own.
struct InForce {
    const AlgorithmEntry* entry = &algorithm_registry().front();
    std::unique_ptr<Algorithm> algorithm = entry->make();

    InForce() = default;
    InForce(const InForce& other) : entry(other.entry), algorithm(other.algorithm->copy()) {}
    InForce& operator=(const InForce& other) {
        if (this == &other) return *this;
        entry = other.entry;
        algorithm = other.algorithm->copy();
        return *this;
    }
    Algorithm* operator->() const { return algorithm.get(); }
};

}  // namespace

struct Solver::Impl {
    SolverOptions options;
    InForce algorithm;
    PricingRule pricing = PricingRule::critical;
    Allocator market;
    std::vector<Money> prices;  // by job index, of market.version() == priced
    uint64_t priced = UINT64_MAX;
    uint64_t pricing_steps = 0;
    std::vector<Money> closed_prices;  // of market.version() == closed
    std::vector<bool> closed_done;
    uint64_t closed = UINT64_MAX;
    bool closed_all = false;
    // prices that were asked for one by one, of market.version() == priced_alone
    std::map<uint32_t, Money> alone;
    uint64_t priced_alone = UINT64_MAX;

    const std::vector<Money>& current_prices() {
        if (priced == market.version()) return prices;
        pricing_steps = market.job_count();
        reckon_closed(true);
        prices = closed_prices;
        if (pricing == PricingRule::critical)
            pricing_steps =
                integral_prices(market, prices, closed_done, algorithm->bidders_are_users()) +
                static_cast<uint64_t>(std::count(closed_done.begin(), closed_done.end(), true));
        priced = market.version();
        return prices;
    }
    // Reckons what a closed form gives, and for whom: at first only where that is quick, for the
    // ranked jobs.
    void reckon_closed(bool all) {
        if (closed != market.version()) {
            closed = market.version();
            closed_all = pricing != PricingRule::critical || !market.ranks_price();
            closed_done.assign(market.jobs().size(), true);
            if (pricing == PricingRule::critical && !market.ranks_price()) {
                closed_done.assign(market.jobs().size(), false);
                closed_prices.assign(market.jobs().size(), Money{});
                return;
            }
            closed_prices =
                pricing == PricingRule::critical  ? algorithm->closed_prices(market, closed_done)
                : pricing == PricingRule::uniform ? uniform_prices(market, options.k_permille)
                                                  : first_prices(market);
        }
        if (all && !std::exchange(closed_all, true))
            unit_prices(market, closed_prices, closed_done, algorithm->bidders_are_users());
    }
    std::optional<Money> price_at_once(uint32_t j) {
        constexpr size_t integrals_max = 8;
        if (priced == market.version()) return prices[j];
        reckon_closed(false);
        if (!closed_done[j]) reckon_closed(true);
        if (closed_done[j]) return closed_prices[j];
        if (priced_alone != market.version()) alone.clear();
        priced_alone = market.version();
        if (const auto known = alone.find(j); known != alone.end()) return known->second;
        if (alone.size() == integrals_max) return std::nullopt;
        return alone[j] = integral_alone(j);
    }
    Money integral_alone(uint32_t j) {
        std::vector<uint32_t> one{j};
        std::vector<Money> result(market.jobs().size());
        integral_prices_of(market, result, one, 0, algorithm->bidders_are_users());
        return result[j];
    }
    // One integral costs much less than all of them; where a few are asked for, they are reckoned
    // alone.
    Money current_price(uint32_t j) {
        constexpr size_t alone_max = 8;
        if (priced == market.version()) return prices[j];
        reckon_closed(false);
        if (closed_done[j]) return closed_prices[j];
        if (priced_alone != market.version()) alone.clear();
        priced_alone = market.version();
        if (const auto known = alone.find(j); known != alone.end()) return known->second;
        if (alone.size() == alone_max) return current_prices()[j];
        return alone[j] = integral_alone(j);
    }
    // The least bid with which a gang that waits would run, found by halves.
    std::optional<Money> gang_bid(uint32_t g) {
        const Allocator::Gang& gang = market.gangs()[g];
        Money low{-1}, high = money_max;  // it would not run; it would
        if (!market.would_run(gang, high)) return std::nullopt;
        while (high.micro - low.micro > 1) {
            const Money middle{low.micro + (high.micro - low.micro) / 2};
            (market.would_run(gang, middle) ? high : low) = middle;
        }
        return high;
    }
    // Runs where the plan says; not merely told to have run on a place that it must leave.
    bool running(uint32_t j) const {
        return j != Allocator::none && market.jobs()[j].slot != Allocator::none;
    }
};

Solver::Solver() : impl_(std::make_unique<Impl>()) {}
Solver::~Solver() = default;

Solver Solver::copy() const {
    Solver other;
    *other.impl_ = *impl_;
    return other;
}

Solver::Solver(Solver&&) noexcept = default;
Solver& Solver::operator=(Solver&&) noexcept = default;

std::span<const std::string_view> Solver::algorithms() {
    static const std::vector<std::string_view> names = [] {
        std::vector<std::string_view> all;
        for (const AlgorithmEntry& entry : algorithm_registry()) all.push_back(entry.name);
        return all;
    }();
    return names;
}

std::string Solver::algorithms_help() {
    std::string all;
    for (const AlgorithmEntry& entry : algorithm_registry())
        all += (all.empty() ? "" : ", ") + std::string(entry.name) +
               (entry.alias.empty() ? "" : " (" + std::string(entry.alias) + ")");
    return all;
}

std::span<const std::string_view> Solver::pricings() { return pricing_names; }

Result<std::string> Solver::algorithm_named(const std::string& name) {
    TRY_ASSIGN(const AlgorithmEntry* const found, find_algorithm(name));
    return std::string(found->name);
}

Result<std::string> Solver::pricing_named(const std::string& name) {
    TRY_ASSIGN(const PricingRule found, find_pricing(name));
    return std::string(pricing_names[static_cast<size_t>(found)]);
}

Status Solver::can_set(std::string_view what) {
    if (what == "solver" || what == "pricing" || find_solver_option(what) != nullptr) return {};
    std::string all = "solver, pricing";
    for (const SolverOption& option : solver_option_table()) all += ", " + std::string(option.name);
    return fail("'" + std::string(what) + "' cannot be set (" + all + ")");
}

Status Solver::set(SolverOptions& options, const std::string& what, const std::string& value) {
    TRY(can_set(what));
    if (const SolverOption* const option = find_solver_option(what)) {
        const auto number = option->parse(value, Nanos::from_s(1));
        if (!number) return wrap(what, number.error());
        option->set(options, *number);
    } else if (what == "solver") {
        TRY_ASSIGN(options.algorithm, algorithm_named(value));
    } else {
        TRY_ASSIGN(options.pricing, pricing_named(value));
    }
    return {};
}

std::string Solver::get(const SolverOptions& options, std::string_view what) {
    if (what == "solver") return options.algorithm;
    if (what == "pricing") return options.pricing;
    const SolverOption* const option = find_solver_option(what);
    MUST(option != nullptr);
    return option->text(option->get(options));
}

const SolverOptions& Solver::options() const { return impl_->options; }

bool Solver::looks_ahead() const { return impl_->algorithm.entry->looks_ahead; }

Nanos Solver::ageing() const {
    return impl_->algorithm.entry->ages ? impl_->options.ageing : Nanos{};
}

Status Solver::set_options(const SolverOptions& o) {
    TRY_ASSIGN(const AlgorithmEntry* const algorithm, find_algorithm(o.algorithm));
    TRY_ASSIGN(const PricingRule pricing, find_pricing(o.pricing));
    for (const SolverOption& option : solver_option_table())
        if (const int64_t v = option.get(o); v < option.least || v > option.most)
            return fail(std::string(option.key) + ": " + option.text(v) + " is not in " +
                        option.range());
    Impl& s = *impl_;
    if (!algorithm->gangs && s.market.gang_count() > 0)
        return fail("the solver " + std::string(algorithm->name) +
                    " places no jobs of several components, and there are some");
    s.options = o;
    s.options.algorithm = algorithm->name;
    s.pricing = pricing;
    s.priced = s.priced_alone = s.closed = UINT64_MAX;
    s.market.set_rules({o.horizon, o.link_bytes_per_s, o.byte_cost_per_gb, o.min_stay, o.moves_max,
                        o.moves_window});
    if (s.algorithm.entry != algorithm) {
        s.algorithm.entry = algorithm;
        s.algorithm.algorithm = algorithm->make();
        s.algorithm->take_over(s.market);
    }
    return {};
}

bool Solver::add_job(JobKey key, const JobDemand& spec) {
    if (key.n == 0 || !valid(spec) || impl_->market.find_job(key) != Allocator::none) return false;
    if (impl_->market.gang_with(key.n) != Allocator::none) return false;
    impl_->market.add_job(key, spec);
    return true;
}

Status Solver::add_gang(JobKey first, std::span<const JobDemand> components, size_t required,
                        const GangLayout& layout) {
    Allocator& market = impl_->market;
    const uint64_t count = components.size();
    if (!impl_->algorithm.entry->gangs)
        return fail("the solver " + options().algorithm + " places no jobs of several components");
    if (required == 0 || required > count)
        return fail("of " + std::to_string(count) + " components " + std::to_string(required) +
                    " are required: at least one must be, and at most all");
    if ((layout.most_on_one > 0 || layout.near) && required < count)
        return fail(
            "no component is optional where only so many may be on one machine, or all "
            "are near each other");
    if (count > gang_components_max)
        return fail(std::to_string(count) + " components are more than " +
                    std::to_string(gang_components_max));
    if (first.n == 0 || first.n > UINT64_MAX - count) return fail("no keys for all components");
    for (const JobDemand& spec : components)
        if (!valid(spec) || spec.asks_named() || spec.value != components[0].value ||
            spec.weight != components[0].weight || spec.arrival != components[0].arrival ||
            spec.user != components[0].user)
            return fail("component " + std::to_string(&spec - components.data() + 1) +
                        ": an attribute is out of range, or its value, weight, arrival or user is "
                        "not that of the first");
    for (uint64_t i = 0; i < count; ++i)
        if (market.find_job({first.n + i}) != Allocator::none ||
            market.gang_with(first.n + i) != Allocator::none)
            return fail("job " + std::to_string(first.n + i) + " is there already");
    market.add_gang(first, components, required, layout);
    return {};
}

std::optional<Solver::GangView> Solver::gang(JobKey key) const {
    const Allocator& market = impl_->market;
    const uint32_t j = market.find_job(key);
    if (j == Allocator::none || !market.jobs()[j].component) return std::nullopt;
    const Allocator::Gang& g = market.gangs()[market.details(j).gang];
    GangView view{{g.first}, {}, {}, 0};
    for (const uint32_t i : g.required) view.required.push_back(market.jobs()[i].key());
    for (const uint32_t i : g.optional) view.optional.push_back(market.jobs()[i].key());
    if (market.runs(g) && !g.required.empty()) view.speed = market.speed_of(g);
    return view;
}

size_t Solver::gangs() const { return impl_->market.gang_count(); }

bool Solver::change_job(JobKey key, const JobDemand& spec) {
    const uint32_t j = impl_->market.find_job(key);
    if (j == Allocator::none || !valid(spec)) return false;
    if (const Allocator::Job& job = impl_->market.jobs()[j];
        job.component &&
        (spec.asks_named() || spec.value != job.value || spec.arrival != job.arrival() ||
         spec.weight != impl_->market.details(j).weight))
        return false;
    impl_->market.change_job(j, spec);
    return true;
}

bool Solver::change_value(JobKey key, Money value) {
    const uint32_t j = impl_->market.find_job(key);
    if (j == Allocator::none || !valid(value)) return false;
    impl_->market.change_value(j, value);
    return true;
}

bool Solver::change_weight(JobKey key, int32_t weight) {
    const uint32_t j = impl_->market.find_job(key);
    if (j == Allocator::none || !is_weight(weight)) return false;
    impl_->market.change_value(j, impl_->market.jobs()[j].value, weight);
    return true;
}

bool Solver::remove_job(JobKey key) {
    const uint32_t j = impl_->market.find_job(key);
    if (j == Allocator::none) return false;
    impl_->market.remove_job(j);
    return true;
}

bool Solver::add_provider(ProviderKey key, const ProviderSpec& spec) {
    if (key.n == 0 || !valid(spec) || impl_->market.find_machine(key) != Allocator::none)
        return false;
    impl_->market.add_provider(key, spec);
    return true;
}

bool Solver::change_provider(ProviderKey key, const ProviderSpec& spec) {
    const uint32_t m = impl_->market.find_machine(key);
    if (m == Allocator::none || !valid(spec)) return false;
    impl_->market.change_provider(m, spec);
    return true;
}

bool Solver::remove_provider(ProviderKey key) {
    const uint32_t m = impl_->market.find_machine(key);
    if (m == Allocator::none) return false;
    impl_->market.remove_provider(m);
    return true;
}

bool Solver::set_licences(const NamedOffers& all) {
    if (!valid(all)) return false;
    impl_->market.set_licences(all);
    return true;
}

const NamedOffers& Solver::licences() const { return impl_->market.licences().all(); }

size_t Solver::named_jobs() const { return impl_->market.named_jobs(); }

void Solver::clear() {
    const SolverOptions options = impl_->options;
    const NamedOffers licences = this->licences();
    impl_ = std::make_unique<Impl>();
    impl_->market.set_licences(licences);
    (void)set_options(options);  // they were taken before
}

std::optional<JobDemand> Solver::job(JobKey key) const {
    const uint32_t i = impl_->market.find_job(key);
    if (i == Allocator::none) return std::nullopt;
    const auto& j = impl_->market.jobs()[i];
    const auto& d = impl_->market.details(i);
    JobDemand s;
    s.value = j.value;
    s.memory_mb = j.memory_mb;
    s.cpus = j.cpus;
    s.user = d.user;
    s.arrival = j.arrival();
    s.weight = d.weight;
    s.state = j.state;
    s.place = impl_->market.place_of(i);
    s.move_bytes = d.move_bytes;
    s.dirty_bytes_per_s = d.dirty_bytes_per_s;
    s.pin = j.pin;
    if (d.barred) s.barred = *d.barred;
    s.only = d.only;
    if (d.files) s.files = d.files->traffic;
    s.ahead = d.ahead;
    if (d.named) {
        s.named = d.named->here;
        s.licences = d.named->licences;
        s.named_kept = d.named->kept;
    }
    return s;
}

std::optional<ProviderSpec> Solver::provider(ProviderKey key) const {
    const uint32_t m = impl_->market.find_machine(key);
    if (m == Allocator::none) return std::nullopt;
    return impl_->market.machines()[m].spec;
}

ProviderKey Solver::place(JobKey key) const {
    const uint32_t i = impl_->market.find_job(key);
    const bool runs = i != Allocator::none && impl_->market.jobs()[i].state == JobState::running;
    return runs ? impl_->market.place_of(i) : ProviderKey{};
}

size_t Solver::jobs() const { return impl_->market.job_count(); }
size_t Solver::providers() const { return impl_->market.machine_count(); }

std::vector<JobKey> Solver::guests(ProviderKey key) const {
    std::vector<JobKey> keys;
    const uint32_t m = impl_->market.find_machine(key);
    if (m != Allocator::none)
        for (const auto& g : impl_->market.machines()[m].guests)
            keys.push_back(impl_->market.jobs()[g.job].key());
    return keys;
}

Solver::Standing Solver::standing(JobKey key) const {
    const uint32_t i = impl_->market.find_job(key);
    if (!impl_->running(i)) return {};
    const auto& job = impl_->market.jobs()[i];
    return {impl_->market.machines()[job.slot].key, job.held};
}

std::vector<JobKey> Solver::competing() const {
    std::vector<JobKey> keys;
    impl_->market.order().each([&](const JobOrder::Entry& e) {
        keys.push_back(JobKey{e.rank.key});
        return true;
    });
    return keys;
}

bool Solver::bidders_are_users() const { return impl_->algorithm->bidders_are_users(); }

std::span<const Change> Solver::solve(Nanos now) {
    impl_->algorithm->solve(impl_->market, now, impl_->options);
    return impl_->market.changes();
}

Nanos Solver::next_wake() const {
    return std::min(impl_->market.next_wake(), impl_->algorithm->next_wake());
}

Result<std::span<const Change>> Solver::adopt(std::span<const Assignment> allocation, Nanos now) {
    Allocator& market = impl_->market;
    std::vector<uint32_t> slots(market.jobs().size(), Allocator::none);
    std::vector<bool> named(market.jobs().size(), false);
    std::vector<int64_t> cpus, memory_mb;
    NamedRooms left =
        named_left(market, [&](const auto& g) { return market.jobs()[g.job].pin == Pin::stay; });
    for (const auto& m : market.machines()) {
        cpus.push_back(m.spec.cpus);
        memory_mb.push_back(m.spec.memory_mb);
        for (const auto& g : m.guests)
            if (market.jobs()[g.job].pin == Pin::stay) {
                cpus.back() -= g.cpus;
                memory_mb.back() -= g.memory_mb;
            }
    }
    for (const Assignment& a : allocation) {
        const std::string line =
            "job " + std::to_string(a.job.n) + " on provider " + std::to_string(a.provider.n);
        const uint32_t j = market.find_job(a.job);
        if (j == Allocator::none) return fail(line + ": no such job");
        if (named[j]) return fail(line + ": the job has an allocation already");
        named[j] = true;
        const auto& job = market.jobs()[j];
        if (job.pin != Pin::free) {
            const ProviderKey pinned = job.pin == Pin::stay ? market.place_of(j) : ProviderKey{};
            if (a.provider != pinned) return fail(line + ": the job is pinned elsewhere");
            continue;
        }
        if (a.provider.n == 0) continue;
        const uint32_t m = market.find_machine(a.provider);
        if (m == Allocator::none) return fail(line + ": no such provider");
        if (!market.eligible(market.machines()[m], j))
            return fail(line + ": not accepting, above the job's value, or barred");
        cpus[m] -= job.cpus;
        memory_mb[m] -= job.memory_mb;
        if (cpus[m] < 0) return fail(line + ": no CPU left there");
        if (memory_mb[m] < 0) return fail(line + ": no memory left there");
        if (job.named) {
            const NamedAmounts &here = market.takes_named(j), &licences = market.takes_licences(j);
            if (!left.holds(m, here, licences))
                return fail(line + ": not enough left of a named resource");
            left.take(m, here, licences);
        }
        slots[j] = m;
    }
    for (const Allocator::Gang& g : market.gangs()) {
        const auto placed = [&](uint32_t j) {
            return slots[j] != Allocator::none ||
                   (market.jobs()[j].pin == Pin::stay && market.jobs()[j].slot != Allocator::none);
        };
        const auto count = std::count_if(g.required.begin(), g.required.end(), placed);
        const bool all = count == std::ssize(g.required);
        if ((count > 0 && !all) ||
            (!all && std::any_of(g.optional.begin(), g.optional.end(), placed)))
            return fail("of the gang " + std::to_string(g.first) +
                        " not all required components have an allocation");
    }
    market.adopt(slots, now);
    return std::span<const Change>(market.changes());
}

std::optional<Money> Solver::price(JobKey key) const {
    const uint32_t j = impl_->market.find_job(key);
    if (!impl_->running(j)) return std::nullopt;
    return impl_->current_price(j);
}

uint64_t Solver::pricing_steps() const { return impl_->pricing_steps; }

std::optional<Money> Solver::price_at_once(JobKey key) const {
    const uint32_t j = impl_->market.find_job(key);
    if (!impl_->running(j)) return std::nullopt;
    return impl_->price_at_once(j);
}

Solver::PriceStart Solver::start_prices() const {
    impl_->reckon_closed(true);
    PriceStart start;
    const auto& jobs = impl_->market.jobs();
    for (uint32_t j = 0; j < jobs.size(); ++j) {
        if (jobs[j].key().n == 0 || jobs[j].slot == Allocator::none) continue;
        const ProviderKey place = impl_->market.machines()[jobs[j].slot].key;
        if (impl_->closed_done[j])
            start.payments.push_back({jobs[j].key(), place, impl_->closed_prices[j]});
        else
            start.rest.push_back(jobs[j].key());
    }
    std::sort(start.payments.begin(), start.payments.end(),
              [](const Payment& a, const Payment& b) { return a.job < b.job; });
    std::sort(start.rest.begin(), start.rest.end());
    return start;
}

std::vector<Payment> Solver::more_prices(std::vector<JobKey>& some, uint64_t steps_max,
                                         uint64_t& steps) const {
    std::vector<uint32_t> left;
    for (const JobKey key : some)
        if (const uint32_t j = impl_->market.find_job(key); impl_->running(j)) left.push_back(j);
    const std::vector<uint32_t> all = left;
    std::vector<Money> prices(impl_->market.jobs().size());
    steps = integral_prices_of(impl_->market, prices, left, steps_max,
                               impl_->algorithm->bidders_are_users());
    const std::set<uint32_t> waiting(left.begin(), left.end());
    std::vector<Payment> done;
    some.clear();
    for (const uint32_t j : all) {
        const Allocator::Job& job = impl_->market.jobs()[j];
        if (waiting.contains(j))
            some.push_back(job.key());
        else
            done.push_back({job.key(), impl_->market.machines()[job.slot].key, prices[j]});
    }
    return done;
}

std::vector<Payment> Solver::payments() const {
    const auto& jobs = impl_->market.jobs();
    const auto& prices = impl_->current_prices();
    std::vector<Payment> all;
    for (size_t j = 0; j < jobs.size(); ++j)
        if (jobs[j].key().n != 0 && jobs[j].slot != Allocator::none)
            all.push_back({jobs[j].key(), impl_->market.machines()[jobs[j].slot].key, prices[j]});
    std::sort(all.begin(), all.end(),
              [](const Payment& a, const Payment& b) { return a.job < b.job; });
    return all;
}

Surplus Solver::surplus() const { return surplus_of(impl_->market, impl_->current_prices()); }

std::optional<Money> Solver::worth(JobKey key) const {
    const uint32_t j = impl_->market.find_job(key);
    if (!impl_->running(j)) return std::nullopt;
    return worth_of(impl_->market, j);
}

std::optional<Money> Solver::winning_bid(JobKey key) const {
    const uint32_t i = impl_->market.find_job(key);
    if (i == Allocator::none) return std::nullopt;
    return winning_bid(Asker{impl_->market.jobs()[i].arrival(), key, impl_->market.weight_of(i)});
}

std::optional<Money> Solver::winning_bid(const Asker& as) const {
    const Allocator& market = impl_->market;
    const uint32_t i = market.find_job(as.key);
    if (i == Allocator::none) return std::nullopt;
    const auto& job = market.jobs()[i];
    if (job.slot != Allocator::none || job.pin != Pin::free) return std::nullopt;
    if (market.required(i)) return impl_->gang_bid(market.details(i).gang);
    const Allocator::JobDetails& details = market.details(i);
    std::vector<ProviderKey> barred;
    if (details.barred) barred = *details.barred;
    if (details.only.n != 0)
        for (const Allocator::Machine& m : market.machines())
            if (m.key != details.only) barred.push_back(m.key);
    std::sort(barred.begin(), barred.end());
    const auto least = least_bid(job.cpus, job.memory_mb, barred, as);
    if (!least || !job.named) return least;
    const auto named = LeastBids::with_named(market, i, barred, as);
    return named ? std::optional(std::max(*least, *named)) : std::nullopt;
}

std::optional<Money> Solver::winning_bid(const JobDemand& spec) const {
    if (spec.asks_named()) {
        Solver trial = copy();
        JobDemand guest = spec;
        guest.value = Money{};
        guest.state = JobState::waiting;
        guest.place = {};
        guest.pin = Pin::free;
        guest.only = {};
        if (!trial.add_job(JobKey{UINT64_MAX}, guest)) return std::nullopt;
        return trial.winning_bid(JobKey{UINT64_MAX});
    }
    return least_bid(spec.cpus, spec.memory_mb, spec.barred,
                     {spec.arrival, JobKey{UINT64_MAX}, spec.weight});
}

std::optional<Money> Solver::least_bid(int32_t cpus, int64_t memory_mb,
                                       std::span<const ProviderKey> barred,
                                       const Asker& asker) const {
    return impl_->algorithm->least_bid(impl_->market, cpus, memory_mb, barred, asker);
}

std::optional<Money> Solver::next_price(ProviderKey key) const {
    const Allocator& market = impl_->market;
    const uint32_t i = market.find_machine(key);
    if (i == Allocator::none || !market.machines()[i].spec.accepting) return std::nullopt;
    const auto& m = market.machines()[i];
    const auto [strongest, fits] = market.displaced(m, 1, 0, Rank::top());
    if (!fits) return std::nullopt;
    return impl_->algorithm->next_price(impl_->market, i, strongest);
}

}  // namespace souk::market
