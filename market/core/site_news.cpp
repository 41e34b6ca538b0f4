// SPDX-License-Identifier: GPL-2.0-or-later
#include "market/core/site_news.hpp"

#include <algorithm>
#include <utility>

#include "kernel/base/ids.hpp"

namespace souk::market {
namespace {

// Whether all names in it can be names.
bool can_be(const SiteWord& word) {
    return valid_site_name(word.site) && word.some.size() <= SiteWord::nodes_max &&
           std::ranges::all_of(word.some,
                               [](const NodeWord& one) { return valid_node_name(one.node); });
}

// Puts `most` of them, drawn at random, in front, and drops the rest.
template <class T>
void draw_some(std::vector<T>& all, size_t most, Rng& draw) {
    const size_t taken = std::min(most, all.size());
    for (size_t i = 0; i < taken; ++i) std::swap(all[i], all[i + draw.below(all.size() - i)]);
    all.resize(taken);
}

}  // namespace

Nanos SiteNews::Known::age(Nanos unix) const {
    return std::max(Nanos{}, unix - std::min(word.at, heard));
}

size_t SiteNews::heard(const std::string& from, const std::string& root, const SiteWords& told,
                       Nanos unix) {
    size_t news = 0;
    for (size_t i = 0; i < std::min(told.words.size(), SiteWords::words_max); ++i)
        news += take(from, root, told.words[i], unix);
    return news;
}

bool SiteNews::take(const std::string& from, const std::string& root, const SiteWord& word,
                    Nanos unix) {
    const bool is_direct = word.site == from;
    if (!can_be(word) || word.site == own_ || word.at > unix + ahead_most ||
        word.at + word_lasts < unix || (is_direct && word.root != root))
        return false;
    const auto it = known_.find(word.site);
    if (it == known_.end()) {
        if (!has_room(from, is_direct)) return false;
    } else {
        const Known& known = it->second;
        Nanos& has = has_[from][word.site];
        has = std::max(has, word.at);
        const bool counts = known.is_direct() && unix < known.heard + own_word_counts;
        // Hearsay of two sites of one name is kept of the one that was heard of first.
        if (!is_direct && (counts || word.at <= known.word.at || word.root != known.word.root))
            return false;
        if (is_direct && known.is_direct() && word.at <= known.word.at) return false;
        if (--of_teller_[known.from] == 0) of_teller_.erase(known.from);
    }
    known_[word.site] = {word, from, unix};
    has_[from][word.site] = word.at;
    ++of_teller_[from];
    return true;
}

// A peer's own word takes the place of the oldest hearsay.
bool SiteNews::has_room(const std::string& teller, bool is_direct) {
    const auto of = of_teller_.find(teller);
    if (!is_direct && of != of_teller_.end() && of->second >= of_teller_max) return false;
    if (known_.size() < sites_max) return true;
    if (!is_direct) return false;
    auto oldest = known_.end();
    for (auto it = known_.begin(); it != known_.end(); ++it)
        if (!it->second.is_direct() &&
            (oldest == known_.end() || it->second.heard < oldest->second.heard))
            oldest = it;
    if (oldest == known_.end()) return false;
    forget(oldest->first, oldest->second);
    known_.erase(oldest);
    return true;
}

std::vector<std::string> SiteNews::whom(std::vector<std::string> peers) {
    draw_some(peers, told_at_once, draw_);
    return peers;
}

SiteWords SiteNews::tell(const std::string& to, Nanos unix) {
    std::map<std::string, Nanos>& has = has_[to];
    std::vector<const SiteWord*> lacks;
    const auto look = [&](const SiteWord& word) {
        const auto it = has.find(word.site);
        if (it == has.end() || it->second < word.at) lacks.push_back(&word);
    };
    if (!word_.site.empty()) look(word_);
    for (const auto& [site, known] : known_)
        if (site != to && unix < known.word.at + word_lasts) look(known.word);
    draw_some(lacks, SiteWords::words_max, draw_);
    SiteWords words;
    for (const SiteWord* word : lacks) {
        has[word->site] = word->at;
        words.words.push_back(*word);
    }
    return words;
}

void SiteNews::fade(Nanos unix) {
    std::erase_if(known_, [&](const auto& entry) {
        const Known& known = entry.second;
        if (unix < known.word.at + word_lasts && unix < known.heard + word_lasts) return false;
        forget(entry.first, known);
        return true;
    });
}

void SiteNews::forget(const std::string& site, const Known& known) {
    if (--of_teller_[known.from] == 0) of_teller_.erase(known.from);
    for (auto& [peer, has] : has_) has.erase(site);
}

}  // namespace souk::market
