// SPDX-License-Identifier: GPL-2.0-or-later
// SwfParser: the text in one piece and in pieces of sizes that the input's first byte chooses gives
// the same; what it takes can be replayed.
#include <algorithm>
#include <cstdint>

#include "kernel/base/check.hpp"
#include "market/sim/replay.hpp"
#include "market/sim/swf.hpp"

using namespace souk;
using namespace souk::sim;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    if (size == 0) return 0;
    const size_t piece = 1 + data[0] % 64;
    const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
    const Result<SwfTrace> whole = parse_swf(text);
    SwfParser parser;
    Status fed;
    for (size_t at = 0; at < text.size() && fed; at += piece)
        fed = parser.feed(text.substr(at, piece));
    if (!fed) {
        MUST(!whole && whole.error().message == fed.error().message);
        return 0;
    }
    const Result<SwfTrace> parts = parser.finish();
    MUST(whole.has_value() == parts.has_value());
    if (!whole) {
        MUST(whole.error().message == parts.error().message);
        return 0;
    }
    MUST(whole->jobs.size() == parts->jobs.size() && whole->max_procs == parts->max_procs);
    const Workload w = workload_of(*whole, 100, Procs::requested, Estimates::user);
    const Schedule fcfs = replay_fcfs(w.jobs, 100), easy = replay_easy(w.jobs, 100);
    for (size_t i = 0; i < w.jobs.size(); ++i)
        MUST(std::min(fcfs.end_s[i], easy.end_s[i]) >= w.jobs[i].submit_s + w.jobs[i].run_s);
    return 0;
}
