// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/provider.hpp"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "kernel/base/check.hpp"

namespace souk {

using namespace provider;

namespace {
constexpr int64_t warning_s_max = 86'400;

Status in_range(const char* what, int64_t value, int64_t low, int64_t high, const char* why = "") {
    if (value >= low && value <= high) return {};
    return fail(std::string(what) + " " + std::to_string(value) + " is not from " +
                std::to_string(low) + " to " + std::to_string(high) + why);
}
Status good_price(Money reserve) {
    if (reserve >= Money{} && reserve <= money_max) return {};
    return fail("price " + format_money(reserve) + " is not from 0 to " + format_money(money_max));
}
Status good_speed(int64_t speed) {
    return in_range("speed", speed, 1, provider_speed_max, "; 100 is a standard machine");
}
Status good_warning(int64_t seconds) {
    return in_range("warning", seconds, 0, warning_s_max, " seconds");
}

Status good_record(const ProviderRecord& record) {
    TRY(good_price(record.reserve));
    TRY(good_speed(record.speed));
    TRY(in_range("cpus", record.cpus, 1, INT32_MAX));
    TRY(in_range("memory", record.memory_mb, 1, INT64_MAX));
    TRY(good_price(record.floor));
    TRY(good_price(record.learned));
    return good_warning(record.warning_s);
}

// One thing that the owner can set, in both records, as text.
struct Setting {
    const char* name;
    uint32_t bit;
    std::string (*text)(const ProviderRecord&);
    void (*copy)(const ProviderRecord& from, ProviderRecord& to);
};
const Setting settings[] = {
    {"price", set_price_bit,
     [](const ProviderRecord& r) {
         return r.price_auto ? "auto, at least " + format_money(r.floor) : format_money(r.reserve);
     },
     [](const ProviderRecord& from, ProviderRecord& to) {
         to.reserve = from.reserve;
         to.price_auto = from.price_auto;
         to.floor = from.floor;
     }},
    {"speed", set_speed_bit, [](const ProviderRecord& r) { return std::to_string(r.speed); },
     [](const ProviderRecord& from, ProviderRecord& to) { to.speed = from.speed; }},
    {"cpus", set_cpus_bit, [](const ProviderRecord& r) { return std::to_string(r.cpus); },
     [](const ProviderRecord& from, ProviderRecord& to) { to.cpus = from.cpus; }},
    {"memory", set_memory_bit, [](const ProviderRecord& r) { return std::to_string(r.memory_mb); },
     [](const ProviderRecord& from, ProviderRecord& to) { to.memory_mb = from.memory_mb; }},
    {"frames", set_frames_bit, [](const ProviderRecord& r) { return r.frames; },
     [](const ProviderRecord& from, ProviderRecord& to) {
         if (std::exchange(to.frames, from.frames) == from.frames) return;
         to.by_hand = false;  // new frames rule from now on
         to.since_unix_s = 0;
     }},
    {"zone", set_zone_bit, [](const ProviderRecord& r) { return r.zone; },
     [](const ProviderRecord& from, ProviderRecord& to) { to.zone = from.zone; }},
    {"curve", set_curve_bit, [](const ProviderRecord& r) { return r.curve; },
     [](const ProviderRecord& from, ProviderRecord& to) { to.curve = from.curve; }},
    {"warning", set_warning_bit,
     [](const ProviderRecord& r) { return std::to_string(r.warning_s); },
     [](const ProviderRecord& from, ProviderRecord& to) { to.warning_s = from.warning_s; }},
    {"share", set_share_bit,
     [](const ProviderRecord& r) { return r.share.empty() ? "all" : r.share; },
     [](const ProviderRecord& from, ProviderRecord& to) { to.share = from.share; }},
    {"market", set_market_bit,
     [](const ProviderRecord& r) { return std::string(r.on_market ? "on" : "off"); },
     [](const ProviderRecord& from, ProviderRecord& to) {
         // else the word holds until the next edge of a frame
         if (!to.by_hand) to.on_market = from.on_market;
     }},
};

// What counts of a kept record: what the owner set; all else is the configuration's.
ProviderRecord joined(const ProviderRecord& file, ProviderRecord kept) {
    if (!(kept.set & set_told)) {
        kept.set = set_told;
        for (const Setting& s : settings)
            if (s.text(kept) != s.text(file)) kept.set |= s.bit;
    }
    for (const Setting& s : settings)
        if (!(kept.set & s.bit)) s.copy(file, kept);
    return kept;
}
}  // namespace

Result<Provider> Provider::create(NodeName node, Hardware machine, ProviderRecord file,
                                  std::optional<ProviderRecord> kept) {
    MUST(valid_node_name(node) && machine.cpus >= 1 && machine.memory_mb >= 1);
    const auto good_frames = [](ProviderRecord& record) -> Result<TimeFrames> {
        TRY(good_record(record));
        auto frames = TimeFrames::parse(record.frames);
        if (!frames) return wrap("time frames", frames.error());
        record.frames = frames->text();
        TRY_ASSIGN(const PriceCurve curve, PriceCurve::parse(record.curve));
        record.curve = curve.text();
        TRY_ASSIGN(const OwnerShare share, OwnerShare::parse(record.share));
        record.share = share.text();
        return frames;
    };
    TRY(good_frames(file));
    file.cpus = std::min(file.cpus, machine.cpus);
    file.memory_mb = std::min(file.memory_mb, machine.memory_mb);
    ProviderRecord record = kept ? joined(file, std::move(*kept)) : file;
    record.cpus = std::min(record.cpus, machine.cpus);
    record.memory_mb = std::min(record.memory_mb, machine.memory_mb);
    TRY_ASSIGN(TimeFrames frames, good_frames(record));
    TRY_ASSIGN(PriceCurve curve, PriceCurve::parse(record.curve));
    TRY_ASSIGN(OwnerShare share, OwnerShare::parse(record.share));
    return Provider(std::move(node), std::move(machine), std::move(file), std::move(record),
                    std::move(frames), std::move(curve), std::move(share));
}

std::vector<Provider::Override> Provider::overrides() const {
    std::vector<Override> all;
    for (const Setting& s : settings) {
        if (!(record_.set & s.bit) || s.text(record_) == s.text(file_)) continue;
        if (s.bit == set_market_bit && !frames_.always()) continue;  // the frames say
        all.push_back({s.name, s.text(record_), s.text(file_)});
    }
    return all;
}

ProviderReport Provider::report() const {
    ProviderReport r;
    r.node = node_;
    r.on_market = record_.on_market && !leaving_;
    r.reserve = asked();
    // A part of a CPU is offered as one that is so much slower.
    const MachineSize now = lent();
    r.cpus = static_cast<int32_t>((now.cpu_milli + 999) / 1'000);
    r.speed = std::max<int64_t>(record_.speed * now.cpu_milli / (r.cpus * int64_t{1'000}), 1);
    r.memory_mb = now.memory_mb;
    r.free_mb = std::min(load_.free_mb, r.memory_mb);
    r.load_permille = load_.load_permille;
    r.wait_permille = load_.wait_permille;
    r.load_source = load_.source;
    r.has_memory_pressure = load_.memory_pressure_permille.has_value();
    r.memory_pressure_permille = load_.memory_pressure_permille.value_or(0);
    r.machine = machine_.machine;
    r.cannot = cannot_.empty() ? resting_ : cannot_;
    r.restriction = machine_.restriction;
    r.version = machine_.version;
    r.near_group = machine_.near_group;
    r.near_trip_us = machine_.near_trip_us;
    r.near_mbit = machine_.near_mbit;
    r.holds = true;
    if (!r.on_market) r.opens = Nanos::from_s(opens_unix_s_);
    if (r.on_market && warns()) r.opens = Nanos::from_s(closes_unix_s_);
    return r;
}

void Provider::market_up(Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::market_up); });
    out.emplace_back(Report{report()});
}

void Provider::changed(Outputs& out) const {
    out.emplace_back(Persist{record_});
    out.emplace_back(Report{report()});
}

void Provider::accepting(Outputs& out) const {
    if (!cannot_.empty())
        out.emplace_back(Accepting{false, cannot_});
    else
        out.emplace_back(Accepting{
            record_.on_market, record_.on_market ? "" : "node " + node_ + " is off the market"});
}

void Provider::turn(bool on, Outputs& out) {
    const bool was = std::exchange(record_.on_market, on);
    changed(out);
    if (was != on) accepting(out);
}

// Seconds until its frames begin next, or end. A word of the owner holds until the next edge,
// whatever they say. 0: not known.
int64_t Provider::to_edge(WallTime wall, bool opens) const {
    int32_t second = wall.second_of_week;
    int64_t after = 0;
    for (int edges = 0; edges < 2 && !frames_.always(); ++edges) {
        const int32_t step = frames_.to_next_edge(second);
        after += step;
        second = (second + step) % week_s;
        if (step > 0 && frames_.contains(second) == opens) return after;
    }
    return 0;
}

void Provider::see(WallTime wall) {
    second_ = wall.second_of_week;
    now_unix_s_ = wall.unix_s;
    const int64_t opens = to_edge(wall, true), closes = to_edge(wall, false);
    opens_unix_s_ = opens > 0 ? wall.unix_s + opens : 0;
    closes_unix_s_ = closes > 0 ? wall.unix_s + closes : 0;
}

bool Provider::warns() const {
    return closes_unix_s_ > 0 && closes_unix_s_ - now_unix_s_ <= record_.warning_s;
}

// Has a frame begun or ended since the owner spoke? Counted by the clock on the wall, which has
// gone on by an hour more or less than the time if summer time has come or gone since.
bool Provider::edge_since_word(WallTime wall) const {
    int64_t elapsed = wall.unix_s - record_.since_unix_s;
    if (elapsed <= 0 || frames_.always()) return false;
    if (elapsed >= week_s) return true;
    const int64_t then = record_.since_second >= 0
                             ? record_.since_second
                             : (wall.second_of_week - elapsed + week_s) % week_s;
    constexpr int64_t shift_max = 3 * 3600;
    int64_t shift = (wall.second_of_week - then - elapsed) % week_s;
    if (shift > week_s / 2) shift -= week_s;
    if (shift < -week_s / 2) shift += week_s;
    if (shift >= -shift_max && shift <= shift_max) elapsed += shift;
    return frames_.to_next_edge(static_cast<int32_t>(then)) <= elapsed;
}

void Provider::started(WallTime wall, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::started); });
    const ProviderRecord before = record_;
    if (record_.by_hand && edge_since_word(wall)) record_.by_hand = false;
    if (!record_.by_hand && !frames_.always())
        record_.on_market = frames_.contains(wall.second_of_week);
    if (record_ != before) out.emplace_back(Persist{record_});
    see(wall);
    out.emplace_back(Report{report()});
    accepting(out);
}

