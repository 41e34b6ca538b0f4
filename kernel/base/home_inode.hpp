// SPDX-License-Identifier: GPL-2.0-or-later
// The number that an inode of a home has in a job that sees its home's files (srun --files=home),
// on whatever machine: there the tree is one file system, at home it is several. Pure.
#pragma once

#include <cstdint>

namespace souk {

struct HomeInode {
    uint64_t device = 0, inode = 0;  // device: as makedev makes it
};

// The root of a tree has the number that FUSE gives it (FUSE_ROOT_ID).
inline uint64_t home_inode(const HomeInode& root, const HomeInode& file) {
    if (file.device == root.device) return file.inode == root.inode ? 1 : file.inode;
    const uint64_t mixed = (file.device * 0x9e3779b97f4a7c15ULL) >> 48 | 1;
    return file.inode ^ mixed << 48;
}

}  // namespace souk
