// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/guest_devices.hpp"

#include <algorithm>
#include <set>

#include "kernel/base/number.hpp"

namespace souk {

namespace {

std::string joined(const std::vector<std::string>& all) {
    std::string text;
    for (const std::string& one : all) text += (text.empty() ? "" : ",") + one;
    return text;
}

// The name that CUDA has for it: the N of /dev/nvidiaN; empty: another device.
std::string cuda_name(const std::string& file) {
    constexpr std::string_view nvidia = "/dev/nvidia";
    if (!file.starts_with(nvidia)) return {};
    const std::string number = file.substr(nvidia.size());
    return whole_number<uint32_t>(number) ? number : std::string();
}

std::vector<NodeResource>::const_iterator find_resource(const std::vector<NodeResource>& all,
                                                        const std::string& name) {
    return std::find_if(all.begin(), all.end(),
                        [&](const NodeResource& one) { return one.offer.name == name; });
}

int64_t taken_of(const std::string& name, const std::vector<GuestHolds>& others) {
    int64_t taken = 0;
    for (const GuestHolds& other : others)
        for (const ResourceNeed& need :
             parse_resources(other.resources).value_or(std::vector<ResourceNeed>{}))
            if (need.name == name) taken += need.count;
    return taken;
}

// The file of a line of GuestJob::devices. An older version wrote an index of the configuration.
std::string file_of(const std::string& line, const std::vector<NodeResource>& all) {
    const size_t sign = line.find(':');
    const std::string name = line.substr(0, sign), what = line.substr(sign + 1);
    const auto index = whole_number<size_t>(what);
    if (!index) return what;
    const auto known = find_resource(all, name);
    return known != all.end() && *index < known->files.size() ? known->files[*index] : what;
}

}  // namespace

void add_variables(std::vector<std::string>& env, const GivenResources& given) {
    for (const auto& [name, value] : given.variables) {
        const std::string begin = name + "=";
        std::erase_if(env, [&](const std::string& v) { return v.starts_with(begin); });
        env.push_back(begin + value);
    }
}

std::string devices_text(const std::vector<std::string>& devices) {
    std::string text, last;
    for (size_t i = 0; i < devices.size(); ++i) {
        const size_t sign = devices[i].find(':');
        const std::string name = devices[i].substr(0, sign), file = devices[i].substr(sign + 1);
        if (i > 0) text += i + 1 == devices.size() ? " and " : ", ";
        text += (name == last ? "" : name + " ") + file;
        last = name;
    }
    return text;
}

Result<GivenResources> give_resources(const std::vector<ResourceNeed>& needs,
                                      const std::vector<NodeResource>& all,
                                      const std::vector<GuestHolds>& others, bool from_image) {
    GivenResources given;
    std::set<std::string> had;
    for (const GuestHolds& other : others)
        for (const std::string& line : other.devices) had.insert(file_of(line, all));
    std::vector<std::string> cuda;
    for (const ResourceNeed& need : needs) {
        const auto known = find_resource(all, need.name);
        if (known == all.end()) continue;
        if (taken_of(need.name, others) + need.count > known->offer.count)
            return fail_because(CauseCode::resource_short, {{"text", need.name}});
        if (known->files.empty()) continue;
        if (from_image) return fail_because(CauseCode::resource_untold, {{"text", need.name}});
        std::vector<std::string> files;
        for (const std::string& file : known->files) {
            if (std::ssize(files) == need.count) break;
            if (!had.insert(file).second) continue;
            given.devices.push_back(need.name + ":" + file);
            files.push_back(file);
            if (std::string name = cuda_name(file); !name.empty()) cuda.push_back(std::move(name));
        }
        if (std::ssize(files) < need.count)
            return fail_because(CauseCode::resource_short, {{"text", need.name}});
        given.variables.emplace_back(resource_variable(need.name), joined(files));
    }
    if (!cuda.empty()) given.variables.emplace_back("CUDA_VISIBLE_DEVICES", joined(cuda));
    return given;
}

}  // namespace souk
