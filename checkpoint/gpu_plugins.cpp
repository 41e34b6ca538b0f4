// SPDX-License-Identifier: GPL-2.0-or-later
#include "checkpoint/gpu_plugins.hpp"

#include <fcntl.h>

#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "kernel/base/number.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {
namespace {

namespace fs = std::filesystem;

// That version of the driver can stop and restore what is on its GPUs.
constexpr int32_t driver_least = 550;

bool is_there(const std::string& path) {
    std::error_code none;
    return fs::exists(path, none);
}

// CRIU looks in $CRIU_LIBS_DIR, else in the directory that it was built for.
std::string find_plugin(const std::string& root, const std::string& criu_prefix,
                        const std::string& file) {
    std::vector<std::string> directories;
    if (const char* const own = std::getenv("CRIU_LIBS_DIR")) directories.push_back(root + own);
    for (const std::string& base : {criu_prefix, root})
        for (const char* const below :
             {"/usr/lib/criu", "/usr/lib/x86_64-linux-gnu/criu", "/usr/lib/aarch64-linux-gnu/criu",
              "/usr/local/lib/criu", "/lib/criu"})
            directories.push_back((base == "/" ? "" : base) + below);
    for (const std::string& directory : directories)
        if (is_there(directory + "/" + file)) return directory + "/" + file;
    return {};
}

std::string find_program(const std::string& root, const std::string& name) {
    for (const char* const directory : {"/usr/bin/", "/usr/local/bin/", "/usr/sbin/", "/bin/"})
        if (is_there(root + directory + name)) return root + directory + name;
    return {};
}

// The first word of /proc/driver/nvidia/version that is a version ("550.54.15"); empty: no driver.
std::string driver_version(const std::string& root) {
    const auto text = read_file(AT_FDCWD, root + "/proc/driver/nvidia/version");
    if (!text) return {};
    for (size_t at = 0; at < text->size();) {
        const size_t end = std::min(text->find_first_of(" \t\n", at), text->size());
        const std::string word = text->substr(at, end - at);
        if (!word.empty() && std::isdigit(static_cast<unsigned char>(word[0])) &&
            word.find('.') != std::string::npos)
            return word;
        at = end + 1;
    }
    return {};
}

bool has_nvidia(const std::string& root) {
    std::error_code none;
    for (const auto& file : fs::directory_iterator(root + "/dev", none)) {
        const std::string name = file.path().filename();
        if (name.starts_with("nvidia") && whole_number<uint32_t>(name.substr(6))) return true;
    }
    return false;
}

}  // namespace

std::vector<Need> examine_gpus(const std::string& root, const std::string& criu_prefix) {
    const std::string where = root == "/" ? "" : root;
    const std::string cuda = find_plugin(where, criu_prefix, "cuda_plugin.so"),
                      amd = find_plugin(where, criu_prefix, "amdgpu_plugin.so"),
                      program = find_program(where, "cuda-checkpoint"),
                      driver = driver_version(where);
    const auto found = [](bool gpu, const std::string& none, const std::string& rest) {
        return (gpu ? "" : "no " + none + " here; ") + rest;
    };
    Need nvidia{"CRIU and CUDA", "images of what is on NVIDIA's GPUs", false, false, "", ""};
    const bool has_gpu = has_nvidia(where);
    const auto version = whole_number<int32_t>(driver.substr(0, driver.find('.')));
    const bool is_new = version && *version >= driver_least;
    nvidia.found = found(has_gpu, "such GPU",
                         (cuda.empty() ? std::string("no cuda_plugin.so") : cuda) + ", " +
                             (program.empty() ? std::string("no cuda-checkpoint") : program) +
                             ", " + (driver.empty() ? "no driver" : "driver " + driver));
    nvidia.met = !has_gpu || (!cuda.empty() && !program.empty() && is_new);
    if (!nvidia.met)
        nvidia.mend =
            std::string(cuda.empty() ? "a CRIU (4.0 or newer) with cuda_plugin.so; " : "") +
            (program.empty() ? "cuda-checkpoint of NVIDIA in /usr/bin; " : "") +
            (is_new ? "" : "a driver from version 550 on; ");
    if (nvidia.mend.ends_with("; ")) nvidia.mend.resize(nvidia.mend.size() - 2);
    Need amdgpu{"CRIU and amdgpu", "images of what is on AMD's GPUs", false, false, "", ""};
    const bool has_kfd = is_there(where + "/dev/kfd");
    amdgpu.found =
        found(has_kfd, "such GPU", amd.empty() ? std::string("no amdgpu_plugin.so") : amd);
    amdgpu.met = !has_kfd || !amd.empty();
    if (!amdgpu.met) amdgpu.mend = "a CRIU with amdgpu_plugin.so (apt install libcriu2 criu)";
    return {nvidia, amdgpu};
}

}  // namespace souk
