// SPDX-License-Identifier: GPL-2.0-or-later
// TempDir: a directory for one test. All of them lie in a directory that the runner removes at its
// end, because a test that fails runs no destructors.
#pragma once

#include <string>
#include <string_view>

#include "kernel/sys/host/fd.hpp"

namespace souk::unit {

// The runner calls these: the first before the first test, the second after the last.
const std::string& make_temp_root();
void remove_temp_root();

struct TempDir {
    TempDir();
    ~TempDir();
    TempDir(TempDir&& other) noexcept : path(std::move(other.path)), fd(std::move(other.fd)) {
        other.path.clear();
    }
    // A file in it; its path.
    std::string write(const std::string& name, std::string_view bytes) const;

    std::string path;
    Fd fd;
};

}  // namespace souk::unit
