// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/plan.hpp"

#include <algorithm>
#include <list>
#include <set>
#include <tuple>

#include "market/core/equal_jobs.hpp"
#include "market/core/job_rest.hpp"
#include "market/core/open_hours.hpp"
#include "market/core/submit_filter.hpp"

namespace souk::market {
namespace {

Money counted(const Job& job) { return weighed(job.bid, EqualJobs::turn_of(job).weight); }

struct Waiting {
    const Job* job = nullptr;
    JobRest rest;
};

struct Running {
    const Job* job = nullptr;
    Nanos from, to;
    JobRest rest;
    PlanSpan::Kind kind = PlanSpan::Kind::likely;
};

class Drawing {
  public:
    Drawing(const Book& book, const Places& places, Nanos unix, Nanos now, Nanos until,
            const NodesOff& off, const RunTimes& learned)
        : book_(book), places_(places), learned_(learned), now_(now), at_(unix), until_(until) {
        for (const auto& [name, node] : book.nodes()) {
            const ProviderReport& r = node.record.report;
            if (!node.record.has_report || !node.connected || !r.cannot.empty()) continue;
            Machine m;
            m.node = &node;
            m.closed = closed_in(r, unix, until);
            if (const auto it = off.find(name); it != off.end())
                m.closed.push_back({it->second, Nanos::never()});
            m.cpus = r.cpus;
            m.mb = r.memory_mb;
            machines_.emplace(name, std::move(m));
        }
        for (const auto& [name, m] : machines_)
            for (const Closed& c : m.closed)
                for (const Nanos at : {c.from, c.to})
                    if (at < until_) moments_.insert({at, name});
    }

    MarketPlan draw() {
        take_jobs();
        for (auto& [name, m] : machines_) fill(name, m);
        while (!moments_.empty() && moments_.begin()->first < until_) {
            const auto [at, name] = *moments_.begin();
            moments_.erase(moments_.begin());
            at_ = std::max(at_, at);
            Machine& m = machines_.at(name);
            end_due(name, m);
            fill(name, m);
        }
        for (auto& [name, m] : machines_)
            for (const Running& r : m.running) add(name, r, std::min(r.to, until_));
        std::sort(plan_.spans.begin(), plan_.spans.end(), [](const auto& a, const auto& b) {
            return std::tie(a.node, a.from, a.job) < std::tie(b.node, b.from, b.job);
        });
        for (const Waiting& w : waiting_) plan_.later.push_back(w.job->id());
        return std::move(plan_);
    }

  private:
    struct Machine {
        const Node* node = nullptr;
        int64_t cpus = 0, mb = 0;  // that are free
        std::vector<Closed> closed;
        std::vector<Running> running;
        bool is_closed(Nanos at) const {
            return std::any_of(closed.begin(), closed.end(),
                               [at](const Closed& c) { return c.from <= at && at < c.to; });
        }
    };

    static bool is_booked(const Job& job) {
        const Contract& c = *job.record.contract;
        return c.is_sold() && !c.over && !c.node.empty();
    }

    void take_jobs() {
        std::vector<Waiting> waiting;
        for (const auto& [id, job] : book_.jobs()) {
            const JobReport& r = job.record.report;
            if (r.phase == JobPhase::finished || job.booked == Booked::inside) continue;
            const auto at = machines_.find(job.record.order && !job.record.order->node.empty()
                                               ? job.record.order->node
                                               : r.where);
            const bool runs = r.phase == JobPhase::running || r.phase == JobPhase::moving ||
                              r.phase == JobPhase::starting || r.phase == JobPhase::thawing ||
                              (job.record.order && job.record.order->kind == Order::Kind::run);
            const int64_t speed = at == machines_.end() ? 0 : at->second.node->record.report.speed;
            if (is_booked(job)) book_place(job);
            if (is_booked(job) && (job.record.contract->start <= at_ || !runs)) continue;
            if (runs && at != machines_.end())
                begin(at->first, at->second, {&job, rest(job, speed)}, PlanSpan::Kind::runs);
            else if (r.waits_for.empty() && !holds_back(job.record.hold) &&
                     !SubmitFilter::keeps(job))
                waiting.push_back({&job, rest(job, speed)});
        }
        std::sort(waiting.begin(), waiting.end(), [](const Waiting& a, const Waiting& b) {
            const auto key = [](const Job& j) {
                return std::tuple(-counted(j).micro, EqualJobs::turn_of(j).arrival, j.id());
            };
            return key(*a.job) < key(*b.job);
        });
        waiting_.assign(waiting.begin(), waiting.end());
    }

    JobRest rest(const Job& job, int64_t speed) const {
        return rest_of(job, &learned_, RestBand::usual, speed, now_);
    }

    void book_place(const Job& job) {
        const Contract& c = *job.record.contract;
        const auto at = machines_.find(c.node);
        if (at == machines_.end() || c.start >= until_ || c.end <= at_) return;
        booked_[c.node].push_back(
            {&job, std::max(c.start, at_), c.end, {}, PlanSpan::Kind::reserved});
        moments_.insert({std::max(c.start, at_), c.node});
    }

