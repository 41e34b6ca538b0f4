// SPDX-License-Identifier: GPL-2.0-or-later
#include "agentd/core/gateway_desk.hpp"

#include <algorithm>

#include "agentd/core/gateway_pass.hpp"

namespace souk {

// The bounds hold against each other: nobody alone fills a gateway, or a node, for all others.
constexpr GatewayDesk::Bounds usual_bounds;
static_assert(2 * usual_bounds.pair <= usual_bounds.site_node &&
              2 * usual_bounds.site_node <= usual_bounds.node);
static_assert(2 * usual_bounds.asker <= usual_bounds.site &&
              2 * usual_bounds.site <= usual_bounds.sites &&
              2 * usual_bounds.sites <= usual_bounds.all);

template <class Is>
size_t GatewayDesk::count(const Is& is) const {
    return static_cast<size_t>(
        std::ranges::count_if(links_, [&](const auto& one) { return is(one.second); }));
}

Status GatewayDesk::met(uint64_t connection, const NodeName& name, const std::string& site) {
    const auto of_site = std::ranges::count_if(
        met_, [&](const auto& one) { return !site.empty() && one.second.site == site; });
    if (met_.size() >= bounds_.connections || static_cast<size_t>(of_site) >= bounds_.site)
        return fail(CauseCode::too_many, "too many nodes are connected to this gateway");
    met_[connection] = {name, site};
    return {};
}

Status GatewayDesk::offered(uint64_t connection) {
    Met& who = met_.at(connection);
    if (!who.site.empty())
        return fail(CauseCode::not_allowed, "a gateway is for the nodes of its own site");
    who.offers = true;
    offers_[who.name] = connection;
    return {};
}

void GatewayDesk::gone(uint64_t connection, Outputs& out) {
    const auto it = met_.find(connection);
    if (it == met_.end()) return;
    if (const auto offer = offers_.find(it->second.name);
        offer != offers_.end() && offer->second == connection)
        offers_.erase(offer);
    met_.erase(it);
    // The relays that stand go on, because they need neither connection.
    std::erase_if(links_, [&](const auto& one) {
        const auto& [number, link] = one;
        if (link.stage == Stage::joined) return false;
        const bool lost = link.stage == Stage::called && link.to == connection;
        if (link.asker != connection && !lost) return false;
        give_up(number, link,
                {CauseCode::away, "the connection of " + link.node + " to its gateway broke"}, out);
        return true;
    });
}

Status GatewayDesk::may_ask(Met& who, const Asked& asked, Nanos now) const {
    const Nanos each{1'000'000'000 / bounds_.per_s};
    const Nanos slack{each.ns * static_cast<int64_t>(bounds_.burst - 1)};
    if (who.free_at > now + slack)
        return fail(CauseCode::too_many, who.name + " asks the gateway too often");
    who.free_at = std::max(who.free_at, now) + each;
    if (asked.onward.empty()) return {};
    if (!who.site.empty())
        return fail(CauseCode::not_allowed, "a gateway asks others for its own site alone");
    if (!bounds_.onward)
        return fail(CauseCode::not_possible, "this gateway asks no others (relay_out)");
    if (of_site(asked.node).site.empty())
        return fail(CauseCode::not_allowed, "nodes of this site have no other site's gateway");
    return {};
}

Status GatewayDesk::has_room(const Met& who, const NodeName& node) const {
    const auto many = [](const std::string& of) {
        return fail(CauseCode::too_many, "the gateway relays too much " + of);
    };
    const bool other = !who.site.empty();
    const auto by_site = [&](const Link& l) { return l.asker_site == who.site; };
    const auto by_asker = [&](const Link& l) { return l.asker_name == who.name; };
    const auto to_node = [&](const Link& l) { return l.node == node; };
    if (links_.size() >= bounds_.all) return many("already");
    if (other && count([](const Link& l) { return !l.asker_site.empty(); }) >= bounds_.sites)
        return many("for other sites");
    if (other && count(by_site) >= bounds_.site) return many("for site " + who.site);
    if (count(by_asker) >= bounds_.asker) return many("for " + who.name);
    if (count([&](const Link& l) { return by_asker(l) && l.stage != Stage::joined; }) >=
        bounds_.incomplete)
        return fail(CauseCode::too_many, "too many connections of " + who.name + " are begun");
    if (count(to_node) >= bounds_.node) return many("to " + node);
    if (other &&
        count([&](const Link& l) { return by_site(l) && to_node(l); }) >= bounds_.site_node)
        return many("for site " + who.site + " to " + node);
    if (count([&](const Link& l) { return by_asker(l) && to_node(l); }) >= bounds_.pair)
        return many("for " + who.name + " to " + node);
    return {};
}

Result<uint64_t> GatewayDesk::who_offers(const NodeName& node) const {
    const auto it = offers_.find(node);
    if (it != offers_.end()) return it->second;
    return fail(CauseCode::away, node + " is not connected to its gateway");
}

void GatewayDesk::asked(uint64_t connection, const Asked& asked, Nanos now, Outputs& out) {
    Met& who = met_.at(connection);
    const auto refuse = [&](Error why) {
        ++refused_;
        out.answers.push_back({connection, asked.number, {}, as_asked(std::move(why))});
    };
    if (auto may = may_ask(who, asked, now); !may) return refuse(may.error());
    if (auto room = has_room(who, asked.node); !room) return refuse(room.error());
    Link link;
    if (asked.onward.empty()) {
        const auto to = who_offers(asked.node);
        if (!to) return refuse(to.error());
        link.to = *to;
    }
    link.asker = connection;
    link.number = asked.number;
    link.asker_name = who.name;
    link.asker_site = who.site;
    link.node = asked.node;
    link.called_pass = asked.called_pass;
    link.asked_pass = asked.asked_pass;
    link.until = now + patience;
    const uint64_t number = next_link_++;
    if (asked.onward.empty())
        out.calls.push_back({link.to, link.called_pass});
    else
        out.onward.push_back({number, asked.onward, asked.node});
    links_.emplace(number, std::move(link));
}

void GatewayDesk::is_here(Link& link, uint64_t socket, Nanos now, Outputs& out) {
    link.stage = Stage::answered;
    link.socket = socket;
    link.called_pass.clear();
    link.until = now + patience;
    out.answers.push_back({link.asker, link.number, link.asked_pass, {}});
}

void GatewayDesk::came(uint64_t socket, std::string_view pass, Nanos now, Outputs& out) {
    const auto it = std::ranges::find_if(links_, [&](const auto& one) {
        const Link& l = one.second;
        return (l.stage == Stage::called && l.to != 0 && l.called_pass == pass) ||
               (l.stage == Stage::answered && l.asked_pass == pass);
    });
    if (it == links_.end() || !is_gateway_pass(pass)) {
        ++refused_;
        out.closed.push_back(socket);
        return;
    }
    Link& link = it->second;
    if (link.stage == Stage::called) return is_here(link, socket, now, out);
    link.stage = Stage::joined;
    link.asked_pass.clear();
    ++relayed_;
    out.joins.push_back({it->first, link.socket, socket});
}

void GatewayDesk::fetched(uint64_t link, uint64_t socket, Nanos now, Outputs& out) {
    const auto it = links_.find(link);
    if (it == links_.end() || it->second.stage != Stage::called)
        return out.closed.push_back(socket);
    is_here(it->second, socket, now, out);
}

void GatewayDesk::not_fetched(uint64_t link, const Cause& why, Outputs& out) {
    const auto it = links_.find(link);
    if (it == links_.end() || it->second.stage != Stage::called) return;
    give_up(link, it->second, why, out);
    links_.erase(it);
}

void GatewayDesk::give_up(uint64_t number, const Link& link, const Cause& why, Outputs& out) {
    ++refused_;
    if (link.stage == Stage::called) {
        if (link.to == 0) out.given_up.push_back(number);
        if (met_.contains(link.asker)) out.answers.push_back({link.asker, link.number, {}, why});
    }
    if (link.socket != 0) out.closed.push_back(link.socket);
}

void GatewayDesk::look(Nanos now, Outputs& out) {
    std::erase_if(links_, [&](const auto& one) {
        const auto& [number, link] = one;
        if (link.stage == Stage::joined || now < link.until) return false;
        give_up(number, link,
                {CauseCode::away, link.node + " does not come when its gateway calls it"}, out);
        return true;
    });
}

std::vector<uint64_t> GatewayDesk::relays_of(uint64_t connection) const {
    std::vector<uint64_t> all;
    const auto met = met_.find(connection);
    if (met == met_.end()) return all;
    const auto& [name, site, offers, free_at] = met->second;
    for (const auto& [number, link] : links_) {
        const bool to_it = site.empty() && link.to != 0 && link.node == name;
        if (link.stage == Stage::joined && (link.asker_name == name || to_it))
            all.push_back(number);
    }
    return all;
}

bool GatewayDesk::is_waiting() const {
    return std::ranges::any_of(links_,
                               [](const auto& one) { return one.second.stage != Stage::joined; });
}

GatewayDesk::Figures GatewayDesk::figures() const {
    return {offers_.size(), met_.size(),
            links_.size(),  count([](const Link& l) { return l.stage == Stage::joined; }),
            relayed_,       refused_};
}

}  // namespace souk
