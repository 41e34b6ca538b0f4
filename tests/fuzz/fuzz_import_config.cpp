// SPDX-License-Identifier: GPL-2.0-or-later
// The import's configuration and its distributions: what is taken can be imported by.
#include <algorithm>
#include <cstdint>

#include "market/sim/import.hpp"

using namespace souk::sim;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    auto config = parse_import_config({reinterpret_cast<const char*>(data), size});
    if (!config) return 0;
    config->providers = std::min<int64_t>(config->providers, 100);
    SwfTrace trace;
    for (int i = 0; i < 5; ++i)
        trace.jobs.push_back(
            {.id = i, .submit_s = i * 50'000, .run_s = INT32_MAX - i, .requested = 1});
    (void)import_trace(trace, *config);
    return 0;
}
