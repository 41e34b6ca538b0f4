// SPDX-License-Identifier: GPL-2.0-or-later
// Streams before Check, whose macro fail() would break them.
#include <filesystem>
#include <fstream>

#include "tests/unit/temp_dir.hpp"

#include <sys/stat.h>

#include <cstdlib>

#include "kernel/base/check.hpp"
#include "tests/unit/unit.hpp"

namespace souk::unit {
namespace {

std::string temp_root;

void remove(const std::string& path) {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
}

}  // namespace

const std::string& make_temp_root() {
    temp_root = "/tmp/souk-unit-XXXXXX";
    // Others may reach a directory of a test that lets them in.
    MUST(::mkdtemp(temp_root.data()) != nullptr && ::chmod(temp_root.c_str(), 0711) == 0);
    return temp_root;
}

void remove_temp_root() { remove(temp_root); }

TempDir::TempDir() : path(temp_root + "/XXXXXX") {
    ck_assert_ptr_nonnull(::mkdtemp(path.data()));
    fd = *open_at(AT_FDCWD, path, O_RDONLY | O_DIRECTORY);
}

TempDir::~TempDir() {
    fd.reset();
    if (!path.empty()) remove(path);
}

std::string TempDir::write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path + "/" + name, std::ios::binary) << bytes;
    return path + "/" + name;
}

}  // namespace souk::unit
