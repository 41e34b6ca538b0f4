// SPDX-License-Identifier: GPL-2.0-or-later
// A change of a job's terms.
#include "agentd/wire/agentd.pb-c.h"
#include "agentd/wire/codec.hpp"
#include "agentd/wire/message_fields.hpp"
#include "agentd/wire/spec_check.hpp"
#include "kernel/wire/field_codec.hpp"
#include "market/core/needs.hpp"
#include "market/core/types.hpp"

namespace souk::wire {
namespace {

void fill(const Change& v, Pb__Change& m, Arena& a) {
    m.id = fill_id(v.id, a);
    m.fields = v.fields;
    m.terms = reinterpret_cast<Pb__JobTerms*>(put_message(v.terms, pb__job_terms__descriptor, a));
}

// Whole: a part of it may hold elsewhere.
std::string needs_text(const Pb__JobTerms& m, Check& c) {
    const std::string_view text = m.needs;
    if (text.size() > market::Needs::text_max) c.bad("needs", "too long");
    return clean(text, market::Needs::text_max);
}

// A term that does not change may be anything on the wire and is at its default here.
Change take(const Pb__Change& m, Check& c) {
    Change v;
    v.id = c.job(m.id);
    v.fields = c.in<uint32_t>("fields", m.fields, 1, Change::all);
    if (!m.terms) {
        c.bad("terms", "missing");
        return v;
    }
    if (v.fields & Change::max_price)
        v.terms.max_price = c.price("max_price", m.terms->max_price, 1);
    if (v.fields & Change::budget) v.terms.budget = c.price("budget", m.terms->budget);
    if (v.fields & Change::memory_mb)
        v.terms.memory_mb = c.megabytes("memory_mb", m.terms->memory_mb);
    if (v.fields & Change::cpus) v.terms.cpus = c.cpus("cpus", m.terms->cpus);
    if (v.fields & Change::finish) v.terms.finish = c.span("finish", m.terms->finish);
    if (v.fields & Change::strategy) v.terms.strategy = c.strategy("strategy", m.terms->strategy);
    if (v.fields & Change::pace) v.terms.pace = m.terms->pace;
    if (v.fields & Change::runtime) v.terms.runtime = c.span("runtime", m.terms->runtime);
    RunLimits limits;
    if (v.fields & Change::time_limit) {
        limits.run = c.span("time_limit", m.terms->time_limit);
        limits.at_speed = c.in<int64_t>("time_speed", m.terms->time_speed, 0, market::speed_max);
    }
    if (v.fields & Change::cpu_limit) limits.cpu = c.span("cpu_limit", m.terms->cpu_limit);
    if (v.fields & Change::warning) {
        limits.signal = c.in<int32_t>("warn_signal", m.terms->warn_signal, 0, 64);
        limits.before = c.span("warn_before", m.terms->warn_before);
    }
    v.terms.limits = limits;
    if (v.fields & Change::needs) v.terms.needs = needs_text(*m.terms, c);
    if (v.fields & Change::booking) {
        Booking& booking = v.terms.booking.edit();
        booking.start = c.span("book_start", m.terms->book_start);
        booking.span = c.span("book_span", m.terms->book_span);
        booking.early = m.terms->book_early;
        booking.promise = m.terms->promise;
    }
    SiteWish wish;
    if (v.fields & Change::sites) wish.names = clean(m.terms->sites, 2048);
    if (v.fields & Change::sites_prefer) {
        wish.cheapest = m.terms->sites_cheapest != 0;
        wish.stays = m.terms->sites_stay != 0;
    }
    if (v.fields & Change::sites_within)
        wish.within = c.price("sites_within", m.terms->sites_within);
    v.terms.sites = wish;
    if (v.fields & Change::resources) {
        const auto resources = parse_resources(m.terms->resources);
        if (!resources) c.bad("resources", "not a list of NAME=COUNT");
        if (resources) v.terms.resources = resources_text(*resources);
    }
    return v;
}

}  // namespace

SOUK_WIRE_CODEC(Change, Pb__Change, pb__change)

JobTerms changed(JobTerms terms, const Change& change) {
    if (change.fields & Change::max_price) terms.max_price = change.terms.max_price;
    if (change.fields & Change::budget) terms.budget = change.terms.budget;
    if (change.fields & Change::memory_mb) {
        terms.memory_mb = change.terms.memory_mb;
        terms.memory_by_default = false;
    }
    if (change.fields & Change::cpus) terms.cpus = change.terms.cpus;
    if (change.fields & Change::finish) terms.finish = change.terms.finish;
    if (change.fields & Change::strategy) terms.strategy = change.terms.strategy;
    if (change.fields & Change::pace) terms.pace = change.terms.pace;
    if (change.fields & Change::runtime) terms.runtime = change.terms.runtime;
    RunLimits limits = terms.limits;
    const RunLimits& told = *change.terms.limits;
    if (change.fields & Change::time_limit) {
        limits.run = told.run;
        limits.at_speed = told.at_speed;
    }
    if (change.fields & Change::cpu_limit) limits.cpu = told.cpu;
    if (change.fields & Change::warning) {
        limits.signal = told.signal;
        limits.before = told.before;
    }
    terms.limits = limits;
    if (change.fields & Change::needs) terms.needs = *change.terms.needs;
    if (change.fields & Change::booking) {
        Booking booking = terms.booking;
        booking.start = change.terms.booking->start;
        booking.span = change.terms.booking->span;
        booking.early = change.terms.booking->early;
        booking.promise = change.terms.booking->promise;
        terms.booking = booking;
    }
    if (change.fields & Change::resources) terms.resources = *change.terms.resources;
    SiteWish wish = *terms.sites;
    if (change.fields & Change::sites) wish.names = change.terms.sites->names;
    if (change.fields & Change::sites_prefer) {
        wish.cheapest = change.terms.sites->cheapest;
        wish.stays = change.terms.sites->stays;
    }
    if (change.fields & Change::sites_within) wish.within = change.terms.sites->within;
    terms.sites = wish;
    return terms;
}

}  // namespace souk::wire
