// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/provider.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "kernel/base/check.hpp"

namespace souk {

using namespace provider;

namespace {
Status in_range(const char* what, int64_t value, int64_t low, int64_t high, const char* why = "") {
    if (value >= low && value <= high) return {};
    return fail(std::string(what) + " " + std::to_string(value) + " is not from " + std::to_string(low) + " to " +
                std::to_string(high) + why);
}
Status good_price(Money reserve) {
    if (reserve >= Money{} && reserve <= money_max) return {};
    return fail("price " + format_money(reserve) + " is not from 0 to " + format_money(money_max));
}
Status good_speed(int64_t speed) { return in_range("speed", speed, 1, provider_speed_max, "; 100 is a standard machine"); }
}  // namespace

Result<Provider> Provider::create(NodeName node, Hardware machine, ProviderRecord record) {
    MUST(valid_node_name(node) && machine.cpus >= 1 && machine.memory_mb >= 1);
    TRY(good_price(record.reserve));
    TRY(good_speed(record.speed));
    TRY(in_range("cpus", record.cpus, 1, INT32_MAX));
    TRY(in_range("memory", record.memory_mb, 1, INT64_MAX));
    auto frames = TimeFrames::parse(record.frames);
    if (!frames) return wrap("time frames", frames.error());
    record.cpus = std::min(record.cpus, machine.cpus);
    record.memory_mb = std::min(record.memory_mb, machine.memory_mb);
    return Provider(std::move(node), std::move(machine), std::move(record), std::move(*frames));
}

ProviderReport Provider::report() const {
    ProviderReport r;
    r.node = node_;
    r.on_market = record_.on_market;
    r.reserve = record_.reserve;
    r.speed = record_.speed;
    r.cpus = record_.cpus;
    r.memory_mb = record_.memory_mb;
    r.free_mb = std::min(load_.free_mb, record_.memory_mb);
    r.load_permille = load_.load_permille;
    r.wait_permille = load_.wait_permille;
    r.load_source = load_.source;
    r.machine = machine_.machine;
    r.cannot = cannot_;
    return r;
}

void Provider::market_up(Outputs& out) const { out.emplace_back(Report{report()}); }

void Provider::changed(Outputs& out) const {
    out.emplace_back(Persist{record_});
    out.emplace_back(Report{report()});
}

void Provider::accepting(Outputs& out) const {
    if (!cannot_.empty())
        out.emplace_back(Accepting{false, cannot_});
    else
        out.emplace_back(Accepting{record_.on_market, record_.on_market ? "" : "node " + node_ + " is off the market"});
}

void Provider::turn(bool on, Outputs& out) {
    const bool was = std::exchange(record_.on_market, on);
    changed(out);
    if (was != on) accepting(out);
}

// Has a frame begun or ended since the owner spoke? Frames repeat weekly, so the second of the week then follows from
// the time that went by (an hour wrong if summer time came or went while the word held).
bool Provider::edge_since_word(WallTime wall) const {
    const int64_t elapsed = wall.unix_s - record_.since_unix_s;
    if (elapsed <= 0 || frames_.always()) return false;
    if (elapsed >= week_s) return true;
    const int32_t then = static_cast<int32_t>((wall.second_of_week - elapsed + week_s) % week_s);
    return frames_.to_next_edge(then) <= elapsed;
}

void Provider::started(WallTime wall, Outputs& out) {
    const ProviderRecord before = record_;
    if (record_.by_hand && edge_since_word(wall)) record_.by_hand = false;
    if (!record_.by_hand && !frames_.always()) record_.on_market = frames_.contains(wall.second_of_week);
    if (record_ != before) out.emplace_back(Persist{record_});
    out.emplace_back(Report{report()});
    accepting(out);
}

int64_t Provider::tick(WallTime wall, Outputs& out) {
    if (frames_.always()) return 0;
    const bool released = record_.by_hand && edge_since_word(wall);
    if (released) record_.by_hand = false;
    const bool inside = frames_.contains(wall.second_of_week);
    if (released || (!record_.by_hand && record_.on_market != inside)) turn(inside, out);
    return std::min<int64_t>(frames_.to_next_edge(wall.second_of_week), 3600 - wall.second_of_week % 3600);
}

void Provider::market(bool on, WallTime wall, Outputs& out) {
    record_.by_hand = !frames_.always();
    record_.since_unix_s = record_.by_hand ? wall.unix_s : 0;
    turn(on, out);
}

Status Provider::set_price(Money reserve, Outputs& out) {
    TRY(good_price(reserve));
    if (std::exchange(record_.reserve, reserve) != reserve) changed(out);
    return {};
}

Status Provider::set_speed(int64_t speed, Outputs& out) {
    TRY(good_speed(speed));
    if (std::exchange(record_.speed, speed) != speed) changed(out);
    return {};
}

Status Provider::set_cpus(int64_t cpus, Outputs& out) {
    TRY(in_range("cpus", cpus, 1, machine_.cpus, ", which is what this machine has"));
    if (std::exchange(record_.cpus, static_cast<int32_t>(cpus)) != cpus) changed(out);
    return {};
}

Status Provider::set_memory(int64_t memory_mb, Outputs& out) {
    TRY(in_range("memory", memory_mb, 1, machine_.memory_mb, " MB, which is what this machine has"));
    if (std::exchange(record_.memory_mb, memory_mb) != memory_mb) changed(out);
    return {};
}

// New frames rule from now on: an earlier word of the owner is over.
Status Provider::set_frames(std::string_view text, WallTime wall, Outputs& out) {
    TRY_ASSIGN(frames_, TimeFrames::parse(text));
    record_.frames = frames_.text();
    record_.by_hand = false;
    record_.since_unix_s = 0;
    turn(frames_.contains(wall.second_of_week), out);
    return {};
}

void Provider::set_cannot(std::string why, Outputs& out) {
    if (why == cannot_) return;
    cannot_ = std::move(why);
    out.emplace_back(Report{report()});
    accepting(out);
}

void Provider::set_load(const LoadReading& load, Nanos now, Outputs& out) {
    constexpr Nanos often = Nanos::from_s(1), seldom = Nanos::from_s(30);
    constexpr int32_t worth_permille = 50;
    load_ = load;
    const bool first = told_at_ == Nanos::never();
    const Nanos age = first ? seldom : now - told_at_;
    const bool matters = first || load.source != told_.source ||
                         std::abs(load.load_permille - told_.load_permille) >= worth_permille ||
                         std::abs(load.wait_permille - told_.wait_permille) >= worth_permille ||
                         std::abs(load.free_mb - told_.free_mb) * 1000 >= machine_.memory_mb * worth_permille;
    const bool differs = first || load.load_permille != told_.load_permille ||
                         load.wait_permille != told_.wait_permille || load.free_mb != told_.free_mb;
    if (!(matters && age >= often) && !(differs && age >= seldom)) return;
    told_ = load;
    told_at_ = now;
    out.emplace_back(Report{report()});
}

}  // namespace souk
