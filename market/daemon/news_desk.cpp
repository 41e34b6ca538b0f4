// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/daemon/news_desk.hpp"

#include <algorithm>

#include "kernel/base/json.hpp"
#include "kernel/sys/host/clock.hpp"
#include "market/wire/site_codec.hpp"

namespace souk {
namespace {

constexpr Nanos told_every = Nanos::from_s(1);
constexpr size_t nodes_seen = 1'000;  // a larger market tells of its first ones

bool is_offered(const std::string& name, const market::Node& node) {
    return of_site(name).site.empty() && node.connected && node.record.has_report &&
           node.record.report.on_market;
}

void write_node(JsonWriter& w, const NodeWord& node) {
    w.begin_object().field("node", node.node).field("cpus", node.cpus).field("speed", node.speed);
    w.field("memory_mb", node.memory_mb).field("free_mb", node.free_mb);
    w.field("load_permille", node.load_permille).field("next_price", node.price).end_object();
}

void write_site(JsonWriter& w, const std::string& site, const market::SiteNews::Known& known,
                bool is_peer, Nanos unix) {
    const SiteWord& word = known.word;
    w.begin_object().field("site", site).field("age_s", known.age(unix).seconds());
    w.field("from", known.from).field("peer", is_peer);
    w.field("nodes", word.nodes).field("cpus", word.cpus);
    w.field("waiting", word.waiting).field("running", word.running).key("some").begin_array();
    for (const NodeWord& node : word.some) write_node(w, node);
    w.end_array().end_object();
}

}  // namespace

market::SiteNews& NewsDesk::news() {
    if (!news_) news_.emplace(sites_.name(), static_cast<uint64_t>(unix_now().ns));
    return *news_;
}

void NewsDesk::site_up(const std::string& site) {
    news().met(site);
    if (config_.site_news && !timer_.waiting()) tell();
}

// The cheapest of its machines have room in it.
SiteWord NewsDesk::own_word(Nanos unix) const {
    SiteWord word;
    word.site = sites_.name();
    word.root = sites_.root();
    word.at = unix;
    const market::Totals totals = market_.totals(Loop::now());
    word.waiting = static_cast<uint32_t>(totals.waiting);
    word.running = static_cast<uint32_t>(totals.running);
    for (const auto& [name, node] : market_.nodes()) {
        if (!is_offered(name, node)) continue;
        const ProviderReport& r = node.record.report;
        ++word.nodes;
        word.cpus += r.cpus;
        if (word.nodes > nodes_seen) continue;
        word.some.push_back({name, r.cpus, r.speed, r.memory_mb, r.free_mb, r.load_permille,
                             market_.prices(node).next_price});
    }
    std::ranges::stable_sort(word.some, {}, &NodeWord::price);
    if (word.some.size() > SiteWord::nodes_max) word.some.resize(SiteWord::nodes_max);
    return word;
}

void NewsDesk::tell() {
    const Nanos now = Loop::now(), unix = unix_now();
    news().fade(unix);
    const std::vector<std::string> peers = sites_.that_have_news();
    if (peers.empty()) return timer_.cancel();
    if (said_at_ == Nanos{} || now >= said_at_ + news().word_every()) {
        news().say(own_word(unix));
        said_at_ = now;
    }
    for (const std::string& peer : news().whom(peers))
        if (const SiteWords words = news().tell(peer, unix); !words.words.empty())
            sites_.send(peer, words);
    timer_ = loop_.at(now + told_every, [this] { tell(); });
}

Status NewsDesk::heard(const Connection& c, const wire::Frame& f) {
    if (!sites_.charge_level(c.node))
        return fail(CauseCode::too_many, "it tells of other sites too often");
    TRY_ASSIGN(const SiteWords words, wire::unpack<SiteWords>(f.body));
    if (config_.site_news) (void)news().heard(c.node, sites_.root_of(c.node), words, unix_now());
    return {};
}

std::string NewsDesk::list(const std::string& after, std::string& next) {
    const Nanos unix = unix_now();
    news().fade(unix);
    const auto& all = news().all();
    JsonWriter w;
    w.begin_array();
    for (auto at = all.upper_bound(after); at != all.end(); ++at) {
        const auto& [site, known] = *at;
        write_site(w, site, known, sites_.is_peer(site), unix);
        if (w.bytes() < wire::json_part_bytes) continue;
        if (std::next(at) != all.end()) next = site;
        break;
    }
    w.end_array();
    return w.take();
}

}  // namespace souk
