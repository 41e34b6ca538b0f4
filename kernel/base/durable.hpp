// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>

namespace souk {

// When a record must be on disk. A crash may lose `soon` and `later`: they are for what a restart
// finds out anyway.
enum class Durable : uint8_t {
    now,    // before anything else of the same step leaves
    soon,   // as soon as that has left
    later,  // with the next record that is due, at the latest after a second
};
const char* to_string(Durable when);

}  // namespace souk
