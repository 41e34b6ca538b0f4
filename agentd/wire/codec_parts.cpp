// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/wire/codec_parts.hpp"

#include <sys/resource.h>

#include <algorithm>

#include "agentd/wire/types.hpp"

namespace souk::wire {

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

constexpr size_t strings_max = 32'768;  // entries of argv or env
constexpr size_t groups_max = 65'536;

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

}  // namespace souk::wire
