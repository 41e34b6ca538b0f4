// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/market_run.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <queue>
#include <utility>

#include "kernel/base/check.hpp"
#include "market/core/age.hpp"
#include "market/core/allocator.hpp"
#include "market/core/strategy.hpp"
#include "market/sim/run_rates.hpp"
#include "market/sim/stopped_jobs.hpp"

namespace souk::sim {
namespace {

using market::Change;
using market::ChangeKind;
using market::JobDemand;
using market::JobKey;
using market::Pin;
using market::ProviderKey;

constexpr int64_t never = INT64_MAX;
constexpr uint32_t steps_without_progress_max = 10'000;
constexpr int64_t minute_s = 60, hour_s = 3'600;
// After so long without an event bids change no more, because all prices that a strategy looks at
// are the present ones.
constexpr int64_t still_s = market::PriceHistory::kept_minutes * minute_s;

// The states of a job. A stopped job stands in memory. Moving, freezing and thawing are operations
// that take time.
enum class Phase : uint8_t {
    away,
    waiting,
    running,
    moving,
    stopped,
    freezing,
    frozen,
    thawing,
    finished
};

struct Job {
    Phase phase = Phase::away;
    uint32_t version = 0;   // of its newest timer; older ones are void
    uint32_t provider = 0;  // index, while it holds a place
    int64_t since_s = 0;    // running: advances from here; else: the operation began here
    int64_t work = 0;       // left, in hundredths of a standard second
    // Has no place since then (below 0: it has one), and had none for so long before.
    int64_t waits_from_s = -1, waited_s = 0;
};

struct Timer {
    int64_t at_s;
    uint32_t job, version;
    bool operator>(const Timer& o) const { return at_s != o.at_s ? at_s > o.at_s : job > o.job; }
};

struct ProviderEvent {
    int64_t at_s;
    uint32_t provider;
    bool joins;
};

constexpr int64_t ns_per_s = 1'000'000'000;

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
JobKey job_key(size_t index) { return {index + 1}; }
ProviderKey provider_key(size_t index) { return {index + 1}; }

class MarketRun {
  public:
    MarketRun(std::span<const SimJob> jobs, std::span<const SimProvider> providers,
              const MarketRunOptions& options)
        : specs_(jobs),
          providers_(providers),
          options_(options),
          stopped_(jobs, providers, options.disk_mb_per_s),
          jobs_(jobs.size()),
          rates_(jobs, providers, options, [this](uint32_t i) { return standing_of(i); }) {
        out_.jobs.resize(jobs.size());
        out_.providers.resize(providers.size());
        any_patient_ = std::any_of(options.terms.begin(), options.terms.end(), [](const auto& t) {
            return market::strategy_of(t) == market::Strategy::patient;
        });
        for (uint32_t p = 0; p < options.asks.size(); ++p)
            if (options.asks[p] == Asks::automatic)
                asks_.try_emplace(p, providers[p].reserve, p + 1);
        arrivals_.resize(jobs.size());
        std::iota(arrivals_.begin(), arrivals_.end(), 0u);
        std::stable_sort(arrivals_.begin(), arrivals_.end(), [&](uint32_t a, uint32_t b) {
            return specs_[a].start_s < specs_[b].start_s;
        });
        for (uint32_t p = 0; p < providers.size(); ++p) {
            provider_events_.push_back({providers[p].start_s, p, true});
            if (providers[p].end_s >= 0) provider_events_.push_back({providers[p].end_s, p, false});
        }
        std::stable_sort(
            provider_events_.begin(), provider_events_.end(),
            [](const ProviderEvent& a, const ProviderEvent& b) { return a.at_s < b.at_s; });
    }