int64_t Provider::tick(WallTime wall, Outputs& out) {
    const Scene scene(
        *this, &out, [&] { return trace_in(Input::tick); }, true);
    const Money asked_before = asked();
    const bool warned_before = warns();
    const MachineSize lent_before = lent();
    see(wall);
    const bool released = record_.by_hand && edge_since_word(wall);
    if (released) record_.by_hand = false;
    const bool inside = frames_.contains(wall.second_of_week);
    if (!frames_.always() && (released || (!record_.by_hand && record_.on_market != inside)))
        turn(inside, out);
    else if (asked() != asked_before || warns() != warned_before || !(lent() == lent_before))
        out.emplace_back(Report{report()});
    return next_call(wall);
}

int64_t Provider::next_call(WallTime wall) const {
    const int32_t share_edge = share_.to_next_edge(wall.second_of_week);
    if (frames_.always() && curve_.to_next_edge(wall.second_of_week) == 0 && share_edge == 0)
        return 0;
    int64_t next = 3600 - wall.second_of_week % 3600;
    const auto at_most = [&](int64_t seconds) {
        if (seconds > 0) next = std::min(next, seconds);
    };
    at_most(curve_.to_next_edge(wall.second_of_week));
    at_most(share_edge);
    at_most(frames_.to_next_edge(wall.second_of_week));
    if (record_.warning_s > 0) at_most(to_edge(wall, false) - record_.warning_s);
    return next;
}

