// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/coallocation_market.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <tuple>

namespace souk::sim::coallocation {
namespace {

using State = Progress::State;

class Market : public Policy {
  public:
    Market(const Placement& placement, const MarketTerms& terms)
        : placement_(placement), market_(terms) {}

    std::vector<Order> act(const View& view) override {
        view_ = &view;
        plan_.clear();
        free_.assign(view.idle.begin(), view.idle.end());
        for (const uint32_t job : view.running) give(free_, at(job).where);
        const std::vector<uint32_t> order = ranked();
        for (size_t i = 0; i < order.size(); ++i) choose(order, i);
        if (view.terms->slowdown > 1000)
            for (const uint32_t job : order) draw_together(job);
        return orders(order);
    }

  private:
    const Progress& at(uint32_t job) const { return view_->progress[job]; }
    const Job& request(uint32_t job) const { return view_->jobs[job]; }
    bool runs(uint32_t job) const { return at(job).state == State::running; }
    bool overdue(uint32_t job) const {
        return at(job).still_ms > std::max(market_.patience_ms, 10 * request(job).estimate_ms);
    }
    // It is not worth to freeze who ends sooner than it could be thawed.
    bool nearly_done(uint32_t job) const {
        const Terms& t = *view_->terms;
        return runs(job) && at(job).until_ms - view_->now_ms <= t.freeze_ms + t.thaw_ms;
    }
    std::vector<uint32_t> ranked() const {
        struct Rank {
            int group;
            int64_t value, came_ms;
            uint32_t job;
        };
        std::vector<Rank> ranks;
        for (const auto jobs : {view_->running, view_->queue})
            for (const uint32_t job : jobs) {
                const int group = nearly_done(job) ? 0 : overdue(job) ? 1 : 2;
                const int64_t value = request(job).value * (runs(job) ? market_.margin : 1000);
                ranks.push_back({group, group == 2 ? value : 0, at(job).came_ms, job});
            }
        std::sort(ranks.begin(), ranks.end(), [&](const Rank& a, const Rank& b) {
            return std::tuple(a.group, -a.value, !runs(a.job), a.came_ms, a.job) <
                   std::tuple(b.group, -b.value, !runs(b.job), b.came_ms, b.job);
        });
        std::vector<uint32_t> out;
        out.reserve(ranks.size());
        for (const Rank& r : ranks) out.push_back(r.job);
        return out;
    }

    void choose(std::span<const uint32_t> order, size_t i) {
        const uint32_t job = order[i];
        if (runs(job) && fits(at(job).where, free_)) return settle(job, at(job).where);
        if (request(job).cpus > std::accumulate(free_.begin(), free_.end(), int64_t{0})) return;
        // Best where it is in nobody's way.
        Idle spare = free_;
        for (const uint32_t later : order.subspan(i + 1))
            if (runs(later) && fits(at(later).where, spare)) take(spare, at(later).where);
        auto where = placement_.place(request(job), spare);
        if (!where) where = placement_.place(request(job), free_);
        if (!where) where = with_room_made(job);
        if (where) settle(job, std::move(*where));
    }
    void settle(uint32_t job, Allocation where) {
        take(free_, where);
        plan_[job] = std::move(where);
    }

    bool movable(uint32_t job) const { return anywhere(request(job)); }

    // A place for it after moves of components of jobs that are settled, which are done in the
    // plan.
    std::optional<Allocation> with_room_made(uint32_t job) {
        if (!movable(job)) return std::nullopt;
        const std::vector<Component>& parts = request(job).components;
        std::vector<size_t> by_size(parts.size());
        std::iota(by_size.begin(), by_size.end(), size_t{0});
        std::stable_sort(by_size.begin(), by_size.end(),
                         [&](size_t a, size_t b) { return parts[a].cpus > parts[b].cpus; });
        const Idle free_before = free_;
        const auto plan_before = plan_;
        Allocation out(parts.size());
        for (const size_t part : by_size) {
            const int64_t cpus = parts[part].cpus;
            const uint32_t c = cluster_with_room(cpus);
            if (c == Component::anywhere) {
                free_ = free_before;
                plan_ = plan_before;
                return std::nullopt;
            }
            out[part] = {c, cpus};
            free_[c] -= cpus;
        }
        give(free_, out);
        return out;
    }
    uint32_t cluster_with_room(int64_t cpus) {
        std::vector<uint32_t> by_free(free_.size());
        std::iota(by_free.begin(), by_free.end(), 0);
        std::stable_sort(by_free.begin(), by_free.end(),
                         [&](uint32_t a, uint32_t b) { return free_[a] > free_[b]; });
        for (const uint32_t c : by_free)
            if (free_[c] >= cpus || empty(c, cpus)) return c;
        return Component::anywhere;
    }
    // Moves components out of the cluster, the smallest first, until so many are free, or none.
    bool empty(uint32_t cluster, int64_t cpus) {
        std::vector<Piece*> inside;
        for (auto& [job, where] : plan_)
            if (movable(job))
                for (Piece& piece : where)
                    if (piece.cluster == cluster) inside.push_back(&piece);
        std::stable_sort(inside.begin(), inside.end(),
                         [](const Piece* a, const Piece* b) { return a->cpus < b->cpus; });
        std::vector<Piece*> moved;
        for (Piece* piece : inside) {
            uint32_t to = Component::anywhere;
            for (uint32_t c = 0; c < free_.size(); ++c)
                if (c != cluster && free_[c] >= piece->cpus &&
                    (to == Component::anywhere || free_[c] < free_[to]))
                    to = c;
            if (to == Component::anywhere) break;
            move(*piece, to);
            moved.push_back(piece);
            if (free_[cluster] >= cpus) return true;
        }
        for (Piece* piece : moved) move(*piece, cluster);
        return false;
    }
    void move(Piece& piece, uint32_t to) {
        free_[piece.cluster] += piece.cpus;
        free_[to] -= piece.cpus;
        piece.cluster = to;
    }

    void draw_together(uint32_t job) {
        const auto planned = plan_.find(job);
        if (planned == plan_.end() || !movable(job) || spread(planned->second) < 2) return;
        const Terms& t = *view_->terms;
        if (at(job).left_ms * (t.slowdown - 1000) / 1000 <= 4 * t.move_ms) return;
        Idle free = free_;
        give(free, planned->second);
        uint32_t to = Component::anywhere;
        for (uint32_t c = 0; c < free.size(); ++c)
            if (free[c] >= request(job).cpus && (to == Component::anywhere || free[c] < free[to]))
                to = c;
        if (to == Component::anywhere) return;
        for (Piece& piece : planned->second) move(piece, to);
    }

    std::vector<Order> orders(std::span<const uint32_t> order) const {
        std::vector<Order> out;
        for (const uint32_t job : order) {
            const auto planned = plan_.find(job);
            if (planned == plan_.end()) {
                if (runs(job)) out.push_back({job, {}});
            } else if (!runs(job) || planned->second != at(job).where) {
                out.push_back({job, planned->second});
            }
        }
        return out;
    }

    const Placement& placement_;
    const MarketTerms market_;
    const View* view_ = nullptr;
    std::map<uint32_t, Allocation> plan_;  // of those that are to run
    Idle free_;                            // beside them
};

}  // namespace

std::unique_ptr<Policy> make_market(const Placement& placement, const MarketTerms& terms) {
    return std::make_unique<Market>(placement, terms);
}

}  // namespace souk::sim::coallocation
