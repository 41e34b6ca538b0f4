// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/provider.hpp"

#include <algorithm>
#include <utility>

#include "agentd/core/owner_bans.hpp"
#include "kernel/base/check.hpp"
#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"

namespace souk {

using namespace provider;

Result<Provider> Provider::create(NodeName node, Hardware machine, ProviderRecord file,
                                  std::optional<ProviderRecord> kept) {
    MUST(valid_node_name(node) && machine.cpus >= 1 && machine.memory_mb >= 1);
    const auto good_frames = [](ProviderRecord& record) -> Result<TimeFrames> {
        TRY(check_record(record));
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

std::vector<provider::Override> Provider::overrides() const {
    return provider::overrides(file_, record_, !frames_.always());
}

ProviderReport Provider::report() const {
    ProviderReport r;
    const LoadReading& load = load_.now();
    r.node = node_;
    r.on_market = record_.on_market && !leaving_;
    r.reserve = asked();
    // A part of a CPU is offered as one that is so much slower.
    const MachineSize now = lent();
    r.cpus = static_cast<int32_t>((now.cpu_milli + 999) / 1'000);
    r.speed = std::max<int64_t>(record_.speed * now.cpu_milli / (r.cpus * int64_t{1'000}), 1);
    r.memory_mb = now.memory_mb;
    r.free_mb = std::min(load.free_mb, r.memory_mb);
    r.load_permille = load.load_permille;
    r.wait_permille = load.wait_permille;
    r.load_source = load.source;
    r.has_memory_pressure = load.memory_pressure_permille.has_value();
    r.memory_pressure_permille = load.memory_pressure_permille.value_or(0);
    r.machine = machine_.machine;
    r.cannot = cannot_.empty() ? resting_ : cannot_;
    r.restriction = machine_.restriction;
    r.version = machine_.version;
    r.near_group = machine_.near_group;
    r.near_trip_us = machine_.near_trip_us;
    r.near_mbit = machine_.near_mbit;
    r.attributes = machine_.attributes;
    r.hours = hours();
    r.resources = machine_.resources;
    r.holds = true;
    if (!r.on_market) r.opens = Nanos::from_s(opens_unix_s_);
    if (r.on_market && warns()) r.opens = Nanos::from_s(closes_unix_s_);
    return r;
}

// Its frames and its prices by the hour, on the calendar of the market, which is not that of its
// zone. More than the report takes is left out from the end: nothing is sold ahead then.
std::vector<OpenHours> Provider::hours() const {
    std::vector<OpenHours> all;
    if (frames_.always() && curve_.empty()) return all;
    const int64_t shift = ((now_unix_s_ - second_) % week_s + week_s) % week_s;
    for (int32_t at = 0; at < week_s;) {
        int32_t end = week_s;
        for (const int32_t edge : {frames_.to_next_edge(at), curve_.to_next_edge(at)})
            if (edge > 0) end = std::min(end, at + edge);
        if (frames_.contains(at) && all.size() < ProviderReport::hours_max) {
            const auto from = static_cast<int32_t>((at + shift) % week_s);
            all.push_back({from, from + (end - at), asked_at(at)});
        }
        at = end;
    }
    return all;
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

// Seconds until its frames begin next, or end; 0: not known. A word of the owner holds until the
// next edge, whatever the frames say.
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

// True: a frame has begun or ended since the owner spoke. That is counted by the clock on the wall,
// which has gone on by an hour more or less than the time if summer time has come or gone since.
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
    TRY(check_price(reserve));
    record_.price_auto = false;
    record_.floor = {};
    assign(&ProviderRecord::reserve, reserve, set_price_bit, true, out);
    return {};
}

Status Provider::set_speed(int64_t speed, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::set_speed); });
    TRY(check_speed(speed));
    assign(&ProviderRecord::speed, speed, set_speed_bit, true, out);
    return {};
}

Status Provider::set_cpus(int64_t cpus, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::set_cpus); });
    TRY(check_range("cpus", cpus, 1, machine_.cpus, ", which is what this machine has"));
    assign(&ProviderRecord::cpus, static_cast<int32_t>(cpus), set_cpus_bit, true, out);
    return {};
}

Status Provider::set_memory(int64_t memory_mb, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::set_memory); });
    TRY(check_range("memory", memory_mb, 1, machine_.memory_mb,
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
    if (load_.set(load, now, machine_.memory_mb)) out.emplace_back(Report{report()});
}

void Provider::owner_said(uint32_t bit, bool set, Outputs& out) {
    record_.set = set ? record_.set | bit : record_.set & ~bit;
    changed(out);
}

// -------------------------------------------------------------------------------------------------
// when

// New frames rule from now on, and an earlier word of the owner is over.
void Provider::new_frames(TimeFrames frames, WallTime wall, Outputs& out) {
    frames_ = std::move(frames);
    record_.frames = frames_.text();
    record_.by_hand = false;
    record_.since_unix_s = 0;
    record_.set |= set_frames_bit;
    see(wall);
    if (frames_.always()) record_.set |= set_market_bit;  // the word put it on the market
    turn(frames_.contains(wall.second_of_week), out);
}

Status Provider::set_frames(std::string_view text, WallTime wall, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::set_frames); });
    auto frames = TimeFrames::parse_apart(text);
    if (!frames) return wrap("frames", frames.error());
    new_frames(std::move(*frames), wall, out);
    return {};
}