void Provider::market(bool on, WallTime wall, Outputs& out) {
    const Scene scene(*this, &out,
                      [&] { return trace_in(on ? Input::market_on : Input::market_off); });
    record_.by_hand = !frames_.always();
    record_.since_unix_s = record_.by_hand ? wall.unix_s : 0;
    record_.since_second = record_.by_hand ? wall.second_of_week : -1;
    record_.set |= set_market_bit;
    see(wall);
    turn(on, out);
}

template <class T>
void Provider::assign(T ProviderRecord::*field, T value, uint32_t bit, bool set, Outputs& out) {
    const ProviderRecord before = record_;
    record_.*field = value;
    record_.set = set ? record_.set | bit : record_.set & ~bit;
    if (record_ != before) changed(out);
}

Status Provider::set_price(Money reserve, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::set_price); });
    TRY(good_price(reserve));
    record_.price_auto = false;
    record_.floor = {};
    assign(&ProviderRecord::reserve, reserve, set_price_bit, true, out);
    return {};
}

Status Provider::set_speed(int64_t speed, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::set_speed); });
    TRY(good_speed(speed));
    assign(&ProviderRecord::speed, speed, set_speed_bit, true, out);
    return {};
}

Status Provider::set_cpus(int64_t cpus, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::set_cpus); });
    TRY(in_range("cpus", cpus, 1, machine_.cpus, ", which is what this machine has"));
    assign(&ProviderRecord::cpus, static_cast<int32_t>(cpus), set_cpus_bit, true, out);
    return {};
}

