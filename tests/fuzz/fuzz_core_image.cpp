// SPDX-License-Identifier: GPL-2.0-or-later
// Credentials of an image: any bytes are taken or refused, and what is taken for a plain
// user's job is no other's, with no capability.
#include <algorithm>
#include <cstdint>
#include <string>

#include "checkpoint/core_image.hpp"
#include "kernel/base/check.hpp"

using namespace souk;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const CriuUser user{1000, 1000, {4, 24}};
    if (const auto core = parse_core(bytes)) {
        const bool fits = fits_user(*core, user).has_value();
        const Credentials& c = core->credentials;
        if (fits && core->has_credentials) {
            MUST(std::ranges::all_of(c.uids, [](uint32_t u) { return u == 1000; }));
            MUST(std::ranges::all_of(c.groups,
                                     [](uint32_t g) { return g == 1000 || g == 4 || g == 24; }));
            MUST(c.capabilities[1] == 0 && c.capabilities[2] == 0 && c.capabilities[4] == 0);
        }
        MUST(!fits || core->has_credentials || !core->alive);
    }
    if (const auto mode = parse_ghost(bytes)) (void)fits_ghost(*mode);
    (void)parse_status(bytes);
    return 0;
}
