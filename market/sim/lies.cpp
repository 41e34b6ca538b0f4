// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/lies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

namespace souk::sim {

std::string Lie::name() const {
    std::string text = kind;
    if (bid != 1) text += fmt::format(" x {:.2f}", bid);
    if (later_s != 0) text += " " + std::to_string(std::abs(later_s)) + " s";
    if (rebid > 0) text += fmt::format(" x {:.2f}", rebid);
    if (parts != 1) text += parts == 0 ? " by CPU" : " in " + std::to_string(parts);
    return text;
}

namespace {

Money times(Money value, double factor) {
    return Money{
        std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(value.micro) * factor))};
}

// The jobs that are told in place of one, by index.
std::vector<uint32_t> tell(Imported& w, uint32_t j, const Lie& lie, MarketRunOptions& options) {
    std::vector<uint32_t> told{j};
    const SimJob truth = w.jobs[j];
    SimJob& job = w.jobs[j];
    if (!options.terms.empty()) {  // it says something else than what it is worth to its user
        JobTerms& terms = options.terms[j];
        terms.max_price = times(terms.max_price, lie.bid);
        terms.finish = std::max(Nanos::from_s(1), terms.finish - Nanos::from_s(lie.later_s));
    } else {
        job.value = times(job.value, lie.bid);
    }
    if (lie.later_s < 0) job.run_s -= std::max(lie.later_s, -job.start_s);
    job.start_s = std::max<int64_t>(0, job.start_s + lie.later_s);
    if (lie.rebid > 0) options.rebid = Rebid{j, times(truth.value, lie.rebid)};
    const int32_t parts = lie.parts == 0 ? truth.cpus : std::min(lie.parts, truth.cpus);
    const SimJob whole = job;
    for (int32_t n = 0, left = whole.cpus; parts > 1 && n < parts; ++n) {
        SimJob part = whole;
        part.cpus = left / (parts - n);
        part.memory_mb = (whole.memory_mb * part.cpus + whole.cpus - 1) / whole.cpus;
        left -= part.cpus;
        if (n == 0) {
            w.jobs[j] = part;
            continue;
        }
        told.push_back(static_cast<uint32_t>(w.jobs.size()));
        part.id = w.jobs.back().id + 1;
        w.jobs.push_back(part);
    }
    return told;
}

class Search {
  public:
    Search(const Imported& w, const MarketRunOptions& options, const Runs& run)
        : w_(w), options_(options), run_(run), truth_(run(w, options)) {
        for (const SimProvider& p : w.providers) top_ = std::max(top_, p.speed);
    }
    // nullopt: it pays nothing, or never ends.
    std::optional<Case> of(uint32_t j, bool controls, Rng& rng) const {
        Case c;
        c.paid = static_cast<double>(truth_.jobs[j].paid.micro_s) / 3600;
        if (truth_.jobs[j].end_s < 0 || c.paid <= 0) return std::nullopt;
        c.value = w_.jobs[j].value;
        const Gains honest = played(j, w_, options_, {j}, 0);
        const auto more = [&](Gains gains) {
            for (size_t m = 0; m < gains.size(); ++m) gains[m] -= honest[m];
            return gains;
        };
        std::vector<uint32_t> others;
        for (uint32_t i = 0; i < w_.jobs.size(); ++i)
            if (w_.jobs[i].start_s <= truth_.jobs[j].end_s && w_.jobs[i].user != w_.jobs[j].user)
                others.push_back(i);
        for (const Lie& lie : lies) {
            if (!lie.suits(w_.jobs[j])) continue;
            if (!options_.terms.empty() && !lie.suits_terms()) continue;
            c.by_lies.push_back({static_cast<size_t>(&lie - lies), more(by_lie(j, j, lie))});
            if (!controls || others.empty()) continue;
            constexpr Lie later{"late", 1, 1};
            c.by_arrival.push_back(more(by_lie(j, others[rng.below(others.size())], later)));
            uint32_t other = others[rng.below(others.size())];
            for (int again = 0; again < 20 && !lie.suits(w_.jobs[other]); ++again)
                other = others[rng.below(others.size())];
            c.by_others.push_back(more(by_lie(j, other, lie)));
        }
        return c;
    }

