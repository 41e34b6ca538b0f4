// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/wire/codec_parts.hpp"

namespace souk::wire {

Pb__Peer* fill_peer(const Peer& peer, Arena& arena) {
    auto* m = make(arena, pb__peer__init);
    m->node = fill_string(peer.node, arena);
    m->address = fill_string(peer.address, arena);
    return m;
}

Peer take_peer_or_none(const char* field, const Pb__Peer* peer, Check& c) {
    if (!peer) return {};
    return {c.node_or_none(field, peer->node), c.address(field, peer->address)};
}

Pb__JobTerms* fill_terms(const JobTerms& terms, Arena& arena) {
    auto* m = make(arena, pb__job_terms__init);
    m->max_price = terms.max_price.micro;
    m->budget = terms.budget.micro;
    m->memory_mb = terms.memory_mb;
    m->cpus = terms.cpus;
    m->finish = terms.finish.ns;
    m->strategy = fill_string(terms.strategy, arena);
    m->pace = terms.pace;
    m->memory_by_default = terms.memory_by_default;
    return m;
}

JobTerms take_terms(const Pb__JobTerms* m, Check& c) {
    if (!m) {
        c.bad("terms", "missing");
        return {};
    }
    JobTerms terms;
    terms.max_price = c.price("max_price", m->max_price, 1);
    terms.budget = c.price("budget", m->budget);
    terms.memory_mb = c.megabytes("memory_mb", m->memory_mb);
    terms.cpus = c.cpus("cpus", m->cpus);
    terms.finish = c.span("finish", m->finish);
    terms.strategy = c.strategy("strategy", m->strategy);
    terms.pace = m->pace;
    terms.memory_by_default = m->memory_by_default;
    return terms;
}

Pb__MoveForecast* fill_forecast(const MoveForecast& forecast, Arena& arena) {
    auto* m = make(arena, pb__move_forecast__init);
    m->form = static_cast<uint32_t>(forecast.form);
    m->pause = forecast.pause.ns;
    m->total = forecast.total.ns;
    m->precopy_bytes = forecast.precopy_bytes;
    m->precopy_time = forecast.precopy_time.ns;
    m->precopy_rounds = forecast.precopy_rounds;
    m->left_bytes = forecast.left_bytes;
    m->frozen_bytes = forecast.frozen_bytes;
    m->dirty_bytes_per_s = forecast.dirty_bytes_per_s;
    m->dirty_expected_bytes_per_s = forecast.dirty_expected_bytes_per_s;
    return m;
}

MoveForecast take_forecast(const Pb__MoveForecast* m, Check& c) {
    if (!m) return {};
    return {c.one_of("form", m->form, MoveForm::stop_and_copy, MoveForm::post_copy),
            c.span("pause", m->pause),
            c.span("total", m->total),
            c.count("ahead_bytes", m->precopy_bytes),
            c.span("ahead_time", m->precopy_time),
            m->precopy_rounds,
            c.count("left_bytes", m->left_bytes),
            c.count("frozen_bytes", m->frozen_bytes),
            c.count("dirty_bytes_per_s", m->dirty_bytes_per_s),
            c.count("dirty_expected_bytes_per_s", m->dirty_expected_bytes_per_s)};
}

Pb__JobStats* fill_stats(const JobStats& stats, Arena& arena) {
    auto* m = make(arena, pb__job_stats__init);
    m->freezes = stats.freezes;
    m->thaws = stats.thaws;
    m->migrations = stats.migrations;
    m->failed_moves = stats.failed_moves;
    m->run_time = stats.run_time.ns;
    m->longest_pause = stats.longest_pause.ns;
    m->image_bytes = stats.image_bytes;
    m->forecast = fill_forecast(stats.last_move.forecast, arena);
    m->last_pause = stats.last_move.pause.ns;
    m->last_total = stats.last_move.total.ns;
    m->cpu_time = stats.cpu_time.ns;
    m->resumes = stats.resumes;
    return m;
}

JobStats take_stats(const Pb__JobStats* m, Check& c) {
    if (!m) return {};
    JobStats stats;
    stats.freezes = m->freezes;
    stats.thaws = m->thaws;
    stats.migrations = m->migrations;
    stats.failed_moves = m->failed_moves;
    stats.run_time = c.span("run_time", m->run_time);
    stats.longest_pause = c.span("longest_pause", m->longest_pause);
    stats.image_bytes = c.in<int64_t>("image_bytes", m->image_bytes, 0, bytes_max);
    stats.last_move = {take_forecast(m->forecast, c), c.span("last_pause", m->last_pause),
                       c.span("last_total", m->last_total)};
    stats.cpu_time = c.span("cpu_time", m->cpu_time);
    stats.resumes = m->resumes;
    return stats;
}

void fill_places(const std::vector<NodeName>& places, size_t& n, char**& out, Arena& arena) {
    const size_t first = places.size() > places_max ? places.size() - places_max : 0;
    n = places.size() - first;
    out = arena.array<char*>(n);
    for (size_t i = 0; i < n; ++i) out[i] = fill_string(places[first + i], arena);
}

std::vector<NodeName> take_places(size_t n, char* const* places, Check& c) {
    std::vector<NodeName> out;
    if (n > places_max)
        c.bad("places", std::to_string(n) + " entries, at most " + std::to_string(places_max));
    for (size_t i = 0; i < n && c.ok(); ++i) out.push_back(c.node("places", places[i]));
    return out;
}

}  // namespace souk::wire
