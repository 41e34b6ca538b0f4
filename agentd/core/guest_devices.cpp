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

int64_t taken_of(const std::string& name, const std::vector<GuestHolds>& others) {
    int64_t taken = 0;
    for (const GuestHolds& other : others)
        for (const ResourceNeed& need :
             parse_resources(other.resources).value_or(std::vector<ResourceNeed>{}))
            if (need.name == name) taken += need.count;
    return taken;
}

}  // namespace

std::string resource_variable(const std::string& name) {
    std::string variable = "SOUK_RESOURCE_" + name;
    for (char& c : variable) {
        if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
        if (c == '-') c = '_';
    }
    return variable;
}

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
        const std::string name = devices[i].substr(0, sign), index = devices[i].substr(sign + 1);
        if (i > 0) text += i + 1 == devices.size() ? " and " : ", ";
        text += (name == last ? "" : name + " ") + index;
        last = name;
    }
    return text;
}

Result<GivenResources> give_resources(const std::vector<ResourceNeed>& needs,
                                      const std::vector<NodeResource>& all,
                                      const std::vector<GuestHolds>& others) {
    GivenResources given;
    std::set<std::string> had;
    for (const GuestHolds& other : others) had.insert(other.devices.begin(), other.devices.end());
    for (const ResourceNeed& need : needs) {
        const auto known = std::find_if(all.begin(), all.end(), [&](const NodeResource& one) {
            return one.offer.name == need.name;
        });
        if (known == all.end()) continue;
        if (taken_of(need.name, others) + need.count > known->offer.count)
            return fail_because(CauseCode::resource_short, {{"text", need.name}});
        if (known->files.empty()) continue;
        std::vector<std::string> indexes, cuda;
        for (size_t i = 0; i < known->files.size() && std::ssize(indexes) < need.count; ++i) {
            const std::string line = need.name + ":" + std::to_string(i);
            if (had.contains(line)) continue;
            given.devices.push_back(line);
            indexes.push_back(std::to_string(i));
            if (std::string name = cuda_name(known->files[i]); !name.empty())
                cuda.push_back(std::move(name));
        }
        if (std::ssize(indexes) < need.count)
            return fail_because(CauseCode::resource_short, {{"text", need.name}});
        given.variables.emplace_back(resource_variable(need.name), joined(indexes));
        if (!cuda.empty()) given.variables.emplace_back("CUDA_VISIBLE_DEVICES", joined(cuda));
    }
    return given;
}

}  // namespace souk
