// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/sim/coallocation_placement.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "kernel/base/check.hpp"

namespace souk::sim::coallocation {
namespace {

constexpr uint32_t no_cluster = Component::anywhere;
using Clusters = std::span<const Cluster>;
using Better = std::function<bool(uint32_t a, uint32_t b)>;

// The clusters from the best on; equal ones by number.
std::vector<uint32_t> ranked(size_t clusters, const Better& better) {
    std::vector<uint32_t> out(clusters);
    std::iota(out.begin(), out.end(), 0);
    std::stable_sort(out.begin(), out.end(), better);
    return out;
}

std::vector<uint32_t> by_idle(std::span<const int64_t> idle) {
    return ranked(idle.size(), [&](uint32_t a, uint32_t b) { return idle[a] > idle[b]; });
}

// The indices of the components, the largest first.
std::vector<uint32_t> by_size(const Job& job) {
    std::vector<uint32_t> out(job.components.size());
    std::iota(out.begin(), out.end(), 0);
    std::stable_sort(out.begin(), out.end(), [&](uint32_t a, uint32_t b) {
        return job.components[a].cpus > job.components[b].cpus;
    });
    return out;
}

// Fills the clusters in this order: a flexible job takes as many processors of each as it can use.
std::optional<Allocation> filled(const Job& job, std::span<const int64_t> idle,
                                 std::span<const uint32_t> order) {
    Allocation out;
    int64_t left = job.cpus;
    for (const uint32_t c : order) {
        int64_t part = std::min({idle[c], job.component_max, left});
        // The job must leave enough for another cluster to hold a component of the least size.
        if (part < left) part = std::min(part, left - job.component_min);
        if (part < job.component_min) continue;
        out.push_back({c, part});
        left -= part;
        if (left == 0) return out;
    }
    return std::nullopt;
}

// The part that all placements share. A placement chooses the cluster of one component, and the
// order in which a flexible job fills clusters.
class Greedy : public Placement {
  public:
    explicit Greedy(Clusters clusters) : clusters_(clusters) {}

    std::optional<Allocation> place(const Job& job, std::span<const int64_t> idle) const override {
        if (job.cpus > std::accumulate(idle.begin(), idle.end(), int64_t{0})) return std::nullopt;
        if (job.kind == Kind::flexible) return place_flexible(job, idle);
        Room room{Idle(idle.begin(), idle.end()), Idle(idle.begin(), idle.end()),
                  std::vector<bool>(idle.size())};
        Allocation out(job.components.size());
        for (const uint32_t i : by_size(job)) {
            const Component& c = job.components[i];
            uint32_t to = c.cluster;
            if (to == Component::anywhere) to = choose(c.cpus, room);
            if (to == no_cluster || room.idle[to] < c.cpus) return std::nullopt;
            room.idle[to] -= c.cpus;
            out[i] = {to, c.cpus};
        }
        return out;
    }

  protected:
    struct Room {
        Idle idle;               // now
        Idle at_first;           // before this job
        std::vector<bool> used;  // by this job
    };
    // The cluster, or no_cluster. It may be one without room.
    virtual uint32_t choose(int64_t cpus, Room& room) const = 0;
    virtual std::optional<Allocation> place_flexible(const Job& job,
                                                     std::span<const int64_t> idle) const = 0;
    int64_t busy(uint32_t c, std::span<const int64_t> idle) const {
        return clusters_[c].cpus - idle[c];
    }
    // Compares the load of clusters a and b, each with so many more processors in use.
    bool less_loaded(uint32_t a, uint32_t b, std::span<const int64_t> idle, int64_t more) const {
        return (busy(a, idle) + more) * clusters_[b].cpus <
               (busy(b, idle) + more) * clusters_[a].cpus;
    }
    Clusters clusters_;
};

// Worst fit and best fit: first among the clusters that the job does not use.
class Marking : public Greedy {
  public:
    Marking(Clusters clusters, bool anew) : Greedy(clusters), anew_(anew) {}

  protected:
    uint32_t choose(int64_t cpus, Room& room) const override {
        const bool all = std::find(room.used.begin(), room.used.end(), false) == room.used.end();
        if (anew_ && all) room.used.assign(room.used.size(), false);
        for (const bool used : {false, true}) {
            const uint32_t c = best(cpus, room, used);
            if (c == no_cluster || room.idle[c] < cpus) continue;
            room.used[c] = true;
            return c;
        }
        return no_cluster;
    }
    virtual uint32_t best(int64_t cpus, const Room& room, bool used) const = 0;
    const bool anew_;
};

class WorstFit : public Marking {
  public:
    using Marking::Marking;

  protected:
    uint32_t best(int64_t, const Room& room, bool used) const override {
        uint32_t out = no_cluster;
        for (uint32_t c = 0; c < room.idle.size(); ++c)
            if (room.used[c] == used && (out == no_cluster || room.idle[c] > room.idle[out]))
                out = c;
        return out;
    }
    std::optional<Allocation> place_flexible(const Job& job,
                                             std::span<const int64_t> idle) const override {
        return filled(job, idle, by_idle(idle));
    }
};

class BestFit : public Marking {
  public:
    explicit BestFit(Clusters clusters) : Marking(clusters, true) {}

