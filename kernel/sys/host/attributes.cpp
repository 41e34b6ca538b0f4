// SPDX-License-Identifier: GPL-2.0-or-later
#include "kernel/sys/host/attributes.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>

#include "kernel/base/text.hpp"
#include "kernel/sys/host/fd.hpp"

namespace souk {

namespace {

constexpr size_t value_max = 120;

std::string trimmed(std::string_view text) {
    constexpr std::string_view blanks = " \t\r\n\"";
    const size_t from = text.find_first_not_of(blanks);
    if (from == text.npos) return {};
    return std::string(text.substr(from, text.find_last_not_of(blanks) - from + 1));
}

class Finder {
  public:
    Finder(const std::string& directory, std::string root)
        : directory_(directory), root_(std::move(root)) {}

    void cpu() {
        std::set<std::string> sockets;
        each_line("/proc/cpuinfo", ':', [&](const std::string& key, const std::string& value) {
            if (key == "model name" || key == "Processor") set_once("cpu.model", value);
            if (key == "vendor_id" || key == "CPU implementer") set_once("cpu.vendor", value);
            if (key == "physical id") sockets.insert(value);
        });
        if (!sockets.empty()) set("cpu.sockets", std::to_string(sockets.size()));
        for (const char* index : {"index3", "index2"})
            set_once("cpu.cache",
                     text_of("/sys/devices/system/cpu/cpu0/cache/" + std::string(index) + "/size"));
    }
    void memory() {
        each_line("/proc/meminfo", ':', [&](const std::string& key, const std::string& value) {
            if (key == "MemTotal") set("memory.total", value.substr(0, value.find(' ')) + "K");
        });
    }
    void system() {
        each_line("/etc/os-release", '=', [&](const std::string& key, const std::string& value) {
            if (key == "ID") set("os", value);
            if (key == "VERSION_ID") set("os.version", value);
        });
    }
    void disk() {
        struct statvfs room {};
        if (::statvfs(directory_.c_str(), &room) != 0) return;
        const auto megabytes = [&](uint64_t blocks) {
            return std::to_string(blocks * room.f_frsize >> 20) + "M";
        };
        set("disk", megabytes(room.f_blocks));
        struct stat st {};
        if (::stat(directory_.c_str(), &st) != 0) return;
        const std::string device = "/sys/dev/block/" + std::to_string(major(st.st_dev)) + ":" +
                                   std::to_string(minor(st.st_dev));
        // A partition's queue is that of its disk.
        for (const char* queue : {"/queue/rotational", "/../queue/rotational"}) {
            const std::string spins = text_of(device + queue);
            if (!spins.empty()) set_once("disk.kind", spins == "1" ? "hdd" : "ssd");
        }
    }
    // Those of NVIDIA by their driver, others by the kernel's list of display devices.
    void gpus() {
        int64_t count = 0;
        for (const std::string& name : names_in("/proc/driver/nvidia/gpus")) {
            ++count;
            set_once("gpu.vendor", "nvidia");
            each_line("/proc/driver/nvidia/gpus/" + name + "/information", ':',
                      [&](const std::string& key, const std::string& value) {
                          if (key == "Model") set_once("gpu.model", value);
                      });
        }
        if (count == 0)
            for (const std::string& name : names_in("/sys/class/drm")) {
                if (!name.starts_with("renderD")) continue;
                const std::string device = "/sys/class/drm/" + name + "/device/";
                const std::string vendor = text_of(device + "vendor");
                if (vendor.empty()) continue;
                ++count;
                set_once("gpu.vendor", vendor == "0x1002"   ? "amd"
                                       : vendor == "0x10de" ? "nvidia"
                                       : vendor == "0x8086" ? "intel"
                                                            : vendor);
                set_once("gpu.model", text_of(device + "product_name"));
            }
        if (count > 0) set("gpu", std::to_string(count));
    }
    void programs(const std::vector<std::string>& names) {
        constexpr std::array directories = {"/usr/local/bin/", "/usr/bin/", "/bin/", "/usr/sbin/"};
        for (const std::string& name : names)
            for (const char* directory : directories) {
                const std::string path = directory + name;
                struct stat st {};
                if (::stat((root_ + path).c_str(), &st) == 0 && S_ISREG(st.st_mode) &&
                    (st.st_mode & 0111) != 0)
                    set_once("program." + name, path);
            }
    }
    MachineAttributes take() { return std::move(found_); }

  private:
    std::string text_of(const std::string& path) const {
        const auto text = read_file(AT_FDCWD, root_ + path);
        return text ? trimmed(*text) : std::string();
    }
    std::vector<std::string> names_in(const std::string& path) const {
        auto names = list_dir(AT_FDCWD, root_ + path);
        if (!names) return {};
        std::ranges::sort(*names);
        return std::move(*names);
    }
    template <class See>
    void each_line(const std::string& path, char sign, See&& see) const {
        const auto text = read_file(AT_FDCWD, root_ + path);
        if (!text) return;
        for (std::string_view rest = *text; !rest.empty();) {
            const std::string_view line = rest.substr(0, rest.find('\n'));
            rest.remove_prefix(std::min(line.size() + 1, rest.size()));
            if (const size_t at = line.find(sign); at != line.npos)
                see(trimmed(line.substr(0, at)), trimmed(line.substr(at + 1)));
        }
    }
    void set(const std::string& name, const std::string& value) {
        if (!value.empty()) found_[name] = blank_controls(value.substr(0, value_max));
    }
    void set_once(const std::string& name, const std::string& value) {
        if (!found_.contains(name)) set(name, value);
    }

    const std::string directory_, root_;
    MachineAttributes found_;
};

}  // namespace

MachineAttributes find_attributes(const std::string& directory,
                                  const std::vector<std::string>& programs,
                                  const std::string& root) {
    Finder finder(directory, root);
    finder.cpu();
    finder.memory();
    finder.system();
    finder.disk();
    finder.gpus();
    finder.programs(programs);
    return finder.take();
}

}  // namespace souk
