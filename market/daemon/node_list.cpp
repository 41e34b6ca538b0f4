// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/node_list.hpp"

#include <algorithm>
#include <optional>

#include "kernel/base/json.hpp"
#include "kernel/base/number.hpp"
#include "kernel/base/release.hpp"
#include "kernel/base/version.hpp"
#include "kernel/wire/messages.hpp"
#include "market/core/needs_index.hpp"
#include "market/daemon/resource_reply.hpp"

namespace souk {
namespace {

using market::Market;
using market::Node;

// Off the market: how many of its guests have left, and how far those are that are being sent.
void write_leaving(JsonWriter& w, const Node& node) {
    uint64_t sent = 0, total = 0;
    for (const auto& [id, job] : node.jobs)
        if (const Rare<JobSend>& s = job->sending; s && job->record.report.where == node.id())
            sent += s->sent_bytes, total += s->total_bytes;
    w.field("leaving", market::Places::guests_left(node)).field("leaving_of", node.leaving_of);
    if (total > 0) w.field("sent_bytes", sent).field("sending_bytes", total);
}

void write_provider(JsonWriter& w, const NodeName& name, const Node& node, const Market& market,
                    bool certified, Nanos now) {
    const ProviderReport& r = node.record.report;
    const ProviderNote note = market.prices(node);
    w.begin_object().field("node", name).field("address", node.record.address);
    w.field("status", market.provider_state(node, now)).field("on_market", r.on_market);
    w.field("connected", node.connected).field("reserve", r.reserve);
    w.field("current_price", note.current_price).field("next_price", note.next_price);
    w.field("speed", r.speed)
        .field("cpus", r.cpus)
        .field("memory_mb", r.memory_mb)
        .field("free_mb", r.free_mb);
    w.field("load_permille", r.load_permille).field("wait_permille", r.wait_permille);
    w.field("load_source", r.load_source).field("guests", note.guests).field("earned", note.earned);
    if (r.has_memory_pressure) w.field("memory_pressure_permille", r.memory_pressure_permille);
    if (node.record.differences > 0)
        w.field("differences", node.record.differences)
            .field("different_s", node.record.different.seconds());
    w.field("criu", r.machine.criu).field("kernel", r.machine.kernel);
    if (!r.on_market && node.leaving_of > 0) write_leaving(w, node);
    if (!r.cannot.empty()) w.field("cannot", r.cannot);
    if (!r.restriction.empty()) w.field("restriction", r.restriction);
    write_near(w, r);
    if (!r.attributes.empty()) {
        w.key("attributes").begin_object();
        for (const std::string& line : r.attributes) {
            const size_t sign = line.find('=');
            if (sign != std::string::npos) w.field(line.substr(0, sign), line.substr(sign + 1));
        }
        w.end_object();
    }
    std::vector<ResourceOffer> own = r.resources;
    std::erase_if(own, [&](const ResourceOffer& one) {
        return std::ranges::find(note.of_market, one.name) != note.of_market.end();
    });
    if (!own.empty())
        write_resources(w, own, [&](const std::string& resource) {
            return market.resources().taken(name, resource);
        });
    if (!note.of_market.empty()) {
        w.key("of_market").begin_array();
        for (const std::string& one : note.of_market) w.value(one);
        w.end_array();
    }
    if (!certified) w.field("certificate", false);
    if (!r.version.empty()) w.field("version", r.version);
    if (node.connected && r.version != version())
        w.field("market_version", version())
            .field("far", !r.version.empty() && !may_run_together(r.version, version()));
    w.end_object();
}

// Which nodes, and how many in one part.
struct WhichNodes {
    std::string node, match;
    std::optional<market::Needs> needs;
    uint64_t page = UINT64_MAX;

    bool takes(const Node& one) const {
        const ProviderReport& r = one.record.report;
        return one.record.has_report && r.node.find(match) != std::string::npos &&
               (!needs || needs->holds([&](std::string_view attribute) {
                   return market::attribute_of(r, attribute);
               }));
    }
};

Result<WhichNodes> which_nodes(const std::vector<std::string>& words) {
    WhichNodes which;
    for (const std::string& word : words) {
        if (word.starts_with("node=")) {
            which.node = word.substr(5);
        } else if (word.starts_with("match=")) {
            which.match = word.substr(6);
        } else if (word.starts_with("needs=")) {
            TRY_ASSIGN(which.needs, market::Needs::parse(std::string_view(word).substr(6)));
        } else if (const auto page = whole_number<uint64_t>(
                       word.starts_with("page=") ? std::string_view(word).substr(5) : "");
                   page && *page > 0) {
            which.page = *page;
        } else {
            return fail("list-providers: '" + word +
                        "' is none of node=NAME, match=TEXT, needs=EXPRESSION and page=NUMBER");
        }
    }
    return which;
}

}  // namespace

Result<std::string> list_nodes_reply(const Market& market, const std::vector<NodeName>& uncertified,
                                     const std::vector<std::string>& words,
                                     const std::string& after, Nanos now, std::string& next) {
    TRY_ASSIGN(const WhichNodes which, which_nodes(words));
    const auto& nodes = market.nodes();
    auto at = after.empty() ? nodes.begin() : nodes.upper_bound(after);
    if (!which.node.empty()) at = nodes.find(which.node);
    JsonWriter w;
    w.begin_array();
    for (uint64_t taken = 0; at != nodes.end(); ++at) {
        const auto& [name, node] = *at;
        if (which.takes(node)) {
            const bool certified =
                !std::binary_search(uncertified.begin(), uncertified.end(), name);
            write_provider(w, name, node, market, certified, now);
            ++taken;
        }
        if (!which.node.empty()) break;
        if (w.bytes() < wire::json_part_bytes && taken < which.page) continue;
        if (std::next(at) != nodes.end()) next = name;
        break;
    }
    return w.end_array().take();
}

}  // namespace souk
