// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/speed_check.hpp"

#include <algorithm>

namespace souk::market {
namespace {

// The upper one of two in the middle. There is at least one.
int64_t upper_median(std::vector<int64_t> all) {
    const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
    std::nth_element(all.begin(), middle, all.end());
    return *middle;
}

constexpr int64_t computes_percent = 80;

}  // namespace

std::vector<int64_t> SpeedCheck::Runs::works() const {
    std::vector<int64_t> all(ms.size());
    for (size_t i = 0; i < ms.size(); ++i) all[i] = ms[i] * speeds[i];
    return all;
}

bool SpeedCheck::Runs::is_steady() const {
    const auto all = works();
    const auto [least, most] = std::minmax_element(all.begin(), all.end());
    return *most - *least <= *most / 4;
}

// A node that claims less than when the programs ran there is held to what it claims now.
bool SpeedCheck::ended(const Run& run) {
    if (run.run < run_min || run.speed <= 0 || run.node.empty()) return false;
    note(run);
    const auto before = most(run.node);
    most_.erase(run.node);
    const auto is = judged(run.node);
    if (is && is->permille < 10 * tolerance_percent &&
        100 * is->given < tolerance_percent * run.speed)
        most_[run.node] = std::max({is->given, run.speed * floor_percent / 100, int64_t{1}});
    return most(run.node) != before;
}

std::optional<int64_t> SpeedCheck::most(const NodeName& node) const {
    const auto it = most_.find(node);
    return it == most_.end() ? std::nullopt : std::optional(it->second);
}

void SpeedCheck::forget(const NodeName& node) {
    most_.erase(node);
    for (auto& [key, program] : programs_) program.nodes.erase(node);
}

void SpeedCheck::note(const Run& run) {
    const Program key{run.uid, run.program};
    if (!programs_.contains(key)) make_room(run.uid);
    Known& program = programs_[key];
    program.used = ++clock_;
    if (program.nodes.size() >= nodes_max && !program.nodes.contains(run.node)) return;
    Runs& runs = program.nodes[run.node];
    if (runs.ms.size() == runs_kept) {
        runs.ms.erase(runs.ms.begin());
        runs.speeds.erase(runs.speeds.begin());
    }
    constexpr int64_t ns_of_ms = 1'000'000;
    runs.ms.push_back(run.run.ns / ns_of_ms);
    runs.speeds.push_back(run.speed);
    runs.computed = run.cpu.ns / (run.run.ns / 100);
}

void SpeedCheck::make_room(uint32_t uid) {
    const auto first = programs_.lower_bound({uid, ""}),
               last = uid == UINT32_MAX ? programs_.end() : programs_.lower_bound({uid + 1, ""});
    const auto oldest = [](auto from, auto to) {
        return std::min_element(
            from, to, [](const auto& a, const auto& b) { return a.second.used < b.second.used; });
    };
    if (static_cast<size_t>(std::distance(first, last)) >= programs_user_max)
        programs_.erase(oldest(first, last));
    else if (programs_.size() >= programs_max)
        programs_.erase(oldest(programs_.begin(), programs_.end()));
}

std::optional<SpeedCheck::Found> SpeedCheck::found(const Known& program, const NodeName& node) {
    const auto here = program.nodes.find(node);
    if (here == program.nodes.end() || here->second.ms.size() < runs_min) return std::nullopt;
    std::vector<int64_t> others;
    for (const auto& [name, runs] : program.nodes)
        if (name != node && runs.ms.size() >= runs_min && runs.computed >= computes_percent &&
            runs.is_steady())
            others.push_back(upper_median(runs.works()));
    if (others.size() < others_min) return std::nullopt;
    const int64_t work = upper_median(std::move(others));
    const int64_t own = upper_median(here->second.works());
    return Found{static_cast<int64_t>(static_cast<__int128>(work) * 1'000 / own),
                 work / upper_median(here->second.ms)};
}

std::optional<SpeedCheck::Found> SpeedCheck::judged(const NodeName& node) const {
    struct Words {
        std::vector<int64_t> permille, given;
        void add(const Found& f) {
            permille.push_back(f.permille);
            given.push_back(f.given);
        }
        Found median() const { return {upper_median(permille), upper_median(given)}; }
    };
    std::map<uint32_t, Words> of_user;
    size_t runs = 0;
    for (const auto& [key, program] : programs_) {
        const auto is = found(program, node);
        if (!is) continue;
        of_user[key.first].add(*is);
        runs += program.nodes.at(node).ms.size();
    }
    if (of_user.size() < users_min || runs < runs_all_min) return std::nullopt;
    Words users;
    for (const auto& [uid, words] : of_user) users.add(words.median());
    return users.median();
}

}  // namespace souk::market
