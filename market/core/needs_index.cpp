// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/needs_index.hpp"

#include <algorithm>
#include <utility>

namespace souk::market {

std::optional<std::string> attribute_of(const ProviderReport& r, std::string_view name) {
    if (name == "node") return r.node;
    if (name == "cpus") return std::to_string(r.cpus);
    if (name == "memory") return std::to_string(r.memory_mb) + "M";
    if (name == "speed") return std::to_string(r.speed);
    if (name == "arch") return r.machine.architecture;
    if (name == "kernel") return r.machine.kernel;
    if (name == "cpu.flags") return r.machine.cpu_features;
    if (name == "near") return r.near_group.empty() ? std::nullopt : std::optional(r.near_group);
    for (const std::string& line : r.attributes)
        if (line.size() > name.size() && line[name.size()] == '=' && line.starts_with(name))
            return line.substr(name.size() + 1);
    constexpr std::string_view of_cpu = "cpu.";
    if (!name.starts_with(of_cpu)) return {};
    name.remove_prefix(of_cpu.size());
    const std::string_view flags = r.machine.cpu_features;
    for (size_t at = 0; (at = flags.find(name, at)) != flags.npos; at += name.size()) {
        const size_t end = at + name.size();
        if ((at == 0 || flags[at - 1] == ' ') && (end == flags.size() || flags[end] == ' '))
            return "1";
    }
    return {};
}

NeedsIndex::Known& NeedsIndex::known(const std::string& needs) const {
    const auto it = known_.find(needs);
    if (it != known_.end()) return it->second;
    if (known_.size() >= known_max) {
        known_.clear();
        forgot_ = true;
    }
    Known& k = known_[needs];
    if (auto read = Needs::parse(needs)) k.needs = std::move(*read);
    return k;
}

const Needs* NeedsIndex::read(const std::string& needs) const {
    const Known& k = known(needs);
    return k.needs ? &*k.needs : nullptr;
}

bool NeedsIndex::fits(const std::string& needs, const Node& node) const {
    if (needs.empty()) return true;
    Known& k = known(needs);
    if (!k.needs || !node.record.has_report) return false;
    const auto [it, is_new] = k.fits.try_emplace(node.key.n);
    if (is_new)
        it->second = k.needs->holds(
            [&](std::string_view name) { return attribute_of(node.record.report, name); });
    return it->second;
}

namespace {

bool tells_the_same(const ProviderReport& a, const ProviderReport& b) {
    return a.node == b.node && a.cpus == b.cpus && a.memory_mb == b.memory_mb &&
           a.speed == b.speed && a.machine == b.machine && a.near_group == b.near_group &&
           a.attributes == b.attributes;
}

}  // namespace

bool NeedsIndex::changed(const ProviderReport& before, const Node& node) {
    bool any = std::exchange(forgot_, false);
    if (tells_the_same(before, node.record.report)) return any;
    for (auto& [text, k] : known_) {
        const auto it = k.fits.find(node.key.n);
        if (it == k.fits.end()) {
            any = true;  // a node that comes
            continue;
        }
        const bool held = it->second;
        k.fits.erase(it);
        any = any || fits(text, node) != held;
    }
    return any;
}

}  // namespace souk::market