    Result<RunOutcome> run() {
        market::SolverOptions solver = options_.solver;
        solver.link_bytes_per_s = options_.network_mb_per_s * 1'000'000;
        TRY(solver_.set_options(solver));
        if (options_.decider && options_.two_stage)
            return fail("two stages of a freeze are for the market's own solver");
        if (options_.decider) {
            TRY_ASSIGN(decider_, options_.decider(specs_, providers_));
        }
        for (int64_t t = next_event(); t != never && now_ < options_.stop_s; t = next_event()) {
            if (t >= options_.stop_s) {
                accrue(options_.stop_s);
                now_ = options_.stop_s;
                break;
            }
            if (t > seconds_max)
                return fail("the run goes on beyond second " + std::to_string(seconds_max) +
                            " (253 years), where the market's clock ends");
            accrue(t);
            now_ = t;
            tell_timers();
            tell_providers();
            tell_arrivals();
            age();
            if (now_ >= rebid_at_) rebid();
            if (now_ >= bids_at_) bid_anew();
            if (now_ >= asks_at_) ask_anew();
            TRY(decide());
            for (const Change& change : changes_) make(change);
            changes_.clear();
            if (options_.two_stage)
                for (uint32_t p = 0; p < providers_.size(); ++p) make_room(p, false);
            if (options_.prices) rates_.agree(solver_);
            if (options_.envy) {
                std::erase_if(here_, [&](uint32_t i) { return jobs_[i].phase == Phase::finished; });
                rates_.agree_on_envy(here_);
            }
            if (options_.record) record_load();
            ++out_.totals.steps;
            if (++steps_without_progress_ > steps_without_progress_max)
                return fail("for " + std::to_string(steps_without_progress_max) +
                            " steps up to second " + std::to_string(now_) +
                            " no job has advanced: freezing and thawing take all the time " +
                            "(a longer turn or minimum stay would help)");
        }
        out_.totals.end_s = now_;
        count_work();
        while (next_mark_ < options_.marks.size()) note_mark(now_);
        return std::move(out_);
    }

  private:
    void count_work() {
        for (uint32_t i = 0; i < jobs_.size(); ++i) out_.jobs[i].done = done_by(i, now_);
    }
    // The work that job i has done at second t, which must not be before the last event.
    int64_t done_by(uint32_t i, int64_t t) const {
        const Job& job = jobs_[i];
        if (job.phase == Phase::away) return 0;
        int64_t left = job.phase == Phase::finished ? 0 : job.work;
        if (job.phase == Phase::running && job.since_s < t) left -= (t - job.since_s) * pace_of(i);
        // The last second may have more than is left.
        return specs_[i].run_s * 100 - std::max<int64_t>(0, left);
    }
    void note_mark(int64_t at_s) {
        for (const uint32_t i : options_.until)
            out_.marks.push_back({done_by(i, at_s), out_.jobs[i].paid});
        ++next_mark_;
    }
    Status decide() {
        if (!decider_) {
            for (const Change& change : solver_.solve(Nanos::from_s(now_)))
                changes_.push_back(change);
            return {};
        }
        // The decider is told of arrivals, of ends, and of operations that took no time.
        std::vector<uint32_t> under_way;
        std::erase_if(live_, [&](uint32_t i) { return jobs_[i].phase == Phase::finished; });
        for (const uint32_t i : live_)
            if (jobs_[i].phase == Phase::moving || jobs_[i].phase == Phase::thawing)
                under_way.push_back(i);
        TRY_ASSIGN(const std::vector<Placement> wanted, decider_->decide(told_, now_));
        told_.clear();
        TRY_ASSIGN(const auto possible, possible_now(solver_, wanted, under_way));
        TRY_ASSIGN(const auto changes, solver_.adopt(possible, Nanos::from_s(now_)));
        changes_.assign(changes.begin(), changes.end());
        return {};
    }
    // Tells where the job's files are, if it has any. A home that is no provider still has a key,
    // but takes no jobs.
    market::FileTraffic traffic_of(uint32_t i) const {
        const SimJob& job = specs_[i];
        if (job.home == 0) return {};
        const auto home =
            std::lower_bound(providers_.begin(), providers_.end(), job.home,
                             [](const SimProvider& p, int64_t id) { return p.id < id; });
        const bool known = home != providers_.end() && home->id == job.home;
        return {provider_key(known ? static_cast<size_t>(home - providers_.begin())
                                   : providers_.size()),
                job.files_mb_per_s * 1'000'000, job.files_requests_per_s, options_.round_trip};
    }
    bool at_home(uint32_t i) const { return providers_[jobs_[i].provider].id == specs_[i].home; }
    // The milliseconds of each second in which the job advances where it is. Away from its files it
    // waits for them during the rest.
    int64_t goes_on(uint32_t i) const {
        if (specs_[i].home == 0 || at_home(i)) return 1000;
        return 1000 - market::waits_permille(traffic_of(i), specs_[i].cpus,
                                             options_.network_mb_per_s * 1'000'000);
    }
    RunRates::Standing standing_of(uint32_t i) const {
        const Job& job = jobs_[i];
        return {job.phase == Phase::running, job.since_s, goes_on(i), at_home(i),
                providers_[job.provider].speed};
    }
    // Hundredths of a standard second in each second.
    int64_t pace_of(uint32_t i) const {
        return std::max<int64_t>(1, providers_[jobs_[i].provider].speed * goes_on(i) / 1000);
    }
    void tell(Told::What what, uint32_t index) {
        if (decider_) told_.push_back({what, index});
    }

