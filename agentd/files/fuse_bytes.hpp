// SPDX-License-Identifier: GPL-2.0-or-later
// The next part of a message of the FUSE protocol (linux/fuse.h): its structs lie one behind the
// other, as they are in memory. Pure.
#pragma once

#include <cstring>
#include <type_traits>

#include "kernel/sys/host/bytes.hpp"

namespace souk::files {

// `value` is what `bytes` begins with, and is taken off them. False: they are too few, and neither
// has changed.
template <class T>
bool take(ByteView& bytes, T& value) {
    static_assert(std::is_trivially_copyable_v<T>);
    if (bytes.size() < sizeof value) return false;
    std::memcpy(&value, bytes.data(), sizeof value);
    bytes = bytes.subspan(sizeof value);
    return true;
}

}  // namespace souk::files
