// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/owner_offer.hpp"

#include <time.h>

#include "agentd/store/records.hpp"
#include "kernel/sys/host/attributes.hpp"
#include "kernel/sys/host/zone.hpp"

namespace souk {

WallTime OwnerOffer::wall_in(const std::string& zone) {
    const int64_t now = ::time(nullptr);
    return {now, second_of_week(zone, now)};
}

Hardware OwnerOffer::hardware(const Config& config) const {
    Hardware m = p_.guests.hardware();
    m.near_group = config.near_group;
    m.near_trip_us = config.near_round_trip_us;
    m.near_mbit = config.near_mbit_per_s;
    for (const NodeResource& one : config.resources) m.resources.push_back(one.offer);
    MachineAttributes all = find_attributes(config.state, config.programs);
    for (const auto& [name, value] : config.attributes) all[name] = value;
    // A report has a frame of 16 KB, which holds the flags of the processors as well.
    constexpr size_t bytes_max = 8 * 1'024;
    size_t bytes = 0;
    for (const auto& [name, value] : all) {
        bytes += name.size() + value.size() + 4;
        if (m.attributes.size() < ProviderReport::attributes_max && bytes <= bytes_max)
            m.attributes.push_back(name + "=" + value);
    }
    return m;
}

ProviderRecord OwnerOffer::offered(const Config& config) const {
    const Hardware m = p_.guests.hardware();
    ProviderRecord record;
    record.reserve = config.price;
    record.speed = config.speed;
    record.cpus = config.cpus > 0 ? config.cpus : m.cpus;
    record.memory_mb = config.memory_mb > 0 ? config.memory_mb : m.memory_mb;
    record.frames = config.frames;
    record.zone = config.frames_zone;
    record.curve = config.price_curve;
    record.share = config.share;
    record.warning_s = config.frames_warning.ns / 1'000'000'000;
    record.on_market = config.on_market;
    return record;
}

Status OwnerOffer::open() {
    const Config& config = p_.config;
    std::optional<Provider> provider;
    TRY_ASSIGN(provider,
               Provider::create(config.node, hardware(config), offered(config), std::nullopt));
    bool known = false;  // whether the owner has set something by pvdctl
    TRY(p_.commits.read_all("provider", [&](const StateDb::Row& row) -> Status {
        TRY_ASSIGN(ProviderRecord kept, wire::unpack<ProviderRecord>(row.value));
        TRY_ASSIGN(provider, Provider::create(config.node, hardware(config), offered(config),
                                              std::move(kept)));
        known = true;
        return {};
    }));
    provider_ = std::make_unique<Provider>(std::move(*provider));
    provider_->tell_to(p_.trace.listener());
    for (const Provider::Override& o : provider_->overrides())
        p_.log.notice("what pvdctl set holds, not the configuration",
                      {{"name", o.name}, {"value", o.value}, {"configuration", o.file}});
    step([this](Provider& p, provider::Outputs& out) { p.started(wall_now(), out); });
    // The owner's record is there and cannot be read. He may have taken the node off the market, so
    // nobody lends it for him.
    if (!known && p_.commits.db().is_aside("provider", "record"))
        step([this](Provider& p, provider::Outputs& out) { p.market(false, wall_now(), out); });
    return {};
}

Result<Provider> OwnerOffer::made_of(const Config& config) const {
    return Provider::create(p_.config.node, hardware(config), offered(config), provider_->record());
}

void OwnerOffer::replace(Provider provider) {
    *provider_ = std::move(provider);
    provider_->tell_to(p_.trace.listener());
}

void OwnerOffer::step(const std::function<void(Provider&, provider::Outputs&)>& step) {
    provider::Outputs out;
    step(*provider_, out);
    for (provider::Output& o : out) apply(o);
}

void OwnerOffer::apply(provider::Output& output) {
    if (auto* p = std::get_if<provider::Persist>(&output))
        return p_.commits.put("provider", "record", wire::pack(p->record), Durable::now);
    if (auto* r = std::get_if<provider::Report>(&output)) return (void)p_.market.send(r->report);
    const auto& a = std::get<provider::Accepting>(output);
    p_.guests.step(
        [&](Guest& g, guest::Outputs& out) { g.set_accepting(a.accepting, a.why, out); });
}

// The machine names the next call from the frames and the clock.
void OwnerOffer::arm() {
    const int64_t seconds = provider_->next_call(wall_now());
    const Nanos at = seconds > 0 ? Loop::now() + Nanos::from_s(seconds) : Nanos::never();
    timer_.cancel();
    if (at == Nanos::never()) return;
    timer_ = p_.loop.at(at, [this] {
        step([this](Provider& p, provider::Outputs& out) { p.tick(wall_now(), out); });
        p_.listener.offer_ticked();
        arm();
    });
}

MachineSize OwnerOffer::machine_size() const {
    const Hardware& m = provider_->machine();
    return {m.cpus * int64_t{1'000}, m.memory_mb};
}

}  // namespace souk