    bool over() const {
        return !options_.until.empty() &&
               std::all_of(options_.until.begin(), options_.until.end(),
                           [&](uint32_t i) { return jobs_[i].phase == Phase::finished; });
    }
    int64_t next_event() {
        if (over()) return never;
        while (!timers_.empty() && timers_.top().version != jobs_[timers_.top().job].version)
            timers_.pop();
        int64_t t = timers_.empty() ? never : timers_.top().at_s;
        if (next_arrival_ < arrivals_.size())
            t = std::min(t, specs_[arrivals_[next_arrival_]].start_s);
        t = std::min(t, rebid_at_);
        if (!ages_.empty() && t != never) t = std::min(t, std::max(now_, ages_.top().at_s));
        if (!options_.terms.empty() && (unfinished_ > 0 || t != never))
            t = std::min(t, next_bids());
        if (!asks_.empty() && unfinished_ > 0) t = std::min(t, next_asks());
        // Joining and leaving alone changes nothing once every job is done.
        if (unfinished_ > 0 || next_arrival_ < arrivals_.size()) {
            if (next_provider_ < provider_events_.size())
                t = std::min(t, provider_events_[next_provider_].at_s);
            // The solver may want to be asked again at some time. That matters only while something
            // can still change, so that a run does not go on for ever.
            if (const Nanos wake = solver_.next_wake(); wake != Nanos::never() && !timers_.empty())
                t = std::min(t, std::max(now_ + 1, ceil_div(wake.ns, 1'000'000'000)));
        }
        return t;
    }

    void accrue(int64_t t) {
        for (; next_mark_ < options_.marks.size() && options_.marks[next_mark_] <= t;) {
            grow(options_.marks[next_mark_]);
            now_ = std::max(now_, options_.marks[next_mark_]);
            note_mark(now_);
        }
        grow(t);
    }
    // Everything that grows with time, from now_ to t.
    void grow(int64_t t) {
        const int64_t span = t - now_;
        if (span <= 0) return;
        rates_.grow(now_, t, out_);
        out_.totals.busy_cpu_s += busy_cpus_ * span;
        out_.totals.offered_cpu_s += offered_cpus_ * span;
    }

    // Bids follow the prices once a minute, while anything happens.
    int64_t next_bids() {
        bids_at_ = now_ - last_event_s_ > still_s ? never : (now_ / minute_s + 1) * minute_s;
        return bids_at_;
    }
    std::vector<market::Offer> offers_now() const {
        std::vector<market::Offer> offers;
        for (size_t p = 0; p < providers_.size(); ++p)
            if (const auto spec = solver_.provider(provider_key(p)); spec && spec->accepting)
                offers.push_back({spec->speed, solver_.next_price(provider_key(p))});
        return offers;
    }
    // Owners change their prices once an hour.
    int64_t next_asks() {
        asks_at_ = now_ - last_event_s_ > still_s ? never : (now_ / hour_s + 1) * hour_s;
        return asks_at_;
    }
    void ask_anew() {
        if (steps_without_progress_ > 0) --steps_without_progress_;  // this step
        const std::vector<market::Offer> offers = offers_now();
        for (auto& [p, price] : asks_) {
            auto spec = solver_.provider(provider_key(p));
            const auto seen = spec ? price_at(offers, spec->speed) : std::nullopt;
            if (!seen || price.saw(*seen) == spec->reserve) continue;
            spec->reserve = price.asked();
            MUST(solver_.change_provider(provider_key(p), *spec));
        }
    }
    void bid_anew() {
        std::vector<market::Offer> offers = offers_now();
        if (steps_without_progress_ > 0) --steps_without_progress_;  // this step
        const int64_t minute = now_ / minute_s;
        if (!offers.empty()) prices_.add(market::record_of(minute, std::move(offers)));
        if (any_patient_)
            usual_ = market::usual_price(prices_.rows(), minute - market::usual_minutes);
        std::erase_if(bidders_, [&](uint32_t i) { return jobs_[i].phase == Phase::finished; });
        for (const uint32_t i : bidders_) MUST(solver_.change_value(job_key(i), bid_of(i)));
    }
    Money bid_of(uint32_t i) const {
        market::Standing standing;
        standing.spent = out_.jobs[i].paid.money();
        standing.left = Nanos::from_s(specs_[i].start_s - now_) + options_.terms[i].finish;
        standing.done = Nanos{done_by(i, now_) * 10'000'000};
        standing.minute = now_ / minute_s;
        standing.usual = usual_;
        return market::bid_of(options_.terms[i], standing, prices_.rows()).price;
    }
    void rebid() {
        rebid_at_ = never;
        if (jobs_[options_.rebid->job].phase != Phase::finished)
            MUST(solver_.change_value(job_key(options_.rebid->job), options_.rebid->value));
    }

    void set_phase(uint32_t i, Phase phase) {
        Job& job = jobs_[i];
        job.phase = phase;
        const bool waits =
            phase == Phase::waiting || phase == Phase::frozen || phase == Phase::stopped;
        if (waits == (job.waits_from_s >= 0)) return;
        job.waited_s = waited_s(job);
        job.waits_from_s = waits ? now_ : -1;
        if (waits) set_age(i);
    }
    int64_t waited_s(const Job& job) const {
        return job.waited_s + (job.waits_from_s >= 0 ? now_ - job.waits_from_s : 0);
    }
    // Sets a timer for the moment at which the bid counts for more, if the job waits until then.
    void set_age(uint32_t i) {
        const Nanos waited = Nanos::from_s(waited_s(jobs_[i]));
        const Nanos at = market::next_weight_at(waited, solver_.ageing());
        if (at != Nanos::never()) ages_.push({now_ + ceil_div((at - waited).ns, ns_per_s), i, 0});
    }
    void age() {
        for (; !ages_.empty() && ages_.top().at_s <= now_; ages_.pop()) {
            const uint32_t i = ages_.top().job;
            if (jobs_[i].waits_from_s < 0) continue;
            const Nanos waited = Nanos::from_s(waited_s(jobs_[i]));
            const int32_t weight = market::weight_after(waited, solver_.ageing());
            if (solver_.job(job_key(i))->weight == weight) continue;  // an older entry
            MUST(solver_.change_weight(job_key(i), weight));
            aged_.push_back(i);
        }
        for (const uint32_t i : std::exchange(aged_, {})) set_age(i);
    }

    void set_timer(uint32_t i, int64_t at_s) { timers_.push({at_s, i, ++jobs_[i].version}); }

    void run_from(uint32_t i, int64_t from_s) {
        Job& job = jobs_[i];
        set_phase(i, Phase::running);
        job.since_s = from_s;
        if (out_.jobs[i].first_run_s < 0) {
            out_.jobs[i].first_run_s = from_s;
            if (options_.rebid && options_.rebid->job == i) rebid_at_ = now_ + 1;
        }
        set_timer(i, from_s + ceil_div(job.work, pace_of(i)));
    }

    // Stops a running job here. The work that it has done counts.
    void stop(uint32_t i) {
        Job& job = jobs_[i];
        if (job.phase != Phase::running) return;
        // told in this very step, and on its way again
        if (job.since_s == now_ + 1) --out_.jobs[i].lost_s;
        if (now_ <= job.since_s) return;
        job.work -= (now_ - job.since_s) * pace_of(i);
        if (solver_.looks_ahead()) {
            std::optional<JobDemand> spec = solver_.job(job_key(i));
            MUST(spec.has_value());
            spec->ahead = ahead_of(i);
            MUST(solver_.change_job(job_key(i), *spec));
        }
        progress();
    }
    // An algorithm that looks ahead is told the true run time, because there is no estimate.
    market::JobAhead ahead_of(uint32_t i) const {
        market::JobAhead ahead;
        ahead.rest.work = Nanos::from_ms(std::max<int64_t>(0, jobs_[i].work) * 10);
        ahead.rest_from = Nanos::from_s(now_);
        return ahead;
    }

    void pin(uint32_t i, Pin pin) {
        std::optional<JobDemand> spec = solver_.job(job_key(i));
        MUST(spec.has_value());
        spec->pin = pin;
        MUST(solver_.change_job(job_key(i), *spec));
    }

    void hold(uint32_t i, uint32_t provider) {
        jobs_[i].provider = provider;
        stopped_.holds(i, provider);
        busy_cpus_ += specs_[i].cpus;
        if (options_.record) {
            open_stay_.resize(jobs_.size());
            open_stay_[i] = now_;
        }
    }

    void progress() {
        steps_without_progress_ = 0;
        last_event_s_ = now_;
    }

    void release(uint32_t i) {
        stopped_.leaves(i, jobs_[i].provider);
        busy_cpus_ -= specs_[i].cpus;
        if (options_.record && now_ > open_stay_[i])
            out_.stays.push_back({i, jobs_[i].provider, open_stay_[i], now_});
    }

    void tell_timers() {
        for (; !timers_.empty() && timers_.top().at_s <= now_; timers_.pop()) {
            const auto [at_s, i, version] = timers_.top();
            if (version != jobs_[i].version) continue;
            if (jobs_[i].phase == Phase::running) {
                finish(i);
            } else if (jobs_[i].phase == Phase::stopped) {
                stopped_.goes_to_disk(i);
                go_to_disk(i);
            } else {
                const bool frozen = jobs_[i].phase == Phase::freezing;
                end_operation(i, now_);
                pin(i, Pin::free);
                tell(frozen ? Told::What::job_frozen : Told::What::job_placed, i);
                if (frozen) {
                    set_phase(i, Phase::frozen);
                } else {
                    ++out_.jobs[i].lost_s;
                    run_from(i, now_ + 1);
                }
            }
        }
    }

    void finish(uint32_t i) {
        MUST(solver_.remove_job(job_key(i)));
        tell(Told::What::job_ended, i);
        release(i);
        set_phase(i, Phase::finished);
        ++jobs_[i].version;
        out_.jobs[i].end_s = now_;
        --unfinished_;
        progress();
    }

    void begin_operation(uint32_t i, Phase phase, int64_t seconds) {
        Job& job = jobs_[i];
        set_phase(i, phase);
        job.since_s = now_;
        uint32_t& under_way = phase == Phase::moving ? moves_now_ : freezes_now_;
        uint32_t& most = phase == Phase::moving ? out_.totals.concurrent_moves_max
                                                : out_.totals.concurrent_freezes_max;
        most = std::max(most, ++under_way);
        set_timer(i, now_ + seconds);
        pin(i, phase == Phase::freezing ? Pin::frozen : Pin::stay);
    }

    void end_operation(uint32_t i, int64_t at_s) {
        --(jobs_[i].phase == Phase::moving ? moves_now_ : freezes_now_);
        out_.jobs[i].operation_s += at_s - jobs_[i].since_s;
        ++jobs_[i].version;
    }

    void tell_providers() {
        for (; next_provider_ < provider_events_.size() &&
               provider_events_[next_provider_].at_s <= now_;
             ++next_provider_) {
            const auto [at_s, p, joins] = provider_events_[next_provider_];
            last_event_s_ = now_;
            const SimProvider& provider = providers_[p];
            if (joins) {
                MUST(solver_.add_provider(provider_key(p), {.reserve = provider.reserve,
                                                            .speed = provider.speed,
                                                            .cpus = provider.cpus,
                                                            .memory_mb = provider.memory_mb}));
                offered_cpus_ += provider.cpus;
                tell(Told::What::provider_came, p);
                continue;
            }
            // Operations towards it are given up: the guest is there no more than a running one.
            for (const JobKey guest : solver_.guests(provider_key(p))) {
                const auto i = static_cast<uint32_t>(guest.n - 1);
                if (jobs_[i].phase != Phase::moving && jobs_[i].phase != Phase::thawing) continue;
                end_operation(i, now_);
                pin(i, Pin::free);
                set_phase(i, Phase::running);
                jobs_[i].since_s = never;
            }
            MUST(solver_.remove_provider(provider_key(p)));
            make_room(p, true);
            tell(Told::What::provider_left, p);
            offered_cpus_ -= provider.cpus;
        }
    }

    void tell_arrivals() {
        for (; next_arrival_ < arrivals_.size() && specs_[arrivals_[next_arrival_]].start_s <= now_;
             ++next_arrival_) {
            const uint32_t i = arrivals_[next_arrival_];
            const SimJob& job = specs_[i];
            set_phase(i, Phase::waiting);
            jobs_[i].work = job.run_s * 100;
            JobDemand spec;
            spec.value = options_.terms.empty() ? job.value : bid_of(i);
            if (!options_.terms.empty() &&
                market::strategy_of(options_.terms[i]) != market::Strategy::truthful)
                bidders_.push_back(i);
            spec.memory_mb = job.memory_mb;
            spec.cpus = job.cpus;
            spec.user = job.user;
            spec.arrival = Nanos::from_s(job.start_s);
            spec.files = traffic_of(i);
            if (solver_.looks_ahead()) spec.ahead = ahead_of(i);
            MUST(solver_.add_job(job_key(i), spec));
            tell(Told::What::job_came, i);
            if (decider_) live_.push_back(i);
            if (options_.envy) here_.push_back(i);
            ++unfinished_;
            progress();
        }
    }

    void make(const Change& change) {
        const auto i = static_cast<uint32_t>(change.job.n - 1);
        const int64_t memory = specs_[i].memory_mb;
        JobOutcome& outcome = out_.jobs[i];
        stood_at_ = jobs_[i].provider;
        if (change.kind == ChangeKind::freeze || change.kind == ChangeKind::move) {
            stop(i);
            release(i);
        }
        if (change.kind != ChangeKind::freeze) hold(i, static_cast<uint32_t>(change.to.n - 1));
        if (options_.two_stage && stop_or_resume(i, change)) return;
        if (change.kind != ChangeKind::start) outcome.moved_mb += memory;
        const int64_t rate =
            change.kind == ChangeKind::move ? options_.network_mb_per_s : options_.disk_mb_per_s;
        const int64_t seconds = ceil_div(memory, rate);
        switch (change.kind) {
            case ChangeKind::start:
                run_from(i, now_);
                tell(Told::What::job_placed, i);
                return;
            case ChangeKind::freeze:
                ++outcome.freezes;
                if (seconds > 0) return begin_operation(i, Phase::freezing, seconds);
                set_phase(i, Phase::frozen);
                ++jobs_[i].version;
                tell(Told::What::job_frozen, i);
                return;
            case ChangeKind::move: ++outcome.moves; break;
            case ChangeKind::thaw: ++outcome.thaws; break;
        }
        if (seconds == 0) {
            tell(Told::What::job_placed, i);
            return run_from(i, now_);
        }
        begin_operation(i, change.kind == ChangeKind::move ? Phase::moving : Phase::thawing,
                        seconds);
    }

    // Writes the memory of a suspended job to the disk of the provider where it stood. The job has
    // left that provider, or the provider itself leaves.
    void go_to_disk(uint32_t i) {
        const int64_t memory = specs_[i].memory_mb;
        ++out_.jobs[i].freezes;
        out_.jobs[i].moved_mb += memory;
        if (memory > 0)
            return begin_operation(i, Phase::freezing, ceil_div(memory, options_.disk_mb_per_s));
        set_phase(i, Phase::frozen);
        ++jobs_[i].version;
    }
    void make_room(uint32_t provider, bool all) {
        for (const uint32_t i : stopped_.wanted(provider, all, now_)) go_to_disk(i);
    }
    // The first stage: true if the change is made by that.
    bool stop_or_resume(uint32_t i, const Change& change) {
        Job& job = jobs_[i];
        if (change.kind == ChangeKind::freeze) {
            const bool there = solver_.provider(provider_key(job.provider)).has_value();
            if (!there) return false;
            ++out_.jobs[i].stops;
            set_phase(i, Phase::stopped);
            ++job.version;
            int64_t patience_s = stopped_.stops(i, job.provider, now_);
            if (const int64_t most = options_.solver.stand_max.ns / 1'000'000'000; most > 0)
                patience_s = patience_s < 0 ? most : std::min(patience_s, most);
            if (patience_s >= 0) set_timer(i, now_ + patience_s);
            return true;
        }
        if (change.kind != ChangeKind::thaw) return false;
        const bool stood = job.phase == Phase::stopped, stays = stood && stood_at_ == job.provider;
        stopped_.wins(i, now_);
        if (!stood) return false;
        if (stays) {
            ++out_.jobs[i].resumes;
            run_from(i, now_);
            return true;
        }
        const int64_t memory = specs_[i].memory_mb;
        ++out_.jobs[i].moves;
        out_.jobs[i].moved_mb += memory;
        if (memory == 0)
            run_from(i, now_);
        else
            begin_operation(i, Phase::moving, ceil_div(memory, options_.network_mb_per_s));
        return true;
    }

    void record_load() {
        const Load load{now_, busy_cpus_, offered_cpus_};
        if (!out_.loads.empty() && out_.loads.back().busy_cpus == load.busy_cpus &&
            out_.loads.back().offered_cpus == load.offered_cpus)
            return;
        out_.loads.push_back(load);
    }

    std::span<const SimJob> specs_;
    std::span<const SimProvider> providers_;
    const MarketRunOptions& options_;
    market::Solver solver_;
    std::unique_ptr<Decider> decider_;  // none: the solver decides
    std::vector<Told> told_;            // what the decider has not heard yet
    std::vector<uint32_t> live_;        // for the decider: jobs by arrival
    StoppedJobs stopped_;
    uint32_t stood_at_ = 0;  // before the change that is made: the provider
    std::vector<Job> jobs_;
    RunRates rates_;
    std::vector<uint32_t> arrivals_;              // job indices by start
    std::vector<ProviderEvent> provider_events_;  // by time
    size_t next_arrival_ = 0, next_provider_ = 0, next_mark_ = 0;
    std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
    std::priority_queue<Timer, std::vector<Timer>, std::greater<>> ages_;  // of who waits
    std::vector<uint32_t> aged_;
    int64_t now_ = 0;
    size_t unfinished_ = 0;  // arrived and not finished
    int64_t busy_cpus_ = 0, offered_cpus_ = 0;
    uint32_t moves_now_ = 0, freezes_now_ = 0;
    uint32_t steps_without_progress_ = 0;
    int64_t rebid_at_ = never, bids_at_ = never, asks_at_ = never;
    std::map<uint32_t, AutoPrice> asks_;  // by provider
    int64_t last_event_s_ = 0;            // that was no new bid
    std::vector<uint32_t> bidders_;       // whose bid follows the prices
    market::PriceHistory prices_;         // with terms
    std::optional<Money> usual_;
    bool any_patient_ = false;
    std::vector<uint32_t> here_;  // for envy: jobs by arrival
    std::vector<Change> changes_;
    std::vector<int64_t> open_stay_;  // since when a job holds its place (history)
    RunOutcome out_;
};

}  // namespace

Result<RunOutcome> run_market(std::span<const SimJob> jobs, std::span<const SimProvider> providers,
                              const MarketRunOptions& options) {
    return MarketRun(jobs, providers, options).run();
}

}  // namespace souk::sim