Status Provider::add_frame(std::string_view text, WallTime wall, Outputs& out) {
    const std::string before = frames_.parts().empty() ? "" : frames_.text() + "; ";
    return set_frames(before + std::string(text), wall, out);
}

Status Provider::remove_frame(std::string_view which, WallTime wall, Outputs& out) {
    const auto& parts = frames_.parts();
    const auto number = whole_number<size_t>(which);
    const auto it = number && *number >= 1 && *number <= parts.size()
                        ? parts.begin() + static_cast<ptrdiff_t>(*number - 1)
                        : std::find(parts.begin(), parts.end(), which);
    if (it == parts.end())
        return fail("frames: there is no frame '" + std::string(which) + "'; it has " +
                    (parts.empty() ? "none" : frames_.text()));
    if (parts.size() == 1)
        return fail("frames: '" + *it +
                    "' is the only one; write pvdctl set frames always, or "
                    "pvdctl market off");
    std::string rest;
    for (auto p = parts.begin(); p != parts.end(); ++p)
        if (p != it) rest += (rest.empty() ? "" : "; ") + *p;
    return set_frames(rest, wall, out);
}

Status Provider::set_zone(std::string_view zone, WallTime wall, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::set_zone); });
    record_.zone = zone;
    record_.set |= set_zone_bit;
    record_.since_second = -1;
    see(wall);
    if (frames_.always() || record_.by_hand)
        changed(out);
    else
        turn(frames_.contains(wall.second_of_week), out);
    return {};
}

Status Provider::set_warning(int64_t seconds, WallTime wall, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::set_warning); });
    constexpr int64_t longest = 86'400;
    if (seconds < 0 || seconds > longest)
        return fail("warning " + std::to_string(seconds) + " is not from 0 to " +
                    std::to_string(longest) + " seconds");
    record_.warning_s = seconds;
    see(wall);
    owner_said(set_warning_bit, true, out);
    return {};
}

// -------------------------------------------------------------------------------------------------
// for how much

Money Provider::asked_at(int32_t second_of_week) const {
    const PriceCurve::Rule* rule = curve_.at(second_of_week);
    if (!record_.price_auto) return rule ? rule->price : record_.reserve;
    return std::max({record_.floor, record_.learned, rule ? rule->price : Money{}});
}

Status Provider::set_curve(std::string_view text, WallTime wall, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::set_curve); });
    TRY_ASSIGN(curve_, PriceCurve::parse(text));
    record_.curve = curve_.text();
    see(wall);
    owner_said(set_curve_bit, true, out);
    return {};
}

