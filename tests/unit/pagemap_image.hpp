// SPDX-License-Identifier: GPL-2.0-or-later
// The file of an image that says which memory comes from elsewhere.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <string>
#include <vector>

#include "kernel/base/pages.hpp"
#include "kernel/sys/host/fd.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {

constexpr pid_t pagemap_pid = 7;

inline std::string varint(uint64_t n) {
    std::string out;
    for (; n > 127; n >>= 7) out += static_cast<char>(n | 128);
    return out + static_cast<char>(n);
}

inline std::string sized(const std::string& message) {
    const auto n = static_cast<uint32_t>(message.size());
    return std::string(reinterpret_cast<const char*>(&n), sizeof n) + message;
}

// As CRIU writes it: every range to be fetched.
inline void write_pagemap(int directory, const std::vector<PageRange>& ranges) {
    std::string image("\x19\x43\x56\x54\x25\x40\x08\x56", 8);
    image += sized("\x08\x01");
    for (const PageRange& r : ranges)
        image += sized("\x08" + varint(r.start) + "\x20" + varint(2) + "\x28" + varint(r.pages));
    const Fd file = *open_at(directory, "pagemap-7.img", O_WRONLY | O_CREAT, 0600);
    ck_assert_int_eq(::write(file.get(), image.data(), image.size()),
                     static_cast<ssize_t>(image.size()));
}

}  // namespace souk::unit
