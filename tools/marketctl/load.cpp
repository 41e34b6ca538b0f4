// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/common/table.hpp"
#include "tools/marketctl/views.hpp"

namespace souk::tools {
namespace {

std::string in_ms(const Json& load, const char* key) {
    const Json one = {{key, load.value(key, 0.0) * 1e3}};
    return milliseconds(one, key);
}

}  // namespace

// Since it came to the node. What is not counted there is said.
Result<std::string> load_text(const Answer& answer) {
    TRY_ASSIGN(const Json load, parse_object(answer));
    const auto n = [&](const char* key) { return field(load, key); };
    std::string text = "on " + n("node") + " since it came there, as counted by " + n("source") +
                       "\nCPU time:   " + in_ms(load, "run_s") + "; it waited " +
                       in_ms(load, "wait_s") + " for a CPU";
    if (load.contains("off_cpu_s"))  // by BPF alone
        text += "; its threads waited " + in_ms(load, "off_cpu_s") + " for something else";
    if (load.contains("memory_stall_s"))
        text +=
            "\nmemory:     it stood still for " + in_ms(load, "memory_stall_s") + " for want of it";
    if (load.contains("trouble")) return text + "\nnothing else is counted: " + n("trouble");
    text += "\nswitches:   " + n("gave_up") + " to wait for something, " + n("preempted") +
            " while it could go on\nprocesses:  " + n("births") + " began, " + n("deaths") +
            " ended\nstorage:    " + bytes(load, "read_bytes") + " read, " +
            bytes(load, "write_bytes") + " written, " + n("major_faults") + " pages waited for";
    if (load.contains("network_trouble"))
        return text + "\nnetwork:    not counted: " + n("network_trouble");
    return text + "\nnetwork:    " + bytes(load, "received_bytes") + " received, " +
           bytes(load, "sent_bytes") + " sent";
}

}  // namespace souk::tools
