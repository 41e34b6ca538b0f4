// SPDX-License-Identifier: GPL-2.0-or-later
// Job and provider files: what is taken can be written and read back the same.
#include <cstdint>
#include <cstdlib>

#include "market/sim/market_files.hpp"

using namespace souk::sim;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    if (const auto jobs = parse_jobs(text)) {
        const auto again = parse_jobs(format_jobs(*jobs, true));
        if (!again || !(*again == *jobs)) std::abort();
    }
    if (const auto providers = parse_providers(text)) {
        const auto again = parse_providers(format_providers(*providers));
        if (!again || !(*again == *providers)) std::abort();
    }
    return 0;
}
