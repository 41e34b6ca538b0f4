// SPDX-License-Identifier: GPL-2.0-or-later
// SiteNews: what this market knows of other sites by hearsay (docs/sites.md). Each site says a word
// of itself now and then: its machines, prices and queue. Peers tell each other the words that they
// have, so that each site hears of all that are connected by any way, in a time that grows with the
// logarithm of their number (A. Demers et al., Epidemic algorithms for replicated database
// maintenance, 1987). A peer is told what it has neither told nor been told. Nobody is asked for
// it, and no site is a centre.
//
// It is hearsay: people are shown it, and nothing is decided by it. What a site says of itself,
// over its own connection, is not replaced by what others say of it, and a site that is not heard
// of any more fades. Pure; driven by NewsDesk of marketd.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kernel/base/money.hpp"
#include "kernel/base/rng.hpp"
#include "kernel/base/time.hpp"

namespace souk {

// A machine of a site, in its word.
struct NodeWord {
    std::string node;
    int32_t cpus = 1;
    int64_t speed = 0, memory_mb = 0, free_mb = 0;
    int32_t load_permille = 0;
    Money price;  // at which it would be let next
    bool operator==(const NodeWord&) const = default;
};

struct SiteWord {
    static constexpr size_t nodes_max = 8;
    std::string site;
    std::string root;                   // the SHA-256 of its root certificate
    Nanos at;                           // when it said this, by its own Unix clock
    uint32_t nodes = 0;                 // on its market
    int64_t cpus = 0;                   // of these
    uint32_t waiting = 0, running = 0;  // jobs
    std::vector<NodeWord> some;         // those machines, as many as have room
    bool operator==(const SiteWord&) const = default;
};

// One market tells another so much at a time.
struct SiteWords {
    static constexpr size_t words_max = 64;
    std::vector<SiteWord> words;
    bool operator==(const SiteWords&) const = default;
};

namespace market {

class SiteNews {
  public:
    static constexpr size_t sites_max = 1'024, of_teller_max = 512, told_at_once = 4;
    // A word that is older is forgotten. One from so far ahead is of a clock that is wrong.
    static constexpr Nanos word_lasts = Nanos::from_s(600), ahead_most = Nanos::from_s(60);
    // So long a site's own word is not replaced by what others say of it.
    static constexpr Nanos own_word_counts = Nanos::from_s(60);

    struct Known {
        SiteWord word;
        std::string from;  // the peer that told it, or the site itself
        Nanos heard;       // Unix time
        bool is_direct() const { return from == word.site; }
        // How old the word is, by the clock that is `unix` now.
        Nanos age(Nanos unix) const;
    };

    // `own`: the name of this site. `seed` draws whom it tells.
    SiteNews(std::string own, uint64_t seed) : own_(std::move(own)), draw_(seed) {}

    // A site makes a new word of itself so often: the more are known, the less often, as each word
    // has to go by all.
    Nanos word_every() const {
        return std::max(Nanos::from_s(5),
                        Nanos::from_ms(300 * static_cast<int64_t>(known_.size())));
    }
    void say(SiteWord own) { word_ = std::move(own); }
    // A peer tells what it knows. `root`: that of the peer, as this site knows it. Returns how many
    // words were news. Nothing that it says is an error: what cannot be is passed over.
    size_t heard(const std::string& from, const std::string& root, const SiteWords& told,
                 Nanos unix);
    // Draws some of these, to be told now.
    std::vector<std::string> whom(std::vector<std::string> peers);
    // Draws words that the peer has not, as far as is known here. It is told these now.
    SiteWords tell(const std::string& to, Nanos unix);
    // The peer has come, and may know nothing.
    void met(const std::string& peer) { has_.erase(peer); }
    // Forgets what is too old.
    void fade(Nanos unix);

    // The keys are the names of sites.
    const std::map<std::string, Known>& all() const { return known_; }

  private:
    bool take(const std::string& from, const std::string& root, const SiteWord& word, Nanos unix);
    bool has_room(const std::string& teller, bool is_direct);
    void forget(const std::string& site, const Known& known);

    std::string own_;
    SiteWord word_;
    std::map<std::string, Known> known_;
    std::map<std::string, size_t> of_teller_;  // how many of known_ each has told
    // For each peer: from when the newest word of each site is that it has.
    std::map<std::string, std::map<std::string, Nanos>> has_;
    Rng draw_;
};

}  // namespace market
}  // namespace souk