  protected:
    uint32_t best(int64_t cpus, const Room& room, bool used) const override {
        uint32_t out = no_cluster;
        for (uint32_t c = 0; c < room.idle.size(); ++c)
            if (room.used[c] == used && room.idle[c] >= cpus &&
                (out == no_cluster || room.idle[c] < room.idle[out]))
                out = c;
        return out;
    }
    std::optional<Allocation> place_flexible(const Job& job,
                                             std::span<const int64_t> idle) const override {
        std::vector<uint32_t> order = by_idle(idle);
        for (size_t i = order.size(); i-- > 0;)
            if (auto whole = filled(job, idle, std::span(&order[i], 1))) return whole;
        return filled(job, idle, order);
    }
};

class FirstFit : public Greedy {
  public:
    using Greedy::Greedy;

  protected:
    uint32_t choose(int64_t cpus, Room& room) const override {
        for (const uint32_t c : order(room.at_first))
            if (room.idle[c] >= cpus) return c;
        return no_cluster;
    }
    std::optional<Allocation> place_flexible(const Job& job,
                                             std::span<const int64_t> idle) const override {
        return filled(job, idle, order(idle));
    }
    virtual std::vector<uint32_t> order(std::span<const int64_t> idle) const {
        return ranked(idle.size(), [](uint32_t, uint32_t) { return false; });
    }
};

class ClusterFilling : public FirstFit {
  public:
    using FirstFit::FirstFit;

  protected:
    std::vector<uint32_t> order(std::span<const int64_t> idle) const override {
        return ranked(idle.size(),
                      [&](uint32_t a, uint32_t b) { return busy(a, idle) < busy(b, idle); });
    }
};

class LoadBalancing : public Greedy {
  public:
    using Greedy::Greedy;

  protected:
    uint32_t choose(int64_t cpus, Room& room) const override {
        uint32_t out = no_cluster;
        for (uint32_t c = 0; c < room.idle.size(); ++c)
            if (room.idle[c] >= cpus && (out == no_cluster || less_loaded(c, out, room.idle, cpus)))
                out = c;
        return out;
    }
    // Shares below the least size are given up, the smallest first, until there is none.
    std::optional<Allocation> place_flexible(const Job& job,
                                             std::span<const int64_t> idle) const override {
        Idle open(idle.begin(), idle.end());
        for (;;) {
            const std::optional<Idle> share = raised(job, idle, open);
            if (!share) return std::nullopt;
            uint32_t least = no_cluster;
            Allocation out;
            for (uint32_t c = 0; c < idle.size(); ++c) {
                const int64_t part = (*share)[c];
                if (part == 0) continue;
                out.push_back({c, part});
                if (part < job.component_min && (least == no_cluster || part < (*share)[least]))
                    least = c;
            }
            if (least == no_cluster) return out;
            open[least] = 0;
        }
    }

  private:
    std::optional<Idle> raised(const Job& job, std::span<const int64_t> idle,
                               const Idle& open) const {
        Idle share(idle.size()), rest(idle.begin(), idle.end());
        for (int64_t left = job.cpus; left > 0; --left) {
            uint32_t to = no_cluster;
            for (uint32_t c = 0; c < idle.size(); ++c) {
                if (share[c] >= std::min(open[c], job.component_max)) continue;
                if (to == no_cluster || less_loaded(c, to, rest, 0)) to = c;
            }
            if (to == no_cluster) return std::nullopt;
            ++share[to];
            --rest[to];
        }
        return share;
    }
};

// make_near_placement describes this placement.
class Near : public FirstFit {
  public:
    using FirstFit::FirstFit;
    std::optional<Allocation> place(const Job& job, std::span<const int64_t> idle) const override {
        if (anywhere(job)) {
            std::vector<uint32_t> order = by_idle(idle);
            for (size_t i = order.size(); i-- > 0;) {
                if (idle[order[i]] < job.cpus) continue;
                Allocation out;
                for (const Component& c : job.components) out.push_back({order[i], c.cpus});
                return out;
            }
        }
        return FirstFit::place(job, idle);
    }

  protected:
    std::vector<uint32_t> order(std::span<const int64_t> idle) const override {
        return by_idle(idle);
    }
};

template <class P, auto... arguments>
std::unique_ptr<Placement> maker(Clusters clusters) {
    return std::make_unique<P>(clusters, arguments...);
}

#define SOUK_PLACEMENTS(X)                         \
    X("worst_fit", (maker<WorstFit, true>))        \
    X("worst_fit_lists", (maker<WorstFit, false>)) \
    X("best_fit", maker<BestFit>)                  \
    X("first_fit", maker<FirstFit>)                \
    X("cluster_filling", maker<ClusterFilling>)    \
    X("load_balancing", maker<LoadBalancing>)

}  // namespace

std::span<const PlacementEntry> placements() {
#define SOUK_PLACEMENT_ENTRY(name, make) {name, make},
    static constexpr PlacementEntry all[] = {SOUK_PLACEMENTS(SOUK_PLACEMENT_ENTRY)};
    return all;
}

std::unique_ptr<Placement> make_placement(std::string_view name, Clusters clusters) {
    for (const PlacementEntry& entry : placements())
        if (entry.name == name) return entry.make(clusters);
    return nullptr;
}

std::unique_ptr<Placement> make_near_placement(Clusters clusters) {
    return std::make_unique<Near>(clusters);
}

}  // namespace souk::sim::coallocation