  private:
    Gains by_lie(uint32_t j, uint32_t liar, const Lie& lie) const {
        Imported w = w_;
        MarketRunOptions options = options_;
        std::vector<uint32_t> told = tell(w, liar, lie, options);
        if (liar != j) return played(j, w, options, {j}, 0);
        return played(j, w, options, std::move(told), w.jobs[j].run_s - w_.jobs[j].run_s);
    }
    // Runs the market with job j submitted as `jobs`, and returns the gains of job j. `extra_s` is
    // the part of the work that belongs to a placeholder, which is worth nothing.
    Gains played(uint32_t j, const Imported& w, MarketRunOptions options,
                 std::vector<uint32_t> jobs, int64_t extra_s) const {
        const SimJob& job = w_.jobs[j];
        const int64_t stay = truth_.jobs[j].end_s - job.start_s;
        options.until = std::move(jobs);
        options.marks = {job.start_s + std::max<int64_t>(1, stay),
                         job.start_s + std::max<int64_t>(1, std::llround(1.5 * double(stay)))};
        // A bid that is too low for any place would be looked at for a month.
        if (!options.terms.empty()) options.stop_s = options.marks.back() + 1;
        const RunOutcome out = run_(w, options);
        const double hour_worth = static_cast<double>(job.value.micro) * job.cpus / 3600;
        const double all = static_cast<double>(job.run_s) * 100;
        const auto work = [&](uint32_t i, int64_t done) {
            const double part = static_cast<double>(w.jobs[i].cpus) / job.cpus;
            return part * static_cast<double>(std::max<int64_t>(0, done - 100 * extra_s));
        };
        Gains gains{};
        const size_t n = options.until.size();
        for (size_t m = 0; m < out.marks.size(); ++m) {
            const Mark& mark = out.marks[m];
            gains[m / n] += hour_worth * work(options.until[m % n], mark.done) / top_ -
                            static_cast<double>(mark.paid.micro_s) / 3600;
        }
        double done = 0;
        int64_t end_s = 0;
        for (const uint32_t i : options.until) {
            done += work(i, out.jobs[i].done);
            end_s = std::max(end_s, out.jobs[i].end_s < 0 ? out.totals.end_s : out.jobs[i].end_s);
            gains[2] -= static_cast<double>(out.jobs[i].paid.micro_s) / 3600;
        }
        gains[2] -= hour_worth * (static_cast<double>(end_s - job.start_s) + (all - done) / top_);
        return gains;
    }

    const Imported& w_;
    const MarketRunOptions& options_;
    const Runs& run_;
    RunOutcome truth_;
    int32_t top_ = 1;
};

}  // namespace

std::vector<Case> cases_of(const Imported& workload, const MarketRunOptions& options,
                           const Runs& run, int64_t asked, bool controls, uint64_t seed) {
    const Search search(workload, options, run);
    std::vector<Case> cases;
    Rng rng(seed);
    for (int64_t n = 0; n < asked; ++n) {
        const auto j = static_cast<uint32_t>(rng.below(workload.jobs.size()));
        Rng own(seed * 1'000 + static_cast<uint64_t>(n));
        if (auto one = search.of(j, controls, own)) cases.push_back(std::move(*one));
    }
    return cases;
}

double Mean::half_width() const {
    const auto n = static_cast<double>(by_workload_.size());
    if (n < 2 || weight_ <= 0) return 0;
    double sum = 0;
    for (const auto& [workload, one] : by_workload_)
        sum += std::pow(one.first - mean() * one.second, 2);
    return 1.96 * std::sqrt(sum * n / (n - 1)) / weight_;
}

std::string Mean::text() const {
    return empty() ? "" : fmt::format("{:.2f} ± {:.2f}", mean(), half_width());
}

std::array<Mean, std::size(lies)> by_lie(const Cases& cases, size_t measure) {
    std::array<Mean, std::size(lies)> all;
    for (const Case& c : cases)
        for (const LieTold& told : c.by_lies)
            all[told.lie].add(c.workload, percent(c, told.gains, measure));
    return all;
}

bool splits(size_t lie) { return std::strcmp(lies[lie].kind, "split") == 0; }

Chosen chosen(const Cases& cases, size_t measure) {
    Chosen r;
    for (const size_t told_half : {0U, 1U}) {
        std::array<Cases, 2> halves;
        for (const Case& c : cases) halves[c.workload % 2].push_back(c);
        auto means = by_lie(halves[1 - told_half], measure);
        for (size_t n = 0; n < means.size(); ++n)
            if (splits(n)) means[n] = {};
        const auto best =
            std::max_element(means.begin(), means.end(),
                             [](const Mean& a, const Mean& b) { return a.mean() < b.mean(); });
        const bool lies_at_all = best->mean() > 0;
        const auto lie = static_cast<size_t>(best - means.begin());
        if (!halves[told_half].empty())
            r.names.insert(lies_at_all ? lies[lie].name() : "the truth");
        for (const Case& c : halves[told_half]) {
            const auto told = std::find_if(c.by_lies.begin(), c.by_lies.end(),
                                           [&](const LieTold& t) { return t.lie == lie; });
            const double gain = lies_at_all && told != c.by_lies.end() ? told->gains[measure] : 0;
            r.percent_of_job.add(c.workload, 100 * gain / c.paid);
            r.percent_of_sum.add(c.workload, 100 * gain, c.paid);
        }
    }
    return r;
}

}  // namespace souk::sim