    void begin(const NodeName& name, Machine& m, const Waiting& w, PlanSpan::Kind kind) {
        const JobTerms& t = w.job->record.report.terms;
        const Nanos span =
            w.rest.is_known() ? w.rest.at(m.node->record.report.speed) : Nanos::never();
        const Nanos to = span == Nanos::never() || span > until_ - at_ ? until_ : at_ + span;
        m.running.push_back({w.job, at_, to, w.rest, kind});
        m.cpus -= t.cpus;
        m.mb -= t.memory_mb;
        if (to < until_) moments_.insert({to, name});
    }

    void add(const NodeName& name, const Running& r, Nanos to) {
        if (to <= r.from) return;
        const bool known = r.kind == PlanSpan::Kind::reserved || r.rest.is_known();
        plan_.spans.push_back({name, r.job->id(), r.from, to, known && to == r.to, r.kind});
    }

    void leave(const NodeName& name, Machine& m, size_t i, bool waits) {
        const Running r = m.running[i];
        const JobTerms& t = r.job->record.report.terms;
        m.cpus += t.cpus;
        m.mb += t.memory_mb;
        m.running.erase(m.running.begin() + static_cast<ptrdiff_t>(i));
        add(name, r, at_);
        if (!waits) return;
        Waiting w{r.job, r.rest};
        w.rest.take(at_ - r.from, m.node->record.report.speed);
        const auto before = std::find_if(waiting_.begin(), waiting_.end(), [&](const Waiting& o) {
            return counted(*o.job) < counted(*w.job);
        });
        waiting_.insert(before, w);
        // It may fit elsewhere.
        for (const auto& [other, machine] : machines_) moments_.insert({at_, other});
    }

    // Ends what is over now on this machine: jobs, and the machine itself.
    void end_due(const NodeName& name, Machine& m) {
        for (size_t i = m.running.size(); i-- > 0;)
            if (m.running[i].to <= at_) leave(name, m, i, false);
        if (!m.is_closed(at_)) return;
        while (!m.running.empty())
            leave(name, m, 0, m.running.front().kind != PlanSpan::Kind::reserved);
    }

    // Begins what is sold first, whoever is there, and then those who wait.
    void fill(const NodeName& name, Machine& m) {
        if (m.is_closed(at_)) return;
        auto& booked = booked_[name];
        for (size_t i = booked.size(); i-- > 0;) {
            if (booked[i].from > at_) continue;
            const Running r = booked[i];
            booked.erase(booked.begin() + static_cast<ptrdiff_t>(i));
            const JobTerms& t = r.job->record.report.terms;
            // It runs there already, at the market's price.
            for (size_t k = m.running.size(); k-- > 0;)
                if (m.running[k].job == r.job) leave(name, m, k, false);
            while ((m.cpus < t.cpus || m.mb < t.memory_mb) && make_room(name, m)) {
            }
            m.cpus -= t.cpus;
            m.mb -= t.memory_mb;
            m.running.push_back(r);
            if (r.to < until_) moments_.insert({r.to, name});
        }
        size_t tried = 0;
        for (auto w = waiting_.begin(); w != waiting_.end() && m.cpus > 0;) {
            if (++tried > plan_tried_most) break;
            const JobTerms& t = w->job->record.report.terms;
            if (t.cpus > m.cpus || t.memory_mb > m.mb ||
                w->job->bid < m.node->record.report.reserve || !may_run_on(*w->job, *m.node)) {
                ++w;
                continue;
            }
            begin(name, m, *w, PlanSpan::Kind::likely);
            w = waiting_.erase(w);
        }
    }

    // A node that is off the market now is judged by what it was.
    bool may_run_on(const Job& job, const Node& node) const {
        return Places::usable(node) ? places_.may_run_at(job, node)
                                    : places_.may_run_later(job, node);
    }

    // The lowest bid there goes. False: only what is sold is left.
    bool make_room(const NodeName& name, Machine& m) {
        size_t least = m.running.size();
        for (size_t i = 0; i < m.running.size(); ++i)
            if (m.running[i].kind != PlanSpan::Kind::reserved &&
                (least == m.running.size() || m.running[i].job->bid < m.running[least].job->bid))
                least = i;
        if (least == m.running.size()) return false;
        leave(name, m, least, true);
        return true;
    }

    const Book& book_;
    const Places& places_;
    const RunTimes& learned_;
    Nanos now_, at_, until_;
    std::map<NodeName, Machine> machines_;
    std::map<NodeName, std::vector<Running>> booked_;
    std::list<Waiting> waiting_;
    std::set<std::pair<Nanos, NodeName>> moments_;
    MarketPlan plan_;
};

}  // namespace

const char* to_string(PlanSpan::Kind kind) {
    switch (kind) {
        case PlanSpan::Kind::reserved: return "reserved";
        case PlanSpan::Kind::runs: return "runs";
        case PlanSpan::Kind::likely: return "likely";
    }
    return "?";
}

MarketPlan plan_of(const Book& book, const Places& places, Nanos unix, Nanos now, Nanos until,
                   const NodesOff& off, const RunTimes& learned) {
    return Drawing(book, places, unix, now, until, off, learned).draw();
}

}  // namespace souk::market