Status Provider::set_memory(int64_t memory_mb, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::set_memory); });
    TRY(in_range("memory", memory_mb, 1, machine_.memory_mb,
                 " MB, which is what this machine has"));
    assign(&ProviderRecord::memory_mb, memory_mb, set_memory_bit, true, out);
    return {};
}

void Provider::set_cannot(std::string why, Outputs& out) {
    const Scene scene(
        *this, &out, [&] { return trace_in(Input::set_cannot, why); }, true);
    if (why == cannot_) return;
    cannot_ = std::move(why);
    out.emplace_back(Report{report()});
    accepting(out);
}

void Provider::set_leaving(std::string why, Outputs& out) {
    leaving_ = !why.empty();
    set_cannot(std::move(why), out);
}

void Provider::set_resting(std::string why, Outputs& out) {
    const Scene scene(
        *this, &out, [&] { return trace_in(Input::set_resting, why); }, true);
    if (why == resting_) return;
    resting_ = std::move(why);
    out.emplace_back(Report{report()});
}

void Provider::set_load(const LoadReading& load, Nanos now, Outputs& out) {
    const Scene scene(
        *this, &out, [&] { return trace_in(Input::set_load); }, true);
    constexpr Nanos often = Nanos::from_s(1), seldom = Nanos::from_s(30);
    constexpr int32_t worth_permille = 50;
    load_ = load;
    const bool first = told_at_ == Nanos::never();
    const Nanos age = first ? seldom : now - told_at_;
    const bool matters =
        first || load.source != told_.source ||
        std::abs(load.load_permille - told_.load_permille) >= worth_permille ||
        std::abs(load.wait_permille - told_.wait_permille) >= worth_permille ||
        std::abs(load.memory_pressure_permille.value_or(0) -
                 told_.memory_pressure_permille.value_or(0)) >= worth_permille ||
        std::abs(load.free_mb - told_.free_mb) * 1000 >= machine_.memory_mb * worth_permille;
    const bool differs = first || load.load_permille != told_.load_permille ||
                         load.wait_permille != told_.wait_permille ||
                         load.memory_pressure_permille != told_.memory_pressure_permille ||
                         load.free_mb != told_.free_mb;
    if (!(matters && age >= often) && !(differs && age >= seldom)) return;
    told_ = load;
    told_at_ = now;
    out.emplace_back(Report{report()});
}

}  // namespace souk
