// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/daemon/node_figures.hpp"

#include <array>
#include <map>

#include "kernel/base/json.hpp"
#include "kernel/base/version.hpp"

namespace souk {
namespace {

struct Counted {
    const char* name;
    const char* help;
    bool network;
    uint64_t LoadSample::*count;
};
// BPF alone counts these. The name is the one in JSON; in the metrics it stands between souk_guest_
// and _total.
constexpr std::array counted = {
    Counted{"gave_up", "Times that it left a CPU to wait for something.", false,
            &LoadSample::gave_up},
    Counted{"preempted", "Times that it left a CPU while it could have gone on.", false,
            &LoadSample::preempted},
    Counted{"births", "Processes of it that began.", false, &LoadSample::births},
    Counted{"deaths", "Processes of it that ended.", false, &LoadSample::deaths},
    Counted{"major_faults", "Pages that it waited for.", false, &LoadSample::major_faults},
    Counted{"read_bytes", "Bytes that storage gave it.", false, &LoadSample::read_bytes},
    Counted{"write_bytes", "Bytes that it has storage take.", false, &LoadSample::write_bytes},
    Counted{"received_bytes", "Bytes of packets that came to it.", true,
            &LoadSample::received_bytes},
    Counted{"sent_bytes", "Bytes of packets that it sent.", true, &LoadSample::sent_bytes},
};

double seconds_of(Nanos span) { return static_cast<double>(span.ns) / 1e9; }

}  // namespace

Status NodeFigures::open() {
    if (!p_.config.status_file.empty())
        file_ = std::make_unique<StatusFile>(
            p_.loop, p_.log, "agentd", p_.config.status_file, p_.config.status_every,
            [this] { return status_lines(); },
            [this](const std::string&, std::string_view text) { return p_.root.put_status(text); });
    if (p_.config.metrics.empty()) return {};
    page_ = std::make_unique<MetricsPage>(p_.loop, [this] { return metrics(); });
    if (const Status listens = page_->listen(p_.config.metrics); !listens)
        return wrap("metrics: " + p_.config.metrics, listens.error());
    return {};
}

std::vector<Metric> NodeFigures::metrics() const {
    constexpr double megabyte = 1 << 20;
    const auto units = [](Money m) { return static_cast<double>(m.micro) / 1e6; };
    const ProviderReport r = p_.offer.provider().report();
    std::map<std::string, double> phases;
    for (int p = static_cast<int>(JobPhase::waiting); p < static_cast<int>(JobPhase::finished); ++p)
        phases[to_string(static_cast<JobPhase>(p))] = 0;
    for (const auto& [seq, job] : p_.home.machine().jobs())
        if (job.phase != JobPhase::finished) ++phases[to_string(job.phase)];
    Metric jobs{
        "souk_node_home_jobs", "Unfinished jobs that were submitted here, by phase.", false, {}};
    for (const auto& [phase, n] : phases) jobs.samples.push_back({{{"phase", phase}}, n});
    Metric build{
        "souk_build_info", "The version of agentd.", false, {{{{"version", version()}}, 1}}};
    std::vector<Metric> all = {
        std::move(build),
        std::move(jobs),
        gauge("souk_node_guests", "Jobs that this node holds: that run, or lie here.",
              static_cast<double>(p_.guests.count())),
        gauge("souk_node_on_market", "1 while its owner offers it.", r.on_market ? 1 : 0),
        gauge("souk_node_can_take_jobs", "0 while something keeps it from taking jobs.",
              r.cannot.empty() ? 1 : 0),
        gauge("souk_node_market_connected", "1 while it has a connection to the market.",
              p_.market.connected() ? 1 : 0),
        gauge("souk_node_reserve_units", "The least per CPU-hour that its owner takes.",
              units(r.reserve)),
        gauge("souk_node_current_price_units", "What its guests pay per CPU-hour.",
              units(p_.offer.note().current_price)),
        gauge("souk_node_next_price_units", "The bid per CPU-hour that gets a place here.",
              units(p_.offer.note().next_price)),
        gauge("souk_node_earned_units", "What it has earned.", units(p_.offer.note().earned)),
        gauge("souk_node_cpus", "CPUs that it offers.", r.cpus),
        gauge("souk_node_speed", "Its speed; 100 is a standard machine.",
              static_cast<double>(r.speed)),
        gauge("souk_node_memory_bytes", "Memory that it offers.",
              static_cast<double>(r.memory_mb) * megabyte),
        gauge("souk_node_memory_free_bytes", "Of that, what is free.",
              static_cast<double>(r.free_mb) * megabyte),
        gauge("souk_node_load_ratio", "CPU time that its jobs use, of all its CPUs.",
              r.load_permille / 1e3),
        gauge("souk_node_wait_ratio", "Time that its jobs wait for a CPU, of all its CPUs.",
              r.wait_permille / 1e3)};
    if (const auto& pressure = p_.load.memory_pressure())
        all.push_back(gauge("souk_node_memory_pressure_ratio",
                            "Of the last 10 s, the part in which a task of the machine stood still "
                            "for want of memory.",
                            *pressure / 1e3));
    for (Metric& m : p_.presence.history().metrics()) all.push_back(std::move(m));
    for (Metric& m : guest_metrics()) all.push_back(std::move(m));
    for (Metric& m : gateway_metrics()) all.push_back(std::move(m));
    return all;
}

std::vector<Metric> NodeFigures::gateway_metrics() const {
    std::vector<Metric> all;
    if (!p_.gateways.own().empty())
        all.push_back(gauge("souk_node_gateway_connected",
                            "1 while it has a connection to its gateway.",
                            p_.gateways.is_offered() ? 1 : 0));
    if (!p_.gateway) return all;
    const Gateway::Figures f = p_.gateway->figures();
    all.push_back(gauge("souk_gateway_nodes", "Nodes that are reached by this gateway now.",
                        static_cast<double>(f.desk.offers)));
    all.push_back(gauge("souk_gateway_relays", "Connections that it relays now.",
                        static_cast<double>(f.desk.relays)));
    all.push_back(counter("souk_gateway_relayed_total", "Connections that it has relayed.",
                          static_cast<double>(f.desk.relayed)));
    all.push_back(counter("souk_gateway_refused_total", "Connections that it has not.",
                          static_cast<double>(f.desk.refused)));
    all.push_back(counter("souk_gateway_relayed_bytes_total",
                          "Bytes that it has relayed, both ways.", static_cast<double>(f.bytes)));
    return all;
}

void NodeFigures::add_gateway(JsonWriter& j) const {
    if (!p_.gateways.own().empty())
        j.field("gateway", p_.gateways.own()).field("gateway_connected", p_.gateways.is_offered());
    if (!p_.gateway) return;
    const Gateway::Figures f = p_.gateway->figures();
    j.field("relayed_nodes", f.desk.offers)
        .field("relays", f.desk.relays)
        .field("relayed", f.desk.relayed)
        .field("relayed_bytes", f.bytes);
}

std::vector<StatusLine> NodeFigures::status_lines() const {
    const ProviderReport r = p_.offer.provider().report();
    size_t waiting = 0, frozen = 0, unfinished = 0;
    for (const auto& [seq, job] : p_.home.machine().jobs()) {
        unfinished += job.phase != JobPhase::finished;
        waiting += job.phase == JobPhase::waiting;
        frozen += job.phase == JobPhase::frozen;
    }
    return {{"node", p_.config.node},
            {"address", p_.config.address},
            {"market", p_.market.market()},
            {"market_connected", p_.market.connected()},
            {"market_trouble", p_.market.trouble()},
            {"on_market", r.on_market},
            {"cannot", r.cannot},
            {"guests", p_.guests.count()},
            {"home_jobs", unfinished},
            {"home_jobs_waiting", waiting},
            {"home_jobs_frozen", frozen},
            {"reserve", format_money(r.reserve)},
            {"current_price", format_money(p_.offer.note().current_price)},
            {"next_price", format_money(p_.offer.note().next_price)},
            {"earned", format_money(p_.offer.note().earned)},
            {"speed", r.speed},
            {"cpus", r.cpus},
            {"memory_mb", r.memory_mb},
            {"free_mb", r.free_mb},
            {"load_permille", r.load_permille},
            {"wait_permille", r.wait_permille}};
}

Result<std::string> NodeFigures::guest_load_json(const JobId& id) const {
    std::optional<LoadSample> load;
    std::optional<Nanos> stall;
    Epoch epoch;
    for (const auto& [key, entry] : p_.guests.machine().all()) {
        if (key.id != id) continue;
        if (auto found = p_.guests.load(key))
            load = found, stall = p_.guests.memory_stall(key), epoch = key.epoch;
    }
    if (!load) return fail("job " + id.text() + " does not run on node " + p_.config.node + " now");
    const std::string no_bpf = p_.load.why_not_bpf(), no_network = p_.load.why_no_network();
    JsonWriter j;
    j.begin_object().field("id", id.text()).field("node", p_.config.node).field("epoch", epoch.n);
    j.field("source", p_.offer.provider().load().source);
    if (!no_bpf.empty()) j.field("trouble", no_bpf);
    if (!no_network.empty()) j.field("network_trouble", no_network);
    j.field("run_s", seconds_of(load->run)).field("wait_s", seconds_of(load->wait));
    if (stall) j.field("memory_stall_s", seconds_of(*stall));
    if (no_bpf.empty())
        j.field("wait_p99_us", load->wait_quantile({}, 990).ns / 1'000)
            .field("off_cpu_s", seconds_of(load->off_cpu));
    for (const Counted& c : counted)
        if (no_bpf.empty() && (!c.network || no_network.empty())) j.field(c.name, (*load).*c.count);
    return j.end_object().take();
}

std::vector<Metric> NodeFigures::guest_metrics() const {
    std::vector<Metric> all = {
        {"souk_guest_cpu_seconds_total", "CPU time of each guest since it came.", true, {}},
        {"souk_guest_wait_seconds_total", "Time that it waited for a CPU.", true, {}},
        {"souk_guest_memory_stall_seconds_total",
         "Time that some process of it stood still for want of memory.",
         true,
         {}}};
    const bool bpf = p_.load.why_not_bpf().empty(), network = p_.load.why_no_network().empty();
    if (bpf)
        all.push_back({"souk_guest_off_cpu_seconds_total",
                       "Time that its threads waited for something else than a CPU.",
                       true,
                       {}});
    for (const Counted& c : counted)
        if (bpf && (!c.network || network))
            all.push_back({std::string("souk_guest_") + c.name + "_total", c.help, true, {}});
    for (const auto& [key, entry] : p_.guests.machine().all()) {
        const auto load = p_.guests.load(key);
        if (!load) continue;
        const std::vector<std::pair<std::string, std::string>> who = {
            {"job", key.id.text()}, {"epoch", std::to_string(key.epoch.n)}};
        all[0].samples.push_back({who, seconds_of(load->run)});
        all[1].samples.push_back({who, seconds_of(load->wait)});
        if (const auto stall = p_.guests.memory_stall(key))
            all[2].samples.push_back({who, seconds_of(*stall)});
        size_t at = 3;
        if (bpf) all[at++].samples.push_back({who, seconds_of(load->off_cpu)});
        for (const Counted& c : counted)
            if (bpf && (!c.network || network))
                all[at++].samples.push_back({who, static_cast<double>((*load).*c.count)});
    }
    return all;
}

}  // namespace souk
