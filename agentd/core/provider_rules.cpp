// SPDX-License-Identifier: GPL-2.0-or-later
// Provider: the owner's rules, in which hours it is offered and at what price, and who may not
// come.
#include <algorithm>
#include <iterator>
#include <utility>

#include "agentd/core/owner_bans.hpp"
#include "agentd/core/provider.hpp"
#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"

namespace souk {

using namespace provider;

void Provider::owner_said(uint32_t bit, bool set, Outputs& out) {
    record_.set = set ? record_.set | bit : record_.set & ~bit;
    changed(out);
}

// -------------------------------------------------------------------------------------------------
// when

// New frames rule from now on: an earlier word of the owner is over.
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

}  // namespace souk
