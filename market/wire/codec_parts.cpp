// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/wire/codec_parts.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <cstring>

#include "kernel/base/check.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/text.hpp"

namespace souk::wire {

void* Arena::allocate(size_t bytes) {
    constexpr size_t align = alignof(std::max_align_t), block = 4096;
    if (bytes > left_ || bytes > SIZE_MAX / 2) return nullptr;
    bytes = (bytes + align - 1) / align * align;
    if (bytes > in_block_) {
        const size_t size = std::max(bytes, block);
        // zeroed, aligned as operator new aligns
        blocks_.push_back(std::make_unique<char[]>(size));
        next_ = blocks_.back().get();
        in_block_ = size;
    }
    void* result = next_;
    next_ += bytes;
    in_block_ -= bytes;
    left_ -= std::min(left_, bytes);
    return result;
}

void Check::bad(const char* field, const std::string& what) {
    if (error_.empty()) error_ = std::string(message_) + ": " + field + ": " + what;
}

NodeName Check::node(const char* field, const char* name) {
    if (!valid_node_name(name)) bad(field, "not a node name");
    return name;
}

std::string Check::address(const char* field, const char* text) {
    const std::string_view all = text;
    if (all.empty()) return {};
    const auto colon = all.rfind(':');
    const bool printable =
        std::all_of(all.begin(), all.end(), [](char c) { return c > ' ' && c < '\x7f'; });
    if (printable && all.size() <= name_max && colon != std::string_view::npos && colon > 0) {
        const unsigned port = whole_number<unsigned>(all.substr(colon + 1)).value_or(0);
        if (port > 0 && port < 65'536) return text;
    }
    bad(field, "not an address: host:port is wanted");
    return {};
}

JobId Check::job(const Pb__JobId* id) {
    if (!id) {
        bad("id", "missing");
        return {};
    }
    return {node("id", id->home), in<uint64_t>("id", id->seq, 1, counter_max)};
}

std::string Check::strategy(const char* field, const char* text) {
    const std::string_view all = text;
    const bool clean = std::all_of(all.begin(), all.end(), [](char c) {
        return static_cast<unsigned char>(c) >= ' ' && c != '\x7f' && c != '\'' && c != '"';
    });
    if (all.size() > 31 || !clean) bad(field, "at most 31 characters and no quote");
    return text;
}

std::string Check::data(const char* field, const ProtobufCBinaryData& bytes, size_t n_max) {
    if (bytes.len > n_max) {
        bad(field, std::to_string(bytes.len) + " bytes, at most " + std::to_string(n_max));
        return {};
    }
    return bytes.len ? std::string(reinterpret_cast<const char*>(bytes.data), bytes.len)
                     : std::string();
}

std::string Check::c_string(const char* field, const ProtobufCBinaryData& bytes, size_t n_max) {
    std::string text = data(field, bytes, n_max);
    if (text.find('\0') != std::string::npos) bad(field, "a NUL byte inside");
    return text;
}

std::string clean(std::string_view text, size_t n_max) {
    size_t n = std::min(text.size(), n_max);
    for (int i = 0;
         i < 3 && n > 0 && n < text.size() && (static_cast<unsigned char>(text[n]) & 0xc0) == 0x80;
         ++i)
        --n;
    return blank_controls(text.substr(0, n));
}

char* fill_string(const std::string& text, Arena&) { return const_cast<char*>(text.c_str()); }

char* fill_line(std::string_view text, Arena& arena, size_t n_max) {
    const std::string line = clean(text, n_max);
    char* copy = arena.array<char>(line.size() + 1);
    std::memcpy(copy, line.c_str(), line.size() + 1);
    return copy;
}

ProtobufCBinaryData fill_bytes(std::string_view bytes) {
    return {bytes.size(), reinterpret_cast<uint8_t*>(const_cast<char*>(bytes.data()))};
}

Pb__JobId* fill_id(const JobId& id, Arena& arena) {
    auto* m = make(arena, pb__job_id__init);
    m->home = fill_string(id.home, arena);
    m->seq = id.seq;
    return m;
}

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

Pb__JobSpec* fill_spec(const JobSpec& spec, Arena& arena) {
    auto* m = make(arena, pb__job_spec__init);
    const auto strings = [&](const std::vector<std::string>& from, size_t& n,
                             ProtobufCBinaryData*& to) {
        n = from.size();
        to = arena.array<ProtobufCBinaryData>(n);
        for (size_t i = 0; i < n; ++i) to[i] = fill_bytes(from[i]);
    };
    strings(spec.argv, m->n_argv, m->argv);
    strings(spec.env, m->n_env, m->env);
    m->path = fill_bytes(spec.path);
    m->cwd = fill_bytes(spec.cwd);
    m->umask = spec.umask;
    m->n_rlimits = spec.rlimits.size();
    m->rlimits = arena.array<Pb__ResourceLimit*>(spec.rlimits.size());
    for (size_t i = 0; i < spec.rlimits.size(); ++i) {
        m->rlimits[i] = make(arena, pb__resource_limit__init);
        m->rlimits[i]->resource = spec.rlimits[i].resource;
        m->rlimits[i]->soft = spec.rlimits[i].soft;
        m->rlimits[i]->hard = spec.rlimits[i].hard;
    }
    m->uid = spec.uid;
    m->gid = spec.gid;
    m->n_groups = spec.groups.size();
    m->groups = const_cast<uint32_t*>(spec.groups.data());
    m->tty = spec.tty;
    m->rows = spec.rows;
    m->move = static_cast<uint32_t>(spec.move);
    m->tcp = static_cast<uint32_t>(spec.tcp);
    m->net = static_cast<uint32_t>(spec.net);
    m->address = spec.address.n;
    m->checkpoint_every = spec.checkpoint_every.ns;
    m->restart = spec.restart;
    m->lease = spec.lease.ns;
    m->must_migrate = spec.must_migrate;
    m->cols = spec.cols;
    return m;
}

namespace {
void take_strings(const char* field, size_t n, const ProtobufCBinaryData* from,
                  std::vector<std::string>& to, size_t& bytes_left, Check& c) {
    if (n > strings_max)
        return c.bad(field, std::to_string(n) + " entries, at most " + std::to_string(strings_max));
    to.reserve(n);
    for (size_t i = 0; i < n && c.ok(); ++i) {
        to.push_back(c.c_string(field, from[i], bytes_left));
        bytes_left -= std::min(bytes_left, to.back().size() + 1);
    }
}
}  // namespace

JobSpec take_spec(const Pb__JobSpec* m, Check& c) {
    if (!m) {
        c.bad("spec", "missing");
        return {};
    }
    constexpr size_t path_max = 4095;
    JobSpec spec;
    size_t bytes_left = spec_bytes_max;
    take_strings("argv", m->n_argv, m->argv, spec.argv, bytes_left, c);
    take_strings("env", m->n_env, m->env, spec.env, bytes_left, c);
    if (spec.argv.empty()) c.bad("argv", "empty");
    spec.path = c.c_string("path", m->path, path_max);
    spec.cwd = c.c_string("cwd", m->cwd, path_max);
    if (!spec.path.starts_with('/')) c.bad("path", "not absolute");
    if (!spec.cwd.starts_with('/')) c.bad("cwd", "not absolute");
    spec.umask = c.in<uint32_t>("umask", m->umask, 0, 0777);
    if (m->n_rlimits > RLIM_NLIMITS) {
        c.bad("rlimits", "more than the kernel has");
        return spec;
    }
    for (size_t i = 0; i < m->n_rlimits; ++i) {
        const Pb__ResourceLimit& r = *m->rlimits[i];
        if (r.soft > r.hard) c.bad("rlimits", "a soft limit above its hard one");
        spec.rlimits.push_back(
            {c.in<int32_t>("rlimits", r.resource, 0, RLIM_NLIMITS - 1), r.soft, r.hard});
    }
    spec.uid = m->uid;
    spec.gid = m->gid;
    if (m->n_groups > groups_max)
        c.bad("groups", "too many");
    else if (m->n_groups)
        spec.groups.assign(m->groups, m->groups + m->n_groups);
    spec.tty = m->tty;
    spec.move = c.one_of("move", m->move, MovePolicy::automatic, MovePolicy::fast);
    spec.tcp = c.one_of("tcp", m->tcp, TcpPolicy::close, TcpPolicy::keep);
    spec.net = c.one_of("net", m->net, NetMode::host, NetMode::own);
    if ((spec.net == NetMode::own) != (spec.tcp == TcpPolicy::keep))
        c.bad("tcp", "connections go along with a network of its own, and only with that");
    spec.address = {m->address};
    spec.checkpoint_every = c.span("checkpoint_every", m->checkpoint_every);
    spec.restart = m->restart;
    spec.lease = c.span("lease", m->lease);
    spec.must_migrate = m->must_migrate;
    spec.rows = c.cells("rows", m->rows);
    spec.cols = c.cells("cols", m->cols);
    return spec;
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

std::string serialize(const ProtobufCMessage& message) {
    std::string bytes(protobuf_c_message_get_packed_size(&message), '\0');
    const size_t n = protobuf_c_message_pack(&message, reinterpret_cast<uint8_t*>(bytes.data()));
    MUST(n == bytes.size());
    return bytes;
}

// The decoder's own bookkeeping and the structs of a message take up to about 25 bytes for each of
// the shortest fields.
size_t arena_bytes_for(size_t message_bytes) { return 64 * 1024 + 32 * message_bytes; }

const ProtobufCMessage* parse_into(Arena& arena, const ProtobufCMessageDescriptor& descriptor,
                                   std::string_view bytes) {
    ProtobufCAllocator allocator{
        [](void* data, size_t size) { return static_cast<Arena*>(data)->allocate(size); },
        [](void*, void*) {}, &arena};
    return protobuf_c_message_unpack(&descriptor, &allocator, bytes.size(),
                                     reinterpret_cast<const uint8_t*>(bytes.data()));
}

}  // namespace souk::wire
