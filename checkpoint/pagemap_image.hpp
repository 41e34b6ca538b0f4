// SPDX-License-Identifier: GPL-2.0-or-later
// CRIU's pagemap-PID.img: which pages of a process an image has, and where their bytes lie in
// pages-N.img (format: CRIU images/pagemap.proto). The bytes of present pages lie in that file in
// the order of their addresses. Pure.
//
// CRIU skips an entry that is both lazy and present when it restores lazily, and its bytes in the
// file with it (criu/mem.c, restore_priv_vma_content). So the pagemaps of several processes may
// name one file: each skips what is not its own.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernel/base/pages.hpp"
#include "kernel/base/result.hpp"

namespace souk {

inline constexpr uint32_t pagemap_parent = 1, pagemap_lazy = 2, pagemap_present = 4;

struct PagemapImage {
    struct Entry {
        uint64_t start = 0, pages = 0;
        uint32_t flags = 0;
        bool operator==(const Entry&) const = default;
    };
    pid_t pid = 0;
    uint32_t file = 0;  // N
    std::vector<Entry> entries;
    bool operator==(const PagemapImage&) const = default;
};

// An error if it is no such image.
Result<PagemapImage> parse_pagemap(std::string_view image, pid_t pid);
std::string encode_pagemap(const PagemapImage& map);
// Returns the ranges that CRIU did not write, and left to be fetched.
Result<std::vector<PageRange>> lazy_ranges_of(std::string_view image, pid_t pid);

}  // namespace souk
