// SPDX-License-Identifier: GPL-2.0-or-later
// Agent: what the kernel counts of each guest (marketctl job ID --load, metrics).
#include <array>

#include "agentd/daemon/agent.hpp"
#include "kernel/base/json.hpp"

namespace souk {
namespace {

struct Counted {
    const char* name;
    const char* help;
    bool network;
    uint64_t LoadSample::*count;
};
// By BPF alone. The name in JSON and, between souk_guest_ and _total, in the metrics.
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

// Of the job's newest copy here.
Result<std::string> Agent::guest_load_json(const JobId& id) const {
    std::optional<LoadSample> load;
    std::optional<Nanos> stall;
    Epoch epoch;
    for (const auto& [key, entry] : guests_->machine().all()) {
        if (key.id != id) continue;
        if (auto found = guests_->load(key))
            load = found, stall = guests_->memory_stall(key), epoch = key.epoch;
    }
    if (!load) return fail("job " + id.text() + " does not run on node " + config_.node + " now");
    const std::string no_bpf = load_.why_not_bpf(), no_network = load_.why_no_network();
    JsonWriter j;
    j.begin_object().field("id", id.text()).field("node", config_.node).field("epoch", epoch.n);
    j.field("source", offer_->provider().load().source);
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

std::vector<Metric> Agent::guest_metrics() const {
    std::vector<Metric> all = {
        {"souk_guest_cpu_seconds_total", "CPU time of each guest since it came.", true, {}},
        {"souk_guest_wait_seconds_total", "Time that it waited for a CPU.", true, {}},
        {"souk_guest_memory_stall_seconds_total",
         "Time that some process of it stood still for want of memory.",
         true,
         {}}};
    const bool bpf = load_.why_not_bpf().empty(), network = load_.why_no_network().empty();
    if (bpf)
        all.push_back({"souk_guest_off_cpu_seconds_total",
                       "Time that its threads waited for something else than a CPU.",
                       true,
                       {}});
    for (const Counted& c : counted)
        if (bpf && (!c.network || network))
            all.push_back({std::string("souk_guest_") + c.name + "_total", c.help, true, {}});
    for (const auto& [key, entry] : guests_->machine().all()) {
        const auto load = guests_->load(key);
        if (!load) continue;
        const std::vector<std::pair<std::string, std::string>> who = {
            {"job", key.id.text()}, {"epoch", std::to_string(key.epoch.n)}};
        all[0].samples.push_back({who, seconds_of(load->run)});
        all[1].samples.push_back({who, seconds_of(load->wait)});
        if (const auto stall = guests_->memory_stall(key))
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