Status Provider::set_auto(Money floor, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::set_auto); });
    if (floor < Money{} || floor > money_max)
        return fail("floor " + format_money(floor) + " is not from 0 to " +
                    format_money(money_max));
    record_.price_auto = true;
    record_.floor = floor;
    owner_said(set_price_bit, true, out);
    return {};
}

void Provider::learned(Money price, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::learned); });
    const Money within = std::clamp(price, Money{}, money_max);
    if (within == record_.learned) return;
    const Money before = asked();
    record_.learned = within;
    out.emplace_back(Persist{record_});
    if (asked() != before) out.emplace_back(Report{report()});
}

// -------------------------------------------------------------------------------------------------
// how much of the machine

MachineSize Provider::lent() const {
    return share_.of({machine_.cpus * int64_t{1'000}, machine_.memory_mb},
                     {record_.cpus * int64_t{1'000}, record_.memory_mb}, second_, here_);
}

std::string Provider::lent_by() const { return share_.holds(second_, here_); }

Status Provider::set_share(std::string_view text, WallTime wall, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::set_share); });
    TRY_ASSIGN(OwnerShare share, OwnerShare::parse(text == "all" ? "" : text));
    TRY(share.fits({machine_.cpus * int64_t{1'000}, machine_.memory_mb}));
    share_ = std::move(share);
    record_.share = share_.text();
    see(wall);
    owner_said(set_share_bit, true, out);
    return {};
}

void Provider::set_here(bool here, Outputs& out) {
    const Scene scene(
        *this, &out, [&] { return trace_in(Input::set_here, here ? "he is" : "he is not"); }, true);
    const MachineSize before = lent();
    here_ = here;
    if (!(lent() == before)) out.emplace_back(Report{report()});
}

// -------------------------------------------------------------------------------------------------
// for him

void Provider::explain(JsonWriter& j) const {
    const PriceCurve::Rule* rule = curve_.at(second_);
    const bool set = record_.set & set_price_bit;
    std::string why;
    if (record_.price_auto) {
        why = asked() == record_.learned ? "learned from the market's prices"
              : rule && asked() == rule->price
                  ? "the price curve, '" + rule->frames.text() + "': what is learned is less"
                  : "your floor: what is learned is less";
    } else if (rule) {
        why = "the price curve, '" + rule->frames.text() + "'";
    } else {
        why = set ? "pvdctl set price" : "the configuration";
    }
    j.field("price", asked()).field("price_why", why).field("price_auto", record_.price_auto);
    if (record_.price_auto) j.field("floor", record_.floor).field("learned", record_.learned);
    const bool held = record_.set & set_market_bit;
    const bool by_frames = !frames_.always() && !record_.by_hand;
    j.field("on_market", record_.on_market && !leaving_)
        .field("market_why", leaving_    ? cannot_
                             : by_frames ? "the frames " + frames_.text()
                             : held ? record_.on_market ? "pvdctl market on" : "pvdctl market off"
                                    : "the configuration");
    const MachineSize now = lent();
    const bool all = now == MachineSize{record_.cpus * int64_t{1'000}, record_.memory_mb};
    j.field("lent_cpus", static_cast<double>(now.cpu_milli) / 1'000)
        .field("lent_memory_mb", now.memory_mb)
        .field("lent_why", all ? "all that is offered" : "the share '" + lent_by() + "'");
    if (!cannot_.empty() || !resting_.empty())
        j.field("takes_none_why", cannot_.empty() ? resting_ : cannot_);
    if (!record_.on_market && opens_unix_s_ > 0) j.field("opens_unix_s", opens_unix_s_);
    if (record_.on_market && closes_unix_s_ > 0) j.field("closes_unix_s", closes_unix_s_);
}

// -------------------------------------------------------------------------------------------------
// for whom

Status Provider::ban(std::string_view whom, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::ban, std::string(whom)); });
    TRY_ASSIGN(const std::string entry, OwnerBans::entry(whom));
    auto& bans = record_.bans;
    const auto at = std::lower_bound(bans.begin(), bans.end(), entry);
    if (at != bans.end() && *at == entry) return {};
    if (bans.size() >= OwnerBans::entries_max)
        return fail("ban: there are " + std::to_string(bans.size()) +
                    " already; pvdctl allow takes one away");
    bans.insert(at, entry);
    out.emplace_back(Persist{record_});
    return {};
}

Status Provider::allow(std::string_view whom, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::allow, std::string(whom)); });
    TRY_ASSIGN(const std::string entry, OwnerBans::entry(whom));
    if (std::erase(record_.bans, entry) == 0)
        return fail("allow: '" + std::string(whom) + "' is not banned here");
    out.emplace_back(Persist{record_});
    return {};
}

// -------------------------------------------------------------------------------------------------

Status Provider::unset(std::string_view name, WallTime wall, Outputs& out) {
    const Scene scene(*this, &out, [&] { return trace_in(Input::unset, std::string(name)); });
    if (name == "price") {
        record_.price_auto = file_.price_auto;
        record_.floor = file_.floor;
        assign(&ProviderRecord::reserve, file_.reserve, set_price_bit, false, out);
    } else if (name == "speed") {
        assign(&ProviderRecord::speed, file_.speed, set_speed_bit, false, out);
    } else if (name == "cpus") {
        assign(&ProviderRecord::cpus, file_.cpus, set_cpus_bit, false, out);
    } else if (name == "memory") {
        assign(&ProviderRecord::memory_mb, file_.memory_mb, set_memory_bit, false, out);
    } else if (name == "warning") {
        assign(&ProviderRecord::warning_s, file_.warning_s, set_warning_bit, false, out);
    } else if (name == "curve") {
        TRY_ASSIGN(curve_, PriceCurve::parse(file_.curve));
        assign(&ProviderRecord::curve, file_.curve, set_curve_bit, false, out);
    } else if (name == "share") {
        TRY_ASSIGN(share_, OwnerShare::parse(file_.share));
        see(wall);
        assign(&ProviderRecord::share, file_.share, set_share_bit, false, out);
    } else if (name == "zone") {
        TRY(set_zone(file_.zone, wall, out));
        owner_said(set_zone_bit, false, out);
    } else if (name == "frames" || name == "market") {
        if (name == "frames") {
            TRY_ASSIGN(frames_, TimeFrames::parse(file_.frames));
            record_.frames = file_.frames;
            record_.set &= ~set_frames_bit;
        }
        record_.set &= ~set_market_bit;
        record_.by_hand = false;
        record_.since_unix_s = 0;
        see(wall);
        turn(frames_.always() ? file_.on_market : frames_.contains(wall.second_of_week), out);
    } else {
        return fail("'" + std::string(name) +
                    "' cannot be unset: price, speed, cpus, memory, frames, zone, curve, warning, "
                    "share or market");
    }
    return {};
}

// -------------------------------------------------------------------------------------------------
// trace

TraceLine Provider::trace_in(Input input, std::string why) const {
    return {"provider", TraceKind::input, to_string(input), {}, {}, node_, {}, std::move(why)};
}

TraceLine Provider::trace_of(const Output& output) const {
    TraceLine line{"provider", TraceKind::output, to_string(output), {}, {}, node_, {}, {}};
    if (const auto* r = std::get_if<Report>(&output)) line.why = r->report.cannot;
    if (const auto* a = std::get_if<Accepting>(&output)) {
        line.step = a->accepting ? "accept" : "leave";
        line.why = a->why;
    }
    return line;
}

void Provider::trace_state(const JobId&, Epoch) {
    const std::string step = !cannot_.empty()    ? "cannot"
                             : record_.on_market ? "on_market"
                                                 : "off_market";
    tracer_.tell_state("", {"provider", TraceKind::state, step, {}, {}, node_, {}, cannot_});
}

}  // namespace souk
