// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/claims.hpp"

#include <algorithm>
#include <array>

#include "market/core/site_guests.hpp"

namespace souk::market::claims {

Relation relation_of(const JobReport& r) {
    switch (r.phase) {
        case JobPhase::waiting:
        case JobPhase::finished: return {};
        case JobPhase::starting:
        case JobPhase::running:
        case JobPhase::freezing: return {.room_where = true};
        case JobPhase::moving: return {.room_where = true, .room_to = true};
        case JobPhase::frozen: return {.room_where = r.in_place, .lies_where = !r.in_place};
        case JobPhase::thawing: return {.room_to = true, .lies_where = true};
    }
    return {};
}

// The solver takes no job that is on a node of which it does not say which.
Status sound(const NodeName& node, const JobReport& r) {
    const auto refuse = [&](const char* which) {
        return fail("node " + node + " reports job " + r.id.text() + which);
    };
    if (r.id.home != node) return refuse(" of another home");
    if (is_project(r.uid)) return refuse(" of a user with the number of a project");
    if (is_site_account(r.uid) != is_of_site(r.id))
        return refuse(" of a user with the number of another site, or the other way round");
    // The solver gives named resources to single jobs alone, and a home lets no other ask.
    if (!r.gang.empty() && !r.terms.resources.empty())
        return refuse(" as a component that asks for named resources");
    const Relation is = relation_of(r);
    const bool is_there = is.room_where || is.lies_where;
    if ((is_there && r.where.empty()) || (is.room_to && r.to.empty()))
        return refuse(" as one that is on a node, and does not say on which");
    return {};
}

void keep_ties(JobReport& r, const JobReport& before) {
    r.gang = before.gang;
    r.component = before.component;
    r.optional = before.optional;
    r.only_node = before.only_node;
    r.address = before.address;
}

void keep_size(JobReport& r, const JobReport& before) {
    const auto has_room = [](const JobReport& report) {
        const Relation is = relation_of(report);
        return is.room_where || is.room_to;
    };
    const bool is_known = before.terms.max_price.micro > 0;
    if (!is_known || !has_room(r)) return;
    r.terms.resources = before.terms.resources;
    r.terms.memory_mb = std::max(r.terms.memory_mb, before.terms.memory_mb);
    // One that asked for more while the order was on its way may have begun with more at home.
    r.terms.cpus = has_room(before) ? before.terms.cpus : std::max(r.terms.cpus, before.terms.cpus);
}

size_t bytes_of(const JobReport& r) {
    const JobTerms& t = r.terms;
    size_t bytes = 0;
    for (const std::string* const text :
         std::initializer_list<const std::string*>{&r.user,
                                                   &r.name,
                                                   &r.command,
                                                   &r.where,
                                                   &r.to,
                                                   &t.strategy,
                                                   &*t.project,
                                                   &*t.needs,
                                                   &*t.resources,
                                                   &t.sites->names,
                                                   &t.booking->within,
                                                   &*r.comment,
                                                   &*r.cannot_move,
                                                   &*r.checkpoint_node,
                                                   &*r.checkpoint_trouble,
                                                   &*r.why_no_user,
                                                   &*r.why,
                                                   &*r.array,
                                                   &*r.waits_for,
                                                   &r.files->waits,
                                                   &*r.paused,
                                                   &*r.image_stays,
                                                   &*r.gang,
                                                   &*r.only_node})
        bytes += text->size();
    for (const auto* const list : {&r.places, &r.lacking, &r.no_user})
        for (const NodeName& name : *list) bytes += sizeof name + name.size();
    return bytes;
}

void shorten(JobReport& r, const JobReport& before) {
    constexpr size_t text_kept = 64, names_kept = 4;
    const auto cut = [&](std::string& text) { text.resize(std::min(text.size(), text_kept)); };
    const auto cut_said = [&](auto& said) {
        if (auto* const text = said.stored()) cut(*text);
    };
    cut(r.name);
    cut(r.command);
    cut_said(r.comment);
    cut_said(r.cannot_move);
    cut_said(r.checkpoint_trouble);
    cut_said(r.why_no_user);
    cut_said(r.why);
    cut_said(r.waits_for);
    cut_said(r.paused);
    cut_said(r.image_stays);
    if (FilesUse* const files = r.files.stored()) cut(files->waits);
    if (r.places.size() > names_kept) r.places.erase(r.places.begin(), r.places.end() - names_kept);
    if (before.terms.max_price.micro <= 0) return;
    // A wish for less is taken, as its user may want something back.
    const JobTerms& then = before.terms;
    if (r.terms.needs->size() > then.needs->size()) r.terms.needs = then.needs;
    if (r.terms.resources->size() > then.resources->size()) r.terms.resources = then.resources;
    if (r.terms.sites->names.size() > then.sites->names.size()) r.terms.sites = then.sites;
}

void ordered(Job& job, const Node& node) {
    auto& keys = job.ordered_to;
    const auto known = std::find(keys.begin(), keys.end(), node.key.n);
    std::rotate(keys.begin(), known == keys.end() ? keys.end() - 1 : known,
                known == keys.end() ? keys.end() : known + 1);
    keys.front() = node.key.n;
}

void came_to_nothing(Job& job, const Node& node) {
    auto& keys = job.ordered_to;
    const auto gone = std::remove(keys.begin(), keys.end(), node.key.n);
    std::fill(gone, keys.end(), 0);
}

bool is_ordered(const Job& job, const Node& node) {
    const auto& keys = job.ordered_to;
    return std::find(keys.begin(), keys.end(), node.key.n) != keys.end();
}

bool may_be_at(const Job& job, const NodeName& name, const Book& book) {
    if (name == job.id().home) return true;
    const Node* const node = book.find_node(name);
    return node && is_ordered(job, *node);
}

namespace {

const Stay* stay_of(const Job& job, const NodeName& node, Epoch epoch) {
    const auto& stays = job.record.stays;
    const auto it = std::find_if(stays.rbegin(), stays.rend(),
                                 [&](const Stay& s) { return s.node == node && s.epoch == epoch; });
    return it == stays.rend() ? nullptr : &*it;
}

// The node has told of that copy, and not of its end.
bool has_told(const Job& job, const Node& node, Epoch epoch) {
    const auto said = node.said.find(job.id());
    if (said != node.said.end() && said->second == epoch) return true;
    const Stay* const stay = stay_of(job, node.id(), epoch);
    return stay && stay->measured.ns >= 0 && !stay->measured_all;
}

}  // namespace

void heard(Node& node, const Job* job, const JobUse& use) {
    if (use.ended || (job && stay_of(*job, node.id(), use.epoch))) {
        const auto it = node.said.find(use.id);
        if (it != node.said.end() && it->second <= use.epoch) node.said.erase(it);
    } else if (node.said.size() < said_max || node.said.contains(use.id)) {
        node.said.insert_or_assign(use.id, use.epoch);
    }
}

const Node* place_without_word(const Job& job, const Book& book) {
    const JobReport& r = job.record.report;
    const Relation is = relation_of(r);
    // A node that says its version tells how long its guests run.
    const auto telling = [&](const NodeName& name) -> const Node* {
        const Node* const node = name == job.id().home ? nullptr : book.find_node(name);
        const bool tells = node && node->connected && !node->record.report.version.empty();
        return tells ? node : nullptr;
    };
    const Node* const at = is.room_where ? telling(r.where) : nullptr;
    if (at && !has_told(job, *at, r.epoch)) return at;
    // Under which epoch it comes there is not known yet.
    const Node* const to = is.room_to ? telling(r.to) : nullptr;
    return to && !to->said.contains(job.id()) ? to : nullptr;
}

bool back(Job& job, const Book& book) {
    const JobReport& r = job.record.report;
    const Relation is = relation_of(r);
    const auto confirms = [&](const NodeName& name, bool this_copy) {
        if (may_be_at(job, name, book)) return true;
        const Node* const node = book.find_node(name);
        const bool told =
            node && (this_copy ? has_told(job, *node, r.epoch) : node->said.contains(job.id()));
        if (told) ordered(job, *node);
        return told;
    };
    if (is.lies_where && r.where != job.id().home && !book.find_node(r.where)) return false;
    return (!is.room_where || confirms(r.where, true)) && (!is.room_to || confirms(r.to, false));
}

}  // namespace souk::market::claims
