// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/base/trace.hpp"

#include "kernel/base/check.hpp"

namespace souk {

const char* to_string(TraceKind kind) {
    switch (kind) {
        case TraceKind::input: return "input";
        case TraceKind::state: return "state";
        case TraceKind::output: return "output";
    }
    MUST(false);
}

std::string text(const TraceLine& line) {
    std::string s = std::string(line.machine) + " " + to_string(line.kind) + " " + line.step;
    if (!line.job.home.empty()) s += " JOB=" + line.job.text();
    if (line.epoch.n > 0) s += " EPOCH=" + std::to_string(line.epoch.n);
    if (!line.node.empty()) s += " NODE=" + line.node;
    if (!line.to.empty()) s += " TO=" + line.to;
    if (!line.why.empty()) s += " WHY=\"" + line.why + "\"";
    return s;
}

void Tracer::tell_state(const std::string& name, const TraceLine& line) {
    if (!on()) return;
    if (line.step.empty()) {
        if (states_.erase(name) == 0) return;
        TraceLine gone = line;
        gone.step = "gone";
        return tell(gone);
    }
    if (std::exchange(states_[name], line.step) != line.step) tell(line);
}

}  // namespace souk
